"""Benchmark cases with a trained text model: translation of the user's texts.

Random weights predict nothing, so only these cases have searches that end. The first contender is transformers'
Pegasus with the same weights, if it has the model's architecture.
"""

import copy
import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import nn
from transformers import PegasusConfig, PegasusForConditionalGeneration

import weftformer
from weftformer.benchmarks.peers import Case, FileCase
from weftformer.common.tables import text_of
from weftformer.conversion import SOURCES, export
from weftformer.conversion.source import NO_ATTENTION_POSITIONS
from weftformer.conversion.transformers_bart import SAME_NAME
from weftformer.hub.loading import load_generator
from weftformer.inference import TextTask

# The positions do not matter, because their tables are copied.
_FIELDS = {"norm_type": "layernorm", "norm_first": True, "is_gated_act": False, "normalize_embedding": False}
_PEGASUS = replace(SOURCES["bart"], computes=lambda source_config: [NO_ATTENTION_POSITIONS | _FIELDS])


def pegasus_of(model: weftformer.WeftForConditionalGeneration) -> PegasusForConditionalGeneration:
    """Build transformers' Pegasus with the weights, the dtype and the settings of `generate` of a Weft model.

    Raises:
        ValueError: Pegasus does not have the architecture of the model.
    """
    config = model.config
    fields = {name: value for name in SAME_NAME if (value := getattr(config, name)) is not None}
    peer_config = PegasusConfig(
        **fields,
        tie_word_embeddings=config.tie_word_embeddings,
        max_position_embeddings=max(config.max_source_positions, config.max_target_positions),
        forced_eos_token_id=None,
    )
    weights = export(model, _PEGASUS, peer_config.to_dict())
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        table = torch.zeros(peer_config.max_position_embeddings, config.d_model)
        if (module := getattr(model.model, stack).embed_positions) is not None:
            rows = getattr(config, f"max_{side}_positions")
            table[:rows] = module(torch.arange(rows)[None])[0].detach()
        weights[f"model.{stack}.embed_positions.weight"] = table
    weights.setdefault("final_logits_bias", torch.zeros(1, config.vocab_size))
    peer = PegasusForConditionalGeneration(peer_config).to(model.dtype).eval()
    peer.load_state_dict(weights)
    for module in peer.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = config.norm_eps
    peer.generation_config = copy.deepcopy(model.generation_config)
    return peer


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
        peer = None
        try:
            peer = pegasus_of(self.task.model)
        except ValueError as error:
            print(f"{self.name}: transformers is left out. {error}")
        return "Pegasus", peer, self.task.model, self.task.tokenizer
