"""Training in packed rows, beside batches by tokens and fixed batches: `python -m weftformer.benchmarks.packing`.

Says what share of the tokens of an epoch is padding, and how many tokens that are no padding a training step (forward,
backward, AdamW) takes a second. Routes are learned by `dms-tiny`, the German translations of Multi30k by `tiny`. All
contenders have the same weights and about as many tokens in a batch. They run in turn, and the time is that of the
process, so that others on the machine count little.
"""

import argparse
import gzip
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import DataCollatorForSeq2Seq

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.common.whole_files import write_json
from weftformer.routes import read_routes
from weftformer.scripts.cli import run_script
from weftformer.tokenization import build_route_tokenizer, encode_route, encode_source, train_tokenizer
from weftformer.training import DataCollatorForPackedSeq2Seq, PackingSampler, TokenBudgetSampler

Pairs = list[dict[str, list[Any]]]


@dataclass(frozen=True)
class Task:
    """Encoded pairs, and the model that learns them."""

    name: str
    preset: str
    tokenizer: Any
    pairs: Pairs

    @property
    def lengths(self) -> np.ndarray:
        """Source and target tokens of each pair, (2, pairs)."""
        return np.array([[len(pair[name]) for pair in self.pairs] for name in ("input_ids", "labels")])

    def build_model(self) -> WeftForConditionalGeneration:
        torch.manual_seed(0)
        return WeftForConditionalGeneration(WeftConfig.from_preset(self.preset, vocab_size=len(self.tokenizer)))


@dataclass(frozen=True)
class Contender:
    """One way to form batches of an epoch, in the order of training."""

    name: str
    batches: list[list[int]]
    collate: Callable[[Pairs], dict[str, torch.Tensor]]
    padding: float


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.benchmarks.packing", description=__doc__)
    add = parser.add_argument
    add("--routes", type=Path, help="a file of routes")
    add("--texts", type=Path, help="folder with train.en.gz and train.de.gz of Multi30k")
    add("--pairs", type=int, default=29_000, help="most pairs of each (default: %(default)s)")
    add("--tokens", type=int, default=4096, help="tokens of a batch on each side (default: %(default)s)")
    add("--row-lengths", type=int, nargs="*", default=[],
        help="lengths of packed rows beside the default, which is the longest source or target")  # fmt: skip
    add("--step-tokens", type=int, default=8000, help="least tokens of a run (default: %(default)s)")
    add("--runs", type=int, default=5, help="counted runs of each contender (default: %(default)s)")
    add("--threads", type=int, default=1, help="threads of torch (default: %(default)s)")
    add("--json", type=Path, help="write the figures to this file")
    return parser


def route_task(file: Path, count: int) -> Task:
    """Encode routes for `dms-tiny`. Those that do not fit it are left out."""
    tokenizer, config = build_route_tokenizer(), WeftConfig.from_preset("dms-tiny")
    pairs: Pairs = []
    for route in itertools.islice(read_routes(file), count):
        try:
            source = encode_source(tokenizer, route.smiles, source_length=config.max_source_positions)
            target = encode_route(tokenizer, route.to_string(), max_length=config.max_target_positions)
        except ValueError:
            continue
        pairs.append({"input_ids": source, "labels": target, "condition_values": [float(route.depth)]})
    return Task("routes", "dms-tiny", tokenizer, pairs)


def text_task(folder: Path, count: int) -> Task:
    """Encode English sentences and their German translations, lower-cased, with a vocabulary of 10,000 tokens for `tiny`."""
    sides = []
    for language in ("en", "de"):
        with gzip.open(folder / f"train.{language}.gz", "rt", encoding="utf-8") as lines:
            sides.append([line.strip().lower() for line in itertools.islice(lines, count)])
    tokenizer = train_tokenizer(itertools.chain(*sides), vocab_size=10_000)
    pairs = [tokenizer(source, text_target=target) for source, target in zip(*sides, strict=True)]
    return Task(
        "Multi30k", "tiny", tokenizer, [{name: pair[name] for name in ("input_ids", "labels")} for pair in pairs]
    )


