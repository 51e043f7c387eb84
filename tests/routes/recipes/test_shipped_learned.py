"""What the recipe learns from a few reactions: the file, the counts, and the reactions that it leaves out."""

import json

from safetensors.numpy import load_file

from weftformer.routes.judging.sites import BITS
from weftformer.routes.judging.unseen import Unseen, molecule_key
from weftformer.routes.recipes import shipped_learned

ACYLATION = "[OH:1][CH2:2]{alkyl}[NH2:3].Cl[C:4]([CH3:5])=[O:6]>>[OH:1][CH2:2]{alkyl}[NH:3][C:4]([CH3:5])=[O:6]"


def test_the_recipe_learns_from_reactions(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shipped_learned, "LEAST_RECORDED", 2)
    monkeypatch.setattr(shipped_learned, "LEAST_USED", 2)
    rows = [{"mapped": ACYLATION.format(alkyl="C" * length)} for length in range(1, 60)]
    (tmp_path / "reactions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, rows[0]]))
    out = tmp_path / "learned.safetensors"
    shipped_learned.main(["--reactions", str(tmp_path / "reactions.jsonl"), "--out", str(out)])
    said, tensors = capsys.readouterr().out, load_file(str(out))
    assert "binds" in said and "first: 100.0%" in said and f"Saved to {out}" in said
    assert tensors["sites.weight"].shape == (1 << BITS,) and tensors["sites.weight"].any()
    unseen = Unseen({name.removeprefix("unseen."): value for name, value in tensors.items() if "unseen" in name})
    assert unseen.is_known("CC(=O)Cl") and not unseen.is_known("CC(=O)NCCO")
    assert molecule_key("CC(=O)Cl") in tensors["unseen.known"]
