"""The search behind `tune`, against scikit-learn and counting by hand."""

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import trustdoctor as td
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.kernels import _native
from trustdoctor.scores import (
    contract,
    find_logit_score,
    normalisation,
    registry,
    softmax,
)
from trustdoctor.tuning import FAMILY, selection
from trustdoctor.tuning.selection import (
    CurveSection,
    cautious_gains,
    section_for,
)


def rows(n=400, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes)) * rng.exponential(size=(n, 1))
    wrong = rng.random(n) < 0.6 * np.exp(-z.max(1) / 2)
    return td.Predictions.from_logits(z, (z.argmax(1) + wrong) % classes)


def shares(scores, other_kind):
    """The share of the others below each, ties half, pair by pair."""
    below = (scores[:, None] > other_kind).mean(1)
    return below + 0.5 * (scores[:, None] == other_kind).mean(1)


def test_gains_are_those_of_delong_by_hand(rng):
    wrong = rng.random(200) < 0.2
    base = rng.normal(size=200).round(1) + wrong  # with ties
    doubts = rng.normal(size=200).round(1) + 2 * wrong
    (gain_less_caution,) = cautious_gains([doubts], base, wrong, CurveSection())
    gain = roc_auc_score(wrong, doubts) - roc_auc_score(wrong, base)
    errors, correct = (
        shares(doubts[w], doubts[~w]) - shares(base[w], base[~w])
        for w in (wrong, ~wrong)
    )
    spread = errors.var() / len(errors) + correct.var() / len(correct)
    caution = selection.STANDARD_ERRORS["all"]
    assert gain_less_caution == pytest.approx(
        gain - caution * math.sqrt(spread), abs=1e-12
    )
    assert cautious_gains([base, 2 * base], base, wrong, CurveSection()).tolist() == [
        0,
        0,
    ]


def area(doubts, wrong, most):
    """The area under the ROC curve up to a share of the correct rows, out of 1."""
    if most == 0:
        return 0.0
    if most == 1:
        return roc_auc_score(wrong, doubts)
    scaled = roc_auc_score(wrong, doubts, max_fpr=most)
    least = most**2 / 2  # scikit-learn scales it from (least, most) to (0.5, 1)
    return least + (2 * scaled - 1) * (most - least)


@pytest.mark.parametrize("high", [0.05, 0.1, 0.5, 1.0])
def test_a_part_of_the_correct_rows_is_a_partial_area(high, rng, monkeypatch):
    monkeypatch.setitem(selection.STANDARD_ERRORS, "section", 0.0)
    wrong = np.arange(300) < 100
    base, doubts = rng.normal(size=(2, 300)) + wrong
    (measured,) = cautious_gains([doubts], base, wrong, CurveSection("frr", 0.0, high))
    gain = (area(doubts, wrong, high) - area(base, wrong, high)) / high
    assert measured == pytest.approx(gain, abs=1e-12)


@pytest.mark.parametrize("ends", [(0.75, 1.0), (0.25, 0.75), (0.0, 0.5), (0.5, 0.625)])
def test_a_part_of_the_errors_is_a_partial_area(ends, rng, monkeypatch):
    monkeypatch.setitem(selection.STANDARD_ERRORS, "section", 0.0)
    low, high = ends
    wrong = np.arange(400) < 80
    base, candidate = rng.normal(size=(2, 400)) + wrong

    def value(doubts):  # errors and correct rows, doubt and trust change places
        upper, lower = (area(-doubts, ~wrong, 1 - end) for end in (low, high))
        return (upper - lower) / (high - low)

    (measured,) = cautious_gains(
        [candidate], base, wrong, CurveSection("trr", low, high)
    )
    assert measured == pytest.approx(value(candidate) - value(base), abs=1e-12)


