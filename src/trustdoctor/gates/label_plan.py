"""What more labels would buy: the chance of a gate, and how much it would answer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trustdoctor.errors import InputError, UndefinedMetricError
from trustdoctor.gates.outlook import DRAWS, Outlook, Population, simulate
from trustdoctor.gates.request import Request, requested_targets
from trustdoctor.gates.sample import Rows, Sample
from trustdoctor.metrics import Estimate, ResultTable, Tabular
from trustdoctor.predictions import Predictions
from trustdoctor.scores import Score, default_score, find_score

GROWTH = (1, 2, 5)
"""How many times as many labels a plan looks at."""


@dataclass(frozen=True, repr=False)
class LabelPlan(Tabular):
    """How calibrations on more rows like these would turn out.

    Attributes
    ----------
    target : str
    value : float
    outlooks : tuple of Outlook
        For each number of labels: the share of calibrations that decide something, and
        the coverage of those, between `low` and `high` in four of five.

    Examples
    --------
    >>> logits = np.arange(1.0, 301.0)[:, None] / 50 * [1.0, 0.0]
    >>> p = Predictions.from_logits(logits, logits[:, 0] < 0.5)
    >>> print(plan(p, risk=0.1, labels=[300, 600]))
    Plan for risk 0.1
    labels  calibrations that decide, %  their coverage, % [4 of 5]
    300                          100.00       92.00 [89.12, 100.00]
    600                          100.00      100.00 [86.09, 100.00]
    An estimate from these rows, no promise; the score is taken as it is.
    """

    target: str
    value: float
    outlooks: tuple[Outlook, ...]

    def table(self) -> ResultTable:
        """Return a row for each number of labels."""
        columns = {
            "labels": "labels",
            "chance": "calibrations that decide, %",
            "coverage": "their coverage, % [4 of 5]",
        }
        rows = [
            {
                "labels": o.rows,
                "chance": Estimate(o.decides),
                "coverage": Estimate(o.median, o.low, o.high) if o.decides else None,
            }
            for o in self.outlooks
        ]
        return ResultTable(columns, rows)

    def __repr__(self) -> str:
        """Show the table, and what it rests on."""
        note = "An estimate from these rows, no promise; the score is taken as it is."
        title = f"Plan for {self.target} {self.value:g}"
        return "\n".join([title, self.table().to_text(), note])


def plan(  # noqa: PLR0913 - options, by keyword only
    predictions: Predictions,
    *,
    risk: float | None = None,
    frr: float | None = None,
    trr: float | None = None,
    joint: float | None = None,
    coverage: float | None = None,
    labels: Sequence[int] | None = None,
    score: str | Score | None = None,
    confidence: float = 0.9,
) -> LabelPlan:
    """Say what more labels would buy, by calibrations on rows drawn like these.

    Parameters
    ----------
    predictions : Predictions
        With labels.
    risk, frr, trr, joint, coverage : float
        What is to be promised: one of them.
    labels : sequence of int, optional
        Numbers of labels; by default as many as these, twice and five times as many.
    score : str or Score, optional
        As in `calibrate`.
    confidence : float

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(300, 4))
    >>> labels = np.where(rng.random(300) < 0.9, logits.argmax(1), 0)
    >>> plan(Predictions.from_logits(logits, labels), risk=0.2).outlooks[2].rows
    1500
    """
    labelled = predictions.labelled("a plan")
    targets = requested_targets(
        None, risk=risk, frr=frr, trr=trr, joint=joint, coverage=coverage
    )
    request = Request(targets, confidence=confidence)
    if len(targets) > 1:
        message = f"expected one target, got {' and '.join(targets)}."
        raise InputError(message)
    plan_score = find_score(score or default_score(labelled))
    doubts, errors = np.asarray(plan_score(labelled)), labelled.errors
    if errors.all() or not errors.any():
        message = (
            f"a plan needs right and wrong rows, got {int(errors.sum())} wrong of "
            f"{len(errors)}. Label more rows."
        )
        raise UndefinedMetricError(message)
    sizes = [k * len(errors) for k in GROWTH] if labels is None else list(labels)
    if not all(type(n) is int and n > 0 for n in sizes):
        message = f"expected numbers of labels of 1 or more, got {labels!r}."
        raise InputError(message)
    sample = Rows(doubts, errors, plan_score.rounding)
    return plan_sample(sample, request, sizes)


def plan_sample(
    sample: Sample, request: Request, sizes: Sequence[int], *, draws: int = DRAWS
) -> LabelPlan:
    """Return the plan for rows whose doubts and errors are counted.

    `draws` is the number of simulated calibrations for each size.
    """
    population = Population.of(sample)
    outlooks = tuple(
        simulate(population, [request.cut_all], rows, draws)[0] for rows in sizes
    )
    ((target, value),) = list(request.target.items())[:1]
    return LabelPlan(target, value, outlooks)
