import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError, LabelsMissingError


def make(rng, n=4000, classes=4):
    z = rng.normal(size=(n, classes)) * 2.5
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    return td.Predictions.from_logits(z, labels)


def test_rows_that_choose_do_not_calibrate(rng):
    p = make(rng)
    found = td.select(p, scores=["alpha", "gen", "energy"], temperatures=[1, 2])
    assert not set(found.chosen) & set(found.rest)
    assert sorted([*found.chosen, *found.rest]) == list(range(4000))
    assert len(found.table) == 6
    assert found.table[found.score, found.temperature] == max(found.table.values())
    assert found.score != "energy"
    gate = found.calibrate(frr=0.1)
    assert gate.certificate.n == len(found.rest)
    assert (gate.score, gate.temperature) == (found.score, found.temperature)
    assert "2,000 rows chose" in gate.certificate.notes[-1]
    scores = td.SCORES[found.score].at(found.temperature)(p)
    plain = td.calibrate_scores(scores[found.rest], p.errors[found.rest], frr=0.1)
    assert gate.threshold == plain.threshold


def test_selection_mistakes_are_refused(rng):
    p = make(rng, 50)
    for options in ({"scores": []}, {"temperatures": []}, {"share": 1.0}):
        with pytest.raises(InputError):
            td.select(p, **options)
    with pytest.raises(LabelsMissingError):
        td.select(td.Predictions.from_logits(p.logits))


@pytest.mark.parametrize(
    "target",
    [{"frr": 0.1}, {"trr": 0.9}, {"risk": 0.1}, {"joint": 0.1}, {"coverage": 0.8}],
    ids=str,
)
def test_a_model_that_is_right_about_itself_meets_its_expectations(target, rng):
    """The labels are drawn from the model's own probabilities."""
    p = make(rng, 40_000)
    gate = td.calibrate_unlabelled(p, **target)
    at = td.confusion(td.alpha(p.logits), p.errors, threshold=gate.threshold)
    ((name, value),) = target.items()
    part, whole = td.TARGETS[name].counts(at)
    assert part / whole == pytest.approx(value, abs=0.015)
    assert not gate.certificate.guarantee
    assert "no guarantee" in repr(gate)


def test_a_known_accuracy_corrects_an_overconfident_model(rng):
    p = make(rng, 40_000)
    bold = td.Predictions.from_logits(3 * p.logits, p.labels)
    accuracy = 1 - p.errors.mean()
    scores = td.alpha(bold.logits)
    seen = {}
    for known in (None, accuracy):
        gate = td.calibrate_unlabelled(bold, risk=0.1, accuracy=known)
        seen[known] = td.confusion(scores, p.errors, threshold=gate.threshold).risk
    assert seen[None] > 0.15
    assert seen[accuracy] == pytest.approx(0.1, abs=0.02)
    assert "temperature" in gate.certificate.assumption


def test_trivial_expectations():
    sure = td.Predictions.from_logits([[9.0, 0.0]] * 5)
    assert td.calibrate_unlabelled(sure, risk=0.1).state == "accept-all"
    torn = td.Predictions.from_logits([[0.1, 0.0]] * 5)
    assert td.calibrate_unlabelled(torn, risk=0.1).state == "reject-all"


def test_an_accuracy_that_no_temperature_gives_is_refused():
    sure = td.Predictions.from_probs([[1.0, 0.0]] * 20)
    with pytest.raises(InputError, match="no temperature"):
        td.calibrate_unlabelled(sure, frr=0.1, accuracy=0.8)


def test_unlabelled_mistakes_are_refused():
    z = td.Predictions.from_logits([[1.0, 0.0], [2.0, 0.0]])
    for options in ({}, {"frr": 0.1, "trr": 0.9}, {"cost": 3}, {"beauty": 0.5}):
        with pytest.raises(InputError, match="expected one target out of frr, trr"):
            td.calibrate_unlabelled(z, **options)
    with pytest.raises(InputError, match="expected frr between 0 and 1"):
        td.calibrate_unlabelled(z, frr=2)
    with pytest.raises(InputError, match="expected Predictions"):
        td.calibrate_unlabelled(z.logits, frr=0.1)
    for accuracy in (0.3, 1.0):
        with pytest.raises(InputError, match="accuracy"):
            td.calibrate_unlabelled(z, frr=0.1, accuracy=accuracy)


