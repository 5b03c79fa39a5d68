"""Calibrating a cascade: its promise against a known truth, and its measurements."""

from functools import cache

import numpy as np
import pytest
from scipy import stats

import trustdoctor as td
from trustdoctor.errors import InputError, LabelsMissingError, NoPolicyError
from trustdoctor.opinion import Cascade
from trustdoctor.predictions import Predictions

CLASSES = 4
COSTS = {1: [0, 12], 2: [0, 1, 12], 3: [0, 1, 3, 12]}


@cache
def population(stages=2, n=8000, seed=0):
    """A finite population, which is the truth where rows are drawn from it."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, n)
    truth = 2.5 * np.eye(CLASSES)[labels] + 0.7 * rng.normal(size=(n, CLASSES))
    noise = (2.0, 1.3, 0.8)[:stages]
    return [truth + s * rng.normal(size=truth.shape) for s in noise], labels


def draw(stages, rows, seed):
    logits, labels = population(stages)
    drawn_rows = np.random.default_rng(seed).integers(0, len(labels), rows)
    return [z[drawn_rows] for z in logits], labels[drawn_rows]


BROKEN = {
    "risk": lambda wrong, accepted, value: (
        wrong[accepted].mean() > value if accepted.any() else 0
    ),
    "joint": lambda wrong, accepted, value: (wrong & accepted).mean() > value,
    "trr": lambda wrong, accepted, value: (~accepted)[wrong].mean() < value,
}


def count_broken(target, *, stages=2, rows=900, draws=60, **options):
    """Return in how many draws the promise does not hold in the population."""
    logits, labels = population(stages)
    ((name, value),) = target.items()
    count = 0
    for seed in range(draws):
        sample = draw(stages, rows, seed)
        request = {"costs": COSTS[stages], "seed": seed, **target, **options}
        try:
            cascade = Cascade.calibrate(*sample, **request)
        except NoPolicyError:
            continue
        decisions, wrong = screen_and_judge(cascade, logits, labels)
        count += bool(BROKEN[name](wrong, decisions.accepted, value))
    return count


def most_broken(draws, share=0.1):
    """Return the count that chance exceeds in one simulation of a thousand."""
    return stats.binom.ppf(0.999, draws, share)


TARGETS = [{"trr": 0.8}, {"joint": 0.05}, {"risk": 0.1}]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("combine", ["average", "own"])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_promise_is_kept(target, combine):
    assert count_broken(target, combine=combine, rows=600, draws=50) <= most_broken(50)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_promise_is_kept_by_three_stages(target):
    assert count_broken(target, stages=3, rows=500, draws=25) <= most_broken(25)


@pytest.mark.soak
def test_the_promise_is_kept_with_shortlists():
    assert count_broken(
        {"risk": 0.1}, rows=900, draws=40, shortlist=0.9
    ) <= most_broken(40)


@pytest.mark.soak
@pytest.mark.parametrize("confidence", [0.9, 0.5])
@pytest.mark.parametrize("rows", [150, 1000])
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_promise_is_kept_for_every_target(target, stages, rows, confidence):
    options = {"stages": stages, "rows": rows, "draws": 100, "combine": "own"}
    broken_draws = count_broken(target, confidence=confidence, **options)
    assert broken_draws <= most_broken(100, 1 - confidence)


def test_a_test_that_is_not_kept_would_be_seen():
    """Taking the cheapest policy that looks good breaks the promise often."""
    from trustdoctor.opinion.policies import (
        StageDoubts,
        count_all,
        count_some,
        list_thresholds,
    )

    logits, labels = population(1)
    doubts, wrong = td.alpha(logits[0]), logits[0].argmax(1) != labels
    count = 0
    for seed in range(50):
        drawn_rows = np.random.default_rng(seed).integers(0, len(labels), 600)
        rows = StageDoubts(doubts[drawn_rows][:, None], wrong[drawn_rows][:, None])
        policies = count_all(rows, [0, 12], list_thresholds(rows))
        good = np.flatnonzero((policies.rate("risk") <= 0.15) & (policies.accepted > 0))
        best = policies.thresholds[good[np.argmin(policies.cost[good])]]
        on_all = count_some(
            StageDoubts(doubts[:, None], wrong[:, None]), [0, 12], best[None]
        )
        count += bool(on_all.rate("risk")[0] > 0.15)
    assert count > most_broken(50)


@pytest.mark.parametrize(
    "options",
    [
        {},
        *(
            pytest.param(options, marks=pytest.mark.soak)
            for options in ({"combine": "own"}, {"stages": 3})
        ),
    ],
    ids=str,
)
def test_lists_hold_the_truth_of_the_rows_that_go_to_a_person(options):
    """On average over calibrations, and judged on the population."""
    stages = options.get("stages", 2)
    combining = {k: v for k, v in options.items() if k != "stages"}
    logits, labels = population(stages)
    rates = []
    for seed in range(30):
        request = {"costs": COSTS[stages], "joint": 0.08, "shortlist": 0.8}
        request |= {"seed": seed, **combining}
        cascade = Cascade.calibrate(*draw(stages, 900, seed), **request)
        decisions = cascade.screen([z[:5000] for z in logits])
        rejected = np.flatnonzero(~decisions.accepted)
        rates.append(decisions.shortlist[rejected, labels[:5000][rejected]].mean())
    error = np.std(rates) / np.sqrt(len(rates))
    assert np.mean(rates) >= 0.8 - 3 * error
    assert np.mean(rates) <= 0.8 + 0.03 + 3 * error


# --- measurements -------------------------------------------------------------------


def screen_and_judge(cascade, logits, labels):
    decisions = cascade.screen(logits)
    return decisions, decisions.predicted != labels


def divide_rows(rows, seed=0, share=1 / 3):
    """The rows that list policies, and those that test them."""
    order = np.random.default_rng(seed).permutation(rows)
    end = round(share * rows)
    return order[:end], order[end:]


@pytest.mark.parametrize("combine", ["average", "own"])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_what_is_measured_is_what_screening_finds_on_the_rows_that_tested(
    target, combine
):
    logits, labels = draw(2, 1500, 3)
    cascade = Cascade.calibrate(
        logits, labels, costs=COSTS[2], combine=combine, **target
    )
    measured, (listing_rows, test_rows) = cascade.measured, divide_rows(1500)
    assert (
        (measured.listed_by, measured.rows)
        == (len(listing_rows), len(test_rows))
        == (500, 1000)
    )
    decisions, wrong = screen_and_judge(
        cascade, [z[test_rows] for z in logits], labels[test_rows]
    )
    accepted = decisions.accepted
    assert measured.whole.cost.value == pytest.approx(decisions.costs.mean())
    half_width = 1.959964 * decisions.costs.std() / np.sqrt(1000)
    assert measured.whole.cost.high - measured.whole.cost.value == pytest.approx(
        half_width, rel=1e-6
    )
    assert measured.whole.person == pytest.approx((~accepted).mean())
    asked_shares = [(decisions.passes > k).mean() for k in range(2)]
    if combine == "average":
        assert measured.asked == pytest.approx(asked_shares)
    sizes = {"risk": accepted.sum(), "joint": 1000, "trr": wrong.sum()}
    ((name, value),) = target.items()
    assert measured.whole.rate == pytest.approx((wrong & accepted).sum() / sizes[name])
    limit = 1 - value if name == "trr" else value
    assert measured.limit == pytest.approx(limit)
    assert stats.binom.cdf((wrong & accepted).sum(), sizes[name], limit) <= 0.1
    certificate = cascade.certificate
    assert (certificate.n, certificate.n_errors) == (1000, wrong.sum())
    assert certificate.observed["coverage"].value == pytest.approx(accepted.mean())
    assert certificate.target == target


def test_the_sequence_of_tests_ends_at_the_first_that_fails():
    logits, labels = draw(2, 1500, 3)
    cascade = Cascade.calibrate(logits, labels, costs=COSTS[2], risk=0.1)
    measured = cascade.measured
    assert 1 <= measured.passed <= len(measured.tested) <= measured.passed + 1
    rate, cost = measured.tested[measured.passed - 1]
    assert rate == pytest.approx(measured.whole.rate, rel=1e-5)
    assert cost == pytest.approx(measured.whole.cost.value, rel=1e-5)


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_each_model_alone_has_its_own_gate_for_the_same_promise(target):
    logits, labels = draw(2, 1500, 4)
    names = ["small", "large"]
    cascade = Cascade.calibrate(logits, labels, costs=COSTS[2], names=names, **target)
    listing_rows, test_rows = divide_rows(1500)
    cascade_costs = cascade.screen([z[test_rows] for z in logits]).costs
    for k, alone in enumerate(cascade.measured.alone):
        rows = np.append(listing_rows, test_rows)
        gate = td.calibrate(
            Predictions.from_logits(logits[k][rows], labels[rows]), **target
        )
        p = Predictions.from_logits(logits[k][test_rows], labels[test_rows])
        accepted = gate.screen(p).accepted
        model_costs = COSTS[2][k] + 12 * ~accepted
        assert alone.name == names[k]
        assert alone.cost.value == pytest.approx(model_costs.mean())
        assert alone.person == pytest.approx((~accepted).mean())
        assert alone.more.value == pytest.approx((model_costs - cascade_costs).mean())
        sizes = {"risk": accepted.sum(), "joint": 1000, "trr": p.errors.sum()}
        (name,) = target
        assert alone.rate == pytest.approx(
            (p.errors & accepted).sum() / max(1, sizes[name])
        )


def test_a_cascade_costs_less_than_either_model_alone():
    logits, labels = draw(2, 6000, 5)
    measured = Cascade.calibrate(logits, labels, costs=COSTS[2], risk=0.1).measured
    assert all(model.more.low > 0 for model in measured.alone)


def test_the_interval_of_the_cost_covers_it():
    logits, _ = population()
    covered = 0
    for seed in range(40):
        options = {"costs": COSTS[2], "joint": 0.08, "seed": seed}
        cascade = Cascade.calibrate(*draw(2, 900, seed), **options)
        cost = cascade.measured.whole.cost
        covered += cost.low <= cascade.screen(logits).costs.mean() <= cost.high
    assert covered >= stats.binom.ppf(0.001, 40, 0.93)


# --- which rows, which labels -------------------------------------------------------


def test_rows_without_a_label_are_not_asked_about():
    logits, labels = draw(2, 1200, 6)
    some_labels = np.where(np.arange(1200) % 3, labels, np.nan)
    asked_rows = [[], []]

    def model(k):
        def ask(rows):
            asked_rows[k] += rows[:, 0].tolist()
            return logits[k][rows[:, 0]]

        return ask

    labelled = np.flatnonzero(np.arange(1200) % 3)
    options = {"costs": COSTS[2], "joint": 0.08}
    data = np.arange(1200)[:, None]
    lazy = Cascade.calibrate([model(0), model(1)], some_labels, data=data, **options)
    assert asked_rows == [labelled.tolist()] * 2  # each once
    plain = Cascade.calibrate(
        [z[labelled] for z in logits], labels[labelled], **options
    )
    assert lazy == plain
    ids = labelled.astype(str)
    first = Predictions.from_logits(logits[0], some_labels, ids=np.arange(1200))
    later = Predictions.from_logits(logits[1][labelled], ids=ids)
    assert Cascade.calibrate([first, later], **options) == plain


def test_the_seed_and_the_share_part_the_rows():
    logits, labels = draw(2, 900, 7)
    options = {"costs": COSTS[2], "joint": 0.08}
    plain = Cascade.calibrate(logits, labels, **options)
    assert Cascade.calibrate(logits, labels, **options, seed=0) == plain
    assert Cascade.calibrate(logits, labels, **options, seed=1) != plain
    half = Cascade.calibrate(logits, labels, **options, share=0.5).measured
    assert (half.listed_by, half.rows) == (450, 450)
    with_lists = Cascade.calibrate(logits, labels, **options, shortlist=0.9)
    assert (with_lists.measured.listed_by, with_lists.measured.rows) == (200, 400)
    notes = " ".join(with_lists.certificate.notes)
    assert "200 rows listed the policies, 400 others tested them" in notes
    assert "holds the true class with probability at least 0.9" in notes


def test_classes_are_kept():
    logits, labels = draw(2, 900, 7)
    options = {"costs": COSTS[2], "joint": 0.08}
    assert Cascade.calibrate(logits, labels, **options).classes == CLASSES
    named = [Predictions.from_logits(z, class_names="wxyz") for z in logits]
    words = [None if i % 9 == 0 else "wxyz"[k] for i, k in enumerate(labels)]
    assert Cascade.calibrate(named, words, **options).classes == ("w", "x", "y", "z")


def test_scores_of_true_logits_are_for_models_that_answer_by_themselves():
    logits, labels = draw(2, 900, 7)
    options = {"costs": COSTS[2], "trr": 0.5, "score": "energy"}
    with pytest.raises(InputError, match="needs the logits of one model"):
        Cascade.calibrate(logits, labels, **options)
    cascade = Cascade.calibrate(logits, labels, **options, combine="own")
    assert cascade.score == "energy"
    assert np.array_equal(
        cascade.screen(logits).doubts[cascade.screen(logits).passes == 1],
        td.energy(logits[cascade.asked[0]])[cascade.screen(logits).passes == 1],
    )


GOOD = {"risk": 0.1, "costs": [0, 1, 12]}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"risk": None}, "one promise for the whole cascade, .* got none"),
        ({"joint": 0.1}, "one promise .* got risk, joint"),
        ({"risk": None, "target": {"frr": 0.1}}, "out of risk, joint, trr, got frr"),
        ({"target": {"nothing": 1}}, "expected a target out of .*'nothing'"),
        ({"risk": 0}, "risk between 0 and 1"),
        ({"risk": 1}, "risk between 0 and 1"),
        ({"risk": 5}, "risk between 0 and 1"),
        ({"risk": "much"}, "expected a number as risk"),
        ({"risk": np.nan}, "risk between 0 and 1"),
        ({"confidence": 1}, "confidence between 0 and 1"),
        ({"confidence": "sure"}, "confidence between 0 and 1"),
        ({"share": 0}, "share between 0 and 1"),
        ({"share": 0.9999}, "a share that leaves some to test"),
        ({"seed": -1}, "a seed of 0 or more"),
        ({"seed": 0.5}, "a seed of 0 or more"),
        ({"costs": None}, r"costs=\[0, 1, 10\]"),
        ({"costs": [0, 1]}, "expected 3 costs"),
        ({"costs": [1, 0, 12]}, "1, 0, 12, which falls"),
        ({"costs": [0, np.nan, 12]}, "expected 3 costs"),
        ({"costs": [0, True, 12]}, "expected 3 costs"),
        ({"score": "nothing"}, "expected a score out of"),
        ({"score": td.RelU(1 - np.eye(CLASSES))}, "names its score"),
        ({"combine": "mean"}, "'average' or 'own'"),
        ({"names": ["a"]}, "expected 2 names"),
        ({"names": ["a", "a person"]}, "'a person', who comes last"),
        ({"shortlist": 2}, "level of a shortlist"),
        ({"shortlist": {"odd": 1}}, "options of a shortlist, got 'odd'"),
        ({"ids": np.arange(3)}, "as many ids"),
        ({"data": np.zeros((3, 2))}, "data only beside models"),
    ],
    ids=str,
)
def test_invalid_requests_are_refused_in_one_line(change, match):
    logits, labels = draw(2, 200, 0)
    options = {
        k: v for k, v in (GOOD | change).items() if v is not None or k == "costs"
    }
    with pytest.raises(InputError, match=match) as refusal:
        Cascade.calibrate(logits, labels, **options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "change",
    [
        {"shortlist": 2},
        {"shortlist": {"method": "odd"}},
        {"score": "energy"},
        {"score": "nothing"},
        {"combine": "odd"},
        {"costs": [1, 0, 12]},
        {"risk": 3},
        {"names": ["a", "a"]},
        {"share": 0.9999},
    ],
    ids=str,
)
def test_mistakes_are_reported_before_a_model_is_called(change):
    logits, labels = draw(2, 200, 0)
    asked_rows = []
    models = [lambda rows: asked_rows.append(rows) or rows] * 2
    with pytest.raises(InputError):
        Cascade.calibrate(models, labels, data=logits[0], **(GOOD | change))
    assert not asked_rows


def test_numbers_of_any_kind_are_taken():
    logits, labels = draw(2, 900, 7)
    plain = Cascade.calibrate(logits, labels, joint=0.25, costs=COSTS[2], seed=3)
    other = {"joint": np.float32(0.25), "costs": np.array(COSTS[2]), "seed": np.int8(3)}
    same = Cascade.calibrate(logits, labels, confidence=np.float64(0.9), **other)
    assert same == plain
    Cascade.calibrate(logits, labels, confidence=np.float32(0.9), **other)


def test_a_promise_that_no_policy_keeps_is_refused_with_numbers():
    logits, labels = draw(2, 300, 0)
    for target in ({"risk": 1e-4}, {"joint": 1e-5}, {"trr": 0.9999}):
        ((name, value),) = target.items()
        with pytest.raises(NoPolicyError, match=f"no policy keeps {name} {value:g}"):
            Cascade.calibrate(logits, labels, costs=COSTS[2], **target)
    blind = [np.zeros((300, CLASSES)) + 1e-3 * np.arange(CLASSES)] * 2
    with pytest.raises(NoPolicyError, match=r"wrong answers of .* accepted answers"):
        Cascade.calibrate(blind, labels, **GOOD)
    assert issubclass(NoPolicyError, InputError)


def test_too_few_rows_and_missing_labels_are_reported():
    logits, labels = draw(2, 300, 0)
    first_rows = [z[:19] for z in logits]
    with pytest.raises(InputError, match=r"at least 20 labelled rows .* got 19"):
        Cascade.calibrate(first_rows, labels[:19], **GOOD)
    first_rows = [z[:28] for z in logits]
    with pytest.raises(InputError, match=r"third for the lists, .* got 28"):
        Cascade.calibrate(first_rows, labels[:28], shortlist=0.9, **GOOD)
    with pytest.raises(LabelsMissingError, match="needs labels"):
        Cascade.calibrate(logits, **GOOD)
    with pytest.raises(LabelsMissingError, match="needs labels"):
        Cascade.calibrate(logits, np.full(300, np.nan), **GOOD)
    with pytest.raises(InputError, match="labels"):
        Cascade.calibrate(logits, labels[:5], **GOOD)
    with pytest.raises(InputError, match="labels from 0 to 3"):
        Cascade.calibrate(logits, labels + 1, **GOOD)
    models = [lambda x: x, lambda x: x]
    for bad_labels in (labels + 1, labels - 1):
        with pytest.raises(InputError, match=r"labels from 0 to 3|got -1"):
            Cascade.calibrate(models, bad_labels, data=logits[0], **GOOD)
    for stages in (None, logits[0], len, []):
        with pytest.raises(InputError, match="stages as a list"):
            Cascade.calibrate(stages, labels, **GOOD)


@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")
def test_certain_and_tied_models():
    """Doubts of -inf, ties everywhere, and errors among the certain."""
    logits, labels = draw(2, 1500, 8)
    certain = [Predictions.from_probs(np.eye(CLASSES)[z.argmax(1)]) for z in logits]
    for combine in ("average", "own"):
        options = {"costs": COSTS[2], "risk": 0.35, "combine": combine}
        cascade = Cascade.calibrate(certain, labels, **options)
        _, test_rows = divide_rows(1500)
        decisions, wrong = screen_and_judge(
            cascade, [p[test_rows] for p in certain], labels[test_rows]
        )
        assert decisions.costs.mean() == pytest.approx(
            cascade.measured.whole.cost.value
        )
        assert wrong[decisions.accepted].mean() <= 0.35
    with pytest.raises(NoPolicyError):
        Cascade.calibrate(certain, labels, risk=0.01, costs=COSTS[2])
    perfect_logits = [5 * np.eye(CLASSES)[labels]] * 2
    perfect = Cascade.calibrate(perfect_logits, labels, risk=0.05, costs=COSTS[2])
    assert perfect.measured.whole.cost.value == 0
    with pytest.raises(NoPolicyError, match="0 errors"):
        Cascade.calibrate(perfect_logits, labels, trr=0.5, costs=COSTS[2])
