"""Which rows to label: a random draw among those that a gate could accept.

A promise of risk is about accepted rows alone, so labels on rows that no gate will
accept are wasted. The draw is uniform among the least doubtful share of a pool without
labels, and a gate that is calibrated on it rejects all rows beyond that share. Its
promise holds as it stands: the rows that it may accept are rows like the drawn ones.

Every row gets a place in a random order that only its id (or its place in the pool) and
the seed decide. The first rows of that order below the limit are drawn, so a later draw
with the same limit (`after`) contains the earlier one, and no label is wasted.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.gates.boundary import MOST_ROWS_TESTED
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.request import requested_targets
from trustdoctor.gates.risk import risk_cut
from trustdoctor.gates.rules import cut_accepting, threshold_of
from trustdoctor.gates.sample import Rows
from trustdoctor.gates.targets import TARGETS
from trustdoctor.metrics import matching_temperature, top_probability
from trustdoctor.predictions import Answers, Predictions, require_predictions
from trustdoctor.scores import Score, default_score, find_score, setting_name

DELTA = 0.1
"""The level that a draw is planned for; a calibration may have another."""

SHARES = np.arange(2, 21) / 20
"""The shares of the pool that are tried."""

SIMULATIONS = 48
"""Simulated calibrations for each of them."""

EMPTY_COST = 0.3
"""How much coverage a share may lose for each calibration less that accepts nothing."""

EXCHANGEABLE = (
    "Future rows are exchangeable with the pool that the calibration rows were drawn "
    "from; they did not choose the score or its temperature."
)

PESSIMISM = {"known": 1.3, "own": 5.0}
"""Factors on the probabilities of an error, before they are simulated.

Models are too sure of themselves: by far, unless their probabilities were scaled to a
known accuracy. Chosen on six real files; docs/few_labels.md shows what they give on
others.
"""

_KIND = "trustdoctor-draw-1"


class _DrawText(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What `LabelDraw.to_text` writes."""

    kind: str
    target: str
    value: float
    score: str
    limit: float | None
    share: float
    pool: int
    labels: int
    seed: int
    looks: int


