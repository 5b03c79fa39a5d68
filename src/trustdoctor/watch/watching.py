"""Watching a gate at work, to see whether its promise still holds."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor import envelope
from trustdoctor.arrays import Array, as_groups, as_scores, to_numpy
from trustdoctor.atomic import locked, write_text
from trustdoctor.errors import FileError, InputError, LabelsMissingError
from trustdoctor.gates import TARGETS, Certificate, Gate, Outcome, Target
from trustdoctor.metrics import Confusion, clopper_pearson
from trustdoctor.predictions import Predictions, TopK
from trustdoctor.watch.bets import Bet

SCHEMA = 2
SCHEMAS = (1, 2)
"""Version 0.1 wrote schema 1, which still loads."""

LIMIT = 1_000_000
"""Bytes of a state at most."""

LEAST_LEVEL = 1e-9
"""Smaller probabilities of a false alarm are lost to rounding."""

ACCEPTED = "accepted"
"""The test that the accept rate is what it was at calibration."""

_LABELS = (bool, int, float, np.bool_)


@dataclass
class Watch:
    """Tests, after every batch, whether a gate still does what it promised.

    `gate.watch()` makes one. The accept rate is tested without labels against what the
    calibration rows showed; the promised rate is tested with labels, which may come
    late and in part (a random part). For a gate with groups it is tested on the rows of
    those groups that have a promise. The level is split among the tests.

    Attributes
    ----------
    gate : Gate
    level : float
        The probability of any false alarm, over the whole future.
    bets : dict of str to Bet
        "accepted", and each promised rate under its name.

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
    bets: dict[str, Bet] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set the tests up from the certificate."""
        if not self.bets:
            self.bets = _bets(self.gate, self.level)

    @classmethod
    def start(cls, gate: Gate, *, level: float = 0.1) -> "Watch":
        """Start watching a calibrated gate.

        Parameters
        ----------
        gate : Gate
            With a certificate.
        level : float
            The probability of any false alarm, over the whole future.
        """
        return cls(gate, _check_level(level))

    @property
    def alarm(self) -> bool:
        """Whether any test has alarmed."""
        return any(bet.alarm for bet in self.bets.values())

    def update(self, rows: Any, errors: Any = None, *, groups: Any = None) -> "Watch":
        """Count a batch of rows, and their errors where these are known.

        Parameters
        ----------
        rows : Predictions, TopK, or array (n,)
            Predictions, which the gate scores; or the doubts that it decides by.
        errors : array (n,), optional
            True, False, or NaN (None) where the label is not known yet; by default
            those of labelled predictions.
        groups : array (n,), optional
            As in `Gate.accept`; by default those of the predictions.
        """
        accepted, errors, groups = self._decided(rows, errors, groups)
        known = None if errors is None else _partial(errors, len(accepted))
        self._add(ACCEPTED, int(accepted.sum()), len(accepted))
        promised = self._promised(groups, len(accepted))
        self._count(Outcome.of(accepted[promised]).decisions, labels=False)
        if known is not None:
            self._label(accepted, promised, *known)
        return self

    def label(self, rows: Any, errors: Any = None, *, groups: Any = None) -> "Watch":
        """Count labels that came late, of rows that `update` has seen before."""
        accepted, errors, groups = self._decided(rows, errors, groups)
        if errors is None:
            message = "late labels are missing: pass errors, or labelled predictions."
            raise LabelsMissingError(message)
        promised = self._promised(groups, len(accepted))
        self._label(accepted, promised, *_partial(errors, len(accepted)))
        return self

    def _decided(self, rows: Any, errors: Any, groups: Any) -> tuple[Array, Any, Any]:
        """Return what the gate accepts, and what is known of the rows."""
        if not isinstance(rows, (Predictions, TopK)):
            scores = as_scores(rows)
            accepted = self.gate.accept(scores, groups=groups)
            return np.asarray(accepted), errors, groups
        if errors is None and rows.labels is not None:
            errors = _partial_errors(rows)
        if groups is None and self.gate.groups:
            groups = self.gate.groups_of(rows)
        return self.gate.screen(rows, groups=groups).accepted, errors, groups

    def _promised(self, groups: Any, rows: int) -> Array:
        """Return which rows the promise is about: with groups, those that have one."""
        if not self.gate.groups:
            return np.ones(rows, bool)
        own = [name for name, rule in self.gate.groups.items() if rule.promised]
        return np.isin(as_groups(groups, rows=rows), own)

    def _label(
        self, accepted: Array, promised: Array, known: Array, wrong: Array
    ) -> None:
        at = known & promised
        counts = Outcome.of(accepted[at], wrong[at]).counts
        assert counts is not None
        self._count(counts, labels=True)

    def _count(self, counts: Confusion, *, labels: bool) -> None:
        """Bet on every promised rate that needs labels, or that does not."""
        for name in self.bets:
            target = TARGETS.get(name)
            if target is None or target.needs_labels != labels:
                continue
            assert target.counts is not None
            self._add(name, *target.counts(counts))

    def _add(self, name: str, counted: int, n: int) -> None:
        self.bets[name] = self.bets[name].add(n, counted)

    def __repr__(self) -> str:
        """Say in words and numbers how every test stands."""
        lines = [bet.words(name) for name, bet in self.bets.items()]
        head = "nothing to report"
        if self.bets[ACCEPTED].alarm:
            head = "the accept rate is not what it was at calibration"
        if any(bet.alarm for name, bet in self.bets.items() if name != ACCEPTED):
            head = "the promise does not hold any more"
        return "\n".join([f"Watch: {head}", *lines])

    def save(self, path: str | Path) -> None:
        """Write the state as JSON, whole or not at all."""
        content = {
            "gate": _identity(self.gate),
            "level": self.level,
            "bets": {name: asdict(bet) for name, bet in self.bets.items()},
        }
        write_text(path, envelope.dump("watch", SCHEMA, content))

    @classmethod
    def load(cls, path: str | Path, gate: Gate) -> "Watch":
        """Read a state, refusing one that belongs to another gate."""
        content = envelope.load(path, "watch", schemas=SCHEMAS, limit=LIMIT)
        first = content["schema"] == 1
        kept = "tallies" if first else "bets"
        try:
            envelope.check_fields(content, {"schema", "gate", "level", kept})
            level = envelope.read_number(content["level"])
        except FileError as error:
            message = f"cannot read {path} as the state of a watch: {error}"
            raise FileError(message) from error
        if not _is_same(content["gate"], _identity(gate, first=first)):
            message = f"the state in {path} belongs to another gate. Name another file."
            raise FileError(message)
        try:
            fresh = _bets(gate, _check_level(level))
            envelope.check_fields(content[kept], set(fresh))
            bets = {
                name: _continued(
                    bet, content[kept][name], "hits" if first else "counted"
                )
                for name, bet in fresh.items()
            }
        except (FileError, InputError) as error:
            message = (
                f"the state in {path} was changed or damaged: {error} Start a new one."
            )
            raise FileError(message) from error
        return cls(gate, level, bets)

    @classmethod
    def load_or_start(
        cls, path: str | Path, gate: Gate, *, level: float | None = None
    ) -> "Watch":
        """Read a state that is there, else start one; `open` saves it as well."""
        if not Path(path).exists():
            return cls.start(gate, level=0.1 if level is None else level)
        watch = cls.load(path, gate)
        if level not in (None, watch.level):
            message = f"the state was begun at level {watch.level:g}, got {level:g}. "
            message += "Leave --level out."
            raise InputError(message)
        return watch

    @classmethod
    @contextmanager
    def open(
        cls, path: str | Path, gate: Gate, *, level: float | None = None
    ) -> Iterator["Watch"]:
        """Go on with the state in a file, or begin one; it is saved at the end.

        Other processes that open it wait until then, so no rows are lost. After an
        error within, the file stays as it was.

        Parameters
        ----------
        path : str or Path
        gate : Gate
        level : float, optional
            As in `start`; of a state that is there, the one it was begun with.

        Examples
        --------
        >>> import tempfile
        >>> from trustdoctor import calibrate_scores
        >>> gate = calibrate_scores(np.arange(100.0), coverage=0.5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for doubts in ([1.0, 2.0], [3.0]):
        ...         with Watch.open(f"{folder}/state.json", gate) as watch:
        ...             _ = watch.update(doubts)
        >>> watch.bets["accepted"].n
        3
        """
        with locked(path):
            watch = cls.load_or_start(path, gate, level=level)
            yield watch
            watch.save(path)


def _check_level(level: float) -> float:
    if not LEAST_LEVEL <= level < 1:
        message = f"expected level between {LEAST_LEVEL:g} and 1, got {level!r}."
        raise InputError(message)
    return level


def _is_same(content: Any, identity: dict[str, Any]) -> bool:
    """Whether a file says this, in the same types."""
    ours, theirs = (json.dumps(one, sort_keys=True) for one in (content, identity))
    return ours == theirs


def _continued(bet: Bet, content: Any, counted: str) -> Bet:
    """Return a bet as a state has it, if that is what it could have become."""
    numbers = {"low", "high", "level", "peak"}
    envelope.check_fields(content, {"n", counted, *numbers})
    low, high, level, peak = (
        envelope.read_number(content[name]) for name in ("low", "high", "level", "peak")
    )
    n, part = content["n"], content[counted]
    if (
        type(n) is not int
        or type(part) is not int
        or not 0 <= part <= n < envelope.MOST_ROWS
        or not 1 <= peak < math.inf
        or (low, high, level) != (bet.low, bet.high, bet.level)
    ):
        message = f"its counts or limits cannot be, {envelope.shown(content)}."
        raise FileError(message)
    return replace(bet, n=n, counted=part, peak=peak)


def _bets(gate: Gate, level: float) -> dict[str, Bet]:
    certificate = gate.certificate
    if certificate is None:
        message = (
            "this gate has no certificate, so there is nothing to watch it by. Make it "
            "with calibrate."
        )
        raise InputError(message)
    rates = [TARGETS[name] for name in certificate.target]
    promised = [target for target in rates if target.promised and target.counts]
    promised = promised if certificate.guarantee else []
    # A tenth of the level covers the limits that the calibration rows only estimate.
    tests = 1 + len(promised)
    limits, each = level / 10 / tests, 0.9 * level / tests
    low, high = _limits(certificate, TARGETS["coverage"], limits)
    out = {ACCEPTED: Bet(low, high, each)}
    for target in promised:
        out[target.name] = _promise(certificate, target, each, limits)
    return out


def _promise(
    certificate: Certificate, target: Target, level: float, limits: float
) -> Bet:
    value = certificate.target[target.name]
    low, high = (value, 1.0) if target.at_least else (0.0, value)
    if certificate.mode == "expectation":
        # On average the promise holds; this gate's own rate may lie beyond it.
        seen = _limits(certificate, target, limits)
        if target.at_least:
            low = min(low, seen[0])
        else:
            high = max(high, seen[1])
    return Bet(low, high, level)


def _limits(
    certificate: Certificate, target: Target, level: float
) -> tuple[float, float]:
    """Return what the calibration rows say of a rate, at that level."""
    if target.name not in certificate.observed:
        return 0.0, 1.0
    assert target.counts is not None
    part, whole = target.counts(_seen(certificate))
    return clopper_pearson(part, whole, confidence=1 - level)


def _seen(certificate: Certificate) -> Confusion:
    """Return what the gate did to the calibration rows, from the rates in its file."""

    def part(name: str, whole: int) -> int:
        seen = certificate.observed.get(name)
        return 0 if seen is None else round((seen.value or 0.0) * whole)

    if certificate.n_errors < 0:
        kept = part("coverage", certificate.n)
        return Confusion(certificate.n - kept, 0, 0, kept)
    right, wrong = certificate.n_correct, certificate.n_errors
    fr, tr = part("frr", right), part("trr", wrong)
    return Confusion(fr, tr, wrong - tr, right - fr)


def _partial(errors: Any, rows: int) -> tuple[Array, Array]:
    """Return which rows have a label, and which of those are wrong."""
    array = to_numpy(errors)
    if array.dtype == object and all(e is None or type(e) in _LABELS for e in array):
        array = np.array([np.nan if e is None else float(e) for e in array])
    values = array.astype(np.float64) if array.dtype.kind in "biuf" else np.zeros(0)
    known = ~np.isnan(values)
    if values.shape != (rows,) or not np.isin(values[known], (0, 1)).all():
        message = (
            f"expected errors as {rows} entries, one per score: True, False, or NaN "
            "where unknown."
        )
        raise LabelsMissingError(message)
    return known, np.where(known, values, 0) == 1


def _partial_errors(rows: Predictions | TopK) -> Array:
    """Return where rows are wrong, NaN where one has no label."""
    if isinstance(rows, TopK):
        return rows.errors
    assert rows.labels is not None
    return np.where(rows.known, rows.predicted != rows.labels, np.nan)


def _identity(gate: Gate, *, first: bool = False) -> dict[str, Any]:
    """Say which gate it is; version 0.1 had no fitted scores to say."""
    fingerprint = "" if gate.certificate is None else gate.certificate.fingerprint
    out = {
        "score": gate.score,
        "temperature": gate.temperature,
        "state": gate.state,
        "threshold": str(gate.threshold),
        "fingerprint": fingerprint,
    }
    if not first:
        out["fitted"] = None if gate.fitted is None else gate.fitted.digest
    return out
