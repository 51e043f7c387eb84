"""A transformer of Haiku modules (JAX).

Its parameters are a nested dictionary of arrays, with weights in (in, out) order.

The modules are `hk.MultiHeadAttention` (query, key, value, linear), `hk.Linear`, `hk.LayerNorm` (eps 1e-5) and
`hk.Embed`, under these names, after any root:

    source_embedding, target_embedding (or one `embedding` for both), output
    encoder/layer_0/self_attention, self_attention_norm, feed_forward/linear, feed_forward/linear_1, feed_forward_norm
    decoder/layer_0/ the same, and cross_attention, cross_attention_norm

The transformer infers the source's mask from pads, and so does the converted model if no mask is given. Other names
can be mapped during conversion (`weftformer convert --rename`). The architecture is post-norm with ReLU, embeddings
times sqrt(d_model), sinusoidal positions (sine and cosine side by side; `sinusoidal_layout="concatenated"` for the
other order) and a final linear layer.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from .operations import TRANSPOSE
from .shapes import VASWANI, vaswani_fields
from .source import Source
from .table import KeyRule, KeyTable, Weights, rename

_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "linear": "out_proj"}
_LINEARS = {
    "self_attention": _ATTENTION,
    "cross_attention": _ATTENTION,
    "feed_forward": {"linear": "up_proj", "linear_1": "down_proj"},
}
_SUBLAYERS = {
    "self_attention": ("self_attn", "self_attn_layer_norm"),
    "cross_attention": ("encoder_attn", "encoder_attn_layer_norm"),
    "feed_forward": ("mlp", "final_layer_norm"),
}


def flatten(params: Mapping[str, Any]) -> Weights:
    """Return Haiku's parameters by their path below the root: `{"transformer/~/output": {"w": ...}}` gives `output/w`.

    The parts of a path that name the method that made a module (`~`, `~encode`) are left out.

    Args:
        params: the parameters from `init` of a transformed function, as arrays of JAX or numpy.

    Raises:
        ValueError: two paths become the same, or a parameter is not a number.
    """
    leaves: dict[str, Any] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for name, child in value.items():
                walk(f"{path}/{name}" if path else str(name), child)
        else:
            leaves[path] = value

    walk("", params)
    parts = {key: [part for part in key.split("/") if not part.startswith("~")] for key in leaves}
    while parts and len({p[0] for p in parts.values()}) == 1 and min(map(len, parts.values())) > 2:
        parts = {key: p[1:] for key, p in parts.items()}
    names = {key: "/".join(path) for key, path in parts.items()}
    if duplicates := [name for name, count in Counter(names.values()).items() if count > 1]:
        raise ValueError(f"Several paths of Haiku map to the same key: {', '.join(sorted(duplicates))}.")
    return {names[key]: _tensor(key, value) for key, value in leaves.items()}


def _tensor(key: str, value: Any) -> torch.Tensor:
    array = np.array(value)
    # bfloat16, which numpy saves as two bytes without a type
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    if not np.issubdtype(array.dtype, np.number):
        raise ValueError(f"{key} is not a weight: its type is {array.dtype}.")
    return torch.from_numpy(array)


def _linear(there: str, here: str) -> list[KeyRule]:
    return [rename(f"{there}/w", f"{here}.weight", operation=TRANSPOSE), rename(f"{there}/b", f"{here}.bias")]


def _table() -> KeyTable:
    rules = [
        rename("embedding/embeddings", "model.shared.weight"),
        rename("source_embedding/embeddings", "model.encoder.embed_tokens.weight"),
        rename("target_embedding/embeddings", "model.decoder.embed_tokens.weight"),
        *_linear("output", "lm_head"),
    ]
    for name, (block, norm) in _SUBLAYERS.items():
        there, here = f"<stack>/layer_<layer>/{name}", "model.<stack>.layers.<layer>"
        rules += [
            rename(f"{there}_norm/scale", f"{here}.{norm}.weight"),
            rename(f"{there}_norm/offset", f"{here}.{norm}.bias"),
        ]
        for theirs, ours in _LINEARS[name].items():
            rules += _linear(f"{there}/{theirs}", f"{here}.{block}.{ours}")
    return rules


SOURCE = Source(
    name="haiku",
    title="a transformer of Haiku modules",
    signature=(
        "encoder/layer_<layer>/self_attention/query/w",
        "decoder/layer_<layer>/cross_attention/query/w",
        "output/w",
    ),
    fields=lambda weights, source_config: vaswani_fields(weights, _table(), axis=1) | {"infer_attention_mask": True},
    computes=lambda source_config: [VASWANI],
    table=lambda config, source_config: _table(),
)
