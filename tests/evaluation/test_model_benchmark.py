"""Scores over several models: ranks, records and intervals against plain code."""

import numpy as np
import pytest
from scipy import stats

import trustdoctor as td
from trustdoctor.errors import InputError, UndefinedMetricError
from trustdoctor.report import plot_benchmark


def answers(seed, noise=2.0, n=800, classes=5):
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(n, classes))
    labels = (z + noise * rng.normal(size=z.shape)).argmax(1)
    return td.Predictions.from_logits(z, labels)


MODELS = {"a": answers(1), "b": answers(2, 3.0), "c": answers(3, 1.0, n=600)}
SCORES = ["alpha", "msp", "energy", "rel_u"]
TWINS = ("beta", "msp")  # one is a rising function of the other


def rounded(predictions):
    """The same answers with logits of one digit."""
    return td.Predictions.from_logits(predictions.logits.round(1), predictions.labels)


@pytest.fixture(scope="module")
def result():
    return td.benchmark(MODELS, scores=SCORES, splits=4, seed=7)


def test_values_are_means_over_the_splits(result):
    generator = np.random.default_rng(7)
    p, values = MODELS["a"], {"alpha": [], "rel_u": []}
    for _ in range(4):
        fit, judge = np.split(generator.permutation(800), [400])
        fitted = td.RelU.fit(p[fit])
        for name, doubts in (
            ("alpha", td.alpha(p)[judge]),
            ("rel_u", fitted(p[judge])),
        ):
            values[name].append(td.frr_at_trr(doubts, p.errors[judge]))
    for name, expected in values.items():
        measured = result.models["a"][name].values["frr_at_trr"]
        assert measured == pytest.approx(np.mean(expected))


def test_ranks_are_those_of_scipy(result):
    for results in result.models.values():
        areas = [round(score.values["auroc"], 9) for score in results.values()]
        expected = stats.rankdata([-area for area in areas])
        assert [score.rank for score in results.values()] == expected.tolist()
    ranks = [result.mean_rank(name) for name in result.scores]
    assert ranks == sorted(ranks)


def test_scores_that_rank_alike_share_their_rank():
    """Rounding splits ties of beta, or of msp, and must not tell them apart."""
    rng = np.random.default_rng(0)
    votes = rng.integers(0, 6, (3000, 10)) + 6 * np.eye(10)[rng.integers(0, 10, 3000)]
    shares = votes / votes.sum(1, keepdims=True)
    right = rng.random(3000) < shares.max(1)
    labels = np.where(right, shares.argmax(1), 0)
    forest = td.Predictions.from_probs(shares, labels)
    areas = {name: td.auroc(td.SCORES[name](forest), forest.errors) for name in TWINS}
    assert abs(areas["beta"] - areas["msp"]) > 1e-6  # the test is of something
    models = {"forest": forest, "net": MODELS["a"], "rounded": rounded(MODELS["b"])}
    result = td.benchmark(models, scores=["alpha", *TWINS, "entropy"], splits=3)
    for results in result.models.values():
        beta, msp = (results[name] for name in TWINS)
        assert beta.rank == msp.rank
        assert beta.values == pytest.approx(msp.values, rel=1e-12)
        assert set(beta.differences.values()) == {td.Estimate(0.0, 0.0, 0.0)}
        # Two scores that tie share the mean of two neighbouring places.
        assert sorted(r.rank for r in results.values()).count(beta.rank) >= 2
    assert result.mean_rank("beta") == result.mean_rank("msp")


def test_intervals_over_models_are_students(result):
    gaps = [
        results["energy"].values["aurc"] - results["msp"].values["aurc"]
        for results in result.models.values()
    ]
    estimate = result.mean_difference("energy", "aurc")
    low, high = stats.t.interval(0.95, 2, np.mean(gaps), stats.sem(gaps))
    assert (estimate.low, estimate.high) == pytest.approx((low, high))


def test_wins_are_paired_intervals_that_exclude_zero(result):
    wins = ties = losses = 0
    for p in MODELS.values():
        gap = td.evaluate(p, scores=["energy", "msp"]).difference("energy", "msp")
        wins, losses = wins + (gap.low > 0), losses + (gap.high < 0)
        ties += gap.low <= 0 <= gap.high
    assert result.record("energy") == (wins, ties, losses)
    assert losses > 0  # the test is of something
    assert result.record("energy", "frr_at_trr")[0] == 0