def test_caution_discounts_a_score_more_the_more_it_differs(rng):
    wrong = rng.random(500) < 0.2
    base = rng.normal(size=500) + wrong
    near, bold = base + 1e-3 * rng.normal(size=500), rng.normal(size=500) + wrong
    for section in (
        CurveSection(),
        CurveSection("trr", 0.7, 1.0),
        CurveSection("frr", 0.0, 0.2),
    ):
        cautious = cautious_gains([near, bold], base, wrong, section)
        areas = [roc_auc_score(wrong, doubts) for doubts in (near, bold, base)]
        if section == CurveSection():
            subtracted = np.array(areas[:2]) - areas[2] - cautious
            assert 0 < subtracted[0] < subtracted[1] / 5
        assert cautious[0] < 0.01


def accepted_errors(base, wrong, allowed):
    """Errors let through by the largest number of the surest rows that is allowed."""
    surest, let = wrong[np.argsort(base)], 0
    for k in range(len(wrong) + 1):
        if allowed(k, int(surest[:k].sum())):
            let = int(surest[:k].sum())
    return let


@pytest.mark.parametrize("value", [0.02, 0.07, 0.1, 0.3, 0.6, 0.95])
@pytest.mark.parametrize("name", ["risk", "joint", "trr"])
def test_parts_of_errors_are_where_such_a_gate_works(name, value, rng):
    for n, rate in ((40, 0.3), (301, 0.2), (500, 0.04)):
        wrong = rng.random(n) < rate
        base = rng.normal(size=n) + wrong
        errors = int(wrong.sum())
        allowed = {
            "risk": lambda k, let: let <= value * k,
            "joint": lambda _, let, n=n: let <= value * n,
        }
        trr = value
        if name != "trr":
            trr = 1 - accepted_errors(base, wrong, allowed[name]) / errors
        expected = CurveSection("trr", max(0.0, trr - 0.2), min(1.0, trr + 0.2))
        is_short = (expected.high - expected.low) * errors < selection.MIN_SECTION_ROWS
        section = section_for({name: value}, base, wrong)
        assert section == (CurveSection() if is_short or trr == 0 else expected)


@pytest.mark.parametrize("value", [1, 2, 5, 50, 1e6])
def test_the_part_of_a_cost_is_where_it_is_least(value, rng):
    wrong = rng.random(400) < 0.2
    base = rng.normal(size=400) + wrong
    surest = wrong[np.argsort(base)]
    costs = [value * surest[:k].sum() + 400 - k for k in range(401)]
    trr = 1 - surest[: int(np.argmin(costs))].sum() / wrong.sum()
    expected = CurveSection("trr", max(0.0, trr - 0.2), min(1.0, trr + 0.2))
    assert section_for({"cost": value}, base, wrong) == (
        expected if trr else CurveSection()
    )


@pytest.mark.parametrize("value", [0.01, 0.05, 0.25, 0.5, 0.9, 0.99])
def test_parts_of_correct_rows_are_where_such_a_gate_works(value, rng):
    for n in (40, 500):
        wrong = rng.random(n) < 0.2
        base = rng.normal(size=n) + wrong
        correct = int((~wrong).sum())
        n_accepted_correct = (~wrong)[np.argsort(base)][
            : math.ceil(round(value * n, 9))
        ].sum()
        for name, frr in (
            ("frr", value),
            ("coverage", 1 - n_accepted_correct / correct),
        ):
            expected = CurveSection("frr", 0.0, min(1.0, 2 * frr))
            is_short = expected.high * correct < selection.MIN_SECTION_ROWS
            assert section_for({name: value}, base, wrong) == (
                CurveSection() if is_short else expected
            )


def test_of_two_targets_the_first_that_is_listed_counts(rng):
    wrong = rng.random(300) < 0.2
    base = rng.normal(size=300) + wrong
    for pair, first in (
        ({"frr": 0.1, "trr": 0.9}, {"trr": 0.9}),
        ({"coverage": 0.6, "risk": 0.1}, {"risk": 0.1}),
    ):
        assert section_for(pair, base, wrong) == section_for(first, base, wrong)
        assert td.tune(rows(), **pair) == td.tune(rows(), **first)
    assert td.tune(rows(), frr=0.1, trr=0.9).target == "trr 0.9"
    assert td.tune(rows(), coverage=0.6, risk=0.1).target == "risk 0.1"


