"""The names that a user gives to the columns, or arrays, of a file."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from trustdoctor.errors import InputError
from trustdoctor.predictions import check_cutoff, comparable_name

_BESIDE = ("groups", "ids", "texts")
_VALUES = ("logits", "probs", "confidence", "doubt", "choices")


@dataclass(frozen=True)
class Columns:
    """Which columns or arrays to read, if their names do not say so themselves.

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
        The columns of each row's group, its id, and the text that was classified.
    need_labels : bool
        Whether labels that cannot be used are an error; else they count as missing.
    confidence, doubt : str, optional
        For answers without logits: the column of their confidence, or of their doubt.
    predicted, correct : str, optional
        For answers without logits: the column of answers, to be compared with the
        labels; or the column that says which answers are right. With logits or
        probabilities, `predicted` is what the system answers, if that is not always
        the most probable class. A blank is no answer.
    positive : str, optional
        For a binary model with one column: the label that this column speaks for.
    cutoff : float, optional
        For two classes: from which probability of the second class (of `positive`) the
        system answers that class.
    one_vs_rest : bool
        Whether each probability is of one class against the rest.
    first_class : int
        The number of the first class, in labels and columns.
    percent : bool
        Whether probabilities or confidences are percentages.
    class_names : sequence of str, optional
        One per class, in the order of the columns, if the columns do not name them.
    choices : sequence of str, optional
        For a language model's responses: the answers that it could choose from.
    truth : Path, optional
        A table of ids and true labels, if the file itself has no labels.
    comma : bool
        Whether numbers may have a decimal comma, as in files separated by semicolons.
    names_file : Path, optional
        The file that the class names were read from.
    last_line : str, optional
        "keep" takes the last line of a CSV or TSV file as it is, even without a line
        end or with too few values. By default such a file is refused, because it may be
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
        """Refuse options that contradict each other."""
        named_values = [name for name in _VALUES if getattr(self, name) is not None]
        if len(named_values) > 1:
            message = (
                f"expected one of {', '.join(_VALUES)} to be named, got both "
                f"{' and '.join(named_values)}. Name one."
            )
            raise InputError(message)
        has_signal = self.confidence is not None or self.doubt is not None
        if self.correct is not None and not has_signal:
            message = (
                "--correct goes with --confidence NAME or --doubt NAME. Add one, or "
                "name the true labels: --labels NAME."
            )
            raise InputError(message)
        self._check_decisions()
        if self.correct is not None and self.labels is not None:
            message = "expected --correct, or --predicted with --labels, got both."
            raise InputError(message)
        self._check_names()
        for name in ("logits", "probs", "choices", "class_names"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                object.__setattr__(self, name, tuple(map(str, value)))
        if isinstance(self.choices, str):
            choices = tuple(choice.strip() for choice in self.choices.split(","))
            object.__setattr__(self, "choices", choices)
        self._check_positive()
        self._check_last_line()
        self._check_first_class()

    def _check_last_line(self) -> None:
        if self.last_line not in (None, "keep"):
            message = (
                f"expected --last-line keep, or nothing, got {self.last_line!r}. Keep "
                "takes a last line without its end as it stands."
            )
            raise InputError(message)

    def _check_first_class(self) -> None:
        if type(self.first_class) is not int or self.first_class < 0:
            message = (
                f"expected first_class of 0 or more, got {self.first_class!r}. Classes "
                "usually count from 0 or 1."
            )
            raise InputError(message)

    def _check_decisions(self) -> None:
        """Refuse two accounts of what the system decided."""
        if self.cutoff is not None:
            check_cutoff(self.cutoff)
        has_signal = self.confidence is not None or self.doubt is not None
        classless = has_signal or self.choices is not None
        if self.cutoff is not None and (classless or self.predicted is not None):
            other = "predicted" if self.predicted is not None else "choices"
            other = "confidence or --doubt" if has_signal else other
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
        """Turn numbers into names, as pandas' columns may have; refuse data."""
        roles = ("labels", "features", *_BESIDE, *_VALUES, "predicted", "correct")
        for role in roles:
            name = getattr(self, role)
            if type(name) is int:
                object.__setattr__(self, role, str(name))
            elif name is not None and not isinstance(name, (str, list, tuple)):
                message = (
                    f"expected {role} as the name of a column, got "
                    f"{type(name).__name__}. Columns themselves go to from_logits, "
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
        options: list[str] = []
        for role in (field.name for field in fields(self)):
            value = getattr(self, role)
            if role in ("need_labels", "comma", "class_names") or not value:
                continue
            option = "class_names" if role == "names_file" else role
            option = f"--{option.replace('_', '-')}"
            if value is True:
                options.append(option)
            else:
                text = ",".join(value) if isinstance(value, tuple) else str(value)
                options += [option, text]
        return options
