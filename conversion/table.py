"""Tables of key patterns, which convert the weights of a source to Weft and back.

A pattern is a key with placeholders ("places"): `<part>` stands for `weight` or `bias`, `<stack>` for `encoder` or
`decoder`, and `<layer>`, `<expert>` and any other name for a number. If only the source's pattern has a placeholder,
it is gathered: the operation gets its tensors as a list in the order of the numbers. If only Weft's pattern has it, it
is spread: every matching key gets a copy.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch

from ..configuration import WeftConfig
from .operations import UNCHANGED, Heads, Operation

Weights = dict[str, torch.Tensor]
Places = dict[str, str]

_PLACE = re.compile(r"<(\w+)>")
_WORDS = {"part": "weight|bias", "stack": "encoder|decoder"}


@lru_cache(maxsize=4096)
def _regex(pattern: str) -> re.Pattern:
    names: set[str] = set()

    def group(match: re.Match) -> str:
        name = match[1]
        if name in names:
            return f"(?P={name})"
        names.add(name)
        return f"(?P<{name}>{_WORDS.get(name, '[0-9]+')})"

    # `re.escape` leaves <, > and _ as they are
    return re.compile(_PLACE.sub(group, re.escape(pattern)))


def match(pattern: str, key: str) -> Places | None:
    """Return the values of a pattern's placeholders in a key, or None if the key does not match."""
    hit = _regex(pattern).fullmatch(key)
    return None if hit is None else hit.groupdict()


def fill(pattern: str, places: Places) -> str:
    """Return the pattern with its placeholders replaced by the values in `places`. Others stay."""
    return _PLACE.sub(lambda place: places.get(place[1], place[0]), pattern)


def places_of(pattern: str) -> set[str]:
    return set(_PLACE.findall(pattern))


@dataclass(frozen=True)
class KeyRule:
    """Converts tensors of the source to tensors of Weft.

    Args:
        source: pattern of the source's keys.
        targets: patterns of Weft's keys, one for each tensor that the operation returns.
        operation: the operation.
    """

    source: str
    targets: tuple[str, ...]
    operation: Operation

    @property
    def gathered(self) -> set[str]:
        return places_of(self.source) - places_of(self.targets[0])


@dataclass(frozen=True)
class Ignored:
    """Keys of the source that Weft does not need.

    Args:
        source: pattern of the keys.
        reason: why nothing is lost, for the report.
        same_as: the key of a tensor that this one must be equal to.
        back: makes the tensor from the source's other tensors, for the conversion from Weft.
    """

    source: str
    reason: str
    same_as: str | None = None
    back: Callable[[Weights], torch.Tensor] | None = None


KeyTable = Sequence[KeyRule | Ignored]


def rename(source: str, *targets: str, operation: Operation = UNCHANGED) -> KeyRule:
    """Return a rule. Its operation changes nothing by default."""
    return KeyRule(source, targets, operation)


def renames(there: str, here: str, names: Mapping[str, str]) -> list[KeyRule]:
    """Return rules for the weights and biases of several modules.

    `names` maps the source's names within `there` to Weft's names within `here`.
    """
    return [rename(f"{there}.{a}.<part>", f"{here}.{b}.<part>") for a, b in names.items()]


@dataclass
class TableResult:
    """The result of applying a table to the weights of a source.

    Args:
        weights: tensors by Weft's keys.
        matched: for each rule that was used, a description and the number of keys.
        left: keys that Weft does not need, with the reason.
        new: Weft's keys that the source does not have.
        missing: keys of the source that Weft needs.
        unexpected: keys of the source that no entry of the table matches.
        wrong: problems with the values or shapes of tensors.
    """

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
        """Return a report of matched, left out, new, missing, unexpected and wrong keys."""
        rows = [f"{'matched':<12}{sum(count for _, count in self.matched):>6}"]
        rows += [f"  {line}  ({count})" for line, count in self.matched]
        for name, entries in (
            ("left out", [f"{key}: {reason}" for key, reason in self.left]),
            ("new", [f"{key}: missing in the source, initialized at random" for key in self.new]),
            ("missing", self.missing),
            ("unexpected", self.unexpected),
            ("wrong", self.wrong),
        ):
            rows += [f"{name:<12}{len(entries):>6}", *(f"  {entry}" for entry in entries)]
        return "\n".join(rows)


def heads_of(config: WeftConfig, target: str) -> Heads:
    return Heads(*config.stack_heads(is_decoder=".decoder." in target))


def to_weft(
    weights: Mapping[str, torch.Tensor], table: KeyTable, config: WeftConfig, shapes: Mapping[str, Sequence[int]],
            new: Iterable[str] = ()) -> TableResult:  # fmt: skip
    """Apply the table to a source's weights.

    Args:
        weights: the source's tensors by its keys.
        table: the table.
        config: the configuration of the Weft model.
        shapes: the shapes of all tensors of the Weft model, by their keys.
        new: patterns of Weft's keys that this source does not have.
    """
    result = TableResult()
    open_keys = dict.fromkeys(weights)
    for entry in table:
        fitting = {key: places for key in open_keys if (places := match(entry.source, key)) is not None}
        if isinstance(entry, Ignored):
            result.left += [(key, entry.reason) for key in fitting if not _differs(entry, key, weights, result)]
            sources = list(fitting)
        else:
            sources = _apply(entry, fitting, weights, config, shapes, result)
        for key in sources:
            open_keys.pop(key)
    result.unexpected += list(open_keys)
    for key in sorted(set(shapes) - set(result.weights)):
        if any(match(pattern, key) is not None for pattern in new):
            result.new.append(key)
        else:
            result.missing.append(f"{origin(key, table)} (for {key})")
    return result