@pytest.mark.parametrize("target", [None, {"trr": 0.9}, {"frr": 0.1}], ids=str)
def test_the_best_by_hand_is_chosen(target):
    p = rows(800, seed=3)
    base, wrong = find_logit_score("msp")(p), p.errors
    section = section_for(target, base, wrong)
    doubts = {name: find_logit_score(name)(p) for name in FAMILY}
    gains = cautious_gains(doubts.values(), base, wrong, section)
    gain_of = dict(zip(doubts, gains, strict=True))
    score = td.tune(p, **(target or {}), average=1)
    assert score.members == (max(gain_of, key=gain_of.get),)
    assert score.knots.shape == score.ranks.shape == (1, 0)
    alone = find_logit_score(score.members[0])
    assert score.only_member == alone
    assert np.array_equal(score(p), alone(p))
    several = td.tune(p, **(target or {}))
    assert several.members[0] == score.members[0]
    assert (several.n, several.n_errors) == (800, wrong.sum())
    assert several.n_candidates == len(FAMILY) == len(set(FAMILY))


def test_the_order_of_the_rows_does_not_matter(rng):
    p = rows(600)
    mixed = p[rng.permutation(600)]
    for target in (None, {"trr": 0.9}, {"coverage": 0.8}, {"risk": 0.1}):
        in_order, shuffled = (td.tune(q, **(target or {})) for q in (p, mixed))
        assert in_order.members == shuffled.members
        np.testing.assert_allclose(in_order(p), shuffled(p), rtol=1e-12)


TIED = [None, {"trr": 0.9}, {"coverage": 0.7}, {"risk": 0.1}, {"cost": 5}, {"frr": 0.1}]


@pytest.mark.parametrize("target", TIED, ids=str)
@pytest.mark.sampled(2)
def test_the_order_of_rows_that_tie_does_not_matter(target, rng):
    """A forest of ten trees has few answers."""
    votes = rng.multinomial(10, [0.6, 0.2, 0.2], size=600) / 10
    wrong = rng.random(600) > votes.max(1)
    labels = (votes.argmax(1) + wrong) % 3
    base = td.msp(np.log(np.maximum(votes, 1e-9)))
    sections = {section_for(target, base[o], wrong[o]) for o in orders(rng, 600)}
    assert len(sections) == 1
    rows = [td.Predictions.from_probs(votes[o], labels[o]) for o in orders(rng, 600)]
    assert len({td.tune(p, **(target or {})).members for p in rows}) == 1


def orders(rng, n):
    return [rng.permutation(n) for _ in range(10)]


def test_what_needs_logits_is_not_tried_on_probabilities():
    p = rows()
    probs = np.exp(p.logits) / np.exp(p.logits).sum(1, keepdims=True)
    score = td.tune(td.Predictions.from_probs(probs, p.labels))
    assert score.n_candidates == len(FAMILY) - 2
    assert score.needs == {"probs"}
    assert not {"energy", "max_logit"} & set(score.members)


ODD = [{"beauty": 1}, {"trr": 0.9, "beauty": 1}, {"threshold": 1.0}, {1: 2}, {}]
ODD += [0, 0.95, "trr", ["trr"], ("trr",), {"trr"}]


@pytest.mark.parametrize("target", ODD, ids=repr)
def test_requests_without_a_choice_are_refused(target):
    with pytest.raises(InputError, match=r"expected a target .*trr=0\.95.* got"):
        td.Tuned.fit(rows(), target=target)


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, 95, math.nan, "0.9", True])
@pytest.mark.parametrize("name", ["risk", "trr", "joint", "frr", "coverage"])
def test_a_rate_out_of_range_is_refused(name, value):
    for target in ({name: value}, {"risk": 0.1, "trr": 0.9, name: value}):
        with pytest.raises(InputError, match=f"expected .*{name}.* got"):
            td.tune(rows(), **(target or {}))


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "5"])
def test_a_cost_out_of_range_is_refused(value):
    with pytest.raises(InputError, match="cost") as refused:
        td.tune(rows(), cost=value)
    assert "between 0 and 1" not in str(refused.value)


