"""Train models in several ways, each with several seeds, and compare their scores on the validation pairs.

    python -m weftformer.benchmarks.study "dense=" "8 experts=--config-overrides num_experts=8,..." --output-dir runs/experts \\
        -- --train-file pairs.csv --validation-file more.csv --max-steps 1600

A way is a name and arguments of `weftformer train`; the arguments behind `--` are common to all. In both `{seed}` stands for
the seed. Each model has a folder of its own. A model that is finished is not trained again, and one that was interrupted
continues, so that the same command with more ways or seeds trains only the new models.
"""

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from weftformer.common.atomic import write_json
from weftformer.common.statistics import student_interval
from weftformer.scripts import cli

_EVALUATION = "eval_results.json"  # as transformers' Trainer names it
_OWN = ("--seed", "--output-dir", "--resume-from-checkpoint")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m weftformer.benchmarks.study",
        usage="%(prog)s NAME=WORDS [NAME=WORDS ...] --output-dir FOLDER [--option value ...] -- WORDS",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("ways", nargs="+", metavar="NAME=WORDS", help="ways to train; the others are compared with the first")
    add("--output-dir", type=Path, required=True, metavar="FOLDER", help="folder for the models")
    add("--command", default="train", help="the command of `weftformer` to run (default: %(default)s)")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="(default: 0 1 2)")
    add("--measures", nargs="+", default=["loss"], metavar="NAME",
        help="metrics to compare: keys of `eval_results.json` without eval_ (default: loss)")  # fmt: skip
    return parser


def train(command: str, words: Sequence[str], folder: Path) -> dict[str, float]:
    """Run a training command in a folder, from its last checkpoint if it has one, unless it has finished there before.

    Returns:
        The evaluation that the command wrote.

    Raises:
        ValueError: the folder has the model of another command, the command failed or did not evaluate.
    """
    about = folder / "study.json"
    arguments = {"command": command, "words": list(words)}
    if not about.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(about, arguments)
    elif json.loads(about.read_text(encoding="utf-8")) != arguments:
        raise ValueError(
            f"{folder} has a model trained with other arguments: give another --output-dir or another name."
        )
    file = folder / _EVALUATION
    if not file.exists():
        code = cli.main([*command.split(), *words, "--output-dir", str(folder), "--resume-from-checkpoint", "true"])
        if code or not file.exists():
            raise ValueError(f"`weftformer {command}` wrote no {file}: see above, and give a --validation-file.")
    return json.loads(file.read_text(encoding="utf-8"))


def as_table(results: Mapping[str, Sequence[float]], measure: str, seeds: Sequence[int]) -> str:
    """Return a table with a row for each way, and one for its differences to the first way.

    With two seeds or more the mean difference has its 95 % interval ([`~common.statistics.student_interval`]), because the
    models of a seed see the same batches.

    Args:
        results: the values of each way, one for each seed.
        measure: the name of the values, for the head of the first column.
        seeds: the seeds.
    """
    lines = [
        f"| {measure} | {' | '.join(f'seed {seed}' for seed in seeds)} | mean |",
        "| --- |" + " --- |" * (len(seeds) + 1),
    ]
    for name, values in results.items():
        cells = [f"{value:.3f}" for value in [*values, statistics.mean(values)]]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    first, *others = results
    for name in others:
        differences = [there - here for here, there in zip(results[first], results[name], strict=True)]
        cells = [f"{value:+.3f}" for value in [*differences, statistics.mean(differences)]]
        if len(seeds) > 1:
            low, high = student_interval(differences)
            cells[-1] += f" [{low:+.3f}, {high:+.3f}]"
        lines.append(f"| {name}, minus {first} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Train the models, and print a table of each measure.

    Raises:
        ValueError: an argument is not valid, or a training failed.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    behind = words.index("--") if "--" in words else len(words)
    args, common = build_parser().parse_args(words[:behind]), words[behind + 1 :]
    ways = {name: shlex.split(words_of_way) for name, _, words_of_way in (way.partition("=") for way in args.ways)}
    if len(ways) < len(args.ways) or not all(ways) or not all("=" in way for way in args.ways):
        raise ValueError(f"Ways are NAME=WORDS with different names: got {', '.join(args.ways)}.")
    for word in (word for words_of_way in (common, *ways.values()) for word in words_of_way):
        if word.replace("_", "-").split("=")[0] in _OWN:
            raise ValueError(f"{word} is set by the study: give --seeds and --output-dir before the --.")
    results: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for seed in args.seeds:
        for name, words_of_way in ways.items():
            arguments = [word.replace("{seed}", str(seed)) for word in [*common, *words_of_way, "--seed", "{seed}"]]
            results[name].append(train(args.command, arguments, args.output_dir / f"{name.replace(' ', '-')}-{seed}"))
    for measure in args.measures:
        if missing := [name for name, rows in results.items() for row in rows if f"eval_{measure}" not in row]:
            raise ValueError(
                f"{missing[0]} has no eval_{measure}: {_EVALUATION} has {', '.join(results[missing[0]][0])}."
            )
        values = {name: [row[f"eval_{measure}"] for row in rows] for name, rows in results.items()}
        print(as_table(values, measure, args.seeds))


if __name__ == "__main__":
    sys.exit(cli.run_script("benchmark study", main))
