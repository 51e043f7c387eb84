"""See what Weft does in about two minutes: load the included route model, plan three drugs outside its training
data, write a page with their routes, and train a small new model for about a minute. `make demo` runs this."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from weftformer.scripts import cli
from weftformer.scripts.arguments import positive
from weftformer.scripts.routes_plan import NO_ROUTE

# None of them is a product in the training data of the shipped model, even if stereochemistry is ignored.
DRUGS = {
    "lidocaine": "CCN(CC)CC(=O)Nc1c(C)cccc1C",
    "safinamide": "C[C@H](NCc1ccc(OCc2cccc(F)c2)cc1)C(N)=O",
    "celecoxib": "Cc1ccc(-c2cc(C(F)(F)F)nn2-c2ccc(S(N)(=O)=O)cc2)cc1",
}
# The time limit of each search in seconds, and the number of purchasable routes after which it ends.
BUDGET, NUM_ROUTES = 20.0, 5
PRESET, NUM_TEST_ROUTES, BATCH = "dms-tiny", 100, 16


def plan_drugs(model: str | None, beams: int, folder: Path) -> None:
    """Plan the drugs, print the best route of each, and draw all on a page."""
    from weftformer.routes.shipped import STOCK

    targets = folder / "drugs.smi"
    targets.write_text("".join(f"{smiles} {name}\n" for name, smiles in DRUGS.items()))
    words = ["--input-file", targets, "--html", folder / "routes.html", "--show", 1, "--no-progress", "--beams", beams]
    words += ["--forward-model", "none", "--time-limit", BUDGET, "--num-routes", NUM_ROUTES]
    words += [] if model is None else ["--model", model, "--stock", STOCK]
    if cli.main(["routes", "plan", *map(str, words)]) not in (0, NO_ROUTE):
        raise ValueError("The drugs were not planned.")


def trainer_of(model: Any, tokenizer: Any, folder: Path, seed: int, max_steps: int) -> Any:
    """Return transformers' own trainer, with rows of recorded routes for training and for the test."""
    from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

    from weftformer.routes import sample_routes, train_test_split
    from weftformer.routes.data.training_data import RouteArguments, encode, pairs_of

    train, test = (
        encode(pairs_of(part, RouteArguments(), seed), tokenizer, model.config)
        for part in train_test_split(sample_routes(), NUM_TEST_ROUTES, seed=seed)
    )
    settings = Seq2SeqTrainingArguments(
        output_dir=str(folder), max_steps=max_steps, per_device_train_batch_size=BATCH, learning_rate=3e-3,
        lr_scheduler_type="cosine", warmup_steps=0.1, logging_steps=max(1, max_steps // 5), save_strategy="no",
        report_to="none", disable_tqdm=not sys.stderr.isatty(), seed=seed, dataloader_pin_memory=False,
    )  # fmt: skip
    settings._n_gpu = min(settings.n_gpu, 1)  # several GPUs would need several processes
    return Seq2SeqTrainer(
        model=model, args=settings, train_dataset=train, eval_dataset=test, processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--output-dir", type=Path, default=Path("runs/demo-output"), metavar="FOLDER",
        help="folder for the page and the trained model; files of an earlier run are replaced (default: %(default)s)")  # fmt: skip
    add("--model", metavar="MODEL", help="folder or Hub id of another route model (default: the included one)")  # fmt: skip
    add("--beams", type=positive, default=10, metavar="N", help="width of the search (default: %(default)s)")
    add("--max-steps", type=positive, default=150, metavar="N", help="training steps (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of the training (default: %(default)s)")


def main(args: argparse.Namespace) -> None:
    """Load, plan, draw, train and save.

    Raises:
        ValueError: a number is below 1.
        OSError: there is no such model, or the folder cannot be written.
    """
    import datasets
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, set_seed

    from weftformer import WeftConfig
    from weftformer.hub.loading import load
    from weftformer.routes.shipped import MODEL

    started = time.monotonic()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    set_seed(args.seed)
    datasets.disable_progress_bars()  # each takes only a moment
    plan_drugs(args.model, args.beams, args.output_dir)
    new = AutoModelForSeq2SeqLM.from_config(WeftConfig.from_preset(PRESET))
    print(f"\nTraining a new model with {new.num_parameters() / 1e6:.1f} M parameters ({PRESET}) on recorded routes.")
    folder = args.output_dir / "model"
    trainer = trainer_of(new, load(AutoTokenizer, args.model or MODEL), folder, args.seed, args.max_steps)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    trainer.save_model()
    print(
        f"Loss on {NUM_TEST_ROUTES} recorded routes outside its training data: {before:.3f} before, {after:.3f} after "
        f"{args.max_steps} steps.\n"
        f"The model is in {folder}. The demo took {time.monotonic() - started:.0f} s.\n\n"
        "Next:\n  weftformer routes plan 'SMILES OF YOUR TARGET' --html routes.html\n  weftformer serve\n  weftformer --help"
    )
