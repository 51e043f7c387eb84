"""`weft train-routes`: train a model that writes synthesis routes, test it on held-out targets, plan one of them.

Without files it grows its own routes from reaction templates; with `--train_file` and `--test_file` it reads real ones.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import DataCollatorForSeq2Seq, IntervalStrategy, Trainer, set_seed

from weft import WeftConfig, WeftForConditionalGeneration
from weft.routes import Route, drop_shared_targets, read_routes, top_k_exact, training_pairs
from weft.routes.candidates import Plan
from weft.routes.planner import RoutePlanner
from weft.routes.synthetic import generate_routes, train_test_split
from weft.scripts.cli import run_script
from weft.tokenization import build_route_tokenizer, encode_route, encode_source
from weft.training import (
    ArgumentParser,
    RouterBiasCallback,
    WeftTrainingArguments,
    check_output_dir,
    check_same_model,
    find_checkpoint,
    longest,
    parse_overrides,
    remove_checkpoints,
    save_model_folder,
)

logger = logging.getLogger("weft.scripts.train_routes")


@dataclass
class RouteArguments:
    """Which routes, which model, and how it is tested."""

    _argument_group_name = "routes"

    train_file: str | None = field(
        default=None, metadata={"help": "Routes to train on, JSON lines (.gz works). Default: grown from templates."}
    )
    test_file: str | None = field(
        default=None, metadata={"help": "Held-out routes; training routes of the same targets are left out."}
    )
    num_routes: int = field(
        default=20000, metadata={"help": "Routes to grow when no file is given, test routes included."}
    )
    num_test_routes: int = field(default=400, metadata={"help": "Test routes: grown, or the first of the test file."})
    max_depth: int = field(default=2, metadata={"help": "Most reactions in a row in a grown route."})
    max_smiles_length: int = field(default=36, metadata={"help": "Longest target of a grown route, in characters."})
    preset: str | None = field(
        default=None,
        metadata={"help": "Size of the model. Default: dms-tiny for grown routes, dms-flash-10m for files."},
    )
    config_overrides: str | None = field(
        default=None, metadata={"help": "Fields of the configuration to change: JSON, or key=value,key=value."}
    )
    with_starting_material: bool = field(
        default=False, metadata={"help": "Give the model one starting material of each route after the target."}
    )
    permutations: int = field(
        default=1, metadata={"help": "Most orders of the reactants to train on, for each route."}
    )
    beams: int = field(default=5, metadata={"help": "Width of the beam search in the test."})
    test_batch_size: int = field(default=50, metadata={"help": "Targets searched at once in the test."})


@dataclass
class RouteTrainingArguments(WeftTrainingArguments):
    """The training arguments of `weft train` with defaults that learn the grown routes in minutes on two CPU cores."""

    output_dir: str | None = field(default="runs/routes", metadata={"help": "Folder for the model."})
    max_steps: int = field(default=1200, metadata={"help": "Optimizer steps; -1 to count epochs instead."})
    learning_rate: float = field(default=3e-3, metadata={"help": "Highest learning rate."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Steps (or share of them) in which it rises."})
    lr_scheduler_type: str = field(default="cosine", metadata={"help": "How it falls afterwards."})
    train_sampling_strategy: str = field(
        default="group_by_length", metadata={"help": "Routes of one batch are alike in length, or: random."}
    )
    eval_strategy: IntervalStrategy | str = field(
        default="no", metadata={"help": "When to measure the test loss on the way: no, steps or epoch."}
    )
    save_strategy: str = field(default="no", metadata={"help": "When to save a checkpoint: no, steps or epoch."})
    seed: int = field(default=0, metadata={"help": "Seed of routes, weights and order."})


def load_routes(arguments: RouteArguments, seed: int) -> tuple[list[Route], list[Route]]:
    """Training and test routes that share no target.

    Raises:
        ValueError: a file holds no route, or one of two files is missing.
    """
    if arguments.train_file is None and arguments.test_file is None:
        routes = generate_routes(
            arguments.num_routes,
            seed=seed,
            max_depth=arguments.max_depth,
            max_smiles_length=arguments.max_smiles_length,
        )
        return train_test_split(routes, arguments.num_test_routes, seed=seed)
    if arguments.train_file is None or arguments.test_file is None:
        raise ValueError("--train_file and --test_file go together: accuracy on the training routes says nothing.")
    train, test = list(read_routes(arguments.train_file)), list(read_routes(arguments.test_file))
    for name, routes in ((arguments.train_file, train), (arguments.test_file, test)):
        if not routes:
            raise ValueError(f"{name} holds no route.")
    kept = drop_shared_targets(train, test)
    print(f"{len(train)} training routes, {len(train) - len(kept)} of them left out because their target is tested")
    return kept, test


def encode(
    routes: Sequence[Route], tokenizer: Any, config: WeftConfig, arguments: RouteArguments, seed: int
) -> Dataset:
    """Rows with `input_ids`, `labels` and `condition_values`; routes that do not fit the model are left out.

    Raises:
        ValueError: no route fits.
    """
    material = "random" if arguments.with_starting_material else "none"
    pairs = training_pairs(routes, starting_material=material, permutations=arguments.permutations, seed=seed)
    rows: list[dict[str, Any]] = []
    reasons: list[str] = []
    for pair in pairs:
        try:
            source = encode_source(
                tokenizer, pair["source"], pair.get("starting_material"), source_length=config.max_source_positions
            )
            labels = encode_route(tokenizer, pair["target"], max_length=config.max_target_positions)
        except ValueError as error:
            reasons.append(str(error))
            continue
        row: dict[str, Any] = {"input_ids": source, "labels": labels}
        if config.num_condition_features:
            row["condition_values"] = [float(pair["n_steps"])]
        rows.append(row)
    if reasons:
        print(
            f"{len(reasons)} of {len(pairs)} routes left out, which the model cannot read or write; the first: {reasons[0]}"
        )
    if not rows:
        raise ValueError("No route is left to learn from.")
    return Dataset.from_list(rows)


def build_model(arguments: RouteArguments, config: WeftConfig) -> WeftForConditionalGeneration:
    model = WeftForConditionalGeneration(config)
    model.generation_config.max_length = config.max_target_positions + 1
    model.generation_config.num_beams = arguments.beams
    return model


def measure_accuracy(
    planner: RoutePlanner, routes: Sequence[Route], arguments: RouteArguments, max_new_tokens: int
) -> tuple[dict[str, Any], list[Plan]]:
    """Share of targets whose recorded route a beam search finds; it is told target and number of steps."""
    started = time.monotonic()
    is_told = planner.model.config.num_condition_features > 0
    plans = planner.plan(
        [route.smiles for route in routes],
        n_steps=[route.depth for route in routes] if is_told else None,
        beams=arguments.beams,
        max_new_tokens=max_new_tokens,
        batch_size=arguments.test_batch_size,
    )
    predictions = [[candidate.route for candidate in plan.candidates] for plan in plans]
    accuracy = top_k_exact(predictions, routes, ks=[k for k in (1, 5, 10, 50) if k <= arguments.beams])
    texts = [candidate for plan in plans for candidate in plan.candidates]
    results = {
        "beams": arguments.beams,
        "exact_route": {f"top-{k}": asdict(value) for k, value in accuracy.items()},
        "well_formed": sum(candidate.route is not None for candidate in texts) / len(texts),
        "test_seconds": round(time.monotonic() - started, 1),
    }
    return results, plans


def show(results: dict[str, Any], plan: Plan, reference: Route, folder: Path) -> None:
    """What a person wants to see at the end."""
    print(f"\nHeld-out targets, exact route, order of reactants ignored, {results['beams']} beams (95 % interval):")
    for name, share in results["exact_route"].items():
        print(f"  {name:7}{share['value']:6.1%}  [{share['low']:.1%}, {share['high']:.1%}]  n={share['n']}")
    print(f"  well-formed candidates {results['well_formed']:.1%}")
    print(f"\nOne of them, planned: {plan.target}")
    for route in plan.routes[:1]:
        agrees = "the recorded route" if route.canonical() == reference.canonical() else "not the recorded route"
        print(f"{route.format_tree()} ({agrees})")
    print(f"\nThe model is in {folder}. To plan with it:\n  weft plan '{plan.target}' --model {folder}")


def write_results(folder: Path, results: dict[str, Any]) -> None:
    temporary = folder / ".results.json.part"
    temporary.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, folder / "results.json")


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the arguments, train, test, plan.

    Raises:
        ValueError, FileNotFoundError: something in the arguments or the routes is not as it should be.
    """
    parser = ArgumentParser(
        [RouteArguments, RouteTrainingArguments],
        prog="weft train-routes",
        usage="weft train-routes [FILE.yaml] [--output_dir FOLDER] [--argument value ...]",
        description=__doc__,
    )
    arguments, training = parser.parse(sys.argv[1:] if argv is None else argv)
    train(arguments, training)


