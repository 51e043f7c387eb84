"""The arguments of `weftformer train-routes` that are used most; all are fields of `RouteArguments` and `RouteTrainingArguments`."""

import argparse

from ..arguments import CommonHelp
from .training_options import add_shared


def build_parser() -> argparse.ArgumentParser:
    parser = CommonHelp(
        prog="weftformer train-routes",
        usage="weftformer train-routes [FILE.yaml] [--train-file ROUTES --test-file ROUTES] [--output-dir FOLDER] [--option value ...]",
        description="Train a model that writes synthesis routes, test it on held-out targets, plan one of them. Without files it\n"
        "learns from a sample of recorded routes that comes with Weft.",
        epilog="These are the options that are used most. `weftformer train-routes --help-all` shows all of them.\n\n"
        "example:\n"
        "  weftformer train-routes --train-file data/routes --test-file held-out.jsonl.gz --preset dms-flash-10m \\\n"
        "      --output-dir runs/flash",
    )
    add = parser.add_argument_group("what is needed most").add_argument
    add(
        "--train-file",
        metavar="ROUTES",
        help="a file of routes, or a folder of `weftformer prepare-routes` (default: the sample of Weft)",
    )
    add("--test-file", metavar="ROUTES", help="held-out routes; training routes of the same targets are left out")
    add("--output-dir", metavar="FOLDER", default="runs/routes", help="folder for the model (default: %(default)s)")
    add(
        "--preset",
        metavar="NAME",
        help="size of the model (default: dms-tiny for the sample, dms-flash-10m for files)",
    )
    add(
        "--max-steps",
        type=int,
        default=1800,
        metavar="N",
        help="optimizer steps; -1 to count epochs (default: %(default)s)",
    )
    add(
        "--num-train-epochs",
        type=float,
        default=10.0,
        help="times through the routes, with --max-steps -1 (default: %(default)s)",
    )
    add_shared(add, "--per-device-train-batch-size", items="routes", default=16)
    add_shared(add, "--learning-rate", default=3e-3)
    add(
        "--resume-from-checkpoint",
        metavar="true",
        help="go on where a run was interrupted (with --save-strategy steps)",
    )
    add_shared(add, "--overwrite-output-dir")
    add = parser.add_argument_group("routes").add_argument
    add(
        "--permutations",
        type=int,
        default=1,
        metavar="N",
        help="most orders of the reactants of each route (default: %(default)s)",
    )
    add(
        "--aligned",
        type=int,
        default=0,
        metavar="N",
        help="so many texts of each route, reactants written as their product is",
    )
    add("--sub-routes", action="store_true", help="take each molecule that a route makes for a target of its own too")
    add("--with-starting-material", action="store_true", help="tell the model one starting material of each route")
    add(
        "--num-routes",
        type=int,
        metavar="N",
        help="routes of the sample to take without files (default: all)",
    )
    add = parser.add_argument_group("test").add_argument
    add("--num-test-routes", type=int, default=400, metavar="N", help="targets of the test (default: %(default)s)")
    add("--beams", type=int, default=5, metavar="N", help="width of its search (default: %(default)s)")
    add = parser.add_argument_group("training").add_argument
    add_shared(add, "--config-overrides")
    add("--save-strategy", default="no", help="when to save a checkpoint: no, steps or epoch (default: %(default)s)")
    add_shared(add, "--gradient-accumulation-steps", "--bf16")
    add("--seed", type=int, default=0, help="of routes, weights and order (default: %(default)s)")
    add_shared(add, "--report-to", "--help-all")
    return parser
