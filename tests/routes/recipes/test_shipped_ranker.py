"""The recipe of the ranker, from mapped reactions and routes to a file that ranks."""

import json

import pytest

pytest.importorskip("rdchiral")

from weftformer.routes import Route, write_routes
from weftformer.routes.judging import load_library
from weftformer.routes.recipes import shipped_ranker
from weftformer.routes.training.extraction import make_library, write

LENGTHS = range(2, 10)


def chain(length):
    """An alkyl group with atom maps."""
    return "[CH3:10]" + "".join(f"[CH2:{10 + place}]" for place in range(1, length))


def amide(length):
    return f"{chain(length)}[C:1](=[O:2])O.[NH2:3][CH2:4][CH3:5]>>{chain(length)}[C:1](=[O:2])[NH:3][CH2:4][CH3:5]"


def ether(length):
    return f"{chain(length)}[CH2:1]Br.[OH:2][CH2:3][CH3:4]>>{chain(length)}[CH2:1][O:2][CH2:3][CH3:4]"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "reactions.smi").write_text("\n".join(map(amide, LENGTHS)))
    known = [Route(f"{'C' * length}COCC", (Route(f"{'C' * length}CBr"), Route("CCO"))) for length in LENGTHS]
    write_routes(tmp_path / "known.jsonl", known)
    write_routes(tmp_path / "excluded.jsonl", known[:1])
    (tmp_path / "all.smi").write_text("\n".join([*map(amide, LENGTHS), *map(ether, LENGTHS)]))
    rows, _ = make_library(tmp_path / "all.smi", progress=False)
    write(rows, tmp_path / "library.jsonl.gz")
    return tmp_path


def test_a_ranker_tells_the_reactions_of_its_library_apart(files, monkeypatch, capsys):
    for name, value in {"HELD_OUT": 2, "BATCH": 4, "EPOCHS": 30, "HIDDEN": 16, "VALIDATION": 10**9}.items():
        monkeypatch.setattr(shipped_ranker, name, value)
    monkeypatch.setattr(shipped_ranker, "accuracy", lambda *found: None)
    words = "--reactions reactions.smi --known known.jsonl --exclude excluded.jsonl --pairs pairs"
    words = f"{words} --library library.jsonl.gz --out ranker.safetensors".split()
    paths = [word if word.startswith("--") else str(files / word) for word in words]
    shipped_ranker.main(paths)
    held_out = [json.loads(line)["product"] for line in (files / "pairs" / "held-out.jsonl").read_text().splitlines()]
    assert len(set(held_out)) == 2 and all("NC" in product for product in held_out)
    classes = (files / "pairs" / "classes.txt").read_text().split()
    assert len(classes) == 15 and "null" not in classes
    assert "13 reactions of 2 classes" in capsys.readouterr().out
    library = load_library(files / "library.jsonl.gz", files / "ranker.safetensors")
    assert library.propose("CCCCCCCCCCCC(=O)NCC", 5)[0] == (("CCCCCCCCCCCC(=O)O", "CCN"), pytest.approx(1.0, abs=0.2))
    # an ether from either side, with half of the probability each
    shares = dict(library.propose("CCCCCCCCCCCOCC", 5))
    assert shares["CCCCCCCCCCCBr", "CCO"] == shares["CCBr", "CCCCCCCCCCCO"] > 0.3
    # a second run reads the classes that it knows
    first = (files / "ranker.safetensors").read_bytes()
    monkeypatch.setattr(shipped_ranker.Classes, "place", None)
    shipped_ranker.main(paths)
    assert (files / "ranker.safetensors").read_bytes() == first
