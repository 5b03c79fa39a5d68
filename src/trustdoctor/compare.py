"""Which score to use: everything that the information at hand allows, judged fairly.

Rows are permuted and split three ways: some fit, some choose settings, some judge.
Every candidate is judged against softmax response on the same rows, with intervals
corrected for how many there are; of those that are clearly better, the one that was
best on the choosing rows is recommended.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np

from trustdoctor.curves import Array
from trustdoctor.errors import InputError, UndefinedMetricError
from trustdoctor.estimate import Estimate, deviations
from trustdoctor.intervals import (
    FEW_ERRORS,
    bootstrap,
    delong,
    delong_difference,
    quantiles,
)
from trustdoctor.metrics import Points, auroc, frr_at_trr
from trustdoctor.opinion import Opinions
from trustdoctor.output import write_text
from trustdoctor.predictions import Predictions, as_scores
from trustdoctor.scores import SCORES, score_all
from trustdoctor.scores.distance import Mahalanobis
from trustdoctor.scores.neighbours import KNN, TrustScore, ViM
from trustdoctor.scores.relative import SIRC, Fusion, RelU, as_features

BASELINE = "msp"
"""Softmax response: what every candidate is judged against."""

Scorer = Callable[[Array], Array]


@dataclass(frozen=True)
class Judged:
    """One candidate.

    Attributes
    ----------
    name : str
    needs : str
        What it is made of: "probs", "logits", "labels", "features" or "views".
    passes : float
        Of the model a row.
    setting : str
        What the choosing rows chose for it.
    chosen_auroc : float
        On the choosing rows.
    auroc, frr_at_trr : Estimate
        On the judging rows.
    auroc_gain, frr_change : Estimate
        Against softmax response on the same rows, paired, corrected for the number of
        candidates. A gain in AUROC is good, a rise of FRR is not.
    better : bool
        Whether its gain in AUROC is clear.
    """

    name: str
    needs: str
    passes: float
    setting: str
    chosen_auroc: float
    auroc: Estimate
    frr_at_trr: Estimate
    auroc_gain: Estimate
    frr_change: Estimate
    better: bool


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    n_fit, n_chosen, n_judged, n_errors : int
        Rows that fitted, chose and judged; errors among the last.
    candidates : tuple of Judged
        Softmax response first, then by AUROC on the judging rows.
    recommended : str or None
        The candidate that was best on the choosing rows among those that are clearly
        better than softmax response; None where none is.
    confidence : float
        Of all comparisons of AUROC together, and of all of FRR.
    skipped : tuple of str
        Scores that could not be made of these rows, and why.
    """

    n_fit: int
    n_chosen: int
    n_judged: int
    n_errors: int
    candidates: tuple[Judged, ...]
    recommended: str | None
    confidence: float
    points: Points
    skipped: tuple[str, ...] = ()

    def verdict(self) -> str:
        """Say which score to use, in words."""
        if self.recommended is None:
            return (
                f"None is better than softmax response here: on {self.n_judged:,} "
                f"rows with {self.n_errors:,} errors, none of "
                f"{len(self.candidates) - 1} candidates has a gain in AUROC that is "
                f"clear at {self.confidence:.0%}. Use {BASELINE}."
            )
        best = next(c for c in self.candidates if c.name == self.recommended)
        gain, change = best.auroc_gain, best.frr_change
        passes = f"{best.passes:g} passes" if best.passes != 1 else "one pass"
        at = f"FRR@{self.points.trr * 100:g}TRR"
        return (
            f"Use {best.name} ({passes} a row): AUROC {signed(gain)}, {at} "
            f"{signed(change)} points against softmax response on {self.n_judged:,} "
            "rows that neither fitted it nor chose its settings."
        )

    def to_json(self, path: str | None = None) -> str:
        """Return JSON, and write it to `path` if one is given."""
        content = {"trustdoctor": "comparison", "schema": 1, **asdict(self)}
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        if path is not None:
            write_text(path, text)
        return text

    def __repr__(self) -> str:
        """Show the candidates as a small table."""
        lines = [f"{'score':<16}{'passes':>7}{'AUROC':>8}{'gain':>24}"]
        for c in self.candidates:
            area = (c.auroc.value or 0) * 100
            gain = "" if c.name == BASELINE else signed(c.auroc_gain)
            lines.append(f"{c.name:<16}{c.passes:>7g}{area:>8.2f}{gain:>24}")
        return "\n".join([*lines, self.verdict()])


