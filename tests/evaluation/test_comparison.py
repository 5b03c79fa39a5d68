"""The comparison finds real gains, and none where there are none."""

import json
import re

import numpy as np
import polars as pl
import pytest
from laws import tied
from typer.testing import CliRunner

import trustdoctor as td
from trustdoctor.cli import make_app
from trustdoctor.errors import InputError, UndefinedMetricError
from trustdoctor.evaluation import compare
from trustdoctor.evaluation.comparison import BASELINE
from trustdoctor.report import make_console, show_comparison


def rows(n, seed=0, classes=5, features=None):
    """Errors that the softmax foretells as well as anything can."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    right = rng.random(n) < 1 / (1 + np.exp(td.beta(z)))
    other = (z.argmax(1) + rng.integers(1, classes, n)) % classes
    labels = np.where(right, z.argmax(1), other)
    return td.Predictions.from_logits(z, labels, features=features)


@pytest.mark.soak
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(i, marks=pytest.mark.soak) for i in (1, 2, 3))]
)
def test_nothing_is_recommended_where_nothing_is_better(block):
    """A planted null: at most 5% of 200 runs, 50 of them here."""
    recommended = [
        compare(rows(900, 50 * block + i), seed=i).recommended for i in range(50)
    ]
    assert sum(name is not None for name in recommended) <= 5
    assert sum(name is not None for name in recommended) <= 0.05 * 50 + 3 * 1.54


def test_a_planted_gain_is_found():
    p = rows(3000)
    rng = np.random.default_rng(1)
    helpful = td.msp(p) + 2 * p.errors + rng.normal(size=len(p))
    comparison = compare(p, extra={"oracle": (helpful, 3.0)})
    assert comparison.recommended == "oracle"
    assert "Use oracle (3 passes per row)" in comparison.verdict()
    best = comparison.candidates[1]
    assert best.name == "oracle"
    assert best.better
    assert best.auroc_gain.low > 0
    assert comparison.candidates[0].name == BASELINE
    assert comparison.candidates[0].auroc_gain.value == 0
    content = json.loads(comparison.to_json())
    assert content["recommended"] == "oracle"


def by_name(comparison):
    return {c.name: c for c in comparison.candidates}


def test_scores_without_a_fit_are_judged_on_all_rows():
    p = rows(900)
    p = with_features(p, p.logits[:, :3])
    noise = np.random.default_rng(1).normal(size=900)
    comparison = compare(p, extra={"noise": (noise, 1.0)})
    candidates = by_name(comparison)
    third = comparison.n_test
    assert (comparison.n, third) == (900, 300)
    assert comparison.n_errors == p.errors.sum()
    for name, c in candidates.items():
        fitted = isinstance(td.SCORES.get(name), type)
        assert c.n == (third if fitted else 900)
        assert c.n_errors < p.errors.sum() if fitted else c.n_errors == p.errors.sum()
    assert {candidates[name].n for name in ("knn", "rel_u", "fusion")} == {third}
    doubts = {"gen": td.gen(p), "noise": noise, "msp": td.msp(p)}
    table = comparison.to_frame()
    shown = dict(zip(table["score"], table["n"], strict=True))
    assert shown == {name: c.n for name, c in candidates.items()}
    doubts |= {name: tied(doubts[name]) for name in ("gen", "msp")}
    for name, scores in doubts.items():
        judged = candidates[name]
        assert judged.auroc.value == td.auroc(scores, p.errors)
        assert (judged.auroc.low, judged.auroc.high) == td.delong(scores, p.errors)
        assert judged.frr_at_trr.value == td.frr_at_trr(scores, p.errors)
        gain = td.auroc(scores, p.errors) - td.auroc(doubts["msp"], p.errors)
        assert judged.auroc_gain.value == pytest.approx(gain, abs=1e-12)
    level = 1 - 0.05 / (len(candidates) - 1)
    ends = candidates["gen"].auroc_gain.low, candidates["gen"].auroc_gain.high
    pair = doubts["gen"], doubts["msp"]
    true = td.delong_difference(*pair, p.errors, confidence=level)
    assert ends == pytest.approx(true)


def test_fitted_scores_are_judged_on_unseen_rows():
    """With labels at random a score that had seen them would look good."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(600, 4))
    labels = np.where(rng.random(600) < 0.6, z.argmax(1), (z.argmax(1) + 1) % 4)
    comparison = compare(td.Predictions.from_logits(z, labels, features=z))
    judged = by_name(comparison)["fusion"]
    assert judged.n == comparison.n_test == 200
    assert judged.auroc.value < 0.65


