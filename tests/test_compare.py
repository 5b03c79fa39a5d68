"""A comparison that finds what is there, and nothing where nothing is."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import trustdoctor as td
from trustdoctor.cli import app
from trustdoctor.compare import BASELINE, compare
from trustdoctor.errors import InputError, UndefinedMetricError


def rows(n, seed=0, classes=5):
    """Errors that the softmax foretells as well as anything can."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    right = rng.random(n) < 1 / (1 + np.exp(td.beta(z)))
    other = (z.argmax(1) + rng.integers(1, classes, n)) % classes
    return td.Predictions.from_logits(z, np.where(right, z.argmax(1), other))


@pytest.mark.parametrize("part", range(4))
def test_nothing_is_recommended_where_nothing_is_better(part):
    """A planted null: at most 5% of 200 runs, 50 of them here."""
    found = [compare(rows(900, 50 * part + i), seed=i).recommended for i in range(50)]
    assert sum(name is not None for name in found) <= 5
    assert sum(name is not None for name in found) <= 0.05 * 50 + 3 * 1.54


def test_a_planted_gain_is_found():
    p = rows(3000)
    rng = np.random.default_rng(1)
    helpful = td.msp(p.logits) + 2 * p.errors + rng.normal(size=len(p))
    found = compare(p, extra={"oracle": (helpful, 3.0)})
    assert found.recommended == "oracle"
    assert "Use oracle (3 passes a row)" in found.verdict()
    best = found.candidates[1]
    assert best.name == "oracle"
    assert best.better
    assert best.auroc_gain.low > 0
    assert found.candidates[0].name == BASELINE
    assert found.candidates[0].auroc_gain.value == 0
    content = json.loads(found.to_json())
    assert content["recommended"] == "oracle"


def test_intervals_are_corrected_for_the_number_of_scores():
    p = rows(2000)
    few = compare(p)
    rng = np.random.default_rng(0)
    noise = {f"noise {i}": (rng.normal(size=len(p)), 1.0) for i in range(20)}
    many = compare(p, extra=noise)
    widths = [
        next(
            c.auroc_gain.high - c.auroc_gain.low
            for c in f.candidates
            if c.name == "gen"
        )
        for f in (few, many)
    ]
    assert widths[1] > widths[0]


def test_features_and_views_bring_their_scores(bundled_opinions):
    p = rows(900)
    features = np.column_stack([p.logits, p.logits**2])
    found = compare(p, features=features, opinions=bundled_opinions(p))
    names = {c.name for c in found.candidates}
    assert {"mahalanobis", "knn", "trust_score", "sirc", "vim"} <= names
    assert {"second opinion", "first view"} <= names
    train = (features[:300], p.predicted[:300], p.logits[:300])
    again = compare(p, features=features, train=train)
    assert {c.name for c in again.candidates} == names - {
        "second opinion",
        "first view",
    }
    probs = td.Predictions.from_probs(
        np.exp(p.logits) / np.exp(p.logits).sum(1, keepdims=True), p.labels
    )
    fewer = {c.name for c in compare(probs, features=features).candidates}
    assert not {"energy", "max_logit", "vim"} & fewer


@pytest.fixture
def bundled_opinions():
    def make(p):
        rng = np.random.default_rng(0)
        own = td.beta(p.logits)
        doubts = np.stack([own, own + rng.normal(size=len(own)), own], 1)
        answers = np.stack([p.predicted] * 3, 1)
        return td.Opinions(p, doubts, answers, np.ones((len(own), 3)))

    return make


def test_mistakes_are_named(bundled_opinions):
    p = rows(300)
    for taken in ("alpha", "rel_u", "fusion"):
        with pytest.raises(InputError, match="is taken by a score"):
            compare(p, extra={taken: (np.zeros(300), 1.0)})
    for given in ((np.zeros(3), 1.0), (np.zeros(300), "two"), (np.zeros(300), np.nan)):
        with pytest.raises(InputError, match="a number of passes"):
            compare(p, extra={"mine": given})
    for options in ({"seed": -1}, {"confidence": 95}, {"train": (1,)}, {"opinions": 3}):
        with pytest.raises(InputError, match="expected"):
            compare(p, **options)
    with pytest.raises(InputError, match="expected Predictions"):
        compare(p.logits)
    with pytest.raises(InputError, match="at row 7"):
        compare(p, features=np.where(np.arange(600).reshape(300, 2) == 15, np.nan, 1.0))
    with pytest.raises(InputError, match="finite features"):
        compare(p, features=np.zeros((3, 2)))
    for other in (rows(100), rows(300, seed=5)):
        with pytest.raises(InputError, match="opinions of the same 300 rows"):
            compare(p, opinions=bundled_opinions(other))
    right = td.Predictions.from_logits(p.logits, p.predicted)
    with pytest.raises(UndefinedMetricError, match="one kind"):
        compare(right)


def test_scores_that_rows_do_not_allow_are_left_out():
    p = rows(900)
    found = compare(p, features=np.ones((900, 3)))
    skipped = {reason.partition(":")[0] for reason in found.skipped}
    assert {"mahalanobis", "sirc", "vim"} <= skipped
    hard = np.where(np.eye(5)[p.predicted] > 0, 0.0, -np.inf)
    certain = td.Predictions.from_logits(hard, p.labels)
    found = compare(certain)
    assert found.recommended is None
    assert "fusion" in {reason.partition(":")[0] for reason in found.skipped}


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_the_command(tmp_path, suffix):
    p, path = rows(900), tmp_path / f"rows{suffix}"
    if suffix == ".npz":
        np.savez(path, logits=p.logits, labels=p.labels, deep=p.logits[:, :3])
    else:
        lists = {"logits": p.logits.tolist(), "deep": p.logits[:, :3].tolist()}
        pl.DataFrame(lists | {"label": p.labels}).write_parquet(path)
    result = CliRunner().invoke(app, ["compare", str(path), "--features", "deep"])
    assert result.exit_code == 0, result.output
    assert "None is better than softmax response here" in " ".join(
        result.output.split()
    )
    assert "trust_score" in result.output
    out = tmp_path / "found.json"
    CliRunner().invoke(app, ["compare", str(path), "--json", str(out), "-q"])
    assert json.loads(out.read_text())["trustdoctor"] == "comparison"
    missing = CliRunner().invoke(app, ["compare", str(path), "--features", "none"])
    assert "there is no 'none'" in str(missing.exception)
