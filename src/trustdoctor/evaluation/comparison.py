"""Which score to use: everything that the information at hand allows, judged fairly.

Rows are permuted and split three ways: some fit, some choose settings, some judge what
was fitted. A candidate that fits and chooses nothing is judged on all rows. Each is
judged against softmax response on the same rows, with intervals corrected for how many
there are; of those that are clearly better, the one that was best on the choosing rows
is recommended.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor import envelope
from trustdoctor.arrays import Array, as_scores
from trustdoctor.atomic import write_text
from trustdoctor.errors import InputError, MissingPackageError, UndefinedMetricError
from trustdoctor.evaluation.duplicates import repeated_rows
from trustdoctor.evaluation.evaluations import note_of
from trustdoctor.evaluation.label_checks import check_labels, reversed_line
from trustdoctor.metrics import (
    Estimate,
    Points,
    Ranking,
    area_interval,
    auroc,
    auroc_difference,
    check_confidence,
    counts,
    frr_difference,
    frr_parts,
)
from trustdoctor.predictions import Answers, Opinions, Predictions, require_predictions
from trustdoctor.scores import (
    BASELINE,
    SCORES,
    FittedScore,
    Score,
    available_scores,
    default_score,
    find_score,
    same_ranking,
    score_all,
)


@dataclass(frozen=True)
class Judged:
    """One candidate.

    Attributes
    ----------
    name : str
    n, n_errors : int
        Rows that judged it, and errors among them.
    needs : str
        What it is made of: "probs", "logits", "labels", "features" or "views".
    passes : float
        Of the model per row.
    setting : str
        What the choosing rows chose for it.
    chosen_auroc : float
        On the choosing rows.
    auroc, frr_at_trr : Estimate
        On the rows that judged it.
    auroc_gain, frr_change : Estimate
        Against softmax response on the same rows, paired, corrected for the number of
        candidates. A gain in AUROC is good, a rise of FRR is not.
    better : bool
        Whether its gain in AUROC is clear.
    """

    name: str
    n: int
    n_errors: int
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
    n, n_errors : int
        Rows, and errors among them. All of them judge what fits nothing.
    n_fit, n_chosen, n_judged : int
        Rows that fitted, chose settings, and judged what was fitted.
    candidates : tuple of Judged
        Softmax response first, then by their gain in AUROC.
    recommended : str or None
        The candidate that was best on the choosing rows among those that are clearly
        better than softmax response; None where none is.
    confidence : float
        Of all comparisons of AUROC together, and of all of FRR.
    skipped : tuple of str
        Scores that could not be made of these rows, and why.
    odd_labels : tuple of str
        Why nothing may rest on these labels; nothing is recommended then.
    warnings : tuple of str
        What else to check of these rows.
    scores : dict of str to Score
        The candidates themselves, fitted and at the setting that was chosen; views and
        scores of the user's own are not among them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 2 * rng.normal(size=(3000, 3))
    >>> labels = np.where(rng.random(3000) < 0.8, logits.argmax(1), 0)
    >>> found = compare(Predictions.from_logits(logits, labels))
    >>> found.recommended, type(found.score).__name__
    ('rel_u', 'RelU')
    """

    n: int
    n_errors: int
    n_fit: int
    n_chosen: int
    n_judged: int
    candidates: tuple[Judged, ...]
    recommended: str | None
    confidence: float
    points: Points
    skipped: tuple[str, ...] = ()
    odd_labels: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    scores: dict[str, Score] = field(default_factory=dict, repr=False, compare=False)

    @property
    def score(self) -> Score:
        """The recommended score, to calibrate on other rows; softmax response if none.

        It is fitted on the rows that fitted, at the setting that was chosen.
        """
        name = self.recommended or self.baseline
        if name not in self.scores:
            message = (
                f"{name} is not a score of predictions. Calibrate it with "
                "SecondOpinion.calibrate (views), or with calibrate_scores (yours)."
            )
            raise InputError(message)
        return self.scores[name]

    @property
    def baseline(self) -> str:
        """What the others are judged against: softmax response, or what was given."""
        return self.candidates[0].name

    def judged_rows(self) -> str:
        """Say which rows judge: fitted scores have fewer, and another AUROC for it."""
        told = f"{self.n:,} rows, {self.n_errors:,} errors."
        if all(c.n == self.n for c in self.candidates):
            return told
        return (
            f"{told} Scores that are not fitted are judged on all of them. For the "
            f"fitted ones {self.n_fit:,} rows fitted them, {self.n_chosen:,} chose "
            f"their settings, and {self.n_judged:,} judge."
        )

    def verdict(self) -> str:
        """Say which score to use, in words; none where the labels are odd."""
        if self.odd_labels:
            odd = " ".join(self.odd_labels)
            return f"The labels are odd, so no score is recommended. {odd}"
        if len(self.candidates) == 1:
            return (
                f"These predictions allow one score, {self.baseline}: there is nothing "
                f"to compare. Use {self.baseline}."
            )
        named = "softmax response" if self.baseline == BASELINE else self.baseline
        if self.recommended is None:
            return (
                f"None is better than {named} here: on {self.n:,} "
                f"rows with {self.n_errors:,} errors, none of "
                f"{len(self.candidates) - 1} candidates has a gain in AUROC that is "
                f"clear at {self.confidence:.0%}. Use {self.baseline}."
            )
        best = next(c for c in self.candidates if c.name == self.recommended)
        gain = best.auroc_gain.percent(sign=True)
        change = best.frr_change.percent(sign=True)
        passes = f"{best.passes:g} passes" if best.passes != 1 else "one pass"
        at = f"FRR@{self.points.trr * 100:g}TRR"
        return (
            f"Use {best.name} ({passes} per row): AUROC {gain}, {at} {change} points "
            f"against {named} on {best.n:,} rows that neither fitted it nor "
            "chose its settings."
        )

    def to_json(self, path: str | None = None) -> str:
        """Return JSON, and write it to `path` if one is given."""
        content = asdict(replace(self, scores={}))
        del content["scores"]
        text = envelope.dump("comparison", 1, content)
        if path is not None:
            write_text(path, text)
        return text

    def to_html(self, path: str | Path | None = None, **about: Any) -> str | Path:
        """Write one self-contained page and return its path; without one, the page.

        Parameters
        ----------
        path : str or Path, optional
        about
            Of the rows: `source` (a name), `file` (a path) and `options` for commands,
            `digest`.
        """
        from trustdoctor.report import render_comparison

        page = render_comparison(self, **about)
        if path is None:
            return page
        write_text(path, page)
        return Path(path)

    def __repr__(self) -> str:
        """Show the candidates as a small table, with the rows that judged each."""
        wide = max(16, *(len(c.name) + 1 for c in self.candidates))
        against = f"against {self.baseline}"
        head = f"{'score':<{wide}}{'passes':>7}{'AUROC':>8}{against:>24}{'on rows':>10}"
        lines = [self.judged_rows(), head]
        for c in self.candidates:
            area = (c.auroc.value or 0) * 100
            gain = "" if c.name == self.baseline else c.auroc_gain.percent(sign=True)
            line = f"{c.name:<{wide}}{c.passes:>7g}{area:>8.2f}{gain:>24}{c.n:>10,}"
            lines.append(line)
        return "\n".join([*lines, self.verdict()])


