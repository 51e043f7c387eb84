"""A study of dead experts: `python -m weftformer.benchmarks.expert_balance`, a minute on one core.

A model learns to copy, reverse, shift and sort letters. Each of its four layers has eight experts, and a token uses
two of them. It is trained without balancing, with the balance loss, with bias-balanced routing, and with both. Every
run starts with the same weights, and with routers that prefer two experts (`--tilt`), so that these experts tend to
get more and more tokens. An expert is dead if it gets no token in the last fifth of the steps.
"""

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.common.figures import check_figure, new_figure, save_figure
from weftformer.common.whole_files import write_json
from weftformer.scripts.cli import run_script
from weftformer.training import EXPERT_LOAD, WeftTrainer, WeftTrainingArguments, read_expert_load

METHODS: dict[str, dict[str, float]] = {
    "no balancing": {},
    "balance loss": {"router_aux_loss_coef": 0.05},
    "bias-balanced": {"router_bias_update_rate": 0.01},
    "both": {"router_aux_loss_coef": 0.05, "router_bias_update_rate": 0.01},
}
_EXPERTS, _LETTERS, _PREFERRED, _WINDOWS = 8, 24, 2, 15
_PAD, _START, _END, _FIRST_TASK = range(4)
_TASKS = 4
_FIRST_LETTER = _FIRST_TASK + _TASKS


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.benchmarks.expert_balance", description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="optimizer steps of each run (default: %(default)s)")
    parser.add_argument("--tilt", type=float, default=6.0,
                        help="initial router bias of the two preferred experts (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and letters (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--picture", type=Path, help="draw the load of every expert over time into this file (needs matplotlib)"
    )
    return parser


def make_pairs(count: int, seed: int) -> list[dict[str, list[int]]]:
    """Make training pairs. A source is a task's token and letters, a target the letters after the task.

    The tasks are copying, reversing, shifting by five, and sorting.
    """
    draw = random.Random(seed)
    pairs = []
    for _ in range(count):
        task = draw.randrange(_TASKS)
        letters = [draw.randrange(_LETTERS) for _ in range(draw.randint(4, 10))]
        shifted = [(letter + 5) % _LETTERS for letter in letters]
        target = (letters, letters[::-1], shifted, sorted(letters))[task]
        pairs.append(
            {
                "input_ids": [_FIRST_TASK + task, *(_FIRST_LETTER + letter for letter in letters)],
                "labels": [*(_FIRST_LETTER + letter for letter in target), _END],
            }
        )
    return pairs


