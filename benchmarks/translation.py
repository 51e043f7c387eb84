"""Benchmark cases with a trained text model: translation of the user's texts.

Random weights predict nothing, so only these cases have searches that end. The first contender is a model of
transformers with the same weights, if one of transformers' BART family has the model's architecture.
"""

import copy
import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel

import weftformer
from weftformer.benchmarks.peers import Case, FileCase
from weftformer.common.tables import text_of
from weftformer.conversion import SOURCES, export
from weftformer.conversion.transformers_bart import SAME_NAME
from weftformer.hub.loading import load_generator
from weftformer.inference import TextTask

# The names of transformers' classes.
_FAMILIES = {
    "BART": ("BartForConditionalGeneration", "BartConfig"),
    "mBART": ("MBartForConditionalGeneration", "MBartConfig"),
    "Pegasus": ("PegasusForConditionalGeneration", "PegasusConfig"),
    "Marian": ("MarianMTModel", "MarianConfig"),
}
# The families by `norm_first` and `normalize_embedding`. They differ in nothing else, because the tables of positions
# are copied.
_FAMILY_OF = {(False, True): "BART", (True, True): "mBART", (True, False): "Pegasus", (False, False): "Marian"}


def peer_of(model: weftformer.WeftForConditionalGeneration) -> tuple[str, PreTrainedModel]:
    """Build the model of transformers' BART family that computes the same as a Weft model.

    Args:
        model: the Weft model.

    Returns:
        The name of its family, and the model with the Weft model's weights, dtype and settings of `generate`.

    Raises:
        ValueError: no such family has this architecture.
    """
    config = model.config
    family = _FAMILY_OF[config.norm_first, config.normalize_embedding]
    model_class, config_class = _FAMILIES[family]
    fields = {name: value for name in SAME_NAME if (value := getattr(config, name)) is not None}
    peer_config = getattr(transformers, config_class)(
        **fields,
        tie_word_embeddings=config.tie_word_embeddings,
        max_position_embeddings=max(config.max_source_positions, config.max_target_positions),
        forced_eos_token_id=None,
    )
    peer = getattr(transformers, model_class)(peer_config).to(model.dtype).eval()
    weights = export(model, SOURCES["bart"], peer.config.to_dict())
    for stack in ("encoder", "decoder"):
        positions = getattr(peer.model, stack).embed_positions
        table = torch.zeros_like(positions.weight)
        if (module := getattr(model.model, stack).embed_positions) is not None:
            rows = getattr(config, f"max_{'source' if stack == 'encoder' else 'target'}_positions")
            offset = getattr(positions, "offset", 0)  # rows before the first position, in BART and mBART
            table[offset : offset + rows] = module(torch.arange(rows)[None])[0].detach()
        weights[f"model.{stack}.embed_positions.weight"] = table
    weights.setdefault("final_logits_bias", torch.zeros(1, config.vocab_size, dtype=model.dtype))
    try:
        peer.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"The weights are not those of {family}: {error}") from error
    for module in peer.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = config.norm_eps
    peer.generation_config = copy.deepcopy(model.generation_config)
    return family, peer


@dataclass(frozen=True)
class TranslationCase(FileCase, Case):
    """Translation of the first lines of a file of texts, in their order.

    A search ends when as many translations are complete as there are beams (`early_stopping`), because CTranslate2's
    search ends then, too.

    Args:
        batch: the number of texts in a batch.
        texts: a file of texts.
        new_tokens: the largest number of tokens of a translation.
        sources: the number of texts.
    """

    needs: ClassVar[tuple[str, ...]] = ("model", "texts")
    may_end: ClassVar[bool] = True

    texts: str = ""
    new_tokens: int = 100
    sources: int = 32

    @property
    def name(self) -> str:
        return self.what

    @cached_property
    def task(self) -> TextTask:
        task = TextTask(*load_generator(self.model, "texts"))
        task.model.float().eval()
        return task

    @cached_property
    def lines(self) -> list[str]:
        """The first lines that are not empty."""
        with open(self.texts, "rb") as file:
            lines = text_of(file, self.texts)
            texts = list(itertools.islice(filter(None, map(str.strip, lines)), self.sources))
        if not texts:
            raise ValueError(f"{self.texts} has no texts.")
        return texts

    @property
    def units(self) -> int:
        return len(self.lines)

    def per_unit(self, seconds: float) -> str:
        return f"{seconds / self.units * 1e3:.1f} ms a source"

    def batches(self) -> list[Any]:
        starts = range(0, len(self.lines), self.batch)
        return [self.task.tokenizer(self.lines[n : n + self.batch], padding=True, return_tensors="pt") for n in starts]

    def models(self) -> tuple[str, Any, Any, Any]:
        title, peer = "", None
        try:
            title, peer = peer_of(self.task.model)
        except ValueError as error:
            print(f"{self.name}: transformers is left out. {error}")
        return title, peer, self.task.model, self.task.tokenizer
