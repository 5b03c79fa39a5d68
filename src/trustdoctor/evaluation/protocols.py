"""Perturbed scores under both protocols: what a user deploys, and the paper's."""

from dataclasses import asdict, dataclass, field
from typing import Any

from trustdoctor.arrays import Array, as_errors, as_scores
from trustdoctor.errors import InputError
from trustdoctor.evaluation.evaluations import (
    EvaluationSettings,
    percent_value,
    rank_estimates,
)
from trustdoctor.metrics import Estimate, Points, counts, share
from trustdoctor.predictions import Predictions
from trustdoctor.scores import find_logit_score


@dataclass(frozen=True)
class Protocol:
    """A perturbed score evaluated under one protocol.

    Attributes
    ----------
    n_errors : int
    accuracy : Estimate
        Of the predictions whose errors are counted.
    metrics : dict of str to Estimate
        As in `Evaluation.scores`.
    """

    n_errors: int
    accuracy: Estimate
    metrics: dict[str, Estimate]


@dataclass(frozen=True)
class Protocols:
    """A perturbed score under both protocols; "deployed" is the one to act on.

    Attributes
    ----------
    n : int
    deployed : Protocol
        Errors of the clean prediction, which a user acts on.
    paper : Protocol or None
        Errors of the prediction at the perturbed input, as the DOCTOR paper counts
        them; None where the model was never evaluated there.

    Examples
    --------
    >>> both = evaluate_perturbed([0.1, 0.5, 0.6], [False, True, False])
    >>> both.paper is None, both.deployed.n_errors
    (True, 1)
    """

    n: int
    deployed: Protocol
    paper: Protocol | None
    settings: EvaluationSettings = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers; None for what does not exist."""
        return asdict(self)

    def __repr__(self) -> str:
        """Show both protocols side by side."""
        trr = f"FRR@{self.settings.points.trr * 100:g}TRR"
        lines = [f"{'protocol':<10}{'accuracy':>10}{'AUROC':>10}{trr:>12}"]
        for name in ("deployed", "paper"):
            protocol = getattr(self, name)
            if protocol is not None:
                accuracy = percent_value(protocol.accuracy)
                auroc = percent_value(protocol.metrics["auroc"])
                frr = percent_value(protocol.metrics["frr_at_trr"])
                lines.append(f"{name:<10}{accuracy:>10}{auroc:>10}{frr:>12}")
        return "\n".join(lines)


def evaluate_perturbed(  # noqa: PLR0913 - options, by keyword only
    scores: Any,
    errors: Any,
    perturbed_errors: Any = None,
    perturbed_scores: Any = None,
    *,
    points: Points | None = None,
    confidence: float = 0.95,
) -> Protocols:
    """Measure a perturbed score under both protocols.

    Parameters
    ----------
    scores : array (n,)
        The doubt at the perturbed input about the clean prediction.
    errors : bool array (n,)
        Where the clean prediction is wrong.
    perturbed_errors : bool array (n,), optional
        Where the prediction at the perturbed input is wrong.
    perturbed_scores : array (n,), optional
        The doubt about the prediction at the perturbed input, which the paper
        evaluates; needed with `perturbed_errors`. A score of the whole output, such as
        alpha, doubts both alike: pass `scores` again. One about a single class (beta,
        msp, margin, ODIN) does not.
    points, confidence
        As in `evaluate`.

    Examples
    --------
    >>> doubts, errors = [0.1, 0.5, 0.6], [False, True, False]
    >>> both = evaluate_perturbed(doubts, errors, [False, True, True], doubts)
    >>> both.deployed.metrics["auroc"].value, both.paper.metrics["auroc"].value
    (0.5, 1.0)
    """
    _check_perturbed(perturbed_errors, perturbed_scores)
    settings = EvaluationSettings(points or Points(), 1.0, confidence)
    doubts, paper = as_scores(scores), None
    n = len(doubts)
    if perturbed_errors is not None:
        wrong = as_errors(perturbed_errors, rows=n)
        paper = _measure_protocol(as_scores(perturbed_scores), wrong, settings)
    deployed = _measure_protocol(doubts, as_errors(errors, rows=n), settings)
    return Protocols(n, deployed, paper, settings)


def _measure_protocol(
    doubts: Array, errors: Array, settings: EvaluationSettings
) -> Protocol:
    n, n_errors = len(errors), int(errors.sum())
    accuracy = share(n - n_errors, n, confidence=settings.confidence)
    return Protocol(
        n_errors, accuracy, rank_estimates(counts(doubts, errors), settings)
    )


def _check_perturbed(errors: Any, scores: Any) -> None:
    """Refuse errors of the perturbed prediction without the doubts about it.

    The doubt about the clean class ranked against errors of the perturbed prediction
    gave the paper's protocol an AUROC of 91.8 where it is 84.8 (beta, ResNet-20,
    magnitude 0.002).
    """
    if (errors is None) != (scores is None):
        lacking = "perturbed_scores" if scores is None else "perturbed_errors"
        message = (
            "expected perturbed_errors and perturbed_scores together, got no "
            f"{lacking}. The scores are the doubts about the prediction at the "
            "perturbed input: for a score of the whole output, such as alpha, the "
            "same as scores; for one about a single class (beta, msp, margin, ODIN) "
            "not. An Examination or a Sweep of trustdoctor.adapters.torch has both: "
            "call its evaluate()."
        )
        raise InputError(message)


def evaluate_logits(
    predictions: Predictions,
    perturbed: Any,
    *,
    score: str,
    temperature: float = 1.0,
) -> Protocols:
    """Measure a score at perturbed logits (n, C) under both protocols.

    A score about one class is about the clean prediction's under `deployed`, and about
    the perturbed one's under `paper`.
    """
    entry = find_logit_score(score)
    at_perturbed = Predictions.from_logits(perturbed, predictions.labels)
    # Under `deployed` the doubt is about the class that the user acts on.
    about = {"predicted": predictions.predicted} if entry.about_class else {}
    return evaluate_perturbed(
        entry.function(at_perturbed.logits, temperature=temperature, **about),
        predictions.errors,
        at_perturbed.errors,
        entry.function(at_perturbed.logits, temperature=temperature),
    )
