"""The scripts for many nodes, as far as they can be checked without a cluster."""

import re
import shlex
import shutil
import subprocess

import pytest
import yaml
from torch.distributed.run import get_args_parser

from weftformer.scripts.cli import build_parser
from weftformer.scripts.parsing import parse_arguments

from .test_pages import ROOT, blocks, own_text

PAGE = own_text(ROOT / "docs" / "scaling.md") + own_text(ROOT / "docs" / "cluster.md")


@pytest.fixture
def slurm() -> str:
    (script,) = [block for block in blocks(PAGE, "bash") if "torchrun" in block and "#SBATCH" in block]
    return script


def started(words: list[str]):
    """Return the arguments that torchrun parses, and those that `weftformer train` parses of the rest."""
    run = get_args_parser().parse_args(words)
    command, *options = run.training_script_args
    assert run.module and (run.training_script, command) == ("weftformer", "train")
    model, _, training = parse_arguments([*options, "--use-cpu"])
    return run, model, training


def test_the_script_of_slurm_starts_one_torchrun_on_each_node(slurm, tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    done = subprocess.run(["bash", "-n"], input=slurm, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    # run unchanged, with stand-ins for Slurm's own two commands and for torchrun, which shows its words
    for name, does in {
        "scontrol": "printf 'node7\\nnode8\\n'",
        "srun": 'exec "${@:3}"',
        "torchrun": "env; printf '@%s\\n' \"$@\"",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{does}\n")
        (tmp_path / name).chmod(0o755)
    given = {"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "11", "SLURM_CPUS_PER_TASK": "64"}
    environment = given | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    shown = subprocess.run(
        ["bash", "-eu"], input=slurm, text=True, capture_output=True, env=environment, check=True
    ).stdout
    run, model, training = started([line[1:] for line in shown.splitlines() if line.startswith("@")])
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in shown.splitlines()
    assert (run.nnodes, run.rdzv_id, run.rdzv_endpoint) == ("2", "11", "node7:29400")
    assert_sound(run, model, training)
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", slurm, flags=re.MULTILINE))
    assert options["ntasks-per-node"] == "1" and options["nodes"] == run.nnodes and "requeue" in options
    assert options["gpus-per-node"] == run.nproc_per_node


def test_the_job_of_kubernetes_starts_one_torchrun_in_each_pod():
    (block,) = [block for block in blocks(PAGE, "yaml") if "torchrun" in block]
    service, job = yaml.safe_load_all(block)
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    # without an address of its own, and for pods that are not ready yet: the name of a pod is in the DNS from the start
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"] and pod["restartPolicy"] == "OnFailure"
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
    (container,) = pod["containers"]
    assert container["command"] == ["torchrun"]
    run, model, training = started(container["args"])
    assert run.nnodes == str(spec["completions"])
    assert run.rdzv_endpoint == f"{job['metadata']['name']}-0.{service['metadata']['name']}:29400"
    assert run.nproc_per_node == str(container["resources"]["limits"]["nvidia.com/gpu"])
    assert {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"} in container["env"]
    assert_sound(run, model, training)


def assert_sound(run, model, training) -> None:
    assert run.rdzv_backend == "c10d" and run.max_restarts > 0
    assert training.wants_resume and training.checkpoint_to_resume() is None and training.save_steps > 0
    sizes = dict(part.split("=") for part in model.distributed_config.split(","))
    assert sizes == {"dp_replicate_size": run.nnodes, "fsdp_size": run.nproc_per_node}
    assert run.rdzv_conf == "join_timeout=1800"


def test_the_commands_for_ray_and_for_shards_are_read_and_fit_their_machines():
    pytest.importorskip("fastapi")
    pytest.importorskip("ray")
    from weftformer.distributed.replicas import bounds
    from weftformer.serving.limits import Limits

    parser = build_parser(["routes plan"])[1]["routes plan"]
    texts = [block for block in blocks(PAGE, "bash") if "#SBATCH" in block and "torchrun" not in block]
    array, cluster = (re.search(r"^weftformer routes plan (.*)$", text, re.MULTILINE)[1] for text in texts)
    assert parser.parse_args(shlex.split(array)).shard == "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
    assert (
        parser.parse_args(shlex.split(cluster)).workers
        == 62 + 3 * 64
        == sum(int(cpus) * int(nodes) for nodes, cpus in re.findall(r"--nodes=(\d+).*--num-cpus (\d+)", texts[1]))
    )
    job, served = [yaml.safe_load(block) for block in blocks(PAGE, "yaml") if "torchrun" not in block]
    args = parser.parse_args(shlex.split(job["spec"]["entrypoint"])[2:])
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (
        args.workers == group["minReplicas"] * int(group["rayStartParams"]["num-cpus"]) and args.ray_address == "auto"
    )
    (app,) = served["applications"]
    assert app["import_path"] == "weftformer.distributed.replicas:application" and bounds(app["args"]["replicas"]) == (
        1,
        8,
    )
    assert Limits(**app["args"]["limits"]).max_beams == 20