def signed(estimate: Estimate) -> str:
    """Show a difference in points, with its sign and its interval."""
    value = f"{100 * (estimate.value or 0):+.2f}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{100 * estimate.low:+.2f}, {100 * estimate.high:+.2f}]"


@dataclass(frozen=True)
class _Candidate:
    """A score with its settings: a function of row numbers for each."""

    name: str
    needs: str
    passes: float
    settings: dict[str, Scorer]


def compare(  # noqa: PLR0913 - options, by keyword only
    predictions: Predictions,
    *,
    features: Any = None,
    train: tuple[Any, Any, Any] | None = None,
    opinions: Opinions | None = None,
    extra: dict[str, tuple[Any, float]] | None = None,
    points: Points | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Judge every score that the information allows against softmax response.

    Parameters
    ----------
    predictions : Predictions
        With labels; rows that the model was not trained on.
    features : array (n, d), optional
        Of the same rows: Mahalanobis, kNN, trust score, SIRC and ViM come in.
    train : (features, labels, logits), optional
        Of training rows, to fit those on; without it they are fitted on the third of
        the rows that fits.
    opinions : Opinions, optional
        What `SecondOpinion` found on the same rows.
    extra : dict of str to (scores, passes), optional
        Scores of your own on the same rows, and how often they ask the model.
    points : Points, optional
        Where FRR@TRR is taken.
    confidence : float
        That no comparison errs, all together.
    seed : int
        Of the split.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(3000, 4)) * 2
    >>> labels = np.where(rng.random(3000) < 0.8, z.argmax(1), rng.integers(0, 4, 3000))
    >>> found = compare(Predictions.from_logits(z, labels))
    >>> found.n_fit, found.n_judged, found.candidates[0].name
    (1000, 1000, 'msp')
    """
    _check(predictions, features, train, opinions, confidence, seed)
    wrong = predictions.errors
    order = np.random.default_rng(seed).permutation(len(wrong))
    fit, chosen, judged = np.array_split(order, 3)
    for rows, what in ((fit, "fit"), (chosen, "choose"), (judged, "judge")):
        if not 0 < wrong[rows].sum() < len(rows):
            message = (
                f"the third of the rows that is to {what} holds rows of one kind "
                "alone. Give it more rows."
            )
            raise UndefinedMetricError(message)
    world = _World(predictions, features, train, opinions, extra or {}, fit)
    candidates = list(world.candidates())
    names = [c.name for c in candidates]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        message = f"the name {twice!r} is taken by a score. Give yours another."
        raise InputError(message)
    settled = [_settle(c, wrong, chosen) for c in candidates]
    at = points or Points()
    found = _judge(settled, wrong, judged, at, confidence)
    first = [c for c in found if c.name == BASELINE]
    rest = sorted(
        (c for c in found if c.name != BASELINE),
        key=lambda c: -(c.auroc.value or 0),
    )
    better = [c for c in rest if c.better]
    best = max(better, key=lambda c: c.chosen_auroc, default=None)
    return Comparison(
        n_fit=len(fit),
        n_chosen=len(chosen),
        n_judged=len(judged),
        n_errors=int(wrong[judged].sum()),
        candidates=(*first, *rest),
        recommended=None if best is None else best.name,
        confidence=confidence,
        points=at,
        skipped=tuple(world.skipped),
    )


def _check(  # noqa: PLR0913 - what compare was given
    predictions: Any,
    features: Any,
    train: Any,
    opinions: Any,
    confidence: Any,
    seed: Any,
) -> None:
    """Refuse what cannot be compared."""
    if not isinstance(predictions, Predictions):
        message = f"expected Predictions, got {type(predictions).__name__}."
        raise InputError(message)
    if not (isinstance(confidence, (int, float)) and 0 < confidence < 1):
        message = f"expected a confidence between 0 and 1, got {confidence!r}."
        raise InputError(message)
    if not (type(seed) is int and seed >= 0):
        message = f"expected a seed of 0 or more, got {seed!r}."
        raise InputError(message)
    if train is not None and (features is None or len(train) != 3):
        message = "expected train as (features, labels, logits), with features=."
        raise InputError(message)
    if opinions is not None:
        _check_opinions(predictions, opinions)


def _check_opinions(predictions: Predictions, opinions: Any) -> None:
    if not isinstance(opinions, Opinions):
        message = f"expected Opinions, got {type(opinions).__name__}."
        raise InputError(message)
    if not np.array_equal(opinions.predictions.logits, predictions.logits):
        message = (
            f"expected opinions of the same {len(predictions)} rows, got those of "
            "other predictions. Compare opinions.predictions."
        )
        raise InputError(message)


@dataclass(frozen=True, eq=False)
class _World:
    """All that is known of the rows."""

    predictions: Predictions
    features: Any
    train: tuple[Any, Any, Any] | None
    opinions: Opinions | None
    extra: dict[str, tuple[Any, float]]
    fit: Array
    skipped: list[str] = field(default_factory=list)

    def _tried(self, name: str, make: Callable[[], _Candidate]) -> Iterator[_Candidate]:
        """Make a candidate, or note why these rows do not allow it."""
        try:
            yield make()
        except InputError as error:
            self.skipped.append(f"{name}: {error}")

    def candidates(self) -> Iterator[_Candidate]:
        p = self.predictions
        logits = not p.from_probabilities
        names = [n for n, s in SCORES.items() if logits or s.needs != "logits"]
        plain = score_all(p, names)
        for name, scores in plain.items():
            yield _fixed(name, SCORES[name].needs, 1, scores)
        yield from self._tried("rel_u", self._rel_u)
        yield from self._tried("fusion", lambda: self._fusion(plain))
        if self.features is not None:
            yield from self._distances()
        if self.opinions is not None:
            yield from self._views()
        for name, (scores, passes) in self.extra.items():
            own = as_scores(scores)
            cost = isinstance(passes, (int, float)) and 0 <= passes < np.inf
            if len(own) != len(p) or not cost:
                message = (
                    f"expected {len(p)} scores and a number of passes for {name!r}, "
                    f"got {len(own)} and {passes!r}."
                )
                raise InputError(message)
            yield _fixed(name, "given", float(passes), own)

    def _rel_u(self) -> _Candidate:
        part = _part(self.predictions, self.fit)
        settings: dict[str, Scorer] = {}
        for balance, shrink in product((0.3, 0.5, 0.7), (0.1, 0.5)):
            score = RelU.fit(part, balance=balance, shrink=shrink)
            name = f"balance {balance:g}, shrink {shrink:g}"
            settings[name] = _picked(score(self.predictions))
        return _Candidate("rel_u", "labels", 1, settings)

    def _fusion(self, plain: dict[str, Any]) -> _Candidate:
        part = {name: scores[self.fit] for name, scores in plain.items()}
        wrong = self.predictions.errors[self.fit]
        settings = {
            f"penalty {penalty:g}": _picked(
                Fusion.fit(part, wrong, penalty=penalty)(plain)
            )
            for penalty in (1.0, 100.0)
        }
        return _Candidate("fusion", "labels", 1, settings)

    def _distances(self) -> Iterator[_Candidate]:
        p = self.predictions
        f = as_features(self.features, rows=len(p))
        known, labels, logits = self.train or (
            f[self.fit],
            p.require_labels("fitting")[self.fit],
            p.logits[self.fit],
        )
        known, labels = as_features(known), np.asarray(labels)
        ks = [k for k in (5, 50) if k <= len(known)] or [1]
        makers: dict[str, Callable[[], Any]] = {
            "mahalanobis": lambda: Mahalanobis.fit(
                known, labels, on="features", ridge=1e-3
            ).function(f),
            "trust_score": lambda: TrustScore.fit(known, labels)(f, p.predicted),
            "sirc": lambda: SIRC.fit(known)(p, f),
        }
        if not p.from_probabilities and f.shape[1] > 1:
            makers["vim"] = lambda: ViM.fit(known, logits)(f, p.logits)
        for name, make in makers.items():
            yield from self._tried(
                name,
                lambda name=name, make=make: _fixed(  # type: ignore[misc]
                    name, "features", 1, make()
                ),
            )
        near = {f"k {k}": _picked(KNN.fit(known, k=k)(f)) for k in ks}
        yield _Candidate("knn", "features", 1, near)

    def _views(self) -> Iterator[_Candidate]:
        assert self.opinions is not None
        doubts = self.opinions.doubts
        passes = doubts.shape[1]
        yield _fixed("second opinion", "views", passes, doubts[:, -1])
        if passes > 2:
            yield _fixed("first view", "views", 2, doubts[:, 1])


def _part(p: Predictions, rows: Array) -> Predictions:
    labels = p.require_labels("comparing")[rows]
    return Predictions(p.logits[rows], labels, p.from_probabilities)


def _fixed(name: str, needs: str, passes: float, scores: Any) -> _Candidate:
    return _Candidate(name, needs, passes, {"": _picked(scores)})


def _picked(scores: Any) -> Scorer:
    whole = as_scores(scores)
    return lambda rows: whole[rows]


@dataclass(frozen=True, eq=False)
class _Settled:
    candidate: _Candidate
    setting: str
    chosen_auroc: float

    def scores(self, rows: Array) -> Array:
        return self.candidate.settings[self.setting](rows)


def _settle(candidate: _Candidate, wrong: Array, rows: Array) -> _Settled:
    """Choose a candidate's setting by AUROC."""
    areas = {
        setting: auroc(scorer(rows), wrong[rows])
        for setting, scorer in candidate.settings.items()
    }
    best = max(areas, key=lambda setting: areas[setting])
    return _Settled(candidate, best, areas[best])


