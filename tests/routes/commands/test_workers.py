"""Workers on Ray write the plans of one process."""

import json

import pytest

from weftformer.distributed import cluster
from weftformer.routes import Plan, PlanSettings, Stock
from weftformer.routes.commands.tasks import PlanTask
from weftformer.routes.files.targets import Target
from weftformer.scripts import cli

from ...distributed.test_ray import surroundings, two_cpus  # noqa: F401, fixtures
from ..conftest import KNOWN
from .test_library import OWN, PRODUCT, REACTANTS

pytestmark = pytest.mark.integration

TARGETS = [*(route.smiles for route in KNOWN), "CCO", "C1CC", "CC.Cl", "CCN"]


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
