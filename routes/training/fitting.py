"""Training a model that writes synthesis routes, and testing it on held-out targets."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...common.atomic import write_json
from ...common.commands import command_line
from ...common.overrides import parse_overrides
from ..evaluation.evaluation import KS, evaluate
from ..family import (
    PairCollator,
    TrainedSources,
    WeftConfig,
    WeftForConditionalGeneration,
    WeftTrainer,
    build_route_tokenizer,
    check_same_model,
    fit,
    load,
    longest,
    metric_result,
    output_lock,
    resumable,
    start,
    writes_routes,
)
from ..planning.planner import RoutePlanner
from ..plans import Plan
from ..tree import Route
from .training_data import RouteArguments, RouteTrainingArguments, about_routes, encode, load_pairs, pairs_of


def measure_accuracy(
    planner: RoutePlanner,
    routes: Sequence[Route],
    arguments: RouteArguments,
    max_new_tokens: int,
    materials: Sequence[str] | None = None,
) -> tuple[dict[str, Any], list[Plan]]:
    """Measure the share of targets whose recorded route a beam search finds.

    The model is given the target, the number of steps (if it reads one) and `materials`.
    """
    start_time = time.monotonic()
    is_told = planner.model.config.num_condition_features > 0
    plans = planner.plan(
        [route.smiles for route in routes],
        n_steps=[route.depth for route in routes] if is_told else None,
        beams=arguments.beams,
        starting_material=materials,
        max_new_tokens=max_new_tokens,
        batch_size=arguments.test_batch_size,
        on_error="skip",  # a target that cannot be planned counts as not found
        enforce_limits=False,  # recorded routes may exceed the limits
    )
    if problems := [plan.problem for plan in plans if plan.problem is not None]:
        print(f"{len(problems)} of {len(plans)} targets cannot be planned, the first: {problems[0]}")
    metrics = evaluate(plans, routes, ks=[k for k in KS if k <= arguments.beams]).overall
    results = {
        "beams": arguments.beams,
        "exact_route": {name: asdict(estimate) for name, estimate in metrics["exact"].items()},
        "test_seconds": round(time.monotonic() - start_time, 1),
    }
    return results, plans


def show(results: dict[str, Any], plan: Plan, reference: Route, folder: Path) -> None:
    """Print a summary for the user."""
    print(f"\nHeld-out targets, exact route, order of reactants ignored, {results['beams']} beams (95% interval):")
    for name, share in results["exact_route"].items():
        print(f"  {name:7}{share['value']:6.1%}  [{share['low']:.1%}, {share['high']:.1%}]  n={share['n']}")
    print(f"\nPlan of one of them: {plan.target}")
    for route in plan.routes[:1]:
        agrees = "the recorded route" if route.canonical() == reference.canonical() else "not the recorded route"
        print(f"{route.format_tree()} ({agrees})")
    command = command_line(["routes", "plan"], {"--model": folder}, [plan.target])
    print(f"\nThe model is in {folder}. To plan with it:\n  {command}")


def card_details(
    arguments: RouteArguments, results: dict[str, Any], about: dict[str, Any], told_steps: bool
) -> dict[str, Any]:
    """Return the facts for the model card that the trainer lacks: the routes, and the results with intervals."""
    if arguments.train_file is None:
        data = (
            f"{about['sources']['sample']:,} recorded routes of PaRoutes, of one or two reactions in a row "
            "(`weftformer.routes.sample_routes`), without those of the test."
        )
    else:
        data = f"Routes of {', '.join(f'`{name}`' for name in about['sources'])}."
    if about["sub_routes"]:
        data += " Each intermediate of a route is also a target."
    if about["aligned"]:
        data += (
            f" {about['aligned']} aligned texts of each route, each starting at another atom of the target. The "
            "SMILES of a reactant starts at the atom that makes it most similar to the SMILES of the product."
        )
    conditions = ["the target", *["the number of steps"] * told_steps]
    conditions += ["a starting material"] * arguments.with_starting_material
    test = f"held-out routes{f' of `{Path(arguments.test_file).name}`' if arguments.test_file else ''}"
    return {
        "data": f"{data} No test target is the target of a training route.",
        "results": [
            metric_result("loss", "loss", round(results["test_loss"], 6), test, split="test"),
            *(
                metric_result(
                    "exact_match", f"exact route, {name}", share["value"], test, split="test", n=share["n"],
                    interval=(share["low"], share["high"], "Wilson"),
                )
                for name, share in results["exact_route"].items()
            ),
        ],
        "results_note": (
            f"{results['beams']} beams; the model is given {', '.join(conditions)}. A route is exact if it is the "
            "recorded one, ignoring the order of reactants."
        ),
    }  # fmt: skip


def _config(arguments: RouteArguments, size: int, changes: dict[str, Any]) -> tuple[str, WeftConfig]:
    """Return the name and configuration of the preset or trained model, for a vocabulary of this size."""
    origin, preset = arguments.model_name_or_path, arguments.preset
    name = origin or preset or ("dms-tiny" if arguments.train_file is None else "dms-flash-10m")
    if origin is None:
        config = WeftConfig.from_preset(name, **{"vocab_size": size} | changes)
    elif preset is not None:
        raise ValueError("--preset gives random weights and --model-name-or-path trained ones: give one of them.")
    else:
        config = load(WeftConfig, origin, **changes)
        if config.vocab_size < size:
            config.vocab_size = config.decoder_vocab_size = size
    if not writes_routes(config) or config.vocab_size != size:
        what = f"{name} has a vocabulary of {config.vocab_size} tokens, but routes need {size}"
        raise ValueError(f"{what}: use a preset dms-* or a model of `weftformer routes train`.")
    return name, config


def train(arguments: RouteArguments, training: RouteTrainingArguments) -> dict[str, Any]:
    """Train and test a route model, as `weftformer routes train` does.

    Returns:
        The results, as written to `results.json`.

    Raises:
        ValueError, FileNotFoundError: an argument or a route is not valid.
    """
    for name in ("num_test_routes", "beams", "test_batch_size"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1: got {getattr(arguments, name)}.")
    with output_lock(training):
        return _train(arguments, training)


def _train(arguments: RouteArguments, training: RouteTrainingArguments) -> dict[str, Any]:
    checkpoint = start(training)
    tokenizer = build_route_tokenizer(arguments.vocabulary)
    origin, changes = arguments.model_name_or_path, parse_overrides(arguments.config_overrides)
    name, config = _config(arguments, len(tokenizer), changes)
    if checkpoint:
        check_same_model(config, checkpoint)
    trained = TrainedSources.load(checkpoint or origin)
    train_pairs, test_routes, trained = load_pairs(arguments, training.seed, trained)
    test_routes = test_routes[: arguments.num_test_routes]
    about = about_routes(arguments, train_pairs)
    test_pairs = pairs_of(test_routes, arguments, training.seed, is_aligned=about["aligned"] > 0)
    data = {
        name: encode(pairs, tokenizer, config) for name, pairs in (("train", train_pairs), ("validation", test_pairs))
    }

    def build() -> WeftForConditionalGeneration:
        if origin is None:
            model = WeftForConditionalGeneration(config)
        else:
            model = load(WeftForConditionalGeneration, origin, **changes)
            model.resize_token_embeddings(len(tokenizer))
        generation = model.generation_config
        generation.max_length, generation.num_beams = config.max_target_positions + 1, arguments.beams
        # with this flag, transformers would read only the settings that it knows
        generation._from_model_config = False
        generation.routes = about
        print(f"{name}: {model.num_parameters() / 1e6:.1f} M parameters, {len(data['train'])} training routes")
        return model

    results: dict[str, Any] = {"model_name_or_path" if origin else "preset": name}

    def evaluate(trainer: WeftTrainer) -> dict[str, Any]:
        logs = reversed(trainer.state.log_history)
        summary: dict[str, Any] = next((log for log in logs if "train_runtime" in log), {})
        # a poorly trained model may not stop; texts longer than those it has seen cannot be right
        materials = test_pairs["starting_material"] if arguments.with_starting_material else None
        planner = RoutePlanner(trainer.model, tokenizer)
        results.update(
            steps=trainer.state.global_step,
            train_seconds=round(summary["train_runtime"], 1),
            train_loss=summary.get("train_loss"),  # None if the run had finished before
            test_loss=trainer.evaluate()["eval_loss"],
        )
        with trainer.accelerator.autocast():  # as in the training
            accuracy, plans = measure_accuracy(planner, test_routes, arguments, longest(data["train"]), materials)
        results.update(accuracy)
        write_json(folder / "results.json", results)
        show(results, plans[0], test_routes[0], folder)
        return card_details(arguments, results, about, told_steps=config.num_condition_features > 0)

    folder = Path(str(training.output_dir))
    limits = config.max_source_positions, config.max_target_positions
    collator = PairCollator(tokenizer, limits, training.device)
    with resumable(str(folder)):
        fit(build, tokenizer, data, training, evaluate, checkpoint=checkpoint, trained=trained, data_collator=collator)
    return results
