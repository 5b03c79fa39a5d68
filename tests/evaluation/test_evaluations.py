import dataclasses
import json
import math

import numpy as np
import pytest
from laws import tied

import trustdoctor as td
from trustdoctor.demo import bundled_file
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.scores import logit_scores, score_all


@pytest.fixture(scope="module")
def bundled():
    return td.read(bundled_file())


@pytest.fixture(scope="module")
def evaluation(bundled):
    return td.evaluate(bundled, scores=logit_scores())


def percent(estimate):
    return 100 * estimate.value


def test_the_bundled_predictions_give_the_known_numbers(evaluation):
    assert percent(evaluation.accuracy) == pytest.approx(89.93, abs=1e-9)
    auroc = {name: percent(s["auroc"]) for name, s in evaluation.scores.items()}
    assert auroc["alpha"] == pytest.approx(91.09, abs=0.01)
    assert auroc["beta"] == pytest.approx(91.07, abs=0.01)
    assert auroc["energy"] == pytest.approx(87.54, abs=0.01)
    assert auroc["max_logit"] == pytest.approx(87.96, abs=0.01)
    frr = percent(evaluation.scores["alpha"]["frr_at_trr"])
    assert frr == pytest.approx(30.01, abs=0.01)


def test_the_authors_predictions_give_the_known_numbers(shared):
    path = shared / "reference" / "cifar10-densenet-tbb.npz"
    p = td.read(path, probs="values", labels="label")
    evaluation = td.evaluate(p, scores=["alpha", "beta", "msp"])
    assert percent(evaluation.accuracy) == pytest.approx(95.19, abs=1e-9)
    for score, auroc in (("alpha", 94.16), ("beta", 94.13), ("msp", 94.13)):
        assert percent(evaluation.scores[score]["auroc"]) == pytest.approx(
            auroc, abs=0.01
        )
        frr = percent(evaluation.scores[score]["frr_at_trr"])
        assert frr == pytest.approx(17.94, abs=0.01)


def test_values_are_those_of_the_functions(evaluation, bundled):
    scores, errors = tied(td.gen(bundled.logits)), bundled.errors
    ours = evaluation.scores["gen"]
    for name, value in td.measure(scores, errors).items():
        assert ours[name].value == value
    assert ours["aupr_correct"].value == td.aupr(scores, errors, positive="correct")
    assert evaluation.calibration["ece"].value == pytest.approx(
        td.ece(bundled), rel=1e-9
    )
    assert evaluation.calibration["brier"].value == td.brier(bundled)
    assert evaluation.calibration["nll"].value == td.nll(bundled)
    assert (ours["auroc"].low, ours["auroc"].high) == td.delong(scores, errors)


def test_every_interval_holds_its_value(evaluation):
    cells = [evaluation.accuracy, *evaluation.calibration.values()]
    cells += [cell for score in evaluation.scores.values() for cell in score.values()]
    assert len(cells) == 5 + 10 * len(logit_scores())
    for cell in cells:
        assert cell.low < cell.value < cell.high
        assert cell.note == ""


def test_differences_are_paired(evaluation, bundled):
    by_pair = {(d.metric, d.first, d.second): d for d in evaluation.differences}
    pairs = math.comb(len(logit_scores()), 2) - 1  # beta and msp rank alike
    assert len(by_pair) == len(evaluation.differences) == 2 * pairs
    assert {d.note for d in evaluation.differences} == {""}
    d = by_pair["auroc", "alpha", "energy"]
    true = td.delong_difference(
        tied(td.alpha(bundled.logits)), tied(td.energy(bundled.logits)), bundled.errors
    )
    assert (d.low, d.high) == true
    assert d.value == pytest.approx(
        td.auroc(td.alpha(bundled), bundled.errors)
        - td.auroc(td.energy(bundled), bundled.errors),
        abs=1e-5,
    )
    d = by_pair["frr_at_trr", "alpha", "energy"]
    alone = (
        evaluation.scores["alpha"]["frr_at_trr"],
        evaluation.scores["energy"]["frr_at_trr"],
    )
    assert d.value == alone[0].value - alone[1].value
    assert d.low < d.value < d.high < 0
    unpaired = math.hypot(*(e.high - e.low for e in alone))
    assert d.high - d.low < unpaired


def test_scores_that_rank_alike_are_not_compared(evaluation, bundled):
    pairs = {(d.first, d.second) for d in evaluation.differences}
    assert ("beta", "msp") not in pairs
    assert {("alpha", "beta"), ("alpha", "msp"), ("beta", "entropy")} <= pairs
    assert td.evaluate(bundled[:500], scores=["msp", "beta"]).differences == ()