def train(arguments: RouteArguments, training: RouteTrainingArguments) -> dict[str, Any]:
    """Everything `weft train-routes` does, after its arguments are read; returns the results it writes."""
    check_output_dir(training)
    checkpoint = find_checkpoint(training)
    tokenizer = build_route_tokenizer()
    preset = arguments.preset or ("dms-tiny" if arguments.train_file is None else "dms-flash-10m")
    overrides = parse_overrides(arguments.config_overrides) | {"label_smoothing": training.label_smoothing_factor}
    training.label_smoothing_factor = 0.0  # the model smooths; the Trainer's own way would lose the routers' losses
    config = WeftConfig.from_preset(preset, **overrides)
    if config.vocab_size != len(tokenizer):
        raise ValueError(
            f"--preset {preset} has a vocabulary of {config.vocab_size} tokens, and routes have {len(tokenizer)}: "
            "take one of the dms-* presets."
        )
    if checkpoint:
        check_same_model(config, checkpoint)
    train_routes, test_routes = load_routes(arguments, training.seed)
    tested = test_routes[: arguments.num_test_routes]
    data = {
        name: encode(routes, tokenizer, config, arguments, training.seed)
        for name, routes in (("train", train_routes), ("test", tested))
    }
    set_seed(training.seed)
    model = build_model(arguments, config)
    print(f"{preset}: {model.num_parameters() / 1e6:.1f} M parameters, {len(data['train'])} training routes")
    trainer = Trainer(
        model=model,
        args=training,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        callbacks=[RouterBiasCallback()],
    )
    folder = Path(str(training.output_dir))
    if training.overwrite_output_dir and not checkpoint:
        remove_checkpoints(folder)
    trained = trainer.train(resume_from_checkpoint=checkpoint)
    results = {
        "preset": preset,
        "steps": trained.global_step,
        "train_seconds": round(trained.metrics["train_runtime"], 1),
        "train_loss": trained.training_loss,
        "test_loss": trainer.evaluate()["eval_loss"],
    }
    save_model_folder(trainer, folder)
    # a model that has learned little writes on and on: nothing longer than what it has seen can be right
    accuracy, plans = measure_accuracy(RoutePlanner(model, tokenizer), tested, arguments, longest(data["train"]))
    results |= accuracy
    write_results(folder, results)
    show(results, plans[0], tested[0], folder)
    return results


if __name__ == "__main__":
    sys.exit(run_script("train-routes", main))
