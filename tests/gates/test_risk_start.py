"""Where the tests of risk start for a known accuracy: power, and the promise kept."""

import numpy as np
import pytest
from scipy.stats import binom, norm

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.gates.risk_start import best_start, least_rows


@pytest.mark.parametrize(("n", "risk"), [(60, 0.1), (500, 0.02), (800, 0.05)])
def test_the_start_is_the_most_powerful_count_of_all(n, risk, monkeypatch):
    """By exhaustion over every count, with scipy's binomial law and one separation."""
    from trustdoctor.gates import risk_start

    monkeypatch.setattr(risk_start, "SEPARATIONS", (2.5,))
    monkeypatch.setattr(risk_start, "MISLABELLED", 0.0)
    best_start.cache_clear()
    accuracy, t = 0.9, np.linspace(-8, 12, 20_001)
    accepted = accuracy * norm.cdf(t) + (1 - accuracy) * norm.cdf(t - 2.5)
    power = {}
    for j in range(1, n + 1):
        allowed = np.flatnonzero(binom.cdf(np.arange(j), j, risk) <= 0.09)
        at = np.searchsorted(accepted, j / n)
        wrong = (1 - accuracy) * norm.cdf(t[min(at, 20_000)] - 2.5) / (j / n)
        power[j] = binom.cdf(allowed[-1], j, wrong) if len(allowed) else 0.0
    found = best_start(n, risk, 0.09, accuracy)
    best_start.cache_clear()
    assert power[found] == pytest.approx(max(power.values()), abs=2e-3)


def test_more_rows_than_there_are_is_said():
    assert least_rows(0.01, 0.09) == 240
    assert (1 - 0.01) ** 240 <= 0.09 < (1 - 0.01) ** 239
    assert best_start(100, 0.01, 0.09, 0.9) == 240


def test_very_many_rows_start_somewhere():
    found = best_start(10_000_000, 0.1, 0.09, 0.95)
    assert 22 < found <= 10_000_000


def covers(scores, errors, n, runs, seed=0, **options):
    """Return mean coverage and how often the risk is broken, on all rows as truth."""
    rng = np.random.default_rng(seed)
    covered, broken = [], []
    for _ in range(runs):
        some = rng.choice(len(scores), n, replace=False)
        gate = td.calibrate_scores(scores[some], errors[some], **options)
        kept = gate.accept(scores)
        covered.append(kept.mean())
        broken.append(kept.any() and errors[kept].mean() > options["risk"])
    return np.mean(covered), np.mean(broken)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("net", ["resnet56", "repvgg_a1"])
def test_a_net_of_94_percent_keeps_three_quarters_of_500_rows(net, shared):
    """The real thing: 0.4 to 0.5 without the accuracy, 0.9 for an oracle."""
    path = shared / "predictions" / "public" / f"{net}-cifar10-test.npz"
    p = td.read(path)
    scores, errors = td.alpha(p), p.errors
    plain, _ = covers(scores, errors, 500, 250, risk=0.02)
    known, broken = covers(scores, errors, 500, 250, risk=0.02, accuracy=0.94)
    assert known > 0.72
    assert known > plain + 0.2
    assert broken < 0.1


def binormal(rng, n, accuracy, separation=2.0):
    errors = rng.random(n) >= accuracy
    return rng.normal(size=n) + separation * errors, errors


def test_a_poor_model_keeps_what_it_had(rng):
    scores, errors = binormal(rng, 100_000, 0.6)
    known, broken = covers(scores, errors, 500, 200, risk=0.1, accuracy=0.6)
    assert known > 0.44
    assert broken < 0.15


@pytest.mark.sampled(4)
@pytest.mark.parametrize("accuracy", [0.05, 0.6, 0.9, 0.999])
@pytest.mark.parametrize(("n", "risk"), [(100, 0.05), (500, 0.02)])
def test_the_promise_holds_whatever_the_accuracy_said(accuracy, n, risk, rng):
    """The true accuracy is 0.9; in 3 standard errors of 0.1, out of 300."""
    scores, errors = binormal(rng, 50_000, 0.9)
    _, broken = covers(scores, errors, n, 300, risk=risk, accuracy=accuracy)
    assert broken <= 0.1 + 3 * np.sqrt(0.09 / 300)


def test_the_certificate_says_what_was_known(rng):
    gate = td.calibrate_scores(*binormal(rng, 2000, 0.9), risk=0.05, accuracy=0.9)
    assert any("accuracy of 0.9, known in advance" in n for n in gate.certificate.notes)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"frr": 0.1, "accuracy": 0.9}, "where the sequence of risk starts"),
        ({"risk": 0.1, "accuracy": 0.9, "method": "sgr"}, "Leave it out"),
        ({"risk": 0.1, "accuracy": 90}, "accuracy between 0 and 1, got 90"),
        ({"risk": 0.1, "accuracy": "x"}, "accuracy between 0 and 1"),
        ({"risk": 0.1, "accuracy": 0.9, "min_coverage": 0.5}, "got both"),
    ],
)
def test_accuracies_that_say_nothing_are_refused(options, match):
    with pytest.raises(InputError, match=match):
        td.calibrate_scores([0.1, 0.2], [True, False], **options)


def test_advice_keeps_the_accuracy_to_the_risk(rng):
    """Other targets and methods, which know no accuracy, are tried all the same."""
    from trustdoctor.gates import Rows, advise

    scores, errors = binormal(rng, 60, 0.9)
    assert "would accept" in advise(Rows(scores, errors), risk=0.01, accuracy=0.9)


def test_a_sketch_starts_where_its_rows_do(rng):
    from trustdoctor.metrics import Sketch

    scores, errors = binormal(rng, 3000, 0.94, 2.5)
    sketch = Sketch()
    sketch.update(scores, errors)
    known = {"risk": 0.02, "accuracy": 0.94}
    rows = td.calibrate_scores(scores, errors, **known)
    cells = td.calibrate_scores(sketch, **known)
    assert cells.threshold <= rows.threshold
    kept = [(scores <= gate.threshold).mean() for gate in (cells, rows)]
    assert kept[1] - 0.05 < kept[0] <= kept[1]
