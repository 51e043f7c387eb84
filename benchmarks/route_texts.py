"""A study of route texts.

Run it with `python -m weftformer.benchmarks.route_texts --train n5 --test n1 --stock leaves --out runs/texts`.

Models of one size are trained on the same number of target tokens of the same routes, written in several ways:
canonical SMILES in random orders of the reactants or aligned SMILES, each with and without sub-routes, and with single
reactions if a file of them is given. Each model plans the same recorded targets as `weftformer evaluate` does, with
the number of steps, once for each `--planning`. Finished parts are not repeated, and an interrupted training run is
resumed from its checkpoint.

A target counts as `exact` if its recorded route is among the first candidates, as `last` if one of these routes has
the recorded last reaction, and as `possible` if all starting materials of one of them are in stock and nothing in it
is impossible (see `routes.feasibility`). Intervals are Wilson intervals over targets.
"""

import argparse
import json
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weftformer import WeftConfig
from weftformer.common.overrides import parse_overrides
from weftformer.common.statistics import Estimate, wilson_interval
from weftformer.common.whole_files import write_json
from weftformer.routes import Route, Stock
from weftformer.routes.data.preparation import Preparation, prepare
from weftformer.routes.data.training_data import RouteArguments, RouteTrainingArguments, encode, load_pairs
from weftformer.routes.feasibility import check_route
from weftformer.routes.molecules import canonical_route
from weftformer.routes.plans import Plan
from weftformer.routes.scoring.metrics import exact_rank, first_rank, prefix_rank
from weftformer.routes.scoring.training import train
from weftformer.scripts import evaluate
from weftformer.scripts.cli import run_script
from weftformer.tokenization import build_route_tokenizer
from weftformer.training.batching import TokenBudgetSampler, row_lengths

TEXTS: dict[str, dict[str, Any]] = {
    "canonical": {"aligned": False, "sub_routes": False},
    "aligned": {"aligned": True, "sub_routes": False},
    "sub-routes": {"aligned": False, "sub_routes": True},
    "both": {"aligned": True, "sub_routes": True},
    "reactions": {"aligned": True, "sub_routes": True},
}
KS = (1, 10)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.benchmarks.route_texts", description=__doc__)
    add = parser.add_argument
    add("--train", type=Path, required=True, metavar="FILE", help="recorded routes to train on")
    add("--test", type=Path, required=True, metavar="FILE",
        help="recorded routes to plan; no training route makes their targets")  # fmt: skip
    add("--reactions", type=Path, metavar="FILE", help="single reactions, for `--texts reactions`")
    add("--reactions-weight", type=float, default=0.5,
        help="weight of that file, see `prepare-routes` (default: %(default)s)")  # fmt: skip
    add("--stock", type=Path, required=True, metavar="FILE", help="molecules in stock")
    add("--out", type=Path, required=True, metavar="DIR", help="folder for data, models, predictions and figures.json")
    add("--texts", nargs="+", choices=list(TEXTS), default=["canonical", "aligned", "sub-routes", "both"],
        help="ways to write the training routes (default: %(default)s)")  # fmt: skip
    add(
        "--most-texts",
        type=int,
        default=8,
        help="largest number of orders, or of aligned texts, of a route (default: %(default)s)",
    )
    add("--planning", nargs="+", default=["as it is="], metavar="NAME=WORDS",
        help="ways to plan: a name and arguments of `weftformer evaluate`, such as 'five texts=--texts 5' (default: none)")  # fmt: skip
    add("--seeds", type=int, nargs="+", default=[0], help="seeds of the training runs (default: %(default)s)")
    add("--tokens", type=float, default=2e7, help="target tokens of each training run (default: %(default)s)")
    add(
        "--targets",
        type=int,
        default=200,
        help="number of test routes to plan, drawn at random (default: %(default)s)",
    )
    add("--beams", type=int, default=10, help="number of beams (default: %(default)s)")
    add("--preset", default="dms-tiny", help="preset of the models (default: %(default)s)")
    add("--config-overrides", help="fields of their configuration: key=value,key=value")
    add("--max-tokens-per-batch", type=int, default=4096, help="see `train-routes` (default: %(default)s)")
    add("--learning-rate", type=float, default=2e-3,
        help="its highest value, before it falls as a cosine (default: %(default)s)")  # fmt: skip
    add("--save-steps", type=int, default=500, help="steps between two checkpoints (default: %(default)s)")
    add("--max-new-tokens", type=int, metavar="N", help="largest number of tokens of a planned route")
    add("--workers", type=int, help="processes that prepare the texts (default: one per core)")
    return parser


def prepared(texts: str, arguments: argparse.Namespace) -> Path:
    """Prepare the training pairs with one kind of texts, and return their folder."""
    folder = arguments.out / "data" / texts
    if not folder.exists():
        way = TEXTS[texts]
        settings = Preparation(
            permutations=1 if way["aligned"] else arguments.most_texts,
            aligned=arguments.most_texts if way["aligned"] else 0,
            sub_routes=way["sub_routes"],
            weights=(1.0, arguments.reactions_weight) if texts == "reactions" else (),
            exclude_by="made",
        )
        files = [arguments.train] + [arguments.reactions] * (texts == "reactions")
        prepare(files, folder, settings, exclude=[arguments.test], workers=arguments.workers)
    return folder


