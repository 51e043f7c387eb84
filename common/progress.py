"""Shows the progress of long work on stderr: as a bar in a terminal, as a line every few seconds in a file."""

from __future__ import annotations

import sys
import time
from typing import Any

# Seconds between two lines.
SECONDS = 10.0


class Progress:
    """Counts finished items, and shows the count on stderr.

    Args:
        what: name of the work, shown before the count.
        total: number of items, or None if it is not known.
        unit: name of the items, in the plural.
        done: number of items that were finished before.
        is_shown: whether to show anything.
    """

    def __init__(
        self,
        what: str,
        total: int | None,
        unit: str,
        *,
        done: int = 0,
        is_shown: bool = True,
    ):
        self.what, self.total, self.unit, self.done = what, total, unit, done
        self._before, self._shown, self._start = done, done, time.monotonic()
        self._last = self._start
        self._is_shown = is_shown
        self._bar: Any = None
        if is_shown and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(desc=what, total=total, unit=f" {unit}", initial=done, file=sys.stderr)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Show the last count."""
        if self._bar is not None:
            self._bar.close()
        elif self._is_shown and self.done > self._shown:
            self._print()

    def update(self, count: int = 1) -> None:
        """Add `count` finished items."""
        self.done += count
        if self._bar is not None:
            self._bar.update(count)
        elif self._is_shown and time.monotonic() - self._last >= SECONDS:
            self._last = time.monotonic()
            self._print()

    def print(self, text: str) -> None:
        """Print a text on stdout, above the bar if there is one."""
        if self._bar is None:
            print(text, flush=True)
        else:
            self._bar.write(text, file=sys.stdout)
            sys.stdout.flush()

    def _print(self) -> None:
        self._shown = self.done
        seconds = time.monotonic() - self._start
        of = "" if self.total is None else f" of {self.total:,}"
        new = self.done - self._before
        rate = new / seconds if seconds else 0.0
        left = 0.0 if self.total is None or not rate else (self.total - self.done) / rate
        here = f"{new:,} of them in " if self._before else ""
        print(
            f"{self.what}: {self.done:,}{of} {self.unit}, {here}{seconds:.0f} s, {rate:.3g} a second"
            + (f", {left:.0f} s left" if left > 0 else ""),
            file=sys.stderr,
        )
