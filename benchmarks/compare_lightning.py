"""Train DirectMultiStep's models with its own Lightning code and with Weft; compare validation loss and speed.

`python -m weftformer.benchmarks.compare_lightning --train n5.jsonl.gz --validation n1.jsonl.gz --steps 40` starts both
from the same weights, with the same routes, batch size, optimizer, schedule, clipping of gradients and masking of the
source. DirectMultiStep pads each target to the longest one that its model supports, and Weft to the longest one in the
batch. Weft evaluates both on the same routes, without dropout and masking. Training routes with an evaluated target are
left out.

With `--minutes` both train for the same time instead of the same steps, and begin the routes again when they are
through. `--save` keeps the models for `weftformer evaluate`.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import yaml
from datasets import Dataset
from transformers import DataCollatorForSeq2Seq, TrainerCallback

from weftformer.benchmarks.decoding import machine
from weftformer.benchmarks.peers import directmultistep
from weftformer.common.whole_files import write_json
from weftformer.conversion import SOURCES, convert
from weftformer.routes import drop_shared_targets, training_pairs
from weftformer.routes.data.training_data import encode, read_canonical
from weftformer.scripts.arguments import check_folders
from weftformer.scripts.cli import run_script
from weftformer.tokenization import PRODUCT_LENGTH, SOURCE_LENGTH, build_route_tokenizer
from weftformer.training import WeftTrainer, WeftTrainingArguments

PEERS = {"dms-flash-10m": "flash_10M", "dms-flex-20m": "flex_20M"}
# The share of source tokens that DirectMultiStep's training masks.
_MASKED = 0.05
# DirectMultiStep's training cuts each number of a gradient to this size.
_LARGEST_GRADIENT = 1.0
_IGNORED = -100


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="compare_lightning", description=__doc__)
    parser.add_argument("--train", type=Path, required=True, help="routes to train on")
    parser.add_argument("--validation", type=Path, required=True, help="routes to evaluate on")
    parser.add_argument("--preset", choices=PEERS, default="dms-flash-10m", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=40, help="optimizer steps of each run (default: %(default)s)")
    parser.add_argument("--minutes", type=float,
                        help="train each for this time; the schedule of --steps is stretched over it")  # fmt: skip
    parser.add_argument("--only", choices=("weft", "lightning"), help="train only one (default: one after the other)")
    parser.add_argument("--save", type=Path, metavar="FOLDER",
                        help="save the models and the vocabulary in FOLDER/weft and FOLDER/lightning")  # fmt: skip
    parser.add_argument("--batch-size", type=int, default=16, help="routes per step (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=3e-4, help="its highest value (default: %(default)s)")
    parser.add_argument("--warmup-steps", type=int, default=10, help="warm-up steps (default: %(default)s)")
    parser.add_argument("--validation-rows", type=int, default=64, help="routes to evaluate (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of order, dropout and masking (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser


class Clock:
    """Measures the time of each step. `tokens_of` returns a step's number of target tokens."""

    def __init__(self, tokens_of: Callable[[int], int]):
        self.tokens_of = tokens_of
        self.seconds: list[float] = []
        self._last: float | None = None

    def start(self) -> None:
        self._last = time.perf_counter()

    def step(self) -> None:
        assert self._last is not None
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return sum(self.seconds) + (0.0 if self._last is None else time.perf_counter() - self._last)

    @property
    def tokens(self) -> int:
        """Target tokens of all steps."""
        return sum(map(self.tokens_of, range(len(self.seconds))))

    @property
    def tokens_per_second(self) -> float:
        """The median over the steps without the first one, which is the warm-up."""
        counted = list(enumerate(self.seconds))[1:] or list(enumerate(self.seconds))
        return statistics.median(self.tokens_of(step) / seconds for step, seconds in counted)


class _TrainingCallback(TrainerCallback):
    """Measures the time, ends the training, and clips gradients as DirectMultiStep's trainer does."""

    def __init__(self, clock: Clock, is_over: Callable[[Clock], bool]):
        self.clock, self.is_over = clock, is_over

    def on_train_begin(self, args, state, control, **kwargs):
        self.clock.start()

    def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
        torch.nn.utils.clip_grad_value_(model.parameters(), _LARGEST_GRADIENT)  # transformers clips by the norm alone

    def on_step_end(self, args, state, control, **kwargs):
        self.clock.step()
        control.should_training_stop |= self.is_over(self.clock)


