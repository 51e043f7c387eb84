"""Workers on Ray give the same as one process, even if some of them die."""

import os
import signal
import time

import pytest

from weftformer.distributed import cluster
from weftformer.distributed.tasks import Result, batches_of
from weftformer.scripts import cli

pytestmark = pytest.mark.integration

SMALL = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}


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
    words = f"generate CCO --model {tmp_path} --workers 2 --output-file x --no-progress".split()
    (tmp_path / "config.json").write_text('{"model_type": "bart"}')
    assert cli.main(words) == 1
    assert "bart" in capsys.readouterr().err
    work = stub(tmp_path)
    type(work).load = lambda self: os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(ValueError, match="3 workers died"):
        list(cluster.run(work, [(0, "fine")], cluster.WorkerSettings(1)))
    with pytest.raises(ValueError, match=r"--workers 3 .* can take 2\."):
        list(cluster.run(work, [(0, "fine")], cluster.WorkerSettings(3)))
