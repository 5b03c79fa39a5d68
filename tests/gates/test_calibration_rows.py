"""Rows that belong together: one is drawn from each cluster."""

import numpy as np
import pytest
from scipy.stats import norm

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.gates.calibration_rows import draw_from_clusters, repeat_notes
from trustdoctor.metrics import Sketch


def draw(rng, clusters=100, size=20, accuracy=0.9):
    """Rows of a cluster share most of their doubt, and often their fate."""
    cluster_of_row = np.repeat(np.arange(clusters), size)
    errors = np.repeat(rng.random(clusters) >= accuracy, size)
    shared = np.repeat(rng.normal(size=clusters), size)
    noise = rng.normal(size=clusters * size)
    return 0.9 * shared + np.sqrt(1 - 0.81) * noise + 2 * errors, errors, cluster_of_row


def broken(gate, target):
    """Whether a promise is broken for a random row: its scores are normal."""
    t = {"accept-all": np.inf, "reject-all": -np.inf}.get(gate.state, gate.threshold)
    right, wrong = 0.9 * norm.cdf(t), 0.1 * norm.cdf(t - 2)
    true = {"frr": 1 - norm.cdf(t), "trr": 1 - norm.cdf(t - 2), "joint": wrong}
    true |= {"coverage": right + wrong}
    true |= {"risk": wrong / (right + wrong) if right + wrong else 0.0}
    ((name, value),) = target.items()
    low = name in ("trr", "coverage")
    return true[name] < value - 1e-12 if low else true[name] > value + 1e-12


TARGETS = ({"frr": 0.1}, {"trr": 0.5}, {"coverage": 0.8}, {"joint": 0.05})
TARGETS += ({"risk": 0.05},)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", TARGETS, ids=[*map(str, TARGETS)])
def test_the_promise_holds_for_a_random_row_of_a_random_cluster(target, rng):
    broken_with, broken_without = 0, 0
    for seed in range(200):
        scores, errors, clusters = draw(rng)
        gate = td.calibrate_scores(
            scores, errors, clusters=clusters, seed=seed, **target
        )
        broken_with += broken(gate, target)
        broken_without += broken(td.calibrate_scores(scores, errors, **target), target)
    assert broken_with / 200 <= 0.1 + 3 * np.sqrt(0.09 / 200)
    assert broken_without / 200 > 0.2


def test_one_row_of_each_cluster_is_drawn_alike():
    clusters = np.repeat(np.arange(50), 4)
    counts = np.zeros(200)
    for seed in range(2000):
        drawn = draw_from_clusters(clusters, rows=200, seed=seed)
        assert np.array_equal(clusters[drawn], np.arange(50))
        counts[drawn] += 1
    # Each row is drawn once in four: chi-square with 150 degrees of freedom.
    assert ((counts - 500) ** 2 / 500).sum() < 220
    assert np.array_equal(
        draw_from_clusters(clusters, rows=200),
        draw_from_clusters(clusters, rows=200, seed=0),
    )


def test_the_certificate_says_what_was_drawn(rng):
    scores, errors, clusters = draw(rng)
    gate = td.calibrate_scores(scores, errors, frr=0.2, clusters=clusters, seed=7)
    assert gate.certificate.n == 100
    assert gate.certificate.notes[-1] == (
        "One row was drawn from each of 100 clusters, of 2,000 rows (seed 7). The "
        "promise is for a random row of a random cluster."
    )
    drawn = draw_from_clusters(clusters, rows=2000, seed=7)
    by_hand = td.calibrate_scores(scores[drawn], errors[drawn], frr=0.2)
    assert by_hand.threshold == gate.threshold


def predictions(rng, clusters=300, size=5, **more):
    n = clusters * size
    z = rng.normal(size=(n, 3)) * 3
    labels = np.where(rng.random(n) < 0.8, z.argmax(1), 0)
    cluster_of_row = np.repeat([f"c{k}" for k in range(clusters)], size)
    return td.Predictions.from_logits(z, labels, **more), cluster_of_row


def test_predictions_groups_and_a_chosen_score_go_with_clusters(rng):
    p, clusters = predictions(rng)
    gate = td.calibrate(p, frr=0.1, clusters=clusters)
    assert gate.certificate.n == 300
    site = np.tile([0, 1], 750)
    gate = td.calibrate(p, frr=0.1, clusters=clusters, groups=site)
    assert sum(rule.n for rule in gate.groups.values()) == 300
    by_class = td.calibrate(p, frr=0.1, clusters=clusters, groups="predicted")
    assert sum(rule.n for rule in by_class.groups.values()) == 300
    p, clusters = predictions(rng, 1000, 2)
    auto = td.calibrate(p, score="auto", frr=0.1, clusters=clusters)
    assert auto.certificate.n == 667
    assert "333 rows with" in str(auto.certificate.notes)
    assert "each of 1,000 clusters" in auto.certificate.notes[-1]


def test_labelled_rows_are_drawn_first(rng):
    p, clusters = predictions(rng)
    labels = np.where(np.arange(1500) % 5 == 3, p.labels, -1).astype(object)
    labels[labels == -1] = None
    partly_labelled = td.Predictions.from_logits(p.logits, labels)
    assert (
        td.calibrate(partly_labelled, frr=0.1, clusters=clusters).certificate.n == 300
    )


@pytest.mark.parametrize(
    ("clusters", "seed", "match"),
    [
        ([1, 2], 0, "expected clusters as 3 integers or strings, one per row"),
        ([1.5, 2.0, 3.0], 0, "expected clusters as 3 integers"),
        ([1, 2, 3], -1, "expected a seed of 0 or more, got -1"),
        ([1, 2, 3], "x", "expected a seed"),
    ],
)
def test_clusters_that_are_none_are_refused(clusters, seed, match):
    with pytest.raises(InputError, match=match):
        td.calibrate_scores(
            [1.0, 2.0, 3.0], [False] * 3, frr=0.1, clusters=clusters, seed=seed
        )


def test_sketches_refuse_clusters():
    sketch = Sketch()
    sketch.update(np.arange(10.0), np.zeros(10, bool))
    with pytest.raises(InputError, match="clusters need all rows"):
        td.calibrate_scores(sketch, frr=0.1, clusters=np.arange(10))


def test_duplicate_rows_are_reported(rng):
    p, _ = predictions(rng, ids=np.arange(1500) // 2)
    notes = td.calibrate(p, frr=0.1).certificate.notes
    assert notes[0].startswith("750 rows repeat the id of an earlier row")
    assert "clusters=, or --clusters NAME" in notes[1]
    p, _ = predictions(rng, ids=np.arange(1500))
    assert "rows repeat" not in str(td.calibrate(p, frr=0.1).certificate.notes)
    x = rng.normal(size=(1500, 2))
    x[7] = x[3]
    p, _ = predictions(rng, features=x)
    assert "the features of an earlier row" in repeat_notes(p)[0]
