"""Which score to use: every score that the information at hand allows, compared fairly.

Rows are permuted and split into thirds: one fits scores, one selects their settings,
one tests what was fitted. A candidate that is not fitted is tested on all rows. Each is
compared with softmax response on the same rows, with intervals corrected for how many
there are; of those that are clearly better, the one that was best on the selection
rows is recommended. That no row both selects and tests keeps the test unbiased.
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
from trustdoctor.evaluation.label_checks import check_labels, reversed_note
from trustdoctor.metrics import (
    Estimate,
    Points,
    Ranking,
    ResultTable,
    Tabular,
    area_interval,
    auroc,
    auroc_difference,
    check_confidence,
    few_note,
    frr_difference,
    paired_frr,
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

SHOWN_CANDIDATES = 6
"""Candidates in a printed comparison: it is to stay within ten lines."""


@dataclass(frozen=True)
class CandidateResult:
    """How one candidate did on the rows that test it.

    Attributes
    ----------
    name : str
    n, n_errors : int
        Rows that test it, and errors among them.
    needs : str
        What it is computed from: "probs", "logits", "labels", "features" or "views".
    passes : float
        Of the model per row.
    setting : str
        The best one on the selection rows.
    selection_auroc : float
        On the selection rows.
    auroc, frr_at_trr : Estimate
        On the rows that test it.
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
    selection_auroc: float
    auroc: Estimate
    frr_at_trr: Estimate
    auroc_gain: Estimate
    frr_change: Estimate
    better: bool


