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
#routes :is(span.error, .clear-status) { display: none; }
.weft-routes details { border: 1px solid var(--border-color-primary); border-radius: 10px; margin-top: 10px; }
.weft-routes summary { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: baseline; padding: 9px 14px;
  cursor: pointer; }
.weft-badge { padding: 1px 9px; border-radius: 99px; font-size: 13px; font-weight: 600;
  background: color-mix(in srgb, currentColor 14%, transparent); }
.weft-purchasable { color: #17693a; } .weft-lacking { color: #a11f1f; }
.dark .weft-purchasable { color: #86d9a6; } .dark .weft-lacking { color: #ffa8a8; }
.weft-view { overflow-x: auto; padding: 0 14px 14px; }
/* a narrow window scrolls sideways, so that letters of molecules (13 pixels in the drawing) stay readable */
.weft-view > svg { min-width: calc(var(--width) * .72); }
.weft-steps { margin: 0; padding: 0 14px 12px; list-style: none; overflow-wrap: anywhere; }
.weft-steps span { margin-right: 10px; } .weft-steps .kind { font-weight: 600; }
.weft-steps details { margin-top: 0; border: 0; } .weft-steps summary { padding: 2px 0; }
.weft-needs { padding: 0 14px 12px; overflow-wrap: anywhere; }
.dark { --color-accent: var(--primary-400); }
"""

# Keyword arguments of `Blocks.launch`.
LAUNCH: dict[str, Any] = {
    "theme": _THEME,
    "css": _CSS,
    "footer_links": [],
    "max_file_size": "20mb",
    "ssr_mode": False,
    "show_error": False,
}
