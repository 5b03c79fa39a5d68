"""What would do better than a gate that decides nothing, tried on the same rows."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trustdoctor.errors import InputError
from trustdoctor.evaluation import say_better
from trustdoctor.gates import rules
from trustdoctor.gates.asked import Ask
from trustdoctor.gates.auto import choose_auto
from trustdoctor.gates.calibration import AUTO, calibrate, fixed_values, needs_labels
from trustdoctor.gates.certifying import with_notes
from trustdoctor.gates.clusters import one_per_cluster
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.missing_labels import calibrate_unlabelled
from trustdoctor.gates.outcome import known_errors
from trustdoctor.gates.sample import Rows, Sample
from trustdoctor.gates.targets import TARGETS, Target
from trustdoctor.metrics import Ranking, auroc_difference
from trustdoctor.predictions import Predictions
from trustdoctor.scores import Score, available_scores, find_score, score_all

ENOUGH = 100_000
"""Rows that are enough to tell scores apart."""

CONFIDENCE = 0.95
"""Of all comparisons of scores together."""

PLAIN = {"frr": 0.05, "coverage": 0.9}
"""Targets that few errors are enough for, and where their values are looked for."""

NOTHING_BETTER = "No other target or score that was tried on these rows decides more."

Others = Iterable[tuple[str, Sample]]


def decides_nothing(gate: Gate) -> bool:
    """Tell whether a gate accepts every row, or rejects every row, in all groups.

    A threshold beyond all rows that it was calibrated on decides nothing, either.

    Examples
    --------
    >>> decides_nothing(Gate(0.0)), decides_nothing(Gate(0.0, state="accept-all"))
    (False, True)
    """
    states = {gate.state, *(rule.state for rule in gate.groups.values())}
    promised = gate.certificate is not None and gate.certificate.guarantee
    seen = gate.certificate.observed if gate.certificate and promised else {}
    coverage = seen["coverage"].value if "coverage" in seen else None
    return (len(states) == 1 and states != {"threshold"}) or coverage in (0.0, 1.0)


@dataclass(frozen=True)
class Trial:
    """How many of the rows a setting accepts; None where that is not known."""

    accepted: int | None
    rows: int

    @property
    def side(self) -> str:
        """Whether nearly all rows are accepted, or rejected, or neither."""
        least = max(1, math.ceil(self.rows / 100))
        if self.accepted is None:
            return "unknown"
        if self.accepted < least:
            return "reject-all"
        return "accept-all" if self.accepted > self.rows - least else "threshold"

    def words(self, setting: str) -> str:
        """Say it, for a setting."""
        return f"{setting} would accept {(self.accepted or 0) / self.rows:.0%} of them"


def advise(
    rows: Sample, *, others: Others = (), groups: int = 0, **options: Any
) -> str:
    """Say what would do better on rows where a calibration decides nothing.

    Other values of the target are tried first, then other scores and methods; other
    targets where these give nothing, or where errors are too few. All are tried on the
    rows themselves, and the sentence says so.

    Parameters
    ----------
    rows : Sample
    others : iterable of (str, Sample)
        Other scores by name, on the same rows.
    groups : int
        How many groups share the risk of a broken promise.
    options
        Targets, confidence, mode, method, min_coverage and label_noise, as in
        `calibrate`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows(np.arange(100.0), np.arange(100) >= 95)
    >>> advise(rows, risk=0.01)
    'Tried on these rows, so optimistic: --risk 0.026 would accept 95% of them.'
    """
    named = {k: options.pop(k) for k in TARGETS if options.get(k) is not None}
    values = fixed_values(named)
    asked = {k: v for k, v in options.items() if v is not None}
    ask = Ask(values[-1], **asked, choices=len(values))
    delta = ask.delta
    delta /= max(1, groups) if ask.promised and ask.how == "confidence" else 1
    cut = ask.cut(rows, delta)
    if cut.state == "threshold":
        return ""
    fixed = [float(value[k]) for value in values[:-1] for k in value]
    found = [
        *_first(_other_values(rows, ask, delta, fixed)),
        *_first(_other_scores(others, ask, delta)),
        *_first(_other_methods(rows, ask, delta)),
    ]
    if not found or (cut.short and ask.targets[0].rests_on == "errors"):
        found = [*found[:1], *_first(_other_targets(rows, ask, delta))]
    return _said(found)


def advise_unlabelled(predictions: Predictions, **options: Any) -> str:
    """Say which value of a target would decide more, for a gate without labels.

    Examples
    --------
    >>> torn = Predictions.from_logits([[k / 10, 0.0] for k in range(1, 30)])
    >>> advise_unlabelled(torn, risk=0.01)
    'Tried on these rows, so optimistic: --risk 0.053 would accept 3% of them.'
    """
    ((name, value),) = ((k, options[k]) for k in TARGETS if options.get(k) is not None)

    def attempt(at: float) -> Trial:
        gate = calibrate_unlabelled(predictions, **{**options, name: at})
        assert gate.certificate is not None
        kept = gate.certificate.observed["coverage"].value or 0.0
        return Trial(round(kept * len(predictions)), len(predictions))

    near = _nearest(TARGETS[name], value, attempt)
    return _said([] if near is None else [near[1].words(f"--{name} {near[0]:g}")])


def better_score(predictions: Predictions, gate: Gate) -> str:
    """Say which plain score ranks these errors clearly better than the gate's.

    By paired DeLong at 0.95, corrected for how many scores are tried, and where the
    gain is half a point of AUROC or more; empty where there is none.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.random.default_rng(0).normal(size=(2000, 3)) * 3
    >>> labels = np.where(logits.max(1) > 1, logits.argmax(1), 0)
    >>> p = Predictions.from_logits(logits, labels)
    >>> better_score(p, Gate(0.0, score="alpha"))[:53]
    'Careful: on these rows max_logit ranks errors better '
    """
    some, where = predictions, "these rows"
    if len(predictions) > ENOUGH:
        picked = np.random.default_rng(0).permutation(len(predictions))[:ENOUGH]
        some, where = predictions[picked], f"{ENOUGH:,} of these rows"
    wrong = some.errors
    others = [name for name in available_scores(some) if name != gate.score]
    if gate.score is None or wrong.all() or not wrong.any() or not others:
        return ""
    scorer = gate.scorer
    own = Ranking(scorer(some), wrong, scorer.rounding)
    level, gains = 1 - (1 - CONFIDENCE) / len(others), {}
    doubts = score_all(some, others, temperature=gate.temperature)
    for name, scores in doubts.items():
        other = Ranking(scores, wrong, find_score(name).rounding)
        gains[name] = auroc_difference(other, own, confidence=level)
    better = say_better(gate.score, gains, where=where)
    if not better:
        return ""
    return f"Careful: {better}. Let other rows choose: --score auto, or compare."


def calibrate_aloud(  # noqa: PLR0913 - options, by keyword only
    predictions: Predictions,
    *,
    score: str | Score | None = None,
    temperature: float = 1.0,
    groups: str | None = None,
    clusters: Any = None,
    seed: int = 0,
    shortlist: Any = None,
    remark: Callable[[str], object] | None = None,
    **options: Any,
) -> Gate:
    """Calibrate as `calibrate` does, and tell `remark` what else to know.

    Examples
    --------
    >>> p = Predictions.from_logits([[k / 10, 0.0] for k in range(1, 30)], [0] * 29)
    >>> gate = calibrate_aloud(p, frr=0.05, remark=print)
    Tried on these rows, so optimistic: --frr 0.13 would accept 97% of them.
    """
    notes: tuple[str, ...] = ()
    if clusters is not None:
        predictions, groups, notes = one_per_cluster(
            predictions, clusters, groups, seed
        )
    spent = 0
    if score == AUTO and shortlist is None:
        found = choose_auto(predictions, temperature=temperature, **options)
        gate = found.calibrate(groups=groups, **options)
        predictions, spent = predictions[found.rest], len(found.chosen)
    else:
        named: dict[str, Any] = {"score": score, "temperature": temperature}
        named |= {"groups": groups, "shortlist": shortlist}
        gate = calibrate(predictions, **named, **options)
    if remark is not None and spent and decides_nothing(gate):
        every = f"a score that is named would have all {spent + len(found.rest):,}"
        remark(f"{spent:,} more rows chose the score; {every}: --score msp.")
    chose = score == AUTO and not decides_nothing(gate)
    if remark is not None and not chose:
        if needs_labels(options):
            predictions = predictions.labelled("a calibration")
        doubts, wrong = gate.doubts(predictions), known_errors(predictions)
        rows = Rows(doubts, wrong, gate.scorer.rounding)
        for line in remarks(gate, rows, predictions, **options):
            remark(line)
    return with_notes(gate, *notes)


def remarks(
    gate: Gate, rows: Sample, predictions: Predictions | None = None, **options: Any
) -> Iterator[str]:
    """Say what to know of a gate that was calibrated on rows, beside its certificate.

    Parameters
    ----------
    gate : Gate
    rows : Sample
        The doubts that it was calibrated on.
    predictions : Predictions, optional
        The rows themselves, for other scores.
    options
        Targets and options of the calibration.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows(np.arange(100.0), np.arange(100) >= 95)
    >>> list(remarks(Gate(0.0), rows, risk=0.1))
    []
    """
    labelled = predictions is not None and rows.labelled
    if decides_nothing(gate):
        others: Others = ()
        if labelled:
            assert predictions is not None
            others = _doubts(predictions, gate)
        yield advise(rows, others=others, groups=len(gate.groups), **options)
    elif labelled:
        assert predictions is not None
        better = better_score(predictions, gate)
        if better:
            yield better


def _doubts(predictions: Predictions, gate: Gate) -> Others:
    """Yield the other plain scores, on the same rows."""
    for name in available_scores(predictions):
        if name != gate.score:
            score = find_score(name, temperature=gate.temperature)
            yield name, Rows(score(predictions), predictions.errors, score.rounding)


def _said(found: list[str]) -> str:
    if not found:
        return NOTHING_BETTER
    return f"Tried on these rows, so optimistic: {'; '.join(found[:2])}."


def _first(found: Iterator[str]) -> list[str]:
    return [line for line, _ in zip(found, range(1), strict=False)]


def _other_values(
    rows: Sample, ask: Ask, delta: float, fixed: list[float]
) -> Iterator[str]:
    """Yield the nearest value of a target that decides something, the rest kept.

    `fixed` are the other values that share the level, if there are any.
    """
    before = "".join(f"{value:g}," for value in fixed)
    for name, value in reversed(ask.target.items()):

        def attempt(at: float, name: str = name) -> Trial:
            return _tried(rows, replace(ask, target={**ask.target, name: at}), delta)

        near = _nearest(TARGETS[name], value, attempt)
        if near is not None:
            at = {**ask.target, name: near[0]}
            typed = (f"--{n} {before}{v:g}" for n, v in at.items())
            yield near[1].words(" ".join(typed))


def _other_scores(others: Others, ask: Ask, delta: float) -> Iterator[str]:
    """Yield the score that accepts most, where any decides something."""
    tried = {name: _tried(rows, ask, delta) for name, rows in others}
    able = {name: one for name, one in tried.items() if one.side == "threshold"}
    if able:
        best = max(able, key=lambda name: able[name].accepted or 0)
        yield able[best].words(f"--score {best}")


def _other_methods(rows: Sample, ask: Ask, delta: float) -> Iterator[str]:
    if len(ask.target) > 1 or not rows.exact:
        return
    methods = ask.targets[0].rules
    for name in methods:
        if name != (ask.method or next(iter(methods))):
            trial = _tried(rows, replace(ask, method=name), delta)
            if trial.side == "threshold":
                yield trial.words(f"--method {name}")


def _other_targets(rows: Sample, ask: Ask, delta: float) -> Iterator[str]:
    """Yield targets that few errors are enough for."""
    for name, value in PLAIN.items():
        target = TARGETS[name]
        possible = rows.n_errors < len(rows) if rows.labelled else False
        if name in ask.target or (target.needs_labels and not possible):
            continue

        def attempt(at: float, name: str = name) -> Trial:
            plain = Ask({name: at}, confidence=ask.confidence)
            return _tried(rows, plain, delta)

        trial = attempt(value)
        near: tuple[float, Trial] | None = (value, trial)
        if trial.side != "threshold":
            near = _nearest(target, value, attempt)
        if near is not None:
            yield near[1].words(f"--{name} {near[0]:g}")


def _tried(rows: Sample, ask: Ask, delta: float) -> Trial:
    try:
        cut = ask.cut(rows, delta)
    except InputError:  # a rule that asks for more than a sketch keeps
        return Trial(None, len(rows))
    if cut.state != "threshold":
        return Trial(len(rows) if cut.state == "accept-all" else 0, len(rows))
    seen = rows.confusion(rules.place(cut, rows))
    return Trial(None if seen is None else seen.n_accepted, len(rows))


def _nearest(
    target: Target, value: float, attempt: Callable[[float], Trial]
) -> tuple[float, Trial] | None:
    """Return the nearest value of a target that decides something, in few digits.

    The slack is what a promise leaves open: the rate itself where it is a limit, else
    what it lacks of 1; one over the cost. More slack is easier to promise.
    """
    slack = _Slack(target)
    if not slack.known:
        return None
    before = attempt(value).side
    tighter = before == "accept-all" and target.safe == "reject"
    start, end = slack.of(value), 1e-6 if tighter else 1 - 1e-6
    if start == 0 or attempt(slack.value(end)).side == before:
        return None
    low, high = math.log(start), math.log(end)
    while abs(high - low) > 2e-3:
        middle = (low + high) / 2
        if attempt(slack.value(math.exp(middle))).side == before:
            low = middle
        else:
            high = middle
    for digits in (2, 3):
        at = slack.value(_rounded(math.exp(high), digits, up=not tighter))
        if target.allows(at):
            trial = attempt(at)
            if trial.side == "threshold":
                return at, trial
    return None


@dataclass(frozen=True)
class _Slack:
    """What a target leaves open, between 0 and 1."""

    target: Target

    @property
    def known(self) -> bool:
        rate = self.target.counts is not None
        return (rate and (self.target.low, self.target.high) == (0, 1)) or self._cost

    @property
    def _cost(self) -> bool:
        return (self.target.low, self.target.high) == (1.0, math.inf)

    def of(self, value: float) -> float:
        if self._cost:
            return 1 / value
        return float(1 - rules.exact(value)) if self.target.at_least else value

    def value(self, slack: float) -> float:
        if self._cost:
            return float(f"{1 / slack:.3g}")
        return float(1 - rules.exact(slack)) if self.target.at_least else slack


def _rounded(slack: float, digits: int, *, up: bool) -> float:
    """Round in the direction of the search to so many significant digits."""
    unit = digits - 1 - math.floor(math.log10(slack))
    scaled = slack * 10**unit
    whole = math.ceil(scaled - 1e-9) if up else math.floor(scaled + 1e-9)
    return float(f"{whole}e{-unit}")
