"""The theme and the CSS of the page, and the settings for its launch."""

from __future__ import annotations

from typing import Any

import gradio as gr

# Only fonts of the system: gradio's own themes load fonts from Google.
_THEME = gr.themes.Default(
    primary_hue="teal",
    font=["system-ui", "Helvetica Neue", "Arial", "sans-serif"],
    font_mono=["ui-monospace", "Menlo", "Consolas", "monospace"],
).set(  # the default greys and teal have too little contrast on white
    body_text_color_subdued="*neutral_600",
    body_text_color_subdued_dark="*neutral_400",
    block_info_text_color="*neutral_600",
    block_info_text_color_dark="*neutral_400",
    color_accent="*primary_700",
    button_primary_background_fill="*primary_700",
    button_primary_background_fill_hover="*primary_800",
    button_primary_background_fill_dark="*primary_700",
)

_CSS = """
.weft-quiet { color: var(--body-text-color-subdued); font-size: 14px; overflow-wrap: anywhere; }
.weft-alert { padding: 10px 14px; border-radius: 8px; background: color-mix(in srgb, #d64545 16%, transparent);
  overflow-wrap: anywhere; }
/* gradio's sign of an error lies over the reason */
:is(#routes, [id$="-look-attention"], [id$="-look-experts"]) :is(span.error, .clear-status) { display: none; }
.weft-routes details { border: 1px solid var(--border-color-primary); border-radius: 10px; margin-top: 10px; }
.weft-routes summary { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: baseline; padding: 9px 14px;
  cursor: pointer; }
.weft-badge { padding: 1px 9px; border-radius: 99px; font-size: 13px; font-weight: 600;
  background: color-mix(in srgb, currentColor 14%, transparent); }
.weft-purchasable { color: #17693a; } .weft-lacking { color: #a11f1f; }
.dark .weft-purchasable { color: #86d9a6; } .dark .weft-lacking { color: #ffa8a8; }
.weft-view { overflow-x: auto; padding: 0 14px 14px; }
.weft-view + .weft-view { display: none; }
@media (max-width: 900px) {
  .weft-view { display: none; }
  .weft-view + .weft-view { display: block; }
}
/* a narrow window scrolls sideways, so that letters of molecules (13 pixels in the drawing) stay readable */
.weft-view > svg { min-width: calc(var(--width) * .72); }
.weft-needs { padding: 0 14px 12px; overflow-wrap: anywhere; }

h4.weft-title { font-weight: 600; margin: 18px 0 6px; }
.weft-table { overflow: auto; max-height: 70vh; border: 1px solid var(--border-color-primary); border-radius: 8px;
  width: fit-content; max-width: 100%; }
.weft-table table { border-collapse: separate; border-spacing: 1px; font: 12px/1.3 var(--font-mono); margin: 0; }
.weft-table th { position: sticky; background: var(--background-fill-primary); color: var(--body-text-color);
  font-weight: 500; padding: 1px 5px; white-space: pre; z-index: 1; }
.weft-table thead th { top: 0; vertical-align: bottom; min-width: 17px; padding: 4px 1px; }
.weft-table thead th span { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 11em; overflow: hidden; }
.weft-table thead th.weft-short span { writing-mode: horizontal-tb; transform: none; }
.weft-table tbody th { left: 0; text-align: right; max-width: 9em; overflow: hidden; text-overflow: ellipsis; }
.weft-table thead td { position: sticky; left: 0; top: 0; z-index: 2; background: var(--background-fill-primary); }
.weft-table td { padding: 0; min-width: 17px; height: 17px; text-align: center; border: 0; }
.weft-heat tbody td { background: color-mix(in srgb, var(--weft-hot) calc(var(--w, 0) * 1%), var(--weft-cold)); }
.weft-key { display: inline-block; width: 12px; height: 12px; border-radius: 2px; background: var(--weft-hot); }
.weft-experts b { display: block; font-weight: 500; padding: 1px 3px;
  background: color-mix(in srgb, hsl(var(--hue) 80% 50%) 34%, transparent); }
.weft-table tbody td:hover { outline: 2px solid var(--body-text-color); }
/* the label of a cell, in a corner of the window, where no edge of the table cuts it off; on a phone, a tap shows it */
.weft-table tbody td:hover::after { position: fixed; left: 12px; bottom: 12px; z-index: 99; padding: 5px 11px;
  border-radius: 7px; background: var(--body-text-color); color: var(--body-background-fill); white-space: pre;
  content: "under 0.5 %"; pointer-events: none; }
.weft-table tbody td[aria-label]:hover::after { content: attr(aria-label); }
:root { --weft-hot: #0f766e; --weft-cold: rgba(15, 118, 110, .05); }
.dark { --color-accent: var(--primary-400); --weft-hot: #5eead4; --weft-cold: rgba(94, 234, 212, .06); }
"""

# Keyword arguments of `Blocks.launch`, which a Space uses too.
LAUNCH: dict[str, Any] = {
    "theme": _THEME,
    "css": _CSS,
    "footer_links": [],
    "max_file_size": "20mb",
    # each session keeps its last `Look` in memory
    "state_session_capacity": 100,
    "ssr_mode": False,
    "show_error": False,
}