def _judge(
    settled: list[_Settled], wrong: Array, rows: Array, at: Points, confidence: float
) -> list[Judged]:
    errors = wrong[rows]
    scores = [s.scores(rows) for s in settled]
    names = [s.candidate.name for s in settled]
    base = names.index(BASELINE)
    corrected = 1 - (1 - confidence) / max(1, len(settled) - 1)
    samples = bootstrap(scores, errors)
    paired = samples[0].joint and min(errors.sum(), (~errors).sum()) >= FEW_ERRORS
    drawn = [deviations("frr_at_trr", s, at) for s in samples]
    out = []
    for i, (s, own) in enumerate(zip(settled, scores, strict=True)):
        gain = auroc(own, errors) - auroc(scores[base], errors)
        low, high = delong_difference(own, scores[base], errors, confidence=corrected)
        change = frr_at_trr(own, errors, trr=at.trr) - frr_at_trr(
            scores[base], errors, trr=at.trr
        )
        ends: tuple[float | None, float | None] = (None, None)
        if paired:
            less, more = quantiles(drawn[i] - drawn[base], corrected)
            ends = (change + less, change + more)
        below, above = quantiles(drawn[i], confidence)
        frr = frr_at_trr(own, errors, trr=at.trr)
        out.append(
            Judged(
                name=s.candidate.name,
                needs=s.candidate.needs,
                passes=s.candidate.passes,
                setting=s.setting,
                chosen_auroc=s.chosen_auroc,
                auroc=Estimate(
                    auroc(own, errors), *delong(own, errors, confidence=confidence)
                ),
                frr_at_trr=Estimate(frr, max(0.0, frr + below), min(1.0, frr + above)),
                auroc_gain=Estimate(gain, low, high),
                frr_change=Estimate(change, *ends),
                better=i != base and low > 0,
            )
        )
    return out