@dataclass(frozen=True)
class LabelDraw:
    """A draw of rows to label.

    Attributes
    ----------
    rows : integer array (labels,)
        The numbers of the drawn rows, in the order of the pool.
    target, value : str, float
        What will be promised.
    score : str
        The score by which rows are the least doubtful.
    limit : float
        Rows of the pool with a larger doubt were not drawn, and will be rejected; inf
        if all could be drawn.
    share : float
        The share of the pool below the limit.
    pool : int
        The rows of the pool.
    labels : int
        The drawn rows.
    seed : int
    looks : int
        How many calibrations were planned, on more and more rows of this draw: they
        share the level.

    Examples
    --------
    >>> p = Predictions.from_logits([[k / 100, 0.0] for k in range(1, 1001)])
    >>> drawn = draw(p, labels=100, risk=0.1)
    >>> drawn.share < 1, len(drawn.rows)
    (True, 100)
    >>> bool((find_score("alpha")(p[drawn.rows]) <= drawn.limit).all())
    True
    """

    target: str
    value: float
    score: str
    limit: float
    share: float
    pool: int
    labels: int
    seed: int = 0
    looks: int = 1
    rows: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(0, np.int64), repr=False, compare=False
    )

    def words(self) -> str:
        """Say from which rows they were drawn, and why.

        Examples
        --------
        >>> LabelDraw("frr", 0.05, "alpha", math.inf, 1.0, 1000, 200).words()
        'Drew 200 of 1,000 rows uniformly: frr is about all rows.'
        """
        if self.target == "shortlist":
            return (
                f"Drew {self.labels:,} rows uniformly among the {self.share:.1%} of "
                f"{self.pool:,} that the gate rejects."
            )
        if math.isfinite(self.limit):
            return (
                f"Drew {self.labels:,} of {self.pool:,} rows uniformly among the least "
                f"doubtful {self.share:.1%} (by {self.score}), where labels count for "
                f"a risk of {100 * self.value:.6g}%."
            )
        why = "a gate could accept any of them"
        if self.target != "risk":
            why = f"{self.target} is about all rows"
        return f"Drew {self.labels:,} of {self.pool:,} rows uniformly: {why}."

    def to_text(self) -> str:
        """Return the design as one line, for the column `draw` of a file."""
        limit = self.limit if math.isfinite(self.limit) else None
        fields = {f: getattr(self, f) for f in _DrawText.__struct_fields__[1:]}
        fields["limit"] = limit
        return msgspec.json.encode(_DrawText(_KIND, **fields)).decode()

    @classmethod
    def from_text(cls, text: str) -> "LabelDraw":
        """Read what `to_text` wrote.

        Examples
        --------
        >>> drawn = LabelDraw("risk", 0.05, "alpha", -1.5, 0.6, 1000, 200)
        >>> LabelDraw.from_text(drawn.to_text()) == drawn
        True
        """
        try:
            content = msgspec.json.decode(text, type=_DrawText)
            if content.kind != _KIND:
                raise msgspec.ValidationError
        except (msgspec.DecodeError, UnicodeError):
            message = (
                "expected in the column 'draw' what trustdoctor draw wrote, "
                f"got {text[:60]!r}. Restore it, or remove the column: all rows then "
                "count as a plain sample."
            )
            raise InputError(message) from None
        fields = structs.asdict(content)
        del fields["kind"]
        fields["limit"] = math.inf if content.limit is None else content.limit
        return cls(**fields)

    def check(self, doubts: Array, score: Score, targets: dict[str, float]) -> None:
        """Refuse rows that are not those that were drawn, or another target."""
        if setting_name(score) != self.score:
            message = (
                f"these rows were drawn by {self.score}, and the gate is to use "
                f"{setting_name(score)}. Leave the score out, or draw again."
            )
            raise InputError(message)
        if len(doubts) != self.labels:
            message = (
                f"expected the {self.labels:,} rows that were drawn, got "
                f"{len(doubts):,}. Keep rows without a label in the file, and leave "
                "their labels blank."
            )
            raise InputError(message)
        beyond = int((doubts > self.limit).sum())
        if beyond:
            message = (
                f"{beyond:,} rows have a doubt above {self.limit:.6g}, where none was "
                "drawn: these are not the drawn rows, or another model's."
            )
            raise InputError(message)
        if math.isfinite(self.limit) and set(targets) != {"risk"}:
            message = (
                f"these rows were drawn for risk, among the least doubtful "
                f"{self.share:.0%} of the pool, and {' and '.join(targets)} is about "
                "all rows. Draw for that target, or ask for risk."
            )
            raise InputError(message)

    def within(self, gate: Gate) -> Gate:
        """Return the gate with no row accepted beyond the limit, and a note on it."""
        note = (
            f"Labels were drawn at random among the least doubtful {self.share:.1%} of "
            f"{self.pool:,} rows (seed {self.seed}): {self.labels:,} rows."
        )
        certificate = gate.certificate
        assert certificate is not None
        if math.isinf(self.limit):
            return gate.with_notes(note)
        note += f" Rows with {gate.rejects(self.limit)} are rejected."
        if certificate.accepted is not None:
            accepted = self.share * certificate.accepted / certificate.n
            note += (
                " What was seen is about the drawn rows alone; of all rows about "
                f"{accepted:.0%} are accepted."
            )
        groups = {
            name: replace(
                threshold,
                threshold=min(threshold.threshold, self.limit),
                state=_capped(threshold.state),
            )
            for name, threshold in gate.groups.items()
        }
        trivial = "" if gate.state == "accept-all" else certificate.trivial
        gate = replace(
            gate,
            threshold=gate.threshold
            if gate.state == "reject-all"
            else min(gate.threshold, self.limit),
            state=_capped(gate.state),
            groups=groups,
            certificate=structs.replace(
                certificate,
                trivial=trivial,
                drawn_share=self.share,
                assumption=EXCHANGEABLE,
            ),
        )
        return gate.with_notes(note)


def _capped(state: Any) -> Any:
    return "threshold" if state == "accept-all" else state


