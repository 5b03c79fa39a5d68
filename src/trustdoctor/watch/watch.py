"""The watch of a gate at work: whether its promise still holds."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.envelope import MOST_ROWS
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.gates import Gate
from trustdoctor.metrics import html_facts
from trustdoctor.predictions import Predictions
from trustdoctor.watch import update_rows, updates, wording
from trustdoctor.watch.expectation import Expectation, Reference, TrafficSums
from trustdoctor.watch.history import HistoryEntry, Ledger, Totals, as_table
from trustdoctor.watch.queue import Queue
from trustdoctor.watch.rate_tests import RateTest, find_test, identify, make_tests
from trustdoctor.watch.review import Review, Sampling, draw_rows

if TYPE_CHECKING:
    import polars as pl

DEADLINE = timedelta(days=30)
"""The default deadline of a label."""

WINDOW = 1000
"""The default number of rows of a window of the estimates."""


@dataclass(eq=False)
class Watch:
    """Tests after every batch whether a gate still keeps its promise.

    `gate.watch()` makes one, `Watch.open` one that lives in a file. The accept rate is
    tested without labels against that of the calibration rows; each promised rate is
    tested with labels, for each group that has a promise. The level is split among the
    tests. Several threads may use one watch.

    Labels show whether a promise holds only if it is known how rows came to have one.
    Draw them at rates that you choose (`draw`), and pass these rates (`review`). If
    some labels may be wrong, pass their share (`label_noise`).

    Attributes
    ----------
    gate : Gate
    level : float
        The probability of any false alarm, over the whole future.
    review : Review or None
        The rates at which rows are drawn for review; None if they are unknown.
    deadline : float or None
        The seconds that a label may take; None for any time.
    window : int
        The number of rows of a window of the estimates.
    label_noise : float
        The share of labels that may be wrong, independently of the doubt.
    tests : dict of str to RateTest
        "accepted", and each promised rate under its name.
    totals : Totals
        Rows, labels and other counts of all updates.
    notes : list of str
    reference : Reference or None
        The fitted temperature behind the model's expectation of its own accuracy.

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
    entries: list[HistoryEntry] = field(default_factory=list, repr=False)
    notes: list[str] = field(default_factory=list)
    reference: Reference | None = None
    confidence_sums: TrafficSums = field(default_factory=TrafficSums, repr=False)
    earlier_entries: Callable[[], list[HistoryEntry]] = field(default=list, repr=False)
    closed: bool = False

    def __post_init__(self) -> None:
        """Make the tests from the certificate."""
        # Reentrant: `repr` and `to_html` call methods that lock, too.
        self._lock = threading.RLock()
        if not self.tests:
            self.tests = make_tests(
                self.gate, self.level, self.window, self.label_noise
            )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the lock, which does not cross to another process."""
        return {name: v for name, v in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a new lock."""
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
            The rates at which rows are drawn for review, regardless of their labels:
            ``{"rejected": 1.0, "accepted": 0.02}``. Without them the watch compares the
            accept rate of labelled rows with that of all rows, and reports which
            promises it cannot test.
        deadline : timedelta or seconds, optional
            How long the label of a drawn row may take, by default 30 days. Rows drawn
            later count after it. None waits for any time.
        window : int
            The number of rows after which an estimate begins anew.
        label_noise : float, optional
            The share of labels that may be wrong, independently of the score; the
            tests are then about the true labels. By default that of the calibration.
        reference : Predictions or Reference, optional
            Labelled rows, as in `expected`: then every update also records the accuracy
            and risk that the model expects of itself. These have no guarantee.
        """
        if type(window) is not int or not 1 <= window < MOST_ROWS:
            message = f"expected a window of at least 1 row, got {window!r}."
            raise InputError(message)
        if label_noise is None and gate.certificate is not None:
            label_noise = gate.certificate.label_noise
        if reference is not None and not isinstance(reference, Reference):
            reference = Reference.fit(reference)
        return cls(
            gate,
            update_rows.check_level(level),
            Review.of(review),
            update_rows.as_deadline(deadline),
            window,
            update_rows.check_noise(label_noise or 0.0),
            reference=reference,
        )

    @property
    def alarm(self) -> bool:
        """Whether any test has alarmed."""
        return any(test.alarm for test in self.tests.values())

    @property
    def expected(self) -> Expectation | None:
        """What the model expects of all rows so far: no guarantee."""
        if self.reference is None or not self.confidence_sums.rows.rows:
            return None
        return Expectation(self.reference, self.confidence_sums)

    @property
    def history(self) -> "pl.DataFrame":
        """Every update, one row each: counts, evidence, estimates, alarms."""
        return as_table(self.records())

    def records(self) -> list[HistoryEntry]:
        """Return every update as an entry."""
        with self._lock:
            return [*self.earlier_entries(), *self.entries]

    def locked(self) -> AbstractContextManager[Any]:
        """Return a context that keeps other threads out."""
        return self._lock

    def verdict(self, name: str) -> str:
        """Return "holds", "alarm", "cannot tell" or "no rows yet" for a test."""
        test = find_test(self.tests, name)
        if test.alarm is not None:
            return "alarm"
        if self.untestable(name):
            return "cannot tell"
        return "no rows yet" if self.is_empty(name) else "holds"

    def is_empty(self, name: str) -> bool:
        """Return whether a test has no evidence yet: no row, or no label."""
        windows = [test.window for test in self.tests[name].current.values()]
        return not any(window.number > 1 or window.labelled > 0 for window in windows)

    def untestable(self, name: str) -> str:
        """Return why the labels cannot test a rate; empty if they can."""
        target = self.tests[name].target
        if not target.needs_labels:
            return ""
        if self.label_noise and target.review_effect == "even":
            return "it cannot be tested if labels may be wrong"
        by_rates = "" if self.review is None else self.review.untestable(target)
        return by_rates or self.sampling.untestable(
            target, rates_known=self.review is not None
        )

    def draw(self, rows: Any, *, ids: Any = None) -> Array:
        """Return which rows to review, at the review rates.

        Rows are drawn by their ids, so a second call draws the same rows.

        Parameters
        ----------
        rows : Screened, Predictions, or bool array (n,)
            Screened rows, or for each row whether it was accepted.
        ids : array (n,), optional
            By default those of the predictions.

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
        row_ids = getattr(rows, "ids", None) if ids is None else ids
        if isinstance(rows, Predictions):
            rows = self.gate.screen(rows)
        accepted = np.asarray(getattr(rows, "accepted", rows))
        if accepted.ndim != 1 or accepted.dtype != bool:
            message = (
                "expected screened rows, or for each row True if it was accepted and "
                "False if not."
            )
            raise InputError(message)
        if row_ids is None:
            message = "rows are drawn by their ids: pass ids=, one per row."
            raise InputError(message)
        texts = update_rows.as_ids(row_ids, len(accepted))
        return draw_rows(texts, accepted, self.review, str(identify(self.gate)))

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
        """Count a batch of rows, and their errors if these are known.

        Parameters
        ----------
        rows : Predictions, Screened, or array (n,)
            Predictions, which the gate scores; rows that it screened; or the doubts
            that it decides by.
        errors : array (n,), optional
            True, False, or NaN (None) if the label is not known yet; by default those
            of labelled predictions.
        groups : array (n,), optional
            As in `Gate.accept`; by default those of the predictions.
        ids : array (n,), optional
            A row counts once per id; a label that comes with it later is counted then.
        batch : str, optional
            The name of the batch. Without ids, a second batch of that name is not
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
        update = update_rows.read_rows(
            self.gate,
            rows,
            errors,
            groups=groups,
            ids=ids,
            reviewed=reviewed,
            undecided=None,
        )
        name, time = update_rows.as_batch_name(batch), update_rows.as_time(at)
        return self._count(update, name, rates, time, late=False)

    def label(  # noqa: PLR0913 - options, by keyword only
        self,
        rows: Any = None,
        errors: Any = None,
        *,
        ids: Any = None,
        batch: str | None = None,
        groups: Any = None,
        undecided: Any = None,
        at: Any = None,
    ) -> "Watch":
        """Count late labels, of rows that `update` has counted before.

        Rows that were drawn for review (`reviewed`) count in the order of the draw.
        Others count as their labels come, which misleads if errors are labelled sooner
        than correct rows.

        Parameters
        ----------
        rows, groups
            As in `update`; not needed for rows that were drawn for review (`reviewed`)
            and have a name.
        errors : array (n,)
            True or False; NaN (None) if the label is still to come.
        ids, batch
            As in `update`. Rows of a batch are in its order.
        undecided : bool array (n,), optional
            Reviewed rows that nobody can decide.
        at : datetime or seconds since 1970, optional
            By default now.
        """
        if rows is None:
            update = update_rows.read_named_labels(errors, ids, batch, undecided)
        else:
            update = update_rows.read_rows(
                self.gate,
                rows,
                errors,
                groups=groups,
                ids=ids,
                reviewed=None,
                undecided=undecided,
            )
        if len(update) and not update.has_label.any():
            message = "late labels are missing: pass errors, or labelled predictions."
            raise LabelsMissingError(message)
        name, time = update_rows.as_batch_name(batch), update_rows.as_time(at)
        return self._count(update, name, None, time, late=True)

    def _count(
        self,
        update: update_rows.UpdateRows,
        batch: str,
        review: Review | None,
        now: float,
        *,
        late: bool,
    ) -> "Watch":
        with self._lock:
            updates.require_open(self)
            plan = updates.make_plan(
                self, update, batch, review or self.review, late=late
            )
            if review is not None:
                self.review = review
            updates.carry_out(self, update, plan, now)
        return self

    def __repr__(self) -> str:
        """Return the state of every test as text."""
        with self._lock:
            return wording.describe(self)

    def _repr_html_(self) -> str:
        """Show the state of every test in a notebook, a line each."""
        lines = repr(self).splitlines()
        return html_facts({str(i) if i else "": line for i, line in enumerate(lines)})

    def to_dict(self) -> dict[str, Any]:
        """Return the state of every test as plain values."""
        with self._lock:
            return wording.summarize(self)

    def to_html(self, path: str | Path) -> None:
        """Write the history as a page, in one file that loads no others."""
        from trustdoctor.report import write_watch

        with self._lock:
            write_watch(self, path)

    def save(self, path: str | Path) -> None:
        """Write the state, whole or not at all: JSON, or SQLite by the suffix .db.

        To count rows from several processes, use `open`.
        """
        from trustdoctor.watch import state_file

        with self._lock:
            state_file.save(self, path)

    @classmethod
    def load(cls, path: str | Path, gate: Gate) -> "Watch":
        """Read a state, or refuse one that belongs to another gate."""
        from trustdoctor.watch import state_file

        return state_file.load(path, gate)

    @classmethod
    def open(
        cls, path: str | Path, gate: Gate, *, level: float | None = None, **options: Any
    ) -> AbstractContextManager["Watch"]:
        """Continue the state in a file, or start one; it is saved at the end.

        Other processes that open it wait until then, so no rows are lost. After an
        error in the block, the file stays as it was.

        Parameters
        ----------
        path : str or Path
            A file of JSON, or a database of SQLite by the suffix .db or .sqlite, which
            stays fast over millions of ids.
        gate : Gate
        level : float, optional
            As in `start`; an existing state keeps the level that it was started with.
        options
            Those of `start`. For an existing state new review rates and a new deadline
            apply from the next batch on; another `label_noise` is refused.

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
        from trustdoctor.watch import state_file

        return state_file.open_state(path, gate, level=level, **options)
