"""How far ahead to draft: as far as has saved time."""

import statistics
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Pace:
    """Chooses the number of drafted tokens by the time that a step has taken with each number.

    A round is a call of the model and the steps that do without another one. The time of a step is the median of the
    rounds' seconds by the mean of their steps. Each number is tried for a few rounds, the larger one only if the
    smaller one did not slow decoding down. Later the neighbours of the best number are tried again, more and more
    rarely: so drafts that are refused cost little.

    Args:
        most: the largest number.
    """

    # Rounds of a first trial, rounds of a later one, and rounds between the first two trials and at most.
    FIRST, AGAIN, REST, LONGEST_REST = 6, 2, 32, 512

    def __init__(self, most: int):
        self.numbers = sorted({0, (most + 1) // 2, most})
        self.rounds: dict[int, deque[tuple[float, int]]] = {number: deque(maxlen=32) for number in self.numbers}
        self.best, self.rest = 0, self.REST
        self.plan = [0] * self.FIRST  # the next rounds, the last one first
        self.seconds, self.steps, self.number = 0.0, 0, 0

    @contextmanager
    def round(self) -> Iterator[int]:
        """Time a call of the model. The value is the number of tokens to draft."""
        if self.steps:
            self.rounds[self.number].append((self.seconds, self.steps))
        self.number = number = self.choose()
        started = time.perf_counter()
        yield number
        self.seconds, self.steps = time.perf_counter() - started, 1

    def count_step(self) -> None:
        """Count a step that needed no call."""
        self.steps += 1

    def cost(self, number: int) -> float:
        """Return the seconds of a step with this number."""
        rounds = list(self.rounds[number])
        return statistics.median(seconds for seconds, _ in rounds) / statistics.fmean(steps for _, steps in rounds)

    def choose(self) -> int:
        """Return the number of tokens to draft in the next round."""
        if self.plan:
            return self.plan.pop()
        self.best = min((number for number in self.numbers if self.rounds[number]), key=self.cost)
        place = self.numbers.index(self.best)
        larger = self.numbers[place + 1 : place + 2]
        if larger and not self.rounds[larger[0]]:
            self.plan = larger * self.FIRST
        else:
            others = self.numbers[max(0, place - 1) : place] + larger
            self.plan = [other for other in others for _ in range(self.AGAIN)] + [self.best] * self.rest
            self.rest = min(2 * self.rest, self.LONGEST_REST)
        return self.plan.pop()
