"""The decoding step of the fast path: one more token for every beam, with fewer operations than a whole forward pass.

The step calls the model's own layers and attention, with a cache of its own ([`StepCache`]) and with one function for
attention in place of those in transformers' registry. The plain path is the reference:
`tests/generation/test_decoding.py` compares this step with it. The results are the same, because only repeated or
useless work is saved:

- The beams of a source have the same source, and the same target tokens up to where they branch. Keys and values of
  both are stored once (`cache.py`), and the beams become rows of one query.
- Masked source positions are left out.
- Queries, keys and values are projected in one product.

Shape suffixes: L layers, B sources, S beams of each, W = B * S rows, D width, H heads, G key-value heads, R = H / G
heads that share keys, K width of a head, T tokens of a suffix, N tokens, M source positions.
"""

from functools import reduce
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.nn.functional import linear, scaled_dot_product_attention, threshold
from torch.utils._pytree import tree_map_only
from transformers import EncoderDecoderCache

from ..attention import CrossAttention, KeysValues, SelfAttention, eager_attention_forward
from ..layers import at_least_float32
from ..masks import additive
from ..modeling_weft import WeftDecoderLayer
from ..positions import TokenPositions
from .cache import DecodingCache, by_layer

# Rotary types whose frequencies transformers changes as a sequence grows.
GROWING_ROTARY = ("dynamic", "longrope")
# Attention weights that count as 0. Products with numbers below 1e-38 take a processor many times as long as others,
# and a trained model has such numbers in every step.
_NOTHING = 1e-30


class _NoStates:
    """Stands for the states of the source, of which decoding has only the keys and values."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f'The fast path has no `{name}` of the source: decode with cache_implementation="dynamic".'
        )


_NO_STATES = _NoStates()


class SharedStates:
    """Keys or values in parts, each stored once for a source or for a row.

    The attention of the step reads `parts`. All other code gets the tensor (W, G, N, K) that they stand for. (A
    subclass of `torch.Tensor` could not be exported.)

    Args:
        parts: tensors (B or W, G, N, K).
        rows: the number of rows.
    """

    def __init__(self, parts: tuple[torch.Tensor, ...], rows: int):
        self.parts, self.rows = parts, rows

    @classmethod
    def of(cls, parts: tuple[torch.Tensor, ...], rows: int) -> Any:
        """Return the states of parts, or the only part if it has all rows."""
        return parts[0] if len(parts) == 1 and parts[0].shape[0] == rows else cls(parts, rows)

    def whole(self) -> torch.Tensor:
        """Return one tensor (W, G, N, K)."""
        return torch.cat([part.repeat_interleave(self.rows // part.shape[0], dim=0) for part in self.parts], dim=2)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole(), name)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(cls, cls.whole, (args, kwargs or {}))
        return function(*args, **kwargs)


def _operator(name: str) -> Any:
    return lambda states, *others: getattr(states.whole(), name)(*others)


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "matmul", "neg", "getitem", "len"):
    setattr(SharedStates, f"__{_name}__", _operator(f"__{_name}__"))


def parts_of(states: Any) -> tuple[torch.Tensor, ...]:
    """Return the parts of keys or values, the tensor itself if it has none."""
    return states.parts if isinstance(states, SharedStates) else (states,)


def attention_over_parts(
    module: Any, query, key, value, mask, scaling: float, dropout: float = 0.0, position_bias=None, **kwargs
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute attention of one query (W, H, 1, K) of each row over all parts of keys and values, with one softmax.

    The beams of a source and the heads of a group are rows of one query of a part that they share. The arguments are
    those of a function in transformers' registry.
    """
    if module.implementation == "eager":
        return eager_attention_forward(module, query, key, value, mask, scaling, dropout, position_bias, **kwargs)
    rows, heads, _, width = query.shape
    keys, values = parts_of(key), parts_of(value)
    query_WGRK = query.reshape(rows, keys[0].shape[1], -1, width)
    mask = _with_bias(mask, position_bias, query_WGRK)
    if len(keys) == 1:
        beams = rows // keys[0].shape[0]
        if mask is not None and mask.shape[0] == rows:
            mask = _by_source(mask.expand(-1, -1, query_WGRK.shape[2], -1), beams)
        states = _by_source(query_WGRK, beams)
        states_WGRK = _by_row(scaled_dot_product_attention(states, keys[0], values[0], mask, scale=scaling), beams)
        return states_WGRK.reshape(rows, 1, heads, width), None
    query_WGRK = query_WGRK * scaling
    scores_by_part = [_scores(query_WGRK, part) for part in keys]
    scores = torch.cat(scores_by_part, dim=-1)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(dim=-1, dtype=at_least_float32(scores.dtype))
    weights = threshold(weights, _NOTHING, 0.0).to(query.dtype)
    weights_by_part = torch.split(weights, [part.shape[-1] for part in scores_by_part], dim=-1)
    summands = [_mixed(part, states) for part, states in zip(weights_by_part, values, strict=True)]
    return reduce(torch.add, summands).reshape(rows, 1, heads, width), None


