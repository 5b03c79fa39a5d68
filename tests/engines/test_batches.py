"""Batches give the same result as all rows at once, to the bit."""

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.engines import Means, find_engine, screen
from trustdoctor.files import Columns, find_source
from trustdoctor.gates import CalibrationSketch
from trustdoctor.progress import Pace

N = 20_000
NAMES = {"features": "feature_", "groups": "region", "ids": "id"}
FITTED = {
    "rel_u": td.RelU.fit,
    "knn": lambda p: td.KNN.fit(p, k=3),
    "mahalanobis": td.Mahalanobis.fit,
    "sirc": td.SIRC.fit,
    "trust_score": td.TrustScore.fit,
    "vim": td.ViM.fit,
    "fusion": td.Fusion.fit,
}


def rows(n, seed):
    """Rows with features, groups and ids, whose doubts are not round numbers."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    z = rng.normal(size=(n, 4)).astype(np.float32)
    z[np.arange(n), labels] += 1.5
    x = rng.normal(size=(n, 10)) + labels[:, None]
    return pl.DataFrame(
        {f"logit_{j}": z[:, j] for j in range(4)}
        | {f"feature_{j}": x[:, j] for j in range(10)}
        | {"label": labels, "region": [f"r{i % 3}" for i in range(n)]}
        | {"id": [f"{i:06}" for i in range(n)]}
    )


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    path = tmp_path_factory.mktemp("train") / "a.parquet"
    rows(600, seed=1).write_parquet(path)
    return td.read(path, **NAMES)


@pytest.fixture(scope="module", params=["parquet", "csv", "npz"])
def path(request, tmp_path_factory):
    folder, table = tmp_path_factory.mktemp(request.param), rows(N, seed=0)
    path = folder / f"a.{request.param}"
    if request.param == "parquet":
        table.write_parquet(path, row_group_size=3_000)
    elif request.param == "csv":
        table.write_csv(path)
    else:
        path = folder  # of a file for each batch
        for i in range(0, N, N // 8):
            np.savez(path / f"{i:05}.npz", **arrays(table[i : i + N // 8]))
    return path


def arrays(table):
    return {
        "logits": table.select(pl.col("^logit_.*$")).to_numpy(),
        "feature_": table.select(pl.col("^feature_.*$")).to_numpy(),
        "labels": table["label"].to_numpy(),
        "region": np.array(table["region"].to_list()),
        "id": np.array(table["id"].to_list()),
    }


@pytest.fixture
def batches(monkeypatch):
    """The sizes of the batches that are decided on."""
    sizes, gate_screen = [], td.Gate.screen

    def noted(self, predictions, **options):
        sizes.append(len(predictions))
        return gate_screen(self, predictions, **options)

    monkeypatch.setattr(td.Gate, "screen", noted)
    return sizes


def screened(path, gate, out):
    """Return what the engine writes, in the order of the rows."""
    source = find_source(path, Columns(**NAMES))
    outcome = screen(source, gate, out, means=Means(find_engine("local"), 10**9))
    return outcome, pl.read_parquet(out)


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")  # toys are
@pytest.mark.parametrize("name", FITTED)
def test_fitted_scores_decide_alike(name, path, train, batches, tmp_path):
    p = td.read(path, **NAMES)
    gate = td.calibrate(p, score=FITTED[name](train), frr=0.2)
    expected = gate.screen(p)
    batches.clear()
    outcome, decisions = screened(path, gate, tmp_path / "out.parquet")
    assert len(batches) > 3, "the rows came at once"
    assert (decisions["score"].to_numpy() == expected.doubts).all()
    assert (decisions["accepted"].to_numpy() == expected.accepted).all()
    assert outcome == td.Outcome.of_predictions(p, expected.accepted)


def test_groups_decide_alike(path, batches, tmp_path):
    p = td.read(path, **NAMES)
    gate = td.calibrate(p, groups="given", risk=0.2)
    assert len({rule.threshold for rule in gate.groups.values()}) == 3
    expected = gate.screen(p)
    batches.clear()
    outcome, decisions = screened(path, gate, tmp_path / "out.parquet")
    assert len(batches) > 3, "the rows came at once"
    assert (decisions["score"].to_numpy() == expected.doubts).all()
    assert (decisions["accepted"].to_numpy() == expected.accepted).all()
    assert outcome == td.Outcome.of_predictions(p, expected.accepted)


def test_ids_come_in_their_order(path):
    predictions = td.read(path, **NAMES)
    assert predictions.ids.tolist() == [f"{i:06}" for i in range(N)]
    assert predictions.groups.tolist() == [f"r{i % 3}" for i in range(N)]
    table = rows(N, seed=0)
    features = table.select(pl.col("^feature_.*$")).to_numpy()
    assert (predictions.features == features).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("grouped", ["", "predicted", "given"])
@pytest.mark.parametrize("name", ["alpha", "rel_u", "knn"])
def test_counts_do_not_depend_on_the_batches(name, grouped, path, train):
    score = FITTED[name](train) if name in FITTED else td.SCORES[name]
    source = find_source(path, Columns(**NAMES))
    at_once = CalibrationSketch(score, grouped)
    at_once.update(source.read())
    engine, pace = find_engine("local"), Pace(None, "", 1)
    counted = engine.fold(
        source, CalibrationSketch(score, grouped), memory=10**9, pace=pace
    )
    assert pace.rows == N
    assert counted.pooled.to_bytes() == at_once.pooled.to_bytes()
    assert set(counted.groups) == set(at_once.groups)
    for group, sketch in at_once.groups.items():
        assert counted.groups[group].to_bytes() == sketch.to_bytes()
    gates = [
        calibration_sketch.calibrate(frr=0.1)
        for calibration_sketch in (counted, at_once)
    ]
    assert gates[0].to_json() == gates[1].to_json()


def test_a_diagnosis_does_not_depend_on_the_batches(path, train):
    scores = ["alpha", td.RelU.fit(train), td.KNN.fit(train, k=3)]
    source = find_source(path, Columns(**NAMES))
    at_once = td.Tally(scores)
    at_once.update(source.read())
    engine, pace = find_engine("local"), Pace(None, "", 1)
    counted = engine.fold(source, td.Tally(scores), memory=10**9, pace=pace)
    assert counted.evaluate().to_json() == at_once.evaluate().to_json()
