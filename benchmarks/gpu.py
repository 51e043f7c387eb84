"""Check Weft on one GPU, and measure it there.

    python -m weftformer.benchmarks.gpu                                        # all checks, in some minutes
    python -m weftformer.benchmarks.gpu decoding_beside training_beside:eager      # a check, and cases of another

Each case prints a line: PASS, FAIL or SKIP (it cannot run on this machine), and its figures. The exit code is 1 if one
failed. Times are medians after warm-ups, with the device synchronized, and include the whole call. With
`--device cpu`, the default without a GPU, all models are tiny and no time decides. Only torch, transformers and their
dependencies are needed. What the tests check on a CPU is not repeated here.
"""

import argparse
import copy
import gc
import operator
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForSeq2SeqLM

import weftformer
from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.common.atomic import write_json
from weftformer.conversion import convert, detect
from weftformer.modeling.decoding.continuous import continuous_settings
from weftformer.modeling.decoding.dispatch import compiled_texts
from weftformer.modeling.decoding.graph import GraphSearch, kind_of
from weftformer.scripts.cli import Parser, run_script

Figures = dict[str, Any]
Result = tuple[bool, Figures]  # whether a case passed, and its figures
Batch = dict[str, torch.Tensor]

KINDS: dict[str, Figures] = {
    "dense": {"use_qk_norm": True},
    "copying": {"cross_attention_position_type": "rotary"},
    "relative": {"self_attention_position_type": "relative", "cross_attention_position_type": "bucketed"},
    "sparse": {"num_experts": 8, "encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse"},
}


@dataclass(frozen=True)
class Size:
    """The size of a model and of its batches. `tiny` models are compared with a CPU, and `large` ones fill a GPU."""

    layers: int
    width: int
    vocabulary: int
    batch: int
    source: int
    target: int

    def fields(self, ffn: int = 4) -> Figures:
        """Return the fields of a configuration with two stacks, whose feed-forwards are `ffn` times as wide."""
        heads = max(2, self.width // 64)
        stack = {"layers": self.layers, "attention_heads": heads, "ffn_dim": ffn * self.width}
        fields = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in stack.items()}
        return fields | {"vocab_size": self.vocabulary, "d_model": self.width, "dropout": 0.0}


SIZES = {
    "tiny": Size(2, 128, 512, 4, 24, 16),
    "small": Size(6, 512, 8192, 64, 128, 128),
    "large": Size(4, 1024, 32768, 64, 256, 256),
}
_ON_A_CPU = Size(1, 32, 64, 3, 12, 8)
# The models of transformers beside which Weft is measured.
PEERS = {"BART": "bart", "Marian": "marian", "T5": "t5", "NLLB-MoE": "nllb-moe"}


class Skipped(Exception):
    """A case cannot run on this machine. The message is the reason."""


