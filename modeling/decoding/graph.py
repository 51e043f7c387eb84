"""Greedy search and beam search as compiled graphs that read the source and write all tokens without Python.

The weights are not part of a graph, which reads them where the model has them. So one graph serves all weights of a
configuration, also while they are trained, and all numbers and lengths of texts, except that a single text has graphs
of its own, and so has each kind of beam search.

Shape suffixes: L layers, B texts, S beams of each, W = B * S rows, C candidates of each text, G key-value heads, K
width of a head, M source tokens, N columns of ids, P columns that all beams share, Q columns of each beam before the
suffixes, T columns of the suffixes, E end tokens, V tokens of the vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.functional import pad
from transformers import GenerationConfig
from transformers.utils import logging

from ..attention import new_cache
from ..generation import without_cudnn
from ..masks import additive
from ..positions import TokenPositions, attention_positions, positions_after_pads
from ..transformers_names import special_tokens
from .beams import NEG_SCORE, BeamRules, gather_beams, kind_of
from .cache import by_layer, take_states
from .compiled import load_package, scalar_attrs, write_package
from .search import stacked
from .step import DecodeStep, SharedStates, StepCache

logger = logging.get_logger(__name__)

# The number of tokens that a loop writes before their keys and values are added to the past.
_BLOCK = 32
# The most rows whose products are sums.
_FEW_ROWS = 12
# The fewest columns of the past, because graphs are compiled for lengths from 2 on.
_SHORTEST = 2
# Without the weights.
_COMPILER = {"aot_inductor.package_constants_in_so": False}


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
        r"""Encode sources, and compute the keys and values of cross-attention.

        Args:
            input_ids (`torch.LongTensor` of shape `(batch, source)`): ids of the source tokens.
            attention_mask (`torch.LongTensor` of shape `(batch, source)`): 1 for source tokens and 0 for pads, at any
                position.
            condition_values (`torch.Tensor` of shape `(batch, num_condition_features)`): the condition values, if the
                model has any.

        Returns:
            `encoder_hidden_states` of shape `(batch, source, d_model)`, and `cross_keys` and `cross_values` of shape
            `(layers, batch, heads, source, head_dim)`.
        """
        states = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, condition_values=condition_values
        ).last_hidden_state
        source = TokenPositions(positions_after_pads(attention_mask, states))
        kind, rotary = self.config.cross_attention_position_type, self.rotary_embedding
        positions = attention_positions(kind, self.config, source, source, source, rotary, states, is_cross=True)
        cache = new_cache(self.config)
        for attention in self.cross_attentions:  # their outputs are not used, so the compiler removes them
            attention(states, states, None, positions, cache=cache)
        keys, values = take_states(cache.cross_attention_cache)
        return states, keys, values


class _Past:
    """The keys and values of a loop, as the layers extend and read them.

    Args:
        shared: those that all rows of a text share (2, L, B, G, P, K).
        branch: those of each row after them (2, L, B, S, G, Q, K).
        origins_W: the row of `branch` that each row continues, None to leave `branch` out.
        suffixes: for each layer in turn, keys and values of all rows after them (B, G, T, S, K).
        column: the column of the new token in the suffixes.
    """

    def __init__(self, shared, branch, origins_W, suffixes: Sequence[torch.Tensor], column: torch.Tensor):
        self.shared, self.branch, self.origins_W = by_layer(shared), by_layer(branch.flatten(2, 3)), origins_W
        self.suffixes, self.column = list(suffixes), column

    def update(self, key: torch.Tensor, value: torch.Tensor, layer_idx: int) -> list[Any]:
        """Add a token of each row (W, G, 1, K). Return the keys and values of a layer."""
        keys_values = []
        for kind, states in enumerate((key, value)):
            suffix = self.suffixes[2 * layer_idx + kind]
            states_BSGK = states[:, :, 0].unflatten(0, (-1, suffix.shape[3]))
            # not `where`, which would compute the new states again for each column
            suffix = suffix.index_copy(2, self.column.view(1), states_BSGK.transpose(1, 2)[:, :, None])
            self.suffixes[2 * layer_idx + kind] = suffix
            parts = [self.shared[layer_idx][kind], suffix.flatten(2, 3)]
            if self.origins_W is not None:  # read in place, where inductor writes products as sums
                parts.insert(1, self.branch[layer_idx][kind].index_select(0, self.origins_W))
            keys_values.append(SharedStates.of(tuple(parts), key.shape[0]))
        return keys_values


class _Loop(nn.Module, ABC):
    """A loop that writes tokens until half of the texts have ended or there is no column left.

    The loop copies what it changes for each token. So the past is only read, and new keys and values go to suffixes of
    a few columns, which [`next_block`] adds to the past afterwards. What a beam has written stays where it is,
    whatever beams continue it, and indices and a mask show each beam what it continues.

    Args:
        step: the step of the model, without joined projections.
        num_beams: the number of rows of each text.
    """

    # The dimensions of each tensor of the state. The first has the ids.
    state: ClassVar[tuple[str, ...]] = ()

    def __init__(self, step: DecodeStep, num_beams: int = 1):
        super().__init__()
        self.step, self.num_beams = step, num_beams

    def start(self, keys_LBGMK: torch.Tensor, start: torch.Tensor, fill: int, room: int) -> list[torch.Tensor]:
        """Return the length, the cache and the state of texts that consist of the start token."""
        layers, texts, groups, _, width = keys_LBGMK.shape
        shared = keys_LBGMK.new_zeros(2, layers, texts, groups, _SHORTEST, width)
        branch = keys_LBGMK.new_zeros(2, layers, texts, self.num_beams, groups, _SHORTEST, width)
        suffix = keys_LBGMK.new_zeros(2, layers, texts, groups, room, self.num_beams, width)
        length = keys_LBGMK.new_ones((), dtype=torch.long)
        return [length, length - 1, length - 1, shared, branch, suffix, *self._start(texts, start, fill, room)]

    @abstractmethod
    def _start(self, texts: int, start: torch.Tensor, fill: int, room: int) -> list[torch.Tensor]:
        """Return the state of texts that consist of the start token, with room for more tokens."""

    def forward(self, length, num_shared, first, shared, branch, suffix, *others):
        """Return the new length, the new state, and the suffixes (B, G, T, S, K) of each layer in turn.

        Args:
            length: the number of tokens that each row has, at least the start token.
            num_shared: the number of columns in use in `shared`.
            first: the position of the first column of the suffixes.
            shared: keys and values that all rows of a text share (2, L, B, G, P, K).
            branch: keys and values of each row after them (2, L, B, S, G, Q, K).
            suffix: keys and values of the tokens after them but the last (2, L, B, G, T, S, K).
            others: the state; keys and values (L, B, G, M, K) and mask (B, M) of the source; ids of the end tokens
                (E,), id of the pad token, and the largest number of tokens.
        """
        count = len(self.state)
        keys_LBGMK, values_LBGMK, source_mask_BM, *settings = others[count:]
        source, source_mask = torch.stack([keys_LBGMK, values_LBGMK]), source_mask_BM.bool()[:, None, None]
        source_positions = positions_after_pads(source_mask_BM, source_mask_BM)
        columns_N, columns_P, columns_Q, columns_T = (
            torch.arange(size, device=shared.device)
            for size in (others[0].shape[-1], shared.shape[4], branch.shape[5], suffix.shape[4])
        )
        positions_T = (columns_T + first)[:, None].expand(-1, self.num_beams).flatten()
        parts = [(columns_P, columns_P < num_shared), (columns_Q + num_shared, columns_Q < first - num_shared)]
        parts = parts if self.num_beams > 1 else parts[:1]
        positions = torch.cat([*(positions for positions, _ in parts), positions_T])[None]
        num_before = self.has_ended(*others[:count]).sum()

        def goes_on(length, *carried):
            has_ended_B = self.has_ended(*carried[:count])
            return (length < columns_N.shape[0]) & ((has_ended_B.sum() - num_before) * 2 < has_ended_B.shape[0])

        def write(length, *carried):
            last = length - 1
            column = last - first
            state = self.begin(column, columns_T, *carried[:count])
            ids_W = self.last(last, *state)
            past = _Past(shared, branch, self.origins(*state), carried[count:], column)
            cache = StepCache(past, by_layer(source), ids_W.shape[0])
            in_suffix = self.visible(columns_T <= column, *state)
            in_past = [is_used.expand(*in_suffix.shape[:3], -1) for _, is_used in parts]
            mask = torch.cat([*in_past, in_suffix], dim=3)
            logits_WV = self.step.logits(ids_W, last.view(1, 1), cache, positions, mask, source_positions, source_mask)
            state = self.extend(length, columns_N, logits_WV.float(), settings, *state)
            return length + 1, *state, *past.suffixes

        suffixes = [states.clone() for layer in by_layer(suffix) for states in layer]
        length, *carried = while_loop(goes_on, write, (length.clone(), *others[:count], *suffixes))
        return length, *carried

    @abstractmethod
    def has_ended(self, *state: torch.Tensor) -> torch.Tensor:
        """Return which texts have ended."""

    def begin(self, column, columns_T, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the state with a new column of the suffixes."""
        return state

    def origins(self, *state: torch.Tensor) -> torch.Tensor | None:
        """Return the row before the suffixes that each row continues (W,), None if rows share all columns before
        them.
        """
        return None

    def visible(self, is_written_T: torch.Tensor, *state: torch.Tensor) -> torch.Tensor:
        """Return which keys of the suffixes each row attends to (W, 1, 1, T * S)."""
        return is_written_T.expand(state[0].shape[0], 1, 1, -1)

    @abstractmethod
    def last(self, last: torch.Tensor, *state: torch.Tensor) -> torch.Tensor:
        """Return the token of each row in the column `last`."""

    @abstractmethod
    def extend(self, length, columns_N, logits_WV, settings, *state) -> tuple[torch.Tensor, ...]:
        """Return the state with another token."""

    @abstractmethod
    def best(self, length: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the ids of the best texts of each source, best first (B, S, N), and their lengths (B, S)."""

    def by_row(self, branch: torch.Tensor, suffix: torch.Tensor, *state: torch.Tensor) -> torch.Tensor:
        """Return the keys and values of `branch` and of suffixes (2, L, B, S, G, T, K) that each row continues."""
        return suffix

    def next_block(
        self,
        place: tuple[int, int, int],
        shared: torch.Tensor,
        branch: torch.Tensor,
        suffix: torch.Tensor,
        state: list[torch.Tensor],
        room: int,
        fill: int,
    ) -> list[Any]:
        """Return the arguments of the next block, with empty suffixes.

        Args:
            place: the length, the number of shared columns and the first position of the suffixes.
            shared, branch, suffix, state: those of the block that is over, as the place is.
            room: the number of columns of ids.
            fill: the id in columns that are not written.
        """
        length, num_shared, first = place
        columns = suffix[:, :, :, :, : length - 1 - first].movedim(5, 3)
        branch = self.by_row(branch[:, :, :, :, :, : first - num_shared], columns, *state)
        ids_BSN = state[0][..., num_shared : length - 1].view(*branch.shape[2:4], -1)
        is_same_BN = (ids_BSN == ids_BSN[:, :1]).all(dim=1)
        count = int(is_same_BN.long().cumprod(dim=1).sum(dim=1).min())
        shared = torch.cat([shared[:, :, :, :, :num_shared], branch[:, :, :, 0, :, :count]], dim=4)
        branch = branch[:, :, :, :, :, count:]
        shared, branch = (pad(part, (0, 0, 0, max(0, _SHORTEST - part.shape[-2]))) for part in (shared, branch))
        suffix = shared.new_zeros(*shared.shape[:4], _BLOCK, self.num_beams, shared.shape[5])
        state = [
            pad(part, (0, room - part.shape[-1]), value=fill) if dims[-1:] == "N" else part
            for part, dims in zip(self.restarted(state), self.state, strict=True)
        ]
        numbers = [torch.tensor(number, device=shared.device) for number in (length, num_shared + count, length - 1)]
        return [*numbers, shared, branch, suffix, *state]

    def restarted(self, state: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the state for new suffixes."""
        return state


class GreedyGraph(_Loop):
    """The loop of greedy search. The arguments are as in [`_Loop`]. The state is ids, ended texts, finite logits."""

    state = ("BN", "B", "")

    def _start(self, texts, start, fill, room):
        has_ended_B = start.new_zeros(texts, dtype=torch.bool)
        return [start.expand(texts, room).contiguous(), has_ended_B, start.new_ones((), dtype=torch.bool)]

    def has_ended(self, *state):
        return state[1]

    def last(self, last, *state):
        return state[0].gather(1, last.expand(len(state[0]), 1))[:, 0]

    def extend(self, length, columns_N, logits_BV, settings, *state):
        ids_BN, has_ended_B, is_finite = state
        ends_E, pad_id, _ = settings
        tokens_B = torch.where(has_ended_B, pad_id, logits_BV.argmax(dim=-1))
        ids_BN = torch.where(columns_N == length, tokens_B[:, None], ids_BN)
        has_ended_B = has_ended_B | (tokens_B[:, None] == ends_E).any(dim=1)
        return ids_BN, has_ended_B, is_finite & _is_finite(logits_BV)

    def best(self, length, *state):
        return state[0][:, None], length.expand(len(state[0]), 1)


class BeamGraph(_Loop):
    """The loop of beam search, with the rules of transformers.

    Args:
        step: as in [`_Loop`].
        rules: the rules for the settings of the search.
    """

    # the running texts, their scores, the beams of the suffixes that they continue in each column, and those of the
    # past; the best texts, their scores, lengths and whether they have ended; whether they can improve; finite logits
    state = ("BSN", "BS", "BST", "BS", "BSN", "BS", "BS1", "BS", "B1", "")

    def __init__(self, step: DecodeStep, rules: BeamRules):
        super().__init__(step, rules.num_beams)
        self.rules = rules

    def _start(self, texts, start, fill, room):
        shape = texts, self.num_beams
        ids_BSN = start.new_full((*shape, room), fill)
        ids_BSN[:, :, 0] = start
        scores_BS, beams_S = ids_BSN.new_zeros(shape, dtype=torch.float32), self._beams(start.device)
        return [
            ids_BSN, scores_BS.masked_fill(beams_S > 0, NEG_SCORE), ids_BSN.new_zeros((*shape, room)),
            beams_S.repeat(texts, 1),
            ids_BSN.clone(), scores_BS.new_full(shape, NEG_SCORE), ids_BSN.new_zeros((*shape, 1)),
            ids_BSN.new_zeros(shape, dtype=torch.bool), ids_BSN.new_ones((texts, 1), dtype=torch.bool),
            ids_BSN.new_ones((), dtype=torch.bool),
        ]  # fmt: skip

    def _beams(self, device: torch.device) -> torch.Tensor:
        return torch.arange(self.num_beams, device=device)

    def has_ended(self, *state):
        return ~state[8][:, 0]

    def begin(self, column, columns_T, *state):
        beams_S1 = self._beams(column.device)[:, None]
        return *state[:2], torch.where(columns_T == column, beams_S1, state[2]), *state[3:]

    def origins(self, *state):
        origins_BS = state[3]
        first_B1 = torch.arange(origins_BS.shape[0], device=origins_BS.device)[:, None] * self.num_beams
        return (origins_BS + first_B1).flatten()

    def visible(self, is_written_T, *state):
        beams_S = self._beams(is_written_T.device)
        is_continued_BSTS = (state[2][..., None] == beams_S) & is_written_T[:, None]
        return is_continued_BSTS.flatten(2).flatten(0, 1)[:, None, None]

    def by_row(self, branch, suffix, *state):
        rows = []
        for states, beams_BST in ((branch, state[3][..., None]), (suffix, state[2][..., : suffix.shape[5]])):
            rows.append(states.gather(3, beams_BST[None, None, :, :, None, :, None].expand(states.shape)))
        return torch.cat(rows, dim=5)

    def restarted(self, state):
        texts = state[2].shape[0]
        beams_BST = state[2].new_zeros(texts, self.num_beams, _BLOCK)
        return [*state[:2], beams_BST, self._beams(beams_BST.device).repeat(texts, 1), *state[4:]]

    def last(self, last, *state):
        return state[0].gather(2, last.expand(*state[0].shape[:2], 1)).flatten()

    def extend(self, length, columns_N, logits_WV, settings, *state):
        running_BSN, running_scores_BS, *beams = state[:4]
        *best, can_improve_B1, is_finite = state[4:]
        ends_E, _, longest = settings
        vocabulary = logits_WV.shape[-1]
        scores_BSV = logits_WV.log_softmax(dim=-1).unflatten(0, (-1, self.num_beams)) + running_scores_BS[:, :, None]
        top_BC, picks_BC = scores_BSV.flatten(1).topk(self.rules.num_candidates)
        parents_BC, tokens_BC = picks_BC // vocabulary, picks_BC % vocabulary
        ends_BC = (tokens_BC[:, :, None] == ends_E).any(dim=-1) | (length + 1 >= longest)
        texts_BCN = gather_beams(running_BSN, parents_BC)
        texts_BCN = torch.where(columns_N == length, tokens_BC[:, :, None], texts_BCN)
        candidates = texts_BCN, top_BC, (length + 1).expand(*tokens_BC.shape, 1)
        best = self.rules.ended(best, candidates, ends_BC, can_improve_B1, length.double(), 1)
        running_scores_BS, order_BS = (top_BC + ends_BC.float() * NEG_SCORE).topk(self.num_beams)
        running_BSN = gather_beams(texts_BCN, order_BS)
        lengths = length.double() + 1, 1, longest.double()
        is_done_B = self.rules.is_done(running_scores_BS, best, ends_BC, can_improve_B1, *lengths)
        return (
            running_BSN, running_scores_BS, *(gather_beams(part, parents_BC.gather(1, order_BS)) for part in beams),
            *best, can_improve_B1 & ~is_done_B[:, None], is_finite & _is_finite(logits_WV),
        )  # fmt: skip

    def best(self, length, *state):
        return state[4], state[6][..., 0]


def _is_finite(logits_WV: torch.Tensor) -> torch.Tensor:
    """Return whether each row has a finite maximum. The maximum of a row with a NaN is NaN."""
    return logits_WV.amax(dim=-1).isfinite().all()


def _product(states, weight, bias=None):
    """A linear layer for a few rows as sums, which inductor joins with what is around it. BLAS takes twice as long."""
    rows = states.numel() // states.shape[-1]
    if not isinstance(rows, int) or rows > _FEW_ROWS:
        return NotImplemented
    width = states.shape[-1]
    # `as_strided` makes inductor write the states to memory first, and not compute them again for each output
    states_R1D = states.contiguous().as_strided((rows, 1, width), (width, width, 1))
    product = (states_R1D * weight).sum(-1).view(*states.shape[:-1], len(weight))
    return product if bias is None else product + bias


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    """Attention of one query as sums, for the same reason. With 5 beams, the kernel of torch is as fast or faster."""
    if query.shape[0] != 1 or not isinstance(query.shape[2], int) or query.shape[2] != 1:
        return NotImplemented
    scores = (query * key).sum(-1)[:, :, None] * scale
    if attn_mask is not None:
        scores = scores + (additive(attn_mask, scores.dtype) if attn_mask.dtype == torch.bool else attn_mask)
    return (scores.softmax(dim=-1).transpose(2, 3) * value).sum(2, keepdim=True)


def for_single(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return an exported graph for one text with the operations that are fastest for one row."""
    aten = torch.ops.aten
    return program.run_decompositions(
        {aten.linear.default: _product, aten.scaled_dot_product_attention.default: _attention}
    )


class GraphSearch:
    """Writes the texts of greedy search and beam search with the graphs of a model as it is now.

    Args:
        model: a `WeftForConditionalGeneration` on a CPU or a CUDA GPU.
    """

    def __init__(self, model: Any):
        self.config, self.dtype, self.device = model.config, model.dtype, model.device
        self.source, self.step = SourceGraph(model), DecodeStep(model, joined=False)
        # values that are constants of the code, such as the frequencies of rotary positions
        saved_names = {*model.state_dict(), *model._ddp_params_and_buffers_to_ignore}
        self._constants = [
            [name, buffer.tolist()]
            for name, buffer in model.named_buffers()
            if name not in saved_names and not buffer.is_meta
        ]
        self._packages: dict[tuple[tuple, bool], tuple[Any, Any, _Loop] | None] = {}
        self._lock = Lock()
        # the settings of the last request as given, and as prepared for a search
        self.last: tuple[Any, Any] | None = None

    def packages(self, kind: tuple, is_single: bool, compiles: bool = False) -> tuple[Any, Any, _Loop] | None:
        """Return the compiled encoder and loop, and the module of the loop, for one text or for several.

        Return None if there are none and `compiles` is False. `kind` is a result of [`kind_of`].
        """
        with self._lock:
            if (kind, is_single) not in self._packages:
                loop, source = self.loop(kind), self._package(self.source, is_single, compiles)
                package = None if source is None else self._package(loop, is_single, compiles)
                self._packages[kind, is_single] = None if package is None else (source, package, loop)
            return self._packages[kind, is_single]

    def loop(self, kind: tuple) -> _Loop:
        """Return the module of a loop. `kind` is a result of [`kind_of`]."""
        return BeamGraph(self.step, BeamRules(*kind)) if kind else GreedyGraph(self.step)

    def _package(self, graph: nn.Module, is_single: bool, compiles: bool) -> Any:
        tensors = {**dict(graph.named_parameters(remove_duplicate=False)), **dict(graph.named_buffers())}
        # a tensor that several modules share, such as a tied table, is one constant of the code
        names = {tensor.data_ptr(): key for key, tensor in reversed(tensors.items())}
        facts = {
            "graph": [type(graph).__name__, is_single, getattr(graph, "rules", None)],
            "scalars": scalar_attrs([graph]), "compiler": _COMPILER, "constants": self._constants,
            "weights": [
                [key, names[value.data_ptr()], str(value.dtype), value.shape, value.stride()]
                for key, value in tensors.items()
            ],
        }  # fmt: skip
        build = partial(self._build, graph, is_single) if compiles else None
        package = load_package(facts, self.config, self.device, build)
        if package is not None:
            weights = {key: tensors[key].detach() for key in package.code.get_constant_fqns()}
            package.code.load_constants(weights, check_full_update=True, user_managed=True)
        return package

    def _build(self, graph: nn.Module, is_single: bool, file: Path) -> None:
        logger.warning_once("Compiling a search, which takes some minutes once for each configuration of a model.")
        with without_cudnn:  # whose attention would plan each new length
            program = self.exported(graph, is_single)
            # BLAS on a GPU has no layout of weights to make at each call, the reason for sums
            is_sum = is_single and self.device.type == "cpu"
            write_package(for_single(program) if is_sum else program, file, _COMPILER)

    @torch.no_grad()
    def exported(self, graph: nn.Module, is_single: bool) -> torch.export.ExportedProgram:
        """Export a graph for one text or for several, of any lengths from 2 on."""
        arguments = self._source(torch.full((1 if is_single else 3, 5), 3, device=self.device))
        dims: tuple[str, ...] = "BM", "BM", "BC"
        any_length, letters_of_any_length = torch.export.Dim.DYNAMIC, "MNPQTE" if is_single else "BMNPQTE"
        if isinstance(graph, _Loop):
            _, keys, values = self.source(*arguments)
            zero = arguments[0].new_zeros(())
            search_arguments = keys, values, arguments[1], zero.expand(4).contiguous(), zero, zero + 9
            arguments = (*graph.start(keys, zero, 0, 7), *search_arguments)
            dims = ("", "", "", "2LBGPK", "2LBSGQK", "2LBGTSK", *graph.state, "LBGMK", "LBGMK", "BM", "E", "", "")
        shapes = [
            {dim: any_length for dim, letter in enumerate(letters) if letter in letters_of_any_length}
            for letters, _ in zip(dims, arguments, strict=False)
        ]
        dynamic_shapes = (*shapes[:6], tuple(shapes[6:])) if isinstance(graph, _Loop) else tuple(shapes)
        return torch.export.export(graph, arguments, dynamic_shapes=dynamic_shapes, strict=False)

    def _source(self, input_ids, attention_mask=None, condition_values=None) -> tuple[torch.Tensor, ...]:
        """Return the inputs of the encoder, of two columns at least.

        Types that the plain path reads in the same way are converted. Compiled code does not take others.
        """
        ids = input_ids.long() if input_ids.dtype == torch.int32 else input_ids
        mask = torch.ones_like(ids) if attention_mask is None else attention_mask
        mask = mask if mask.is_floating_point() else mask.long()
        num_missing = max(0, 2 - ids.shape[1])
        inputs = pad(ids, (0, num_missing)), pad(mask, (0, num_missing))
        features = self.config.num_condition_features
        if features and condition_values is None:
            condition_values = ids.new_zeros(len(ids), features)
        return inputs if condition_values is None else (*inputs, condition_values.to(self.dtype))

    def write(
        self,
        settings: GenerationConfig,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        condition_values: torch.Tensor | None = None,
    ) -> torch.Tensor | None:
        """Return the ids of the texts (W, T), or None if there is no graph for the inputs or logits are not finite.

        Args:
            settings: settings of the search, with tensors of the special tokens.
            input_ids, attention_mask, condition_values: as for `generate`.
        """
        packages = self.packages(kind_of(settings), len(input_ids) == 1)
        inputs = self._source(input_ids, attention_mask, condition_values)
        if packages is None:
            return None
        source, loop, graph = packages
        (start, ends, pad_id), longest = special_tokens(settings), settings.max_length
        # the id after the end of a beam, as in transformers
        fill = int(pad_id or ends[0]) if graph.num_beams > 1 else int(pad_id)
        if (of_source := source(*inputs)) is None:
            return None
        logger.warning_once("The search runs as compiled code.")
        _, keys, values = of_source
        mask, settings_of_loop = inputs[1], (ends.repeat(2), pad_id, pad_id.new_tensor(longest))
        length, num_shared, first, shared, branch, suffix, *state = graph.start(
            keys, start, fill, min(longest, _BLOCK + 1)
        )
        numbers = torch.arange(len(input_ids), device=self.device)
        texts: dict[int, torch.Tensor] = {}
        while True:
            past = length, num_shared, first, shared, branch, suffix
            results = loop(*past, *state, keys, values, mask, *settings_of_loop)
            if results is None:
                return None
            length, *results = results
            state, suffixes = results[: len(graph.state)], results[len(graph.state) :]
            if not state[-1]:
                return None
            has_ended = graph.has_ended(*state)
            is_over = bool(length == longest or has_ended.all())
            num_texts = settings.num_return_sequences
            ids_BSN, lengths_BS = graph.best(length, *state)
            texts |= zip(numbers.tolist(), ids_BSN[:, :num_texts, : int(lengths_BS[:, :num_texts].max())], strict=True)
            if is_over:
                return stacked([texts[number] for number in range(len(texts))], fill)
            # a graph for several texts needs two
            rows = has_ended.long().argsort(stable=True)[: max(2, int((~has_ended).sum()))]
            state = [part[rows] if dims else part for part, dims in zip(state, graph.state, strict=True)]
            numbers, keys, values, mask = numbers[rows], keys[:, rows], values[:, rows], mask[rows]
            suffix = torch.stack([torch.stack(suffixes[::2]), torch.stack(suffixes[1::2])])[:, :, rows]
            room = min(longest, int(length) + _BLOCK)
            shared, branch = shared[:, :, rows], branch[:, :, rows]
            length, num_shared, first, shared, branch, suffix, *state = graph.next_block(
                (int(length), int(num_shared), int(first)), shared, branch, suffix, state, room, fill
            )
