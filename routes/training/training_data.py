"""The training and test data of `weftformer routes train`."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict, load_from_disk

from ..chemistry.molecules import canonical_smiles
from ..family import TrainedSources, WeftConfig, WeftTrainingArguments, encode_route, encode_source, source_key
from ..files import read_canonical
from ..tree import Route
from .arguments import RouteArguments, RouteTrainingOptions
from .preparation import REPORT
from .rows import training_pairs
from .sample import sample_routes, train_test_split


@dataclass
class RouteTrainingArguments(RouteTrainingOptions, WeftTrainingArguments):
    """The training arguments of `weftformer train` with defaults for a small model on two CPU cores."""


def load_prepared(arguments: RouteArguments) -> tuple[Dataset, list[Route]]:
    """Return the rows of a prepared folder, without those of the test targets, and the test routes.

    `weftformer routes prepare` writes such a folder.

    Raises:
        ValueError: the folder is not such a folder, it has no starting materials although the arguments request them,
            there is no test route, or all targets are tested.
    """
    folder = str(arguments.train_file)
    try:
        data = load_from_disk(folder)
    except FileNotFoundError as error:
        raise ValueError(f"{folder} is not a folder of `weftformer routes prepare`.") from error
    rows = data["train"] if isinstance(data, DatasetDict) else data
    if missing := {"source", "target", "n_steps"}.difference(rows.column_names):
        raise ValueError(f"{folder} has no column {min(missing)}: make it with `weftformer routes prepare`.")
    if not arguments.with_starting_material:
        rows = rows.select_columns(["source", "target", "n_steps"])
    elif "starting_material" not in rows.column_names:
        raise ValueError(f"{folder} has no starting materials: prepare it with --starting-material random.")
    test = read_canonical(arguments.test_file) if arguments.test_file else []
    if not test:
        raise ValueError("Give --test-file with held-out routes: the accuracy on training routes is not meaningful.")
    targets = {route.smiles for route in test}
    letters = set(map(_letters, targets))

    def is_new(source: str) -> bool:  # the target of an aligned row may begin at any atom
        return not (_letters(source) in letters and canonical_smiles(source) in targets)

    new_rows = rows.filter(is_new, input_columns="source", keep_in_memory=True)
    if not len(new_rows):
        raise ValueError(f"No training rows are left: each target of {folder} is in {arguments.test_file}.")
    print(f"{len(rows)} training rows, {len(rows) - len(new_rows)} left out because their target is in the test set")
    return new_rows, test


def _letters(smiles: str) -> str:
    """Return the letters that all SMILES of a molecule have: comparing them is 50 times as fast as canonicalising."""
    return "".join(sorted(re.sub("[^A-GI-Z]", "", smiles.upper())))


def load_pairs(
    arguments: RouteArguments, seed: int, trained: TrainedSources
) -> tuple[Dataset, list[Route], TrainedSources]:
    """Return the training rows, prepared ones or those of the sample, the test routes, and the sources that the model
    will have been trained on. Rows and routes share no target.

    Args:
        arguments: the source of the rows.
        seed: the seed of orders, texts and starting materials.
        trained: the sources that the model was trained on before.

    Raises:
        ValueError: as in [`load_prepared`], or a test file is given without rows for training.
    """
    if arguments.train_file is not None:
        rows, test = load_prepared(arguments)
        return rows, test, _trained_on(rows["source"], test, trained)
    if arguments.test_file is not None:
        raise ValueError("--test-file needs --train-file, a folder of `weftformer routes prepare`.")
    routes = sample_routes(arguments.num_routes)
    train, test = train_test_split(routes, arguments.num_test_routes, frozenset(trained.keys.tolist()))
    return pairs_of(train, arguments, seed), test, _trained_on((route.smiles for route in train), test, trained)


def _trained_on(targets: Iterable[str], test: Sequence[Route], trained: TrainedSources) -> TrainedSources:
    """Return the sources after a training on these targets, and print what makes the test uncertain."""
    keys, tested = (
        np.array([source_key(canonical_smiles(smiles)) for smiles in dict.fromkeys(molecules)], np.uint32)
        for molecules in (targets, (route.smiles for route in test))
    )
    for note in trained.notes(tested, "test routes"):
        print(note)
    return trained.after_training(keys, tested)


def pairs_of(routes: Sequence[Route], arguments: RouteArguments, seed: int, is_aligned: bool = False) -> Dataset:
    """Make one row of each route, with a starting material if the arguments request one."""
    material = "random" if arguments.with_starting_material else "none"
    return Dataset.from_list(training_pairs(routes, starting_material=material, aligned=int(is_aligned), seed=seed))


def about_routes(arguments: RouteArguments, rows: Dataset) -> dict[str, Any]:
    """Describe the routes that a model has learned. The generation settings store the result as `routes` for the
    planner.

    Args:
        arguments: the source of the rows.
        rows: the training rows, with the column `n_steps`.

    Returns:
        `steps` (the smallest and largest number of reactions in a row), `aligned` (the number of aligned texts per
        route, 0 for canonical SMILES), `sub_routes` (whether each molecule that is made is a target),
        `starting_material` (whether the model is given one) and `sources` (the number of rows by file name).
    """
    steps, settings = rows["n_steps"], dict[str, Any]()
    names = {Path(arguments.train_file or "sample").name: len(rows)}
    report = Path(arguments.train_file or "", REPORT)
    if arguments.train_file is not None and report.is_file():  # rows of several folders have no report
        facts = json.loads(report.read_text(encoding="utf-8"))
        settings = facts["settings"]
        names = {Path(file).name: count for file, count in facts["sources"].items()}
    return {
        "steps": [min(steps), max(steps)],
        "aligned": settings.get("aligned", 0),
        "sub_routes": settings.get("sub_routes", False),
        "starting_material": arguments.with_starting_material,
        "sources": names,
    }


def encode(pairs: Dataset, tokenizer: Any, config: WeftConfig) -> Dataset:
    """Encode rows as `input_ids`, `labels` and `condition_values`. Routes that do not fit the model are left out.

    Args:
        pairs: rows with the columns of `training_pairs`.
        tokenizer (`PreTrainedTokenizerBase`): the tokenizer of the model.
        config: the configuration of the model. Without condition features, there are no `condition_values`.

    Returns:
        The encoded rows.

    Raises:
        ValueError: no route fits.
    """
    reasons: list[str] = []

    columns = ["input_ids", "labels", *["condition_values"] * bool(config.num_condition_features)]

    def fitting(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        rows: dict[str, list[Any]] = {name: [] for name in columns}
        materials = batch.get("starting_material", [None] * len(batch["source"]))
        pairs = zip(batch["source"], materials, batch["target"], batch["n_steps"], strict=True)
        for product, material, target, steps in pairs:
            try:
                source = encode_source(tokenizer, product, material, source_length=config.max_source_positions)
                labels = encode_route(tokenizer, target, max_length=config.max_target_positions)
            except ValueError as error:
                reasons.append(str(error))
                continue
            for name, value in zip(columns, (source, labels, [float(steps)]), strict=False):
                rows[name].append(value)
        return rows

    # kept in memory, so that a prepared folder does not change
    settings: Any = {"remove_columns": pairs.column_names, "keep_in_memory": True, "load_from_cache_file": False}
    rows = pairs.map(fitting, batched=True, **settings)
    if reasons:
        print(f"Left out because they do not fit the model: {len(reasons)} of {len(pairs)} routes. {reasons[0]}")
    if not len(rows):
        raise ValueError("No route fits the model, so there is nothing to train on.")
    return rows
