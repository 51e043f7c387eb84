"""Benchmark cases with a trained text model: translation of the user's texts.

Random weights predict nothing, so only these cases have searches that end. The first contender is a model of
transformers with the same weights, if one of transformers' BART family has the model's architecture.
"""

import copy
import gzip
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
import transformers
from torch import nn
from transformers import BatchEncoding, PreTrainedModel

import weftformer
from weftformer.benchmarks.peers import Contender, Tokens
from weftformer.benchmarks.planning import FileCase
from weftformer.conversion import SOURCES, export
from weftformer.conversion.transformers_bart import SAME_NAME
from weftformer.exporting.ctranslate2 import check_expressible, load_translator, vocabularies
from weftformer.serving import TextTask, load_task

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
        if (own := getattr(model.model, stack).embed_positions) is not None:
            rows = getattr(config, f"max_{'source' if stack == 'encoder' else 'target'}_positions")
            offset = getattr(positions, "offset", 0)  # rows before the first position, in BART and mBART
            table[offset : offset + rows] = own(torch.arange(rows)[None])[0].detach()
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
class TranslationCase(FileCase):
    """Translation of the first lines of a file of texts, in their order.

    A search ends when as many translations are complete as there are beams (`early_stopping`), because CTranslate2's
    search ends then, too.

    Args:
        beams: the number of beams.
        batch: the number of texts in a batch.
        sources: the number of texts.
        new_tokens: the largest number of tokens of a translation.
    """

    needs: ClassVar[tuple[str, ...]] = ("model", "texts")

    beams: int = 1
    batch: int = 1
    sources: int = 32
    new_tokens: int = 100

    @cached_property
    def task(self) -> TextTask:
        if self.model is None:
            raise ValueError("The cases of translation need --model, a trained text model.")
        task = load_task(self.model)
        if not isinstance(task, TextTask):
            raise ValueError(f"{self.model} writes routes: the cases of translation need a text model.")
        task.model.float().eval()
        return task

    @cached_property
    def lines(self) -> list[str]:
        """The first lines that are not empty."""
        if self.texts is None:
            raise ValueError("The cases of translation need --texts, a file of texts.")
        file = str(self.texts)
        with (
            gzip.open(file, "rt", encoding="utf-8") if file.endswith(".gz") else open(file, encoding="utf-8") as lines
        ):
            texts = list(itertools.islice(filter(None, map(str.strip, lines)), self.sources))
        if not texts:
            raise ValueError(f"{file} has no texts.")
        return texts

    @property
    def units(self) -> int:
        return len(self.lines)

    def per_unit(self, seconds: float) -> str:
        return f"{seconds / self.units * 1e3:.1f} ms a source"

    def settings(self) -> dict[str, Any]:
        return {
            "max_new_tokens": self.new_tokens, "num_beams": self.beams, "max_length": None, "do_sample": False,
            "length_penalty": 1.0 if self.beams > 1 else None, "early_stopping": self.beams > 1,
        }  # fmt: skip

    def contenders(self, compiled: bool) -> Iterator[Contender]:
        model, batches = self.task.model, self.batches()
        yield from self._peers(model, batches)
        yield Contender("Weft, plain path", self.generating(model, batches, cache_implementation="dynamic"))
        yield Contender("Weft", self.generating(model, batches))
        if compiled:
            own = weftformer.fast_decoding(copy.deepcopy(model))
            yield Contender("Weft, compiled", self.generating(own, batches))
        yield from self._ctranslate2(batches)

    def batches(self) -> list[BatchEncoding]:
        """Return the tokens of all lines in batches, the same on every call."""
        starts = range(0, len(self.lines), self.batch)
        return [self.task.tokenizer(self.lines[n : n + self.batch], padding=True, return_tensors="pt") for n in starts]

    def generating(self, model: Any, batches: list[BatchEncoding], **extra: Any) -> Callable[[], Tokens]:
        """Return a function that writes the translations of the batches with a model."""
        settings = self.settings() | extra
        return lambda: [row for batch in batches for row in self.written(model.generate(**batch, **settings))]

    def written(self, ids: torch.Tensor) -> Tokens:
        """Return the output of a search, (B, T), without the start token, the end token and later tokens."""
        ids = ids[:, 1:]
        ends = torch.as_tensor(self.task.model.generation_config.eos_token_id)
        has_ended = torch.isin(ids, ends).cumsum(dim=1) > 0
        return [row[~ended].tolist() for row, ended in zip(ids, has_ended, strict=True)]

    def _peers(self, model: Any, batches: list[BatchEncoding]) -> Iterator[Contender]:
        """Yield the model of transformers with the same weights, if there is one."""
        try:
            title, peer = peer_of(model)
        except ValueError as error:
            print(f"{self.name}: transformers is left out. {error}")
            return
        yield Contender(f"{title} (transformers)", self.generating(peer, batches))

    def _ctranslate2(self, batches: list[BatchEncoding]) -> Iterator[Contender]:
        if find_spec("ctranslate2") is None:
            print(f"{self.name}: CTranslate2 is left out: pip install weftformer[export].")
            return
        try:
            check_expressible(self.task.model.config)
        except ValueError as error:
            print(f"{self.name}: CTranslate2 is left out. {error}")
            return
        # apart, and made when the others are done, because its idle threads keep a core busy
        translate = cache(lambda: self._translating(batches))
        yield Contender("CTranslate2", lambda: translate()(), is_apart=True)

    def _translating(self, batches: list[BatchEncoding]) -> Callable[[], Tokens]:
        model, tokenizer = self.task.model, self.task.tokenizer
        translator = load_translator(model, tokenizer)
        source, target = vocabularies(model.config, tokenizer)
        ids = {word: index for index, word in enumerate(target)}
        words = [
            [[source[index] for index in row[mask.bool()].tolist()] for row, mask in zip(*pair, strict=True)]
            for pair in ((batch["input_ids"], batch["attention_mask"]) for batch in batches)
        ]

        def run() -> Tokens:
            results = itertools.chain.from_iterable(
                translator.translate_batch(
                    rows,
                    beam_size=self.beams,
                    max_decoding_length=self.new_tokens,
                    min_decoding_length=0,
                    length_penalty=1,
                )
                for rows in words
            )
            return [[ids[word] for word in result.hypotheses[0]] for result in results]

        return run
