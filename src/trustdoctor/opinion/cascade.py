"""A cascade: a small model first, a larger one where it doubts, then a person."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.gates import Certificate, Classes, Shortlist, requested_targets
from trustdoctor.metrics import html_facts
from trustdoctor.opinion.policies import CASCADE_TARGETS, Measured, asked_stages
from trustdoctor.opinion.run import PERSON, Cascaded, CascadeRun, ask_lazily, log_probs
from trustdoctor.opinion.stages import (
    BATCH_SIZE,
    Stages,
    align_stages,
    name_files,
    require_different,
    require_stages,
)
from trustdoctor.predictions import Predictions
from trustdoctor.progress import Tell
from trustdoctor.scores import Score, find_score

AVERAGE: Final = "average"
OWN: Final = "own"
LISTING_SHARE = 1 / 3
"""The share of the rows that list policies, by default."""

MAX_STAGES = 8
MAX_COST = 1e100
"""The largest cost: sums of it do not overflow."""


@dataclass(frozen=True)
class Cascade:
    """Asks models in the order of their costs, while a row is in doubt.

    Make one with `Cascade.calibrate`, or by hand.

    Attributes
    ----------
    stages : tuple of str
        The names of the models, the cheapest first.
    thresholds : tuple of float
        A row stops at a stage if its doubt is at most this; at -inf none does. A stage
        whose answer cannot settle a row is not asked: one at -inf that answers by
        itself, or that no stage follows at which rows stop.
    costs : tuple of float
        The costs of asking each model about a row, and of a person: one more than
        stages. They add up over the stages asked.
    score : str
        The name of the score.
    combine : str
        "average": a stage answers with the mean of the log-softmax of all models asked
        so far. "own": with its model's own answer.
    classes : int, tuple of str, or None
        The number of classes, or their names.
    certificate : Certificate or None
        The promise for the whole cascade.
    shortlist : Shortlist or None
        Lists for the rows that go to a person.
    measured : Measured or None
        What policies cost, if the cascade was calibrated.

    Examples
    --------
    >>> small = np.array([[4.0, 0.0], [0.2, 0.0], [0.1, 0.0]])
    >>> large = np.array([[4.0, 0.0], [0.0, 5.0], [0.0, 0.1]])
    >>> two = Cascade(("small", "large"), (-2.0, -1.0), (0.0, 1.0, 10.0), "beta")
    >>> decisions = two.screen([small, large])
    >>> decisions.predicted, decisions.accepted, decisions.costs
    (array([0, 1, 0]), array([ True,  True, False]), array([ 0.,  1., 11.]))
    """

    stages: tuple[str, ...]
    thresholds: tuple[float, ...]
    costs: tuple[float, ...]
    score: str = "alpha"
    combine: str = AVERAGE
    classes: Classes | None = None
    certificate: Certificate | None = field(default=None, repr=False)
    shortlist: Shortlist | None = field(default=None, repr=False)
    measured: Measured | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what no cascade can be."""
        self._check_stages()
        if self.combine not in (AVERAGE, OWN):
            message = f"expected combine='average' or 'own', got {self.combine!r}."
            raise InputError(message)
        if not isinstance(self.score, str):
            message = (
                f"a cascade names its score, as 'alpha', got "
                f"{type(self.score).__name__}. Fitted scores are not for cascades."
            )
            raise InputError(message)
        if not self.asked:
            message = "expected a stage at which rows stop, got -inf for every stage."
            raise InputError(message)
        self._check_attachments()
        costs = as_costs(self.costs, len(self.stages))
        object.__setattr__(self, "costs", costs)
        object.__setattr__(self, "score", self.scorer.name)

    def _check_stages(self) -> None:
        """Check the stages and their thresholds; sequences become tuples."""
        is_sequence = isinstance(self.stages, (list, tuple))
        stages = tuple(self.stages) if is_sequence else (self.stages,)
        named = all(map(_is_name, stages)) and len(set(stages)) == len(stages)
        if not is_sequence or not named or not 0 < len(stages) <= MAX_STAGES:
            message = (
                f"expected 1 to {MAX_STAGES} names of stages, each once and none "
                f"{PERSON!r}, who comes last, got {self.stages!r}."
            )
            raise InputError(message)
        thresholds: Any = self.thresholds
        if isinstance(thresholds, (list, tuple, np.ndarray)):
            thresholds = list(thresholds)
        else:
            thresholds = [thresholds]
        valid = all(map(_is_threshold, thresholds))
        if not valid or len(thresholds) != len(stages):
            message = (
                f"expected a threshold for each of {len(stages)} stages, got "
                f"{self.thresholds!r}."
            )
            raise InputError(message)
        object.__setattr__(self, "stages", stages)
        object.__setattr__(self, "thresholds", tuple(map(float, thresholds)))

    def _check_attachments(self) -> None:
        """Refuse a certificate, lists or measurements of another cascade."""
        kinds = {"certificate": Certificate, "shortlist": Shortlist}
        kinds |= {"measured": Measured}
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), (kind, type(None))):
                message = f"expected {name} as a {kind.__name__}, or None."
                raise InputError(message)
        measured, shortlist, classes = self.measured, self.shortlist, self.classes
        if not _are_classes(classes):
            message = (
                f"expected classes by number or as a tuple of names, got {classes!r}."
            )
            raise InputError(message)
        count = classes if isinstance(classes, int | None) else len(classes)
        promised = set() if self.certificate is None else set(self.certificate.target)
        if not promised <= set(CASCADE_TARGETS):
            message = (
                f"a cascade promises one of {', '.join(CASCADE_TARGETS)}, not others."
            )
            raise InputError(message)
        if shortlist is not None and (
            shortlist.groups or count not in (None, shortlist.n_classes)
        ):
            message = f"expected lists for {count} classes, and without groups."
            raise InputError(message)
        if measured is not None and (
            len(measured.asked) != len(self.stages)
            or [model.name for model in measured.alone] != list(self.stages)
            or set(measured.curves) != set(self.stages)
        ):
            message = "expected what was measured of the same stages."
            raise InputError(message)

    @property
    def scorer(self) -> Score:
        """The score, ready to call."""
        return find_score(self.score)

    @classmethod
    def calibrate(  # noqa: PLR0913 - options, by keyword only
        cls,
        stages: Sequence[Any] | Mapping[str, Any],
        labels: Any = None,
        *,
        risk: float | None = None,
        joint: float | None = None,
        trr: float | None = None,
        target: Mapping[str, float] | None = None,
        costs: Sequence[float] | None = None,
        confidence: float = 0.9,
        score: str = "alpha",
        combine: Literal["average", "own"] = AVERAGE,
        shortlist: float | Mapping[str, Any] | None = None,
        share: float = LISTING_SHARE,
        seed: int = 0,
        data: Any = None,
        ids: Any = None,
        names: Sequence[str] | None = None,
        by_position: bool = False,
        batch_size: int = BATCH_SIZE,
        progress: Tell | None = None,
    ) -> "Cascade":
        """Pick the thresholds that cost least under one promise for the whole.

        A third of the labelled rows lists the policies that no other beats in cost and
        certainty; the others test them one after another (see `opinion/policies.py`).

        Parameters
        ----------
        stages : list, or dict by name
            The cheapest first. Each is a model's predictions (Predictions, an array of
            logits (n, C), a file), or a model to ask about `data`.
        labels : array (n,), optional
            The true classes, in the order of the first stage's rows; by default those
            that the stages have.
        risk, joint, trr : float
            One of these. risk : at most this share of the accepted answers is wrong.
            joint : at most this share of all is wrong and accepted. trr : at least this
            share of the errors goes to a person. An error is a wrong label at the stage
            where the row stopped.
        target : dict, optional
            The same by name.
        costs : sequence of float
            The cost of each model, and last of a person; they must not fall.
        confidence : float
            The probability, over calibrations, that the promise holds.
        score : str
            The name of the score.
        combine : str
            "average" or "own".
        shortlist : float or dict, optional
            Also make lists for the rows that go to a person, on another third of the
            rows; as in `trustdoctor.calibrate`.
        share : float
            The share of the rows that list policies.
        seed : int
            The seed of the permutation that divides the rows.
        data, ids, names, by_position, batch_size, progress
            As in `screen`; `names` are the names of the stages in a list.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, 3000)
        >>> truth = 4 * np.eye(3)[labels]
        >>> small, large = (truth + s * rng.normal(size=(3000, 3)) for s in (4, 2))
        >>> two = Cascade.calibrate([small, large], labels, risk=0.05, costs=[0, 1, 9])
        >>> two.certificate.promise()
        'at most 5% errors among the accepted, with confidence 0.9'
        """
        from trustdoctor.opinion.calibrate_cascade import (
            calibrate_stages,
            check_request,
        )

        if isinstance(stages, Mapping):
            stages, names = _stages_and_names(stages, names)
        require_stages(stages)
        # Checked before any model is asked, which may take long or cost money.
        targets = requested_targets(target, risk=risk, joint=joint, trr=trr)
        request = check_request(targets, costs, len(stages), confidence, share, seed)
        aligned = align_stages(
            stages,
            labels,
            data=data,
            ids=ids,
            names=names,
            by_position=by_position,
            batch_size=batch_size,
            progress=progress,
        )
        return calibrate_stages(
            aligned, request, score=score, combine=combine, shortlist=shortlist
        )

    def screen(  # noqa: PLR0913 - options, by keyword only
        self,
        stages: Sequence[Any] | Mapping[str, Any],
        *,
        data: Any = None,
        ids: Any = None,
        names: Sequence[str] | None = None,
        by_position: bool = False,
        batch_size: int = BATCH_SIZE,
        progress: Tell | None = None,
    ) -> Cascaded:
        """Decide on each row; later models are asked only about rows still in doubt.

        Parameters
        ----------
        stages : list, or dict by name
            As many as the cascade has, or the first of them: rows still in doubt after
            those are not accepted, and `goes_to` names the next stage. Each is a
            model's predictions (Predictions, an array of logits, a file), or a model. A
            later file needs only the rows in doubt.
        data
            Rows that models are asked about: an array, a tensor, a list, a table.
        ids : array (n,) or str, optional
            The ids of the rows of `data`, if some stages are files; or the column of
            ids in files, by default `id`.
        by_position : bool
            Whether the rows of files are in the same order; by default they are matched
            by id.
        batch_size : int
            Rows per pass of a model.
        progress : callable, optional
            Called with the share of the work that is finished, and the current task.
        """
        if isinstance(stages, Mapping):
            stages, names = _stages_and_names(stages, names)
            self.require_order(names)
        require_stages(stages)
        if len(stages) > len(self.stages):
            message = (
                f"expected at most {len(self.stages)} stages "
                f"({', '.join(self.stages)}), got {len(stages)}."
            )
            raise InputError(message)
        stage_names = names or self.stages[: len(stages)]
        if names is None:
            require_different(stages)
            self.require_order(name_files(stages))
        aligned = align_stages(
            stages,
            data=data,
            ids=ids,
            names=stage_names,
            by_position=by_position,
            batch_size=batch_size,
            progress=progress,
        )
        return self.run(aligned)

    def require_order(self, files: Sequence[str]) -> None:
        """Refuse a file in the place of one stage that has the name of another."""
        for file, stage in zip(files, self.stages, strict=False):
            if file != stage and file in self.stages:
                message = (
                    f"expected {stage} in this place, got {file}. Give the files in "
                    f"the order {', '.join(self.stages)}."
                )
                raise InputError(message)

    def run(self, stages: Stages) -> Cascaded:
        """Ask aligned stages, and decide."""
        asked = [k for k in self.asked if k < len(stages.each)]
        if not asked:
            message = (
                "expected a stage that can settle a row, got "
                f"{', '.join(stages.names)}: this cascade asks "
                f"{', '.join(self.stages[k] for k in self.asked)}."
            )
            raise InputError(message)
        run = CascadeRun(self, stages, asked)

        def ask(i: int, rows: Array) -> Predictions:
            return stages.ask(asked[i], rows)

        ask_lazily(stages.rows, len(asked), ask, run.settle)
        return run.decisions()

    @property
    def asked(self) -> list[int]:
        """The numbers of the stages that are asked, in their order."""
        return asked_stages(self.thresholds, separate=self.combine == OWN)

    def answers(
        self, predictions: list[Predictions], labels: Any
    ) -> Iterator[Predictions]:
        """Yield the answer after each stage, from all models' predictions."""
        log_prob_sums: Array | None = None
        for k, stage_predictions in enumerate(predictions):
            answer, log_prob_sums = self.answer(k, stage_predictions, log_prob_sums)
            yield replace(answer, labels=labels)

    def answer(
        self, k: int, predictions: Predictions, log_prob_sums: Array | None
    ) -> tuple[Predictions, Array | None]:
        """Return the answer of stage k, and the sums over the stages up to it.

        The first stage answers as its model does. A mean has no logits of its own:
        scores that need them are refused.
        """
        if self.combine == OWN:
            return predictions, None
        stage_log_probs = log_probs(predictions)
        if log_prob_sums is None:
            return predictions, stage_log_probs
        log_prob_sums = log_prob_sums + stage_log_probs
        mean = Predictions(log_prob_sums / (k + 1), None, from_probabilities=True)
        return replace(mean, class_names=predictions.class_names), log_prob_sums

    def save(self, path: str | Path) -> None:
        """Write the cascade as JSON, whole or not at all."""
        from trustdoctor.opinion.cascade_file import save_cascade

        save_cascade(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Cascade":
        """Read a cascade; refuse a file that is not valid."""
        from trustdoctor.opinion.cascade_file import load_cascade

        return load_cascade(path)

    def to_html(self, path: str | Path) -> None:
        """Write a page with the picture of cost against risk, and its basis."""
        from trustdoctor.atomic import write_text
        from trustdoctor.report import render_cascade

        write_text(path, render_cascade(self))

    def _repr_html_(self) -> str:
        """Show stages, costs and the promise in a notebook."""
        facts = {"stages": ", ".join((*self.stages, PERSON))}
        facts["costs"] = ", ".join(f"{cost:g}" for cost in self.costs)
        facts["decision"] = repr(self)
        if self.certificate is not None:
            facts["promise"] = self.certificate.promise()
        return html_facts(facts)

    def __repr__(self) -> str:
        """Show the stages that are asked, where rows stop, and the promise."""
        stages = zip(self.stages, self.thresholds, strict=True)
        rules = ", ".join(
            f"{name} if {self.score} <= {t:.6g}" if t > -np.inf else f"{name}, goes on"
            for k, (name, t) in enumerate(stages)
            if k in self.asked
        )
        promise = self.certificate.promise() if self.certificate else "no certificate"
        return f"Cascade({rules}, else {PERSON}; {promise})"


def _stages_and_names(
    stages: Mapping[str, Any], names: Sequence[str] | None
) -> tuple[list[Any], list[str]]:
    """Return the stages of a dict, and their names."""
    if names is not None:
        message = "a dict of stages names them itself. Leave names out."
        raise InputError(message)
    return list(stages.values()), list(stages)


def _are_classes(classes: Any) -> bool:
    if classes is None or isinstance(classes, int):
        return classes is None or (type(classes) is int and classes > 1)
    are_names = isinstance(classes, tuple) and all(isinstance(c, str) for c in classes)
    return are_names and len(set(classes)) == len(classes) > 1


def as_costs(costs: Any, stages: int) -> tuple[float, ...]:
    """Check costs: one for each model, one for a person, none below the one before."""
    is_sequence = isinstance(costs, (list, tuple)) or getattr(costs, "ndim", 0) == 1
    entries = list(costs) if is_sequence else [costs]
    if len(entries) != stages + 1 or not all(map(_is_cost, entries)):
        message = (
            f"expected {stages + 1} costs of 0 or more, one for each of {stages} "
            f"{'model' if stages == 1 else 'models'} and the last for a person, got "
            f"{', '.join(map(str, entries))}."
        )
        raise InputError(message)
    checked = tuple(float(cost) for cost in entries)
    if list(checked) != sorted(checked):
        shown = ", ".join(f"{cost:g}" for cost in checked)
        message = (
            f"expected stages in the order of their costs, got {shown}, which falls. "
            "Put the cheapest first."
        )
        raise InputError(message)
    return checked


def _is_threshold(value: Any) -> bool:
    if isinstance(value, (float, np.floating)):
        return not np.isnan(value)
    return type(value) is int and abs(value) < MAX_COST


def _is_cost(cost: Any) -> bool:
    if not isinstance(cost, Real) or isinstance(cost, bool):
        return False
    try:
        return 0 <= float(cost) <= MAX_COST
    except OverflowError:  # an integer beyond any float
        return False


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and bool(name.strip()) and name != PERSON