def draw(  # noqa: PLR0913 - options, by keyword only
    pool: Predictions,
    *,
    labels: int,
    risk: float | None = None,
    frr: float | None = None,
    trr: float | None = None,
    joint: float | None = None,
    coverage: float | None = None,
    target: Mapping[str, float] | None = None,
    score: str | Score | None = None,
    accuracy: float | None = None,
    gate: Gate | None = None,
    seed: int = 0,
    looks: int = 1,
    after: LabelDraw | None = None,
) -> LabelDraw:
    """Draw rows to label from rows without labels.

    For a risk, uniformly among the least doubtful rows that a gate could accept; for
    the other targets uniformly among all, since they are about all rows.

    Parameters
    ----------
    pool : Predictions
        Rows like those to come; labels, if any, do not count.
    labels : int
        How many rows to draw.
    risk, frr, trr, joint, coverage : float
        What will be promised: one of them. Or `gate`.
    target : dict, optional
        The same by name.
    score : str or Score, optional
        The score of the gate that will be calibrated; by default alpha, or the
        confidence of answers.
    accuracy : float, optional
        The model's accuracy, if it is known: its probabilities are scaled to it before
        they say which rows a gate could accept.
    gate : Gate, optional
        Draw for a shortlist instead: among the rows that this gate rejects.
    seed : int
    looks : int
        How many calibrations are planned, on more and more rows of this draw. They
        share the level: fix it before the first label is seen.
    after : LabelDraw, optional
        An earlier draw from the same pool: this one contains its rows, and has its
        score, limit, seed and looks. `labels` counts both.

    Returns
    -------
    LabelDraw
        `pool[drawn.rows]` are the rows to label; with their labels they go to
        ``calibrate(p, risk=..., draw=drawn)``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(5000, 4))
    >>> truth = (logits + 2 * rng.normal(size=logits.shape)).argmax(1)
    >>> pool = Predictions.from_logits(logits)
    >>> drawn = draw(pool, labels=200, risk=0.1, accuracy=0.75)
    >>> print(drawn.words())
    Drew 200 of 5,000 rows uniformly among the least doubtful 40.0% (by alpha), where \
labels count for a risk of 10%.
    >>> from trustdoctor import calibrate
    >>> rows = Predictions.from_logits(logits[drawn.rows], truth[drawn.rows])
    >>> gate = calibrate(rows, risk=0.1, draw=drawn)
    >>> gate.threshold <= drawn.limit
    True
    """
    require_predictions(pool)
    for option, number, least in (
        ("labels", labels, 1),
        ("looks", looks, 1),
        ("seed", seed, 0),
    ):
        if type(number) is not int or number < least:
            message = f"expected {option} of {least} or more, got {number!r}."
            raise InputError(message)
    targets = requested_targets(
        target, risk=risk, frr=frr, trr=trr, joint=joint, coverage=coverage
    )
    if (gate is None) == (not targets) or len(targets) > 1:
        message = (
            "expected one of risk, frr, trr, joint, coverage and gate, got "
            f"{' and '.join([*targets, *(['gate'] if gate else [])]) or 'none'}."
        )
        raise InputError(message)
    order = _random_order(pool, seed)
    if gate is not None:
        return _draw_rejected(pool, gate, order, labels, seed)
    ((name, value),) = targets.items()
    value = TARGETS[name].check(value)
    drawing_score = find_score(score or default_score(pool))
    doubts = np.asarray(drawing_score(pool), np.float64)
    n = len(pool)
    limit, size = math.inf, n
    if after is not None:
        _check_earlier(after, name, drawing_score, n, labels)
        limit, seed, looks = after.limit, after.seed, after.looks
        order = _random_order(pool, seed)
        size = int((doubts <= limit).sum())
    elif name == "risk":
        limit, size = _limit(
            pool, drawing_score, doubts, value, labels, accuracy, DELTA / looks
        )
    order = order[doubts[order] <= limit]
    _require_rows(labels, len(order), n)
    rows = np.sort(order[:labels])
    return LabelDraw(
        target=name,
        value=value,
        score=setting_name(drawing_score),
        limit=limit,
        share=size / n,
        pool=n,
        labels=labels,
        seed=seed,
        looks=looks,
        rows=rows,
    )


def _check_earlier(
    earlier: LabelDraw, target: str, score: Score, pool: int, labels: int
) -> None:
    """Refuse a draw that cannot contain an earlier one."""
    asked = (target, setting_name(score), pool)
    if asked != (earlier.target, earlier.score, earlier.pool):
        message = (
            f"the earlier draw was for {earlier.target} by {earlier.score} from "
            f"{earlier.pool:,} rows, got {target} by {asked[1]} from {pool:,}. Draw "
            "from the same pool for the same."
        )
        raise InputError(message)
    if labels <= earlier.labels:
        message = (
            f"expected more than the {earlier.labels:,} labels of the earlier draw, "
            f"got {labels:,}: the number counts both."
        )
        raise InputError(message)


def _draw_rejected(
    pool: Predictions, gate: Gate, order: Array, labels: int, seed: int
) -> LabelDraw:
    """Draw among the rows that a gate rejects, for its shortlist."""
    rejected = gate.screen(pool).review
    order = order[rejected[order]]
    _require_rows(labels, len(order), len(pool))
    return LabelDraw(
        target="shortlist",
        value=0.0,
        score=setting_name(gate.require_score()),
        limit=math.inf,
        share=len(order) / len(pool),
        pool=len(pool),
        labels=labels,
        seed=seed,
        rows=np.sort(order[:labels]),
    )