def test_numbers_of_numpy_are_numbers():
    p = rows()
    for plain, other in ((0.5, np.float32(0.5)), (0.5, np.float64(0.5))):
        by_float, by_numpy = (td.tune(p, trr=value) for value in (plain, other))
        assert (by_float.members, by_float.target) == (
            by_numpy.members,
            by_numpy.target,
        )
    assert td.tune(p, cost=np.int64(5)).target == "cost 5"


def rows_with(errors, correct):
    z = np.random.default_rng(0).normal(size=(errors + correct, 4))
    return td.Predictions.from_logits(
        z, (z.argmax(1) + (np.arange(len(z)) < errors)) % 4
    )


def test_ten_of_each_kind_are_enough():
    assert td.tune(rows_with(10, 10)).n == 20
    for errors, correct in ((9, 500), (500, 9), (0, 50), (50, 0)):
        with pytest.raises(
            InputError, match=f"10 errors .* got {errors} and {correct}"
        ):
            td.tune(rows_with(errors, correct))


def test_rows_that_say_too_little_are_refused(rng):
    p = rows(99)
    with pytest.raises(LabelsMissingError, match="labels"):
        td.tune(td.Predictions.from_logits(p.logits))
    answers = td.Predictions.from_confidence(rng.random(99), correct=~p.errors)
    with pytest.raises(InputError, match="their confidence only"):
        td.tune(answers)
    top_k = td.Predictions.from_topk([[0.7, 0.2]] * 99, [[0, 1]] * 99, [0] * 99)
    with pytest.raises(InputError, match="their top 2 classes only"):
        td.tune(top_k)
    for rows_of_another_kind in (p.logits, None):
        with pytest.raises(InputError, match="expected Predictions, got"):
            td.tune(rows_of_another_kind)
    for average in (0, -1, 2.0, True, None):
        with pytest.raises(InputError, match=r"expected average .* got"):
            td.tune(p, average=average)


def test_members_are_found_by_name():
    p = rows(50)
    for name in FAMILY:
        plain, _, warm = name.partition(":temperature=")
        score = find_logit_score(name)
        assert score.registered_name == plain.partition(":")[0]
        assert all(f"{n}={v:g}" in plain for n, v in score.parameters.items())
        assert score.temperature == (float(warm) if warm else 1)
    doubts = find_logit_score("alpha:temperature=0.5")(p)
    np.testing.assert_allclose(doubts, td.alpha(2 * p.logits), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["knn", "tuned", "", "confidence", "pnorm:p=0.5"])
def test_members_that_do_not_exist_are_named(name):
    with pytest.raises(InputError) as refused:
        find_logit_score(name)
    assert "temperature" not in str(refused.value)


@pytest.mark.parametrize("warm", ["", "x", "0", "-1", "nan", "inf", "2:temperature=3"])
def test_temperatures_of_members_that_make_no_sense_are_refused(warm):
    with pytest.raises(InputError, match="temperature"):
        find_logit_score(f"alpha:temperature={warm}")


def counting(score, passes):
    def count(logits, *args, **options):
        passes.append(len(logits))
        return score(logits, *args, **options)

    return count


def test_no_more_passes_over_the_rows_than_candidates(monkeypatch):
    """Scores of one temperature share a pass; checking parameters takes none."""
    passes = []
    for module, name in (
        (registry, "score_kinds"),
        (contract, "score_kinds"),
        (softmax, "score_rows"),
        (normalisation, "score_rows"),
    ):
        monkeypatch.setattr(module, name, counting(getattr(module, name), passes))
    score = td.Tuned.fit(rows())
    # Six kernels at temperature 1 take one pass; alpha and beta share six others.
    shared = 11 if _native.available else 0
    assert passes == [400] * (score.n_candidates + 1 - shared)
    passes.clear()
    score(rows())
    assert len(passes) <= len(score.members)
