"""The checks of a GPU, with tiny models on a CPU."""

import json

import pytest

from weftformer.benchmarks import gpu
from weftformer.scripts.cli import Parser


def run(*words):
    parser = Parser()
    gpu.add_arguments(parser)
    return gpu.main(parser.parse_args([*words, "--device", "cpu"]))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "implementations" else pytest.mark.integration) for name in gpu.CHECKS],
)
def test_every_check_passes_on_a_cpu(name):
    rows = [gpu.run_case(gpu.Bench("cpu"), *case) for case in gpu.chosen_cases([f"{name}:"])]
    skipped = {row["figures"]["reason"] for row in rows if row["state"] == "SKIP"}
    assert skipped <= {
        "no gradients on a CPU",
        "not installed",
        "one case compiles on a CPU",
        "experts are compared without a compiler",
    }
    assert {row["state"] for row in rows} - {"SKIP"} == {"PASS"}, "\n".join(map(gpu.as_line, rows))


def test_cases_are_in_the_order_of_the_words():
    words = [
        "decoding_beside:T5 beams",
        "training_beside:compiled small T5",
        "decoding_beside:T5",
        "training_beside:eager large BART",
    ]
    found = [case for _, case in gpu.chosen_cases(words)]
    assert found == ["T5 beams", "compiled small T5", "T5 one", "T5 greedy", "eager large BART"]
    with pytest.raises(ValueError, match="there is no case 'training_beside:large'"):
        gpu.chosen_cases(["training_beside:large"])


def test_a_failed_check_fails_the_script_but_does_not_end_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "CHECKS", {})

    @gpu.check(("first", "second"))
    def raises(bench, case):
        raise RuntimeError(f"InductorError: {'in a subprocess ' * 99}ValueError: the cause")

    @gpu.check()
    def passes(bench, case):
        return True, {"ms": 1234.5, "same": True}

    file = tmp_path / "folder" / "gpu.json"
    assert run("raises", "passes", "--json", str(file)) == 1
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["FAIL", "raises"], ["FAIL", "raises"], ["PASS", "passes"]]
    assert lines[0].endswith("ValueError: the cause')") and len(lines[0]) < 500
    rows = json.loads(file.read_text())["rows"]
    assert "Traceback" in rows[0]["details"] and lines[2].endswith("ms 1234; same True")
    assert run("passes", "--json", str(file)) == 0