@dataclass(frozen=True)
class Bench:
    """Models and batches on a device ("cuda" or "cpu")."""

    device: str

    @property
    def is_gpu(self) -> bool:
        return self.device != "cpu"

    def size(self, name: str) -> Size:
        return SIZES[name] if self.is_gpu else _ON_A_CPU

    def model(self, kind: str, size: Size, dtype: torch.dtype = torch.float32, **fields: Any) -> Any:
        """Build a model in evaluation mode, always with the same weights."""
        torch.manual_seed(0)
        # a token uses two experts, which together are as wide as a dense layer
        config = WeftConfig(**size.fields(2 if kind == "sparse" else 4), **fields, **KINDS[kind])
        with torch.device(self.device):
            return WeftForConditionalGeneration(config).eval().to(dtype)

    def pair(self, name: str, size: Size, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
        """Build a peer with random weights and Weft with the same weights, both on the CPU."""
        torch.manual_seed(0)
        fields = size.fields(2 if name == "NLLB-MoE" else 4)
        fields |= {"attention_dropout": 0.0, "dropout_rate": 0.0}
        fields |= {"max_position_embeddings": 512, "forced_eos_token_id": None}
        fields |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
        if name == "T5":  # which has names of its own
            heads, ffn = fields["encoder_attention_heads"], fields["encoder_ffn_dim"]
            fields |= {"num_layers": size.layers, "num_heads": heads, "d_ff": ffn, "d_kv": size.width // heads}
        if name == "NLLB-MoE":  # whose positions count from the pad's id
            fields |= {"pad_token_id": 1, "bos_token_id": 0}
            fields |= {"num_experts": 8, "encoder_sparse_step": 1, "decoder_sparse_step": 1}
        config = AutoConfig.for_model(PEERS[name], **fields)
        peer = AutoModelForSeq2SeqLM.from_config(config)
        weights, source_config = peer.state_dict(), config.to_dict()
        model = convert(weights, detect(weights, source_config), source_config=source_config).build()
        return {name: peer.eval().to(dtype), "Weft": model.eval().to(dtype)}

    def batch(self, size: Size) -> Batch:
        """Build a batch of padded rows, whose lengths decrease to half of the longest."""
        draw = torch.Generator().manual_seed(0)
        shapes = (size.batch, size.source), (size.batch, size.target)
        ids, labels = (torch.randint(3, size.vocabulary, shape, generator=draw) for shape in shapes)
        for tensor, pad in ((ids, 0), (labels, -100)):
            lengths = torch.linspace(tensor.shape[1], tensor.shape[1] / 2, size.batch).long()
            tensor.masked_fill_(torch.arange(tensor.shape[1]) >= lengths[:, None], pad)
        batch = {"input_ids": ids, "attention_mask": ids.ne(0).long(), "labels": labels}
        return {name: tensor.to(self.device) for name, tensor in batch.items()}

    def step(self, model: Any, autocast: bool = False) -> Callable[..., None]:
        """Return a function that trains on a batch by AdamW."""
        optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3, fused=True)

        def run(batch: Batch, **extra: Any) -> None:
            with torch.autocast(self.device, torch.bfloat16, enabled=autocast):
                loss = model(**batch, **extra).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return run

    def generate(self, model: Any, batch: Batch, path: str, tokens: int = 8, **settings: Any) -> torch.Tensor:
        """Generate by transformers' loop with a growing cache ("plain") or a static one, by the fast path, or by a
        compiled search if there is one and texts may end.
        """
        settings = {"min_new_tokens": tokens, "max_new_tokens": tokens, "do_sample": False} | settings
        if path not in ("fast", "compiled"):  # a request that names a cache never takes the fast path
            settings["cache_implementation"] = "dynamic" if path == "plain" else path
        elif self.is_gpu:  # a CPU takes the fast path by itself
            weftformer.fast_decoding(model)
        source = {name: batch[name] for name in ("input_ids", "attention_mask")}
        return model.generate(**source, **settings)

    def ms(self, call: Callable[[], Any], runs: int = 1, warm_ups: int = 0) -> float:
        """Return the median milliseconds of some calls after warm-ups, or those of a single call on a CPU."""
        runs, warm_ups = (runs, warm_ups) if self.is_gpu else (1, 0)
        times = []
        for _ in range(warm_ups + runs):
            torch.get_device_module(self.device).synchronize()
            start = time.perf_counter()
            call()
            torch.get_device_module(self.device).synchronize()
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times[warm_ups:])


CHECKS: dict[str, tuple[Callable[[Bench, str], Result], list[str]]] = {}


def check(*parts: Iterable[str]) -> Callable:
    """Enter a check, a function of the bench and a case. Its cases are all combinations of the parts."""

    def enter(function: Callable[[Bench, str], Result]) -> Callable[[Bench, str], Result]:
        CHECKS[function.__name__] = function, [" ".join(words) for words in product(*parts)]
        return function

    return enter


def difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return ((actual.to(expected) - expected).abs().max() / expected.abs().max()).item()


@check(KINDS, ("greedy", "beams"), ("plain", "fast"))
def tokens_as_on_a_cpu(bench: Bench, case: str) -> Result:
    """The expected tokens are those of the plain path on the CPU, after prefixes of two lengths."""
    kind, search, path = case.split()
    size, cpu = bench.size("tiny"), Bench("cpu")
    model = cpu.model(kind, size, init_std=0.1)  # untrained, but with distinct scores
    prefix = torch.tensor([[1, 5, 6]] + [[0, 0, 1]] * (size.batch - 1))

    def tokens(bench: Bench, path: str) -> torch.Tensor:
        ids = prefix.to(bench.device)
        settings: Figures = {"decoder_input_ids": ids, "decoder_attention_mask": ids.ne(0).long()}
        settings["num_beams"] = 1 if search == "greedy" else 4
        return bench.generate(copy.deepcopy(model).to(bench.device), bench.batch(size), path, **settings).cpu()

    same = (tokens(bench, path) == tokens(cpu, "plain")).all(dim=1)
    return bool(same.all()), {"same outputs": same.float().mean().item()}