def test_scores_that_rank_as_softmax_response_are_skipped():
    comparison = compare(rows(900))
    assert "beta" not in by_name(comparison)
    assert "beta: it ranks rows as msp does." in comparison.skipped
    base = comparison.candidates[0]
    for gain in (base.auroc_gain, base.frr_change):
        assert (gain.value, gain.low, gain.high) == (0, 0, 0)
    assert not base.better


def test_it_names_its_rows_as_the_command_line_does():
    comparison = compare(rows(900))
    console = make_console(quiet=False)
    with console.capture() as capture:
        show_comparison(console, comparison)
    first = " ".join(capture.get().split("\n\n")[0].split())
    text_lines = repr(comparison).splitlines()
    assert text_lines[0] == comparison.rows_sentence() == first
    assert "the fitted ones 300 rows fit them, 300 select" in first
    assert " ".join(text_lines[1].split()) == (
        "score passes AUROC AUROC against msp FRR@95TRR against msp on rows"
    )
    assert "on rows" in capture.get()


def test_a_confidence_that_is_not_a_softmax_is_not_called_msp():
    rng = np.random.default_rng(0)
    margins, correct = rng.normal(size=300), rng.random(300) < 0.8
    extra = {"mine": (rng.normal(size=300), 1.0)}
    comparison = compare(td.Predictions.from_confidence(margins, correct), extra=extra)
    console = make_console(quiet=False)
    with console.capture() as capture:
        show_comparison(console, comparison)
    for text in (capture.get(), repr(comparison), comparison.to_html()):
        assert not re.search("msp|softmax", text.split("<main>")[-1])
    assert "against confidence" in capture.get()
    assert "fitted" not in comparison.rows_sentence()  # nothing was


def test_few_errors_are_marked():
    p = rows(3000)
    wrong, right = np.flatnonzero(p.errors), np.flatnonzero(~p.errors)
    for n_errors in (19, 20):
        subset = p[np.concatenate([wrong[:n_errors], right[:600]])]
        gen = by_name(compare(subset))["gen"]
        for cell in (gen.auroc, gen.frr_at_trr, gen.auroc_gain, gen.frr_change):
            assert ("few errors" in cell.note) == (n_errors < 20)
            assert cell.low <= cell.value <= cell.high


def by_margin(n, seed):
    """Rows of whose errors, one in ten, the margin says more than the softmax does."""
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(n, 4))
    wrong = rng.random(n) < 1 / (1 + np.exp(-5 * (td.margin(z) + 0.26)))
    labels = np.where(wrong, (z.argmax(1) + 1) % 4, z.argmax(1))
    return td.Predictions.from_logits(z, labels)


@pytest.mark.soak
def test_a_true_gain_of_two_points_is_found_nearly_always():
    large_sample = by_margin(400_000, 99)
    assert large_sample.errors.mean() == pytest.approx(0.1, abs=0.002)
    true = td.auroc(td.margin(large_sample), large_sample.errors) - td.auroc(
        td.msp(large_sample), large_sample.errors
    )
    assert true == pytest.approx(0.02, abs=0.001)
    comparisons = [compare(by_margin(4000, i), seed=i) for i in range(15)]
    gains = [by_name(f)["margin"] for f in comparisons]
    assert sum(c.better for c in gains) >= 14
    named = ("margin", "fusion", "tuned")
    assert sum(f.recommended in named for f in comparisons) >= 14
    assert sum(c.auroc_gain.low <= true <= c.auroc_gain.high for c in gains) >= 14


def test_a_tuned_score_is_fitted_on_rows_that_do_not_judge_it():
    p = by_margin(3000, 0)
    comparison = compare(p)
    tuned, score = by_name(comparison)["tuned"], comparison.scores["tuned"]
    assert (tuned.n, tuned.passes, tuned.needs) == (comparison.n_test, 1, "labels")
    assert (score.n, score.n_candidates) == (comparison.n_fit, 59)
    fit = np.random.default_rng(0).permutation(3000)[:1000]
    assert score.digest == td.tune(p[fit]).digest
    assert by_name(comparison)["margin"].n == 3000


