"""What `compare` judges: every score that the information at hand allows."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, as_scores
from trustdoctor.errors import InputError, MissingPackageError
from trustdoctor.metrics import Ranking
from trustdoctor.predictions import Answers, Opinions, Predictions
from trustdoctor.scores import (
    SCORES,
    FittedScore,
    Score,
    allowed_scores,
    find_score,
    same_ranking,
    score_all,
)


@dataclass(frozen=True)
class Trial:
    """A score at one setting, and the doubts that it has about all rows."""

    doubts: Array = field(repr=False)
    score: Score | None = None

    def ranking(self, wrong: Array, rows: Array) -> Ranking:
        """Put some of the rows in order."""
        rounding = 0.0 if self.score is None else self.score.rounding
        return Ranking(self.doubts[rows], wrong[rows], rounding)


@dataclass(frozen=True)
class Candidate:
    """A score with all its settings.

    Attributes
    ----------
    name : str
    needs : str
        What it is made of, in words.
    passes : float
        Of the model per row.
    trials : dict of str to Trial
        By the setting, in words.
    fitted : bool
        Whether it learned from rows, or chooses among settings.
    """

    name: str
    needs: str
    passes: float
    trials: dict[str, Trial]
    fitted: bool = False


@dataclass(frozen=True, eq=False)
class World:
    """All that is known of the rows.

    Attributes
    ----------
    predictions : Predictions
    fit : integer array
        The rows that scores are fitted on.
    train : Predictions or None
        Training rows, for scores that do not learn from errors.
    opinions : Opinions or None
    extra : dict of str to (scores, passes)
    base : str
        What the others are judged against; scores that rank as it does are left out.
    skipped : list of str
        What these rows do not allow, and why.
    """

    predictions: Predictions
    fit: Array
    train: Predictions | None
    opinions: Opinions | None
    extra: dict[str, tuple[Any, float]]
    base: str
    skipped: list[str] = field(default_factory=list)

    def candidates(self) -> Iterator[Candidate]:
        """Yield every score of the registry, the views and the user's own."""
        p = self.predictions
        names: list[str] = []
        others = [name for name in allowed_scores(p) if name != self.base]
        for name in (self.base, *others):
            own = find_score(name)
            alike = [one for one in names if same_ranking(own, find_score(one))]
            if alike:
                self.skipped.append(f"{name}: it ranks rows as {alike[0]} does.")
            else:
                names.append(name)
        for name, doubts in score_all(p, names).items():
            needs = ", ".join(sorted(SCORES[name].needs))
            yield _fixed(name, needs, 1, doubts, find_score(name))
        for name, entry in SCORES.items():
            if isinstance(entry, type):
                yield from self._fitted(name, entry)
        yield from self._views()
        yield from self._given()

    def _fitted(self, name: str, entry: type[FittedScore]) -> Iterator[Candidate]:
        """Fit a score at its settings, or note why these rows do not allow it."""
        rows = self.predictions[self.fit]
        if self.train is not None and not entry.from_errors:
            rows = self.train
        by_features = "features" in (*entry.needs, *entry.settings[0].values())
        if by_features and self.predictions.features is None:
            return
        if entry.needs & {"probs", "logits"} and isinstance(self.predictions, Answers):
            return
        trials, why = {}, ""
        for options in entry.settings:
            try:
                score = entry.fit(rows, **options)
                trials[_words(options)] = Trial(
                    as_scores(score(self.predictions)), score
                )
            except (InputError, MissingPackageError, np.linalg.LinAlgError) as error:
                why = why or str(error)
        base = find_score(self.base)
        if all(t.score and same_ranking(t.score, base) for t in trials.values()):
            why = why or f"the rows that fit found nothing better than {self.base}."
            trials = {}
        if trials:
            of = "labels" if entry.from_errors else ", ".join(sorted(score.needs))
            yield Candidate(name, of, 1, trials, fitted=True)
        else:
            self.skipped.append(f"{name}: {why}")

    def _views(self) -> Iterator[Candidate]:
        if self.opinions is None:
            return
        doubts = self.opinions.doubts
        passes = doubts.shape[1]
        yield _fixed("second opinion", "views", passes, doubts[:, -1])
        if passes > 2:
            yield _fixed("first view", "views", 2, doubts[:, 1])

    def _given(self) -> Iterator[Candidate]:
        rows = len(self.predictions)
        for name, given in self.extra.items():
            if not (isinstance(given, tuple) and len(given) == 2):
                message = f"expected (scores, passes) for {name!r}, got one of them."
                raise InputError(message)
            own, passes = as_scores(given[0]), given[1]
            cost = isinstance(passes, (int, float)) and 0 <= passes < np.inf
            if len(own) != rows or not cost:
                message = (
                    f"expected {rows} scores and a number of passes for {name!r}, "
                    f"got {len(own)} and {passes!r}."
                )
                raise InputError(message)
            yield _fixed(name, "given", float(passes), own)


def _words(options: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, (int, float)) else f"{name} {value}"
        for name, value in options.items()
    )


def _fixed(
    name: str, needs: str, passes: float, doubts: Any, score: Score | None = None
) -> Candidate:
    return Candidate(name, needs, passes, {"": Trial(as_scores(doubts), score)})
