"""Two `torchrun` agents in a rendezvous count as two nodes: the same as on one process, and killed at any place."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

from .test_distributed_training import KILLED, SPARSE, STEPS

NODE = Path(__file__).with_name("node.py")
LIMIT = 300  # seconds for a start or for a whole run, on a busy machine


class Nodes:
    """Two agents, which are restarted when they die, as by a scheduler.

    Args:
        folder: the folder of logs and of the files of `node.py`.
        words: the program that each agent starts, and its arguments.
        processes: the number of processes of each agent.
    """

    def __init__(self, folder: Path, words: list, processes: int):
        folder.mkdir(exist_ok=True)
        with socket.socket() as free:
            free.bind(("localhost", 0))
            self.port = free.getsockname()[1]
        self.folder, self.starts = folder, [0, 0]
        self.words = [
            "--nnodes", 2, "--nproc-per-node", processes, "--max-restarts", 3, "--rdzv-backend", "c10d", "--rdzv-id", "test",
            "--rdzv-endpoint", f"localhost:{self.port}", *words,
        ]  # fmt: skip
        self.agents = [self._start(0)]
        self._wait(self._is_listening)  # the first agent has the store for the rendezvous
        self.agents.append(self._start(1))

    def _start(self, node: int) -> subprocess.Popen:
        # as in the documentation, because otherwise a restarted agent does not find the others
        environment = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "CUDA_VISIBLE_DEVICES": ""}
        self.starts[node] += 1
        with open(self.folder / f"log-{node}", "a") as log:
            command = [sys.executable, "-m", "torch.distributed.run", *map(str, self.words)]
            return subprocess.Popen(command, env=environment | {"NODE": str(node)}, stdout=log, stderr=log)

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("localhost", self.port)) == 0

    def _wait(self, is_done) -> None:
        end = time.monotonic() + LIMIT
        while not is_done():
            if time.monotonic() > end:
                logs = [(self.folder / f"log-{node}").read_text()[-3000:] for node in range(len(self.agents))]
                pytest.fail(f"The agents took more than {LIMIT} s:\n" + "\n".join(logs))
            time.sleep(0.05)

    def reached(self, place: str, nodes: int) -> list[dict]:
        """Wait until some nodes are at a place, and return their pids and ranks by node, {} for the others."""
        found = [self.folder / f"reached-{node}" for node in range(2)]
        self._wait(lambda: self.look_after() and sum(file.exists() for file in found) == nodes)
        processes = [json.loads(file.read_text()) if file.exists() else {} for file in found]
        for file in found:
            file.unlink(missing_ok=True)
        return processes

    def look_after(self) -> bool:
        """Restart agents that failed."""
        for node, agent in enumerate(self.agents):
            if agent.poll():
                assert self.starts[node] < 4, (self.folder / f"log-{node}").read_text()[-3000:]
                self.agents[node] = self._start(node)
        return True

    def kill(self, node: int) -> None:
        """Send SIGKILL to an agent alone."""
        self.agents[node].kill()
        self.agents[node].wait()

    def end(self) -> None:
        """Wait until both agents have finished without an error."""
        self._wait(lambda: self.look_after() and all(agent.poll() == 0 for agent in self.agents))

    def stop(self) -> None:
        for node in range(len(self.agents)):
            self.kill(node)  # their processes die with them


@pytest.fixture
def new_nodes():
    started: list[Nodes] = []

    def start(*args) -> Nodes:
        started.append(Nodes(*args))
        return started[-1]

    yield start
    for nodes in started:
        nodes.stop()


@pytest.mark.dtype(torch.float64)
@pytest.mark.slow
def test_four_processes_equal_one(new_nodes, alone_training, data, tmp_path):
    """Copies of the model on both nodes, its layers and experts in parts within each."""
    # three whole steps an epoch: no process repeats rows, which experts would see twice
    settings = STEPS | {"fields": SPARSE, "data": data, "dtype": torch.float64, "max_train_samples": 48}
    split = {
        "distributed_config": "dp_replicate_size=2,fsdp_size=2,ep_size=2", "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2, "save_strategy": "steps", "save_steps": 2, "save_total_limit": 9,
    }  # fmt: skip
    again = {"resume_from_checkpoint": tmp_path / "first" / "checkpoint-2"}
    folder = tmp_path / "nodes"
    folder.mkdir()
    jobs = [{"folder": tmp_path / "first"}, {"folder": tmp_path / "resumed", **again}]
    torch.save([settings | split | job for job in jobs], folder / "jobs.pt")
    new_nodes(folder, [NODE, folder], 2).end()
    one = alone_training.train(folder=tmp_path / "one", per_device_train_batch_size=16, **settings)
    assert [step for step, *_ in one["curve"]] == [1, 2, 3, 4]
    for rank in range(4):
        first, resumed = torch.load(folder / f"{rank}.pt", weights_only=False)
        torch.testing.assert_close(first["curve"], one["curve"], rtol=0, atol=1e-9)
        assert resumed["curve"] == first["curve"] and first["held"] < 0.8 * one["held"]
    weights = [
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name).state_dict() for name in ("one", "first", "resumed")
    ]
    for part, value in weights[0].items():
        assert value.dtype == torch.float64 or part.endswith("selection_bias")
        torch.testing.assert_close(weights[1][part], value, rtol=0, atol=1e-9, msg=part)
        assert torch.equal(weights[2][part], weights[1][part]), part


def saved_steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def assert_gone(pid: int) -> None:
    """Check that a process has died with its agent, though it was not killed itself."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        stat = Path(f"/proc/{pid}/stat")
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.01)
    pytest.fail(f"Process {pid} lives on without its agent.")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the processes of a killed agent live on")