def test_the_result_is_frozen_and_becomes_json(evaluation, tmp_path):
    with pytest.raises(dataclasses.FrozenInstanceError):
        evaluation.n = 3
    text = evaluation.to_json(tmp_path / "result.json")
    assert (tmp_path / "result.json").read_text() == text
    content = json.loads(text, parse_constant=pytest.fail)
    assert content["scores"]["alpha"]["auroc"]["value"] == (
        evaluation.scores["alpha"]["auroc"].value
    )
    assert content["settings"]["points"]["trr"] == 0.95


def test_the_repr_and_the_verdict_say_what_the_numbers_mean(evaluation):
    assert "risk@90cov" in repr(evaluation)
    assert evaluation.verdict() in repr(evaluation)
    risk = evaluation.scores["alpha"]["risk_at_coverage"]
    assert evaluation.verdict().startswith(
        f"Rejecting the 10% most doubtful predictions by alpha leaves {risk.value:.1%}"
    )
    assert evaluation.verdict("energy") != evaluation.verdict()


def test_temperature_and_points_are_used(bundled):
    points = td.Points(trr=0.8, coverage=0.5)
    evaluation = td.evaluate(bundled, scores=["alpha"], temperature=2.0, points=points)
    s = tied(td.alpha(bundled.logits, temperature=2.0))
    ours = evaluation.scores["alpha"]
    assert ours["frr_at_trr"].value == td.frr_at_trr(s, bundled.errors, trr=0.8)
    assert ours["risk_at_coverage"].value == td.risk_at_coverage(
        s, bundled.errors, coverage=0.5
    )
    assert evaluation.calibration["nll"].value == td.nll(bundled, temperature=2.0)


@pytest.mark.parametrize(
    ("labels", "word"), [([0, 0, 0], "correct"), ([1, 1, 1], "wrong")]
)
def test_rows_of_one_kind_are_explained(labels, word):
    p = td.Predictions.from_logits([[3.0, 0], [2.0, 0], [1.0, 0]], labels)
    evaluation = td.evaluate(p)
    assert evaluation.scores["alpha"]["auroc"].value is None
    assert "both right and wrong" in evaluation.scores["alpha"]["auroc"].note
    assert f"All 3 predictions are {word}" in evaluation.verdict()
    assert evaluation.differences == ()
    assert word in repr(evaluation)
    json.loads(evaluation.to_json(), parse_constant=pytest.fail)


def test_one_kind_of_rows_has_no_intervals_but_that_of_the_accuracy():
    evaluation = td.evaluate(td.Predictions.from_logits([[3.0, 0], [1.0, 0]], [0, 0]))
    cell = evaluation.scores["alpha"]["risk_at_coverage"]
    assert (cell.value, cell.low) == (0.0, None)
    assert "all are wrong" in cell.note


def test_json_has_the_least_doubtful_errors_of_each_score(rng):
    """What no interval can know of can be looked at: checked by sorting all errors."""
    z = 2 * rng.normal(size=(300, 3))
    labels = np.where(rng.random(300) < 0.8, z.argmax(1), 2 - z.argmax(1))
    labels = [None] * 40 + labels[40:].tolist()  # rows keep their numbers
    p = td.Predictions.from_logits(
        z, labels, class_names=["cat", "dog", "eel"], ids=[f"r{i}" for i in range(300)]
    )
    content = json.loads(td.evaluate(p, scores=["alpha", "energy"]).to_json())
    assert set(content["least_doubtful_errors"]) == {"alpha", "energy"}
    for score, listed in content["least_doubtful_errors"].items():
        doubts = td.SCORES[score](p)
        errors = [i for i in range(40, 300) if labels[i] != z[i].argmax()]
        true = sorted(errors, key=lambda i: doubts[i])[:10]
        assert [error["row"] for error in listed] == true
        for row, error in zip(true, listed, strict=True):
            assert error == {
                "row": row,
                "id": f"r{row}",
                "doubt": pytest.approx(float(doubts[row])),
                "predicted": p.class_names[z[row].argmax()],
                "label": p.class_names[labels[row]],
            }


def test_least_doubtful_errors_of_answers_have_no_unknown_label():
    p = td.Predictions.from_confidence([0.9, 0.8, 0.4], correct=[False, True, False])
    (score, listed), *_ = td.evaluate(p).to_dict()["least_doubtful_errors"].items()
    assert score == "confidence"
    assert [error["row"] for error in listed] == [0, 2]
    assert {error["label"] for error in listed} == {None}
    assert {error["predicted"] for error in listed} == {None}
    assert listed[0]["doubt"] == -0.9


def test_few_rows_are_not_reported_as_rejected():
    p = td.Predictions.from_logits(np.eye(5) * 3, [0, 1, 2, 3, 0])
    assert "rejects none" in td.evaluate(p, scores=["alpha"]).verdict()


def test_a_single_row_is_evaluated():
    evaluation = td.evaluate(td.Predictions.from_logits([[3.0, 0]], [0]))
    assert evaluation.accuracy.value == 1
    assert evaluation.accuracy.low == pytest.approx(0.025)