def origin(key: str, table: KeyTable) -> str:
    """Return the key or pattern of the source that one of Weft's keys comes from."""
    for rule in (entry for entry in table if isinstance(entry, KeyRule)):
        for target in rule.targets:
            if (places := match(target, key)) is not None:
                return fill(rule.source, places)
    return "nothing in this source"


def _differs(entry: Ignored, key: str, weights: Mapping[str, torch.Tensor], result: TableResult) -> bool:
    """Return whether a tensor differs from the one it must be equal to, and record it in `found`."""
    other = weights.get(entry.same_as) if entry.same_as else None
    if other is None or torch.equal(other, weights[key]):
        return False
    result.wrong.append(f"{key} differs from {entry.same_as}, but the two must be equal: Weft has one tensor for both")
    return True


def _apply(rule: KeyRule, fitting: dict[str, Places], weights, config, shapes, result: TableResult) -> list[str]:
    """Convert the keys that match a rule, group by group, and return the used ones."""
    groups: dict[tuple, list[str]] = {}
    gathered = rule.gathered
    for key, places in fitting.items():
        groups.setdefault(tuple((n, v) for n, v in places.items() if n not in gathered), []).append(key)
    sources: list[str] = []
    for target, keys in groups.items():
        if gathered:
            keys.sort(key=lambda key: [int(fitting[key][name]) for name in sorted(gathered)])
        targets = _targets(rule, dict(target), shapes)
        if not targets:
            continue  # the keys match, but a model of this configuration has no such tensor
        sources += keys
        unusual = [key for key in keys if not (weights[key].is_meta or weights[key].isfinite().all())]
        result.wrong += [f"{key} has values that are NaN or infinite" for key in unusual]
        try:
            tensors = rule.operation.forward([weights[key] for key in keys], heads_of(config, targets[0][0]))
        except RuntimeError as error:  # a shape that the operation cannot split or join
            result.wrong.append(f"{_shapes_of(keys, weights)} cannot be split or joined: {error}")
            continue
        for tensor, names in zip(tensors, targets, strict=True):
            for name in names:
                if tuple(tensor.shape) != tuple(shapes[name]):
                    result.wrong.append(
                        f"{name} would have shape {tuple(tensor.shape)} from {_shapes_of(keys, weights)}, but "
                        f"the configuration requires {tuple(shapes[name])}"
                    )
                result.weights[name] = tensor
    if sources:
        result.matched.append((f"{rule.source} -> {', '.join(rule.targets)}", len(sources)))
    return sources


def _targets(rule: KeyRule, places: Places, shapes) -> list[list[str]]:
    """Return Weft's keys for each tensor of the rule, or [] if the model lacks one of the tensors."""
    names = [
        [key for key in shapes if match(pattern, key) is not None]
        if places_of(pattern)
        else [pattern] * (pattern in shapes)
        for pattern in (fill(target, places) for target in rule.targets)
    ]
    return names if all(names) else []


def _shapes_of(keys: list[str], weights) -> str:
    return ", ".join(f"{key} {tuple(weights[key].shape)}" for key in keys)


def from_weft(weights: Mapping[str, torch.Tensor], table: KeyTable, config: WeftConfig) -> Weights:
    """Apply the table backwards, and return Weft's weights by the source's keys.

    Raises:
        ValueError: the source has no key for a tensor, or one key for tensors that differ.
    """
    result: Weights = {}
    open_keys = dict.fromkeys(weights)
    rules = [entry for entry in table if isinstance(entry, KeyRule)]
    for rule in rules:
        anchors = [(key, places) for key in open_keys if (places := match(rule.targets[0], key)) is not None]
        for key, places in anchors:
            names = [fill(target, places) for target in rule.targets]
            if any(name not in open_keys for name in names):
                continue
            tensors = rule.operation.backward([weights[name] for name in names], heads_of(config, key))
            source = fill(rule.source, places)
            if not rule.gathered and not tensors:
                continue  # this rule cannot have made these tensors
            if source in result and not torch.equal(result[source], tensors[0]):
                raise ValueError(
                    f"{source} is one tensor for all of {rule.targets[0]}, but {key} differs from the others."
                )
            result |= {fill(source, dict.fromkeys(rule.gathered, str(n))): tensor for n, tensor in enumerate(tensors)}
            for name in names:
                open_keys.pop(name)
    if open_keys:
        raise ValueError(f"The source has no key for {', '.join(sorted(open_keys)[:5])}.")
    for entry in table:
        if isinstance(entry, Ignored) and entry.source not in result:
            result |= _left(entry, result)
    return result


def _left(entry: Ignored, result: Weights) -> Weights:
    """Return the tensor of an entry that Weft does not need, made from the converted tensors if possible."""
    if entry.same_as in result:
        return {entry.source: result[entry.same_as]}
    return {} if entry.back is None else {entry.source: entry.back(result)}