class _Unhooked:
    """A mixin for modules without hooks, which are called without the overhead of hooks."""

    forward: Any

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)


class _Layer(_Unhooked, WeftDecoderLayer):
    pass


class _SelfAttention(_Unhooked, SelfAttention):
    implementation = ""  # an attribute of each object: reading it from the configuration takes longer
    compute = staticmethod(attention_over_parts)


class _CrossAttention(_Unhooked, CrossAttention):
    implementation = ""
    compute = staticmethod(attention_over_parts)


class _Product:
    """The product of states with the weights of several linear layers."""

    def __init__(self, parts: list[nn.Linear]):
        self.weight = torch.cat([part.weight.detach() for part in parts])
        self.bias = None if parts[0].bias is None else torch.cat([part.bias.detach() for part in parts])
        self.widths = [len(part.weight) for part in parts]
        self.states: torch.Tensor | None = None
        self.outputs: tuple[torch.Tensor, ...] = ()

    def output(self, number: int, states: torch.Tensor) -> torch.Tensor:
        """Return the output of one of the layers. Those of the others are kept for the same states."""
        if states is not self.states:
            self.states = states
            self.outputs = linear(states, self.weight, self.bias).split(self.widths, dim=-1)
        return self.outputs[number]


class _PartOfProduct(_Unhooked, nn.Linear):
    product: _Product
    number: int

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.product.output(self.number, input)


def twin(module: Any, kind: type | None = None, **attributes: Any) -> Any:
    """Return an object with the weights and submodules of a module, of another class or with other attributes."""
    module_twin: Any = object.__new__(kind or type(module))
    # submodules as plain attributes: torch looks for those in `_modules` last
    vars(module_twin).update(vars(module) | dict(module.named_children()) | attributes)
    return module_twin


def layer_of_step(layer: Any, joins: bool) -> Any:
    """Return a twin of a decoder layer whose attention is that of the step.

    Args:
        layer: the layer.
        joins: whether to project queries, keys and values in one product.
    """
    self_attention = layer.self_attn
    projections: dict[str, Any] = {}
    # with a position table, values are projected from other states than queries and keys
    if joins and self_attention.position_table is None:
        product = _Product([self_attention.q_proj, self_attention.k_proj, self_attention.v_proj])
        for number, name in enumerate(("q_proj", "k_proj", "v_proj")):
            projections[name] = twin(getattr(self_attention, name), _PartOfProduct, product=product, number=number)
    attention = twin(self_attention, _SelfAttention, implementation=self_attention.implementation, **projections)
    cross = layer.encoder_attn
    return twin(
        layer,
        _Layer,
        self_attn=attention,
        encoder_attn=twin(cross, _CrossAttention, implementation=cross.implementation),
    )