def masked_collator(tokenizer: Any) -> Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]]:
    """Return a collator that masks source tokens as DirectMultiStep's training does."""
    collate = DataCollatorForSeq2Seq(tokenizer)

    def masked(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        batch = dict(collate(rows))
        ids = batch["input_ids"]
        hidden = (torch.rand(ids.shape) < _MASKED) & (ids != tokenizer.pad_token_id)
        return batch | {"input_ids": ids.masked_fill(hidden, tokenizer.mask_token_id)}

    return masked


class Comparison:
    """The data, the settings and the two training runs.

    Raises:
        ValueError: too few routes are left to train or evaluate on, or routes do not fit the model or the steps.
        OSError: a file cannot be read.
    """

    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.tokenizer = build_route_tokenizer()
        config = self.as_weft(self.peer()).config
        validation = read_canonical(arguments.validation)
        train = drop_shared_targets(read_canonical(arguments.train), validation)
        fitting = [route for route in train if len(route.smiles) <= PRODUCT_LENGTH - 2]
        if not fitting or not validation:
            raise ValueError("No route is left to train or to evaluate on.")
        # one order for both runs, so that each step has the same routes
        order = torch.randperm(len(fitting), generator=torch.Generator().manual_seed(arguments.seed)).tolist()
        self.pairs = Dataset.from_list(training_pairs([fitting[index] for index in order]))
        self.train = encode(self.pairs, self.tokenizer, config)
        if len(self.train) != len(self.pairs):
            raise ValueError(f"{len(self.pairs) - len(self.train)} training routes do not fit {arguments.preset}.")
        rows = Dataset.from_list(training_pairs(validation[: arguments.validation_rows]))
        self.validation = encode(rows, self.tokenizer, config)
        needed = arguments.steps * arguments.batch_size
        if arguments.minutes is None and needed > len(self.train):
            raise ValueError(f"{arguments.steps} steps need {needed} routes, and there are {len(self.train)}.")
        # whole batches, so that a step has the same routes in each epoch
        whole = len(self.train) // arguments.batch_size * arguments.batch_size
        if not whole:
            raise ValueError(
                f"--batch-size {arguments.batch_size} is more than the {len(self.train)} training routes."
            )
        self.train, self.pairs = (part.select(range(whole)) for part in (self.train, self.pairs))
        self.lengths = [len(labels) for labels in self.train["labels"]]

    def peer(self) -> torch.nn.Module:
        """Return the published model with its initial weights, which are the same in each call."""
        return directmultistep(PEERS[self.arguments.preset])

    def as_weft(self, peer: torch.nn.Module) -> Any:
        """Return a Weft model with the weights of a published model.

        The preset is given because two presets have weights of the same shapes.
        """
        return convert(peer.state_dict(), SOURCES["dms"], preset=self.arguments.preset).build()

    def clock(self) -> Clock:
        size, batches = self.arguments.batch_size, len(self.lengths) // self.arguments.batch_size
        return Clock(lambda step: sum(self.lengths[step % batches * size : (step % batches + 1) * size]))

    def is_over(self, clock: Clock) -> bool:
        """Return whether the time of `--minutes` is over."""
        minutes = self.arguments.minutes
        return minutes is not None and clock.elapsed >= 60 * minutes

    def schedule(self, clock: Clock) -> Callable[[int], float]:
        """Return DirectMultiStep's schedule of the learning rate, over the steps or over the time."""
        from directmultistep.training.lightning import warmup_and_cosine_decay

        steps, warmup, minutes = self.arguments.steps, self.arguments.warmup_steps, self.arguments.minutes
        of_step = warmup_and_cosine_decay(warmup, max(1, steps - warmup), 0.1)
        if minutes is None:
            return of_step
        # from 1 on, because the schedule gives a rate of 0 at step 0
        return lambda step: of_step(1 + int(steps * clock.elapsed / (60 * minutes)))

    @property
    def most_steps(self) -> int:
        """The limit of steps that both trainers are given. With `--minutes` training ends earlier."""
        return self.arguments.steps if self.arguments.minutes is None else 10**9

    def trainer(self, model: Any, clock: Clock | None = None, **settings: Any) -> WeftTrainer:
        with tempfile.TemporaryDirectory() as folder:  # nothing is saved
            arguments = WeftTrainingArguments(
                output_dir=folder, max_steps=self.most_steps, max_grad_norm=0.0, seed=self.arguments.seed,
                per_device_train_batch_size=self.arguments.batch_size, per_device_eval_batch_size=8,
                train_sampling_strategy="sequential", save_strategy="no", eval_strategy="no", report_to="none",
                prediction_loss_only=True, predict_with_generate=False, disable_tqdm=True, logging_strategy="no",
                use_cpu=True,
            )  # fmt: skip
        return WeftTrainer(
            model=model, args=arguments, train_dataset=self.train, eval_dataset=self.validation,
            data_collator=masked_collator(self.tokenizer) if clock else DataCollatorForSeq2Seq(self.tokenizer),
            callbacks=[_TrainingCallback(clock, self.is_over)] if clock else None, **settings,
        )  # fmt: skip

    def loss(self, model: Any) -> float:
        """Return the mean loss over the target tokens of the validation routes."""
        return self.trainer(model).evaluate()["eval_loss"]

    def weft(self) -> tuple[Any, Clock]:
        model, clock = self.as_weft(self.peer()).train(), self.clock()
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.arguments.learning_rate)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.schedule(clock))
        self.trainer(model, clock, optimizers=(optimizer, scheduler)).train()
        return model, clock

    def lightning(self) -> tuple[Any, Clock]:
        """Train as DirectMultiStep's `ModelTrainer` does, but without checkpoints and shuffling."""
        import lightning
        from directmultistep.training.lightning import LTraining
        from directmultistep.utils.dataset import RoutesDataset

        tokens = self.tokenizer.get_vocab()
        model, clock = self.peer().train(), self.clock()
        settings = {
            "smiledict": tokens, "invdict": {index: token for token, index in tokens.items()},
            "product_max_length": PRODUCT_LENGTH, "sm_max_length": SOURCE_LENGTH - PRODUCT_LENGTH,
            "seq_out_maxlength": self.as_weft(model).config.max_target_positions,
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "settings.yaml"
            file.write_text(yaml.safe_dump(settings), encoding="utf-8")
            data = RoutesDataset(file, self.pairs["source"], self.pairs["target"], self.pairs["n_steps"])
        pad, mask = self.tokenizer.pad_token_id, self.tokenizer.mask_token_id
        schedule, is_over = self.schedule(clock), self.is_over

        class Module(LTraining):
            def configure_optimizers(self):
                (optimizer,), (entry,) = super().configure_optimizers()
                return [optimizer], [entry | {"scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)}]

        module = Module(
            pad_idx=pad, mask_idx=mask, lr=self.arguments.learning_rate, batch_size=self.arguments.batch_size,
            model=model, criterion=torch.nn.CrossEntropyLoss(ignore_index=pad), warmup_steps=self.arguments.warmup_steps,
            decay_steps=max(1, self.arguments.steps - self.arguments.warmup_steps),
        )  # fmt: skip

        class Timer(lightning.Callback):
            def on_train_start(self, trainer, pl_module):
                clock.start()

            def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
                clock.step()
                trainer.should_stop |= is_over(clock)

        lightning.seed_everything(self.arguments.seed, verbose=False)
        trainer = lightning.Trainer(
            max_steps=self.most_steps, accelerator="cpu", devices=1, callbacks=[Timer()], logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            gradient_clip_val=_LARGEST_GRADIENT, gradient_clip_algorithm="value",
        )  # fmt: skip
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=self.arguments.batch_size, num_workers=1))
        return model, clock


def main(argv: Sequence[str] | None = None) -> None:
    """Train, evaluate, and print and write the figures.

    Raises:
        ValueError: an argument is not valid, directmultistep is not installed, or the routes do not fit.
        OSError: a file cannot be read.
    """
    arguments = build_parser().parse_args(argv)
    if find_spec("directmultistep") is None:
        raise ValueError("directmultistep is not installed: pip install 'weftformer[parity]'.")
    for name in ("steps", "batch_size", "validation_rows", "threads"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1: got {getattr(arguments, name)}.")
    if arguments.minutes is not None and not arguments.minutes > 0:
        raise ValueError(f"--minutes must be above 0: got {arguments.minutes}.")
    check_folders(arguments, "json")
    torch.set_num_threads(arguments.threads)
    comparison = Comparison(arguments)
    given = {name: value if value is None or isinstance(value, (int, float)) else str(value)
             for name, value in vars(arguments).items()}  # fmt: skip
    results: dict[str, Any] = {"machine": machine(), "arguments": given}
    results["loss_before"] = comparison.loss(comparison.as_weft(comparison.peer()))
    print(json.dumps(results))
    for name, title in (("weft", "Weft"), ("lightning", "directmultistep, Lightning")):
        if arguments.only not in (None, name):
            continue
        model, clock = getattr(comparison, name)()
        model = model if name == "weft" else comparison.as_weft(model)
        if arguments.save is not None:
            model.save_pretrained(arguments.save / name)
            comparison.tokenizer.save_pretrained(arguments.save / name)
        results[title] = {
            "validation_loss": comparison.loss(model),
            "steps": len(clock.seconds),
            "seconds": sum(clock.seconds),
            "target_tokens": clock.tokens,
            "target_tokens_per_second": clock.tokens_per_second,
            "seconds_per_step": statistics.median(clock.seconds),
        }
        print(title, json.dumps(results[title]), flush=True)
        if arguments.json is not None:
            write_json(arguments.json, results)


if __name__ == "__main__":
    sys.exit(run_script("compare_lightning", main))