@check(("eager", "compiled"), ("small", "large"), PEERS)
def training_beside(bench: Bench, case: str) -> Result:
    """A training step in bf16 on padded rows, beside a model of transformers with the same weights, by fused AdamW.

    Weft's loss in chunks must not take a fifth longer where the models are large.
    """
    mode, name, peer = case.split()
    if mode == "compiled" and peer == "NLLB-MoE":
        raise Skipped("experts are compared without a compiler")
    size = bench.size(name)
    batch, logits, figures = bench.batch(size), [], Figures()
    for side, model in bench.pair(peer, size).items():
        model.to(bench.device)
        with torch.no_grad():
            logits.append(model(**{key: value[-2:] for key, value in batch.items()}).logits.cpu())
        step = bench.step(model, autocast=True)
        if mode == "compiled" and bench.is_gpu:
            step = bench.step(torch.compile(model), autocast=True)
        ms = bench.ms(partial(step, batch), runs=7, warm_ups=3)
        figures |= {f"{side} ms": ms, f"{side} target tokens/s": size.batch * size.target / ms * 1e3}
        if bench.is_gpu:
            torch.cuda.reset_peak_memory_stats()
            step(batch)
            figures[f"{side} GB"] = torch.cuda.max_memory_allocated() / 1e9
        if side == "Weft" and mode == "eager":
            figures["Weft chunked loss ms"] = bench.ms(partial(step, batch, chunked_loss=True), runs=7, warm_ups=3)
        model.to("cpu")
        del step
    # NLLB-MoE of transformers sends all tokens to the first two experts
    is_same = peer == "NLLB-MoE" or difference(*logits) < 1e-3
    is_costly = bench.is_gpu and name == "large" and figures.get("Weft chunked loss ms", 0) > 1.2 * figures["Weft ms"]
    return is_same and not is_costly, figures | {"times as fast": figures[f"{peer} ms"] / figures["Weft ms"]}


@check(("BART", "Marian", "T5"), ("one", "greedy", "beams"))
def decoding_beside(bench: Bench, case: str) -> Result:
    """Decode in bf16 beside a model of transformers: one source greedily, and 16 greedily or with five beams.

    Weft has the peer's weights. Its paths are transformers' loop, that with a static cache, and its own loop.
    """
    peer, search = case.split()
    size, tokens = replace(bench.size("small"), batch=1 if search == "one" else 16), 32 if bench.is_gpu else 4
    figures, beams = {}, 5 if search == "beams" else 1
    for side, model in bench.pair(peer, size, torch.bfloat16).items():
        # transformers compiles the static cache for greedy search alone
        static = ["static"] if bench.is_gpu and search != "beams" else []
        for path in ("plain",) if side == peer else ("plain", *static, "fast"):
            decode = partial(bench.generate, model.to(bench.device), bench.batch(size), path, tokens, num_beams=beams)
            figures[f"{side} {path} ms a token"] = bench.ms(decode, runs=3, warm_ups=1) / tokens
    fastest = min(ms for name, ms in figures.items() if name.startswith("Weft"))
    return True, figures | {"times as fast": figures[f"{peer} plain ms a token"] / fastest}


@check(("16", "one"), ("float32", "bfloat16"), ("greedy", "beams"))  # each compiles for minutes: the goals first
def compiled_search(bench: Bench, case: str) -> Result:
    """The compiled search beside the loops that need no compiler: 16 sources or one, greedily or with five beams.

    In float32, nine of ten outputs must be those of the plain path: in sums of another order, two tokens may change
    places.
    """
    texts, dtype, search = case.split()
    if not bench.is_gpu and case != "16 float32 greedy":
        raise Skipped("one case compiles on a CPU")
    size, tokens = replace(bench.size("small"), batch=16 if texts == "16" else 1), 32 if bench.is_gpu else 4
    model, batch = bench.pair("Marian", size, getattr(torch, dtype))["Weft"], bench.batch(size)
    with torch.no_grad():  # scores that differ by more than rounding
        for parameter in model.parameters():
            parameter.mul_(3.0 if parameter.ndim > 1 else 1.0)
    beams, figures = 5 if search == "beams" else 1, Figures()
    model.to(bench.device)
    start = time.perf_counter()
    kind = kind_of(continuous_settings(model, {"num_beams": beams}))
    GraphSearch(model).packages(kind, size.batch == 1, compiles=True)
    figures["compiling s"] = time.perf_counter() - start
    outputs = {}
    for path in ("plain", "fast", "compiled"):
        # a search with a minimum length is never a compiled one
        least = tokens if path == "fast" else None
        decode = partial(bench.generate, model, batch, path, tokens, num_beams=beams, min_new_tokens=least)
        outputs[path] = decode()
        figures[f"{path} ms a token"] = bench.ms(decode, runs=5, warm_ups=2) / tokens
    settings = {"attention_mask": batch["attention_mask"], "max_new_tokens": tokens, "num_beams": beams}
    with torch.no_grad():
        is_used = compiled_texts(model, batch["input_ids"], None, (), settings) is not None
    plain, compiled = (outputs[path].tolist() for path in ("plain", "compiled"))
    figures["same outputs"] = sum(map(operator.eq, plain, compiled)) / len(plain)
    return is_used and (dtype == "bfloat16" or figures["same outputs"] >= 0.9), figures


