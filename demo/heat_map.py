"""Attention and experts as HTML tables. The first row and column stay in view, and each cell is labelled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined

from .attention import LayerExperts, Look

# Cells with a smaller weight stay empty: most cells are that small, and a page with a hundred thousand labels is slow.
_LEAST = 0.005
# The hues of experts. With more experts than hues, several share one, and the number in the cell tells them apart.
_HUES = (210, 30, 140, 340, 270, 55, 180, 0)

_HEAT_MAP = """\
<p class="weft-quiet">Down: what was written. Across: the source. Empty: under {{ percent(least) }} %; \
<span class="weft-key"></span> {{ percent(most) }} %.</p>
<div class="weft-table weft-heat" tabindex="0" role="group" aria-label="Cross-attention"><table>
<thead><tr><td>{% include "columns.html" %}</thead>
<tbody>
{%- for token, weights in rows %}
{%- set place = loop.index %}<tr><th scope=row><span>{{ token }}</span>
{%- for source, weight in weights %}<td
{%- if weight >= least %} style="--w:{{ percent(weight / most, 0) }}" aria-label="{{ token }} ({{ place }}) looks at \
{{ source }} ({{ loop.index }}): {{ percent(weight) }} %"{% endif %}>
{%- endfor %}
{%- endfor %}</tbody></table></div>"""

_EXPERTS = """\
{% for title, tokens, rows in stacks -%}
<h4 class="weft-title">{{ title }}</h4>
<div class="weft-table weft-experts" tabindex="0" role="group" aria-label="{{ title }}"><table>
<thead><tr><td>{% include "columns.html" %}</thead>
<tbody>
{%- for layer, cells in rows %}<tr><th scope=row>layer {{ layer }}
{%- for token, experts in cells %}<td aria-label="{{ token }}:
{%- for expert in experts %} expert {{ expert.number }} ({{ percent(expert.prob, 0) }} %){{ "," if not loop.last }}
{%- endfor %}">
{%- for expert in experts %}<b style="--hue:{{ expert.hue }}">{{ expert.number }}</b>{% endfor %}
{%- endfor %}
{%- endfor %}</tbody></table></div>
{% else -%}
<p class="weft-quiet">All layers of this model are dense: it has no experts.</p>
{%- endfor %}"""

# Labels of one or two characters stay upright: a bracket on its side is not readable.
_COLUMNS = """\
{% for token in tokens %}<th scope=col{% if token|length < 3 %} class=weft-short{% endif %}><span>{{ token }}</span>
{%- endfor %}"""

_TEMPLATES = Environment(
    loader=DictLoader({"heat_map.html": _HEAT_MAP, "experts.html": _EXPERTS, "columns.html": _COLUMNS}),
    autoescape=True,
    undefined=StrictUndefined,
)
_TEMPLATES.globals["percent"] = lambda share, decimals=1: f"{100 * share:.{decimals}f}"


def heat_map(found: Look, layer: int | None = None, head: int | None = None) -> str:
    """
    Draw the cross-attention as a table, with a row for each written token and a column for each source token.

    The darker a cell is, the more attention it stands for.

    Args:
        found (`Look`):
            The result of [`look`].
        layer (`int`, *optional*):
            The decoder layer, counted from 0. Defaults to the mean of all layers.
        head (`int`, *optional*):
            The attention head, counted from 0. Defaults to the mean of all heads.

    Returns:
        `str`: the HTML.
    """
    weights_TS = found.attention(layer, head)
    return _TEMPLATES.get_template("heat_map.html").render(
        tokens=found.source,
        rows=[
            (token, list(zip(found.source, weights, strict=True)))
            for token, weights in zip(found.written, weights_TS.tolist(), strict=True)
        ],
        most=max(float(weights_TS.max()), _LEAST),
        least=_LEAST,
    )


def expert_map(found: Look) -> str:
    """
    Draw the selected experts as a table for each stack with sparse layers.

    A table has a row for each sparse layer and a column for each token.

    Args:
        found (`Look`):
            The result of [`look`].

    Returns:
        `str`: the HTML.
    """
    stacks = (
        ("Encoder, over the source", found.source, found.encoder),
        ("Decoder, over what it read", found.read, found.decoder),
    )
    return _TEMPLATES.get_template("experts.html").render(
        stacks=[
            (title, tokens, [(layer.layer + 1, list(_cells(tokens, layer))) for layer in layers])
            for title, tokens, layers in stacks
            if layers
        ]
    )


def _cells(tokens: Sequence[str], layer: LayerExperts) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each token with its experts, as numbers counted from 1."""
    for token, ids, probs in zip(tokens, layer.ids_NK.tolist(), layer.probs_NK.tolist(), strict=True):
        yield (
            token,
            [
                {"number": expert + 1, "prob": prob, "hue": _HUES[expert % len(_HUES)]}
                for expert, prob in zip(ids, probs, strict=True)
            ],
        )