def test_a_killed_run_resumes_to_the_same_weights(new_nodes, alone_training, data, tmp_path, monkeypatch):
    """A process in the middle of a save, an agent, and the agent that all meet at."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    whole, run, folder = tmp_path / "whole", tmp_path / "run", tmp_path / "nodes"

    def command(output):
        settings = {name: value for name, value in KILLED.items() if name != "fields"} | {"ddp_backend": "gloo"}
        return alone_training.arguments(data, output, KILLED["fields"], **settings)

    new_nodes(tmp_path / "left alone", ["-m", "weftformer", "train", *command(whole)], 1).end()
    folder.mkdir()
    (folder / "hold").write_text("save 4")
    nodes = new_nodes(folder, [NODE, folder, *command(run)], 1)

    (first,) = filter(None, nodes.reached("save 4", nodes=1))
    assert first["rank"] == 0 and saved_steps(run) == ["checkpoint-2"]
    move_on(folder, "step 4")
    os.kill(first["pid"], signal.SIGKILL)  # the agents start the processes again

    processes = nodes.reached("step 4", nodes=2)
    assert nodes.starts == [1, 1] and saved_steps(run) == ["checkpoint-2", "checkpoint-4"]
    nodes.kill(1)
    assert_gone(processes[1]["pid"])
    move_on(folder, "step 5")

    processes = nodes.reached("step 5", nodes=2)
    assert nodes.starts == [1, 2]
    nodes.kill(0)
    assert_gone(processes[0]["pid"])
    move_on(folder, "nowhere")
    nodes.end()
    assert nodes.starts == [2, 3]  # without the store the other agent gives up as well

    assert saved_steps(run) == saved_steps(whole)
    assert {path.name for path in run.iterdir()} == {path.name for path in whole.iterdir()}
    curves = [json.loads((path / "trainer_state.json").read_text())["log_history"] for path in (run, whole)]
    logged = [[log for log in logs if "loss" in log] for logs in curves]
    assert logged[0] == logged[1] and [log["step"] for log in logged[0]] == [3, 6]
    for name in ("model.safetensors", "checkpoint-6/model.safetensors"):
        found, expected = (load_file(path / name) for path in (run, whole))
        assert found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in expected)
    states = [torch.load(path / "checkpoint-6" / "optimizer.pt", weights_only=True)["state"] for path in (run, whole)]
    assert states[0].keys() == states[1].keys() and len(states[0]) > 20
    for index, state in states[1].items():
        assert all(torch.equal(states[0][index][name], value) for name, value in state.items())


def move_on(folder: Path, place: str) -> None:
    """Let the processes go on to another place."""
    (folder / "hold.part").write_text(place)
    (folder / "hold.part").rename(folder / "hold")
