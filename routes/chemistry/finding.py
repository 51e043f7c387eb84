"""What speaks against a step, or is to be known of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Effect = Literal["fails", "refuses", "ranks lower", "note"]


class Finding(NamedTuple):
    """What speaks against a step, or is to be known of it.

    Args:
        text: the finding in words.
        effect: `"fails"`: the step cannot work as written. `"refuses"`: recorded reactions of the same transformation
            are no evidence for it. `"ranks lower"`: its route comes last among equals. `"note"`: nothing else follows.
        rule: the field of [`~planning.settings.Constraints`] that a step violates that fails.
    """

    text: str
    effect: Effect = "note"
    rule: str = ""