@pytest.mark.parametrize(("n_errors", "marked"), [(1, True), (19, True), (20, False)])
def test_few_errors_are_marked(n_errors, marked, rng):
    """Every number carries the note, and every number has its ends."""
    z = 2 * rng.normal(size=(300, 3))
    labels = (z.argmax(1) + (np.arange(300) < n_errors)) % 3
    p = td.Predictions.from_logits(z, labels)
    evaluation = td.evaluate(p, scores=["alpha", "energy"])
    assert evaluation.n_errors == n_errors
    cells = [c for score in evaluation.scores.values() for c in score.values()]
    assert {d.metric for d in evaluation.differences} == {"auroc", "frr_at_trr"}
    for cell in (*cells, *evaluation.differences, *evaluation.calibration.values()):
        assert ("few errors: below 20" in cell.note) == marked
        assert cell.low <= cell.value <= cell.high
        assert cell.low < cell.high


def test_few_correct_rows_are_marked(rng):
    z = 2 * rng.normal(size=(300, 3))
    labels = (z.argmax(1) + (np.arange(300) >= 19)) % 3
    evaluation = td.evaluate(td.Predictions.from_logits(z, labels), scores=["alpha"])
    assert "few correct rows: below 20" in evaluation.scores["alpha"]["auroc"].note


def test_infinite_nll_is_reported():
    p = td.Predictions.from_probs([[1.0, 0], [0.9, 0.1], [0.2, 0.8]], [1, 0, 0])
    nll = td.evaluate(p).calibration["nll"]
    assert nll.value is None
    assert "1 label had probability 0" in nll.note


def test_progress_is_reported_in_order(bundled):
    shares = []
    td.evaluate(
        bundled, scores=["alpha"], progress=lambda share, _: shares.append(share)
    )
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] < 1


def test_mistakes_are_refused(bundled):
    with pytest.raises(InputError, match="magic"):
        td.evaluate(bundled, scores=["magic"])
    with pytest.raises(InputError, match="list of scores"):
        td.evaluate(bundled, scores="alpha")
    with pytest.raises(InputError, match="at least one"):
        td.evaluate(bundled, scores=[])
    with pytest.raises(InputError, match="confidence"):
        td.evaluate(bundled, confidence=95)
    with pytest.raises(InputError, match="expected Predictions"):
        td.evaluate(bundled.logits)
    with pytest.raises(LabelsMissingError):
        td.evaluate(td.Predictions.from_logits([[0.0, 1.0]]))


def test_probabilities_leave_energy_out_by_default():
    p = td.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6]], [0, 0])
    assert list(td.evaluate(p).scores) == ["alpha", "beta", "msp", "entropy"]


def test_large_samples_are_evaluated(rng):
    z = rng.normal(size=(140_000, 3)) * 3
    labels = np.where(rng.random(140_000) < 0.8, z.argmax(1), 0)
    p = td.Predictions.from_logits(z, labels)
    evaluation = td.evaluate(p, scores=["alpha", "msp"])
    cells = [c for score in evaluation.scores.values() for c in score.values()]
    for cell in (*cells, *evaluation.differences, *evaluation.calibration.values()):
        assert cell.low < cell.value < cell.high
        assert cell.high - cell.low < 0.03
    assert len(evaluation.differences) == 2
    for name in ("ece", "brier", "nll"):
        true = getattr(td, name)(p)
        assert evaluation.calibration[name].value == pytest.approx(true, rel=1e-7)


def test_two_scores_of_one_name_are_not_one(bundled):
    p = bundled[:500]
    first_score, second_score = (td.RelU.fit(p, balance=b) for b in (0.5, 0.7))
    with pytest.raises(InputError, match="two different scores are called 'rel_u'"):
        td.evaluate(p, scores=[first_score, second_score])
    named = td.evaluate(p, scores={"half": first_score, "more": second_score})
    assert list(named.scores) == ["half", "more"]
    with pytest.raises(InputError, match="temperature=3 was given"):
        td.evaluate(p, scores=["alpha:temperature=2"], temperature=3.0)
    twice = td.evaluate(p, scores=["alpha", "alpha", first_score])
    assert list(twice.scores) == ["alpha", "rel_u"]


def test_scores_with_a_fixed_temperature_are_scored_at_it(bundled):
    """Together with others that share a pass."""
    warm = td.SCORES["alpha"].with_temperature(2.0)
    doubts = score_all(bundled, ["beta", "msp", warm])
    assert np.array_equal(doubts["alpha"], td.alpha(bundled, temperature=2.0))
    assert np.array_equal(doubts["beta"], td.beta(bundled))