def steps_for(rows: Any, tokens: float, max_tokens_per_batch: int) -> int:
    """Return the number of batches with about this number of target tokens, over as many epochs as needed."""
    sources, targets = row_lengths(rows, ("input_ids", "labels"))
    batches = len(TokenBudgetSampler(sources, targets, max_tokens_per_batch))
    return max(1, math.ceil(tokens * batches / int(targets.sum())))


def trained(texts: str, seed: int, arguments: argparse.Namespace) -> Path:
    """Train a model on one kind of texts, and return its folder."""
    folder = arguments.out / "models" / f"{texts}-{seed}"
    if (folder / "results.json").exists():
        return folder
    data = RouteArguments(
        train_file=str(prepared(texts, arguments)), test_file=str(arguments.test), num_test_routes=1, beams=1,
        preset=arguments.preset, config_overrides=arguments.config_overrides,
    )  # fmt: skip
    config = WeftConfig.from_preset(arguments.preset, **parse_overrides(arguments.config_overrides))
    rows = encode(load_pairs(data, seed)[0], build_route_tokenizer(), config)
    training = RouteTrainingArguments(
        output_dir=str(folder), max_steps=steps_for(rows, arguments.tokens, arguments.max_tokens_per_batch), seed=seed,
        max_tokens_per_batch=arguments.max_tokens_per_batch, learning_rate=arguments.learning_rate, warmup_steps=0.05,
        save_strategy="steps", save_steps=arguments.save_steps, save_total_limit=1, resume_from_checkpoint="true",
        disable_tqdm=True, report_to="none",
    )  # fmt: skip
    train(data, training)
    return folder


def planned(model: Path, name: str, words: str, arguments: argparse.Namespace) -> Path:
    """Plan the targets with a model, and return the file with the predictions."""
    file = arguments.out / "predictions" / f"{model.name}-{name.replace(' ', '-')}.jsonl"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        asked = [arguments.test, "--model", model, "--with", "steps", "--stock", arguments.stock,
                 "--limit", arguments.targets, "--beams", arguments.beams, "--save-predictions", file]  # fmt: skip
        if arguments.max_new_tokens is not None:
            asked += ["--max-new-tokens", arguments.max_new_tokens]
        evaluate.main([*map(str, asked), *shlex.split(words)])
    return file


def figures(plans: Sequence[Plan], references: Sequence[Route], stock: Stock) -> dict[str, Any]:
    """Return the shares of targets with intervals, the share of valid candidates, and of these the possible ones."""

    def is_good(route: Route) -> bool:
        return route.smiles == target.smiles and not stock.missing(route) and check_route(route).is_possible

    ranks: dict[str, list[int | None]] = {"exact": [], "last": [], "possible": []}
    candidates = routes = possible = 0
    for plan, target in zip(plans, references, strict=True):
        ranked = [candidate.route for candidate in plan.candidates]
        ranks["exact"].append(exact_rank(ranked, target))
        ranks["last"].append(prefix_rank(ranked, target, 1))
        ranks["possible"].append(first_rank(ranked, is_good))
        found = [route for route in ranked if route is not None]
        candidates, routes = candidates + len(ranked), routes + len(found)
        possible += sum(check_route(route).is_possible for route in found)
    n = len(plans)
    shares: dict[str, Any] = {}
    for what, places in ranks.items():
        for k in KS:
            count = sum(rank is not None and rank <= k for rank in places)
            shares[f"{what}@{k}"] = Estimate(count / n, *wilson_interval(count, n), n).to_dict()
    return {**shares, "valid": routes / max(1, candidates), "of_these_possible": possible / max(1, routes)}


def as_table(rows: Sequence[dict[str, Any]]) -> str:
    names = [name for name in rows[0] if "@" in name]
    head = ["texts", "seed", "planning", *names, "valid; of these possible"]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |"]
    for row in rows:
        shares = [f"{row[name]['value']:.1%} [{row[name]['low']:.1%}, {row[name]['high']:.1%}]" for name in names]
        valid = f"{row['valid']:.0%}; {row['of_these_possible']:.0%}"
        lines.append(f"| {' | '.join([row['texts'], str(row['seed']), row['planning'], *shares, valid])} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Prepare the texts, train, plan and evaluate, without repeating finished parts, and print the table.

    Raises:
        ValueError: an argument is not valid.
        OSError: a file cannot be read.
    """
    arguments = build_parser().parse_args(argv)
    if "reactions" in arguments.texts and arguments.reactions is None:
        raise ValueError("--texts reactions needs --reactions FILE.")
    ways = [way.partition("=") for way in arguments.planning]
    if any(not name or not equals for name, equals, _ in ways):
        raise ValueError(f"--planning takes NAME=WORDS, got {', '.join(arguments.planning)}")
    references = evaluate.load_references(arguments.test, arguments.targets, 0)
    stock = Stock.from_file(arguments.stock)
    rows = []
    for seed in arguments.seeds:
        for texts in arguments.texts:
            model = trained(texts, seed, arguments)
            for name, _, words in ways:
                columns = evaluate.read_predictions([planned(model, name, words, arguments)])
                pairs = evaluate.matched(next(iter(columns.values())), references, name, "refuse")
                counted = figures(
                    [plan for _, (plan, _) in pairs], [canonical_route(route) for route, _ in pairs], stock
                )
                results = json.loads((model / "results.json").read_text())
                about = {"texts": texts, "seed": seed, "planning": name, "steps": results["steps"]}
                rows.append(about | counted)
                write_json(arguments.out / "figures.json", {"tokens": arguments.tokens, "rows": rows})
    print(as_table(rows))


if __name__ == "__main__":
    sys.exit(run_script("route_texts", main))
