"""`weftformer demo` with a small model makes everything that it promises."""

import pytest

pytest.importorskip("rdkit")

from transformers import AutoModelForSeq2SeqLM

from weftformer.routes.chemistry.molecules import canonical_smiles
from weftformer.scripts import cli, demo


@pytest.mark.integration
def test_demo_plans_draws_trains_and_saves(planner_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "NUM_PAIRS", 60)
    arguments = ["--model", planner_folder, "--output-dir", str(tmp_path / "out"), "--beams", "2"]
    assert cli.main(["demo", *arguments, "--max-steps", "5"]) == 0
    shown = capsys.readouterr().out
    page = (tmp_path / "out" / "routes.html").read_text()
    for name, smiles in demo.DRUGS.items():
        assert f"\n{name} ({smiles}): " in shown and canonical_smiles(smiles) in page
    answers = (tmp_path / "out" / "answers.txt").read_text().splitlines()
    assert len(answers) == demo.NUM_SHOWN and all(answer in shown for answer in answers)
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out" / "model").config.d_model == 192