def test_where_tuning_finds_nothing_it_is_left_out():
    first_probs = np.random.default_rng(0).random(
        900
    )  # with two classes all scores rank alike
    p = td.Predictions.from_probs(
        np.stack([first_probs, 1 - first_probs], 1), first_probs > 0.3
    )
    comparison = compare(p)
    assert "tuned" not in by_name(comparison)
    reason = "tuned: nothing was better than msp on the fit rows."
    assert reason in comparison.skipped
    on_few_rows = compare(rows(900)[:60])
    (reason_skipped,) = (
        line for line in on_few_rows.skipped if line.startswith("tuned: ")
    )
    assert "needs 10 errors and 10 correct rows" in reason_skipped


def test_intervals_are_corrected_for_the_number_of_scores():
    p = rows(2000)
    without_noise = compare(p)
    rng = np.random.default_rng(0)
    noise = {f"noise {i}": (rng.normal(size=len(p)), 1.0) for i in range(20)}
    with_noise = compare(p, extra=noise)
    gains = [by_name(f)["gen"].auroc_gain for f in (without_noise, with_noise)]
    widths = [gain.high - gain.low for gain in gains]
    assert widths[1] > widths[0]


def with_features(p, features):
    return td.Predictions.from_logits(p.logits, p.labels, features=features)


def test_features_and_views_bring_their_scores(bundled_opinions):
    p = rows(900)
    p = with_features(p, np.column_stack([p.logits, p.logits**2]))
    comparison = compare(p, opinions=bundled_opinions(p))
    names = {c.name for c in comparison.candidates}
    assert {"mahalanobis", "knn", "trust_score", "sirc", "vim"} <= names
    assert {"second opinion", "first view"} <= names
    views = {"second opinion", "first view"}
    assert set(comparison.scores) == names - views
    repeated = compare(p, train=p[:300])
    assert {c.name for c in repeated.candidates} == names - views
    assert (
        len(repeated.scores["knn"].train_features) == 300
    )  # fitted on the training rows
    probs = np.exp(p.logits) / np.exp(p.logits).sum(1, keepdims=True)
    softmax = td.Predictions.from_probs(probs, p.labels, features=p.features)
    fewer = {c.name for c in compare(softmax).candidates}
    assert not {"energy", "max_logit", "vim"} & fewer


@pytest.fixture
def bundled_opinions():
    def make(p):
        rng = np.random.default_rng(0)
        base_doubts = td.beta(p.logits)
        doubts = np.stack(
            [base_doubts, base_doubts + rng.normal(size=len(base_doubts)), base_doubts],
            1,
        )
        answers = np.stack([p.predicted] * 3, 1)
        return td.Opinions(p, doubts, answers, np.ones((len(base_doubts), 3)))

    return make


def test_mistakes_are_named(bundled_opinions):
    p = rows(300)
    for name in ("alpha", "rel_u", "fusion"):
        with pytest.raises(InputError, match="is taken by a score"):
            compare(p, extra={name: (np.zeros(300), 1.0)})
    for extra in ((np.zeros(3), 1.0), (np.zeros(300), "two"), (np.zeros(300), np.nan)):
        with pytest.raises(InputError, match="a number of passes"):
            compare(p, extra={"mine": extra})
    for options in ({"seed": -1}, {"confidence": 95}, {"train": p}, {"opinions": 3}):
        with pytest.raises(InputError, match="expected"):
            compare(p, **options)
    with pytest.raises(InputError, match="expected Predictions"):
        compare(p.logits)
    for other in (rows(100), rows(300, seed=5)):
        with pytest.raises(InputError, match="opinions of the same 300 rows"):
            compare(p, opinions=bundled_opinions(other))
    right = td.Predictions.from_logits(p.logits, p.predicted)
    with pytest.raises(UndefinedMetricError, match="right and wrong"):
        compare(right)


