"""A table of key patterns, and what running it over a source's weights finds; it runs the other way too.

A pattern is a key with places: `<part>` stands for `weight` or `bias`, `<stack>` for `encoder` or `decoder`, `<layer>`,
`<expert>` and every other name for a number.
A place that only the source's pattern has is gathered: its tensors reach the operation as a list in the order of the
number. A place that only Weft's pattern has is spread: every key it fits gets a copy.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch

from ..configuration import WeftConfig
from .operations import Heads, Operation

Weights = dict[str, torch.Tensor]
Places = dict[str, str]

_PLACE = re.compile(r"<(\w+)>")
_WORDS = {"part": "weight|bias", "stack": "encoder|decoder"}


@lru_cache(maxsize=4096)
def _regex(pattern: str) -> re.Pattern:
    seen: set[str] = set()

    def group(match: re.Match) -> str:
        name = match[1]
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return f"(?P<{name}>{_WORDS.get(name, '[0-9]+')})"

    pieces = _PLACE.split(pattern)
    literal = [re.escape(piece) for piece in pieces[::2]]
    places = [group(match) for match in _PLACE.finditer(pattern)]
    return re.compile("".join(a + b for a, b in zip(literal, [*places, ""], strict=True)))


def match(pattern: str, key: str) -> Places | None:
    """What stands in the places of `pattern` in `key`; None when the key does not fit."""
    found = _regex(pattern).fullmatch(key)
    return None if found is None else found.groupdict()


def fill(pattern: str, places: Places) -> str:
    """The pattern with its places filled, those that `places` does not know left open."""
    return _PLACE.sub(lambda place: places.get(place[1], place[0]), pattern)


def places_of(pattern: str) -> set[str]:
    return set(_PLACE.findall(pattern))


@dataclass(frozen=True)
class Rule:
    """Tensors of the source and what they become.

    Args:
        source: pattern of the source's keys.
        targets: patterns of Weft's keys, one for each tensor the operation gives.
        operation: what happens on the way (default: nothing).
    """

    source: str
    targets: tuple[str, ...]
    operation: Operation = field(default_factory=Operation)

    @property
    def gathered(self) -> set[str]:
        return places_of(self.source) - places_of(self.targets[0])

    @property
    def spread(self) -> set[str]:
        return places_of(self.targets[0]) - places_of(self.source)


@dataclass(frozen=True)
class Leave:
    """Keys of the source that Weft does without.

    Args:
        source: pattern of the keys.
        reason: why nothing is lost, for the report.
        same_as: the key whose tensor this one repeats; where it holds another, conversion is refused.
        back: makes the tensor from the source's others, for the way from Weft.
    """

    source: str
    reason: str
    same_as: str | None = None
    back: Callable[[Weights], torch.Tensor] | None = None


Table = Sequence[Rule | Leave]


def rename(source: str, *targets: str, operation: Operation | None = None) -> Rule:
    """A rule in one line."""
    return Rule(source, targets, operation or Operation())


@dataclass
class Found:
    """What a table made of a source's weights."""

    weights: Weights = field(default_factory=dict)
    matched: list[tuple[str, int]] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        return not (self.missing or self.unexpected or self.wrong)

    def describe(self) -> str:
        """The table of matched, missing and unexpected keys, with every key that stands in the way named."""
        rows = [f"{'matched':<12}{sum(count for _, count in self.matched):>6}"]
        rows += [f"  {line}  ({count})" for line, count in self.matched]
        for name, entries in (
            ("left out", [f"{key}: {reason}" for key, reason in self.left]),
            ("new", [f"{key}: the source has none, it starts at random" for key in self.new]),
            ("missing", self.missing),
            ("unexpected", self.unexpected),
            ("wrong", self.wrong),
        ):
            rows += [f"{name:<12}{len(entries):>6}", *(f"  {entry}" for entry in entries)]
        return "\n".join(rows)


def heads_of(config: WeftConfig, target: str) -> Heads:
    return Heads(*config.stack_heads(is_decoder=".decoder." in target))


def to_weft(weights: Mapping[str, torch.Tensor], table: Table, config: WeftConfig, shapes: Mapping[str, Sequence[int]],
            new: Iterable[str] = ()) -> Found:  # fmt: skip
    """Run the table over a source's weights.

    Args:
        weights: the source's tensors by its own keys.
        shapes: the shape of every tensor that the Weft model of `config` holds.
        new: patterns of Weft's keys that this source has nothing for.
    """
    found = Found()
    open_keys = dict.fromkeys(weights)
    for entry in table:
        fitting = {key: places for key in open_keys if (places := match(entry.source, key)) is not None}
        if isinstance(entry, Leave):
            found.left += [(key, entry.reason) for key in fitting if not _repeats_another(entry, key, weights, found)]
            used = list(fitting)
        else:
            used = _apply(entry, fitting, weights, config, shapes, found)
        for key in used:
            open_keys.pop(key)
    found.unexpected += list(open_keys)
    for key in sorted(set(shapes) - set(found.weights)):
        if any(match(pattern, key) is not None for pattern in new):
            found.new.append(key)
        else:
            found.missing.append(f"{_origin(key, table)} (for {key})")
    return found


