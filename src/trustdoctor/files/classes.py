"""Which columns hold the numbers of which classes."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trustdoctor.errors import InputError
from trustdoctor.predictions import comparable_name, plain_name

Kind = Literal["logits", "probs"]

PREFIXES: dict[Kind, tuple[str, ...]] = {
    "logits": ("logit_", "logits_"),
    "probs": ("prob_", "probs_", "proba_", "probability_"),
}
"""What says by itself what a column holds."""

_SEPARATOR = "_ .:-"


@dataclass(frozen=True)
class Found:
    """Columns of values.

    Attributes
    ----------
    values : list of str
        One list column, or one column per class in the order of the classes.
    class_names : tuple of str, or None
        As the columns say; None where they are numbered, or one column holds all.
    first : int
        The number of the first column, where they are numbered.
    """

    values: list[str]
    class_names: tuple[str, ...] | None = None
    first: int = 0


def find_values(
    names: list[str], given: str | Sequence[str] | None, kind: Kind
) -> Found | None:
    """Find the columns of values; None where there are none."""
    if given is None:
        return _by_itself(names, kind)
    if not isinstance(given, str):
        return _listed(names, [plain_name(name) for name in given], kind)
    given = plain_name(given)
    if given in names:
        return Found([given])
    if "," in given:
        parts = [part.strip() for part in given.split(",")]
        return _listed(names, [part for part in parts if part], kind)
    return _prefixed(names, given)


def find_features(names: list[str], given: str) -> list[str]:
    """Return the list column, or the numbered columns, of that name."""
    if given in names:
        return [given]
    found = _numbered(names, given)
    return [] if found is None else found.values


def missing(name: str, names: list[str]) -> str:
    """Say that there is no such column."""
    shown = ", ".join(names[:8]) + (" and others" if len(names) > 8 else "")
    return f"there is no {name!r} in the file; it has {shown}."


def _by_itself(names: list[str], kind: Kind) -> Found | None:
    if kind in names:
        return Found([kind])
    found = {prefix: _prefixed(names, prefix) for prefix in PREFIXES[kind]}
    there = {prefix: one for prefix, one in found.items() if one is not None}
    if len(there) > 1:
        first, second = list(there)[:2]
        message = (
            f"columns {first}... and {second}... could mean the same classes. Name "
            f"those that count: --{kind} {first}."
        )
        raise InputError(message)
    return next(iter(there.values()), None)


def _listed(names: list[str], given: list[str], kind: Kind) -> Found:
    """Take the columns that are named; what they are called are the classes."""
    if not given:
        message = f"expected the columns of the classes as {kind}, got none. Name them."
        raise InputError(message)
    for name in given:
        if name not in names:
            raise InputError(missing(name, names))
    twice = [name for name in given if given.count(name) > 1]
    if twice:
        message = f"the column {twice[0]!r} is named twice. Name each class once."
        raise InputError(message)
    rests = given
    for prefix in PREFIXES[kind]:
        if all(name.startswith(prefix) and name != prefix for name in given):
            rests = [name.removeprefix(prefix) for name in given]
    _refuse_twins(given, rests)
    if rests == [str(i) for i in range(len(rests))]:
        return Found(given)
    return Found(given, None if len(given) == 1 else tuple(rests))


def _prefixed(names: list[str], prefix: str) -> Found | None:
    return _numbered(names, prefix) or _named(names, prefix)


def _numbered(names: list[str], prefix: str) -> Found | None:
    """Return columns that are numbered without a gap."""
    pattern = re.compile(re.escape(prefix) + r"_?([0-9]+)")
    found: dict[int, str] = {}
    for name in names:
        match = pattern.fullmatch(name)
        if match and found.setdefault(int(match[1]), name) != name:
            raise InputError(_same(found[int(match[1])], name))
    if not found:
        return None
    _refuse_other_digits(sorted(set(names) - set(found.values())), prefix)
    first = min(found)
    gaps = sorted(set(range(first, first + len(found))) - set(found))
    if gaps:
        message = (
            f"expected columns {prefix}{first} to {prefix}{max(found)} without a gap, "
            f"but {prefix}{gaps[0]} is missing. If the numbers are names, give the "
            f"columns themselves: {','.join(found[i] for i in sorted(found)[:4])}..."
        )
        raise InputError(message)
    return Found([found[i] for i in sorted(found)], None, first)


def _refuse_other_digits(names: list[str], prefix: str) -> None:
    """Refuse a column whose number is written in other digits, or after a blank."""
    for name in names:
        rest = unicodedata.normalize("NFKC", name.removeprefix(prefix))
        if rest.strip(_SEPARATOR).isdecimal() and name.startswith(prefix):
            message = (
                f"the column {name!r} seems to be of a class, and its number is not "
                f"written as in {prefix}0. Rename it."
            )
            raise InputError(message)


def _named(names: list[str], prefix: str) -> Found | None:
    """Return columns whose rest is the name of a class."""
    ends = prefix[-1:] in _SEPARATOR
    pattern = re.compile(re.escape(prefix) + ("" if ends else f"[{_SEPARATOR}]") + ".+")
    found = [name for name in names if prefix and pattern.fullmatch(name)]
    if len(found) < 2:
        return None
    skip = len(prefix) + (not ends)
    rests = [plain_name(name[skip:]) for name in found]
    _refuse_twins(found, rests)
    return Found(found, tuple(rests))


def _refuse_twins(columns: list[str], classes: list[str]) -> None:
    """Refuse columns whose classes differ in case, or in how a number is written."""
    seen: dict[str, str] = {}
    for column, name in zip(columns, classes, strict=True):
        key = comparable_name(name).casefold()
        key = str(int(key)) if key.isdecimal() else key
        if seen.setdefault(key, column) != column:
            raise InputError(_same(seen[key], column))


def _same(first: str, second: str) -> str:
    return (
        f"the columns {first!r} and {second!r} could mean the same class. Remove one, "
        "or name the columns that count, separated by commas."
    )