@dataclass(frozen=True, repr=False)
class Comparison(Tabular):
    """Every candidate score against softmax response on the same rows.

    Attributes
    ----------
    n, n_errors : int
        Rows, and errors among them. All of them test what is not fitted.
    n_fit, n_select, n_test : int
        Rows that fit scores, select settings, and test what was fitted.
    candidates : tuple of CandidateResult
        Softmax response first, then by their gain in AUROC.
    recommended : str or None
        The candidate that was best on the selection rows among those that are clearly
        better than softmax response; None if there is none.
    confidence : float
        Of all comparisons of AUROC together, and of all of FRR.
    skipped : tuple of str
        Scores that these rows do not allow, and why.
    odd_labels : tuple of str
        Why nothing may rest on these labels; if there is a reason, nothing is
        recommended.
    warnings : tuple of str
        What else to check of these rows.
    scores : dict of str to Score
        The candidates themselves, fitted and at the selected setting; views and the
        user's own scores are not among them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 2 * rng.normal(size=(3000, 3))
    >>> labels = np.where(rng.random(3000) < 0.8, logits.argmax(1), 0)
    >>> comparison = compare(Predictions.from_logits(logits, labels))
    >>> comparison.recommended, type(comparison.score).__name__
    ('rel_u', 'RelU')
    """

    n: int
    n_errors: int
    n_fit: int
    n_select: int
    n_test: int
    candidates: tuple[CandidateResult, ...]
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

        It is fitted, and at the selected setting.
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
        """What the others are compared with: msp, or the score of answers."""
        return self.candidates[0].name

    def rows_sentence(self) -> str:
        """Return which rows test: fitted scores have fewer, and so another AUROC."""
        rows = f"{self.n:,} rows, {self.n_errors:,} errors."
        if all(c.n == self.n for c in self.candidates):
            return rows
        return (
            f"{rows} Scores that are not fitted are tested on all of them. For the "
            f"fitted ones {self.n_fit:,} rows fit them, {self.n_select:,} select "
            f"their settings, and {self.n_test:,} test."
        )

    def verdict(self) -> str:
        """Return in words which score to use; none if the labels are odd."""
        if self.odd_labels:
            odd = " ".join(self.odd_labels)
            return f"The labels are odd, so no score is recommended. {odd}"
        if len(self.candidates) == 1:
            return (
                f"These predictions allow one score, {self.baseline}: there is nothing "
                f"to compare. Use {self.baseline}."
            )
        baseline = "softmax response" if self.baseline == BASELINE else self.baseline
        if self.recommended is None:
            return (
                f"None is better than {baseline} here: on {self.n:,} "
                f"rows with {self.n_errors:,} errors, none of "
                f"{len(self.candidates) - 1} candidates has a gain in AUROC that is "
                f"clear at {self.confidence:.0%}. Use {self.baseline}."
            )
        best = next(c for c in self.candidates if c.name == self.recommended)
        gain = best.auroc_gain.percent(sign=True)
        change = best.frr_change.percent(sign=True)
        passes = f"{best.passes:g} passes" if best.passes != 1 else "one pass"
        frr = f"FRR@{self.points.trr * 100:g}TRR"
        return (
            f"Use {best.name} ({passes} per row): AUROC {gain}, {frr} {change} points "
            f"against {baseline} on {best.n:,} rows that neither fitted it nor "
            "chose its settings."
        )

    def to_json(self, path: str | None = None) -> str:
        """Return JSON, and write it to `path` if one is given."""
        content = asdict(replace(self, scores={}))
        del content["scores"]
        text = envelope.dump("comparison", 2, content)
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

    def table(self) -> ResultTable:
        """Return the candidates, what each gains, and the rows that test it."""
        against = f"against {self.baseline}"
        columns = {
            "score": "score",
            "passes": "passes",
            "auroc": "AUROC",
            "auroc_gain": f"AUROC {against}",
            "frr_change": f"FRR@{self.points.trr * 100:g}TRR {against}",
            "n": "on rows",
        }
        rows = []
        for c in self.candidates:
            is_baseline = c.name == self.baseline
            rows.append(
                {
                    "score": c.name,
                    "passes": c.passes,
                    "auroc": c.auroc,
                    "auroc_gain": None if is_baseline else c.auroc_gain,
                    "frr_change": None if is_baseline else c.frr_change,
                    "n": c.n,
                }
            )
        return ResultTable(columns, rows, frozenset({"auroc_gain", "frr_change"}))

    def __repr__(self) -> str:
        """Show the verdict and the best candidates, with the rows that test each."""
        table = self.table()
        shown = replace(table, rows=table.rows[:SHOWN_CANDIDATES])
        more = len(table.rows) - len(shown.rows)
        rest = [f"and {more} more: to_frame() has all"] if more > 0 else []
        return "\n".join([self.rows_sentence(), shown.to_text(), *rest, self.verdict()])


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
    """Compare every score that the information allows with softmax response.

    Parameters
    ----------
    predictions : Predictions
        With labels; rows that the model was not trained on. With features,
        Mahalanobis, kNN, trust score, SIRC and ViM come in.
    train : Predictions, optional
        Training rows with features, to fit those scores on; by default they are fitted
        on a third of the rows.
    opinions : Opinions, optional
        Those of `SecondOpinion` on the same rows.
    extra : dict of str to (scores, passes), optional
        Your own scores of the same rows, and how many passes of the model each takes.
    points : Points, optional
        Where FRR@TRR is taken.
    confidence : float
        That all intervals hold at once.
    seed : int
        Of the split.

    Returns
    -------
    Comparison
        Its `score` is ready for `calibrate`, on rows that were not used here.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(3000, 4)) * 2
    >>> labels = np.where(rng.random(3000) < 0.8, z.argmax(1), rng.integers(0, 4, 3000))
    >>> comparison = compare(Predictions.from_logits(z, labels))
    >>> comparison.n_fit, comparison.n_test, comparison.candidates[0].name
    (1000, 1000, 'msp')
    """
    _check_options(predictions, train, opinions, confidence, seed)
    labelled = predictions.labelled("compare")
    labels, copies = check_labels(predictions), repeated_rows(predictions)
    baseline, errors = _baseline(labelled), labelled.errors
    # Files are often sorted by class, so thirds of them in order would differ.
    order = np.random.default_rng(seed).permutation(len(errors))
    fit, select, test = np.array_split(order, 3)
    _check_thirds(errors, {"fit": fit, "select": select, "test": test}, labels.odd)
    pool = _CandidatePool(labelled, fit, train, opinions, extra or {}, baseline)
    candidates = list(pool.candidates())
    _check_names([c.name for c in candidates])
    selected = [_select_setting(c, errors, select) for c in candidates]
    trial = _Trial(errors, test, points or Points(), confidence, len(selected) - 1)
    results = trial.run(selected, baseline=baseline)
    results.sort(key=lambda c: (c.name != baseline, -(c.auroc_gain.value or 0)))
    baseline_counts = selected[0].scored.ranking(errors, order).counts
    reversed_scores = reversed_note(baseline_counts, baseline)
    odd = (*labels.odd, *((reversed_scores,) if reversed_scores else ()))
    better = [c for c in results if c.better]
    # The test rows decide which are better, the selection rows which is best: the
    # largest of several gains on the test rows would be too large (winner's curse).
    best = max(better, key=lambda c: c.selection_auroc, default=None)
    return Comparison(
        n=len(errors),
        n_errors=int(errors.sum()),
        n_fit=len(fit),
        n_select=len(select),
        n_test=len(test),
        candidates=tuple(results),
        recommended=None if best is None or odd else best.name,
        confidence=confidence,
        points=trial.points,
        skipped=tuple(pool.skipped),
        odd_labels=odd,
        warnings=(*labels.notes, *copies),
        scores={s.name: s.scored.score for s in selected if s.scored.score is not None},
    )