def compare(  # noqa: PLR0913 - options, by keyword only
    predictions: Predictions,
    *,
    train: Predictions | None = None,
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
        With labels; rows that the model was not trained on. With features,
        Mahalanobis, kNN, trust score, SIRC and ViM come in.
    train : Predictions, optional
        Training rows with features, to fit those on; without it they are fitted on
        the third of the rows that fits.
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
        Its `score` is ready for `calibrate`, on rows that had no part here.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(3000, 4)) * 2
    >>> labels = np.where(rng.random(3000) < 0.8, z.argmax(1), rng.integers(0, 4, 3000))
    >>> found = compare(Predictions.from_logits(z, labels))
    >>> found.n_fit, found.n_judged, found.candidates[0].name
    (1000, 1000, 'msp')
    """
    _check(predictions, train, opinions, confidence, seed)
    labelled = predictions.labelled("compare")
    report, copies = check_labels(predictions), repeated_rows(predictions)
    predictions = labelled
    base = _baseline(predictions)
    wrong = predictions.errors
    order = np.random.default_rng(seed).permutation(len(wrong))
    fit, chosen, judged = np.array_split(order, 3)
    thirds = {"fit": fit, "choose": chosen, "judge": judged}
    _check_thirds(wrong, thirds, report.odd)
    world = World(predictions, fit, train, opinions, extra or {}, base)
    candidates = list(world.candidates())
    _check_names([c.name for c in candidates])
    settled = [_settle(c, wrong, chosen) for c in candidates]
    at = points or Points()
    judge = _Judge(wrong, judged, at, confidence, max(1, len(settled) - 1))
    found = judge.all(settled, base=base)
    found.sort(key=lambda c: (c.name != base, -(c.auroc_gain.value or 0)))
    better = [c for c in found if c.better]
    first = settled[0].trial.ranking(wrong, order)
    turned = reversed_line(first.counts, base)
    odd = (*report.odd, *((turned,) if turned else ()))
    best = max(better, key=lambda c: c.chosen_auroc, default=None)
    return Comparison(
        n=len(wrong),
        n_errors=int(wrong.sum()),
        n_fit=len(fit),
        n_chosen=len(chosen),
        n_judged=len(judged),
        candidates=tuple(found),
        recommended=None if best is None or odd else best.name,
        confidence=confidence,
        points=at,
        skipped=tuple(world.skipped),
        odd_labels=odd,
        warnings=(*report.notes, *copies),
        scores={s.name: s.trial.score for s in settled if s.trial.score is not None},
    )


def _baseline(predictions: Predictions) -> str:
    """Return softmax response where there is a softmax; else what was given."""
    softmax = BASELINE in available_scores(predictions)
    return BASELINE if softmax else default_score(predictions)


def _check(
    predictions: Any, train: Any, opinions: Any, confidence: Any, seed: Any
) -> None:
    """Refuse what cannot be compared."""
    require_predictions(predictions)
    check_confidence(confidence)
    if not (type(seed) is int and seed >= 0):
        message = f"expected a seed of 0 or more, got {seed!r}."
        raise InputError(message)
    if train is not None and not (
        isinstance(train, Predictions) and train.features is not None
    ):
        message = "expected train as Predictions of training rows, with features."
        raise InputError(message)
    if opinions is not None:
        _check_opinions(predictions, opinions)


def _check_thirds(
    wrong: Array, thirds: dict[str, Array], odd_labels: tuple[str, ...]
) -> None:
    for what, rows in thirds.items():
        n, errors = len(rows), int(wrong[rows].sum())
        if not 0 < errors < n:
            message = (
                f"expected right and wrong rows in each third, got {errors} wrong of "
                f"{n} in the one that is to {what} ({int(wrong.sum()):,} of "
                f"{len(wrong):,} in all). "
                f"{' '.join(odd_labels) or 'Give it more rows.'}"
            )
            raise UndefinedMetricError(message)


def _check_names(names: list[str]) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        message = f"the name {twice[0]!r} is taken by a score. Give yours another."
        raise InputError(message)


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
        others = [name for name in available_scores(p) if name != self.base]
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
        if self.train is not None and not entry.learns_from_errors:
            rows = self.train
        by_features = "features" in (*entry.needs, *entry.fit_options[0].values())
        if by_features and self.predictions.features is None:
            return
        if entry.needs & {"probs", "logits"} and isinstance(self.predictions, Answers):
            return
        trials, why = {}, ""
        for options in entry.fit_options:
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
            of = (
                "labels" if entry.learns_from_errors else ", ".join(sorted(score.needs))
            )
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


@dataclass(frozen=True, eq=False)
class _Settled:
    candidate: Candidate
    setting: str
    chosen_auroc: float

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def trial(self) -> Trial:
        return self.candidate.trials[self.setting]


def _settle(candidate: Candidate, wrong: Array, rows: Array) -> _Settled:
    """Choose a candidate's setting by AUROC."""
    areas = {
        setting: auroc(trial.doubts[rows], wrong[rows])
        for setting, trial in candidate.trials.items()
    }
    best = max(areas, key=lambda setting: areas[setting])
    return _Settled(candidate, best, areas[best])


