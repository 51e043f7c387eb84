"""Translation of Multi30k, English to German or French, from the raw files to BLEU.

The recipe is that of Transformer-Tiny (Wu et al. 2021).
`python -m weftformer.benchmarks.multi30k --data FOLDER --language de --output-dir runs/multi30k-de` prepares the texts as the data set's
authors do (lower-cased, normalized punctuation, Moses tokens), trains with the settings of `benchmarks/multi30k.yaml`,
averages the last checkpoints and translates test_2016_flickr. If the command is interrupted, the same command resumes it.
All arguments of `weftformer train` can be added, such as `--max-steps 2000` or `--config-overrides num_experts=8,...`.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from weftformer.common.whole_files import whole_file, write_json
from weftformer.scripts.cli import run_script
from weftformer.training import WeftTrainingArguments, average_checkpoints, fit_pairs, parse_arguments

RECIPE = Path(__file__).with_name("multi30k.yaml")
TRAIN, VALIDATION, TEST = "train", "val", "test_2016_flickr"
_SENTENCES = {TRAIN: 29_000, VALIDATION: 1_014, TEST: 1_000}
_AT_ONCE = 100


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="multi30k",
        description=__doc__,
        epilog="All other arguments are those of `weftformer train`.",
        allow_abbrev=False,
    )
    parser.add_argument("--data", type=Path, required=True,
                        help="folder with {train,val,test_2016_flickr}.{en,de,fr}.gz, the raw texts of task 1")  # fmt: skip
    parser.add_argument(
        "--language", choices=("de", "fr"), default="de", help="target language (default: %(default)s)"
    )
    parser.add_argument("--output-dir", type=Path, help="default: runs/multi30k-<language>")
    parser.add_argument("--average", type=int, default=10, help="checkpoints to average (default: %(default)s)")
    return parser


def read_tokenized(data: Path, split: str, language: str) -> list[str]:
    """Read the sentences of a file, prepared like the `tok` files of the data set (multi30k/dataset, `task1-tokenize.sh`).

    Raises:
        ValueError: the file does not exist, or its number of sentences is not that of the data set.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    file = data / f"{split}.{language}.gz"
    if not file.is_file():
        raise ValueError(f"There is no {file}: --data must be a folder with the raw texts of Multi30k's task 1.")
    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
        texts = [
            tokenizer.tokenize(normalizer.normalize(line.rstrip("\n").lower()), return_str=True)
            for line in tqdm(lines, desc=file.name, total=_SENTENCES[split], unit="sentence")
        ]
    if len(texts) != _SENTENCES[split]:
        raise ValueError(f"{file} has {len(texts)} sentences, but that of Multi30k has {_SENTENCES[split]}.")
    return texts


def prepare(data: Path, language: str, folder: Path) -> dict[str, Path]:
    """Write the training pairs of each split to a file for `weftformer train`. Existing files are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {split: folder / f"{split}.en-{language}.jsonl" for split in _SENTENCES}
    for split, file in files.items():
        if not file.is_file():
            pairs = zip(*(read_tokenized(data, split, name) for name in ("en", language)), strict=True)
            with whole_file(file) as part:
                lines = (json.dumps({"source": s, "target": t}, ensure_ascii=False) + "\n" for s, t in pairs)
                part.write_text("".join(lines), encoding="utf-8")
    return files


def translate(model: Any, tokenizer: Any, sources: Sequence[str], num_beams: int) -> list[str]:
    """Return the best translation of each source. Batches have sources of similar lengths."""
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    found: dict[int, str] = {}
    for start in tqdm(range(0, len(order), _AT_ONCE), desc="translating", unit="batch"):
        rows = order[start : start + _AT_ONCE]
        batch = tokenizer([sources[row] for row in rows], padding=True, return_tensors="pt").to(model.device)
        with torch.no_grad():
            ids = model.generate(**batch, num_beams=num_beams)
        found |= zip(rows, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True)
    return [found[index] for index in range(len(sources))]


def score(translations: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Return BLEU and chrF of tokenized, lower-cased texts, each with the signature of its settings."""
    from sacrebleu.metrics import BLEU, CHRF

    # without tokenization, because the texts are tokenized already; multi-bleu.perl computed the published figures like this
    metrics = {"bleu": BLEU(tokenize="none", force=True), "chrf": CHRF()}
    scores: dict[str, Any] = {}
    for name, metric in metrics.items():
        scores[name] = metric.corpus_score(list(translations), [list(references)]).score
        scores[f"{name}_signature"] = str(metric.get_signature())
    return scores


def evaluate(trainer: Any, test_file: Path, average: int) -> dict[str, Any]:
    """Save the averaged weights in the output folder, translate the test set with them, and write the results."""
    arguments: WeftTrainingArguments = trainer.args
    folder = Path(str(arguments.output_dir))
    model = average_checkpoints(folder, average).to(arguments.device).eval()
    model.generation_config = trainer.model.generation_config
    model.save_pretrained(folder)
    pairs = [json.loads(line) for line in test_file.read_text(encoding="utf-8").splitlines()]
    references = [pair["target"] for pair in pairs]
    results: dict[str, Any] = {"steps": trainer.state.global_step, "averaged": average}
    beams = arguments.generation_num_beams or 5
    translations = translate(model, trainer.processing_class, [pair["source"] for pair in pairs], beams)
    results |= {"num_beams": beams, **score(translations, references)}
    with whole_file(folder / "translations.txt") as part:
        part.write_text("".join(text.replace("\n", " ") + "\n" for text in translations), encoding="utf-8")
    write_json(folder / "results.json", results)
    return results


def main(argv: Sequence[str] | None = None) -> None:
    """Prepare the data, train, average the checkpoints, translate and compute the scores.

    Raises:
        ValueError: an argument or the data is not valid, or a package is not installed.
        FileNotFoundError: a file does not exist.
    """
    own, rest = build_parser().parse_known_args(argv)
    for name in ("sacremoses", "sacrebleu"):
        if find_spec(name) is None:
            raise ValueError(f"{name} is not installed: pip install 'weftformer[train]'.")
    if own.average < 1:
        raise ValueError(f"--average must be at least 1: got {own.average}.")
    folder = own.output_dir or Path("runs") / f"multi30k-{own.language}"
    files = prepare(own.data, own.language, folder / "data")
    words = ["--train-file", files[TRAIN], "--validation-file", files[VALIDATION], "--output-dir", folder]
    model_args, data_args, training_args = parse_arguments([str(RECIPE), *map(str, words), *rest])
    trainer, _ = fit_pairs(model_args, data_args, training_args)
    if training_args.is_main_process:
        results = evaluate(trainer, files[TEST], own.average)
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.exit(run_script("multi30k", main))