def _require_rows(labels: int, available: int, pool: int) -> None:
    if labels > available:
        message = (
            f"expected at most {available:,} labels, the rows of {pool:,} that may be "
            f"drawn, got {labels:,}."
        )
        raise InputError(message)


def _random_order(pool: Predictions, seed: int) -> NDArray[np.int64]:
    """Return the rows in an order that only their ids and the seed decide."""
    if pool.ids is None:
        return np.random.default_rng(seed).permutation(len(pool))
    keys = [
        hashlib.blake2b(f"{seed} {row_id}".encode("utf-8", "replace")).digest()
        for row_id in pool.ids.tolist()
    ]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def _limit(  # noqa: PLR0913 - what a draw depends on
    pool: Predictions,
    score: Score,
    doubts: Array,
    risk: float,
    labels: int,
    accuracy: float | None,
    delta: float,
) -> tuple[float, int]:
    """Return the largest doubt of rows that may be drawn, and how many these are."""
    correct, n = _expected_correct(pool, accuracy), len(pool)
    if correct is None:  # nothing says what to expect
        return math.inf, n
    order = np.argsort(doubts, kind="stable")
    factor = PESSIMISM["own" if accuracy is None else "known"]
    wrong = np.minimum(factor * (1 - correct[order]), 1.0)
    share = best_share(wrong, risk, labels, delta=delta)
    sample = Rows(doubts, rounding=score.rounding)
    accepted = sample.accepted_by_kth(math.ceil(share * n))[0]
    if accepted == n:
        return math.inf, n
    return threshold_of(cut_accepting(sample, accepted), sample), accepted


def best_share(wrong: Array, risk: float, labels: int, *, delta: float = 0.1) -> float:
    """Return the share of the pool to draw from, by simulated calibrations.

    Labels in a small share show more easily that its risk is low; in a large one they
    may show it of more rows. The share with the largest mean coverage is taken, less
    `EMPTY_COST` for calibrations that accept nothing.

    Parameters
    ----------
    wrong : array (n,)
        How probable it is that each row of the pool is wrong, the least doubtful first.
    risk : float
    labels : int
    delta : float
        The level of the calibration.

    Examples
    --------
    >>> wrong = np.repeat([0.0, 0.5], 500)
    >>> best_share(wrong, 0.05, 100)
    0.55
    """
    n, random = len(wrong), np.random.default_rng(0)
    labels = min(labels, MOST_ROWS_TESTED)
    places, chances = (random.random((SIMULATIONS, labels)) for _ in range(2))
    worth = []
    for share in SHARES:
        rows = (places * max(1, int(share * n))).astype(np.int64)
        errors = chances < wrong[rows]
        accepted = np.array(
            [
                _accepted_rows(rows[k], errors[k], risk, delta, int(share * n))
                for k in range(SIMULATIONS)
            ]
        )
        worth.append(accepted.mean() / n - EMPTY_COST * (accepted == 0).mean())
    return float(SHARES[int(np.argmax(worth))])


def _accepted_rows(
    rows: Array, errors: Array, risk: float, delta: float, size: int
) -> int:
    """Return how many rows of the pool a gate from these labels accepts."""
    sample = Rows(rows.astype(np.float64), errors)
    cut = risk_cut(sample, risk, mode="confidence", delta=delta)
    if cut.state == "threshold":
        return int(cut.score) + 1
    return size if cut.state == "accept-all" else 0


def _expected_correct(pool: Predictions, accuracy: float | None) -> Array | None:
    """Return how probable the model itself says that each prediction is right."""
    if not isinstance(pool, Answers):
        scale = 1.0 if accuracy is None else matching_temperature(pool, accuracy)
        return np.asarray(top_probability(pool, temperature=scale))
    if pool.confidence is None:
        return None
    confidence = np.clip(np.asarray(pool.confidence, np.float64), 1e-6, 1 - 1e-6)
    if accuracy is None:
        return confidence
    from scipy import special

    odds, low, high = special.logit(confidence), -20.0, 20.0
    if not 0 < accuracy < 1:
        message = f"expected accuracy between 0 and 1, got {accuracy!r}."
        raise InputError(message)
    for _ in range(60):  # shift the log odds until their mean is the accuracy
        middle = (low + high) / 2
        if special.expit(odds + middle).mean() < accuracy:
            low = middle
        else:
            high = middle
    return np.asarray(special.expit(odds + high))
