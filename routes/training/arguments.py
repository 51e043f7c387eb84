"""The options of `weftformer routes prepare` and `routes train`. Nothing here needs torch, so that the commands show
their help at once.
"""

from dataclasses import dataclass, fields
from typing import Literal

from ...common.options import check_options
from ..family import TrainingOptions, common_option, option

# The starting material in a row: none, one that is drawn at random from the route, or each one in a row of its own.
STARTING_MATERIALS = ("none", "random", "all")
# The scope of an exclusion: all routes to the excluded targets, or also routes that make one as an intermediate.
EXCLUDE_BY = ("target", "made")


@dataclass
class RouteArguments:
    """The arguments about the routes, the model and the test. The `help` of each field describes it."""

    _argument_group_name = "routes"

    train_file: str | None = common_option(
        None, "Folder of `weftformer routes prepare`. Default: the included sample of recorded routes."
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
        "weft", "weft (all elements and isotopes) or dms (that of DirectMultiStep)."
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
    seed: int = common_option(0, "Seed of texts, weights and data order.")


@dataclass(frozen=True)
class Preparation:
    """The rules by which routes become a data set.

    Args:
        permutations: the largest number of orders of the children per route: the route as it is, and distinct random
            orders.
        aligned: the largest number of aligned texts per route (see `alignment`). The first begins with the target's
            canonical SMILES. 0 writes all molecules as canonical SMILES.
        sub_routes: whether each molecule that a route makes is also a target of its own.
        single_steps: whether each reaction is also a route of one step, as the search to the stock requests from the
            model.
        forward: whether to make only rows from the reactants of each reaction to its product, for a text model that
            predicts products (`weftformer train`). These texts are always aligned, and their length is not limited.
            Reactions with a product that an excluded route makes are excluded, whatever their reactants.
        starting_material: `"none"`, `"random"` or `"all"`, as in `training_pairs`.
        max_source_length: the largest number of tokens in a source, as in published models. In front of a starting
            material, the target molecule has at most `PRODUCT_LENGTH` of them.
        max_target_length: the largest number of tokens in a route, with the end token, as in published models.
        exclude_by: the scope of the exclusion. `"target"`: all routes to the excluded targets. `"made"`: also all
            routes that make one of these targets as an intermediate. The sub-routes of an excluded route are excluded
            too.
        seed: the seed of the orders, texts and starting materials.

    Raises:
        ValueError: a value is not allowed.
    """

    permutations: int = option(
        1, "maximum number of reactant orders per route: the given one, then random ones", least=1
    )
    aligned: int = option(
        0,
        "write N texts per route, from N atoms of the target, with the SMILES of reactants aligned to their product's",
        least=0,
    )
    sub_routes: bool = option(False, "also add each intermediate as a target")
    single_steps: bool = option(
        False, "also add each reaction as a one-step route; a model needs them for the search to the stock"
    )
    forward: bool = option(
        False,
        "make rows for a text model that predicts products (`weftformer train`, `weftformer generate`): each "
        "reaction, aligned, from its reactants to its product",
    )
    starting_material: str = option(
        "none",
        "starting materials to add: none, one at random, or all, each in a separate row",
        choices=STARTING_MATERIALS,
    )
    max_source_length: int = option(
        280, "limit of target and starting material in tokens, as in published models", least=1
    )
    max_target_length: int = option(1075, "limit of a route in tokens, as in published models", least=1)
    exclude_by: str = option(
        "target",
        "exclude routes to an excluded target, or also routes that make it as an intermediate",
        choices=EXCLUDE_BY,
    )
    seed: int = option(0, "seed of all random choices")

    def __post_init__(self) -> None:
        check_options(self)
        if self.permutations > 1 and self.aligned:
            raise ValueError("aligned and permutations are mutually exclusive: aligned texts have one order.")
        others = [field for field in fields(self) if field.name not in ("forward", "aligned", "exclude_by", "seed")]
        if self.forward and (names := [field.name for field in others if getattr(self, field.name) != field.default]):
            raise ValueError(f"forward makes rows of single reactions, of any length: leave out {', '.join(names)}.")
