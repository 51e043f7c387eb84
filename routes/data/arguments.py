"""The options of `weftformer routes train`. Nothing here needs torch, so that the command shows its help at once."""

from dataclasses import dataclass
from typing import Literal

from ...training.options import TrainingOptions, common_option, option


@dataclass
class RouteArguments:
    """The arguments about the routes, the model and the test. The `help` of each field describes it."""

    _argument_group_name = "routes"

    train_file: str | None = common_option(
        None,
        "Routes to train on, of any form, or a folder of `weftformer routes prepare`. "
        "Default: the sample of recorded routes that comes with Weft.",
    )
    test_file: str | None = common_option(None, "Routes to test on. Training routes to the same targets are left out.")
    num_routes: int | None = common_option(
        None, "Number of routes of the sample if no file is given, with the test routes. Default: all."
    )
    num_test_routes: int = common_option(
        400, "Number of test routes: drawn from the sample, or the first of the test file."
    )
    preset: str | None = common_option(
        None, "Size of the model. Default: dms-tiny for the sample, dms-flash-10m for files."
    )
    model_name_or_path: str | None = common_option(
        None,
        "Trained route model to train on from, a folder or a Hub id, instead of a preset. It learns the tokens of --vocabulary that "
        "it lacks.",
    )
    vocabulary: Literal["weft", "dms"] = option(
        "weft",
        "weft, which writes all elements and isotopes, or dms: the one of DirectMultiStep and of the shipped model.",
    )
    config_overrides: str | None = common_option(
        None, "Fields of the configuration to change: JSON, or key=value,key=value."
    )
    with_starting_material: bool = common_option(
        False, "Give the model one starting material of each route after the target."
    )
    permutations: int = common_option(1, "Largest number of orders of the reactants to train on, for each route.")
    aligned: int = common_option(
        0,
        "Number of aligned texts of each route, each from another atom of the target. The first has the target's "
        "canonical SMILES. In an aligned text, each reactant begins at the atom that makes its SMILES most similar "
        "to its product's. Default: canonical SMILES everywhere.",
    )
    sub_routes: bool = common_option(
        False, "Also use each molecule that a training route makes as a target of its own."
    )
    beams: int = common_option(5, "Width of the beam search in the test.")
    test_batch_size: int = option(50, "Number of targets that are searched at once in the test.")


@dataclass
class RouteTrainingOptions(TrainingOptions):
    """What [`RouteTrainingArguments`] has other defaults for than [`WeftTrainingArguments`]."""

    output_dir: str = common_option("runs/routes", "Folder for the model.")
    max_steps: int = common_option(1800, "Optimizer steps; -1 to count epochs instead.")
    per_device_train_batch_size: int = common_option(16, "Routes in a batch, on each device.")
    learning_rate: float = common_option(3e-3, "Highest learning rate.")
    warmup_steps: float = option(0.1, "Steps (or share of them) in which it rises.")
    lr_scheduler_type: str = option("cosine", "How it falls afterwards.")
    train_sampling_strategy: str = option("group_by_length", "Routes of one batch are alike in length, or: random.")
    eval_strategy: Literal["no", "steps", "epoch"] = option(
        "no", "When to measure the test loss on the way: no, steps or epoch."
    )
    save_strategy: Literal["no", "steps", "epoch", "best"] = common_option(
        "no", "When to save a checkpoint: no, steps or epoch."
    )
    predict_with_generate: bool = option(False, "Not needed here: the test plans its targets.")
    seed: int = common_option(0, "Seed of routes, weights and order.")
