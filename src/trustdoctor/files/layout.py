"""Which columns or arrays of a file hold what, told by their names alone."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from trustdoctor.errors import InputError
from trustdoctor.files.columns import Columns
from trustdoctor.predictions import comparable_name, plain_name

LABELS = ("label", "labels", "true_label", "true_labels")
"""What the column of true labels is called, unless it is named."""

PREDICTED = ("predicted", "prediction")
CORRECT = ("correct", "is_correct")

LINE = "line"
"""The column that a line of a language model's responses is read into."""

NOTHING = "expected columns logit_0.. or prob_0.."
"""How the message begins that no values were found."""

NAME_THEM = "Name them:"

Kind = Literal["logits", "probs"]

PREFIXES: dict[Kind, tuple[str, ...]] = {
    "logits": ("logit_", "logits_"),
    "probs": ("prob_", "probs_", "proba_", "probability_"),
}
"""What says by itself what a column holds."""

_SEPARATOR = "_ .:-"


_SINGLE = ("groups", "ids", "texts")


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


@dataclass(frozen=True)
class Layout:
    """Where everything is, in a file with certain columns.

    Attributes
    ----------
    kind : str
        "logits", "probs", "confidence", "doubt" or "choices".
    values : list of str
        The columns that hold them; one list column, or one per class.
    label : str or None
    said : str or None
        The column of predicted classes, in the original DOCTOR layout.
    features : list of str
    groups, ids, texts : str or None
    predicted, correct : str or None
        What was answered, and of answers what is right.
    class_names : tuple of str, or None
    first : int
        The number of the first class in labels.
    """

    kind: str
    values: list[str]
    label: str | None = None
    said: str | None = None
    features: list[str] = field(default_factory=list)
    groups: str | None = None
    ids: str | None = None
    texts: str | None = None
    predicted: str | None = None
    correct: str | None = None
    class_names: tuple[str, ...] | None = None
    first: int = 0

    @property
    def answers(self) -> bool:
        """Whether there is one number per row, and no classes."""
        return self.kind in ("confidence", "doubt", "choices")

    @property
    def needed(self) -> list[str]:
        """All these columns, each once."""
        single = (
            *(self.label, self.said, self.groups, self.ids, self.texts),
            *(self.predicted, self.correct),
        )
        names = [*self.values, *self.features, *(name for name in single if name)]
        return list(dict.fromkeys(names))


def find_layout(names: list[str], columns: Columns) -> Layout:
    """Find everything among the names of columns, guessing nothing.

    Names are compared in Unicode's NFC, and given back as the file has them.
    """
    plain = {unicodedata.normalize("NFC", name): name for name in names}
    if len(plain) < len(set(names)):
        message = "two columns have names that look alike. Rename one of them."
        raise InputError(message)
    found = _find(list(plain), columns)
    own: dict[str, Any] = {}
    for one in fields(found):
        value = getattr(found, one.name)
        if one.name in ("values", "features"):
            own[one.name] = [plain[name] for name in value]
        elif one.name not in ("kind", "class_names", "first") and value is not None:
            own[one.name] = plain[value]
    return replace(found, **own)


def _find(names: list[str], columns: Columns) -> Layout:
    beside: dict[str, Any] = {
        name: _present(names, getattr(columns, name)) for name in _SINGLE
    }
    if columns.choices is not None:
        return Layout("choices", [LINE], **beside)
    if columns.features is not None:
        beside["features"] = find_features(names, plain_name(columns.features))
        if not beside["features"]:
            raise InputError(missing(columns.features, names))
    for kind in ("confidence", "doubt"):
        if getattr(columns, kind) is not None:
            return _answers(names, columns, kind, beside)
    if _is_doctor_layout(names, columns):
        probs = find_features(names, "")
        beside["class_names"] = columns.class_names
        return Layout("probs", probs, "true_label", "label", **beside)
    kind, found = _values(names, columns)
    label = find_label(names, columns)
    beside["predicted"] = _present(names, columns.predicted)
    return Layout(kind, found.values, label, **_classes(found, columns), **beside)