def collate(pairs: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    def padded(name: str, pad: int) -> torch.Tensor:
        longest = max(len(pair[name]) for pair in pairs)
        return torch.tensor([pair[name] + [pad] * (longest - len(pair[name])) for pair in pairs])

    ids = padded("input_ids", _PAD)
    return {"input_ids": ids, "attention_mask": ids.ne(_PAD).long(), "labels": padded("labels", -100)}


def build_model(method: str, tilt: float, seed: int) -> WeftForConditionalGeneration:
    """Build the model with the initial weights of every run, and with the balancing of one method."""
    torch.manual_seed(seed)
    fields: dict[str, Any] = {
        "vocab_size": _FIRST_LETTER + _LETTERS, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
        "dropout": 0.0, "num_experts": _EXPERTS, "num_experts_per_tok": 2, "encoder_mlp_layer_types": "sparse",
        "decoder_mlp_layer_types": "sparse", "router_bias": True, "router_aux_loss_coef": 0.0,
        "router_z_loss_coef": 0.0, "pad_token_id": _PAD, "bos_token_id": _START, "eos_token_id": _END,
        "decoder_start_token_id": _START,
    }  # fmt: skip
    model = WeftForConditionalGeneration(WeftConfig(**(fields | METHODS[method])))
    with torch.no_grad():
        for router in model.routers():
            router.classifier.bias[:_PREFERRED] += tilt
    return model


def train(method: str, folder: Path, steps: int, tilt: float, seed: int) -> dict[str, Any]:
    """Train with a method of `METHODS`. Return the load of experts in the last fifth of the steps, and the loss."""
    trainer = WeftTrainer(
        model=build_model(method, tilt, seed),
        args=WeftTrainingArguments(
            output_dir=str(folder), max_steps=steps, per_device_train_batch_size=32, learning_rate=3e-3,
            logging_steps=max(1, steps // _WINDOWS), save_strategy="no", eval_strategy="no", report_to="none",
            use_cpu=True, disable_tqdm=True, predict_with_generate=False, prediction_loss_only=True, seed=seed,
        ),
        data_collator=collate,
        train_dataset=make_pairs(4000, seed),
        eval_dataset=make_pairs(500, seed + 1),
    )  # fmt: skip
    trainer.train()
    last = [record["layers"] for record in read_expert_load(folder / EXPERT_LOAD) if record["step"] > 0.8 * steps]
    layers = {}
    for name in last[0]:
        tokens = sum(record[name]["tokens"] for record in last)
        shares = [record[name]["tokens"] / tokens for record in last]
        load = [
            sum(share * record[name]["load"][expert] for share, record in zip(shares, last, strict=True)) * _EXPERTS
            for expert in range(_EXPERTS)
        ]
        layers[name] = {"load": load, "dead": sum(value == 0 for value in load)}
    return {"method": method, "layers": layers, "eval_loss": trainer.evaluate()["eval_loss"]}


def as_table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"| balancing | dead experts, of {_EXPERTS * len(rows[0]['layers'])} | busiest, times the mean | idlest | loss |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        loads = [value for layer in row["layers"].values() for value in layer["load"]]
        dead = sum(layer["dead"] for layer in row["layers"].values())
        lines.append(f"| {row['method']} | {dead} | {max(loads):.2f} | {min(loads):.3f} | {row['eval_loss']:.3f} |")
    return "\n".join(lines)


def draw_expert_load(file: str | os.PathLike | Mapping[str, str | os.PathLike], picture: str | os.PathLike) -> None:
    """
    Draw the load of every expert over the steps of a training run, with a panel for each layer and a row for each
    expert.

    Args:
        file (`str`, `os.PathLike` or `Mapping[str, str | os.PathLike]`):
            The `expert_load.jsonl` of a run. To draw several runs side by side, a dictionary from titles to files.
        picture (`str` or `os.PathLike`):
            The picture to write: .svg, .png or .pdf.

    Raises:
        ValueError: matplotlib is not installed, the picture has another ending or its folder does not exist, or a file has
            no loads.
    """
    check_figure(picture, "picture")
    runs = {title: read_expert_load(one) for title, one in (file if isinstance(file, Mapping) else {"": file}).items()}
    names = sorted({name for run in runs.values() for record in run for name in record["layers"]}, key=_in_order)
    if not names or not all(runs.values()):
        raise ValueError(f"{file} has no loads of experts.")
    width = 7 if len(runs) == 1 else 1 + 2.4 * len(runs)
    figure = new_figure(width, 0.9 + 1.2 * len(names))
    panels = figure.subplots(len(names), len(runs), squeeze=False, sharex="col", sharey="row")
    for (title, run), column in zip(runs.items(), panels.T, strict=True):
        for panel, name in zip(column, names, strict=True):
            shown = [record for record in run if name in record["layers"]]
            relative = [
                [share * len(load) for share in load] for load in (one["layers"][name]["load"] for one in shown)
            ]
            steps, experts = [record["step"] for record in shown], range(len(relative[0]))
            # rasterized, because thousands of small shapes make a file of many megabytes
            image = panel.pcolormesh(
                steps, experts, list(zip(*relative, strict=True)), shading="nearest", vmin=0, vmax=2, cmap="RdBu_r",
                rasterized=True,
            )  # fmt: skip
            panel.tick_params(labelsize=7)
        column[0].set_title(title, fontsize=9)
        column[-1].set_xlabel("step", fontsize=8)
    for panel, name in zip(panels[:, 0], names, strict=True):
        panel.set_ylabel(f"{name.replace('_', ' ')}\nexpert", fontsize=8)
    bar = figure.colorbar(image, ax=panels, extend="max", pad=0.01)
    bar.ax.tick_params(labelsize=7)
    bar.set_label("load; 1 is an even share, 0 is dead", fontsize=8)
    save_figure(figure, picture)


def _in_order(name: str) -> tuple[bool, int]:
    stack, number = name.rsplit("_", 1)
    return stack == "decoder", int(number)


def main(argv: Sequence[str] | None = None) -> None:
    """Train with each method, print the table, and write the files of the arguments.

    Raises:
        ValueError: there are too few steps, or the picture cannot be drawn.
    """
    arguments = build_parser().parse_args(argv)
    if arguments.steps < _WINDOWS or arguments.threads < 1:
        raise ValueError(f"--steps must be at least {_WINDOWS} and --threads at least 1.")
    if arguments.picture is not None:
        check_figure(arguments.picture, "--picture")
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folders = {method: Path(scratch, f"run-{index}") for index, method in enumerate(METHODS)}
        rows = [
            train(method, folder, arguments.steps, arguments.tilt, arguments.seed)
            for method, folder in folders.items()
        ]
        if arguments.picture is not None:
            draw_expert_load({method: folder / EXPERT_LOAD for method, folder in folders.items()}, arguments.picture)
    print(as_table(rows))
    if arguments.json is not None:
        settings = {name: getattr(arguments, name) for name in ("steps", "tilt", "seed")}
        write_json(arguments.json, settings | {"methods": METHODS, "rows": rows})


if __name__ == "__main__":
    sys.exit(run_script("expert_balance", main))
