"""Which columns, or arrays, of a file hold what."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from trustdoctor.errors import InputError
from trustdoctor.files.classes import (
    Found,
    Kind,
    find_features,
    find_values,
    missing,
)
from trustdoctor.predictions import check_cutoff, comparable_name, plain_name

LABELS = ("label", "labels", "true_label", "true_labels")
"""What the column of true labels is called, unless it is named."""

PREDICTED = ("predicted", "prediction")
CORRECT = ("correct", "is_correct")

LINE = "line"
"""The column that a line of a language model's responses is read into."""

NOTHING = "expected columns logit_0.. or prob_0.."
"""How the message begins that no values were found."""

NAME_THEM = "Name them:"

_SINGLE = ("groups", "ids", "texts")
_VALUES = ("logits", "probs", "confidence", "doubt", "choices")


@dataclass(frozen=True)
class Columns:
    """Which columns or arrays to read, where they have names of their own.

    Attributes
    ----------
    logits, probs : str or sequence of str, optional
        An array, a list column, a prefix of columns, or the columns themselves,
        separated by commas.
    labels : str, optional
        The array or column of true labels.
    features : str, optional
        An array, a list column, or a prefix of numbered columns.
    groups, ids, texts : str, optional
        What group a row belongs to, what it is called, and what was classified.
    need_labels : bool
        Whether labels that cannot be used are a mistake; else they are missing.
    confidence, doubt : str, optional
        For answers without logits: the column of one of them.
    predicted, correct : str, optional
        With these: the answers, to be compared with the labels; or what is right. With
        logits or probabilities `predicted` is what the system answers, where that is
        not always the most probable class. Where it is blank there is no answer.
    positive : str, optional
        For a binary model with one column: the label that it speaks for.
    cutoff : float, optional
        Of two classes: the probability of the second (of `positive`) from which on the
        system answers it.
    one_vs_rest : bool
        Whether probabilities are each of one class against the rest.
    first_class : int
        The number of the first class, in labels and columns.
    percent : bool
        Whether probabilities or confidences are given in percent.
    class_names : sequence of str, optional
        One per class, in the order of the columns, where the columns do not say.
    choices : sequence of str, optional
        For a language model's responses: the answers it was to choose from.
    truth : Path, optional
        A table of ids and true labels, where the file itself has none.
    comma : bool
        Whether numbers may have a decimal comma, as in files separated by semicolons.
    names_file : Path, optional
        Where the class names were read from.
    last_line : str, optional
        "keep" takes the last line of a CSV or TSV file as it stands, where it has no
        line end or too few values. By default such a file is refused, because it may be
        cut short.
    """

    logits: str | Sequence[str] | None = None
    probs: str | Sequence[str] | None = None
    labels: str | None = None
    features: str | None = None
    groups: str | None = None
    ids: str | None = None
    texts: str | None = None
    need_labels: bool = True
    confidence: str | None = None
    doubt: str | None = None
    predicted: str | None = None
    correct: str | None = None
    positive: str | None = None
    first_class: int = 0
    percent: bool = False
    class_names: Sequence[str] | None = None
    choices: str | Sequence[str] | None = None
    truth: str | Path | None = None
    cutoff: float | None = None
    one_vs_rest: bool = False
    comma: bool = False
    names_file: Path | None = None
    last_line: str | None = None

    def __post_init__(self) -> None:
        """Refuse two meanings for the same numbers."""
        given = [name for name in _VALUES if getattr(self, name) is not None]
        if len(given) > 1:
            message = (
                f"expected one of {', '.join(_VALUES)} to be named, got both "
                f"{' and '.join(given)}. Name one."
            )
            raise InputError(message)
        stated = self.confidence is not None or self.doubt is not None
        if self.correct is not None and not stated:
            message = (
                "--correct goes with --confidence NAME or --doubt NAME. Add one, or "
                "name the true labels: --labels NAME."
            )
            raise InputError(message)
        self._check_decisions(stated)
        if self.correct is not None and self.labels is not None:
            message = "expected --correct, or --predicted with --labels, got both."
            raise InputError(message)
        self._check_names()
        for name in ("logits", "probs", "choices", "class_names"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                object.__setattr__(self, name, tuple(map(str, value)))
        if isinstance(self.choices, str):
            parts = tuple(part.strip() for part in self.choices.split(","))
            object.__setattr__(self, "choices", parts)
        self._check_positive()
        self._check_reading()

    def _check_reading(self) -> None:
        """Refuse what says of no file how it is read."""
        if self.last_line not in (None, "keep"):
            message = (
                f"expected --last-line keep, or nothing, got {self.last_line!r}. Keep "
                "takes a last line without its end as it stands."
            )
            raise InputError(message)
        if type(self.first_class) is not int or self.first_class < 0:
            message = (
                f"expected first_class of 0 or more, got {self.first_class!r}. Classes "
                "usually count from 0 or 1."
            )
            raise InputError(message)

    def _check_decisions(self, stated: bool) -> None:  # noqa: FBT001
        """Refuse two accounts of what the system decided."""
        if self.cutoff is not None:
            check_cutoff(self.cutoff)
        other = "predicted" if self.predicted is not None else "choices"
        classless = stated or self.choices is not None
        if self.cutoff is not None and (classless or self.predicted is not None):
            other = "confidence or --doubt" if stated else other
            message = (
                f"--cutoff decides between two classes by their probabilities, and "
                f"does not go with --{other}. Leave one out."
            )
            raise InputError(message)
        if self.predicted is not None and self.choices is not None:
            message = "--choices finds the answers itself. Leave --predicted out."
            raise InputError(message)
        if self.one_vs_rest and (classless or self.logits is not None):
            message = "--one-vs-rest goes with --probs. Leave it out."
            raise InputError(message)

    def _check_names(self) -> None:
        """Take numbers for names of columns, as pandas does; refuse columns."""
        for one in ("labels", "features", *_SINGLE, *_VALUES, "predicted", "correct"):
            given = getattr(self, one)
            if type(given) is int:
                object.__setattr__(self, one, str(given))
            elif given is not None and not isinstance(given, (str, list, tuple)):
                message = (
                    f"expected {one} as the name of a column, got "
                    f"{type(given).__name__}. Columns themselves go to from_logits, "
                    "from_probs or from_confidence."
                )
                raise InputError(message)

    def _check_positive(self) -> None:
        names = self.class_names
        if self.positive is None or names is None:
            return
        if len(names) != 2 or comparable_name(names[1]) != comparable_name(
            self.positive
        ):
            message = (
                f"expected two class names, {self.positive!r} of --positive as the "
                f"second, got {', '.join(map(repr, names[:5]))}."
            )
            raise InputError(message)

    def options(self) -> list[str]:
        """Return the options of the command line that name the same columns."""
        out: list[str] = []
        for one in fields(self):
            value, option = getattr(self, one.name), f"--{one.name.replace('_', '-')}"
            if one.name in ("need_labels", "comma", "class_names") or not value:
                continue
            if one.name == "names_file":
                option = "--class-names"
            if value is True:
                out.append(option)
            else:
                shown = ",".join(value) if isinstance(value, tuple) else str(value)
                out += [option, shown]
        return out


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
