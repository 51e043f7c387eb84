"""The checks of a GPU, with tiny models on a CPU."""

import json

import pytest

from weftformer.benchmarks import gpu
from weftformer.scripts.cli import Parser

BENCH = gpu.Bench("cpu", gpu._ON_A_CPU)


def run(*words):
    parser = Parser()
    gpu.add_arguments(parser)
    return gpu.main(parser.parse_args([*words, "--device", "cpu"]))


@pytest.fixture
def entered(monkeypatch):
    """Enters a check among the others while the test runs."""
    monkeypatch.setattr(gpu, "CHECKS", dict(gpu.CHECKS))
    return gpu.check


FAST = ("logits_as_on_a_cpu", "rows_without_keys_are_zero")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.integration) for name in gpu.CHECKS]
)
def test_every_check_passes_on_a_cpu(name):
    rows = [gpu.run_case(BENCH, name, case) for case in gpu.CHECKS[name].cases]
    assert {row["state"] for row in rows} <= {"PASS", "SKIP"}, "\n".join(map(gpu.as_line, rows))
    reasons = {row["figures"]["reason"] for row in rows if row["state"] == "SKIP"}
    assert reasons <= {"needs a GPU", "no gradients on a CPU", "not installed"}
    assert name == "host_reads" or any(row["state"] == "PASS" for row in rows)


def test_a_failed_check_fails_the_script_but_does_not_end_it(entered, tmp_path, capsys):
    @entered(("first", "second"))
    def raises(bench, case):
        raise RuntimeError("InductorError: in a subprocess\n  File one\n  File two\nValueError: the cause\n")

    @entered()
    def passes(bench, case):
        return True, {"ms": 1234.5, "same": True}

    file = tmp_path / "folder" / "gpu.json"
    assert run("raises", "passes", "--json", str(file)) == 1
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["FAIL", "raises"], ["FAIL", "raises"], ["PASS", "passes"]]
    assert lines[0].endswith("RuntimeError: InductorError: in a subprocess / File two / ValueError: the cause")
    rows = json.loads(file.read_text())["rows"]
    assert "Traceback" in rows[0]["details"] and lines[2].endswith("ms 1,234; same yes")
    assert run("passes", "--json", str(file)) == 0
