"""One list of the reactions that the library and the model propose for a molecule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

Reactants = tuple[str, ...]

# The weights of the two log-probabilities, and the least log-probability of each source, which also stands for
# reactants that the source does not propose: a conditional logit, fitted to 600 reactions that no table reports: 300
# of USPTO-full and 300 of USPTO-50K's validation part.
_WEIGHTS, _LEAST = (0.6, 0.3), (-8.0, -6.0)


def merged(
    recorded: Mapping[Reactants, float], written: Mapping[Reactants, float], first: Iterable[Reactants] = ()
) -> dict[Reactants, float]:
    """Return the probabilities of sets of reactants from two sources, the most probable first.

    They are proportional to a product of powers of the probabilities of both sources, and add up to 1.

    Args:
        recorded: sets of reactants that the library proposes, with their log-probabilities.
        written: the same that the model proposes.
        first: sets that come before all others, such as those of a user's own library, in this order.
    """
    sources = tuple(zip((recorded, written), _WEIGHTS, _LEAST, strict=True))
    scores = {
        reactants: sum(weight * max(source.get(reactants, least), least) for source, weight, least in sources)
        for reactants in {**recorded, **written}
    }
    total = math.fsum(map(math.exp, scores.values()))
    order = [reactants for reactants in first if reactants in scores]
    order += sorted(scores.keys() - set(order), key=lambda reactants: (-scores[reactants], reactants))
    return {reactants: math.exp(scores[reactants]) / total for reactants in order}