def _origin(key: str, table: Table) -> str:
    """The source's key or pattern that one of Weft's keys would come from."""
    for rule in (entry for entry in table if isinstance(entry, Rule)):
        for target in rule.targets:
            if (places := match(target, key)) is not None:
                return fill(rule.source, places)
    return "nothing in this source"


def _repeats_another(entry: Leave, key: str, weights: Mapping[str, torch.Tensor], found: Found) -> bool:
    """Note it when a key that should repeat another holds something else."""
    other = weights.get(entry.same_as) if entry.same_as else None
    if other is None or torch.equal(other, weights[key]):
        return False
    found.wrong.append(f"{key} differs from {entry.same_as}, which it should repeat: the two are one in Weft")
    return True


def _apply(rule: Rule, fitting: dict[str, Places], weights, config, shapes, found: Found) -> list[str]:
    """Convert the keys that fit a rule, group by group; returns those that were used."""
    groups: dict[tuple, list[str]] = {}
    gathered = rule.gathered
    for key, places in fitting.items():
        groups.setdefault(tuple((n, v) for n, v in places.items() if n not in gathered), []).append(key)
    used: list[str] = []
    for shared, keys in groups.items():
        if gathered:
            keys.sort(key=lambda key: [int(fitting[key][name]) for name in sorted(gathered)])
        targets = _targets(rule, dict(shared), shapes)
        if not targets:
            continue  # a key of the right form that this configuration has no place for
        used += keys
        tensors = _run(rule, keys, weights, heads_of(config, targets[0][0]), found)
        # none where the operation could not take the tensors apart, which `_run` noted
        for tensor, names in zip(tensors, targets, strict=bool(tensors)):
            for name in names:
                if tuple(tensor.shape) != tuple(shapes[name]):
                    found.wrong.append(
                        f"{name} would be {tuple(tensor.shape)} from {_shapes_of(keys, weights)}, and "
                        f"the configuration makes it {tuple(shapes[name])}"
                    )
                found.weights[name] = tensor
    if used:
        found.matched.append((f"{rule.source} -> {', '.join(rule.targets)}", len(used)))
    return used


def _targets(rule: Rule, places: Places, shapes) -> list[list[str]]:
    """Weft's keys for each tensor of the rule; empty when the model has none of them."""
    patterns = [fill(target, places) for target in rule.targets]
    if not rule.spread:
        names = [[pattern] if pattern in shapes else [] for pattern in patterns]
    else:
        names = [[key for key in shapes if match(pattern, key) is not None] for pattern in patterns]
    return names if all(names) else []


def _shapes_of(keys: list[str], weights) -> str:
    return ", ".join(f"{key} {tuple(weights[key].shape)}" for key in keys)


def _run(rule: Rule, keys: list[str], weights, heads: Heads, found: Found) -> list[torch.Tensor]:
    try:
        return rule.operation.forward([weights[key] for key in keys], heads)
    except RuntimeError as error:  # a shape that the operation cannot take apart
        found.wrong.append(f"{_shapes_of(keys, weights)} cannot be taken apart or put together: {error}")
        return []


def from_weft(weights: Mapping[str, torch.Tensor], table: Table, config: WeftConfig) -> Weights:
    """Run the table the other way: Weft's weights under the source's keys.

    Raises:
        ValueError: the source has no place for a tensor, or one place for tensors that differ.
    """
    result: Weights = {}
    open_keys = dict.fromkeys(weights)
    rules = [entry for entry in table if isinstance(entry, Rule)]
    for rule in rules:
        anchors = [(key, places) for key in open_keys if (places := match(rule.targets[0], key)) is not None]
        for key, places in anchors:
            names = [fill(target, places) for target in rule.targets]
            if any(name not in open_keys for name in names):
                continue
            tensors = rule.operation.backward([weights[name] for name in names], heads_of(config, key))
            source = fill(rule.source, places)
            if not rule.gathered and not tensors:
                continue  # not tensors this rule could have made
            if source in result and not torch.equal(result[source], tensors[0]):
                raise ValueError(f"{source} stands for all of {rule.targets[0]}, and {key} differs from the others.")
            result |= _named(source, rule, tensors)
            for name in names:
                open_keys.pop(name)
    if open_keys:
        raise ValueError(f"The source has no place for {', '.join(sorted(open_keys)[:5])}.")
    for entry in table:
        if isinstance(entry, Leave) and entry.source not in result:
            result |= _left(entry, result)
    return result


def _left(entry: Leave, result: Weights) -> Weights:
    """What Weft has no tensor for, from what the others have become."""
    if entry.same_as in result:
        return {entry.source: result[entry.same_as]}
    return {} if entry.back is None else {entry.source: entry.back(result)}


def _named(source: str, rule: Rule, tensors: Sequence[torch.Tensor]) -> Weights:
    """One tensor under the source's name, or several that it numbers."""
    if not rule.gathered:
        return {source: tensors[0]}
    (place,) = rule.gathered
    return {fill(source, {place: str(number)}): tensor for number, tensor in enumerate(tensors)}
