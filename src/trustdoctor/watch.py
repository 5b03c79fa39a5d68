"""Watching a gate at work, to see whether its promise still holds.

Both tests are betting e-processes. A mixture of likelihood ratios against the edge of
the null is a non-negative supermartingale under every rate of the null, so it may be
looked at after every batch for ever, and exceeds 1 / level with probability at most
`level` (Ville's inequality). For rows that are one thing or the other it depends on
their counts alone, which is all that has to be remembered.
"""

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor.certificate import Certificate
from trustdoctor.errors import FileError, InputError, LabelsMissingError
from trustdoctor.gate import Gate, as_groups
from trustdoctor.intervals import clopper_pearson
from trustdoctor.output import write_text
from trustdoctor.predictions import as_scores, to_numpy

SCHEMA = 1
PROMISES = ("frr", "trr", "risk", "joint", "coverage")
_ATLEAST = ("trr", "coverage")
_LABELS = (bool, int, float, np.bool_)
_ODDS = np.geomspace(1.02, 50, 60)  # how far from the null the alternatives are


@dataclass(frozen=True)
class Tally:
    """One test: a null on a rate, and the rows counted so far.

    Attributes
    ----------
    low, high : float
        The null: the rate is between them. 0 and 1 leave a side open.
    level : float
        The probability of a false alarm, over the whole future.
    n, hits : int
        Rows counted, and those that count towards the rate.
    peak : float
        The largest evidence so far; an alarm stays.
    """

    low: float
    high: float
    level: float
    n: int = 0
    hits: int = 0
    peak: float = 1.0

    def add(self, n: int, hits: int) -> "Tally":
        """Count more rows."""
        new = replace(self, n=self.n + n, hits=self.hits + hits)
        return replace(new, peak=max(self.peak, new.evidence))

    @property
    def evidence(self) -> float:
        """The wealth of betting against the null, starting from 1."""
        sides = []
        if self.high < 1:
            sides.append(_wealth(self.hits, self.n, self.high))
        if self.low > 0:
            sides.append(_wealth(self.n - self.hits, self.n, 1 - self.low))
        return float(np.mean(sides)) if sides else 1.0

    @property
    def alarm(self) -> bool:
        """Whether the null was rejected at some time."""
        return self.peak >= 1 / self.level

    def words(self, name: str) -> str:
        """Say in one line how the test stands."""
        rate = f"{self.hits / self.n:.2%} of {self.n:,}" if self.n else "no rows yet"
        null = f"{self.low:.2%} to {self.high:.2%}"
        said = "ALARM" if self.alarm else "holds"
        odds = f"evidence {self.peak:.3g} of {1 / self.level:.3g} for an alarm"
        return f"{name}: {said}; {rate}, expected {null}; {odds}"


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
    tallies : dict of str to Tally
        "accepted", and each promised rate under its name.
    """

    gate: Gate
    level: float
    tallies: dict[str, Tally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set the tests up from the certificate."""
        if not self.tallies:
            self.tallies = _tallies(self.gate, self.level)

    @property
    def alarm(self) -> bool:
        """Whether any test has alarmed."""
        return any(tally.alarm for tally in self.tallies.values())

    def update(self, scores: Any, errors: Any = None, *, groups: Any = None) -> "Watch":
        """Count a batch of rows, and their errors where these are known.

        Parameters
        ----------
        scores : array (n,)
        errors : array (n,), optional
            True, False, or NaN (None) where the label is not known yet.
        groups : array (n,), optional
            As in `Gate.accept`.
        """
        s = as_scores(scores)
        accepted = np.asarray(self.gate.accept(s, groups=groups))
        known = None if errors is None else _partial(errors, len(s))
        self._count("accepted", accepted)
        promised = self._promised(groups, len(s))
        self._count("coverage", accepted[promised])
        if known is not None:
            self._label(accepted, promised, *known)
        return self

    def label(self, scores: Any, errors: Any, *, groups: Any = None) -> "Watch":
        """Count labels that came late, of rows that `update` has seen before."""
        s = as_scores(scores)
        accepted = np.asarray(self.gate.accept(s, groups=groups))
        promised = self._promised(groups, len(s))
        self._label(accepted, promised, *_partial(errors, len(s)))
        return self

    def _promised(self, groups: Any, rows: int) -> Any:
        """Return which rows the promise is about: with groups, those that have one."""
        if not self.gate.groups:
            return np.ones(rows, bool)
        own = [name for name, rule in self.gate.groups.items() if rule.promised]
        return np.isin(as_groups(groups, rows=rows), own)

    def _label(self, accepted: Any, promised: Any, known: Any, wrong: Any) -> None:
        known = known & promised
        accepted, wrong = accepted[known], wrong[known]
        self._count("frr", ~accepted[~wrong])
        self._count("trr", ~accepted[wrong])
        self._count("risk", wrong[accepted])
        self._count("joint", wrong & accepted)

    def _count(self, name: str, hits: Any) -> None:
        if name in self.tallies:
            self.tallies[name] = self.tallies[name].add(len(hits), int(hits.sum()))

    def __repr__(self) -> str:
        """Say in words and numbers how every test stands."""
        lines = [tally.words(name) for name, tally in self.tallies.items()]
        head = "nothing to report"
        if self.tallies["accepted"].alarm:
            head = "the accept rate is not what it was at calibration"
        if any(t.alarm for name, t in self.tallies.items() if name != "accepted"):
            head = "the promise does not hold any more"
        return "\n".join([f"Watch: {head}", *lines])

    def save(self, path: str | Path) -> None:
        """Write the state as JSON, whole or not at all."""
        content = {
            "trustdoctor": "watch",
            "schema": SCHEMA,
            "gate": _identity(self.gate),
            "level": self.level,
            "tallies": {name: asdict(tally) for name, tally in self.tallies.items()},
        }
        write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path, gate: Gate) -> "Watch":
        """Read a state, refusing one that belongs to another gate."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content["trustdoctor"] != "watch" or content["schema"] != SCHEMA:
                message = "it is no state of a watch"
                raise ValueError(message)
            tallies = {k: Tally(**v) for k, v in content["tallies"].items()}
            of, level = content["gate"], float(content["level"])
        except OSError as error:
            message = f"cannot read {path}: {(error.strerror or '').lower()}."
            raise FileError(message) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"cannot read {path} as the state of a watch: {error}."
            raise FileError(message) from error
        if of != _identity(gate):
            message = f"the state in {path} belongs to another gate. Name another file."
            raise FileError(message)
        if not 0 < level < 1 or not _continues(tallies, _tallies(gate, level)):
            message = f"the state in {path} was changed or damaged. Start a new one."
            raise FileError(message)
        return cls(gate, level, tallies)


def _continues(tallies: dict[str, Tally], fresh: dict[str, Tally]) -> bool:
    """Whether tallies are of these very tests, with counts that can be."""
    return list(tallies) == list(fresh) and all(
        type(t.n) is int
        and type(t.hits) is int
        and 0 <= t.hits <= t.n
        and isinstance(t.peak, (int, float))
        and t.peak >= 1
        and (t.low, t.high, t.level) == (f.low, f.high, f.level)
        for t, f in zip(tallies.values(), fresh.values(), strict=True)
    )


def watch(gate: Gate, *, level: float = 0.1) -> Watch:
    """Start watching a calibrated gate.

    Parameters
    ----------
    gate : Gate
        With a certificate.
    level : float
        The probability of any false alarm, over the whole future.
    """
    if not 0 < level < 1:
        message = f"expected level between 0 and 1, got {level!r}."
        raise InputError(message)
    return Watch(gate, level)


def _tallies(gate: Gate, level: float) -> dict[str, Tally]:
    certificate = gate.certificate
    if certificate is None:
        message = (
            "this gate has no certificate, so there is nothing to watch it by. Make it "
            "with calibrate."
        )
        raise InputError(message)
    promised = [name for name in certificate.target if name in PROMISES]
    promised = promised if certificate.guarantee else []
    # A tenth of the level covers the limits that the calibration rows only estimate.
    tests = 1 + len(promised)
    limits, each = level / 10 / tests, 0.9 * level / tests
    low, high = _limits(certificate, "coverage", limits)
    out = {"accepted": Tally(low, high, each)}
    for name in promised:
        out[name] = _promise(certificate, name, each, limits)
    return out


def _promise(certificate: Certificate, name: str, level: float, limits: float) -> Tally:
    value = certificate.target[name]
    least = name in _ATLEAST
    low, high = (value, 1.0) if least else (0.0, value)
    if certificate.mode == "expectation":
        # On average the promise holds; this gate's own rate may lie beyond it.
        seen = _limits(certificate, name, limits)
        low, high = (min(low, seen[0]), 1.0) if least else (0.0, max(high, seen[1]))
    return Tally(low, high, level)


def _limits(certificate: Certificate, name: str, level: float) -> tuple[float, float]:
    if name not in certificate.observed:
        return 0.0, 1.0
    wholes = {
        "coverage": certificate.n,
        "joint": certificate.n,
        "frr": certificate.n_correct,
        "trr": certificate.n_errors,
    }
    rate = certificate.observed[name][0]
    if name == "risk":
        wholes["risk"] = round(certificate.observed["coverage"][0] * certificate.n)
    n = wholes[name]
    return clopper_pearson(round(rate * n), n, confidence=1 - level)


def _wealth(hits: int, n: int, null: float) -> float:
    """Bet that the rate is above `null`, by a mixture over alternatives."""
    if null <= 0:
        return math.inf if hits else 1.0
    odds = _ODDS * null / (1 - null)
    q = odds / (1 + odds)
    log_ratio = hits * np.log(q / null) + (n - hits) * np.log((1 - q) / (1 - null))
    return float(np.exp(np.minimum(log_ratio, 690)).mean())


def _partial(errors: Any, rows: int) -> tuple[Any, Any]:
    """Return which rows have a label, and which of those are wrong."""
    array = to_numpy(errors)
    if array.dtype == object and all(e is None or type(e) in _LABELS for e in array):
        array = np.array([np.nan if e is None else float(e) for e in array])
    values = array.astype(np.float64) if array.dtype.kind in "biuf" else np.zeros(0)
    known = ~np.isnan(values)
    if values.shape != (rows,) or not np.isin(values[known], (0, 1)).all():
        message = (
            f"expected errors as {rows} entries, one a score: True, False, or NaN "
            "where unknown."
        )
        raise LabelsMissingError(message)
    return known, np.where(known, values, 0) == 1


def _identity(gate: Gate) -> dict[str, Any]:
    assert gate.certificate is not None
    return {
        "score": gate.score,
        "temperature": gate.temperature,
        "state": gate.state,
        "threshold": str(gate.threshold),
        "fingerprint": gate.certificate.fingerprint,
    }
