"""Seq2SeqTrainer with batches by tokens and checkpoints that are whole or not there."""

import os
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from safetensors import SafetensorError
from torch.utils.data import DataLoader
from transformers import Seq2SeqTrainer, TrainerCallback
from transformers.trainer_utils import rotate_checkpoints, seed_worker

from .batching import TokenBudgetSampler
from .callbacks import RouterBiasCallback
from .checkpoints import checkpoints
from .manifest import write_manifest

_STAGING = ".saving-checkpoint"


class WeftTrainer(Seq2SeqTrainer):
    """`Seq2SeqTrainer` for Weft models.

    - `args.max_tokens_per_batch` forms batches by tokens instead of rows ([`TokenBudgetSampler`]).
    - Routers' selection biases move after each optimizer step ([`RouterBiasCallback`]).
    - A checkpoint appears under its name when all its files are written and listed; whatever goes wrong before, those that
      were there stay as they were.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._staging: Path | None = None
        self.add_callback(RouterBiasCallback())

    def get_train_dataloader(self) -> DataLoader:
        budget = getattr(self.args, "max_tokens_per_batch", None)
        if budget is None:
            return super().get_train_dataloader()
        dataset = self._remove_unused_columns(self.train_dataset, description="training")
        sampler = TokenBudgetSampler(
            _lengths(dataset, "input_ids"),
            _lengths(dataset, "labels"),
            budget,
            num_processes=self.args.world_size,
            seed=self.args.seed if self.args.data_seed is None else self.args.data_seed,
        )
        self.add_callback(_EpochCallback(sampler))
        loader = DataLoader(
            dataset,
            batch_sampler=sampler,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            worker_init_fn=partial(
                seed_worker, num_workers=self.args.dataloader_num_workers, rank=self.args.process_index
            ),
        )
        return self.accelerator.prepare(loader)

    def _get_output_dir(self, trial) -> str:
        return super()._get_output_dir(trial) if self._staging is None else str(self._staging)

    def _save_checkpoint(self, model, trial) -> None:
        folder = Path(super()._get_output_dir(trial))
        name = f"checkpoint-{self.state.global_step}"
        try:
            with self._in_staging(folder):
                super()._save_checkpoint(model, trial)
                self.accelerator.wait_for_everyone()  # each process writes its own random state
                if self.args.should_save:
                    self._finish(folder, name)
        except (OSError, RuntimeError, SafetensorError) as error:  # each library tells a full disk in its own way
            kept = checkpoints(folder)
            good = f"the last whole one is {kept[0]}" if kept else "there is none before it"
            raise OSError(
                f"The checkpoint of step {self.state.global_step} was not saved ({error}); {good}."
            ) from error
        self.accelerator.wait_for_everyone()

    @contextmanager
    def _in_staging(self, folder: Path):
        """Everything that is saved goes to a folder beside the checkpoints, which is gone afterwards."""
        self._staging = folder / _STAGING
        if self.args.should_save:
            shutil.rmtree(self._staging, ignore_errors=True)  # of a run that was killed while it saved
        self.accelerator.wait_for_everyone()
        try:
            yield
        finally:
            if self.args.should_save:
                shutil.rmtree(self._staging, ignore_errors=True)
            self._staging = None

    def _finish(self, folder: Path, name: str) -> None:
        assert self._staging is not None
        new, old = self._staging / name, folder / name
        best = self.state.best_model_checkpoint
        if best is not None and Path(best).parent == self._staging:  # the Trainer saw it where it is not to stay
            self.state.best_model_checkpoint = str(folder / Path(best).name)
            self.state.save_to_json(str(new / "trainer_state.json"))
        write_manifest(new)
        _to_disk(new)
        if old.exists():  # the same step saved again, at the end of an epoch
            old.rename(self._staging / "replaced")
        new.rename(old)
        _to_disk(folder)
        rotate_checkpoints(
            output_dir=str(folder),
            save_total_limit=self.args.save_total_limit,
            best_model_checkpoint=self.state.best_model_checkpoint,
            use_mtime=True,
        )


class _EpochCallback(TrainerCallback):
    """Tells the sampler its epoch: through the wrappers of two processes that resume, the Trainer does not reach it."""

    def __init__(self, sampler: TokenBudgetSampler):
        self.sampler = sampler

    def on_epoch_begin(self, args, state, control, **kwargs):
        # a sum of fractions, which may be a little below the whole number
        self.sampler.set_epoch(int((state.epoch or 0) + 1e-6))


def _lengths(dataset, column: str) -> list[int]:
    return [len(row) for row in dataset[column]]


def _to_disk(folder: Path) -> None:
    """What was written is on the disk, not only in its cache, when a name says that it is whole."""
    for path in [*folder.iterdir(), folder] if folder.name.startswith("checkpoint-") else [folder]:
        if path.is_file() or path == folder:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
