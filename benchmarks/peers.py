"""The contenders of `python -m weftformer.benchmarks`: functions that run Weft and its peers with the same weights."""

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from transformers import BartConfig, BartForConditionalGeneration

import weftformer
from weftformer.conversion import SOURCES, convert
from weftformer.exporting.ctranslate2 import load_translator
from weftformer.tokenization import build_route_tokenizer

PAD, START, END = 52, 0, 22
Tokens = list[list[int]]


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


@dataclass(frozen=True)
class Case:
    """The inputs and settings of generation.

    Sources have `source` tokens, of which `real` are non-pad tokens. The pads are in the middle. The first `prefix`
    tokens of the target are given.
    """

    what: str
    beams: int = 1
    batch: int = 1
    new_tokens: int = 500
    source: int = 280
    real: int = 60
    prefix: int = 60

    @property
    def name(self) -> str:
        return f"{self.what}, {self.new_tokens} new tokens"

    @property
    def units(self) -> int:
        """The number of new tokens of a source, by which the time of a run is divided."""
        return self.new_tokens

    def per_unit(self, seconds: float) -> str:
        return f"{seconds / self.units * 1e3:.2f} ms a token"

    def contenders(self, compiled: bool) -> Iterator[Contender]:
        """Yield BART, Weft with BART's weights on the plain path, on the fast path and compiled, and CTranslate2."""
        peer = bart()
        model = as_weft(peer)
        yield Contender("BART (transformers)", generating(peer, self))
        yield Contender("Weft, plain path", generating(model, self, cache_implementation="dynamic"))
        yield Contender("Weft", generating(model, self))
        if compiled:
            yield Contender("Weft, compiled", generating(weftformer.fast_decoding(as_weft(peer)), self))
        if find_spec("ctranslate2") is not None:
            # apart, because its idle threads keep a core busy, and the other contenders would take twice the time
            translate = cache(lambda: _ctranslate2(model, self))
            yield Contender("CTranslate2", lambda: translate()(), is_apart=True)

    def inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return source ids and prefix ids, drawn with a fixed seed."""
        generator = torch.Generator().manual_seed(1)
        source = torch.randint(1, END, (self.batch, self.source), generator=generator)
        half = self.real // 2
        source[:, half : self.source // 2] = source[:, self.source // 2 + self.real - half :] = PAD
        prefix = torch.randint(1, END, (self.batch, self.prefix), generator=generator)
        prefix[:, 0] = START
        return source, prefix

    def settings(self) -> dict[str, Any]:
        return {
            "max_new_tokens": self.new_tokens, "min_new_tokens": self.new_tokens, "num_beams": self.beams,
            "max_length": None, "do_sample": False, "length_penalty": 0.0 if self.beams > 1 else None,
        }  # fmt: skip


def _lively(model: torch.nn.Module) -> None:
    """Set random weights with which the scores of tokens differ by more than rounding, to make outputs comparable."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and "embed" not in name:
                parameter.normal_(std=1.5 * parameter.shape[-1] ** -0.5)


def bart() -> BartForConditionalGeneration:
    """Build BART with the dimensions of `dms-flash-10m`."""
    torch.manual_seed(0)
    sizes = {
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in (("layers", 6), ("attention_heads", 8), ("ffn_dim", 768))
    }
    config = BartConfig(
        vocab_size=53, d_model=256, max_position_embeddings=1200, pad_token_id=PAD, bos_token_id=START,
        eos_token_id=END, decoder_start_token_id=START, forced_eos_token_id=None, init_std=0.1, **sizes,
    )  # fmt: skip
    model = BartForConditionalGeneration(config).eval()
    _lively(model)
    return model


def as_weft(model: Any) -> Any:
    """Return a Weft model with the weights of a BART."""
    return convert(model.state_dict(), SOURCES["bart"], source_config=model.config.to_dict()).build()


def generating(model: Any, case: Case, **extra) -> Callable[[], Tokens]:
    source, prefix = case.inputs()

    def run() -> Tokens:
        output = model.generate(
            source, attention_mask=(source != PAD).long(), decoder_input_ids=prefix, **(case.settings() | extra)
        )
        return output[:, case.prefix :].tolist()

    return run


@dataclass(frozen=True)
class SparseCase(Case):
    """A sparse model and two dense ones, as wide as one expert and as wide as all experts that a token uses."""

    def contenders(self, compiled: bool) -> Iterator[Contender]:
        for name, preset, overrides in (
            ("dense, as wide as the experts a token uses", "dms-flash-10m", {"encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536}),
            ("dense, as wide as one expert", "dms-flash-10m", {}),
            ("sparse, 2 of 3 experts", "dms-flex-20m", {}),
        ):  # fmt: skip
            torch.manual_seed(0)
            model = weftformer.WeftForConditionalGeneration(
                weftformer.WeftConfig.from_preset(preset, **overrides)
            ).eval()
            run = generating(model, self, condition_values=torch.full((self.batch, 1), 3.0))
            yield Contender(name, run, check=lambda: None)


def _ctranslate2(model: Any, case: Case) -> Callable[[], Tokens]:
    tokenizer = build_route_tokenizer()
    translator = load_translator(model, tokenizer)
    source, prefix = case.inputs()
    # without the pads, because CTranslate2 does not support pads within a source
    words = [tokenizer.convert_ids_to_tokens([t for t in row if t != PAD]) for row in source.tolist()]
    starts = [tokenizer.convert_ids_to_tokens(row[1:]) for row in prefix.tolist()]

    def run() -> Tokens:
        # Lengths include the prefix. Without the pads, source tokens have other positions, so CTranslate2 does the
        # same work but generates other tokens.
        length = case.prefix - 1 + case.new_tokens
        results = translator.translate_batch(
            words, target_prefix=starts, beam_size=case.beams, max_decoding_length=length,
            min_decoding_length=length, length_penalty=0,
        )  # fmt: skip
        return [tokenizer.convert_tokens_to_ids(result.hypotheses[0][case.prefix - 1 :]) for result in results]

    return run


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the output and the log messages of DirectMultiStep."""
    logging.getLogger("directmultistep").setLevel(logging.WARNING)
    with redirect_stdout(io.StringIO()):
        yield


def directmultistep(preset: str) -> Any:
    from directmultistep.model import ModelFactory

    torch.manual_seed(0)
    with quiet():
        return ModelFactory.from_preset(preset, device="cpu", compile_model=False).create_model().eval()
