"""The scripts for many nodes: torchrun, `weftformer` and Ray Serve read their words."""

import re
import shlex

import pytest
import yaml
from torch.distributed.run import get_args_parser

from weftformer.scripts.cli import build_parser
from weftformer.scripts.parsing import parse_arguments

from .test_pages import ROOT, blocks, own_text

PAGE = own_text(ROOT / "docs" / "scaling.md") + own_text(ROOT / "docs" / "cluster.md")


def torchrun_of_slurm() -> list[str]:
    (script,) = [block for block in blocks(PAGE, "bash") if "torchrun" in block and "#SBATCH" in block]
    script = script.replace("$SLURM_NNODES", "2").replace("\\\n", "")
    return shlex.split(re.search(r" torchrun (.*)", script)[1])


def torchrun_of_kubernetes() -> list[str]:
    (block,) = [block for block in blocks(PAGE, "yaml") if "torchrun" in block]
    _, job = yaml.safe_load_all(block)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["torchrun"]
    return container["args"]


@pytest.mark.parametrize("words", [torchrun_of_slurm, torchrun_of_kubernetes])
def test_the_trainings_of_torchrun_resume_and_fill_their_nodes(words):
    run = get_args_parser().parse_args(words())
    command, *options = run.training_script_args
    assert run.module and (run.training_script, command) == ("weftformer", "train")
    model, _, training = parse_arguments([*options, "--use-cpu"])
    assert run.rdzv_backend == "c10d" and run.max_restarts > 0
    assert training.wants_resume and training.checkpoint_to_resume() is None and training.save_steps > 0
    sizes = dict(part.split("=") for part in model.distributed_config.split(","))
    assert sizes == {"dp_replicate_size": run.nnodes, "fsdp_size": run.nproc_per_node}


def test_the_commands_for_ray_and_for_shards_are_read():
    pytest.importorskip("fastapi")
    pytest.importorskip("ray")
    from weftformer.distributed.replicas import bounds
    from weftformer.serving.limits import Limits

    parser = build_parser(["routes plan"])[1]["routes plan"]
    texts = [block for block in blocks(PAGE, "bash") if "#SBATCH" in block and "torchrun" not in block]
    array, cluster = (re.search(r"^weftformer routes plan (.*)$", text, re.MULTILINE)[1] for text in texts)
    assert parser.parse_args(shlex.split(array)).shard == "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
    assert parser.parse_args(shlex.split(cluster)).workers > 1
    job, served = [yaml.safe_load(block) for block in blocks(PAGE, "yaml") if "torchrun" not in block]
    assert parser.parse_args(shlex.split(job["spec"]["entrypoint"])[2:]).ray_address == "auto"
    (app,) = served["applications"]
    assert app["import_path"] == "weftformer.distributed.replicas:application" and bounds(app["args"]["replicas"])
    assert Limits(**app["args"]["limits"]).max_beams == 20
