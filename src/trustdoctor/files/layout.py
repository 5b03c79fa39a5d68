"""Which columns or arrays of a file hold what, told by their names alone."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from trustdoctor.errors import InputError
from trustdoctor.files.columns import Columns
from trustdoctor.predictions import comparable_name, plain_name

LABELS = ("label", "labels", "true_label", "true_labels")
"""Usual names of the column of true labels."""

PREDICTED = ("predicted", "prediction")
CORRECT = ("correct", "is_correct")

LINE = "line"
"""The column that a line of a language model's responses is read into."""

Kind = Literal["logits", "probs"]

PREFIXES: dict[Kind, tuple[str, ...]] = {
    "logits": ("logit_", "logits_"),
    "probs": ("prob_", "probs_", "proba_", "probability_"),
}
"""Prefixes of column names that say by themselves what the columns hold."""

_SEPARATORS = "_ .:-"


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
    doctor_prediction : str or None
        The column of predicted classes, in the original DOCTOR layout.
    features : list of str
    groups, ids, texts : str or None
    predicted, correct : str or None
        The columns of answers, and of which answers are right.
    class_names : tuple of str, or None
    first_class : int
        The number of the first class in labels.
    """

    kind: str
    values: list[str]
    label: str | None = None
    doctor_prediction: str | None = None
    features: list[str] = field(default_factory=list)
    groups: str | None = None
    ids: str | None = None
    texts: str | None = None
    predicted: str | None = None
    correct: str | None = None
    class_names: tuple[str, ...] | None = None
    first_class: int = 0

    @property
    def holds_answers(self) -> bool:
        """Whether there is one number per row, and no classes."""
        return self.kind in ("confidence", "doubt", "choices")

    @property
    def needed(self) -> list[str]:
        """All these columns, each once."""
        single = (
            *(self.label, self.doctor_prediction, self.groups, self.ids, self.texts),
            *(self.predicted, self.correct),
        )
        names = [*self.values, *self.features, *(name for name in single if name)]
        return list(dict.fromkeys(names))


@dataclass(frozen=True)
class ClassColumns:
    """The columns of logits or probabilities.

    Attributes
    ----------
    names : list of str
        One list column, or one column per class in the order of the classes.
    class_names : tuple of str, or None
        As the columns say; None if they are numbered, or one column holds all.
    first : int
        The number of the first column, if they are numbered.
    """

    names: list[str]
    class_names: tuple[str, ...] | None = None
    first: int = 0


def find_layout(
    names: list[str], columns: Columns, advise: Callable[[], str] | None = None
) -> Layout:
    """Find everything among the names of columns, guessing nothing.

    Names are compared in Unicode's NFC, and given back as the file has them. `advise`
    returns the options to suggest if no values are found, or "".
    """
    names_by_nfc = {unicodedata.normalize("NFC", name): name for name in names}
    if len(names_by_nfc) < len(set(names)):
        message = "two columns have names that look alike. Rename one of them."
        raise InputError(message)
    layout = _find_nfc_layout(list(names_by_nfc), columns, advise)
    names_in_file: dict[str, Any] = {}
    for role in (attribute.name for attribute in fields(layout)):
        value = getattr(layout, role)
        if role in ("values", "features"):
            names_in_file[role] = [names_by_nfc[name] for name in value]
        elif role not in ("kind", "class_names", "first_class") and value is not None:
            names_in_file[role] = names_by_nfc[value]
    return replace(layout, **names_in_file)


def _find_nfc_layout(
    names: list[str], columns: Columns, advise: Callable[[], str] | None
) -> Layout:
    beside: dict[str, Any] = {
        role: _existing_column(names, getattr(columns, role))
        for role in ("groups", "ids", "texts")
    }
    if columns.choices is not None:
        return Layout("choices", [LINE], **beside)
    if columns.features is not None:
        beside["features"] = _find_features(names, plain_name(columns.features))
        if not beside["features"]:
            raise InputError(_no_column_message(columns.features, names))
    for kind in ("confidence", "doubt"):
        if getattr(columns, kind) is not None:
            return _answers_layout(names, columns, kind, beside)
    if _is_doctor_layout(names, columns):
        probs = _find_features(names, "")
        beside["class_names"] = columns.class_names
        return Layout("probs", probs, "true_label", "label", **beside)
    kind, class_columns = _require_class_columns(names, columns, advise)
    label = _find_label(names, columns)
    beside["predicted"] = _existing_column(names, columns.predicted)
    return Layout(
        kind,
        class_columns.names,
        label,
        class_names=_class_names(class_columns, columns),
        first_class=columns.first_class,
        **beside,
    )


def _find_label(names: list[str], columns: Columns) -> str | None:
    """Return the name of the column of labels; None if there is none."""
    if columns.truth is not None:  # columns.labels then names a column of that table
        return None
    if columns.labels is not None:
        return _existing_column(names, columns.labels)
    return _usual_column(names, LABELS, "labels")


def _usual_column(names: list[str], usual: tuple[str, ...], option: str) -> str | None:
    """Return the one column that has a usual name for what it holds."""
    present = [name for name in usual if name in names]
    if len(present) > 1:
        message = (
            f"both {present[0]!r} and {present[1]!r} are there. Name one: --{option}."
        )
        raise InputError(message)
    return present[0] if present else None


def _existing_column(names: list[str], name: str | None) -> str | None:
    if name is None:
        return None
    normalized = unicodedata.normalize("NFC", name)
    if normalized not in names:
        raise InputError(_no_column_message(name, names))
    return normalized


def _answers_layout(
    names: list[str], columns: Columns, kind: str, beside: dict[str, Any]
) -> Layout:
    """Return where answers are: their confidence, and what tells which are right."""
    signal = _existing_column(names, getattr(columns, kind))
    assert signal is not None
    correct = _existing_column(names, columns.correct)
    predicted = _existing_column(names, columns.predicted)
    if predicted is None:
        predicted = _usual_column(names, PREDICTED, "predicted")
    label = None if correct is not None else _find_label(names, columns)
    if label is not None and predicted is None and columns.labels is not None:
        message = (
            f"the labels {label!r} need the answers beside them. Name their column: "
            "--predicted NAME; or give --correct NAME."
        )
        raise InputError(message)
    usual_correct = (
        _usual_column(names, CORRECT, "correct") if columns.labels is None else None
    )
    if predicted is None or (label is None and columns.truth is None):
        label, correct = None, correct or usual_correct
    elif usual_correct is not None and correct is None:
        if columns.need_labels:
            message = (
                f"both {usual_correct!r} and the labels {label or columns.truth!r} "
                f"could tell what is right. Name one: --correct {usual_correct}, or "
                "--labels NAME."
            )
            raise InputError(message)
        label = None  # either could tell, and nobody needs to know
    beside |= {"predicted": predicted, "correct": correct}
    return Layout(kind, [signal], label, **beside)


def _class_names(
    class_columns: ClassColumns, columns: Columns
) -> tuple[str, ...] | None:
    """Return the names of the classes: those given, or else those of the columns."""
    first, names = columns.first_class, class_columns.class_names
    if names is None and class_columns.first not in (0, first):
        message = (
            f"the columns {class_columns.names[0]} to {class_columns.names[-1]} count "
            f"from {class_columns.first}. Give --first-class {class_columns.first} if "
            "labels do, too."
        )
        raise InputError(message)
    if columns.class_names:
        return tuple(columns.class_names)
    n_columns = len(class_columns.names)
    if columns.class_names is None and names is None and first and n_columns > 1:
        return tuple(str(first + i) for i in range(n_columns))
    return names


def _require_class_columns(
    names: list[str], columns: Columns, advise: Callable[[], str] | None
) -> tuple[str, ClassColumns]:
    """Return what the values are, logits or probs, and the columns that hold them."""
    kinds: tuple[Kind, ...] = ("logits", "probs")
    named_kinds = [kind for kind in kinds if getattr(columns, kind) is not None]
    matches = [
        (kind, class_columns)
        for kind in named_kinds or kinds
        for class_columns in [_find_class_columns(names, getattr(columns, kind), kind)]
        if class_columns is not None
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        message = "the file has both logits and probs. Say which: --logits or --probs."
        raise InputError(message)
    if named_kinds:
        named = str(getattr(columns, named_kinds[0]))
        raise InputError(_no_column_message(named, names))
    advice = advise() if advise is not None else ""
    raise InputError(_no_values_message(names, advice))


def _no_values_message(names: list[str], advice: str) -> str:
    shown = ", ".join(names[:6]) + (" and others" if len(names) > 6 else "")
    advice = advice or (
        "--logits NAME or --probs NAME, a prefix or names with commas between; for "
        "answers with a confidence --confidence NAME"
    )
    return (
        "expected columns logit_0.. or prob_0.. (or one column or array logits or "
        f"probs), got {shown}. Name them: {advice}."
    )


def _is_doctor_layout(names: list[str], columns: Columns) -> bool:
    """Tell whether columns are those of the DOCTOR paper's code.

    Its `label` is the prediction, so usual names must not be looked for there.
    """
    options = (columns.logits, columns.probs, columns.labels, columns.positive)
    wanted = {"0", "1", "label", "true_label"}
    return {*options, columns.predicted} == {None} and wanted <= set(names)


def _find_class_columns(
    names: list[str], named: str | Sequence[str] | None, kind: Kind
) -> ClassColumns | None:
    """Return the columns of values, by the name given for them or by usual names."""
    if named is None:
        return _find_usual_columns(names, kind)
    if not isinstance(named, str):
        return _listed_columns(names, [plain_name(name) for name in named], kind)
    named = plain_name(named)
    if named in names:
        return ClassColumns([named])
    if "," in named:
        listed = [name.strip() for name in named.split(",")]
        return _listed_columns(names, [name for name in listed if name], kind)
    return _find_prefixed_columns(names, named)


def _find_features(names: list[str], named: str) -> list[str]:
    """Return the list column, or the numbered columns, of that name."""
    if named in names:
        return [named]
    numbered = _find_numbered_columns(names, named)
    return [] if numbered is None else numbered.names


def _no_column_message(name: str, names: list[str]) -> str:
    shown = ", ".join(names[:8]) + (" and others" if len(names) > 8 else "")
    return f"there is no {name!r} in the file; it has {shown}."


def _find_usual_columns(names: list[str], kind: Kind) -> ClassColumns | None:
    if kind in names:
        return ClassColumns([kind])
    by_prefix = {
        prefix: class_columns
        for prefix in PREFIXES[kind]
        if (class_columns := _find_prefixed_columns(names, prefix)) is not None
    }
    if len(by_prefix) > 1:
        first, second = list(by_prefix)[:2]
        message = (
            f"columns {first}... and {second}... could mean the same classes. Name "
            f"those that count: --{kind} {first}."
        )
        raise InputError(message)
    return next(iter(by_prefix.values()), None)


def _listed_columns(names: list[str], listed: list[str], kind: Kind) -> ClassColumns:
    """Return the columns that were listed; their names, without prefix, are classes."""
    if not listed:
        message = f"expected the columns of the classes as {kind}, got none. Name them."
        raise InputError(message)
    for name in listed:
        if name not in names:
            raise InputError(_no_column_message(name, names))
    repeated = [name for name in listed if listed.count(name) > 1]
    if repeated:
        message = f"the column {repeated[0]!r} is named twice. Name each class once."
        raise InputError(message)
    class_names = listed
    for prefix in PREFIXES[kind]:
        if all(name.startswith(prefix) and name != prefix for name in listed):
            class_names = [name.removeprefix(prefix) for name in listed]
    _require_distinct_classes(listed, class_names)
    if class_names == [str(i) for i in range(len(class_names))]:
        return ClassColumns(listed)
    return ClassColumns(listed, None if len(listed) == 1 else tuple(class_names))


def _find_prefixed_columns(names: list[str], prefix: str) -> ClassColumns | None:
    numbered = _find_numbered_columns(names, prefix)
    return numbered or _find_columns_by_class_name(names, prefix)


def _find_numbered_columns(names: list[str], prefix: str) -> ClassColumns | None:
    """Return columns that are numbered without a gap."""
    pattern = re.compile(re.escape(prefix) + r"_?([0-9]+)")
    by_number: dict[int, str] = {}
    for name in names:
        match = pattern.fullmatch(name)
        if match and by_number.setdefault(int(match[1]), name) != name:
            raise InputError(_same_class_message(by_number[int(match[1])], name))
    if not by_number:
        return None
    _refuse_other_digits(sorted(set(names) - set(by_number.values())), prefix)
    numbers = sorted(by_number)
    first, last = numbers[0], numbers[-1]
    gap = next(
        (number for number in range(first, last) if number not in by_number), None
    )
    if gap is not None:
        message = (
            f"expected columns {prefix}{first} to {prefix}{last} without a gap, "
            f"but {prefix}{gap} is missing. If the numbers are names, give the "
            f"columns themselves: {','.join(by_number[i] for i in numbers[:4])}..."
        )
        raise InputError(message)
    return ClassColumns([by_number[number] for number in numbers], None, first)


def _refuse_other_digits(names: list[str], prefix: str) -> None:
    """Refuse a column whose number is written in other digits, or after a blank."""
    for name in names:
        suffix = unicodedata.normalize("NFKC", name.removeprefix(prefix))
        if suffix.strip(_SEPARATORS).isdecimal() and name.startswith(prefix):
            message = (
                f"the column {name!r} seems to be of a class, and its number is not "
                f"written as in {prefix}0. Rename it."
            )
            raise InputError(message)


def _find_columns_by_class_name(names: list[str], prefix: str) -> ClassColumns | None:
    """Return columns named by the prefix and a class, if there are two or more."""
    has_separator = prefix[-1:] in _SEPARATORS
    separator = "" if has_separator else f"[{_SEPARATORS}]"
    pattern = re.compile(re.escape(prefix) + separator + ".+")
    columns = [name for name in names if prefix and pattern.fullmatch(name)]
    if len(columns) < 2:
        return None
    skip = len(prefix) + (not has_separator)
    class_names = [plain_name(name[skip:]) for name in columns]
    _require_distinct_classes(columns, class_names)
    return ClassColumns(columns, tuple(class_names))


def _require_distinct_classes(columns: list[str], class_names: list[str]) -> None:
    """Refuse columns whose classes differ in case, or in how a number is written."""
    column_by_class: dict[str, str] = {}
    for column, name in zip(columns, class_names, strict=True):
        key = comparable_name(name).casefold()
        key = str(int(key)) if key.isdecimal() else key
        if column_by_class.setdefault(key, column) != column:
            raise InputError(_same_class_message(column_by_class[key], column))


def _same_class_message(first: str, second: str) -> str:
    return (
        f"the columns {first!r} and {second!r} could mean the same class. Remove one, "
        "or name the columns that count, separated by commas."
    )
