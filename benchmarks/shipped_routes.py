"""Make the files of `weftformer.routes.shipped`: the included route model, its stock, and the forward model.

Run it with `python -m weftformer.benchmarks.shipped_routes --model runs/routes --evaluation evaluation.json --stock-routes n1 n5`.

The model is a folder of `weftformer routes train` with its checkpoints. Its weights are stored in half precision; they are
still loaded in float32, in which CPUs compute faster. The evaluation is what `weftformer routes evaluate --with steps --json` wrote
with that model. The stock is the starting materials of recorded routes. The forward model is a folder of `weftformer train`.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoTokenizer, TrainerState

from weftformer import WeftForConditionalGeneration
from weftformer.common.atomic import atomic_write, write_json
from weftformer.hub import MetricResult, build_card, facts_of
from weftformer.hub.facts import bibtex
from weftformer.hub.trained import training_table
from weftformer.routes.data.training_data import read_canonical
from weftformer.routes.shipped import FORWARD_MODEL, MODEL, STOCK
from weftformer.scripts.cli import run_script

# Of the metrics of `weftformer routes evaluate`: the key in about.json, the metric, its part, and its name on the card.
FIGURES = (
    ("exact_top_1", "exact", "top-1", "recorded route, top-1"),
    ("exact_top_10", "exact", "top-10", "recorded route, top-10"),
    ("last_reaction_top_1", "prefix_1", "top-1", "last reaction right, top-1"),
    ("last_reaction_top_10", "prefix_1", "top-10", "last reaction right, top-10"),
    ("purchasable_top_1", "purchasable_precedented", "top-1", "purchasable and precedented, top-1"),
    ("purchasable_top_10", "purchasable_precedented", "top-10", "purchasable and precedented, top-10"),
    ("unfailing", "validity", "unfailing", "candidates that are routes without a failing step"),
)
NAME = "weft-routes"
TESTED_ON = "unseen recorded targets of PaRoutes n1, given the number of steps"
DATA = (
    "{trained_on}, from the set n5 of PaRoutes, USPTO-50K (its training part) and USPTO-15K. Each intermediate "
    "of a route is also a target. Each route has {aligned} texts: a reactant is written from the atom that makes its SMILES most "
    "like its product's. No training route makes a target of the test, not even as an intermediate. The model was initialized "
    "from an earlier run of 8,000 steps, whose data contained the validation and test parts of USPTO-50K. Do not score this "
    "model on these parts."
)
LICENCE = (
    "Weights: Apache-2.0, like the code. The training data are reactions from US patents: PaRoutes, as redistributed by the "
    "RetroCast project (MIT), and the selections of Schneider et al. (2016) and Coley et al. (2017) from the reactions of Lowe "
    "(2012, public domain)."
)


FORWARD_CARD = f"""---
library_name: transformers
license: apache-2.0
tags:
- weft
- chemistry
---

# weft-forward

Predicts the product of reactants, for `weftformer routes plan`. {{parameters:,}} parameters.

```python
from weftformer.routes.scoring.round_trip import ForwardModel

steps = [("CC(=O)NCc1ccccc1", ("CC(=O)Cl", "NCc1ccccc1"))]  # products and sorted reactants, canonical SMILES
print(ForwardModel.from_pretrained().ranks(steps))  # 1: the product is the first prediction
```

## Training

The data are the single reactions of the route model's data, as texts from the reactants to the product. The model was initialized from an
earlier route model, whose data contained the validation and test parts of USPTO-50K. Do not score this model on these parts.

| | |
| --- | --- |
{{training}}
A predicted product is one that similar reactions gave. The step may still fail.

{LICENCE}
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weftformer.benchmarks.shipped_routes", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="FOLDER", help="trained model, with its last checkpoint")
    add("--evaluation", type=Path, required=True, metavar="FILE", help="JSON of `routes evaluate` with that model")
    add("--search-evaluation", type=Path, metavar="FILE",
        help="evaluation of a search to the stock (--with nothing --stock ...), for the sentence that every plan prints")  # fmt: skip
    add("--num-routes", type=int, required=True, metavar="N", help="recorded routes that it was trained on")
    add("--num-reactions", type=int, required=True, metavar="N", help="single reactions that it was trained on")
    add("--stock-routes", type=Path, nargs="+", metavar="FILE",
        help="recorded routes whose starting materials are the stock (default: unchanged)")  # fmt: skip
    add("--forward-model", type=Path, metavar="FOLDER", help="trained forward model (default: unchanged)")
    add("--out-forward", type=Path, default=FORWARD_MODEL, metavar="FOLDER", help="its folder (default: %(default)s)")
    add("--out", type=Path, default=MODEL, metavar="FOLDER", help="folder of the model (default: %(default)s)")
    add("--out-stock", type=Path, default=STOCK, metavar="FILE", help="file of the stock (default: %(default)s)")
    return parser


def write_stock(files: Iterable[Path], out: Path) -> int:
    """Write the starting materials of recorded routes, canonical and sorted, as gzipped SMILES; return their number."""
    leaves = sorted({leaf for file in files for route in read_canonical(file) for leaf in route.leaves()})
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out) as temporary:
        # without a time, so that the same molecules are the same file
        temporary.write_bytes(gzip.compress("".join(f"{leaf}\n" for leaf in leaves).encode(), mtime=0))
    return len(leaves)


