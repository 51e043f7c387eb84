import random

import pytest

from weftformer.routes.benchmarks import judging

STEP = ("CC(=O)NCc1ccccc1", ("CC(=O)O", "NCc1ccccc1"))
ETHER = ("CO[C@@H](C)c1ccc(C)cc1", ("CI", "C[C@H](O)c1ccc(C)cc1"))


def test_a_change_makes_another_step():
    rng = random.Random(0)
    assert judging.swapped(STEP, ["CCO"], rng)[1] in {("CCO", "NCc1ccccc1"), ("CC(=O)O", "CCO")}
    assert judging.swapped(STEP, ["CC(=O)O"], rng) is None and judging.inverted(STEP, rng) is None
    assert judging.inverted(ETHER, rng) == ("CO[C@H](C)c1ccc(C)cc1", ETHER[1])
    assert judging.moved(ETHER, rng) == ("CO[C@@H](C)c1cccc(C)c1", ETHER[1]) and judging.moved(STEP, rng) is None


@pytest.mark.parametrize(
    ("words", "printed"), [((), "recorded          2  100.0%"), (("--change", "invert"), "fails")]
)
def test_outcomes_are_counted(tmp_path, capsys, words, printed):
    (tmp_path / "a.txt").write_text(
        "CC(=O)O.NCc1ccccc1>>CC(=O)NCc1ccccc1\nCI.C[C@H](O)c1ccc(C)cc1>>CO[C@@H](C)c1ccc(C)cc1\n"
    )
    (tmp_path / "b.txt").write_text("CC(=O)O.NCc1ccccc1>>CC(=O)NCc1ccccc1\n")
    judging.main([str(tmp_path / "a.txt"), *words])
    out = capsys.readouterr().out
    assert out.startswith("1 steps" if words else "2 steps") and printed in out
    judging.main([str(tmp_path / "a.txt"), "--without", str(tmp_path / "b.txt")])
    assert capsys.readouterr().out.startswith("1 steps")
