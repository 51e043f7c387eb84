"""Check Weft on one GPU, and measure it there.

    python -m weftformer.benchmarks.gpu                                        # all checks, in some minutes
    python -m weftformer.benchmarks.gpu decoding "training_step:large dense"   # a check, and cases of another

Each case prints a line: PASS, FAIL or SKIP (it cannot run on this machine), and its figures. The exit code is 1 if one failed.
Times are medians after warm-ups, with the device synchronized, and include the whole call. With `--device cpu`, the default
without a GPU, all models are tiny and no time decides. Only torch, transformers and their dependencies are needed.
"""

import argparse
import copy
import gc
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, cast
from weakref import WeakSet

import torch
import transformers
from torch import nn
from torch.nn import attention
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode
from transformers.generation import CompileConfig

import weftformer
from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.common.atomic import write_json
from weftformer.conversion import convert, detect
from weftformer.scripts.cli import Parser, run_script

Row = dict[str, Any]
Result = tuple[bool, Row]  # whether a case passed, and its figures
Batch = dict[str, torch.Tensor]

KINDS: dict[str, dict[str, Any]] = {
    "dense": {"use_qk_norm": True},
    "copying": {"cross_attention_position_type": "rotary"},
    "relative": {"self_attention_position_type": "relative", "cross_attention_position_type": "bucketed"},
    "learned": {"position_embedding_type": "learned", "self_attention_position_type": "none",
                "share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    "sparse": {"num_experts": 8, "encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse"},
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """The size of a model and of its batches. `tiny` models are compared with a CPU, and `large` ones fill a GPU."""

    layers: int
    width: int
    vocabulary: int
    batch: int
    source: int
    target: int


SIZES = {
    "tiny": Size(2, 128, 512, 4, 24, 16),
    "small": Size(6, 512, 8192, 64, 128, 128),
    "large": Size(4, 1024, 32768, 64, 256, 256),
}
# The models of transformers beside which Weft is measured, with the beginnings of the names of their classes.
PEERS = {"BART": "Bart", "Marian": "Marian", "T5": "T5", "NLLB-MoE": "NllbMoe"}
# Operations a second of dense products in bf16, without sparsity, by the manufacturer.
_PEAKS = {"H100": 989.4e12, "H200": 989.4e12}
_FAST: WeakSet[nn.Module] = WeakSet()  # the models for which the fast path is on
_ON_A_CPU = dict.fromkeys(SIZES, Size(1, 32, 64, 3, 12, 8))


class Skipped(Exception):
    """A case cannot run on this machine. The message is the reason."""


@dataclass(frozen=True)
class Bench:
    """Models and batches on a device ("cuda" or "cpu")."""

    device: str
    sizes: dict[str, Size]

    @property
    def is_gpu(self) -> bool:
        return self.device != "cpu"

    def model(self, kind: str, size: Size, dtype: torch.dtype = torch.float32, **fields: Any) -> Any:
        """Build a model in evaluation mode, always with the same weights."""
        torch.manual_seed(0)
        # a token uses two experts, which together are as wide as a dense layer
        sizes = {"layers": size.layers, "attention_heads": max(2, size.width // 64),
                 "ffn_dim": (2 if kind == "sparse" else 4) * size.width}  # fmt: skip
        fields |= {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in sizes.items()}
        config = WeftConfig(vocab_size=size.vocabulary, d_model=size.width, dropout=0.0, **fields, **KINDS[kind])
        with torch.device(self.device):
            return WeftForConditionalGeneration(config).eval().to(dtype)

    def pair(self, name: str, size: Size, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
        """Build a peer with random weights and Weft with the same weights, both on the CPU."""
        torch.manual_seed(0)
        heads, ffn = max(2, size.width // 64), (2 if name == "NLLB-MoE" else 4) * size.width
        sizes = {"layers": size.layers, "attention_heads": heads, "ffn_dim": ffn}
        fields: Row = {f"{stack}_{key}": value for stack in ("encoder", "decoder") for key, value in sizes.items()}
        fields |= {"dropout": 0.0, "attention_dropout": 0.0, "max_position_embeddings": 512, "forced_eos_token_id": None,
                   "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip
        if name == "T5":
            fields = {"num_layers": size.layers, "num_decoder_layers": size.layers, "num_heads": heads, "d_ff": ffn,
                      "d_kv": size.width // heads, "dropout_rate": 0.0, "decoder_start_token_id": 0}  # fmt: skip
        if name == "NLLB-MoE":  # whose positions count from this id
            fields |= {
                "pad_token_id": 1,
                "bos_token_id": 0,
                "num_experts": 8,
                "encoder_sparse_step": 1,
                "decoder_sparse_step": 1,
            }
        config = getattr(transformers, f"{PEERS[name]}Config")(
            vocab_size=size.vocabulary, d_model=size.width, **fields
        )
        kind = "MarianMTModel" if name == "Marian" else f"{PEERS[name]}ForConditionalGeneration"
        peer = getattr(transformers, kind)(config)
        weights, source_config = peer.state_dict(), config.to_dict()
        own = convert(weights, detect(weights, source_config), source_config=source_config).build()
        return {name: peer.eval().to(dtype), "Weft": own.eval().to(dtype)}

    def batch(self, size: Size, mask: str = "padded") -> Batch:
        """Build a batch: "unmasked", with a mask of "ones", or with rows from half of the length on ("padded")."""
        draw = torch.Generator().manual_seed(0)
        shapes = (size.batch, size.source), (size.batch, size.target)
        ids, labels = (torch.randint(3, size.vocabulary, shape, generator=draw) for shape in shapes)
        for tensor, pad in ((ids, 0), (labels, -100)) if mask == "padded" else ():
            lengths = torch.linspace(tensor.shape[1], tensor.shape[1] / 2, size.batch).long()
            tensor.masked_fill_(torch.arange(tensor.shape[1]) >= lengths[:, None], pad)
        batch = {"input_ids": ids, "labels": labels}
        if mask != "unmasked":
            batch["attention_mask"] = ids.ne(0).long()
        return {name: tensor.to(self.device) for name, tensor in batch.items()}

    def step(self, model: nn.Module, autocast: bool = False) -> Callable[..., torch.Tensor]:
        """Return a function that trains on a batch by AdamW, and returns the loss."""
        optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3, fused=True)

        def run(batch: Batch, **extra: Any) -> torch.Tensor:
            with torch.autocast(self.device, torch.bfloat16, enabled=autocast):
                loss = model(**batch, **extra).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return run

    def generate(self, model: Any, batch: Batch, path: str, tokens: int = 8, **settings: Any) -> torch.Tensor:
        """Generate by transformers' loop with a growing cache ("plain") or a static one, or by Weft's loop ("fast")."""
        if path != "fast":  # a request that names a cache never takes the fast path
            settings["cache_implementation"] = "dynamic" if path == "plain" else path
        elif model not in _FAST:
            _FAST.add(weftformer.fast_decoding(model))
        if path == "static" and not self.is_gpu:
            config = settings["compile_config"] = CompileConfig(backend="eager")
            config._compile_all_devices = True
        source = {name: batch[name] for name in ("input_ids", "attention_mask")}
        return model.generate(**source, min_new_tokens=tokens, max_new_tokens=tokens, do_sample=False, **settings)

    def ms(self, call: Callable[[], Any], runs: int = 1, warm_ups: int = 0) -> float:
        """Return the median milliseconds of some calls after warm-ups, or those of one call with models for a CPU."""
        runs, warm_ups = (1, 0) if self.sizes is _ON_A_CPU else (runs, warm_ups)
        times = []
        for _ in range(warm_ups + runs):
            torch.get_device_module(self.device).synchronize()
            begun = time.perf_counter()
            call()
            torch.get_device_module(self.device).synchronize()
            times.append((time.perf_counter() - begun) * 1e3)
        return statistics.median(times[warm_ups:])


@dataclass(frozen=True)
class Check:
    """A function of the bench and a case, and the names of the cases."""

    run: Callable[[Bench, str], Result]
    cases: tuple[str, ...]


CHECKS: dict[str, Check] = {}


def check(*parts: Iterable[str]) -> Callable:
    """Enter a check. Its cases are all combinations of the parts."""

    def enter(run: Callable[[Bench, str], Result]) -> Callable[[Bench, str], Result]:
        CHECKS[run.__name__] = Check(run, tuple(map(" ".join, product(*parts))))
        return run

    return enter


def difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return ((actual.to(expected) - expected).abs().max() / expected.abs().max()).item()


@check(KINDS)
def logits_as_on_a_cpu(bench: Bench, kind: str) -> Result:
    size, cpu = bench.sizes["tiny"], replace(bench, device="cpu")
    model = cpu.model(kind, size)
    with torch.no_grad():
        expected = model(**cpu.batch(size)).logits
        largest = difference(copy.deepcopy(model).to(bench.device)(**bench.batch(size)).logits, expected)
    return largest < 1e-3, {"difference": largest}


@check(KINDS, ("greedy", "beams"), ("plain", "fast"))
def tokens_as_on_a_cpu(bench: Bench, case: str) -> Result:
    """The expected tokens are those of the plain path on the CPU, after prefixes of two lengths."""
    kind, search, path = case.split()
    size, cpu = bench.sizes["tiny"], replace(bench, device="cpu")
    model = cpu.model(kind, size, init_std=0.1)  # untrained, but with distinct scores
    prefix = torch.tensor([[1, 5, 6]] + [[0, 0, 1]] * (size.batch - 1))

    def tokens(bench: Bench, path: str) -> torch.Tensor:
        own, ids = copy.deepcopy(model).to(bench.device), prefix.to(bench.device)
        settings: Row = {"decoder_input_ids": ids, "decoder_attention_mask": ids.ne(0).long()}
        settings["num_beams"] = 1 if search == "greedy" else 4
        return bench.generate(own, bench.batch(size), path, **settings).cpu()

    same = (tokens(bench, path) == tokens(cpu, "plain")).all(dim=1)
    return bool(same.all()), {"same texts": same.float().mean().item()}


@check(("MATH", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"))
def rows_without_keys_are_zero(bench: Bench, backend: str) -> Result:
    """SDPA gives 0 for a query that may attend to no key, as `modeling/masks.py` expects of all kernels except cuDNN's."""
    if not bench.is_gpu and backend != "MATH":
        raise Skipped("needs a GPU")
    query = torch.randn(2, 4, 64, 64, device=bench.device, dtype=torch.bfloat16)
    mask = torch.arange(64, device=bench.device).ge(5)[:, None].expand(2, 1, 64, 64).contiguous()
    with attention.sdpa_kernel(getattr(attention.SDPBackend, backend)):
        output = scaled_dot_product_attention(query, query, query, attn_mask=mask)
    largest = output[:, :, :5].abs().max().item()
    is_zero = largest == 0 and bool(output.isfinite().all())
    return is_zero or backend == "CUDNN_ATTENTION", {"largest": largest}


@check(("training dense bf16", "training relative bf16", "training sparse bf16", "training sparse fp32",
        "decoding dense plain", "decoding dense fast"))  # fmt: skip
def host_reads(bench: Bench, case: str) -> Result:
    """Where the CPU waits for a value of the GPU: never in a training step, and at most 40 times for 16 tokens.

    Only torch's grouped product of experts in fp32 waits in training.
    """
    task, kind, way = case.split()
    size = bench.sizes["tiny"]
    model, batch = bench.model(kind, size), bench.batch(size)
    run = partial(bench.generate, model, batch, way, 16)
    if task == "training":
        run = partial(bench.step(model, way == "bf16"), batch, chunked_loss=True)
    run()  # the first call reads its inputs, to check them
    if not bench.is_gpu:
        raise Skipped("needs a GPU")
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    reads = [
        f"{Path(warning.filename).name}:{warning.lineno}"
        for warning in seen
        if "synchronizing CUDA" in str(warning.message)
    ]
    allowed = 40 if task == "decoding" else 30 if case == "training sparse fp32" else 0
    places = ", ".join(sorted(set(reads))[:8])
    return len(reads) <= allowed, {"reads": len(reads), "places": places}


@check(("small", "large"), ("dense", "sparse"), ("fp32", "tf32", "bf16"))
def training_step(bench: Bench, case: str) -> Result:
    """Forward, backward and AdamW: milliseconds with each mask, and with the loss in chunks."""
    name, kind, precision = case.split()
    size = bench.sizes[name]
    step = bench.step(bench.model(kind, size), precision == "bf16")
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    ways: dict[str, Row] = {mask: {} for mask in ("unmasked", "ones", "padded")} | {"chunked": {"chunked_loss": True}}
    figures, (runs, warm_ups) = {}, (3, 1) if precision == "fp32" else (5, 2)
    for way, extra in ways.items():
        batch = bench.batch(size, "padded" if extra else way)
        figures[f"{way} ms"] = bench.ms(partial(step, batch, **extra), runs, warm_ups)
    figures["target tokens/s"] = size.batch * size.target / figures["unmasked ms"] * 1e3
    is_costly = bench.is_gpu and name == "large" and figures["chunked ms"] > 1.2 * figures["padded ms"]
    return not is_costly, figures


@check(("greedy", "beams"), ("plain", "static", "fast", "cpu"))
def decoding(bench: Bench, case: str) -> Result:
    """16 texts in bf16, with one beam or five. The last case is the fast path on the CPU in fp32."""
    search, path = case.split()
    size, tokens, dtype = replace(bench.sizes["small"], batch=16), 32 if bench.is_gpu else 4, torch.bfloat16
    if path == "cpu":
        bench, path, dtype = replace(bench, device="cpu"), "fast", torch.float32
    model = bench.model("dense", size, dtype, init_std=0.1)
    run = partial(bench.generate, model, bench.batch(size), path, tokens, num_beams=1 if search == "greedy" else 5)
    first, ms = bench.ms(run), bench.ms(run, runs=3)
    return True, {"ms a token": ms / tokens, "tokens/s": size.batch * tokens / ms * 1e3, "first run s": first / 1e3}


@check(tuple(f"{size} {peer}" for size, peer in product(("small", "large"), (*PEERS, "BART compiled", "T5 compiled"))))
def training_beside(bench: Bench, case: str) -> Result:
    """A training step in bf16 on padded rows, beside a model of transformers with the same weights, by fused AdamW.

    The share of the peak counts the products of torch's `FlopCounterMode` in one step.
    """
    name, peer, *compiled = case.split()
    size = bench.sizes[name]
    models, batch, logits = bench.pair(peer, size), bench.batch(size), []
    figures: Row = {}
    card = torch.cuda.get_device_name() if bench.is_gpu else ""
    peak = next((flops for name, flops in _PEAKS.items() if name in card), None)
    for side, model in models.items():
        model.to(bench.device)
        with torch.no_grad():
            logits.append(model(**{key: value[-2:] for key, value in batch.items()}).logits.cpu())
        step = bench.step(model, autocast=True)
        with FlopCounterMode(display=False) as counter:
            step(batch)
        if compiled and bench.is_gpu:
            step = bench.step(cast(nn.Module, torch.compile(model)), autocast=True)
        ms = bench.ms(partial(step, batch), runs=7, warm_ups=3)
        figures |= {f"{side} ms": ms, f"{side} target tokens/s": size.batch * size.target / ms * 1e3}
        if bench.is_gpu:
            torch.cuda.reset_peak_memory_stats()
            step(batch)
            figures[f"{side} GB"] = torch.cuda.max_memory_allocated() / 1e9
        if peak is not None:
            figures[f"{side} % of peak"] = 100 * counter.get_total_flops() / ms * 1e3 / peak
        model.to("cpu")
        del step
    # NLLB-MoE of transformers sends all tokens to the first two experts
    is_same = peer == "NLLB-MoE" or difference(*logits) < 1e-3
    return is_same, figures | {"times as fast": figures[f"{peer} ms"] / figures["Weft ms"]}


@check(("BART", "Marian", "T5"), ("one", "greedy", "beams"))
def decoding_beside(bench: Bench, case: str) -> Result:
    """One source greedily, and 16 greedily or with five beams, in bf16, beside a model of transformers with the same weights."""
    peer, search = case.split()
    size, tokens = replace(bench.sizes["small"], batch=1 if search == "one" else 16), 32 if bench.is_gpu else 4
    settings: Row = {"num_beams": 5 if search == "beams" else 1}
    figures: Row = {}
    for side, model in bench.pair(peer, size, torch.bfloat16).items():
        for path in ("plain",) if side == peer else ("plain", "static", "fast")[:: 2 if search == "beams" else 1]:
            run = partial(bench.generate, model.to(bench.device), bench.batch(size), path, tokens, **settings)
            figures[f"{side} {path} ms a token"] = bench.ms(run, runs=3, warm_ups=1) / tokens
    fastest = min(ms for name, ms in figures.items() if name.startswith("Weft"))
    return True, figures | {"times as fast": figures[f"{peer} plain ms a token"] / fastest}


@check(("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_4"))
def attention_implementations(bench: Bench, name: str) -> Result:
    """Forward and backward in bf16, and the largest difference of a logit from those in fp32."""
    if name == "flex_attention" and not bench.is_gpu:
        raise Skipped("no gradients on a CPU")
    size = bench.sizes["large"]
    model, batch = bench.model("copying", size), bench.batch(size)
    with torch.no_grad():
        expected = model(**batch).logits
    try:
        model.to(torch.bfloat16).set_attn_implementation(name)
    except ImportError as error:
        raise Skipped("not installed") from error

    def run() -> torch.Tensor:
        model.zero_grad()
        output = model(**batch)
        output.loss.backward()
        return output.logits.detach()

    largest, ms = difference(run(), expected), bench.ms(run, runs=5, warm_ups=1)
    is_finite = all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters())
    return is_finite and largest < 0.1, {"ms": ms, "difference": largest, "finite gradients": is_finite}


@check(("eager", "batched_mm", "grouped_mm"), ("bf16", "fp32"))
def experts_implementations(bench: Bench, case: str) -> Result:
    """Greedy decoding by transformers' loop and a training step, both on 16 sources of 128 tokens."""
    name, precision = case.split()
    size, tokens = replace(bench.sizes["small"], batch=16), 16 if bench.is_gpu else 2
    model = bench.model("sparse", size, torch.bfloat16 if precision == "bf16" else torch.float32)
    model.set_experts_implementation(name)
    batch = bench.batch(size)
    decoded = bench.ms(partial(bench.generate, model, batch, "plain", tokens), runs=3, warm_ups=1)
    figures: Row = {"ms a token": decoded / tokens}
    try:
        figures["training step ms"] = bench.ms(partial(bench.step(model), batch), runs=5, warm_ups=2)
    except torch.OutOfMemoryError:  # "batched_mm" copies the weights for each token
        figures["training step ms"] = "out of memory"
    return all(bool(parameter.isfinite().all()) for parameter in model.parameters()), figures


def _failed(message: str, details: str) -> Row:
    # the cause of a compiler's error is often at the end of many lines
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    short = " / ".join(lines if len(lines) < 4 else [lines[0], *lines[-2:]])
    return {"state": "FAIL", "figures": {"error": short[:600]}, "details": details}


def run_case(bench: Bench, name: str, case: str) -> Row:
    """Run one case.

    Returns:
        `check`, `case`, `state` ("PASS", "FAIL" or "SKIP"), `seconds`, `figures`, and after an error its `details`.
    """
    begun = time.perf_counter()
    try:
        passed, figures = CHECKS[name].run(bench, case)
        row = {"state": "PASS" if passed else "FAIL", "figures": figures}
    except Skipped as reason:
        row = {"state": "SKIP", "figures": {"reason": str(reason)}}
    except Exception as error:
        row = _failed(f"{type(error).__name__}: {error}", traceback.format_exc())
    finally:
        torch.set_float32_matmul_precision("highest")
    torch._dynamo.reset()
    gc.collect()
    if bench.is_gpu:
        torch.cuda.empty_cache()
    return {"check": name, "case": case, "seconds": time.perf_counter() - begun} | row


def _text(figure: Any) -> str:
    if isinstance(figure, bool):
        return "yes" if figure else "no"
    return str(figure) if not isinstance(figure, float) else f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def as_line(row: Row) -> str:
    figures = "; ".join(f"{name} {_text(figure)}" for name, figure in row["figures"].items())
    return f"{row['state']} {row['check']:26s} {row['case']:22s} {row['seconds']:6.1f} s  {figures}"


def machine(bench: Bench) -> str:
    name = f"{torch.cuda.get_device_name()}, cuDNN {torch.backends.cudnn.version()}" if bench.is_gpu else "CPU"
    versions = (f"{package.__name__} {package.__version__}" for package in (torch, transformers, weftformer))
    return f"{name}, {os.cpu_count()} CPU cores, {', '.join(versions)}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [CHECK[:CASES] ...] [--json FILE] [--device cpu]"
    add = parser.add_argument
    add("checks", nargs="*", metavar="CHECK",
        help=f"checks to run, of {', '.join(CHECKS)} (default: all); the beginning of a case behind `:` chooses cases")  # fmt: skip
    add("--json", type=Path, default=Path("runs/gpu.json"), metavar="FILE",
        help="a file for all results, with whole errors (default: %(default)s)")  # fmt: skip
    add("--device", choices=("cuda", "cpu"), help="(default: cuda if there is one)")


def chosen_cases(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return check and case of all that `CHECK` or `CHECK:CASES` name.

    Raises:
        ValueError: there is no such check or case.
    """
    chosen = []
    for name, _, begin in (word.partition(":") for word in words):
        if name not in CHECKS:
            raise ValueError(f"there is no check {name!r}: choose from {', '.join(CHECKS)}.")
        cases = [(name, case) for case in CHECKS[name].cases if case.startswith(begin)]
        if not cases:
            raise ValueError(f"no case of {name} begins with {begin!r}: choose from {', '.join(CHECKS[name].cases)}.")
        chosen += cases
    return chosen


def main(arguments: argparse.Namespace) -> int:
    chosen = chosen_cases(arguments.checks or list(CHECKS))
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    bench = Bench(device, _ON_A_CPU if device == "cpu" else SIZES)
    report: Row = {"machine": machine(bench), "rows": []}
    print(report["machine"], flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    for name, case in chosen:
        row = run_case(bench, name, case)
        report["rows"].append(row)
        print(as_line(row), flush=True)
        write_json(arguments.json, report)
    return int(any(row["state"] == "FAIL" for row in report["rows"]))


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # with worker processes, the cause of an error is lost
    transformers.logging.set_verbosity_error()
    torch.backends.cuda.enable_cudnn_sdp(False)
    gc.freeze()  # each case collects its garbage, without a look at the libraries
    parser = Parser(prog="python -m weftformer.benchmarks.gpu", description=__doc__)
    add_arguments(parser)
    sys.exit(run_script("benchmarks.gpu", main, parser.parse_args()))
