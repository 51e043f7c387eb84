"""The sources that a model was trained on. Its tokenizer keeps them, so that they never validate its descendants."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from transformers.models.auto.tokenization_auto import get_tokenizer_config

# The entry of the tokenizer's configuration, with two arrays of 4 bytes for a source.
_ENTRY, _ARRAYS, _NUMBER = "trained_sources", ("keys", "untrained"), np.dtype("<u4")


def source_key(source: str, conditions: Iterable[float] = ()) -> int:
    """Return a number of 32 bits for the input of a pair, the same on every machine. White space does not count."""
    text = "\0".join([" ".join(source.split()), *(repr(float(value)) for value in conditions)])
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big")


def _no_keys() -> np.ndarray:
    return np.array([], _NUMBER)


@dataclass(frozen=True)
class TrainedSources:
    """The sources that a model and those that it descends from were trained on.

    Args:
        keys: their numbers, see [`source_key`].
        untrained: numbers of sources that were certainly held out. Only needed if `keys` lacks some.
        is_complete: whether `keys` has all sources. It lacks those of streams and of models without a record.
        name: the name of the model, for messages.
    """

    keys: np.ndarray = field(default_factory=_no_keys)
    untrained: np.ndarray = field(default_factory=_no_keys)
    is_complete: bool = True
    name: str = "the model"

    @classmethod
    def load(cls, model: str | None) -> TrainedSources:
        """Read the sources of a model from its folder or the Hub. None stands for a new model.

        Raises:
            ValueError: the record is damaged.
        """
        if model is None:
            return cls()
        record = get_tokenizer_config(model).get(_ENTRY)
        if record is None:
            return cls(is_complete=False, name=model)
        try:
            keys, untrained = (np.frombuffer(b64decode(record[name]), _NUMBER) for name in _ARRAYS)
            return cls(keys, untrained, bool(record["is_complete"]), model)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{model}: `{_ENTRY}` in tokenizer_config.json is damaged ({error}).") from error

    def save(self, tokenizer: Any) -> None:
        """Write the sources into the configuration with which the tokenizer is saved."""
        record = {name: b64encode(getattr(self, name).astype(_NUMBER).tobytes()).decode() for name in _ARRAYS}
        tokenizer.init_kwargs[_ENTRY] = record | {"is_complete": self.is_complete}

    def after_training(self, trained: np.ndarray | None, held_out: np.ndarray) -> TrainedSources:
        """Return the sources of the model that a training makes of this one.

        Args:
            trained: the numbers of the training pairs. None for a stream, whose pairs are not known.
            held_out: the numbers of the validation pairs.
        """
        is_complete = self.is_complete and trained is not None
        keys = self.keys if trained is None else np.union1d(self.keys, trained)
        untrained = np.setdiff1d(held_out if self.is_complete else np.intersect1d(held_out, self.untrained), keys)
        return TrainedSources(keys, _no_keys() if is_complete else untrained, is_complete, self.name)

    def is_doubtful(self, keys: np.ndarray) -> np.ndarray:
        """Return whether the model may have been trained on each of these sources, but it is not known."""
        return ~np.isin(keys, np.union1d(self.keys, self.untrained)) & (not self.is_complete)

    def notes(self, keys: np.ndarray, what: str = "pairs") -> list[str]:
        """Return sentences that say what these sources make uncertain about the score of pairs.

        Args:
            keys: the numbers of the sources of the pairs.
            what: the name of the pairs.
        """
        end = "their scores do not show how well it does on new texts."
        num_seen, num_doubtful = np.isin(keys, self.keys).sum(), self.is_doubtful(keys).sum()
        notes = []
        if num_seen:
            notes.append(f"The model was trained on the sources of {num_seen} of {len(keys)} {what}: {end}")
        if num_doubtful:
            notes.append(
                f"{self.name} does not list all sources that it was trained on: {num_doubtful} of {len(keys)} {what} "
                "may be among them, and the score may be too high."
            )
        return notes


def forget_sources(tokenizer: Any) -> None:
    """Remove the sources from a tokenizer whose model will be trained on others."""
    getattr(tokenizer, "init_kwargs", {}).pop(_ENTRY, None)
