"""Translation of Multi30k, English to German or French, from the raw files to BLEU.

The recipe is that of Transformer-Tiny (Wu et al. 2021).
`python -m weftformer.benchmarks.multi30k --data FOLDER --language de --output-dir runs/multi30k-de` prepares the texts
as the data set's authors do (lower-cased, normalized punctuation, Moses tokens), trains with the settings of
`benchmarks/multi30k.yaml`, averages the last checkpoints and translates test_2016_flickr. If the command is
interrupted, the same command resumes it. All arguments of `weftformer train` can be added, such as `--max-steps 2000`
or `--config-overrides num_experts=8,...`. `--model marian` trains transformers' Marian of the same size in place of Weft,
on the same batches in the same order.
"""

import argparse
import gzip
import hashlib
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import AutoConfig, DataCollatorForSeq2Seq, PreTrainedConfig, Seq2SeqTrainer, set_seed
from transformers.trainer_pt_utils import LabelSmoother
from transformers.utils import SAFE_WEIGHTS_NAME

from weftformer.benchmarks.decoding import machine
from weftformer.benchmarks.translation import family_of, new_peer
from weftformer.common.whole_files import whole_file, write_json
from weftformer.conversion.transformers_bart import SAME_NAME
from weftformer.scripts.cli import run_script
from weftformer.scripts.parsing import parse_arguments
from weftformer.tokenization import iter_columns
from weftformer.training import (
    DataArguments,
    ModelArguments,
    WeftTrainer,
    WeftTrainingArguments,
    average_checkpoints,
    fit_pairs,
)
from weftformer.training.building import (
    build_config,
    build_tokenizer,
    set_generation_defaults,
    source_and_target_limits,
)
from weftformer.training.checkpoints import check_output_dir, checkpoints, find_checkpoint, remove_checkpoints
from weftformer.training.data import load_pairs
from weftformer.training.encoding import encode_pairs, longest
from weftformer.training.metrics import bootstrap_interval

RECIPE = Path(__file__).with_name("multi30k.yaml")
TRAIN, VALIDATION, TEST = "train", "val", "test_2016_flickr"
PEERS = {"marian": "Marian", "pegasus": "Pegasus"}
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
    parser.add_argument("--model", choices=("weft", *PEERS), default="weft",
                        help="the model to train: Weft, or a model of transformers of the same size (default: %(default)s)")  # fmt: skip
    parser.add_argument(
        "--output-dir", type=Path, help="default: runs/multi30k-<language>, or runs/multi30k-<language>-<model>"
    )
    parser.add_argument("--average", type=int, default=10, help="checkpoints to average (default: %(default)s)")
    return parser


def read_tokenized(data: Path, split: str, language: str) -> list[str]:
    """Read the sentences of a file, prepared like the `tok` files of the data set.

    These are made by `task1-tokenize.sh` of multi30k/dataset.

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


class PeerTrainer(WeftTrainer):
    """A trainer of a model of transformers. It has the batches of [`WeftTrainer`], and the losses of Weft's model: with
    smoothed labels in training, which transformers computes in the Trainer, and with the labels as they are in evaluation."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # the model itself would divide by the labels of a batch and not by those of the whole step
        self.label_smoother = LabelSmoother(epsilon=self.args.label_smoothing_factor)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if model.training:
            return Seq2SeqTrainer.compute_loss(self, model, inputs, return_outputs, num_items_in_batch)
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