ATTENTIONS = [f"attn {name}" for name in ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_4")]
EXPERTS = [f"experts {name}" for name in ("eager", "grouped_mm")]


@check([*ATTENTIONS, *EXPERTS])
def implementations(bench: Bench, case: str) -> Result:
    """A training step in bf16 with each implementation of attention or experts, and the largest difference of a logit
    from those in fp32.
    """
    part, name = case.split()
    if name == "flex_attention" and not bench.is_gpu:
        raise Skipped("no gradients on a CPU")
    size = bench.size("large") if part == "attn" else replace(bench.size("small"), batch=16)
    model, batch = bench.model("copying" if part == "attn" else "sparse", size), bench.batch(size)
    with torch.no_grad():
        expected = model(**batch).logits
        try:
            getattr(model.to(torch.bfloat16), f"set_{part}_implementation")(name)
        except ImportError as error:
            raise Skipped("not installed") from error
        largest = difference(model(**batch).logits, expected)
    figures = {"ms": bench.ms(partial(bench.step(model), batch), runs=5, warm_ups=2), "difference": largest}
    # experts of other tokens have other outputs where rounding changes the choice of the router
    is_right = all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    return is_right and (part == "experts" or largest < 0.1), figures


def run_case(bench: Bench, name: str, case: str) -> Figures:
    """Run one case.

    Returns:
        `check`, `case`, `state` ("PASS", "FAIL" or "SKIP"), `seconds`, `figures`, and after an error its `details`.
    """
    start = time.perf_counter()
    try:
        passed, figures = CHECKS[name][0](bench, case)
        row = {"state": "PASS" if passed else "FAIL", "figures": figures}
    except Skipped as reason:
        row = {"state": "SKIP", "figures": {"reason": str(reason)}}
    except Exception as error:
        # the cause of a compiler's error is often at the end of many lines
        row = {"state": "FAIL", "figures": {"error": repr(error)[-400:]}, "details": traceback.format_exc()}
    torch._dynamo.reset()
    gc.collect()
    if bench.is_gpu:
        torch.cuda.empty_cache()
    return {"check": name, "case": case, "seconds": time.perf_counter() - start} | row


def as_line(row: Figures) -> str:
    texts = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row["figures"].items()}
    figures = "; ".join(f"{name} {text}" for name, text in texts.items())
    return f"{row['state']} {row['check']:26s} {row['case']:22s} {row['seconds']:6.1f} s  {figures}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    words = (
        f"checks to run, in this order, of {', '.join(CHECKS)} (default: all), or the beginning of cases behind `:`"
    )
    add("checks", nargs="*", metavar="CHECK[:CASE]", help=words)
    words = "a file for all results, with whole errors (default: %(default)s)"
    add("--json", type=Path, default=Path("runs/gpu.json"), metavar="FILE", help=words)
    add("--device", choices=("cuda", "cpu"), help="(default: cuda if there is one)")


def chosen_cases(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return check and case of all whose `CHECK:CASE` begins with one of the words, in the order of the words.

    Raises:
        ValueError: there is no such check or case.
    """
    cases = {f"{name}:{case}": (name, case) for name, (_, cases) in CHECKS.items() for case in cases}
    for word in words:
        if not any(case.startswith(word) for case in cases):
            raise ValueError(f"there is no case {word!r}: choose from {', '.join(cases)}.")
    return [*dict.fromkeys(names for word in words for case, names in cases.items() if case.startswith(word))]


def main(arguments: argparse.Namespace) -> int:
    cases = chosen_cases(arguments.checks or [""])
    bench = Bench(arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    card = f"{torch.cuda.get_device_name()}, cuDNN {torch.backends.cudnn.version()}" if bench.is_gpu else "CPU"
    versions = (f"{package.__name__} {package.__version__}" for package in (torch, transformers, weftformer))
    report: Figures = {"machine": f"{card}, {os.cpu_count()} CPU cores, {', '.join(versions)}", "rows": []}
    print(report["machine"], flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    for name, case in cases:
        row = run_case(bench, name, case)
        report["rows"].append(row)
        print(as_line(row), flush=True)
        write_json(arguments.json, report)
    return int(any(row["state"] == "FAIL" for row in report["rows"]))


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # with worker processes, the cause of an error is lost
    transformers.logging.set_verbosity_error()
    torch.backends.cuda.enable_cudnn_sdp(False)
    parser = Parser(prog="python -m weftformer.benchmarks.gpu", description=__doc__)
    add_arguments(parser)
    sys.exit(run_script("benchmarks.gpu", main, parser.parse_args()))
