"""Workers on Ray give the same as one process, even if some of them die."""

import json
import os
import signal
import time

import pytest

pytest.importorskip("rdkit")

from weftformer.distributed import cluster
from weftformer.distributed.tasks import PlanTask, Result, batches_of
from weftformer.routes import Plan, PlanSettings, Stock
from weftformer.routes.files.targets import Target
from weftformer.scripts import cli

from ..conftest import KNOWN
from ..scripts.test_routes_library import OWN, PRODUCT, REACTANTS

pytestmark = pytest.mark.integration

SMALL = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
TARGETS = [*(route.smiles for route in KNOWN), "CCO", "C1CC", "CC.Cl", "CCN"]


@pytest.fixture(scope="module")
def two_cpus():
    """Ray with two CPUs, which two workers take."""
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, object_store_memory=80 << 20, **SMALL)
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def stub(folder, seconds=0.0):
    """Return work that does what its items name. They are pickled with their class, which workers cannot import."""

    class Stub:
        loading, threads = {}, None

        def load(self):
            (folder / f"loaded-{os.getpid()}").touch()

        def __call__(self, items):
            rows = []
            for index, item in items:
                time.sleep(seconds)
                once = folder / f"{item}-{index}"
                if item == "kill" or (item == "kill once" and not once.exists()):
                    once.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                if item == "raise":
                    raise RuntimeError("cannot be done")
                if item == "wait":
                    time.sleep(600)
                rows.append(Result(index, item, "done", f"{item}\n"))
            yield rows

        def failed(self, index, item, reason):
            return Result(index, item, "failed", reason)

        def line(self, result):
            return result.value

        def batches(self, items, workers):
            return batches_of(items, lambda item: 1, 4, workers)

        def seconds(self, items):
            return 5.0 if any(item == "wait" for _, item in items) else None

    return Stub()


def test_an_item_that_kills_two_workers_fails_and_no_other(two_cpus, tmp_path):
    items = list(enumerate(["fine"] * 9 + ["kill", "fine", "kill once", "raise", "fine", "wait"] + ["fine"] * 9))
    rows = [row for batch in cluster.run(stub(tmp_path), items, cluster.WorkerSettings(2)) for row in batch]
    assert sorted(row.index for row in rows) == list(range(len(items)))  # nothing lost, nothing twice
    failed = {row.index: row.value for row in rows if row.state == "failed"}
    causes = {9: "ended its worker", 12: "RuntimeError: cannot be done", 14: "too long"}
    assert failed.keys() == causes.keys() and all(causes[index] in reason for index, reason in failed.items())
    assert 3 < len(list(tmp_path.glob("loaded-*"))) <= 2 + 5  # a worker for each that died


def test_an_error_in_loading_is_raised_once(two_cpus, tmp_path, capsys):
    words = f"routes plan CCO --model {tmp_path} --workers 2 --output-file x --no-progress".split()
    (tmp_path / "config.json").write_text('{"model_type": "bart"}')
    assert cli.main(words) == 1
    assert "bart" in capsys.readouterr().err
    work = stub(tmp_path)
    type(work).load = lambda self: os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(ValueError, match="3 workers died"):
        list(cluster.run(work, [(0, "fine")], cluster.WorkerSettings(1)))
    with pytest.raises(ValueError, match=r"--workers 3 .* can take 2\."):
        list(cluster.run(work, [(0, "fine")], cluster.WorkerSettings(3)))


def test_two_workers_write_the_plans_of_one_process(two_cpus, planner_folder, tmp_path, capsys):
    (tmp_path / "targets.smi").write_text("".join(f"{smiles} t{number}\n" for number, smiles in enumerate(TARGETS)))
    (tmp_path / "stock.smi").write_text("CC(=O)O\nCCO\n")
    words = f"routes plan --model {planner_folder} --input-file targets.smi --steps 1 --beams 2 --no-progress".split()
    words += ["--stock", "stock.smi"]
    assert cli.main([*words, "--output-file", "alone.jsonl"]) == 3
    capsys.readouterr()
    assert cli.main([*words, "--output-file", "parts", "--workers", "2"]) == 3
    assert f"{len(TARGETS)} targets in parts" in (out := capsys.readouterr().out) and "2 refused" in out
    assert cli.main(["routes", "plan", "--join", "parts", "--output-file", "joined.jsonl"]) == 3
    alone, of_workers = (
        {row["number"]: row for row in map(json.loads, (tmp_path / name).read_text().splitlines())}
        for name in ("alone.jsonl", "joined.jsonl")
    )
    assert list(of_workers) == sorted(alone)
    for number, row in alone.items():
        other = of_workers[number]
        assert list(other) == list(row) and (other["state"], other["settings"]) == (row["state"], row["settings"])
        assert Plan.from_dict(other).routes == Plan.from_dict(row).routes and other["problem"] == row["problem"]
    assert {"done", "unfinished", "refused"} <= {row["state"] for row in of_workers.values()}
    assert cli.main(["routes", "plan", "--join", "parts", "--output-file", "joined.csv"]) == 3
    assert (tmp_path / "joined.csv").read_text().startswith("id,target,solved,rank")


def test_a_library_travels_to_a_worker_that_cannot_see_it(two_cpus, planner_folder, tmp_path):
    (tmp_path / "own.csv").write_text(f"id,reaction_smiles\nELN-7,{OWN}\n")
    file = tmp_path / "own.jsonl.gz"
    assert (
        cli.main(["routes", "library", str(tmp_path / "own.csv"), "--output-file", str(file), "--workers", "1"]) == 0
    )
    settings, conditions = PlanSettings(beams=1, library=str(file)), {"stock": Stock(REACTANTS)}
    task = PlanTask(planner_folder, settings=settings, conditions=conditions)
    file.unlink()
    [[result]] = cluster.run(task, [(0, Target("1", PRODUCT))], cluster.WorkerSettings(1))
    row = json.loads(result.value)
    assert row["solved"] and row["candidates"][0]["reactions"][0]["examples"][0]["source"] == "ELN-7"
