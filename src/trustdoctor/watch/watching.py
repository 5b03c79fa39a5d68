"""Watching a gate at work, to see whether its promise still holds."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.gates import Gate
from trustdoctor.predictions import Predictions, TopK
from trustdoctor.watch import counting, words
from trustdoctor.watch.draws import as_keys, draw_rows
from trustdoctor.watch.expectation import Expectation
from trustdoctor.watch.given import (
    Rows,
    as_batch,
    as_deadline,
    as_time,
    check_level,
    check_noise,
    named_labels,
    take_rows,
)
from trustdoctor.watch.ledger import Ledger
from trustdoctor.watch.promised import find_test, identify, make_tests
from trustdoctor.watch.queue import Queue
from trustdoctor.watch.rate_tests import RateTest
from trustdoctor.watch.records import Entry, Totals, as_table
from trustdoctor.watch.reference import Reference, Sums
from trustdoctor.watch.review import Review, Sampling

if TYPE_CHECKING:
    import polars as pl

DEADLINE = timedelta(days=30)
"""How long a label is waited for, unless told otherwise."""

WINDOW = 1000
"""Rows of a window of the estimates, unless told otherwise."""


@dataclass(eq=False)
class Watch:
    """Tests, after every batch, whether a gate still does what it promised.

    `gate.watch()` makes one, `Watch.open` one that lives in a file. The accept rate is
    tested without labels against what the calibration rows showed; each promised rate
    is tested with labels, for each group that has a promise. The level is split among
    the tests. It may be used by several threads.

    Labels say whether a promise holds only if it is known how rows came to have one.
    Draw them at rates that you choose (`draw`), and say which they are (`review`). If
    some labels may be wrong, say how many (`label_noise`).

    Attributes
    ----------
    gate : Gate
    level : float
        The probability of any false alarm, over the whole future.
    review : Review or None
        The rates at which rows are drawn for review; None where they are not known.
    deadline : float or None
        After so many seconds a label is not waited for any more.
    window : int
        Rows of a window of the estimates.
    label_noise : float
        The share of labels that may be wrong, independently of the doubt.
    tests : dict of str to RateTest
        "accepted", and each promised rate under its name.
    totals : Totals
        Rows, labels and so on, of all updates.
    notes : list of str
        What else to know.
    reference : Reference or None
        What the model's own expectation of its accuracy rests on.

    Examples
    --------
    >>> from trustdoctor import Predictions, calibrate
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 4))
    >>> labels = np.where(rng.random(2000) < 0.9, logits.argmax(1), 0)
    >>> p = Predictions.from_logits(logits, labels)
    >>> watch = calibrate(p[:1000], frr=0.05).watch()
    >>> watch.update(p[1000:]).alarm
    False
    """

    gate: Gate
    level: float
    review: Review | None = None
    deadline: float | None = DEADLINE.total_seconds()
    window: int = WINDOW
    label_noise: float = 0.0
    tests: dict[str, RateTest] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling, repr=False)
    queue: Queue = field(default_factory=Queue, repr=False)
    totals: Totals = field(default_factory=Totals)
    ledger: Ledger = field(default_factory=Ledger, repr=False)
    entries: list[Entry] = field(default_factory=list, repr=False)
    notes: list[str] = field(default_factory=list)
    reference: Reference | None = None
    sums: Sums = field(default_factory=Sums, repr=False)
    earlier: Callable[[], list[Entry]] = field(default=list, repr=False)
    closed: bool = False

    def __post_init__(self) -> None:
        """Set the tests up from the certificate."""
        self._lock = threading.RLock()
        if not self.tests:
            self.tests = make_tests(
                self.gate, self.level, self.window, self.label_noise
            )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the lock, which does not cross to another process."""
        return {k: v for k, v in self.__dict__.items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a lock of its own."""
        self.__dict__ |= state | {"_lock": threading.RLock()}

    @classmethod
    def start(  # noqa: PLR0913 - options, by keyword only
        cls,
        gate: Gate,
        *,
        level: float = 0.1,
        review: Any = None,
        deadline: Any = DEADLINE,
        window: int = WINDOW,
        label_noise: float | None = None,
        reference: Any = None,
    ) -> "Watch":
        """Start watching a calibrated gate.

        Parameters
        ----------
        gate : Gate
            With a certificate.
        level : float
            The probability of any false alarm, over the whole future.
        review : dict, optional
            The rates at which rows are drawn for review, whatever they turn out to be:
            ``{"rejected": 1.0, "accepted": 0.02}``. Without them the watch compares the
            labelled rows with all rows, and says where it cannot tell.
        deadline : timedelta or seconds, optional
            How long the label of a drawn row is waited for: 30 days. Later rows count
            after it. None waits for ever.
        window : int
            An estimate begins anew after so many rows that it rests on.
        label_noise : float, optional
            The share of labels that may be wrong, independently of the score: what is
            tested is the truth then, and not the labels. By default what `calibrate`
            was told.
        reference : Predictions or Reference, optional
            Labelled rows, as in `expected`: then every update also says which accuracy
            and risk the model expects of itself. That has no guarantee.
        """
        if type(window) is not int or not 1 <= window < 1 << 53:
            message = f"expected a window of at least 1 row, got {window!r}."
            raise InputError(message)
        if label_noise is None and gate.certificate is not None:
            label_noise = gate.certificate.label_noise
        fitted = reference is None or isinstance(reference, Reference)
        return cls(
            gate,
            check_level(level),
            Review.of(review),
            as_deadline(deadline),
            window,
            check_noise(label_noise or 0.0),
            reference=reference if fitted else Reference.fit(reference),
        )

    @property
    def alarm(self) -> bool:
        """Whether any test has alarmed."""
        return any(test.alarm for test in self.tests.values())

    @property
    def expected(self) -> Expectation | None:
        """What the model expects of all rows so far: no guarantee."""
        if self.reference is None or not self.sums.rows.rows:
            return None
        return Expectation(self.reference, self.sums)

    @property
    def history(self) -> "pl.DataFrame":
        """Every update, one row each: counts, evidence, estimates, alarms."""
        return as_table(self.records())

    def records(self) -> list[Entry]:
        """Return every update as a record."""
        with self._lock:
            return [*self.earlier(), *self.entries]

    def locked(self) -> AbstractContextManager[Any]:
        """Keep other threads out meanwhile."""
        return self._lock

    def verdict(self, name: str) -> str:
        """Return "holds", "alarm", "cannot tell" or "no rows yet" for a test."""
        test = find_test(self.tests, name)
        if test.alarm is not None:
            return "alarm"
        if self.blind(name):
            return "cannot tell"
        return "no rows yet" if self.is_new(name) else "holds"

    def is_new(self, name: str) -> bool:
        """Tell whether a test has nothing to go by: no row, or no label yet."""
        windows = [part.window for part in self.tests[name].shown.values()]
        return not any(one.number > 1 or one.known > 0 for one in windows)

    def blind(self, name: str) -> str:
        """Say why labels do not tell whether a rate is kept; empty where they do."""
        target = self.tests[name].target
        if not target.needs_labels:
            return ""
        if self.label_noise and target.reviewed == "even":
            return "it cannot be tested where labels may be wrong"
        unseen = "" if self.review is None else self.review.blind(target)
        return unseen or self.sampling.blind(target, known=self.review is not None)

    def draw(self, rows: Any, *, ids: Any = None) -> Array:
        """Return which rows to review, at the review rates.

        Each is drawn by its id, so that a second call draws the same rows.

        Parameters
        ----------
        rows : Screened, Predictions, TopK, or bool array (n,)
            What was screened; of an array, which rows were accepted.
        ids : array (n,), optional
            By default those that the rows carry.

        Examples
        --------
        >>> from trustdoctor import calibrate_scores
        >>> gate = calibrate_scores(np.arange(100.0), coverage=0.5)
        >>> watch = gate.watch(review={"rejected": 1.0, "accepted": 0.0})
        >>> watch.draw(np.array([True, False]), ids=["a", "b"])
        array([False,  True])
        """
        if self.review is None:
            message = (
                "expected review rates to draw rows by, got none. Give them: "
                "review={'rejected': 1.0, 'accepted': 0.02}, or --review-accepted 0.02."
            )
            raise InputError(message)
        called = getattr(rows, "ids", None) if ids is None else ids
        if isinstance(rows, (Predictions, TopK)):
            rows = self.gate.screen(rows)
        accepted = np.asarray(getattr(rows, "accepted", rows))
        if accepted.ndim != 1 or accepted.dtype != bool:
            message = "expected rows that were screened, or which were accepted."
            raise InputError(message)
        if called is None:
            message = "rows are drawn by their ids: pass ids=, one per row."
            raise InputError(message)
        keys = as_keys(called, len(accepted))
        return draw_rows(keys, accepted, self.review, str(identify(self.gate)))

    def update(  # noqa: PLR0913 - options, by keyword only
        self,
        rows: Any,
        errors: Any = None,
        *,
        groups: Any = None,
        ids: Any = None,
        batch: str | None = None,
        reviewed: Any = None,
        review: Any = None,
        at: Any = None,
    ) -> "Watch":
        """Count a batch of rows, and their errors where these are known.

        Parameters
        ----------
        rows : Predictions, TopK, Screened, or array (n,)
            Predictions, which the gate scores; what it decided; or the doubts that it
            decides by.
        errors : array (n,), optional
            True, False, or NaN (None) where the label is not known yet; by default
            those of labelled predictions.
        groups : array (n,), optional
            As in `Gate.accept`; by default those of the predictions.
        ids : array (n,), optional
            What the rows are called. A row counts once per id; a label that comes with
            it later is counted then.
        batch : str, optional
            What the batch is called. Without ids, a second one of that name is not
            counted.
        reviewed : bool array (n,), optional
            Which rows were drawn for review; their labels may come later, by id or
            batch. By default the rows with a label.
        review : dict, optional
            New review rates, from this batch on.
        at : datetime or seconds since 1970, optional
            By default now.
        """
        rates = Review.of(review)
        given = take_rows(
            self.gate,
            rows,
            errors,
            groups=groups,
            ids=ids,
            reviewed=reviewed,
            cannot_say=None,
        )
        return self._count(given, as_batch(batch), rates, as_time(at), late=False)

    def label(  # noqa: PLR0913 - options, by keyword only
        self,
        rows: Any = None,
        errors: Any = None,
        *,
        ids: Any = None,
        batch: str | None = None,
        groups: Any = None,
        cannot_say: Any = None,
        at: Any = None,
    ) -> "Watch":
        """Count labels that came late, of rows that `update` has seen before.

        Rows that were drawn for review (`reviewed`) count in the order of the draw.
        Others count as their labels come, which misleads where errors are labelled
        sooner than correct rows.

        Parameters
        ----------
        rows, groups
            As in `update`; not needed for rows that were drawn for review (`reviewed`)
            and have a name.
        errors : array (n,)
            True or False; NaN (None) where the label is still to come.
        ids, batch
            As in `update`. Rows of a batch are in its order.
        cannot_say : bool array (n,), optional
            Rows that were reviewed, and nobody can say.
        at : datetime or seconds since 1970, optional
            By default now.
        """
        if rows is None:
            given = named_labels(errors, ids, batch, cannot_say)
        else:
            given = take_rows(
                self.gate,
                rows,
                errors,
                groups=groups,
                ids=ids,
                reviewed=None,
                cannot_say=cannot_say,
            )
        if (given.known < 0).all() and len(given):
            message = "late labels are missing: pass errors, or labelled predictions."
            raise LabelsMissingError(message)
        return self._count(given, as_batch(batch), None, as_time(at), late=True)

    def _count(
        self, given: Rows, batch: str, review: Review | None, at: float, *, late: bool
    ) -> "Watch":
        with self._lock:
            counting.require_open(self)
            plan = counting.plan(self, given, batch, review or self.review, late=late)
            if review is not None:
                self.review = review
            counting.carry_out(self, given, plan, at)
        return self

    def __repr__(self) -> str:
        """Say in words and numbers how every test stands."""
        with self._lock:
            return words.describe(self)

    def to_dict(self) -> dict[str, Any]:
        """Return how every test stands, as plain values."""
        with self._lock:
            return words.summarize(self)

    def to_html(self, path: str | Path) -> None:
        """Write the history as a page: one file that asks for nothing else."""
        from trustdoctor.report import write_watch

        with self._lock:
            write_watch(self, path)

    def save(self, path: str | Path) -> None:
        """Write the state, whole or not at all: JSON, or SQLite by the suffix .db.

        To count rows from several processes, use `open`.
        """
        from trustdoctor.watch import states

        with self._lock:
            states.save(self, path)

    @classmethod
    def load(cls, path: str | Path, gate: Gate) -> "Watch":
        """Read a state, refusing one that belongs to another gate."""
        from trustdoctor.watch import states

        return states.load(path, gate)

    @classmethod
    def open(
        cls, path: str | Path, gate: Gate, *, level: float | None = None, **options: Any
    ) -> AbstractContextManager["Watch"]:
        """Go on with the state in a file, or begin one; it is saved at the end.

        Other processes that open it wait until then, so no rows are lost. After an
        error within, the file stays as it was.

        Parameters
        ----------
        path : str or Path
            A file of JSON, or a database of SQLite by the suffix .db or .sqlite, which
            stays fast over millions of ids.
        gate : Gate
        level : float, optional
            As in `start`; of a state that is there, the one it was begun with.
        options
            Those of `start`. Of a state that is there, review rates are changed from
            the next batch on, and so is the deadline; `label_noise` stays, and another
            one is refused.

        Examples
        --------
        >>> import tempfile
        >>> from trustdoctor import calibrate_scores
        >>> gate = calibrate_scores(np.arange(100.0), coverage=0.5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for doubts in ([1.0, 2.0], [3.0]):
        ...         with Watch.open(f"{folder}/state.json", gate) as watch:
        ...             _ = watch.update(doubts)
        >>> watch.tests["accepted"].n
        3
        """
        from trustdoctor.watch import states

        return states.opened(path, gate, level=level, **options)
