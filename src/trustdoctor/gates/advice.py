"""Advice: what would decide more than this gate, tried on the same rows.

What is chosen after a look at several settings on the same rows looks better than it is
(selection bias), so the sentences say that they are optimistic.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from trustdoctor.errors import InputError
from trustdoctor.evaluation import better_score_sentence
from trustdoctor.gates import rules
from trustdoctor.gates.calibration import Calibration
from trustdoctor.gates.expected_rates import calibrate_unlabelled
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.label_plan import plan_sample
from trustdoctor.gates.request import Request
from trustdoctor.gates.sample import Rows, Sample
from trustdoctor.gates.targets import TARGETS, Target
from trustdoctor.metrics import Ranking, auroc_difference
from trustdoctor.predictions import Predictions
from trustdoctor.scores import available_scores, find_score, score_all

MOST_PLANNED = 5000
"""Labels up to which advice says what more of them would buy."""

MAX_COMPARED = 100_000
"""Rows that scores are compared on, at most: more do not tell them apart better."""

CONFIDENCE = 0.95
"""The confidence of all comparisons of scores together."""

EASY_TARGETS = {"frr": 0.05, "coverage": 0.9}
"""Targets that need few errors, and the values where the search starts."""

NOTHING_BETTER = "No other target or score that was tried on these rows decides more."

NamedSamples = Iterable[tuple[str, Sample]]
"""The same rows under several scores, by the score's name."""


def decides_nothing(gate: Gate) -> bool:
    """Return whether a gate accepts every row, or rejects every row, in all groups.

    Nor does a threshold beyond all calibration rows decide anything.

    Examples
    --------
    >>> decides_nothing(Gate(0.0)), decides_nothing(Gate(0.0, state="accept-all"))
    (False, True)
    """
    states = {gate.state, *(threshold.state for threshold in gate.groups.values())}
    certificate, coverage = gate.certificate, None
    if certificate and certificate.guarantee and "coverage" in certificate.observed:
        coverage = certificate.observed["coverage"].value
    # A gate that accepts all rows of a drawn share rejects the others.
    all_drawn = certificate is not None and certificate.drawn_share < 1
    trivial = (0.0,) if all_drawn else (0.0, 1.0)
    return (len(states) == 1 and states != {"threshold"}) or coverage in trivial


@dataclass(frozen=True)
class Attempt:
    """The number of rows that a setting accepts; None if it cannot be counted."""

    accepted: int | None
    rows: int

    @property
    def state(self) -> str:
        """The gate's state, if less than 1% of the rows on one side counts as none."""
        minimum = max(1, math.ceil(self.rows / 100))
        if self.accepted is None:
            return "unknown"
        if self.accepted < minimum:
            return "reject-all"
        return "accept-all" if self.accepted > self.rows - minimum else "threshold"

    def words(self, setting: str) -> str:
        """Say how many rows this setting would accept."""
        return f"{setting} would accept {(self.accepted or 0) / self.rows:.0%} of them"


def advise(
    rows: Sample,
    requests: list[Request],
    *,
    other_scores: NamedSamples = (),
    groups: int = 0,
) -> str:
    """Say what would decide more on rows where a calibration decides nothing.

    Other values of the target are tried first, then other scores and methods; other
    targets if these give nothing, or if errors are too few. All are tried on the rows
    themselves, and the sentence says so.

    Parameters
    ----------
    rows : Sample
    requests : list of Request
        One for each candidate value, strictest first.
    other_scores : iterable of (str, Sample)
        The same rows under other scores, by the score's name.
    groups : int
        The number of groups that share the level of the promise.

    Examples
    --------
    >>> import numpy as np
    >>> from trustdoctor.gates.request import make_requests
    >>> rows = Rows(np.arange(100.0), np.arange(100) >= 95)
    >>> advise(rows, make_requests(risk=0.01))
    'Tried on these rows, so optimistic: --risk 0.024 would accept 95% of them.'
    """
    request = requests[-1]
    # Groups share the level by Bonferroni's inequality, as in their calibration.
    delta = request.delta
    if request.promised and request.promise_mode == "confidence":
        delta /= max(1, groups)
    cut = request.cut(rows, delta)
    if cut.state == "threshold":
        return ""
    stricter = [value for other in requests[:-1] for value in other.target.values()]
    suggestions = [
        *_first(_other_values(rows, request, delta, stricter)),
        *_first(_other_scores(other_scores, request, delta)),
    ]
    if not suggestions or (
        cut.too_few_rows and request.targets[0].rests_on == "errors"
    ):
        easier = _first(_other_targets(rows, request, delta))
        suggestions = [*suggestions[:1], *easier]
    return _sentence(suggestions)