def test_scores_that_rows_do_not_allow_are_left_out():
    p = rows(900)
    comparison = compare(with_features(p, np.ones((900, 3))))
    skipped = {reason.partition(":")[0] for reason in comparison.skipped}
    assert {"mahalanobis", "sirc", "vim"} <= skipped
    hard = np.where(np.eye(5)[p.predicted] > 0, 0.0, -np.inf)
    certain = td.Predictions.from_logits(hard, p.labels)
    comparison = compare(certain)
    assert comparison.recommended is None
    assert "fusion" in {reason.partition(":")[0] for reason in comparison.skipped}


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_the_command(tmp_path, suffix):
    p, path = rows(900), tmp_path / f"rows{suffix}"
    if suffix == ".npz":
        np.savez(path, logits=p.logits, labels=p.labels, deep=p.logits[:, :3])
    else:
        lists = {"logits": p.logits.tolist(), "deep": p.logits[:, :3].tolist()}
        pl.DataFrame(lists | {"label": p.labels}).write_parquet(path)
    result = CliRunner().invoke(
        make_app(), ["compare", str(path), "--features", "deep"]
    )
    assert result.exit_code == 0, result.output
    assert "None is better than softmax response here" in " ".join(
        result.output.split()
    )
    assert "trust_score" in result.output
    out = tmp_path / "found.json"
    CliRunner().invoke(make_app(), ["compare", str(path), "--json", str(out), "-q"])
    assert json.loads(out.read_text())["trustdoctor"] == "comparison"
    missing = CliRunner().invoke(
        make_app(), ["compare", str(path), "--features", "none"]
    )
    assert "there is no 'none'" in str(missing.exception)


def planted(n, seed, kind):
    """Rows on which a fitted score of that kind is clearly better than the softmax."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, 4))
    predicted = z.argmax(1)
    if kind == "rel_u":  # two classes are confused, whatever the softmax says
        odds = np.where(predicted < 2, 0.45, 0.02)
        wrong = rng.random(n) < odds
        twin = np.array([1, 0, 3, 2])[predicted]
        z[np.arange(n), twin] = z.max(1) - rng.exponential(0.7, n)
        labels = np.where(wrong, twin, predicted)
        predicted = z.argmax(1)
        return td.Predictions.from_logits(z, labels)
    if kind == "fusion":  # two scores each know a part
        doubt = td.margin(z) + 1.5 * td.SCORES["energy"].function(z)
        wrong = rng.random(n) < 1 / (1 + np.exp(-1.5 * (doubt + 6)))
        labels = np.where(wrong, (predicted + 1) % 4, predicted)
        return td.Predictions.from_logits(z, labels)
    wrong = rng.random(n) < 0.15  # features far from all others give errors away
    labels = np.where(wrong, (predicted + 1) % 4, predicted)
    features = rng.normal(size=(n, 4))
    features[:, 0] += 4
    features[wrong] = rng.normal(size=(int(wrong.sum()), 4)) * 3
    return td.Predictions.from_logits(z, labels, features=features)


@pytest.mark.parametrize("kind", ["rel_u", "fusion", "knn"])
def test_from_advice_to_a_gate_on_the_command_line(kind, tmp_path):
    """compare -> the fitted score -> calibrate -> gate.json -> trustdoctor screen."""
    p, more, new = (planted(3000, seed, kind) for seed in (0, 1, 2))
    comparison = compare(p)
    score = comparison.scores[kind]
    if kind == "knn":
        assert comparison.recommended is not None
        assert comparison.score is comparison.scores[comparison.recommended]
    gate = td.calibrate(more, score=score, frr=0.1)
    gate.save(tmp_path / "gate.json")
    decided = gate.screen(new)
    for name, rows in (("more", more), ("new", new)):
        arrays = {"logits": rows.logits, "labels": rows.labels}
        if rows.features is not None:
            arrays["deep"] = rows.features
        np.savez(tmp_path / f"{name}.npz", **arrays)
    score.save(tmp_path / "score.safetensors")
    deep = ["--features", "deep"] if new.features is not None else []

    def run(*words):
        result = CliRunner().invoke(make_app(), [*map(str, words), *deep])
        assert result.exit_code == 0, (result.output, result.exception)

    out = tmp_path / "out.npz"
    run("screen", tmp_path / "new.npz", "--gate", tmp_path / "gate.json", "-o", out)
    with np.load(out) as written:
        assert np.array_equal(written["accepted"], decided.accepted)
        np.testing.assert_allclose(written["score"], decided.doubts, rtol=1e-12)
    run(
        "calibrate", tmp_path / "more.npz", "--score", tmp_path / "score.safetensors",
        "--frr", 0.1, "-o", tmp_path / "again.json",
    )  # fmt: skip
    assert td.Gate.load(tmp_path / "again.json").threshold == gate.threshold
    run(
        "check", tmp_path / "new.npz", "--gate", tmp_path / "gate.json",
        "--state", tmp_path / "state.json",
    )  # fmt: skip
    watch = td.Watch.load(tmp_path / "state.json", gate)
    assert watch.tests == gate.watch().update(new).tests
