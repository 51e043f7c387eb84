"""Greedy search as compiled graphs that read the source and write all tokens without Python.

The weights are not part of a graph, which reads them where the model has them. So one graph serves all weights of a
configuration, also while they are trained, and all numbers and lengths of texts, except that a single text has graphs
of its own.

Shape suffixes: L layers, W rows, G key-value heads, K width of a head, S source tokens, T tokens, E end tokens.
"""

import copy
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, cast

import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.functional import pad
from transformers import GenerationConfig
from transformers.utils import logging

from ..attention import CrossAttention
from ..positions import TokenPositions, attention_positions
from .compiled import load_package, write_package
from .step import DecodeStep
from .weights import scalar_attrs

logger = logging.get_logger(__name__)

# The number of tokens that the loop has room for at first. It doubles, because each token copies all of the room.
_ROOM = 32
# Without the weights.
_COMPILER = {"aot_inductor.package_constants_in_so": False}

# The dimensions of the inputs of each graph. Those of W, S, T and E may have any size from 2 on.
_SHAPES = {"source": ("WS", "WS", "WC"), "loop": ("", "WT", "W", "2LWGTK", "LWGSK", "LWGSK", "WS", "E", "")}


class SourceGraph(nn.Module):
    """The encoder, and the projections to the keys and values of cross-attention.

    Args:
        model: a `WeftForConditionalGeneration`.
    """

    def __init__(self, model: Any):
        super().__init__()
        decoder = model.model.decoder
        self.encoder, self.config = model.model.encoder, model.config
        self.cross_attentions = nn.ModuleList(layer.encoder_attn for layer in decoder.layers)
        kind = model.config.cross_attention_position_type
        self.rotary_embedding = decoder.rotary_embedding if kind == "rotary" else None

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, condition_values: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        r"""
        Args:
            input_ids (`torch.LongTensor` of shape `(batch, source)`):
                Ids of the source tokens.
            attention_mask (`torch.LongTensor` of shape `(batch, source)`):
                1 for source tokens and 0 for pads, at any position.
            condition_values (`torch.Tensor` of shape `(batch, num_condition_features)`, *optional*):
                The condition values, if the model has any.

        Returns:
            `encoder_hidden_states` of shape `(batch, source, d_model)`, and `cross_keys` and `cross_values` of shape
            `(layers, batch, heads, source, head_dim)`.
        """
        states = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, condition_values=condition_values
        ).last_hidden_state
        source = TokenPositions(torch.arange(input_ids.shape[1], device=states.device)[None])
        kind, rotary = self.config.cross_attention_position_type, self.rotary_embedding
        positions = attention_positions(kind, self.config, source, source, source, rotary, states, is_cross=True)
        layers = [cast(CrossAttention, part)._keys_values(states, positions) for part in self.cross_attentions]
        keys, values = (torch.stack(tensors) for tensors in zip(*layers, strict=True))
        return states, keys, values