def advise_unlabelled(
    predictions: Predictions, target: Mapping[str, float], **options: Any
) -> str:
    """Say which value of a target would decide more, for a gate without labels.

    Examples
    --------
    >>> torn = Predictions.from_logits([[k / 10, 0.0] for k in range(1, 30)])
    >>> advise_unlabelled(torn, {"risk": 0.01})
    'Tried on these rows, so optimistic: --risk 0.053 would accept 3% of them.'
    """
    ((name, value),) = target.items()

    def attempt(number: float) -> Attempt:
        gate = calibrate_unlabelled(predictions, target={name: number}, **options)
        assert gate.certificate is not None
        return Attempt(gate.certificate.accepted, len(predictions))

    nearest = _nearest_value(TARGETS[name], value, attempt)
    return _sentence([] if nearest is None else [_suggestion(name, *nearest)])


def better_score(predictions: Predictions, gate: Gate) -> str:
    """Say which plain score ranks these errors clearly better than the gate's.

    Clearly is by the paired test of DeLong et al. (1988) at 0.95, with Bonferroni's
    correction for the number of scores, and by half a point of AUROC or more. Empty if
    none does.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.random.default_rng(0).normal(size=(2000, 3)) * 3
    >>> labels = np.where(logits.max(1) > 1, logits.argmax(1), 0)
    >>> p = Predictions.from_logits(logits, labels)
    >>> better_score(p, Gate(0.0, score="alpha"))[:53]
    'Careful: on these rows max_logit ranks errors better '
    """
    rows, rows_words = predictions, "these rows"
    if len(predictions) > MAX_COMPARED:
        order = np.random.default_rng(0).permutation(len(predictions))
        rows = predictions[order[:MAX_COMPARED]]
        rows_words = f"{MAX_COMPARED:,} of these rows"
    errors = rows.errors
    candidates = [name for name in available_scores(rows) if name != gate.score_name]
    if gate.score is None or errors.all() or not errors.any() or not candidates:
        return ""
    gate_ranking = Ranking(gate.score(rows), errors, gate.score.rounding)
    confidence, gains = 1 - (1 - CONFIDENCE) / len(candidates), {}
    doubts = score_all(rows, candidates, temperature=gate.temperature)
    for name, scores in doubts.items():
        ranking = Ranking(scores, errors, find_score(name).rounding)
        gains[name] = auroc_difference(ranking, gate_ranking, confidence=confidence)
    warning = better_score_sentence(gate.score.name, gains, rows=rows_words)
    if not warning:
        return ""
    return f"Careful: {warning}. Let other rows choose: --score auto, or compare."


