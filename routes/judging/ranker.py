"""Ranks the transformations of a library by the molecule: a perceptron on fingerprints, whose classes they are (Segler
and Waller 2017, doi 10.1002/chem.201605499).

The order of the classes is the same on every machine and with every number of threads, because no sum is rounded: the
second layer has whole numbers below 2**7, whose sums single precision holds exactly, and the first one has multiples
of 2**-24, whose sums double precision holds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from os import PathLike
from typing import Any

import torch
from rdkit import DataStructs
from rdkit.Chem import rdFingerprintGenerator
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..chemistry.molecules import structure

# The largest weight and the largest activation of the second layer, as whole numbers. The sums of up to 1,040 products
# are below 2**24.
LARGEST = 127
# The fragments of a fingerprint: those around each atom up to this number of bonds, in so many bits.
RADIUS, BITS = 2, 2048
RANKER = "ranker.safetensors"
# The logistic regressions of whether a proposal by similarity is the recorded step. Of textbooks, 55 of 7,390 are for
# 1,500 products of PaRoutes n1; of rare transformations, 24 of 7,772 for 552 products.
_OF_TEXTBOOKS, _OF_RARE = (-7.0, 9.1), (-8.4, 9.3)


@lru_cache(1 << 12)
def fingerprint(smiles: str) -> Any:
    """Return the Morgan fingerprint of a molecule as a bit vector."""
    return _generator().GetFingerprint(structure(smiles))


@cache
def _generator() -> Any:
    return rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=BITS)


def similarities(smiles: str, products: Sequence[Sequence[str]]) -> list[float]:
    """Return the largest Tanimoto similarity of a molecule to the products of each transformation, 0 if it has none.

    Args:
        smiles: SMILES of the molecule.
        products: for each transformation, SMILES of products.
    """
    bits = fingerprint(smiles)
    return [
        max(DataStructs.BulkTanimotoSimilarity(bits, list(map(fingerprint, examples))), default=0.0)
        for examples in products
    ]


def probability_by_similarity(similarity: float, is_textbook: bool) -> float:
    """Return the probability of a reaction from its similarity to the nearest example of its transformation."""
    intercept, slope = _OF_TEXTBOOKS if is_textbook else _OF_RARE
    return 1 / (1 + math.exp(-intercept - slope * similarity))


class Ranker:
    """A ranker of transformations.

    Args:
        tensors: `input.weight` of shape `(fragments, hidden)` and `input.bias`, in half precision, which give the
            activations of the second layer in units of its weights; `output.weight` of shape `(classes, hidden)`,
            whole numbers of eight bits; `output.scale` and `output.bias` of each class, in single precision; and
            `places`, the place of each class in its library.
    """

    def __init__(self, tensors: dict[str, torch.Tensor]):
        self.tensors, self.places = tensors, tensors["places"].tolist()
        self._first, self._bias = (tensors[f"input.{name}"].double() for name in ("weight", "bias"))
        self._second = tensors["output.weight"].T.float().contiguous()  # faster than its transpose

    def ranked(self, smiles: str, most: int) -> list[tuple[int, float]]:
        """Return the most probable classes for a product with their probabilities, the first of `most`.

        Classes of equal probability come in their order.

        Args:
            smiles: canonical SMILES.
            most: the number of classes.
        """
        bits = list(fingerprint(smiles).GetOnBits())
        activations = (self._first[bits].sum(0) + self._bias).round().clamp(0, LARGEST).float()
        sums = activations @ self._second
        logits = sums.double() * self.tensors["output.scale"] + self.tensors["output.bias"]
        values, classes = logits.sort(descending=True, stable=True)
        shares = values.softmax(0)[:most]
        return list(zip(classes[:most].tolist(), shares.tolist(), strict=True))

    def save(self, path: str | PathLike[str], smarts: Iterable[str]) -> None:
        """Write the ranker. `smarts` are the templates of its classes."""
        save_file(self.tensors, path, {"templates": _hash(smarts)})

    @classmethod
    def load(cls, path: str | PathLike[str], templates: list[str]) -> Ranker:
        """Read a ranker.

        Args:
            path: the file.
            templates: the templates of its library, in their order.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is damaged, or belongs to another library.
        """
        try:
            with safe_open(path, "pt") as file:
                ranker = cls({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
                digest = file.metadata()["templates"]
            if _hash(templates[place] for place in ranker.places) == digest:
                return ranker
        except (SafetensorError, KeyError, IndexError, TypeError) as error:
            raise ValueError(f"{path} is not a ranker: {error}") from error
        raise ValueError(f"{path} belongs to another library.")


def _hash(smarts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(smarts).encode()).hexdigest()
