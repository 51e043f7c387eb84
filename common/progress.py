"""Shows the progress of long work on stderr: as a bar in a terminal, as a line every few seconds in a file."""

from __future__ import annotations

import sys
from threading import Thread
from time import sleep
from typing import Any

from tqdm import tqdm

# Seconds between two lines.
SECONDS = 10.0
# tqdm's own rate turns into seconds for an item when it is below 1.
_LEFT = ", {remaining} left"
_LINE = "{desc}: {n_fmt} of {total_fmt}{unit}, {elapsed}, {rate_noinv_fmt}" + _LEFT
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}]"


class Progress(tqdm):
    """Counts finished items, and shows the count on stderr.

    Args:
        what: name of the work, shown before the count.
        total: number of items, or None if it is not known.
        unit: name of the items, in the plural.
        done: number of items that were finished before.
        is_shown: whether to show anything.
    """

    bar_format: str

    def __init__(self, what: str, total: int | None, unit: str, *, done: int = 0, is_shown: bool = True):
        self.is_bar, self._what, self._has_stages = sys.stderr.isatty(), what, False
        form = _LINE if total is not None else _LINE.replace(" of {total_fmt}", "").replace(_LEFT, "")
        lines: dict[str, Any] = {"mininterval": SECONDS, "delay": SECONDS, "bar_format": form, "leave": False}
        super().__init__(
            desc=what, total=total, unit=f" {unit}", initial=done, file=sys.stderr, disable=not is_shown,
            **({"bar_format": _BAR} if self.is_bar else lines),
        )  # fmt: skip

    def display(self, msg: str | None = None, pos: int | None = None) -> Any:
        if self.is_bar:
            return super().display(msg, pos)
        print(self, file=sys.stderr)

    def begin(self, stage: str) -> None:
        """Show the name of the stage that begins, after those that are done. A terminal shows the seconds it takes."""
        self.n += self._has_stages
        if self.is_bar and not self._has_stages:
            Thread(target=self._tick, daemon=True).start()
        self._has_stages = True
        for part in (", {rate_noinv_fmt}", "<{remaining}", _LEFT):  # of stages, which differ
            self.bar_format = self.bar_format.replace(part, "")
        self.set_description_str(f"{self._what} {stage}")

    def _tick(self) -> None:
        while not self.disable:
            self.refresh()
            sleep(1)

    def print(self, text: str) -> None:
        """Print a text on stdout, above the bar if there is one."""
        if self.is_bar:
            self.write(text, file=sys.stdout)
        else:
            print(text)
        sys.stdout.flush()
