import math

import numpy as np
import pytest

from trustdoctor.reproduce import Options, gaussian, reproduce


@pytest.fixture(scope="module")
def report():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian, "SPLITS", 3)
        return reproduce("gaussian")


@pytest.mark.soak
def test_the_papers_sigma_is_a_variance(report):
    accuracy = report.tables[0]
    far = {row[1]: abs(row[4] - row[6]) for row in accuracy.rows}
    assert far["variance 2"] < far["sd 2"]
    assert far["variance 4"] < far["sd 4"]
    expected = {2.0: 84.13, 4.0: 76.02, 16.0: 63.82}
    for variance, value in expected.items():
        assert 100 * gaussian.bayes_accuracy(variance) == pytest.approx(value, abs=0.01)


def test_alpha_beta_and_sr_coincide_and_d_star_is_best(report):
    rows = report.tables[1].rows
    for reading in {row[1] for row in rows}:
        areas = {row[2]: row[4].value for row in rows if row[1] == reading}
        assert areas["alpha"] == areas["beta"] == areas["SR"]
        assert areas["SR*"] <= areas["D*"] + 0.5  # Monte Carlo error
        assert areas["alpha"] <= areas["D*"] + 0.5


def test_where_the_model_is_bayes_all_scores_coincide(report):
    for row in report.tables[2].rows:
        assert row[1:] == pytest.approx([row[1]] * 5, abs=1e-9)


def test_proposition_1(report):
    table = {row[0]: row[1:] for row in report.tables[3].rows}

    def numbers(rule):
        return [float(cell.split()[0]) for cell in table[rule]]

    least = numbers("1 - TV, by quadrature")
    definition = table["odds > P1/P0 (Definition 1), test rows"]
    for bound, cell in zip(least, definition, strict=True):
        value, error = map(float, cell.split(" +- "))
        assert value == pytest.approx(bound, abs=error)
    assert all(
        a > b + 0.05 for a, b in zip(numbers("odds > 1, test rows"), least, strict=True)
    )
    for name in gaussian.NAMES.values():
        sums = numbers(f"best threshold of {name}, by quadrature")
        assert all(a >= b - 2e-4 for a, b in zip(sums, least, strict=True))
    assert numbers("best threshold of D*, by quadrature") == pytest.approx(least)


def test_the_quadrature_agrees_with_a_large_sample(rng):
    split = gaussian.Split(np.array([0.5, 1.0, 0.2]), None, None, 2.0)
    _, right, wrong = gaussian.quadrature(split)
    y = rng.choice([-1, 1], 400_000)
    x = y[:, None] + rng.normal(0, math.sqrt(2), (len(y), 2))
    assert wrong.sum() == pytest.approx((split.predicted(x) != y).mean(), abs=0.003)
    assert right.sum() + wrong.sum() == pytest.approx(1)


def test_the_least_sum_is_that_over_all_thresholds(rng):
    scores = rng.integers(0, 8, 50).astype(float)
    right, wrong = rng.random(50), rng.random(50)
    sums = [
        right[scores > t].sum() / right.sum() + wrong[scores <= t].sum() / wrong.sum()
        for t in [-1, *np.unique(scores)]
    ]
    assert gaussian.least_sum(scores, right, wrong) == pytest.approx(min(sums))


def test_training_descends(rng):
    y = np.repeat([-1, 1], 500)
    x = y[:, None] + rng.normal(0, 1, (1000, 2))
    order = rng.permutation(1000)
    weights = gaussian.train(x[order], y[order])
    assert ((gaussian.logit(weights, x) > 0) == (y > 0)).mean() > 0.9


@pytest.mark.soak
def test_the_grid_is_another_protocol_and_the_seed_another_draw(report, monkeypatch):
    monkeypatch.setattr(gaussian, "SPLITS", 2)
    grid = reproduce("gaussian", Options(protocol="grid"))
    assert "grid" in grid.tables[1].title
    other = reproduce("gaussian", Options(seed=1))
    assert other.tables[0].rows != report.tables[0].rows
