"""A cascade: a small model first, a larger one where it doubts, then a person."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.gates import Certificate, Classes, Shortlist
from trustdoctor.opinion.lazily import ask_lazily, log_softmax
from trustdoctor.opinion.measured import Measured
from trustdoctor.opinion.policies import KINDS, asked_stages
from trustdoctor.opinion.stages import (
    BATCH,
    Stages,
    name_files,
    require_different,
    require_stages,
    take_stages,
)
from trustdoctor.opinion.walking import PERSON, Cascaded, Way
from trustdoctor.predictions import Predictions
from trustdoctor.progress import Tell
from trustdoctor.scores import Score, find_score

AVERAGE, OWN = "average", "own"
SHARE = 1 / 3
"""How many of the rows list policies, unless it is told."""

MOST_STAGES = 8
MOST = 1e100
"""The largest cost: sums of it do not overflow."""


@dataclass(frozen=True)
class Cascade:
    """Asks models in the order of their costs, while a row is in doubt.

    Make one with `Cascade.calibrate`, or by hand.

    Attributes
    ----------
    stages : tuple of str
        What the models are called, the cheapest first.
    thresholds : tuple of float
        A row stops at a stage where its doubt is at most this; at -inf none does. A
        stage whose answer cannot settle a row is not asked: after it none stops, or it
        answers by itself and none stops there.
    costs : tuple of float
        Of asking each model about a row, and of a person: one more than stages. They
        add up over the stages asked.
    score : str
        The name of the score that doubts.
    combine : str
        "average": a stage answers with the mean of the log-softmax of all models asked
        so far. "own": with its model's own answer.
    classes : int, tuple of str, or None
        How many classes there are, or their names.
    certificate : Certificate or None
        The promise for the whole.
    shortlist : Shortlist or None
        Lists for the rows that go to a person.
    measured : Measured or None
        What policies cost, where it was calibrated.

    Examples
    --------
    >>> small = np.array([[4.0, 0.0], [0.2, 0.0], [0.1, 0.0]])
    >>> large = np.array([[4.0, 0.0], [0.0, 5.0], [0.0, 0.1]])
    >>> two = Cascade(("small", "large"), (-2.0, -1.0), (0.0, 1.0, 10.0), "beta")
    >>> done = two.screen([small, large])
    >>> done.predicted, done.accepted, done.costs
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
        self._check_parts()
        costs = as_costs(self.costs, len(self.stages))
        object.__setattr__(self, "costs", costs)
        object.__setattr__(self, "score", self.scorer.name)

    def _check_stages(self) -> None:
        """Check the stages and their thresholds; sequences become tuples."""
        several = isinstance(self.stages, (list, tuple))
        stages = tuple(self.stages) if several else (self.stages,)
        named = all(map(_is_name, stages)) and len(set(stages)) == len(stages)
        if not several or not named or not 0 < len(stages) <= MOST_STAGES:
            message = (
                f"expected 1 to {MOST_STAGES} names of stages, each once and none "
                f"{PERSON!r}, who comes last, got {self.stages!r}."
            )
            raise InputError(message)
        given: Any = self.thresholds
        given = list(given) if isinstance(given, (list, tuple, np.ndarray)) else [given]
        real = all(map(_is_threshold, given))
        if not real or len(given) != len(stages):
            message = (
                f"expected a threshold for each of {len(stages)} stages, got "
                f"{self.thresholds!r}."
            )
            raise InputError(message)
        object.__setattr__(self, "stages", stages)
        object.__setattr__(self, "thresholds", tuple(map(float, given)))

    def _check_parts(self) -> None:
        """Refuse parts that belong to another cascade."""
        kinds = {"certificate": Certificate, "shortlist": Shortlist}
        kinds |= {"measured": Measured}
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), (kind, type(None))):
                message = f"expected {name} as a {kind.__name__}, or None."
                raise InputError(message)
        seen, short, own = self.measured, self.shortlist, self.classes
        if not _are_classes(own):
            message = f"expected classes by number or as a tuple of names, got {own!r}."
            raise InputError(message)
        size = own if isinstance(own, int) or own is None else len(own)
        if self.certificate is not None and not set(self.certificate.target) <= set(
            KINDS
        ):
            message = f"a cascade promises one of {', '.join(KINDS)}, not others."
            raise InputError(message)
        if short is not None and (short.groups or size not in (None, short.n_classes)):
            message = f"expected lists for {size} classes, and without groups."
            raise InputError(message)
        if seen is not None and (
            len(seen.asked) != len(self.stages)
            or [one.name for one in seen.alone] != list(self.stages)
            or set(seen.curves) != set(self.stages)
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
        stages: Sequence[Any],
        labels: Any = None,
        *,
        costs: Any = None,
        confidence: float = 0.9,
        score: str = "alpha",
        combine: str = AVERAGE,
        shortlist: Any = None,
        share: float = SHARE,
        seed: int = 0,
        data: Any = None,
        ids: Any = None,
        names: Sequence[str] | None = None,
        by_position: bool = False,
        batch_size: int = BATCH,
        progress: Tell | None = None,
        **target: float,
    ) -> "Cascade":
        """Pick the thresholds that cost least under one promise for the whole.

        A third of the labelled rows lists the policies that nothing beats in cost and
        certainty; the others test them one after another (see `opinion/policies.py`).

        Parameters
        ----------
        stages : list
            The cheapest first. Each is what a model said (Predictions, an array of
            logits (n, C), a file), or a model to ask about `data`.
        labels : array (n,), optional
            The true classes, in the order of the first stage's rows; by default those
            that the stages have.
        costs : sequence of float
            Of each model, and last of a person; they must not fall.
        confidence : float
            The probability, over calibrations, that the promise holds.
        score : str
            The name of the score that doubts.
        combine : str
            "average" or "own".
        shortlist : float or dict, optional
            Also lists for the rows that go to a person, set by another third of the
            rows; as in `trustdoctor.calibrate`.
        share : float
            Of the rows that list policies.
        seed : int
            Of the permutation that parts the rows.
        data, ids, names, by_position, batch_size, progress
            As in `screen`; `names` are what the stages are called.
        target
            One of these. risk : at most this share of the accepted answers is wrong.
            joint : at most this share of all is wrong and accepted. trr : at least this
            share of the errors goes to a person. An error is a wrong label where the
            row stopped.

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
        from trustdoctor.opinion.choosing import calibrate_taken, check_wanted

        require_stages(stages)
        asked = check_wanted(target, costs, len(stages), confidence, share, seed)
        taken = take_stages(
            stages,
            labels,
            data=data,
            ids=ids,
            names=names,
            by_position=by_position,
            batch_size=batch_size,
            progress=progress,
        )
        return calibrate_taken(
            taken, asked, score=score, combine=combine, shortlist=shortlist
        )

    def screen(  # noqa: PLR0913 - options, by keyword only
        self,
        stages: Sequence[Any],
        *,
        data: Any = None,
        ids: Any = None,
        names: Sequence[str] | None = None,
        by_position: bool = False,
        batch_size: int = BATCH,
        progress: Tell | None = None,
    ) -> Cascaded:
        """Decide on each row; later models are asked only about rows still in doubt.

        Parameters
        ----------
        stages : list
            As many as the cascade has, or the first of them: rows still in doubt after
            those are not accepted, and `goes_to` names the next stage. What a model
            said (Predictions, an array of logits, a file), or a model. A later file
            needs only the rows in doubt.
        data
            Rows that models are asked about: an array, a tensor, a list, a table.
        ids : array (n,) or str, optional
            What the rows of `data` are called, where some stages are files; or the
            column of ids in files, by default `id`.
        by_position : bool
            Whether the rows of files are in the same order; by default they are matched
            by id.
        batch_size : int
            Rows per pass of a model.
        progress : callable, optional
            Told how far the asking of models is.
        """
        require_stages(stages)
        if len(stages) > len(self.stages):
            message = (
                f"expected at most {len(self.stages)} stages "
                f"({', '.join(self.stages)}), got {len(stages)}."
            )
            raise InputError(message)
        used = names or self.stages[: len(stages)]
        if names is None:
            require_different(stages)
            self.require_order(name_files(stages))
        taken = take_stages(
            stages,
            data=data,
            ids=ids,
            names=used,
            by_position=by_position,
            batch_size=batch_size,
            progress=progress,
        )
        return self.walk(taken)

    def require_order(self, files: Sequence[str]) -> None:
        """Refuse a file in the place of one stage that has the name of another."""
        for own, name in zip(files, self.stages, strict=False):
            if own != name and own in self.stages:
                message = (
                    f"expected {name} in this place, got {own}. Give the files in the "
                    f"order {', '.join(self.stages)}."
                )
                raise InputError(message)

    def walk(self, taken: Stages) -> Cascaded:
        """Ask stages that are brought together, and decide."""
        asked = [k for k in self.asked if k < len(taken.each)]
        if not asked:
            message = (
                f"expected a stage that can settle a row, got {', '.join(taken.names)}:"
                f" this cascade asks {', '.join(self.stages[k] for k in self.asked)}."
            )
            raise InputError(message)
        way = Way(self, taken, asked)

        def ask(i: int, rows: Array) -> Predictions:
            return taken.ask(asked[i], rows)

        ask_lazily(taken.rows, len(asked), ask, way.settle)
        return way.done()

    @property
    def asked(self) -> list[int]:
        """The numbers of the stages that are asked, in their order."""
        return asked_stages(self.thresholds, own=self.combine == OWN)

    def judge(self, every: list[Predictions], labels: Any) -> Iterator[Predictions]:
        """Yield the answer after each stage, from what all models said of all rows."""
        total: Array | None = None
        for k, said in enumerate(every):
            answer, total = self.answer(k, said, total)
            yield replace(answer, labels=labels)

    def answer(
        self, k: int, said: Predictions, total: Array | None
    ) -> tuple[Predictions, Array | None]:
        """Return the answer of stage k, and the sum that the next one goes on with.

        The first stage answers as its model does. A mean has no logits of its own:
        scores that need them are refused.
        """
        if self.combine == OWN:
            return said, None
        heard = log_softmax(said)
        if total is None:
            return said, heard
        total = total + heard
        mean = Predictions(total / (k + 1), None, from_probabilities=True)
        return replace(mean, class_names=said.class_names), total

    def save(self, path: str | Path) -> None:
        """Write the cascade as JSON, whole or not at all."""
        from trustdoctor.opinion.cascade_file import save_cascade

        save_cascade(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Cascade":
        """Read a cascade, refusing whatever is not understood."""
        from trustdoctor.opinion.cascade_file import load_cascade

        return load_cascade(path)

    def to_html(self, path: str | Path) -> None:
        """Write the picture of cost against risk, and what it rests on, as a page."""
        from trustdoctor.atomic import write_text
        from trustdoctor.report import render_cascade

        write_text(path, render_cascade(self))

    def __repr__(self) -> str:
        """Say what is asked, when it stops, and what is promised."""
        at = zip(self.stages, self.thresholds, strict=True)
        rules = ", ".join(
            f"{name} if {self.score} <= {t:.6g}" if t > -np.inf else f"{name}, goes on"
            for k, (name, t) in enumerate(at)
            if k in self.asked
        )
        promise = self.certificate.promise() if self.certificate else "no certificate"
        return f"Cascade({rules}, else {PERSON}; {promise})"


def _are_classes(own: Any) -> bool:
    if own is None or isinstance(own, int):
        return own is None or (type(own) is int and own > 1)
    named = isinstance(own, tuple) and all(isinstance(one, str) for one in own)
    return named and len(set(own)) == len(own) > 1


def as_costs(costs: Any, stages: int) -> tuple[float, ...]:
    """Check costs: one for each model, one for a person, none below the one before."""
    several = isinstance(costs, (list, tuple)) or getattr(costs, "ndim", 0) == 1
    given = list(costs) if several else [costs]
    real = [cost for cost in given if _is_cost(cost)]
    if len(given) != stages + 1 or len(real) != len(given):
        message = (
            f"expected {stages + 1} costs of 0 or more, one for each of {stages} "
            f"{'model' if stages == 1 else 'models'} and the last for a person, got "
            f"{', '.join(map(str, given))}."
        )
        raise InputError(message)
    out = tuple(float(cost) for cost in given)
    if list(out) != sorted(out):
        shown = ", ".join(f"{cost:g}" for cost in out)
        message = (
            f"expected stages in the order of their costs, got {shown}, which falls. "
            "Put the cheapest first."
        )
        raise InputError(message)
    return out


def _is_threshold(value: Any) -> bool:
    real = isinstance(value, (float, np.floating)) and not np.isnan(value)
    return real or (isinstance(value, int) and type(value) is int and abs(value) < MOST)


def _is_cost(cost: Any) -> bool:
    if not isinstance(cost, Real) or isinstance(cost, bool):
        return False
    try:
        return 0 <= float(cost) <= MOST
    except OverflowError:  # a whole number beyond any float
        return False


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and bool(name.strip()) and name != PERSON