def _baseline(predictions: Predictions) -> str:
    """Return softmax response if there is a softmax; else the answers' score."""
    softmax = BASELINE in available_scores(predictions)
    return BASELINE if softmax else default_score(predictions)


def _check_options(
    predictions: Any, train: Any, opinions: Any, confidence: Any, seed: Any
) -> None:
    """Refuse options that cannot be compared by."""
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
    errors: Array, thirds: dict[str, Array], odd_labels: tuple[str, ...]
) -> None:
    for purpose, rows in thirds.items():
        n, n_errors = len(rows), int(errors[rows].sum())
        if not 0 < n_errors < n:
            message = (
                f"expected right and wrong rows in each third, got {n_errors} wrong of "
                f"{n} in the one that is to {purpose} ({int(errors.sum()):,} of "
                f"{len(errors):,} in all). "
                f"{' '.join(odd_labels) or 'Give it more rows.'}"
            )
            raise UndefinedMetricError(message)


def _check_names(names: list[str]) -> None:
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        message = f"the name {repeated[0]!r} is taken by a score. Choose another."
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


@dataclass(frozen=True, eq=False)
class _ScoredRows:
    """A score at one setting, and the doubts that it has about all rows."""

    doubts: Array
    score: Score | None = None

    def ranking(self, errors: Array, rows: Array) -> Ranking:
        """Rank some of the rows."""
        rounding = 0.0 if self.score is None else self.score.rounding
        return Ranking(self.doubts[rows], errors[rows], rounding)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A score with all its settings.

    Attributes
    ----------
    name : str
    needs : str
        What it is computed from, in words.
    passes : float
        Of the model per row.
    settings : dict of str to _ScoredRows
        By the setting, in words.
    fitted : bool
        Whether it learned from rows, or selects among settings.
    """

    name: str
    needs: str
    passes: float
    settings: dict[str, _ScoredRows]
    fitted: bool = False


@dataclass(frozen=True, eq=False)
class _CandidatePool:
    """The rows, and every score that they allow.

    Attributes
    ----------
    predictions : Predictions
    fit : integer array
        The rows that scores are fitted on.
    train : Predictions or None
        Training rows, for scores that do not learn from errors.
    opinions : Opinions or None
    extra : dict of str to (scores, passes)
    baseline : str
        What the others are compared with; scores that rank as it does are left out.
    skipped : list of str
        Scores that these rows do not allow, and why.
    """

    predictions: Predictions
    fit: Array
    train: Predictions | None
    opinions: Opinions | None
    extra: dict[str, tuple[Any, float]]
    baseline: str
    skipped: list[str] = field(default_factory=list)

    def candidates(self) -> Iterator[_Candidate]:
        """Yield every score of the registry, the views and the user's own scores."""
        names: list[str] = []
        allowed = available_scores(self.predictions)
        for name in (self.baseline, *(n for n in allowed if n != self.baseline)):
            score = find_score(name)
            alike = [n for n in names if same_ranking(score, find_score(n))]
            if alike:
                self.skipped.append(f"{name}: it ranks rows as {alike[0]} does.")
            else:
                names.append(name)
        for name, doubts in score_all(self.predictions, names).items():
            needs = ", ".join(sorted(SCORES[name].needs))
            yield _single_setting(name, needs, 1, doubts, find_score(name))
        for name, entry in SCORES.items():
            if isinstance(entry, type):
                yield from self._fit_score(name, entry)
        yield from self._views()
        yield from self._extra_scores()

    def _fit_score(self, name: str, entry: type[FittedScore]) -> Iterator[_Candidate]:
        """Fit a score at its settings, or note why these rows do not allow it."""
        rows = self.predictions[self.fit]
        # Scores that learn from errors need rows the model was not trained on.
        if self.train is not None and not entry.learns_from_errors:
            rows = self.train
        uses_features = "features" in (*entry.needs, *entry.fit_options[0].values())
        if uses_features and self.predictions.features is None:
            return
        if entry.needs & {"probs", "logits"} and isinstance(self.predictions, Answers):
            return
        settings, reason = {}, ""
        for options in entry.fit_options:
            try:
                score = entry.fit(rows, **options)
                doubts = as_scores(score(self.predictions))
                settings[_setting_in_words(options)] = _ScoredRows(doubts, score)
            # A covariance may be singular at one setting and not at another.
            except (InputError, MissingPackageError, np.linalg.LinAlgError) as error:
                reason = reason or str(error)
        baseline = find_score(self.baseline)
        if all(s.score and same_ranking(s.score, baseline) for s in settings.values()):
            reason = (
                reason or f"nothing was better than {self.baseline} on the fit rows."
            )
            settings = {}
        if settings:
            needs = (
                "labels" if entry.learns_from_errors else ", ".join(sorted(score.needs))
            )
            yield _Candidate(name, needs, 1, settings, fitted=True)
        else:
            self.skipped.append(f"{name}: {reason}")

    def _views(self) -> Iterator[_Candidate]:
        if self.opinions is None:
            return
        doubts = self.opinions.doubts
        passes = doubts.shape[1]
        yield _single_setting("second opinion", "views", passes, doubts[:, -1])
        if passes > 2:
            yield _single_setting("first view", "views", 2, doubts[:, 1])

    def _extra_scores(self) -> Iterator[_Candidate]:
        n = len(self.predictions)
        for name, entry in self.extra.items():
            if not (isinstance(entry, tuple) and len(entry) == 2):
                message = f"expected (scores, passes) for {name!r}, got one of them."
                raise InputError(message)
            doubts, passes = as_scores(entry[0]), entry[1]
            valid = isinstance(passes, (int, float)) and 0 <= passes < np.inf
            if len(doubts) != n or not valid:
                message = (
                    f"expected {n} scores and a number of passes for {name!r}, "
                    f"got {len(doubts)} and {passes!r}."
                )
                raise InputError(message)
            yield _single_setting(name, "given", float(passes), doubts)


