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
        "Training routes in any format, or a folder of `weftformer routes prepare`. "
        "Default: the included sample of recorded routes.",
    )
    test_file: str | None = common_option(None, "Test routes. Training routes to the same targets are excluded.")
    num_routes: int | None = common_option(
        None, "Number of routes of the sample if no file is given, including test routes. Default: all."
    )
    num_test_routes: int = common_option(
        400, "Number of test routes: a random part of the sample, or the first of the test file."
    )
    preset: str | None = common_option(
        None, "Size of the model. Default: dms-tiny for the sample, dms-flash-10m for files."
    )
    model_name_or_path: str | None = common_option(
        None,
        "Trained route model to continue from (folder or Hub id) instead of a preset. Missing "
        "tokens of --vocabulary are added.",
    )
    vocabulary: Literal["weft", "dms"] = option(
        "weft",
        "weft (all elements and isotopes) or dms (that of DirectMultiStep).",
    )
    config_overrides: str | None = common_option(
        None, "Fields of the configuration to change: JSON, or key=value,key=value."
    )
    with_starting_material: bool = common_option(
        False, "Add one starting material of each route to the source, after the target."
    )
    beams: int = common_option(5, "Beams in the test.")
    test_batch_size: int = option(50, "Number of targets per batch in the test.")


@dataclass
class RouteTrainingOptions(TrainingOptions):
    """The options of [`RouteTrainingArguments`] whose defaults differ from those of [`WeftTrainingArguments`]."""

    output_dir: str = common_option("runs/routes", "Folder for the model.")
    max_steps: int = common_option(1800, "Optimizer steps; -1 to count epochs instead.")
    per_device_train_batch_size: int = common_option(16, "Routes in a batch, on each device.")
    learning_rate: float = common_option(3e-3, "Highest learning rate.")
    warmup_steps: float = option(0.1, "Warm-up steps, or their share of all steps.")
    lr_scheduler_type: str = option("cosine", "Schedule of the learning rate after the warm-up.")
    train_sampling_strategy: str = option(
        "group_by_length", "Order of training: group_by_length (batches of similar length) or random."
    )
    eval_strategy: Literal["no", "steps", "epoch"] = option(
        "no", "When to compute the test loss during training: no, steps or epoch."
    )
    save_strategy: Literal["no", "steps", "epoch", "best"] = common_option(
        "no", "When to save checkpoints: no, steps, epoch or best."
    )
    predict_with_generate: bool = option(False, "Not needed here: the test plans its targets.")
    seed: int = common_option(0, "Seed of routes, weights and data order.")