def write_model(source: Path, out: Path) -> WeftForConditionalGeneration:
    """Write weights in half precision, configuration, generation settings and tokenizer, without the code; return the model."""
    model = WeftForConditionalGeneration.from_pretrained(source, dtype=torch.float32)
    # the configuration keeps float32, and with it the type that `from_pretrained` loads
    model.save_pretrained(out, state_dict={name: tensor.half() for name, tensor in model.state_dict().items()})
    AutoTokenizer.from_pretrained(source).save_pretrained(out)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    config.pop("auto_map", None)  # these files are part of the package
    write_json(out / "config.json", config)
    for code in out.glob("*.py"):
        code.unlink()
    (out / "model.safetensors").chmod(0o644)  # transformers writes it for its owner alone
    return model


def write_forward(source: Path, out: Path) -> None:
    """Write the forward model. Its card is short, because only the planner uses the model."""
    model = write_model(source, out)
    training = "".join(f"| {name} | {value} |\n" for name, value in trained_as(source, model).items())
    (out / "README.md").write_text(
        FORWARD_CARD.format(parameters=model.num_parameters(), training=training), encoding="utf-8"
    )
    _print_size(out)


def _print_size(out: Path) -> None:
    print(f"{out} has {sum(file.stat().st_size for file in out.iterdir()) / 1e6:.1f} MB.")


def trained_as(source: Path, model: WeftForConditionalGeneration) -> dict[str, str]:
    """Return the table of the training from the arguments and the last checkpoint in a folder; nothing if they are not there."""
    checkpoints = sorted(source.glob("checkpoint-*"), key=lambda folder: int(folder.name.rpartition("-")[2]))
    if not checkpoints:
        return {}
    trainer: Any = SimpleNamespace(
        args=torch.load(source / "training_args.bin", weights_only=False),  # the user's own file
        state=TrainerState.load_from_json(str(checkpoints[-1] / "trainer_state.json")),
        train_dataset=None,
    )
    return training_table(trainer, model)


def figures_of(evaluation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the figures of the column `told steps`, by their keys in about.json."""
    found = evaluation["columns"]["told steps"]["overall"]
    return {key: found[metric][part] for key, metric, part, _ in FIGURES if part in found.get(metric, {})}


def searched(evaluation: dict) -> dict[str, int]:
    """Return the number of targets of a search to the stock, and of those with each kind of route among ten."""
    column = evaluation["columns"]["told nothing"]
    parts = {"purchasable": "purchasable", "precedented": "purchasable_precedented", "exact": "exact"}
    shares = {name: column["overall"][metric]["top-10"]["value"] for name, metric in parts.items()}
    targets = column["num_targets"]
    return {"targets": targets} | {name: round(share * targets) for name, share in shares.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Write model, card, figures and stock.

    Raises:
        ValueError, OSError: the folder, the evaluation or the routes cannot be read.
        KeyError: the evaluation has no column `told steps`.
    """
    arguments = build_parser().parse_args(argv)
    evaluation = json.loads(arguments.evaluation.read_text(encoding="utf-8"))
    figures = figures_of(evaluation)
    if arguments.stock_routes:
        print(f"{write_stock(arguments.stock_routes, arguments.out_stock):,} molecules are in {arguments.out_stock}.")
    if arguments.forward_model is not None:
        write_forward(arguments.forward_model, arguments.out_forward)
    model = write_model(arguments.model, arguments.out)
    routes = model.generation_config.routes
    trained_on = (
        f"{arguments.num_routes:,} recorded routes and {arguments.num_reactions:,} single reactions from US patents"
    )
    about = {
        "name": NAME,
        "parameters": model.num_parameters(),
        "trained_on": trained_on,
        "tested_on": TESTED_ON,
        "figures": figures,
    }
    if arguments.search_evaluation is not None:
        about["searched"] = searched(json.loads(arguments.search_evaluation.read_text(encoding="utf-8")))
    write_json(arguments.out / "about.json", about)
    settings = evaluation["settings"]
    card = build_card(
        facts_of(
            model,
            NAME,
            summary="The route model included in Weft, the default of `weftformer routes plan`.",
            has_code=False,
            license="apache-2.0",
            license_note=LICENCE,
            data=DATA.format(trained_on=trained_on, aligned=routes["aligned"]),
            training=trained_as(arguments.model, model),
            results=[
                MetricResult(
                    "exact_match" if metric == "exact" else metric, name, figures[key]["value"], TESTED_ON,
                    figures[key]["low"], figures[key]["high"], "Wilson" if part.startswith("top") else "bootstrap",
                    figures[key]["n"], "test", percent=True,
                )
                for key, metric, part, name in FIGURES if key in figures
            ],
            results_note=(
                f"{settings['beams']} beams, {settings['num_augmentations']} SMILES of each target, with the rules of chemistry. Purchasable: "
                "every starting material occurs in n1 or n5. Precedented: each step has a recorded precedent, but may still fail."
            ),
            limits=["The model was trained on a few thousand routes, which contain little of the chemistry that chemists know."],
            citation=bibtex("directmultistep") + "\n" + bibtex("paroutes"),
        )
    )  # fmt: skip
    # it is loaded from the package: no name is needed
    text = str(card).replace(f'from_pretrained("{NAME}")', "from_pretrained()")
    (arguments.out / "README.md").write_text(text, encoding="utf-8")
    _print_size(arguments.out)


if __name__ == "__main__":
    sys.exit(run_script("shipped_routes", main))