@pytest.fixture
def odd(rng):
    """Rows whose errors only the largest logit tells."""
    z = rng.normal(size=(3000, 3)) * 3
    labels = np.where(z.max(1) > 1, z.argmax(1), (z.argmax(1) + 1) % 3)
    return td.Predictions.from_logits(z, labels, groups=rng.integers(0, 2, 3000))


@pytest.mark.parametrize(
    "options",
    [
        {"frr": 0.1},
        {"risk": 0.05, "confidence": 0.8, "method": "grid"},
        {"coverage": 0.8},
        {"trr": 0.9, "groups": "predicted"},
        {"frr": 0.1, "groups": "given"},
        {"frr": 0.1, "groups": np.arange(3000) % 2, "grouped_by": "parity"},
    ],
    ids=str,
)
def test_auto_chooses_on_rows_that_the_promise_does_not_use(options, odd):
    gate = td.calibrate(odd, score="auto", **options)
    order = np.random.default_rng(0).permutation(3000)
    chosen, rest = order[:900], order[900:]
    part = odd[chosen]
    areas = {n: td.auroc(td.SCORES[n](part), part.errors) for n in PLAIN}
    assert gate.score == max(areas, key=areas.get)
    assert gate.score != "alpha"
    if isinstance(options.get("groups"), np.ndarray):
        options = options | {"groups": options["groups"][rest]}
    plain = td.calibrate(odd[rest], score=gate.score, **options)
    assert (gate.threshold, gate.groups) == (plain.threshold, plain.groups)
    assert gate.certificate.n == 2100
    note = f"900 rows chose {gate.score} at temperature 1 among {len(PLAIN)} candidates"
    assert any(note in line for line in gate.certificate.notes)


PLAIN = ["alpha", "beta", "msp", "entropy", "margin", "gen", "max_logit", "energy"]
PLAIN += ["pnorm"]


def test_auto_takes_what_the_predictions_allow(odd):
    p = np.exp(odd.logits) / np.exp(odd.logits).sum(1, keepdims=True)
    rows = td.Predictions.from_probs(p, odd.labels)
    gate = td.calibrate(rows, score="auto", temperature=2.0, frr=0.1)
    assert gate.score not in ("energy", "max_logit")
    assert gate.temperature == 2.0
    one = td.Predictions.from_confidence(p.max(1), correct=~odd.errors)
    gate = td.calibrate(one, score="auto", frr=0.1)
    assert (gate.score, gate.certificate.n) == ("confidence", 3000)


def test_auto_leaves_rows_without_a_label_to_the_calibration(odd):
    labels = [None if i < 1000 else k for i, k in enumerate(odd.labels)]
    rows = td.Predictions.from_logits(odd.logits, labels)
    assert td.calibrate(rows, score="auto", frr=0.1).certificate.n == 1400
    assert td.calibrate(rows, score="auto", coverage=0.9).certificate.n == 2400


def test_auto_needs_errors_to_choose_by(odd):
    right = odd[~odd.errors]
    with pytest.raises(InputError, match=r"20 errors and 20 correct .* got 0 and"):
        td.calibrate(right, score="auto", frr=0.1)
    with pytest.raises(LabelsMissingError):
        td.calibrate(td.Predictions.from_logits(odd.logits), score="auto", coverage=0.9)
    best = td.Predictions.from_topk([[0.7, 0.2]] * 99, [[0, 1]] * 99, [0] * 99)
    with pytest.raises(InputError, match="expected Predictions, got TopK"):
        td.calibrate(best, score="auto", frr=0.1)