def _setting_in_words(options: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, (int, float)) else f"{name} {value}"
        for name, value in options.items()
    )


def _single_setting(
    name: str, needs: str, passes: float, doubts: Any, score: Score | None = None
) -> _Candidate:
    return _Candidate(name, needs, passes, {"": _ScoredRows(as_scores(doubts), score)})


@dataclass(frozen=True, eq=False)
class _Selected:
    """A candidate at its best setting."""

    candidate: _Candidate
    setting: str
    selection_auroc: float

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def scored(self) -> _ScoredRows:
        return self.candidate.settings[self.setting]


def _select_setting(candidate: _Candidate, errors: Array, rows: Array) -> _Selected:
    """Select a candidate's setting by AUROC."""
    areas = {
        setting: auroc(scored.doubts[rows], errors[rows])
        for setting, scored in candidate.settings.items()
    }
    best = max(areas, key=lambda setting: areas[setting])
    return _Selected(candidate, best, areas[best])


@dataclass(frozen=True, eq=False)
class _Trial:
    """A test of candidates against softmax response on the same rows.

    Attributes
    ----------
    errors : bool array (n,)
    test : integer array
        The rows that neither fit nor select.
    points : Points
    confidence : float
    n_others : int
        How many candidates there are, without softmax response.
    """

    errors: Array
    test: Array
    points: Points
    confidence: float
    n_others: int

    @property
    def corrected_confidence(self) -> float:
        """The confidence of each comparison at which all hold together.

        Bonferroni (Dunn, Multiple Comparisons Among Means, JASA, 1961): candidates are
        correlated in unknown ways, and it holds whatever their correlation.
        """
        return 1 - (1 - self.confidence) / max(1, self.n_others)

    def run(self, selected: list[_Selected], *, baseline: str) -> list[CandidateResult]:
        """Test each on all rows; what was fitted or selected, on the test rows."""
        (base,) = (s.scored for s in selected if s.name == baseline)
        results = []
        for fitted, rows in ((False, np.arange(len(self.errors))), (True, self.test)):
            group = [s for s in selected if s.candidate.fitted is fitted]
            if group:
                ranking = base.ranking(self.errors, rows)
                results += [self._result(s, rows, ranking, baseline) for s in group]
        return results

    def _result(
        self, selected: _Selected, rows: Array, base: Ranking, baseline: str
    ) -> CandidateResult:
        ranking = selected.scored.ranking(self.errors, rows)
        c = ranking.counts
        note = few_note(int(c.n_errors), int(c.n_correct))
        interval = area_interval("auroc", c, confidence=self.confidence)
        gain = auroc_difference(ranking, base, confidence=self.corrected_confidence)
        point = ranking.frr_point(trr=self.points.trr, confidence=self.confidence)
        frr, base_frr = (
            paired_frr(r, trr=self.points.trr, confidence=self.corrected_confidence)
            for r in (ranking, base)
        )
        change = frr_difference(frr, base_frr, ranking.wrong)
        return CandidateResult(
            name=selected.name,
            n=len(rows),
            n_errors=int(ranking.wrong.sum()),
            needs=selected.candidate.needs,
            passes=selected.candidate.passes,
            setting=selected.setting,
            selection_auroc=selected.selection_auroc,
            auroc=Estimate(auroc(c), *interval, note=note),
            frr_at_trr=Estimate(point.value, *point.interval, note=note or point.note),
            auroc_gain=replace(gain, note=note),
            frr_change=replace(change, note=note or change.note),
            better=selected.name != baseline and (gain.low or 0.0) > 0,
        )
