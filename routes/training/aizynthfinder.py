"""Writes a library, its ranker and a stock as files of AiZynthFinder (Genheden et al. 2020, doi
10.1186/s13321-020-00472-1), for its searches.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy
import yaml

from ...common.atomic import atomic_write
from ..judging import Library
from ..judging.ranker import LARGEST, Ranker
from ..stock.stock import name_of

TEMPLATES, POLICY, STOCK, CONFIG = "templates.csv", "policy.onnx", "stock.txt", "config.yml"
# Versions of ONNX that runtimes of the last years read.
_OPSET, _IR = 17, 8


def write_aizynthfinder(library: Library, stock: Iterable[str], folder: str | Path) -> None:
    """Write `templates.csv`, `policy.onnx`, `stock.txt` and `config.yml`.

    The policy takes the Morgan fingerprint of AiZynthFinder and returns the probabilities of the ranker.

    Args:
        library: a library with a ranker.
        stock: the purchasable molecules, SMILES or InChI. Those that RDKit cannot read are left out.
        folder: the folder, which is made if it is missing. `config.yml` names it.

    Raises:
        ImportError: `onnx` is not installed.
        ValueError: the library has no ranker.
        OSError: a file cannot be written.
    """
    if library.ranker is None:
        raise ValueError("the library has no ranker.")
    ranker, classes = library.ranker
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    table = csv.writer(templates := io.StringIO(), delimiter="\t")
    table.writerow(["", "retro_template", "classification", "library_occurence"])  # AiZynthFinder's spelling
    table.writerows([place, row.smarts, row.name or "", row.count] for place, row in enumerate(classes))
    keys = sorted({key for smiles in stock if (key := name_of(smiles, "inchikey"))})
    expansion = [str(folder / POLICY), str(folder / TEMPLATES)]
    config = {"expansion": {"weft": expansion}, "stock": {"weft": str(folder / STOCK)}}
    contents = {
        POLICY: _policy(ranker),
        TEMPLATES: templates.getvalue().encode(),
        STOCK: "".join(f"{key}\n" for key in keys).encode(),
        CONFIG: yaml.safe_dump(config).encode(),
    }
    for name, content in contents.items():
        with atomic_write(folder / name) as part:
            part.write_bytes(content)


def _policy(ranker: Ranker) -> bytes:
    """Return the layers of a ranker as an ONNX model. Its steps are those of [`Ranker.ranked`]."""
    from onnx import TensorProto, checker, helper, numpy_helper

    single = TensorProto.FLOAT
    weights = {name: tensor.numpy() for name, tensor in ranker.tensors.items() if name != "places"}
    bounds = {"lowest": numpy.float32(0), "highest": numpy.float32(LARGEST)}
    fragments, classes = len(weights["input.weight"]), len(weights["output.weight"])
    steps = [
        ("Cast", ["input.weight"], "first"),
        ("Cast", ["input.bias"], "shift"),
        ("Cast", ["output.weight"], "rows"),
        ("Transpose", ["rows"], "second"),
        ("Gemm", ["fingerprint", "first", "shift"], "sums"),
        ("Round", ["sums"], "whole"),
        ("Clip", ["whole", "lowest", "highest"], "hidden"),
        ("MatMul", ["hidden", "second"], "products"),
        ("Mul", ["products", "output.scale"], "scaled"),
        ("Add", ["scaled", "output.bias"], "logits"),
        ("Softmax", ["logits"], "probabilities"),
    ]
    to: dict[str, Any] = {"to": single}
    graph = helper.make_graph(
        [helper.make_node(kind, names, [out], **(to if kind == "Cast" else {})) for kind, names, out in steps],
        "ranker",
        [helper.make_tensor_value_info("fingerprint", single, ["batch", fragments])],
        [helper.make_tensor_value_info("probabilities", single, ["batch", classes])],
        [numpy_helper.from_array(numpy.asarray(array), name) for name, array in (weights | bounds).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    checker.check_model(model)
    return model.SerializeToString()
