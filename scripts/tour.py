"""`weftformer tour`: what `make demo` runs. It uses and trains route models as a user of transformers does."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)

from weftformer import WeftConfig
from weftformer.routes import RoutePlanner, Stock, sample_routes, save_page, train_test_split
from weftformer.routes.data.training_data import RouteArguments, encode, pairs_of
from weftformer.routes.shipped import MODEL, STOCK, describe_model
from weftformer.scripts.cli import run_script
from weftformer.scripts.parsers.tour import build_parser

# None of them is a product in the training data of the shipped model, also not without stereochemistry.
DRUGS = {
    "lidocaine": "CCN(CC)CC(=O)Nc1c(C)cccc1C",
    "safinamide": "C[C@H](NCc1ccc(OCc2cccc(F)c2)cc1)C(N)=O",
    "celecoxib": "Cc1ccc(-c2cc(C(F)(F)F)nn2-c2ccc(S(N)(=O)=O)cc2)cc1",
}
STEPS = range(1, 4)
PRESET, NUM_TEST_ROUTES, BATCH = "dms-tiny", 100, 16


def plan_drugs(model: Any, tokenizer: Any, beams: int, page: Path) -> None:
    """Plan the drugs, print the best route of each, and write the page."""
    stock = Stock.from_file(STOCK, progress=False, cache=False)
    plans = RoutePlanner(model, tokenizer).plan(list(DRUGS.values()), n_steps=STEPS, beams=beams, stock=stock)
    for name, plan in zip(DRUGS, plans, strict=True):
        purchasable = sum(candidate.purchasable is True for candidate in plan.distinct)
        print(f"\n{name}: {len(plan.distinct)} routes, {purchasable} of them from molecules in stock.")
        for candidate in plan.distinct[:1]:
            assert candidate.route is not None
            print(
                f"rank 1, {'purchasable' if candidate.purchasable else 'not purchasable'}\n{candidate.route.format_tree()}"
            )
    save_page(plans, page)
    print(f"\nAll routes are drawn in {page}: open it in a browser.")


def rows(tokenizer: Any, config: Any, seed: int) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Return the rows of recorded routes for training and for the test."""
    train, test = (
        encode(pairs_of(part, RouteArguments(), seed), tokenizer, config)
        for part in train_test_split(sample_routes(), NUM_TEST_ROUTES, seed=seed)
    )
    return train, test


def train(model: Any, tokenizer: Any, max_steps: int, seed: int, folder: Path) -> tuple[float, float]:
    """Train on recorded routes, save the model, and return the loss of the test before and after."""
    train, test = rows(tokenizer, model.config, seed)
    settings = Seq2SeqTrainingArguments(
        output_dir=str(folder), max_steps=max_steps, per_device_train_batch_size=BATCH, learning_rate=3e-3,
        lr_scheduler_type="cosine", warmup_steps=0.1, logging_steps=max(1, max_steps // 5), save_strategy="no",
        report_to="none", disable_tqdm=not sys.stderr.isatty(), seed=seed, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(
        model=model, args=settings, train_dataset=train, eval_dataset=test, processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )  # fmt: skip
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    trainer.save_model()
    return before, after


def loss_of(folder: Path, seed: int) -> float:
    """Load a saved model, and return its loss of the same test."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    settings = Seq2SeqTrainingArguments(
        output_dir=str(folder), report_to="none", disable_tqdm=True, dataloader_pin_memory=False
    )
    trainer = Seq2SeqTrainer(
        model=model, args=settings, eval_dataset=rows(tokenizer, model.config, seed)[1], processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )  # fmt: skip
    return trainer.evaluate()["eval_loss"]


def main(argv: Sequence[str] | None = None) -> None:
    """Load, plan, draw, train, save and load again.

    Raises:
        ValueError: a number is below 1, or the new model that was loaded again is not the one that was saved.
        OSError: there is no such model, or the folder cannot be written.
    """
    arguments = build_parser().parse_args(argv)
    for name in ("beams", "max_steps"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1: got {getattr(arguments, name)}.")
    started = time.monotonic()
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    source = arguments.model or MODEL
    print(describe_model() if arguments.model is None else f"Model: {source}.")
    set_seed(arguments.seed)
    datasets.disable_progress_bars()  # a moment each
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    plan_drugs(model, tokenizer, arguments.beams, arguments.output_dir / "routes.html")
    new = AutoModelForSeq2SeqLM.from_config(WeftConfig.from_preset(PRESET))
    print(
        f"\nNow a new model of {new.num_parameters() / 1e6:.1f} M parameters ({PRESET}) is trained on recorded routes."
    )
    folder = arguments.output_dir / "model"
    before, after = train(new, tokenizer, arguments.max_steps, arguments.seed, folder)
    again = loss_of(folder, arguments.seed)
    if abs(again - after) > 1e-4 * max(1.0, after):
        raise ValueError(
            f"The model in {folder} has a loss of {again:.4f} after loading. It was saved with {after:.4f}."
        )
    print(
        f"Loss of {NUM_TEST_ROUTES} recorded routes that it was not trained on: {before:.3f} before, {after:.3f} after {arguments.max_steps} "
        f"steps, {again:.3f} saved and loaded again.\nThe model is in {folder}. The tour took {time.monotonic() - started:.0f} s.\n\n"
        "Next:\n  weftformer plan 'SMILES OF YOUR TARGET' --html routes.html\n  weftformer --help"
    )


if __name__ == "__main__":
    sys.exit(run_script("tour", main))
