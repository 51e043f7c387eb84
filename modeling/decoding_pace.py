"""Whether to draft: once guesses come true, and as long as drafts pay.

Counts decide, and no clock. So a request computes the same numbers in each run, whatever else the machine does, and whatever
was asked before it.
"""

from collections import deque

# What a call of the model costs beside its tokens, in tokens: without drafts, and with drafts and all that belongs to them.
# Both are rounded from the median times of calls on a CPU, with 1, 5, 10 and 50 rows and a model of 4.7 million parameters
# (18 to 24, and 15 to 30). For other models they are an estimate.
_PLAIN_CALL, _DRAFTED_CALL = 20, 20


class Pace:
    """Chooses the number of drafted tokens of each call, for one request.

    At first nothing is drafted. Guesses are made all the same and compared with what is written, which costs no call. When
    so many come true that drafts may pay, some calls have drafts. A call without drafts serves one step of each row. A call
    with drafts has more tokens and serves more steps. If these are too few for the tokens, drafts rest, each time for longer.

    Args:
        most: the number of drafted tokens.
        rows: the number of rows of the request.
    """

    # Calls of a trial, calls that are remembered, guesses that are remembered, and calls without drafts after the first
    # trial that did not pay, and at most.
    TRIAL, CALLS, GUESSES, REST, LONGEST_REST = 2, 8, 8, 64, 512
    # Before a trial, guesses are compared for so many calls.
    WATCH = 32
    # With more rows no drafts have paid: some row nearly always takes another token than the likeliest.
    MOST_ROWS = 8

    def __init__(self, most: int, rows: int):
        self.most, self.rows = most, rows
        # steps and tokens of the last calls with drafts
        self.calls: deque[list[int]] = deque(maxlen=self.CALLS)
        # tokens of the last guesses that came true
        self.guesses: deque[int] = deque(maxlen=self.GUESSES)
        self.is_drafting, self.wait, self.rest = False, 0, self.REST

    @property
    def may_draft(self) -> bool:
        """Whether the request has few enough rows."""
        return self.rows <= self.MOST_ROWS

    @property
    def is_watching(self) -> bool:
        """Whether guesses are to be compared with what is written."""
        return self.may_draft and not self.is_drafting and self.wait <= self.WATCH

    def choose(self) -> int:
        """Return the number of tokens to draft in the next call."""
        self.wait = max(0, self.wait - 1)
        if self.is_drafting and len(self.calls) >= self.TRIAL and not self._pays():
            self.is_drafting, self.wait = False, self.rest
            self.rest = min(2 * self.rest, self.LONGEST_REST)
            self.guesses.clear()
        elif not self.is_drafting and not self.wait and self._may_pay():
            self.is_drafting = True
            self.calls.clear()
        return self.most if self.is_drafting else 0

    def count_call(self, tokens: int) -> None:
        """Count a call with drafts, which serves one step, and the tokens that it computes."""
        self.calls.append([1, tokens])

    def count_step(self) -> None:
        """Count a step that needs no call."""
        self.calls[-1][0] += 1

    def count_guess(self, right: int) -> None:
        """Count a guess that was compared with what was written, and how many of its tokens came true."""
        self.guesses.append(right)

    def _pays(self) -> bool:
        steps, tokens = (sum(counts) for counts in zip(*self.calls, strict=True))
        return steps * (_PLAIN_CALL + self.rows) >= len(self.calls) * _DRAFTED_CALL + tokens

    def _may_pay(self) -> bool:
        """Return whether drafts may pay, judged by guesses for single rows.

        All rows have to be right for a step that needs no call. So the steps of a call grow much less than the guesses
        that come true, and the drafted tokens less than the rows, which have many of them in common. How much less was
        fitted to routes with 5, 10 and 50 beams and with 16 sources.
        """
        guesses, right = len(self.guesses), sum(self.guesses)
        steps = guesses + right / (1 + 0.4 * (self.rows - 1))
        tokens = guesses * (self.rows + self.most * (1 + self.rows / 4))
        return right >= self.most and steps * (_PLAIN_CALL + self.rows) >= guesses * _DRAFTED_CALL + tokens