def fit_peer(
    family: str, model_args: ModelArguments, data_args: DataArguments, training_args: WeftTrainingArguments
) -> PeerTrainer:
    """Train a model of transformers in the size, on the batches and with the schedule of `fit_pairs` with these arguments.

    Its first weights are those that transformers draws.

    Args:
        family: `"Marian"` (post-norm) or `"Pegasus"` (pre-norm).
        model_args, data_args, training_args: as of `fit_pairs`.

    Returns:
        The trainer, with the trained model.

    Raises:
        ValueError: the family has not this architecture, the checkpoint to resume is another model's, or an argument is
            for Weft models alone.
        FileNotFoundError: a file does not exist.
    """
    for name in ("model_name_or_path", "teacher"):
        if getattr(model_args, name):
            raise ValueError(
                f"--{name.replace('_', '-')} is for Weft models: leave it out with --model {family.lower()}."
            )
    check_output_dir(training_args, (model_args.tokenizer_name,))
    checkpoint = find_checkpoint(training_args)
    _, splits, columns = load_pairs(data_args)
    texts = iter_columns(splits["train"], (columns.source, columns.target))
    tokenizer = build_tokenizer(model_args, texts, checkpoint=checkpoint)
    config = build_config(model_args, tokenizer)
    if (found := family_of(config)) != family:
        raise ValueError(
            f"--model {family.lower()} needs the architecture of {family}, and the configuration has that of {found}: change "
            "norm_first (Marian is post-norm, Pegasus pre-norm) or normalize_embedding (both have it off)."
        )
    limits = source_and_target_limits(config, data_args)
    splits = encode_pairs(
        splits, columns, tokenizer, limits, config.decoder_start_token_id, data_args.truncate, data_args.num_proc
    )
    set_seed(training_args.seed)
    model = new_peer(config, family)
    if checkpoint:
        _check_same_peer(model.config, checkpoint)
    elif training_args.overwrite_output_dir:
        remove_checkpoints(training_args.output_dir)
    set_generation_defaults(model, max(map(longest, splits.values())), training_args)
    # None of these models has experts.
    training_args.prediction_loss_only, training_args.log_expert_statistics = True, False
    trainer = PeerTrainer(
        model=model,
        args=training_args,
        train_dataset=splits["train"],
        eval_dataset=splits["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model, pad_to_multiple_of=data_args.pad_to_multiple_of),
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_state()
    tokenizer.save_pretrained(training_args.output_dir)
    return trainer


def _check_same_peer(config: PreTrainedConfig, checkpoint: str) -> None:
    """Refuse a checkpoint of another model, of which the Trainer would load whatever fits."""
    saved = AutoConfig.from_pretrained(checkpoint)
    free = ("dropout", "attention_dropout", "activation_dropout", "init_std", "use_cache")
    for name in ("model_type", *(name for name in SAME_NAME if name not in free)):
        if (before := getattr(saved, name, None)) != (now := getattr(config, name, None)):
            raise ValueError(
                f"{checkpoint} is of a model with {name}={before!r}, and this run has {now!r}: give another --output-dir, or "
                "--overwrite-output-dir true --resume-from-checkpoint false to begin again."
            )


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
    """Return BLEU and chrF of tokenized, lower-cased texts, with their 95 % bootstrap intervals and signatures."""
    from sacrebleu.metrics import BLEU, CHRF

    # without tokenization, because the texts are tokenized already; multi-bleu.perl computed the published figures
    # like this
    settings: dict[str, dict[str, Any]] = {"bleu": {"tokenize": "none", "force": True}, "chrf": {}}
    scores: dict[str, Any] = {}
    for name, metric_class in {"bleu": BLEU, "chrf": CHRF}.items():
        metric = metric_class(**settings[name])
        scores[name] = metric.corpus_score(list(translations), [list(references)]).score
        scores[f"{name}_interval"] = bootstrap_interval(name, translations, references, **settings[name])
        scores[f"{name}_signature"] = str(metric.get_signature())
    return scores


def evaluate(trainer: Any, test_file: Path, average: int) -> dict[str, Any]:
    """Save the averaged weights in the output folder, translate the test set with them, and write the results."""
    arguments: WeftTrainingArguments = trainer.args
    folder = Path(str(arguments.output_dir))
    model = average_checkpoints(folder, average, type(trainer.model)).to(arguments.device).eval()
    model.generation_config = trainer.model.generation_config
    model.save_pretrained(folder)
    pairs = [json.loads(line) for line in test_file.read_text(encoding="utf-8").splitlines()]
    references = [pair["target"] for pair in pairs]
    averaged = min(average, len(checkpoints(folder)))
    results: dict[str, Any] = {"steps": trainer.state.global_step, "averaged": averaged, "machine": machine()}
    with (folder / SAFE_WEIGHTS_NAME).open("rb") as weights:
        results["sha256"] = hashlib.file_digest(weights, "sha256").hexdigest()
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
    name = f"multi30k-{own.language}" + f"-{own.model}" * (own.model != "weft")
    folder = own.output_dir or Path("runs") / name
    files = prepare(own.data, own.language, folder / "data")
    words = ["--train-file", files[TRAIN], "--validation-file", files[VALIDATION], "--output-dir", folder]
    model_args, data_args, training_args = parse_arguments([str(RECIPE), *map(str, words), *rest])
    if own.model == "weft":
        trainer = fit_pairs(model_args, data_args, training_args).trainer
    else:
        trainer = fit_peer(PEERS[own.model], model_args, data_args, training_args)
    if training_args.is_main_process:
        results = evaluate(trainer, files[TEST], own.average)
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.exit(run_script("multi30k", main))