@dataclass(frozen=True, eq=False)
class _Judge:
    """Judges candidates against softmax response on the same rows.

    Attributes
    ----------
    wrong : bool array (n,)
    kept : integer array
        The rows that neither fitted nor chose.
    at : Points
    confidence : float
    others : int
        How many candidates there are, without softmax response.
    """

    wrong: Array
    kept: Array
    at: Points
    confidence: float
    others: int

    @property
    def corrected(self) -> float:
        """The confidence of each comparison, so that all hold together."""
        return 1 - (1 - self.confidence) / self.others

    def all(self, settled: list[_Settled], *, base: str) -> list[Judged]:
        """Judge each on all rows; what was fitted or chosen, on those kept."""
        (plain,) = (s.trial for s in settled if s.name == base)
        every = np.arange(len(self.wrong))
        out = []
        for fitted, rows in ((False, every), (True, self.kept)):
            some = [s for s in settled if s.candidate.fitted is fitted]
            if some:
                baseline = plain.ranking(self.wrong, rows)
                out += [self._judge(s, rows, baseline, base) for s in some]
        return out

    def _judge(self, s: _Settled, rows: Array, base: Ranking, name: str) -> Judged:
        """Judge one on some rows."""
        own = s.trial.ranking(self.wrong, rows)
        note = note_of(own.counts)
        area = area_interval("auroc", own.counts, confidence=self.confidence)
        gain = auroc_difference(own, base, confidence=self.corrected)
        alone = own.arms(trr=self.at.trr, confidence=self.confidence)
        first, second = (
            frr_parts(ranking, trr=self.at.trr, confidence=self.corrected)
            for ranking in (own, base)
        )
        change = frr_difference(first, second, own.wrong)
        return Judged(
            name=s.name,
            n=len(rows),
            n_errors=int(own.wrong.sum()),
            needs=s.candidate.needs,
            passes=s.candidate.passes,
            setting=s.setting,
            chosen_auroc=s.chosen_auroc,
            auroc=Estimate(float(counts.auroc(own.counts)), *area, note),
            frr_at_trr=Estimate(alone.value, *alone.interval, note or alone.note),
            auroc_gain=replace(gain, note=note),
            frr_change=replace(change, note=note or change.note),
            better=s.name != name and (gain.low or 0.0) > 0,
        )
