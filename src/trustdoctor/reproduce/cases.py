"""The paper's methods on an exhibit: doubts, errors, and both ways to judge them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.evaluation import evaluate_perturbed
from trustdoctor.metrics import (
    Estimate,
    Ranking,
    auroc_difference,
    frr_difference,
    paired_frr,
    roc,
)
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.grid import GridResult, evaluate_grid, published_values
from trustdoctor.reproduce.report import in_percent
from trustdoctor.reproduce.sources import Answers, Exhibit, Setting
from trustdoctor.scores import Mahalanobis, find_logit_score

TBB = {
    "alpha": Setting("alpha"),
    "beta": Setting("beta"),
    "odin": Setting("odin"),
    "sr": Setting("msp"),
}
PBB = {
    "alpha": Setting("alpha", 1.0, 0.00035),
    "beta": Setting("beta", 1.5, 0.00035),
    "odin": Setting("odin", 1.3),
    "energy": Setting("energy"),
}
"""The settings of the paper's Table 1."""

MHLNB_EPSILON = 0.0002
PUBLISHED = {"alpha": "alpha", "beta": "beta", "odin": "sr", "msp": "sr"}


class Missing(NamedTuple):
    """A cell that cannot be filled, and why."""

    method: str
    scenario: str
    why: str


@dataclass(frozen=True, eq=False)
class Case:
    """One method in one scenario, on rows whose errors are known.

    Attributes
    ----------
    method : str
        As in the paper's table.
    scenario : str
        "TBB", "PBB paper" (errors of the perturbed prediction) or "PBB deployed"
        (errors of the clean one).
    scores : array (n,)
    errors : bool array (n,)
    values : array (n,)
        What the published evaluation puts its thresholds on.
    below : bool
        Whether it rejects at or below them.
    same_rank : bool
        Whether it ranks rows as softmax response does, by arithmetic: beta and ODIN
        at temperature 1, and with two classes alpha. What rounding does to ties is not
        taken for a difference.
    """

    method: str
    scenario: str
    scores: Array = field(repr=False)
    errors: Array = field(repr=False)
    values: Array = field(repr=False)
    below: bool = False
    same_rank: bool = False

    def grid(self) -> GridResult:
        """Evaluate as published."""
        return evaluate_grid(self.values, self.errors, below=self.below)

    def curve(self, options: Options) -> tuple[Array, Array]:
        """Return FRR and TRR along the curve."""
        if options.protocol == "grid":
            return self.grid().curve
        frr, trr, _ = roc(self.scores, self.errors)
        return frr, trr

    def judge(self, options: Options) -> tuple[Estimate, Estimate]:
        """Return AUROC and FRR at 95% TRR, in percent."""
        if options.protocol == "grid":
            found = self.grid()
            return Estimate(100 * found.auroc), Estimate(100 * found.frr)
        metrics = evaluate_perturbed(self.scores, self.errors).deployed.metrics
        return in_percent(metrics["auroc"]), in_percent(metrics["frr_at_trr"])

    def minus(self, other: "Case") -> tuple[Estimate, Estimate]:
        """Return AUROC and FRR less those of another case, paired, in percent."""
        if self.same_rank and other.same_rank:
            return Estimate(0.0, 0.0, 0.0), Estimate(0.0, 0.0, 0.0)
        first, second = (Ranking(c.scores, self.errors) for c in (self, other))
        parts = [paired_frr(r, trr=0.95, confidence=0.95) for r in (first, second)]
        return (
            in_percent(auroc_difference(first, second)),
            in_percent(frr_difference(parts[0], parts[1], first.wrong)),
        )

    def take(self, rows: Any) -> "Case":
        """Return some of the rows."""
        arrays = (self.scores, self.errors, self.values)
        scores, errors, values = (array[rows] for array in arrays)
        return replace(self, scores=scores, errors=errors, values=values)


