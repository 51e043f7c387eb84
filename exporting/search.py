"""Writes a search as one file of compiled code with the weights, `search.pt2`, which C++ runs without Python.

Shape suffixes: B texts (one), S beams, T tokens.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..modeling import WeftForConditionalGeneration
from ..modeling.decoding.compiled import write_package
from ..modeling.decoding.continuous import continuous_settings, needs_more
from ..modeling.decoding.dispatch import reason_against_graphs
from ..modeling.decoding.graph import GraphSearch, for_single, kind_of
from ..modeling.transformers_names import special_tokens

FILE = "search.pt2"
# numbers of source tokens and of target tokens of the samples of a comparison, which are not those of the export
_SAMPLES = ((7, 20), (4, 40), (11, 3), (2, 12))


class SearchGraph(nn.Module):
    """The graph that writes a text: the encoder and the whole search, with the settings that are saved with the model.

    Args:
        model: the model, on the CPU.

    Raises:
        ValueError: the search of this model cannot be a graph. The message names the reason.
    """

    def __init__(self, model: WeftForConditionalGeneration):
        super().__init__()
        settings = continuous_settings(model, {})
        reason = reason_against_graphs(model)
        if model.generation_config.do_sample:
            reason = "the saved settings sample texts (do_sample=True)"
        if model.device.type != "cpu":
            reason = "the model is not on the CPU"
        if reason is None and special_tokens(settings).ends is None:
            reason = "the model has no end token"
        if reason is None and needs_more(model, settings):
            reason = "the saved settings need logits processors or other criteria than the end tokens"
        if reason is not None:
            raise ValueError(f"The search cannot be exported: {reason}.")
        graphs = GraphSearch(model)
        self.source, self.loop = graphs.source, graphs.loop(kind_of(settings))
        self.start, self.ends, self.pad = special_tokens(settings)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        space: torch.Tensor,
        condition_values: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        r"""Write the text of one source.

        Args:
            input_ids (`torch.LongTensor` of shape `(1, source)`): ids of the source tokens, two at least.
            attention_mask (`torch.LongTensor` of shape `(1, source)`): 1 for source tokens and 0 for pads, at any
                position.
            space (`torch.LongTensor` of shape `(target,)`): any values. Its length, two at least, is the largest
                length of the text with its start token.
            condition_values (`torch.Tensor` of shape `(1, num_condition_features)`): the condition values, if the
                model has any.

        Returns:
            The ids of the text with its start token `(target,)`, and the number of its tokens `()`.
        """
        _, keys, values = self.source(input_ids, attention_mask, condition_values)
        longest = torch.ones_like(space).sum()
        start = self.loop.start(keys, self.start, int(self.pad), space.shape[0])
        length, *state = self.loop(*start, keys, values, attention_mask, self.ends, self.pad, longest)
        ids_BST, lengths_BS = self.loop.best(length, *state)
        return ids_BST[0, 0], lengths_BS[0, 0]


def _example(model: WeftForConditionalGeneration, source: int, target: int) -> tuple[torch.Tensor, ...]:
    config, generator = model.config, torch.Generator().manual_seed(source)
    ids = torch.randint(0, config.vocab_size, (1, source), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, source // 2] = 0  # a pad in the middle
    features = config.num_condition_features
    conditions = [torch.randn(1, features, generator=generator)] if features else []
    return ids, mask, torch.zeros(target).long(), *conditions


@torch.no_grad()
def write_search(model: WeftForConditionalGeneration, folder: Path) -> None:
    """Compile the search for one text as `search.pt2`, which takes a minute or two and needs a C++ compiler.

    Args:
        model: the model, on the CPU.
        folder: an existing folder.

    Raises:
        ValueError: the search of this model cannot be a graph, see [`SearchGraph`].
    """
    graph, arguments = SearchGraph(model).eval(), _example(model, 5, 9)
    free = torch.export.Dim.DYNAMIC
    shapes: list[dict[int, Any]] = [{1: free}, {1: free}, {0: free}, {}]
    program = torch.export.export(graph, arguments, dynamic_shapes=tuple(shapes[: len(arguments)]), strict=False)
    write_package(for_single(program), folder / FILE, {})


@torch.no_grad()
def differing_outputs(model: WeftForConditionalGeneration, folder: Path) -> float:
    """Compare the outputs of an exported search with those of `generate`, for sources of several lengths.

    Args:
        model: the model.
        folder: the folder that [`write_search`] has written for this model.

    Returns:
        The share of outputs that differ, between 0 and 1.
    """
    search: Any = torch._inductor.aoti_load_package(str(folder / FILE))
    number = 0
    for source, target in _SAMPLES:
        ids, mask, space, *conditions = _example(model, source, target)
        condition = {"condition_values": conditions[0]} if conditions else {}
        ids_of_text = model.generate(ids, attention_mask=mask, **condition, max_length=None, max_new_tokens=target - 1)
        text, length = search(ids, mask, space, *conditions)
        number += text[:length].tolist() != ids_of_text[0].tolist()
    return number / len(_SAMPLES)
