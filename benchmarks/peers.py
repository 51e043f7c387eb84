"""The contenders of `python -m weftformer.benchmarks`: functions that run Weft and its peers with the same weights."""

import io
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import torch
from transformers import BartConfig, BartForConditionalGeneration

import weftformer
from weftformer.conversion import SOURCES, convert
from weftformer.exporting.ctranslate2 import check_expressible, load_translator, vocabularies
from weftformer.modeling.decoding.compiled import compiled_folder
from weftformer.modeling.decoding.continuous import continuous_settings
from weftformer.modeling.decoding.graph import GraphSearch, kind_of
from weftformer.tokenization import build_route_tokenizer

PAD, START, END = 52, 0, 22
Tokens = list[list[int]]
# The dimensions of `dms-flash-10m` and of an expert of `dms-flex-20m`, under transformers' names.
DIMENSIONS = {
    "vocab_size": 53, "d_model": 256, "max_position_embeddings": 1200, "encoder_layers": 6, "decoder_layers": 6,
    "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 768, "decoder_ffn_dim": 768,
    "pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END, "decoder_start_token_id": START,
}  # fmt: skip


@dataclass(frozen=True)
class Contender:
    """One side of a comparison.

    Args:
        name: its name in the table.
        run: the function to measure. It returns the output to compare, unless there is a `check`.
        check: a function that returns the output to compare. It is called once, before the first run.
        is_apart: whether to measure it after all others, and not in turn with them.
        is_slow: whether a run takes minutes. It then has no warm-up and a single run.
    """

    name: str
    run: Callable[[], Any]
    check: Callable[[], Any] | None = None
    is_apart: bool = False
    is_slow: bool = False


@dataclass(frozen=True, kw_only=True)
class FileCase:
    """A case that needs files of the user.

    Args:
        model: the folder of a trained model. A model with random weights generates no routes and no translations.
    """

    # the fields that the case needs, which are also names of arguments of the command
    needs: ClassVar[tuple[str, ...]]

    model: str = ""


