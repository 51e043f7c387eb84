"""`weftformer demo` with a small model makes everything that it promises."""

import pytest

pytest.importorskip("rdkit")

from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainingArguments

from weftformer.routes.molecules import canonical_smiles
from weftformer.scripts import cli, demo


@pytest.mark.integration
def test_demo_plans_draws_trains_and_saves(planner_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "NUM_TEST_ROUTES", 4)
    monkeypatch.setattr(demo, "BUDGET", 0.5)
    # as on a machine with two GPUs, of which the training uses one
    made = Seq2SeqTrainingArguments.__post_init__
    monkeypatch.setattr(
        Seq2SeqTrainingArguments, "__post_init__", lambda self: (made(self), vars(self).update(_n_gpu=2))
    )
    monkeypatch.delattr("torch.nn.DataParallel.__init__")
    arguments = ["--model", planner_folder, "--output-dir", str(tmp_path / "out"), "--beams", "2"]
    assert cli.main(["demo", *arguments, "--max-steps", "5"]) == 0
    shown = capsys.readouterr().out
    page = (tmp_path / "out" / "routes.html").read_text()
    for name, smiles in demo.DRUGS.items():
        assert f"\n{name} ({smiles}): " in shown and canonical_smiles(smiles) in page
    assert "after 5 steps" in shown
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out" / "model").config.d_model == 128