class _CachedLayer(NamedTuple):
    keys: Any
    values: Any


class _Layers(NamedTuple):
    layers: list[_CachedLayer]


class StepCache(EncoderDecoderCache):
    """The past and the source of a step, in the form in which layers read and extend a cache.

    Args:
        past: an object whose `update` takes the new keys and values of a layer, and returns those of all tokens.
        source: keys and values of the source of each layer (B, G, M, K).
        rows: the number of rows.
    """

    def __init__(self, past: Any, source: list[KeysValues], rows: int):
        self.self_attention_cache = past
        layers = [
            _CachedLayer(SharedStates.of((keys,), rows), SharedStates.of((values,), rows)) for keys, values in source
        ]
        self.cross_attention_cache: Any = _Layers(layers)
        self.is_updated = dict.fromkeys(range(len(layers)), True)


class _Past:
    """The tokens of [`DecodingCache`], and a column for the new ones.

    Args:
        parts: for each part, the keys and values of each layer (B or W, G, T, K). The last has the new column too.
        column: the new column of each layer (W, G, 1, K).
    """

    def __init__(self, parts: list[list[KeysValues]], column: list[KeysValues]):
        self.parts, self.column = list(zip(*parts, strict=True)), column

    def update(self, key: torch.Tensor, value: torch.Tensor, layer_idx: int) -> tuple[Any, Any]:
        """Add a token of each row. Return the keys and values of a layer."""
        keys, values = self.column[layer_idx]
        keys.copy_(key)
        values.copy_(value)
        all_keys, all_values = zip(*self.parts[layer_idx], strict=True)
        return SharedStates.of(all_keys, key.shape[0]), SharedStates.of(all_values, key.shape[0])


class DecodeStep(nn.Module):
    """The decoder and its head, for one more token of each row.

    Args:
        model: a `WeftForConditionalGeneration` that may take the fast path. Its weights must not change while the step
            is in use.
        joined: whether to project queries, keys and values with joined copies of their weights.
    """

    def __init__(self, model: Any, joined: bool = True):
        super().__init__()
        self.decoder, self.lm_head, self.config = model.model.decoder, model.lm_head, model.config
        # bound methods, because a module would have the weights of the decoder a second time
        self.layers = tuple(layer_of_step(layer, joined) for layer in self.decoder.layers)
        self.run_layers = twin(self.decoder, layers=self.layers).run_layers
        self.compute_logits = model.compute_logits
        self.is_additive = self.layers[0].self_attn.implementation != "sdpa"  # the masks of `decoder_mask`
        rotary = self.decoder.rotary_embedding
        # Inference mode saves bookkeeping, a twentieth of a step, but frequencies that the model keeps must not be
        # made in it.
        grows = rotary is not None and rotary.rope_type in GROWING_ROTARY
        self.without_gradients = torch.no_grad if grows else torch.inference_mode
        self.training = False  # as all of its modules are; `eval` would visit each of them

    def step(self, ids_W1: torch.Tensor, cache: DecodingCache) -> torch.Tensor:
        """Return the logits (W, vocabulary) of the next token, and add the keys and values of `ids_W1` to the cache.

        Args:
            ids_W1: the last token of each row.
            cache: the cache of the previous tokens.
        """
        cache.grow()
        ids_W = ids_W1.new_empty(len(ids_W1))
        if cache.slots is None:
            ids_W.copy_(ids_W1[:, 0])
        else:  # from the order of the ranks to the order of the slots
            ids_W.index_copy_(0, cache.slots, ids_W1[:, 0])
        with self.without_gradients():
            parts, source = cache.past(), cache.source
            past = _Past([by_layer(part) for part in parts], by_layer(cache.next_column()))
            states = StepCache(past, by_layer(source.states), len(ids_W))
            columns = torch.arange(sum(part.shape[4] for part in parts), device=ids_W.device)[None]
            logits = self.logits(
                ids_W, cache.next_positions(), states, columns, cache.mask(), source.positions, source.mask
            )
        logits = logits.clone()  # processors of the user may change it
        cache.end_step()
        return logits if cache.slots is None else logits.index_select(0, cache.slots)

    def logits(
        self, ids_W, position_ids, cache: StepCache, key_positions, mask, source_positions, source_mask
    ) -> torch.Tensor:
        """Return the logits (W, vocabulary).

        Args:
            ids_W: the last token of each row.
            position_ids: its positions, of shape (1, 1) or (W, 1).
            cache: the past and the source.
            key_positions: key positions of all parts of the past and of the last token (1, N).
            mask: their mask (W, 1, 1, N), or None.
            source_positions: key positions of the source (B or 1, M).
            source_mask: mask of the source (B, 1, 1, M), or None.
        """
        embeds_W1D, positions, rows = (
            self.decoder.embed_tokens(ids_W[:, None]),
            TokenPositions(position_ids),
            len(ids_W),
        )
        source_mask = _of_rows(source_mask, rows)
        if self.is_additive:
            mask, source_mask = (
                None if states is None else additive(states, embeds_W1D.dtype) for states in (mask, source_mask)
            )
        hidden_W1D = self.run_layers(
            embeds_W1D,
            positions,
            TokenPositions(key_positions),
            mask,
            _NO_STATES,
            TokenPositions(cast(torch.Tensor, _of_rows(source_positions, rows))),
            source_mask,
            positions,  # the keys of the source are in the cache, so that their positions are not read
            cache=cache,
        )
        return self.compute_logits(hidden_W1D)[:, 0]