def build_contenders(task: Task, tokens: int, row_lengths: Sequence[int] = ()) -> list[Contender]:
    """Return fixed batches, batches by tokens, and packed rows of several lengths."""
    lengths = task.lengths
    padded = DataCollatorForSeq2Seq(task.tokenizer)
    # as many pairs as give about as many tokens as the others have
    size = max(1, round(tokens / lengths.max(axis=0).mean()))
    order = np.random.default_rng(0).permutation(lengths.shape[1])
    fixed = [order[start : start + size].tolist() for start in range(0, len(order), size)]
    whole = sum(len(batch) * int(lengths[:, batch].max(axis=1).sum()) for batch in fixed)
    by_tokens = TokenBudgetSampler(lengths[0], lengths[1], tokens)
    found = [
        Contender(f"fixed batches of {size}", fixed, padded, 1 - int(lengths.sum()) / whole),
        Contender(f"batches of at most {tokens} tokens", list(by_tokens), padded, by_tokens.padding()),
    ]
    for length in (int(lengths.max()), *row_lengths):
        rows = max(1, tokens // length)
        sampler = PackingSampler(lengths[0], lengths[1], length, rows)
        collate = DataCollatorForPackedSeq2Seq(task.tokenizer, length)
        name = f"{rows} packed row{'s' * (rows > 1)} of {length}"
        found.append(Contender(name, list(sampler), collate, sampler.padding()))
    return found


def difference(task: Task, packed: Contender) -> float:
    """Return by how much the loss of any label of a packed batch differs from that of its pair in a row of its own."""
    model = task.build_model().eval()
    pairs = [task.pairs[index] for index in packed.batches[0]]
    losses = []
    with torch.no_grad():
        for collate in (DataCollatorForSeq2Seq(task.tokenizer), packed.collate):
            batch = collate([dict(pair) for pair in pairs])
            logits, labels = model(**batch).logits.flatten(0, 1), batch["labels"].flatten()
            found = torch.nn.functional.cross_entropy(logits, labels, reduction="none")[labels != -100]
            losses.append(found.sort().values)  # pairs may stand in another order
    return float((losses[1] - losses[0]).abs().max())


def steps(task: Task, contender: Contender, tokens: int) -> Callable[[], int]:
    """Return a function that trains on the next batches until they hold so many tokens, and returns how many it were."""
    model = task.build_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    batches = itertools.cycle(contender.batches)
    sizes = task.lengths.sum(axis=0)

    def run() -> int:
        done = 0
        while done < tokens:
            batch = next(batches)
            model(**contender.collate([dict(task.pairs[index]) for index in batch])).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            done += int(sizes[batch].sum())
        return done

    return run


def measure(task: Task, contenders: Sequence[Contender], step_tokens: int, runs: int) -> list[dict[str, Any]]:
    """Train with each contender in turn, after one run that does not count; return a row of figures for each.

    Raises:
        ValueError: a packed batch has other losses than its pairs.
    """
    packed = [one for one in contenders if isinstance(one.collate, DataCollatorForPackedSeq2Seq)]
    for one in packed:
        if (largest := difference(task, one)) > 1e-3:
            raise ValueError(f"{one.name}: losses of a packed batch differ by {largest:.1e} from those of its pairs.")
    trainings = [steps(task, one, step_tokens) for one in contenders]
    speeds: list[list[float]] = [[] for _ in contenders]
    for number in range(runs + 1):
        for training, found in zip(trainings, speeds, strict=True):
            started = time.process_time()
            done = training()
            if number:
                found.append(done / (time.process_time() - started))
    first = statistics.median(speeds[0])
    return [
        {
            "task": task.name, "batches": one.name, "number": len(one.batches), "padding": one.padding,
            "tokens_per_s": statistics.median(found), "range": [min(found), max(found)],
            "times_as_fast": statistics.median(found) / first,
        }
        for one, found in zip(contenders, speeds, strict=True)
    ]  # fmt: skip


def as_table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| task | batches | in an epoch | padding | tokens/s, median (range) | times as fast |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        low, high = row["range"]
        lines.append(
            f"| {row['task']} | {row['batches']} | {row['number']} | {row['padding']:.1%} | {row['tokens_per_s']:,.0f} "
            f"({low:,.0f} to {high:,.0f}) | {row['times_as_fast']:.2f} |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print a table.

    Raises:
        ValueError: no data is named, or a number is out of range.
        FileNotFoundError: a file does not exist.
    """
    arguments = build_parser().parse_args(argv)
    for name in ("pairs", "tokens", "step_tokens", "runs", "threads"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1: got {getattr(arguments, name)}.")
    if arguments.routes is None and arguments.texts is None:
        raise ValueError("There is nothing to learn: give --routes FILE or --texts FOLDER, or both.")
    torch.set_num_threads(arguments.threads)
    tasks = [route_task(arguments.routes, arguments.pairs)] if arguments.routes else []
    tasks += [text_task(arguments.texts, arguments.pairs)] if arguments.texts else []
    rows = []
    for task in tasks:
        contenders = build_contenders(task, arguments.tokens, arguments.row_lengths)
        rows += measure(task, contenders, arguments.step_tokens, arguments.runs)
    print(as_table(rows))
    if arguments.json:
        write_json(arguments.json, {"pairs": {task.name: len(task.pairs) for task in tasks}, "rows": rows})


if __name__ == "__main__":
    sys.exit(run_script("packing", main))
