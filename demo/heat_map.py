"""Attention and experts as HTML tables, whose head row and first column stay in sight and whose cells say what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .attention import LayerExperts, Look

# Below it a cell is left empty: most are, and a page of a hundred thousand labels is slow.
_LEAST = 0.005
# Colours of experts; with more of them than colours, the number in the cell tells.
_HUES = (210, 30, 140, 340, 270, 55, 180, 0)


def heat_map(found: Look, layer: int | None = None, head: int | None = None) -> str:
    """A row for each token that was written, a column for each of the source, the darker the more attention.

    Args:
        found: what [`look`] gives.
        layer, head: which to show, counted from 0; None for the mean of all.
    """
    weights_TS = found.attention(layer, head)
    most = max(float(weights_TS.max()), _LEAST)
    columns = _columns(found.source)
    rows = []
    for number, (token, row) in enumerate(zip(found.written, weights_TS.tolist(), strict=True), 1):
        cells = "".join(
            f'<td style="--w:{100 * weight / most:.0f}" aria-label="{escape(token)} ({number}) looks at '
            f'{escape(source)} ({place}): {100 * weight:.1f} %">'
            if weight >= _LEAST
            else "<td>"
            for place, (source, weight) in enumerate(zip(found.source, row, strict=True), 1)
        )
        rows.append(f"<tr><th scope=row>{_label(token)}{cells}")
    return (
        f'<p class="weft-quiet">Down: what was written. Across: the source. '
        f'Empty: under {100 * _LEAST:.1f} %; <span class="weft-key"></span> {100 * most:.1f} %.</p>\n'
        '<div class="weft-table weft-heat" tabindex="0" role="group" aria-label="Cross-attention"><table>'
        f"<thead><tr><td>{columns}</thead>\n<tbody>{''.join(rows)}</tbody></table></div>"
    )


def expert_map(found: Look) -> str:
    """For each stack with sparse layers a table: a row for each of them, a column for each token, its experts in the cell."""
    stacks = (
        ("Encoder, over the source", found.source, found.encoder),
        ("Decoder, over what it read", found.read, found.decoder),
    )
    tables = [_experts(*stack) for stack in stacks if stack[2]]
    return "\n".join(tables) or '<p class="weft-quiet">All layers of this model are dense: it has no experts.</p>'


def _experts(title: str, tokens: Sequence[str], layers: Sequence[LayerExperts]) -> str:
    columns = _columns(tokens)
    rows = "".join(
        f"<tr><th scope=row>layer {layer.layer + 1}"
        + "".join(map(_expert_cell, tokens, layer.ids_NK.tolist(), layer.probs_NK.tolist()))
        for layer in layers
    )
    return (
        f'<h4 class="weft-title">{title}</h4><div class="weft-table weft-experts" tabindex="0" role="group" aria-label="{title}">'
        f"<table><thead><tr><td>{columns}</thead>\n<tbody>{rows}</tbody></table></div>"
    )


def _expert_cell(token: str, ids: Sequence[int], probs: Sequence[float]) -> str:
    said = ", ".join(f"expert {expert + 1} ({100 * prob:.0f} %)" for expert, prob in zip(ids, probs, strict=True))
    numbers = "".join(f'<b style="--hue:{_HUES[expert % len(_HUES)]}">{expert + 1}</b>' for expert in ids)
    return f'<td aria-label="{escape(token)}: {said}">{numbers}'


def _columns(tokens: Sequence[str]) -> str:
    # short ones stand upright: a bracket on its side is none
    return "".join(f"<th scope=col{' class=weft-short' if len(token) < 3 else ''}>{_label(token)}" for token in tokens)


def _label(token: str) -> str:
    return f"<span>{escape(token)}</span>"
