"""Which columns, or arrays, of a file hold what."""

import re
from dataclasses import dataclass, field, fields

from trustdoctor.errors import InputError

LABELS = ("label", "labels", "true_label", "true_labels")
"""What the column of true labels is called, unless it is named."""


@dataclass(frozen=True)
class Columns:
    """Which columns or arrays to read, where they have names of their own.

    Attributes
    ----------
    logits, probs : str, optional
        An array, a list column, or the prefix of numbered columns. At most one.
    labels : str, optional
        The array or column of true labels.
    features : str, optional
        An array, a list column, or a prefix, as with logits.
    groups, ids, texts : str, optional
        What group a row belongs to, what it is called, and what was classified.
    need_labels : bool
        Whether labels that cannot be used are a mistake.
    """

    logits: str | None = None
    probs: str | None = None
    labels: str | None = None
    features: str | None = None
    groups: str | None = None
    ids: str | None = None
    texts: str | None = None
    need_labels: bool = True

    def __post_init__(self) -> None:
        """Refuse two meanings for the same numbers."""
        if self.logits is not None and self.probs is not None:
            message = "expected logits or probs to be named, got both. Name one."
            raise InputError(message)

    def options(self) -> list[str]:
        """Return the options of the command line that name the same columns."""
        named = [(f.name, getattr(self, f.name)) for f in fields(self)]
        given = [(name, value) for name, value in named if isinstance(value, str)]
        return [part for name, value in given for part in (f"--{name}", value)]


@dataclass(frozen=True)
class Layout:
    """Where everything is, in a file with certain columns.

    Attributes
    ----------
    kind : str
        "logits" or "probs".
    values : list of str
        The columns that hold them; one list column, or one per class.
    label : str or None
    said : str or None
        The column of predicted classes, in the original DOCTOR layout.
    features : list of str
    groups, ids, texts : str or None
    """

    kind: str
    values: list[str]
    label: str | None = None
    said: str | None = None
    features: list[str] = field(default_factory=list)
    groups: str | None = None
    ids: str | None = None
    texts: str | None = None

    @property
    def needed(self) -> list[str]:
        """All these columns, each once."""
        single = (self.label, self.said, self.groups, self.ids, self.texts)
        names = [*self.values, *self.features, *(name for name in single if name)]
        return list(dict.fromkeys(names))


def find_layout(names: list[str], columns: Columns) -> Layout:
    """Find everything among the names of columns, guessing nothing."""
    beside = {
        name: _present(names, getattr(columns, name))
        for name in ("groups", "ids", "texts")
    }
    features: list[str] = []
    if columns.features is not None:
        features = numbered(names, columns.features, columns.features)
        if not features:
            raise InputError(missing(columns.features, names))
    if _is_doctor_layout(names, columns):
        probs = numbered(names, "", "probs")
        return Layout("probs", probs, "true_label", "label", features, **beside)
    kind, values = _values(names, columns)
    label = find_label(names, columns)
    return Layout(kind, values, label, None, features, **beside)


def find_label(names: list[str], columns: Columns) -> str | None:
    """Return the name of the labels, None where there are none."""
    if columns.labels is not None:
        return _present(names, columns.labels)
    present = [name for name in LABELS if name in names]
    if len(present) > 1:
        message = (
            f"both {present[0]!r} and {present[1]!r} are there. Name one: --labels."
        )
        raise InputError(message)
    return present[0] if present else None


def numbered(names: list[str], given: str | None, kind: str) -> list[str]:
    """Return the list column, or the numbered columns, of that name."""
    whole = kind if given is None else given
    if whole in names:
        return [whole]
    prefix = given if given is not None else kind[:-1] + "_"
    pattern = re.compile(re.escape(prefix) + r"_?(0|[1-9][0-9]*)")
    found = {int(m[1]): n for n in names if (m := pattern.fullmatch(n))}
    gaps = sorted(set(range(len(found))) - set(found))
    if gaps:
        message = (
            f"expected columns {prefix}0 to {prefix}{max(found)} without a gap, "
            f"but {prefix}{gaps[0]} is missing."
        )
        raise InputError(message)
    return [found[i] for i in range(len(found))]


def missing(name: str, names: list[str]) -> str:
    """Say that there is no such column."""
    shown = ", ".join(names[:8]) + (" and others" if len(names) > 8 else "")
    return f"there is no {name!r} in the file; it has {shown}."


def _present(names: list[str], name: str | None) -> str | None:
    if name is not None and name not in names:
        raise InputError(missing(name, names))
    return name


def _values(every: list[str], columns: Columns) -> tuple[str, list[str]]:
    """Return what the values are, and the columns that hold them."""
    wanted = [
        (kind, names)
        for kind in ("logits", "probs")
        for given in [getattr(columns, kind)]
        for names in [numbered(every, given, kind)]
        if names and (given is not None or columns.logits is columns.probs is None)
    ]
    if len(wanted) == 1:
        return wanted[0]
    if wanted:
        message = "the file has both logits and probs. Say which: --logits or --probs."
        raise InputError(message)
    named = columns.logits if columns.probs is None else columns.probs
    if named is not None:
        raise InputError(missing(named, every))
    seen = ", ".join(every[:6]) + (" and others" if len(every) > 6 else "")
    message = (
        f"expected columns logit_0.. or prob_0.. (or one column or array logits or "
        f"probs), got {seen}. Name them with --logits NAME or --probs NAME."
    )
    raise InputError(message)


def _is_doctor_layout(names: list[str], columns: Columns) -> bool:
    named = (columns.logits, columns.probs, columns.labels)
    wanted = {"0", "1", "label", "true_label"}
    return named == (None, None, None) and wanted <= set(names)