def test_it_is_repeatable_and_shows_its_protocol(result):
    repeated = td.benchmark(MODELS, scores=SCORES, splits=4, seed=7)
    assert repeated == result
    assert td.benchmark(MODELS, scores=SCORES, splits=4, seed=8) != result
    text = repr(result)
    assert "3 models, 4 random splits (seed 7): 50% of the rows fit" in text
    assert len(text.splitlines()) <= 10
    frame = result.to_frame()
    assert frame.shape[0] == 3 * 4
    assert {"auroc", "auroc_difference_low", "rank"} <= set(frame.columns)
    assert result.model_table("aurc").to_frame().columns == ["score", "a", "b", "c"]
    assert r"\begin{tabular}" in result.to_latex()
    assert len(plot_benchmark(result).axes[0].get_xticks()) == 3


def test_all_scores_are_those_that_every_model_allows():
    probable = td.Predictions.from_probs(
        np.exp(MODELS["c"].logits) / np.exp(MODELS["c"].logits).sum(1, keepdims=True),
        MODELS["c"].labels,
    )
    result = td.benchmark({"a": MODELS["a"], "c": probable}, splits=1)
    assert "energy" not in result.scores
    assert {"alpha", "tuned", "fusion", "rel_u"} <= set(result.scores)
    assert any(line.startswith("knn needs features") for line in result.skipped)


def test_settings_have_names_of_ones_own():
    scores = {"cold": "alpha:temperature=0.5", "warm": "alpha:temperature=2"}
    result = td.benchmark(MODELS, scores=scores, splits=1)
    assert set(result.scores) == {"cold", "warm", "msp"}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"models": {}}, "models as a dict"),
        ({"models": [MODELS["a"]]}, "models as a dict"),
        ({"models": {"a": MODELS["a"].logits}}, "got ndarray"),
        ({"scores": "alpha"}, "list of scores or 'all'"),
        ({"scores": ["knn"]}, "knn needs features of every model"),
        ({"scores": ["beauty"]}, "expected a score out of"),
        ({"splits": 0}, "1 split or more"),
        ({"fit_share": 1}, "fit_share between 0 and 1"),
        ({"seed": -1}, "seed of 0 or more"),
        ({"confidence": 2}, "confidence"),
        ({"baseline": "rel_u"}, "must be fitted first"),
    ],
)
def test_invalid_options_are_refused_in_one_line(options, match):
    arguments = {"models": MODELS, "scores": ["alpha"], "splits": 1} | options
    with pytest.raises(InputError, match=match) as refusal:
        td.benchmark(arguments.pop("models"), **arguments)
    assert "\n" not in str(refusal.value)


def test_rows_without_an_error_are_refused():
    z = MODELS["a"].logits
    right = td.Predictions.from_logits(z, z.argmax(1))
    with pytest.raises(UndefinedMetricError, match="right and wrong rows in each part"):
        td.benchmark({"right": right}, scores=["alpha"])


def with_features(seed, n=600, classes=4):
    """Rows of a small network with features, and 150 that belong to no class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    features = 2 * np.eye(classes)[labels] + rng.normal(size=(n, classes))
    inside = td.Predictions.from_logits(2 * features, labels, features=features)
    alien = 4 + rng.normal(size=(150, classes))
    return inside, td.Predictions.from_logits(2 * alien, features=alien)


def test_rows_of_no_class_are_judged_and_not_learnt_from():
    pairs = [with_features(seed) for seed in (0, 1)]
    models = {name: p.with_outside(o) for name, (p, o) in zip("ab", pairs, strict=True)}
    result = td.benchmark(models, splits=2, seed=3)
    assert {"mahalanobis", "trust_score", "knn", "sirc", "rel_u"} <= set(result.scores)
    assert result.rows == {
        name: (750, int(p.errors.sum())) for name, p in models.items()
    }
    generator = np.random.default_rng(3)
    p, values = models["a"], {"mahalanobis": [], "trust_score": []}
    for _ in range(2):
        fit, judge = np.split(generator.permutation(750), [375])
        assert p[fit].outside.any()
        for name, measured in values.items():
            fitted = td.SCORES[name].fit(p[fit[~p.outside[fit]]])
            measured.append(td.auroc(fitted(p[judge]), p.errors[judge]))
    for name, measured in values.items():
        assert result.models["a"][name].values["auroc"] == pytest.approx(
            np.mean(measured)
        )
        assert np.mean(measured) > 0.7


@pytest.mark.parametrize("name", ["mahalanobis", "trust_score"])
def test_scores_of_classes_ignore_rows_of_no_class(name):
    inside, outside = with_features(2)
    mixed = inside.with_outside(outside)
    alone, among = (td.SCORES[name].fit(rows) for rows in (inside, mixed))
    assert among.digest == alone.digest
    assert np.array_equal(among(mixed), alone(mixed))