def _of_rows(states: torch.Tensor | None, rows: int) -> torch.Tensor | None:
    """Return values of each source (B, ...) as values of each row (W, ...). One source stands for all."""
    return (
        states if states is None or len(states) in (1, rows) else states.repeat_interleave(rows // len(states), dim=0)
    )


def _with_bias(
    mask: torch.Tensor | None, bias_WH1N: torch.Tensor | None, query_WGRK: torch.Tensor
) -> torch.Tensor | None:
    """Return mask (W, 1, 1, N) and relative bias as one mask (W, G or 1, R or 1, N), or None."""
    if bias_WH1N is None:
        return mask
    bias = bias_WH1N.squeeze(2).unflatten(1, query_WGRK.shape[1:3])
    return bias if mask is None else bias + mask


def _by_source(states_WGRX: torch.Tensor, beams: int) -> torch.Tensor:
    """Reshape (W, G, R, X) to (B, G, S * R, X)."""
    if beams == 1:
        return states_WGRX
    groups, heads, width = states_WGRX.shape[1:]
    return states_WGRX.view(-1, beams, groups, heads, width).transpose(1, 2).reshape(-1, groups, beams * heads, width)


def _by_row(states_BGQX: torch.Tensor, beams: int) -> torch.Tensor:
    """Reshape (B, G, S * R, X) to (W, G, R, X)."""
    if beams == 1:
        return states_BGQX
    sources, groups, _, width = states_BGQX.shape
    states_BGSRX = states_BGQX.view(sources, groups, beams, -1, width)
    return states_BGSRX.transpose(1, 2).reshape(sources * beams, groups, -1, width)


def _scores(query_WGRK: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return the scores (W, G, R, N) over the keys of each source or of each row (B or W, G, N, K)."""
    beams = query_WGRK.shape[0] // keys.shape[0]
    return _by_row(torch.matmul(_by_source(query_WGRK, beams), keys.transpose(2, 3)), beams)


def _mixed(weights_WGRN: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the weighted sums (W, G, R, K) of the values of each source or of each row (B or W, G, N, K)."""
    beams = weights_WGRN.shape[0] // values.shape[0]
    return _by_row(torch.matmul(_by_source(weights_WGRN, beams), values), beams)
