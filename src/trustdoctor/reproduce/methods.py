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
from trustdoctor.reproduce.sources import Exhibit, ModelOutput, ScoreSetting
from trustdoctor.scores import Mahalanobis, find_logit_score

TBB = {
    "alpha": ScoreSetting("alpha"),
    "beta": ScoreSetting("beta"),
    "odin": ScoreSetting("odin"),
    "sr": ScoreSetting("msp"),
}
PBB = {
    "alpha": ScoreSetting("alpha", 1.0, 0.00035),
    "beta": ScoreSetting("beta", 1.5, 0.00035),
    "odin": ScoreSetting("odin", 1.3),
    "energy": ScoreSetting("energy"),
}
"""The settings of the paper's Table 1."""

MHLNB_EPSILON = 0.0002
PUBLISHED = {"alpha": "alpha", "beta": "beta", "odin": "sr", "msp": "sr"}
"""The published evaluation's method by the score's name, if it has one."""


class MissingMethod(NamedTuple):
    """A method that cannot be scored here, and what it needs."""

    method: str
    scenario: str
    needs: str


@dataclass(frozen=True, eq=False)
class ScoredMethod:
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
            grid = self.grid()
            return Estimate(100 * grid.auroc), Estimate(100 * grid.frr)
        metrics = evaluate_perturbed(self.scores, self.errors).deployed.metrics
        return in_percent(metrics["auroc"]), in_percent(metrics["frr_at_trr"])

    def minus(self, other: "ScoredMethod") -> tuple[Estimate, Estimate]:
        """Return AUROC and FRR less those of another method, paired, in percent."""
        # The two rank rows alike by arithmetic. The difference that rounding makes has
        # an interval around zero, which would be printed as if it had been measured.
        if self.same_rank and other.same_rank:
            return Estimate(0.0, 0.0, 0.0), Estimate(0.0, 0.0, 0.0)
        first, second = (Ranking(m.scores, self.errors) for m in (self, other))
        arms = [paired_frr(r, trr=0.95, confidence=0.95) for r in (first, second)]
        return (
            in_percent(auroc_difference(first, second)),
            in_percent(frr_difference(arms[0], arms[1], first.wrong)),
        )

    def take(self, rows: Any) -> "ScoredMethod":
        """Return some of the rows."""
        arrays = (self.scores, self.errors, self.values)
        scores, errors, values = (array[rows] for array in arrays)
        return replace(self, scores=scores, errors=errors, values=values)


def score_method(
    method: str,
    scenario: str,
    setting: ScoreSetting,
    output: ModelOutput,
    judged: ModelOutput,
) -> ScoredMethod:
    """Score a model's output; the errors are those of the predictions judged."""
    entry = find_logit_score(setting.score)
    # Logits of a stored softmax are divided by its temperature already.
    options: dict[str, Any] = {
        "temperature": setting.temperature / output.softmax_temperature
    }
    # As deployed the user acts on the clean prediction, so the doubt is about its
    # class, also if the perturbed input would get another.
    if entry.about_class:
        options["predicted"] = judged.predictions.predicted
    scores = np.asarray(entry.function(output.predictions.logits, **options))
    published = PUBLISHED.get(setting.score)
    doubted_class = None if output is judged else judged.predictions.predicted
    values = (
        scores.astype(np.float64)
        if published is None
        else published_values(
            output.softmax(setting.temperature), published, doubted_class
        )
    )
    errors = judged.predictions.errors
    binary = judged.predictions.logits.shape[1] == 2
    ranks_as_sr = {"msp", "beta", "odin", *(["alpha"] if binary else [])}
    same_rank = (
        output is judged and setting.score in ranks_as_sr and setting.temperature == 1
    )
    below = published == "sr"
    return ScoredMethod(method, scenario, scores, errors, values, below, same_rank)


def methods_in_paper(exhibit: Exhibit) -> list[ScoredMethod | MissingMethod]:
    """Return the methods that the paper has numbers for on this data set."""
    printed = paper("table1")[exhibit.dataset.name]["methods"]
    methods: list[ScoredMethod | MissingMethod] = list(tbb_methods(exhibit))
    if any("PBB" in cells for cells in printed.values()):
        if exhibit.model_run is not None:
            exhibit.model_run.expected_passes += 3  # alpha, beta and Mahalanobis
        methods += pbb_methods(exhibit)
    return [m for m in methods if m.scenario[:3] in printed.get(m.method, {})]


def tbb_methods(exhibit: Exhibit) -> Iterator[ScoredMethod | MissingMethod]:
    """Yield the totally black-box methods."""
    clean = exhibit.clean
    for method, setting in TBB.items():
        yield score_method(method, "TBB", setting, clean, clean)
    if exhibit.train is None:
        name = f"{exhibit.model}-{exhibit.dataset.name}-train.npz"
        needs = f"predictions of the training rows: {name}"
        yield MissingMethod("mhlnb", "TBB", needs)
        return
    mahalanobis = fit_mahalanobis(exhibit.train, "softmax")
    scores = np.asarray(mahalanobis.function(finite_logits(clean)))
    yield ScoredMethod("mhlnb", "TBB", scores, clean.predictions.errors, scores)


def pbb_methods(exhibit: Exhibit) -> Iterator[ScoredMethod | MissingMethod]:
    """Yield the partially black-box methods, under both protocols."""
    clean = exhibit.clean
    for method, setting in PBB.items():
        if setting.score == "energy" and clean.predictions.from_probabilities:
            yield MissingMethod(method, "PBB", "true logits, not probabilities")
            continue
        perturbed = exhibit.perturbed(setting)
        if perturbed is None:
            needs = (
                exhibit.needed_to_run or "predictions at perturbed inputs, or --model"
            )
            yield MissingMethod(method, "PBB", needs)
            continue
        if setting.epsilon:
            yield score_method(method, "PBB paper", setting, perturbed, perturbed)
        yield score_method(method, "PBB deployed", setting, perturbed, clean)
    yield from _perturbed_mahalanobis(exhibit)


def _perturbed_mahalanobis(exhibit: Exhibit) -> Iterator[ScoredMethod | MissingMethod]:
    if exhibit.train is None or exhibit.train.predictions.from_probabilities:
        yield MissingMethod("mhlnb", "PBB", "logits of the training rows")
        return
    if exhibit.model_run is None:
        yield MissingMethod("mhlnb", "PBB", exhibit.needed_to_run or "--model")
        return
    mahalanobis = fit_mahalanobis(exhibit.train, "logits")
    logits = exhibit.model_run.logits(mahalanobis, 1.0, MHLNB_EPSILON)
    scores = np.asarray(mahalanobis.function(logits))
    perturbed_errors = logits.argmax(1) != exhibit.clean.predictions.labels
    clean_errors = exhibit.clean.predictions.errors
    yield ScoredMethod("mhlnb", "PBB paper", scores, perturbed_errors, scores)
    yield ScoredMethod("mhlnb", "PBB deployed", scores, clean_errors, scores)


def fit_mahalanobis(train: ModelOutput, space: Any) -> Mahalanobis:
    """Fit Mahalanobis on the predictions of the training rows."""
    rows = replace(train.predictions, logits=finite_logits(train))
    return Mahalanobis.fit(rows, space=space)


def finite_logits(output: ModelOutput) -> Array:
    """Return finite logits, so that distances exist: log(0) becomes -10,000."""
    return np.maximum(output.predictions.logits.astype(np.float64), -1e4)