class GreedyGraph(nn.Module):
    """The loop of greedy search, until all rows have ended or the room is full.

    Args:
        model: a `WeftForConditionalGeneration`.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.step = DecodeStep(model, joined=False)

    def forward(  # noqa: PLR0913
        self, length, ids_WT, has_ended_W, cache, keys, values, attention_mask, ends_E, pad_id
    ):
        """Return the new length, ids, ended rows and cache, and whether all logits were finite.

        Args:
            length: the number of tokens that each row has, at least the start token.
            ids_WT: ids of the tokens, with room for more.
            has_ended_W: whether each row has ended. Its further tokens are `pad_id`.
            cache: keys and values of all tokens but the last (2, L, W, G, T, K).
            keys, values, attention_mask: keys and values (L, W, G, S, K) and mask (W, S) of the source.
            ends_E: ids of the end tokens.
            pad_id: id of the pad token.
        """
        source, source_mask = torch.stack([keys, values]), attention_mask.bool()[:, None, None]
        rows, columns_T = ids_WT.shape[0], torch.arange(ids_WT.shape[1], device=ids_WT.device)
        source_positions = torch.arange(source_mask.shape[-1], device=ids_WT.device)[None]

        def goes_on(length, ids_WT, has_ended_W, cache, is_finite):
            return (length < ids_WT.shape[1]) & ~has_ended_W.all()

        def write(length, ids_WT, has_ended_W, cache, is_finite):
            last = (length - 1).view(1, 1)
            last_W = ids_WT.gather(1, last.expand(rows, 1))[:, 0]
            position_ids = last if self.step.has_relative else last.expand(rows, 1)
            mask_WT = cache[0, 0, :, 0, :, 0].new_zeros(ids_WT.shape).masked_fill(columns_T >= last, float("-inf"))
            past = (None, cache, None, columns_T, None, mask_WT)
            logits_WV, new = self.step(last_W, position_ids, *past, source, source_positions, source_mask)
            tokens_W = torch.where(has_ended_W, pad_id, logits_WV.float().argmax(dim=-1))
            ids_WT = torch.where(columns_T == length, tokens_W[:, None], ids_WT)
            cache = torch.where((columns_T == last)[0, :, None], new[:, :, :, :, None], cache)
            has_ended_W = has_ended_W | (tokens_W[:, None] == ends_E).any(dim=1)
            # the maximum of a row with a NaN is NaN
            return length + 1, ids_WT, has_ended_W, cache, is_finite & logits_WV.amax(dim=-1).isfinite().all()

        is_finite = torch.ones((), dtype=torch.bool, device=ids_WT.device)
        return while_loop(goes_on, write, (length.clone(), ids_WT, has_ended_W, cache, is_finite))


def _product(states, weight, bias=None):
    """A linear layer for one row as a sum, which inductor joins with what is around it. BLAS takes twice as long."""
    if states.numel() != states.shape[-1]:
        return NotImplemented
    product = (states.reshape(1, -1) * weight).sum(-1).view(*states.shape[:-1], len(weight))
    return product if bias is None else product + bias


class GraphSearch:
    """Writes the texts of greedy search with the graphs of a model as it is now.

    Args:
        model: a `WeftForConditionalGeneration` on a CPU.
    """

    def __init__(self, model: Any):
        self.config, self.dtype, self.state = model.config, model.dtype, state_of(model)
        self.graphs = {"source": SourceGraph(model), "loop": GreedyGraph(model)}
        self._packages: dict[bool, list[Any] | None] = {}
        self._lock = Lock()

    def packages(self, is_single: bool, compiles: bool = False) -> list[Any] | None:
        """Return the compiled graphs for one text or for several, or None if there are none and `compiles` is False."""
        with self._lock:
            if is_single not in self._packages:
                packages = [self._package(name, is_single, compiles) for name in self.graphs]
                self._packages[is_single] = None if None in packages else packages
            return self._packages[is_single]

    def _package(self, name: str, is_single: bool, compiles: bool) -> Any:
        graph = self.graphs[name]
        tensors = {**dict(graph.named_parameters(remove_duplicate=False)), **dict(graph.named_buffers())}
        facts = {
            "graph": [name, is_single], "scalars": scalar_attrs([graph]), "compiler": _COMPILER,
            "weights": [[key, str(value.dtype), value.shape, value.stride()] for key, value in tensors.items()],
        }  # fmt: skip
        package = load_package(facts, self.config, partial(self._build, name, is_single) if compiles else None)
        if package is not None:
            used = {key: tensors[key].detach() for key in package.get_constant_fqns()}
            package.load_constants(used, check_full_update=True, user_managed=True)
        return package

    def _build(self, name: str, is_single: bool, file: Path) -> None:
        logger.warning_once(
            "Compiling greedy search, which takes some minutes once for each configuration of a model."
        )
        program = self.exported(name, is_single)
        if is_single:
            program = program.run_decompositions({torch.ops.aten.linear.default: _product})
        write_package(program, file, _COMPILER)

    @torch.no_grad()
    def exported(self, name: str, is_single: bool) -> torch.export.ExportedProgram:
        """Export a graph for one text or for several, of any lengths from 2 on."""
        arguments = self._source(torch.full((1 if is_single else 3, 5), 3))
        if name == "loop":
            _, keys, values = self.graphs["source"](*arguments)
            state = self._start(keys, torch.zeros(()).long(), 7)
            arguments = (*state, keys, values, arguments[1], torch.ones(4).long(), torch.zeros(()).long())
        any_length, free = torch.export.Dim.DYNAMIC, "STE" if is_single else "WSTE"
        shapes = tuple(
            {dim: any_length for dim, letter in enumerate(letters) if letter in free}
            for letters, _ in zip(_SHAPES[name], arguments, strict=False)
        )
        return torch.export.export(self.graphs[name], arguments, dynamic_shapes=shapes, strict=False)

    def _source(self, input_ids, attention_mask=None, condition_values=None) -> tuple[torch.Tensor, ...]:
        """Return the inputs of the encoder, of two columns at least."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
        missing = max(0, 2 - input_ids.shape[1])
        inputs = (pad(input_ids, (0, missing)).contiguous(), pad(mask, (0, missing)).contiguous())
        features = self.config.num_condition_features
        if not features:
            return inputs
        if condition_values is None:
            condition_values = torch.zeros(len(input_ids), features)
        return (*inputs, condition_values.to(self.dtype).contiguous())

    def _start(self, keys_LWGSK: torch.Tensor, start: torch.Tensor, room: int) -> tuple[torch.Tensor, ...]:
        """Return the state of the loop with the start token."""
        layers, rows, groups, _, width = keys_LWGSK.shape
        ids_WT = start.expand(rows, room).contiguous()
        cache = keys_LWGSK.new_zeros(2, layers, rows, groups, room, width)
        return torch.ones(()).long(), ids_WT, torch.zeros(rows, dtype=torch.bool), cache

    def write(
        self,
        settings: GenerationConfig,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        condition_values: torch.Tensor | None = None,
    ) -> torch.Tensor | None:
        """Return the ids of the texts (W, T), or None if there is no graph or logits are not finite.

        Args:
            settings: settings of greedy search, with tensors of the special tokens.
            input_ids, attention_mask, condition_values: as for `generate`.
        """
        packages = self.packages(len(input_ids) == 1)
        if packages is None:
            return None
        logger.warning_once("Greedy search runs as compiled code.")
        source, loop = packages
        ends_E, pad_id = settings._eos_token_tensor.repeat(2), settings._pad_token_tensor
        inputs = self._source(input_ids, attention_mask, condition_values)
        _, keys, values = source(*inputs)
        rest = (keys, values, inputs[1], ends_E, pad_id)
        longest = settings.max_length
        length, ids_WT, has_ended_W, cache = self._start(
            keys, settings._decoder_start_token_tensor, min(longest, _ROOM)
        )
        while True:
            length, ids_WT, has_ended_W, cache, is_finite = loop(length, ids_WT, has_ended_W, cache, *rest)
            room = int(length)
            if not is_finite:
                return None
            if room == longest or has_ended_W.all():
                return ids_WT[:, :room]
            more = min(room, longest - room)
            ids_WT, cache = pad(ids_WT, (0, more)), pad(cache, (0, 0, 0, more))


def state_of(model: Any) -> tuple:
    """Return what a graph depends on, to compare it later. Values of weights do not count, as a graph reads them."""
    tensors = [
        tensor
        for module in model.modules()
        for part in (module._parameters, module._buffers)
        for tensor in part.values()
    ]
    places = [None if tensor is None else (tensor.data_ptr(), tensor.dtype) for tensor in tensors]
    return places, scalar_attrs([model]), copy.deepcopy(vars(model.config)), torch.get_num_threads()