def remarks(calibration: Calibration) -> Iterator[str]:
    """Yield advice on a calibrated gate, beside what its certificate says.

    What would decide more if it decides nothing, and which plain score ranks the errors
    clearly better; both are tried on the calibration rows, so neither is a promise.

    Examples
    --------
    >>> from trustdoctor.gates.calibration import run_calibration
    >>> from trustdoctor.gates.request import make_requests
    >>> p = Predictions.from_logits([[k / 10, 0.0] for k in range(1, 30)], [0] * 29)
    >>> print(*remarks(run_calibration(p, make_requests(frr=0.05))))
    Tried on these rows, so optimistic: --frr 0.13 would accept 97% of them.
    """
    gate, choice = calibration.gate, calibration.choice
    sample, predictions = calibration.sample, None
    if sample.labelled:
        predictions = calibration.predictions
    if decides_nothing(gate):
        if choice is not None and len(choice.choosing_rows):
            total = f"{len(choice.choosing_rows) + len(choice.calibrating_rows):,}"
            yield (
                f"{len(choice.choosing_rows):,} more rows chose the score; a score "
                f"named in advance would have all {total}: --score msp."
            )
        samples = () if predictions is None else _other_samples(predictions, gate)
        yield advise(
            sample, calibration.requests, other_scores=samples, groups=len(gate.groups)
        )
    elif predictions is not None and choice is None:
        warning = better_score(predictions, gate)
        if warning:
            yield warning
    yield from _more_labels(calibration)


def _more_labels(calibration: Calibration) -> Iterator[str]:
    """Say what twice and five times as many labels would buy, as an estimate."""
    sample, request = calibration.sample, calibration.requests[-1]
    n = len(sample)
    if not (sample.labelled and request.promised and n <= MOST_PLANNED):
        return
    gate = calibration.gate
    if gate.groups or gate.state == "accept-all" or not 0 < sample.n_errors < n:
        return
    if calibration.choice is not None:  # of more labels some would choose the score
        return
    share = 1.0 if gate.certificate is None else gate.certificate.drawn_share
    outlooks = plan_sample(sample, request, [2 * n, 5 * n]).outlooks
    parts = []
    for outlook in outlooks:
        part = f"with {outlook.rows:,} labels {outlook.frequency} calibrations decide"
        if outlook.decides:
            part += (
                f", and accept {share * outlook.median:.0%} "
                f"[{share * outlook.low:.0%}, {share * outlook.high:.0%}]"
            )
        parts.append(part)
    yield f"More labels, estimated from these: {'; '.join(parts)}."


def _other_samples(predictions: Predictions, gate: Gate) -> NamedSamples:
    """Yield the rows under every plain score but the gate's."""
    for name in available_scores(predictions):
        if name != gate.score_name:
            score = find_score(name, temperature=gate.temperature)
            yield name, Rows(score(predictions), predictions.errors, score.rounding)


def _sentence(suggestions: list[str]) -> str:
    """Return up to two suggestions as a sentence."""
    if not suggestions:
        return NOTHING_BETTER
    return f"Tried on these rows, so optimistic: {'; '.join(suggestions[:2])}."


def _suggestion(name: str, value: float, attempt: Attempt) -> str:
    return attempt.words(f"--{name} {value:g}")


def _first(suggestions: Iterator[str]) -> list[str]:
    """Return the first suggestion, if there is one; no other is computed."""
    return list(islice(suggestions, 1))


def _other_values(
    rows: Sample, request: Request, delta: float, stricter: list[float]
) -> Iterator[str]:
    """Yield the nearest value of one target that decides something.

    If there are two targets, the other keeps its value. `stricter` holds the stricter
    candidate values, which share the level.
    """
    prefix = "".join(f"{value:g}," for value in stricter)
    for name, value in reversed(request.target.items()):

        def attempt(number: float, name: str = name) -> Attempt:
            target = {**request.target, name: number}
            return _attempt(rows, replace(request, target=target), delta)

        nearest = _nearest_value(TARGETS[name], value, attempt)
        if nearest is not None:
            target = {**request.target, name: nearest[0]}
            options = (f"--{n} {prefix}{v:g}" for n, v in target.items())
            yield nearest[1].words(" ".join(options))


def _other_scores(
    samples: NamedSamples, request: Request, delta: float
) -> Iterator[str]:
    """Yield the score that accepts most, if any decides something."""
    attempts = {name: _attempt(rows, request, delta) for name, rows in samples}
    accepted = {
        name: attempt.accepted or 0
        for name, attempt in attempts.items()
        if attempt.state == "threshold"
    }
    if accepted:
        best = max(accepted, key=lambda name: accepted[name])
        yield attempts[best].words(f"--score {best}")