def test_scores_of_ones_own_are_measured_as_those_of_the_registry(bundled):
    p = bundled[:1500]
    by_name = td.evaluate(p, scores=["alpha", "energy"])
    ours = td.evaluate_scores({"alpha": td.alpha(p), "energy": td.energy(p)}, p.errors)
    for name in ("auroc", "frr_at_trr", "aurc", "augrc"):
        for score in ("alpha", "energy"):
            expected = by_name.scores[score][name]
            assert ours.scores[score][name].value == pytest.approx(
                expected.value, abs=1e-4
            )
    assert [(d.metric, d.first, d.second) for d in ours.differences] == [
        ("auroc", "alpha", "energy"),
        ("frr_at_trr", "alpha", "energy"),
    ]
    for wrong, match in (
        ([1.0], "scores as a dict"),
        ({}, "scores as a dict"),
        ({"a": [1.0, 2.0], "b": [1.0]}, "2 of a, 1 of b"),
        ({"a": [1.0, np.nan]}, "NaN"),
    ):
        with pytest.raises(InputError, match=match):
            td.evaluate_scores(wrong, [True, False])


@pytest.mark.parametrize(
    "metric",
    ["auroc", "aurc", "eaurc", "augrc", "aupr", "frr_at_trr", "risk_at_coverage"],
)
def test_a_difference_by_name_is_that_of_the_metric(bundled, metric):
    evaluation = td.evaluate(bundled, scores=["alpha", "energy"])
    gap = evaluation.difference("alpha", "energy", metric)
    first, second = (evaluation.scores[n][metric].value for n in ("alpha", "energy"))
    assert gap.value == pytest.approx(first - second, abs=1e-9)
    assert gap.low < gap.value < gap.high
    reverse = evaluation.difference("energy", "alpha", metric)
    assert (reverse.low, reverse.high) == pytest.approx((-gap.high, -gap.low))
    # Paired: narrower than the distance of two intervals, which ignores the pairing.
    widths = [evaluation.scores[n][metric] for n in ("alpha", "energy")]
    assert gap.high - gap.low < sum(e.high - e.low for e in widths)


def test_differences_of_what_is_not_there_are_refused(bundled):
    evaluation = td.evaluate(bundled[:500], scores=["alpha", "energy"])
    with pytest.raises(InputError, match="two scores out of alpha, energy"):
        evaluation.difference("alpha", "beauty")
    with pytest.raises(InputError, match="metric out of auroc"):
        evaluation.difference("alpha", "energy", "ece")
    with pytest.raises(InputError, match="metrics out of auroc"):
        evaluation.table(["ece"])


def test_all_scores_and_named_settings(bundled):
    p = bundled[:800]
    everything = td.evaluate(p, scores="all")
    assert set(everything.scores) == set(td.scores.available_scores(p))
    settings = {"half": "alpha:temperature=0.5", "pnorm 4": "pnorm:p=4"}
    named = td.evaluate(p, scores=settings)
    assert list(named.scores) == list(settings)
    cold = td.calibrate(p, score="alpha", temperature=0.5, frr=0.1)
    assert td.calibrate(p, score="alpha:temperature=0.5", frr=0.1) == cold
    assert np.array_equal(named.doubts["half"], td.alpha(p, temperature=0.5))


def test_rows_outside_of_all_classes_are_errors(bundled, rng):
    p = bundled[:1000]
    outside = rng.normal(size=(300, p.n_classes))
    mixed = td.evaluate(p.with_outside(outside), scores=["alpha"])
    assert mixed.n_errors == p.errors.sum() + 300
    doubts = np.append(td.alpha(p), td.alpha(td.Predictions.from_logits(outside)))
    errors = np.append(p.errors, np.ones(300, bool))
    assert mixed.scores["alpha"]["auroc"].value == pytest.approx(
        td.auroc(doubts, errors), abs=1e-5
    )
    alone = td.evaluate(p, scores=["alpha"])
    for name, estimate in alone.calibration.items():
        assert mixed.calibration[name].value == pytest.approx(estimate.value, rel=1e-6)
    assert "300 rows belong to no class" in " ".join(mixed.warnings)
    assert mixed.least_doubtful_errors("alpha")[0]["label"] is not None
    page = mixed.to_html()
    assert "300 rows belong to no class" in page
    assert td.compare(p.with_outside(outside)).n_errors == mixed.n_errors
    with pytest.raises(InputError, match="true classes, and some rows belong to none"):
        td.calibrate(p.with_outside(outside), frr=0.1, shortlist=0.9)


def test_a_printed_evaluation_is_short_and_has_intervals(bundled):
    text = repr(td.evaluate(bundled))
    assert len(text.splitlines()) <= 10
    assert text.count("[") >= 4 * 5
    frame = td.evaluate(bundled).to_frame()
    assert {"auroc_low", "aurc_high", "aupr_correct"} <= set(frame.columns)
