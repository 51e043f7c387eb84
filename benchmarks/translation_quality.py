"""BLEU of one trained text model in every way to run it.

    python -m weftformer.benchmarks.translation_quality --model runs/multi30k-de \\
        --pairs runs/multi30k-de/data/test_2016_flickr.en-de.jsonl

All translate the same sources with the same settings: a model of transformers with the same weights (if transformers has
the architecture), Weft's plain path, fast path, drafts and compiled steps, weights in bfloat16 and int8, ONNX (with one
beam, because its files have no beam search) and CTranslate2, also in int8.
"""

import argparse
import copy
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import torch
from tqdm.auto import tqdm
from transformers import BatchEncoding

from weftformer.benchmarks.decoding import machine
from weftformer.benchmarks.multi30k import score
from weftformer.benchmarks.peers import Contender, Tokens
from weftformer.benchmarks.precision import PRECISIONS, set_precision
from weftformer.benchmarks.translation import TranslationCase
from weftformer.common.whole_files import write_json
from weftformer.exporting import load_onnx, write_onnx
from weftformer.scripts.arguments import check_folders
from weftformer.scripts.cli import run_script
from weftformer.training import DataArguments
from weftformer.training.data import load_pairs

_PACKAGES = ("torchao", "onnxruntime", "sacrebleu")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m weftformer.benchmarks.translation_quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, metavar="FOLDER", help="folder or Hub id of a trained text model")
    add("--pairs", required=True, metavar="FILE", help="sources and their references, as in `weftformer train`")
    add("--beams", type=int, nargs="+", default=[1, 5], metavar="N", help="numbers of beams (default: 1 5)")
    add("--limit", type=int, metavar="N", help="number of pairs, from the first one on (default: all)")
    add("--batch", type=int, default=100, metavar="N", help="sources in a batch (default: %(default)s)")
    add("--new-tokens", type=int, default=100, metavar="N",
        help="tokens of a translation at most (default: %(default)s)")  # fmt: skip
    add("--compiled", action="store_true", help="compiled steps, too, which takes minutes to compile")
    add("--threads", type=int, default=2, metavar="N", help="threads of torch (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    return parser


@dataclass(frozen=True)
class QualityCase(TranslationCase):
    """Translation of the sources of a file of pairs, in batches of similar lengths.

    Args:
        pairs: a file of pairs, as in `weftformer train`.
        limit: the number of pairs, from the first one on. None stands for all.
    """

    needs: ClassVar[tuple[str, ...]] = ("model", "pairs")
    compute_types: ClassVar[tuple[str, ...]] = ("float32", "int8")

    pairs: str | None = None
    limit: int | None = None

    @property
    def file(self) -> str | None:
        return self.pairs

    @cached_property
    def rows(self) -> list[tuple[str, str]]:
        """The pairs, sorted by the length of the source."""
        found, _, columns = load_pairs(DataArguments(train_file=self.pairs, max_train_samples=self.limit))
        pairs = zip(found[columns.source], found[columns.target], strict=True)
        return sorted(pairs, key=lambda pair: len(pair[0]))

    @cached_property
    def lines(self) -> list[str]:
        return [source for source, _ in self.rows]

    def contenders(self, compiled: bool) -> Iterator[Contender]:
        yield from super().contenders(compiled)
        batches = self.batches()
        for precision in PRECISIONS[1:]:
            if precision == "int8" and find_spec("torchao") is None:
                print(f"{self.name}: int8 is left out: pip install weftformer[benchmark].")
                continue
            model = set_precision(copy.deepcopy(self.task.model), precision)
            yield Contender(f"Weft, {precision}", self.generating(model, batches))
        if self.beams == 1:
            if all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))):
                yield Contender("ONNX", self._onnx(batches))
            else:
                print(f"{self.name}: ONNX is left out: pip install weftformer[export].")

    def _onnx(self, batches: list[BatchEncoding]) -> Callable[[], Tokens]:
        with tempfile.TemporaryDirectory() as folder:
            write_onnx(self.task.model, Path(folder))
            exported = load_onnx(Path(folder))
        return lambda: [
            row
            for batch in batches
            for row in self.written(
                exported.greedy({name: batch[name] for name in ("input_ids", "attention_mask")}, self.new_tokens)
            )
        ]


def quality_rows(case: QualityCase, compiled: bool = False) -> list[dict[str, Any]]:
    """Translate the pairs of a case with each contender.

    Returns:
        A row for each: its `name`, its scores as of `multi30k`, and `same`, the share of its translations that are those of
        the first.

    Raises:
        ValueError: the model or the pairs cannot be used.
    """
    references = [target for _, target in case.rows]
    rows, first = list[dict[str, Any]](), list[str]()
    for contender in tqdm(case.contenders(compiled), desc=case.name, unit="way"):
        texts = case.task.tokenizer.batch_decode(contender.run(), skip_special_tokens=True)
        first = first or texts
        same = sum(one == other for one, other in zip(first, texts, strict=True)) / len(texts)
        rows.append({"name": contender.name, "same": same, **score(texts, references)})
    return rows


def as_table(cases: dict[str, list[dict[str, Any]]]) -> str:
    """Return a table with a line for each contender, and BLEU and the share of same translations for each case."""
    heads = [head for name in cases for head in (f"BLEU, {name}", "same texts")]
    lines = [f"| way to run | {' | '.join(heads)} |", f"|{' --- |' * (len(heads) + 1)}"]
    found = {name: {row["name"]: row for row in rows} for name, rows in cases.items()}
    for contender in dict.fromkeys(row["name"] for rows in cases.values() for row in rows):
        cells = []
        for rows_by_name in found.values():
            row = rows_by_name.get(contender)
            cells += [_bleu(row), f"{row['same']:.1%}"] if row else ["", ""]
        lines.append(f"| {contender} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _bleu(row: dict[str, Any]) -> str:
    ends = row["bleu_interval"]
    return f"{row['bleu']:.2f}" + (f" [{ends[0]:.1f}, {ends[1]:.1f}]" if ends else "")


def main(argv: Sequence[str] | None = None) -> None:
    """Translate in every way, and print a table.

    Raises:
        ValueError: an argument, the model or the pairs cannot be used, or sacrebleu is not installed.
    """
    args = build_parser().parse_args(argv)
    for name in ("limit", "batch", "new_tokens", "threads"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1: got {value}.")
    if min(args.beams) < 1:
        raise ValueError(f"--beams must be at least 1: got {min(args.beams)}.")
    if find_spec("sacrebleu") is None:
        raise ValueError("sacrebleu is not installed: pip install 'weftformer[train]'.")
    check_folders(args, "json")
    torch.set_num_threads(args.threads)
    cases = {}
    for beams in args.beams:
        name = "greedy" if beams == 1 else f"{beams} beams"
        case = QualityCase(
            name=name, model=args.model, pairs=args.pairs, limit=args.limit, beams=beams, batch=args.batch,
            new_tokens=args.new_tokens,
        )  # fmt: skip
        cases[name] = quality_rows(case, args.compiled)
    print(as_table(cases))
    if args.json is not None:
        where = machine()
        del where["dtype"]  # each row has its own
        where["versions"] |= {name: version(name) if find_spec(name) else None for name in _PACKAGES}
        settings = {name: value for name, value in vars(args).items() if name != "json"}
        write_json(args.json, {"machine": where, "settings": settings, "cases": cases})


if __name__ == "__main__":
    sys.exit(run_script("benchmark translation_quality", main))