def _other_targets(rows: Sample, request: Request, delta: float) -> Iterator[str]:
    """Yield targets that need few errors, at the nearest values that decide."""
    for name, value in EASY_TARGETS.items():
        target = TARGETS[name]
        has_correct_rows = rows.labelled and rows.n_errors < len(rows)
        if name in request.target or (target.needs_labels and not has_correct_rows):
            continue

        def attempt(number: float, name: str = name) -> Attempt:
            easier = Request({name: number}, confidence=request.confidence)
            return _attempt(rows, easier, delta)

        usual = attempt(value)
        nearest: tuple[float, Attempt] | None = (value, usual)
        if usual.state != "threshold":
            nearest = _nearest_value(target, value, attempt)
        if nearest is not None:
            yield _suggestion(name, *nearest)


def _attempt(rows: Sample, request: Request, delta: float) -> Attempt:
    """Return how many rows the request would accept."""
    try:
        cut = request.cut(rows, delta)
    except InputError:  # the rule needs every score, and a sketch keeps ranges
        return Attempt(None, len(rows))
    if cut.state != "threshold":
        return Attempt(len(rows) if cut.state == "accept-all" else 0, len(rows))
    confusion = rows.confusion(rules.threshold_of(cut, rows))
    return Attempt(None if confusion is None else confusion.n_accepted, len(rows))


def _nearest_value(
    target: Target, value: float, attempt: Callable[[float], Attempt]
) -> tuple[float, Attempt] | None:
    """Return the nearest value of a target that decides something, in few digits.

    Found by binary search on the logarithm of the slack (see `_Slack`).
    """
    slack = _Slack(target)
    if not slack.is_defined:
        return None
    state = attempt(value).state
    tighter = state == "accept-all" and target.safe_side == "reject"
    start, end = slack.of(value), 1e-6 if tighter else 1 - 1e-6
    if start == 0 or attempt(slack.value(end)).state == state:
        return None
    # Rates of 0.001 and 0.1 are equally likely questions, so the search is on a
    # logarithmic scale; two digits are easy to type, and three come near enough.
    low, high = math.log(start), math.log(end)
    while abs(high - low) > 2e-3:
        middle = (low + high) / 2
        if attempt(slack.value(math.exp(middle))).state == state:
            low = middle
        else:
            high = middle
    for digits in (2, 3):
        number = slack.value(_rounded(math.exp(high), digits, up=not tighter))
        if target.allows(number):
            result = attempt(number)
            if result.state == "threshold":
                return number, result
    return None


@dataclass(frozen=True)
class _Slack:
    """What a target allows, between 0 and 1; more is easier to promise.

    The rate itself if it is an upper limit, 1 minus the rate if it is a lower limit,
    and 1 / cost.
    """

    target: Target

    @property
    def is_defined(self) -> bool:
        is_rate = self.target.fraction is not None
        return (is_rate and self._limits == (0, 1)) or self._is_cost

    @property
    def _limits(self) -> tuple[float, float]:
        return self.target.low, self.target.high

    @property
    def _is_cost(self) -> bool:
        return self._limits == (1.0, math.inf)

    def of(self, value: float) -> float:
        if self._is_cost:
            return 1 / value
        return float(1 - rules.as_fraction(value)) if self.target.at_least else value

    def value(self, slack: float) -> float:
        if self._is_cost:
            return float(f"{1 / slack:.3g}")
        return float(1 - rules.as_fraction(slack)) if self.target.at_least else slack


def _rounded(slack: float, digits: int, *, up: bool) -> float:
    """Round to this number of significant digits, in the direction of the search."""
    exponent = digits - 1 - math.floor(math.log10(slack))
    scaled = slack * 10**exponent
    mantissa = math.ceil(scaled - 1e-9) if up else math.floor(scaled + 1e-9)
    return float(f"{mantissa}e{-exponent}")