@dataclass(frozen=True)
class Case:
    """The inputs and settings of generation. Here, random weights write texts of a fixed length.

    Sources have `source` tokens, of which `real` are non-pad tokens. The pads are in the middle.
    """

    # whether a text may end before it has `new_tokens`
    may_end: ClassVar[bool] = False

    what: str
    beams: int = 1
    batch: int = 1
    new_tokens: int = 500
    source: int = 280
    real: int = 60

    @property
    def name(self) -> str:
        return f"{self.what}, {self.new_tokens} new tokens"

    @property
    def units(self) -> int:
        """The number of new tokens of a source, by which the time of a run is divided."""
        return self.new_tokens

    def per_unit(self, seconds: float) -> str:
        return f"{seconds / self.units * 1e3:.2f} ms a token"

    def models(self) -> tuple[str, Any, Any, Any]:
        """Return the name of a peer, the peer or None, Weft with the same weights, and their tokenizer."""
        peer = bart()
        return "BART", peer, as_weft(peer), build_route_tokenizer()

    def batches(self) -> list[Any]:
        """Return the inputs of `generate`, drawn with a fixed seed."""
        generator = torch.Generator().manual_seed(1)
        source = torch.randint(1, END, (self.batch, self.source), generator=generator)
        half = self.real // 2
        source[:, half : self.source // 2] = source[:, self.source // 2 + self.real - half :] = PAD
        return [{"input_ids": source, "attention_mask": (source != PAD).long()}]

    def contenders(self, compiled: bool) -> Iterator[Contender]:
        """Yield the peer, Weft on the plain path, on the fast path and with a compiled search, and CTranslate2."""
        title, peer, model, tokenizer = self.models()
        batches = self.batches()
        if peer is not None:
            yield Contender(f"{title} (transformers)", self.generating(peer, batches))
        yield Contender("Weft, plain path", self.generating(model, batches, cache_implementation="dynamic"))
        yield Contender("Weft", self.generating(model, batches))
        if compiled:
            kind = kind_of(continuous_settings(model, self.settings()))
            GraphSearch(model).packages(kind, self.batch == 1, compiles=True)
            yield Contender("Weft, compiled", self.generating(model, batches, folder=compiled_folder()))
        if find_spec("ctranslate2") is None:
            print(f'{self.name}: CTranslate2 is left out; in a clone: pip install -e ".[export]"')
            return
        try:
            check_expressible(model.config)
        except ValueError as error:
            print(f"{self.name}: CTranslate2 is left out. {error}")
            return
        # apart, and made when the others are done, because its idle threads keep a core busy
        translate = cache(lambda: self.translating(model, tokenizer, batches))
        yield Contender("CTranslate2", lambda: translate()(), is_apart=True)

    def settings(self) -> dict[str, Any]:
        """Return the settings of `generate`."""
        return {
            "max_new_tokens": self.new_tokens, "num_beams": self.beams, "max_length": None, "do_sample": False,
            "length_penalty": float(self.may_end) if self.beams > 1 else None,
            "early_stopping": self.may_end and self.beams > 1,
        }  # fmt: skip

    def generating(
        self, model: Any, batches: list[Any], folder: str | Path = os.devnull, **extra: Any
    ) -> Callable[[], Tokens]:
        """Return a function that generates with a model. Texts have no start token, and nothing after their end.

        Args:
            model, batches: the model and the inputs of `generate`.
            folder: the folder of compiled searches. By default there is none.
            extra: more settings of `generate`.
        """
        settings = self.settings() | extra
        ends = torch.as_tensor(model.generation_config.eos_token_id)

        def run() -> Tokens:
            texts: Tokens = []
            for batch in batches:
                with patch.dict(os.environ, {"WEFT_COMPILED_FOLDER": str(folder)}):
                    ids = model.generate(**batch, **settings)[:, 1:]
                has_ended = torch.isin(ids, ends).cumsum(dim=1) > 0
                texts += [row[~ended].tolist() for row, ended in zip(ids, has_ended, strict=True)]
            return texts

        return run

    def translating(self, model: Any, tokenizer: Any, batches: list[Any]) -> Callable[[], Tokens]:
        """Return a function that generates with CTranslate2, whose sources have no pads.

        Without pads in the middle, source tokens have other positions, so it does the same work but writes other
        tokens.
        """
        translator = load_translator(model, tokenizer)
        source, target = vocabularies(model.config, tokenizer)
        ids = {word: index for index, word in enumerate(target)}
        works = []
        for batch in batches:
            rows = zip(batch["input_ids"], batch["attention_mask"], strict=True)
            works.append([[source[index] for index in row[mask.bool()].tolist()] for row, mask in rows])

        def run() -> Tokens:
            texts: Tokens = []
            for words in works:
                results = translator.translate_batch(
                    words, beam_size=self.beams, max_decoding_length=self.new_tokens,
                    min_decoding_length=0 if self.may_end else self.new_tokens, length_penalty=float(self.may_end),
                )  # fmt: skip
                texts += [[ids[word] for word in result.hypotheses[0]] for result in results]
            return texts

        return run


def _lively(model: torch.nn.Module) -> None:
    """Set random weights with which the scores of tokens differ by more than rounding, to make outputs comparable."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and "embed" not in name:
                parameter.normal_(std=1.5 * parameter.shape[-1] ** -0.5)


def bart() -> BartForConditionalGeneration:
    """Build BART with the dimensions of `dms-flash-10m`, whose texts never end."""
    torch.manual_seed(0)
    model = BartForConditionalGeneration(BartConfig(**DIMENSIONS, forced_eos_token_id=None, init_std=0.1)).eval()
    _lively(model)
    model.final_logits_bias[:, END] = -1e4
    return model


def as_weft(model: Any) -> Any:
    """Return a Weft model with the weights of a BART."""
    return convert(model.state_dict(), SOURCES["bart"], source_config=model.config.to_dict()).build()


@dataclass(frozen=True)
class SparseCase(Case):
    """A sparse model and two dense ones, as wide as one expert and as wide as all experts that a token uses."""

    def contenders(self, compiled: bool) -> Iterator[Contender]:
        wide = {"encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536}
        for name, preset, overrides in (
            ("dense, as wide as the experts a token uses", "dms-flash-10m", wide),
            ("dense, as wide as one expert", "dms-flash-10m", {}),
            ("sparse, 2 of 3 experts", "dms-flex-20m", {}),
        ):  # fmt: skip
            torch.manual_seed(0)
            model = weftformer.WeftForConditionalGeneration(
                weftformer.WeftConfig.from_preset(preset, **overrides)
            ).eval()
            conditions = torch.full((self.batch, 1), 3.0)
            run = self.generating(model, self.batches(), condition_values=conditions, min_new_tokens=self.new_tokens)
            yield Contender(name, run, check=lambda: None)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the output and the log messages of DirectMultiStep."""
    logging.getLogger("directmultistep").setLevel(logging.WARNING)
    with redirect_stdout(io.StringIO()):
        yield


def directmultistep(preset: str, num_experts: int | None = None) -> Any:
    from directmultistep.model import ModelFactory

    torch.manual_seed(0)
    with quiet():
        factory = ModelFactory.from_preset(preset, device="cpu", compile_model=False)
        if num_experts is not None:
            factory.config.encoder.n_experts = factory.config.decoder.n_experts = num_experts
        return factory.create_model().eval()