def make_case(
    method: str,
    scenario: str,
    setting: Setting,
    answers: Answers,
    judged: Answers,
) -> Case:
    """Score answers; the errors are those of the predictions that are judged."""
    entry = find_logit_score(setting.score)
    options: dict[str, Any] = {"temperature": setting.temperature / answers.at}
    if entry.about_class:
        options["predicted"] = judged.predictions.predicted
    scores = np.asarray(entry.function(answers.predictions.logits, **options))
    known = PUBLISHED.get(setting.score)
    about = None if answers is judged else judged.predictions.predicted
    values = (
        scores.astype(np.float64)
        if known is None
        else published_values(answers.softmax(setting.temperature), known, about)
    )
    errors = judged.predictions.errors
    binary = judged.predictions.logits.shape[1] == 2
    alike = {"msp", "beta", "odin", *(["alpha"] if binary else [])}
    same = answers is judged and setting.score in alike and setting.temperature == 1
    below = known == "sr"
    return Case(method, scenario, scores, errors, values, below, same)


def cases_in_paper(one: Exhibit) -> list[Case | Missing]:
    """Return the methods that the paper has numbers for on this data set."""
    methods = paper("table1")[one.dataset.name]["methods"]
    cases: list[Case | Missing] = list(tbb_cases(one))
    if any("PBB" in cells for cells in methods.values()):
        if one.bench is not None:
            one.bench.runs += 3  # alpha, beta and Mahalanobis
        cases += pbb_cases(one)
    return [c for c in cases if c.scenario[:3] in methods.get(c.method, {})]


def tbb_cases(one: Exhibit) -> Iterator[Case | Missing]:
    """Yield the totally black-box methods."""
    for method, setting in TBB.items():
        yield make_case(method, "TBB", setting, one.clean, one.clean)
    if one.train is None:
        name = f"{one.model}-{one.dataset.name}-train.npz"
        need = f"predictions of the training rows: {name}"
        yield Missing("mhlnb", "TBB", need)
        return
    fitted = fit(one.train, "softmax")
    scores = np.asarray(fitted.function(finite(one.clean)))
    yield Case("mhlnb", "TBB", scores, one.clean.predictions.errors, scores)


def pbb_cases(one: Exhibit) -> Iterator[Case | Missing]:
    """Yield the partially black-box methods, under both protocols."""
    for method, setting in PBB.items():
        if setting.score == "energy" and one.clean.predictions.from_probabilities:
            yield Missing(method, "PBB", "true logits, not probabilities")
            continue
        answers = one.perturbed(setting)
        if answers is None:
            need = one.lack or "predictions at perturbed inputs, or --model"
            yield Missing(method, "PBB", need)
            continue
        if setting.epsilon:
            yield make_case(method, "PBB paper", setting, answers, answers)
        yield make_case(method, "PBB deployed", setting, answers, one.clean)
    yield from _mahalanobis(one)


def _mahalanobis(one: Exhibit) -> Iterator[Case | Missing]:
    if one.train is None or one.train.predictions.from_probabilities:
        yield Missing("mhlnb", "PBB", "logits of the training rows")
        return
    if one.bench is None:
        yield Missing("mhlnb", "PBB", one.lack or "--model")
        return
    fitted = fit(one.train, "logits")
    moved = one.bench.logits(fitted, 1.0, MHLNB_EPSILON)
    scores = np.asarray(fitted.function(moved))
    labels = one.clean.predictions.labels
    yield Case("mhlnb", "PBB paper", scores, moved.argmax(1) != labels, scores)
    yield Case("mhlnb", "PBB deployed", scores, one.clean.predictions.errors, scores)


def fit(train: Answers, on: Any) -> Mahalanobis:
    """Fit Mahalanobis on the predictions of the training rows."""
    rows = replace(train.predictions, logits=finite(train))
    return Mahalanobis.fit(rows, space=on)


def finite(answers: Answers) -> Array:
    """Return logits that distances can be taken of: log(0) becomes finite."""
    return np.maximum(answers.predictions.logits.astype(np.float64), -1e4)