def find_label(names: list[str], columns: Columns) -> str | None:
    """Return the name of the labels, None where there are none."""
    if columns.truth is not None:  # which has the labels, under that name
        return None
    if columns.labels is not None:
        return _present(names, columns.labels)
    return _usual(names, LABELS, "labels")


def _usual(names: list[str], known: tuple[str, ...], option: str) -> str | None:
    """Return the one column of a name that says what it holds."""
    present = [name for name in known if name in names]
    if len(present) > 1:
        message = (
            f"both {present[0]!r} and {present[1]!r} are there. Name one: --{option}."
        )
        raise InputError(message)
    return present[0] if present else None


def _present(names: list[str], name: str | None) -> str | None:
    if name is None:
        return None
    plain = unicodedata.normalize("NFC", name)
    if plain not in names:
        raise InputError(missing(name, names))
    return plain


def _answers(
    names: list[str], columns: Columns, kind: str, beside: dict[str, Any]
) -> Layout:
    """Return where answers are: their confidence, and what tells which are right."""
    value = _present(names, getattr(columns, kind))
    assert value is not None
    correct = _present(names, columns.correct)
    predicted = _present(names, columns.predicted)
    if predicted is None:
        predicted = _usual(names, PREDICTED, "predicted")
    label = None if correct is not None else find_label(names, columns)
    if label is not None and predicted is None and columns.labels is not None:
        message = (
            f"the labels {label!r} need the answers beside them. Name their column: "
            "--predicted NAME; or give --correct NAME."
        )
        raise InputError(message)
    right = _usual(names, CORRECT, "correct") if columns.labels is None else None
    if predicted is None or (label is None and columns.truth is None):
        label, correct = None, correct or right
    elif right is not None and correct is None and not columns.need_labels:
        label = None  # two ways to tell, and none is needed
    elif right is not None and correct is None:
        message = (
            f"both {right!r} and the labels {label or columns.truth!r} could tell what "
            f"is right. Name one: --correct {right}, or --labels NAME."
        )
        raise InputError(message)
    beside |= {"predicted": predicted, "correct": correct}
    return Layout(kind, [value], label, **beside)


def _classes(found: Found, columns: Columns) -> dict[str, Any]:
    """Return the names of classes, and the number of the first."""
    first, own = columns.first_class, found.class_names
    if own is None and found.first not in (0, first):
        message = (
            f"the columns {found.values[0]} to {found.values[-1]} count from "
            f"{found.first}. Give --first-class {found.first} if labels do, too."
        )
        raise InputError(message)
    given = None if columns.class_names is None else tuple(columns.class_names)
    if first and own is None and given is None and len(found.values) > 1:
        own = tuple(str(first + i) for i in range(len(found.values)))
    return {"class_names": given or own, "first": first}


def _values(every: list[str], columns: Columns) -> tuple[str, Found]:
    """Return what the values are, and the columns that hold them."""
    kinds: tuple[Kind, ...] = ("logits", "probs")
    named = [kind for kind in kinds if getattr(columns, kind) is not None]
    wanted = [
        (kind, found)
        for kind in named or kinds
        for found in [find_values(every, getattr(columns, kind), kind)]
        if found is not None
    ]
    if len(wanted) == 1:
        return wanted[0]
    if wanted:
        message = "the file has both logits and probs. Say which: --logits or --probs."
        raise InputError(message)
    if named:
        raise InputError(missing(str(getattr(columns, named[0])), every))
    raise InputError(_nothing(every))


def _nothing(every: list[str]) -> str:
    """Say that no values were found; `advise_columns` may know how to name them."""
    seen = ", ".join(every[:6]) + (" and others" if len(every) > 6 else "")
    return (
        f"{NOTHING} (or one column or array logits or probs), got {seen}. {NAME_THEM} "
        "--logits NAME or --probs NAME, a prefix or names with commas between; for "
        "answers with a confidence --confidence NAME."
    )


def _is_doctor_layout(names: list[str], columns: Columns) -> bool:
    named = (columns.logits, columns.probs, columns.labels, columns.positive)
    wanted = {"0", "1", "label", "true_label"}
    return {*named, columns.predicted} == {None} and wanted <= set(names)


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
