"""Calibrating a cascade: its promise against a known truth, and what is measured."""

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


def drawn(stages, rows, seed):
    said, labels = population(stages)
    at = np.random.default_rng(seed).integers(0, len(labels), rows)
    return [z[at] for z in said], labels[at]


BROKEN = {
    "risk": lambda wrong, kept, value: wrong[kept].mean() > value if kept.any() else 0,
    "joint": lambda wrong, kept, value: (wrong & kept).mean() > value,
    "trr": lambda wrong, kept, value: (~kept)[wrong].mean() < value,
}


def broken(target, *, stages=2, rows=900, times=60, **options):
    """How often the promise does not hold in the population, of so many times."""
    said, labels = population(stages)
    ((name, value),) = target.items()
    count = 0
    for seed in range(times):
        mine, known = drawn(stages, rows, seed)
        given = {"costs": COSTS[stages], "seed": seed, **target, **options}
        try:
            done = Cascade.calibrate(mine, known, **given).screen(said)
        except NoPolicyError:
            continue
        count += bool(BROKEN[name](done.predicted != labels, done.accepted, value))
    return count


def allowed(times, share=0.1):
    """So many are broken by chance in one simulation of a thousand."""
    return stats.binom.ppf(0.999, times, share)


TARGETS = [{"trr": 0.8}, {"joint": 0.05}, {"risk": 0.1}]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("combine", ["average", "own"])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_promise_is_kept(target, combine):
    assert broken(target, combine=combine, rows=600, times=50) <= allowed(50)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_promise_is_kept_by_three_stages(target):
    assert broken(target, stages=3, rows=500, times=25) <= allowed(25)


@pytest.mark.soak
def test_the_promise_is_kept_beside_lists():
    assert broken({"risk": 0.1}, rows=900, times=40, shortlist=0.9) <= allowed(40)


@pytest.mark.soak
@pytest.mark.parametrize("confidence", [0.9, 0.5])
@pytest.mark.parametrize("rows", [150, 1000])
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_promise_is_kept_whatever_is_asked(target, stages, rows, confidence):
    options = {"stages": stages, "rows": rows, "times": 100, "combine": "own"}
    found = broken(target, confidence=confidence, **options)
    assert found <= allowed(100, 1 - confidence)


def test_a_test_that_is_not_kept_would_be_seen():
    """Taking the cheapest policy that looks good breaks the promise often."""
    from trustdoctor.opinion.policies import (
        StageDoubts,
        count_all,
        count_some,
        list_thresholds,
    )

    said, labels = population(1)
    doubts, wrong = td.alpha(said[0]), said[0].argmax(1) != labels
    count = 0
    for seed in range(50):
        at = np.random.default_rng(seed).integers(0, len(labels), 600)
        rows = StageDoubts(doubts[at][:, None], wrong[at][:, None])
        every = count_all(rows, [0, 12], list_thresholds(rows))
        good = np.flatnonzero((every.rate("risk") <= 0.15) & (every.accepted > 0))
        best = every.thresholds[good[np.argmin(every.cost[good])]]
        judged = count_some(
            StageDoubts(doubts[:, None], wrong[:, None]), [0, 12], best[None]
        )
        count += bool(judged.rate("risk")[0] > 0.15)
    assert count > allowed(50)


@pytest.mark.parametrize(
    "options",
    [
        {},
        *(
            pytest.param(one, marks=pytest.mark.soak)
            for one in ({"combine": "own"}, {"stages": 3})
        ),
    ],
    ids=str,
)
def test_lists_hold_the_truth_of_the_rows_that_go_to_a_person(options):
    """On average over calibrations, and judged on the population."""
    stages = options.get("stages", 2)
    more = {k: v for k, v in options.items() if k != "stages"}
    said, labels = population(stages)
    found = []
    for seed in range(30):
        mine, known = drawn(stages, 900, seed)
        given = {"costs": COSTS[stages], "joint": 0.08, "shortlist": 0.8, "seed": seed}
        cascade = Cascade.calibrate(mine, known, **given, **more)
        done = cascade.screen([z[:5000] for z in said])
        going = np.flatnonzero(~done.accepted)
        found.append(done.shortlist[going, labels[:5000][going]].mean())
    error = np.std(found) / np.sqrt(len(found))
    assert np.mean(found) >= 0.8 - 3 * error
    assert np.mean(found) <= 0.8 + 0.03 + 3 * error


# --- what is measured ---------------------------------------------------------------


def walked(cascade, said, labels):
    done = cascade.screen(said)
    return done, done.predicted != labels


def parts(rows, seed=0, share=1 / 3):
    """The rows that list policies, and those that test them."""
    order = np.random.default_rng(seed).permutation(rows)
    cut = round(share * rows)
    return order[:cut], order[cut:]


@pytest.mark.parametrize("combine", ["average", "own"])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_what_is_measured_is_what_screening_finds_on_the_rows_that_tested(
    target, combine
):
    said, labels = drawn(2, 1500, 3)
    cascade = Cascade.calibrate(said, labels, costs=COSTS[2], combine=combine, **target)
    seen, (listed, tested) = cascade.measured, parts(1500)
    assert (seen.listed_by, seen.rows) == (len(listed), len(tested)) == (500, 1000)
    done, wrong = walked(cascade, [z[tested] for z in said], labels[tested])
    kept = done.accepted
    assert seen.whole.cost.value == pytest.approx(done.costs.mean())
    half = 1.959964 * done.costs.std() / np.sqrt(1000)
    assert seen.whole.cost.high - seen.whole.cost.value == pytest.approx(half, rel=1e-6)
    assert seen.whole.person == pytest.approx((~kept).mean())
    asked = [(done.passes > k).mean() for k in range(2)]
    if combine == "average":
        assert seen.asked == pytest.approx(asked)
    wholes = {"risk": kept.sum(), "joint": 1000, "trr": wrong.sum()}
    ((name, value),) = target.items()
    assert seen.whole.rate == pytest.approx((wrong & kept).sum() / wholes[name])
    limit = 1 - value if name == "trr" else value
    assert seen.limit == pytest.approx(limit)
    assert stats.binom.cdf((wrong & kept).sum(), wholes[name], limit) <= 0.1
    certificate = cascade.certificate
    assert (certificate.n, certificate.n_errors) == (1000, wrong.sum())
    assert certificate.observed["coverage"].value == pytest.approx(kept.mean())
    assert certificate.target == target


def test_the_sequence_of_tests_ends_at_the_first_that_fails():
    said, labels = drawn(2, 1500, 3)
    cascade = Cascade.calibrate(said, labels, costs=COSTS[2], risk=0.1)
    seen = cascade.measured
    assert 1 <= seen.passed <= len(seen.tested) <= seen.passed + 1
    rate, cost = seen.tested[seen.passed - 1]
    assert rate == pytest.approx(seen.whole.rate, rel=1e-5)
    assert cost == pytest.approx(seen.whole.cost.value, rel=1e-5)


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_each_model_alone_has_its_own_gate_for_the_same_promise(target):
    said, labels = drawn(2, 1500, 4)
    names = ["small", "large"]
    cascade = Cascade.calibrate(said, labels, costs=COSTS[2], names=names, **target)
    listed, tested = parts(1500)
    whole = cascade.screen([z[tested] for z in said]).costs
    for k, alone in enumerate(cascade.measured.alone):
        rows = np.append(listed, tested)
        gate = td.calibrate(
            Predictions.from_logits(said[k][rows], labels[rows]), **target
        )
        p = Predictions.from_logits(said[k][tested], labels[tested])
        kept = gate.screen(p).accepted
        cost = COSTS[2][k] + 12 * ~kept
        assert alone.name == names[k]
        assert alone.cost.value == pytest.approx(cost.mean())
        assert alone.person == pytest.approx((~kept).mean())
        assert alone.more.value == pytest.approx((cost - whole).mean())
        wholes = {"risk": kept.sum(), "joint": 1000, "trr": p.errors.sum()}
        (name,) = target
        assert alone.rate == pytest.approx(
            (p.errors & kept).sum() / max(1, wholes[name])
        )


def test_a_cascade_costs_less_than_either_model_alone():
    said, labels = drawn(2, 6000, 5)
    seen = Cascade.calibrate(said, labels, costs=COSTS[2], risk=0.1).measured
    assert all(one.more.low > 0 for one in seen.alone)


def test_the_interval_of_the_cost_covers_it():
    said, _ = population()
    covered = 0
    for seed in range(40):
        mine, known = drawn(2, 900, seed)
        cascade = Cascade.calibrate(mine, known, costs=COSTS[2], joint=0.08, seed=seed)
        cost = cascade.measured.whole.cost
        covered += cost.low <= cascade.screen(said).costs.mean() <= cost.high
    assert covered >= stats.binom.ppf(0.001, 40, 0.93)


# --- which rows, which labels -------------------------------------------------------


def test_rows_without_a_label_are_not_asked_about():
    said, labels = drawn(2, 1200, 6)
    holes = np.where(np.arange(1200) % 3, labels, np.nan)
    asked = [[], []]

    def model(k):
        def ask(rows):
            asked[k] += rows[:, 0].tolist()
            return said[k][rows[:, 0]]

        return ask

    known = np.flatnonzero(np.arange(1200) % 3)
    options = {"costs": COSTS[2], "joint": 0.08}
    data = np.arange(1200)[:, None]
    lazy = Cascade.calibrate([model(0), model(1)], holes, data=data, **options)
    assert asked == [known.tolist()] * 2  # each once
    plain = Cascade.calibrate([z[known] for z in said], labels[known], **options)
    assert lazy == plain
    ids = known.astype(str)
    first = Predictions.from_logits(said[0], holes, ids=np.arange(1200))
    later = Predictions.from_logits(said[1][known], ids=ids)
    assert Cascade.calibrate([first, later], **options) == plain


def test_the_seed_and_the_share_part_the_rows():
    said, labels = drawn(2, 900, 7)
    options = {"costs": COSTS[2], "joint": 0.08}
    plain = Cascade.calibrate(said, labels, **options)
    assert Cascade.calibrate(said, labels, **options, seed=0) == plain
    assert Cascade.calibrate(said, labels, **options, seed=1) != plain
    half = Cascade.calibrate(said, labels, **options, share=0.5).measured
    assert (half.listed_by, half.rows) == (450, 450)
    listed = Cascade.calibrate(said, labels, **options, shortlist=0.9)
    assert (listed.measured.listed_by, listed.measured.rows) == (200, 400)
    notes = " ".join(listed.certificate.notes)
    assert "200 rows listed the policies, 400 others tested them" in notes
    assert "holds the true class with probability at least 0.9" in notes


def test_classes_are_kept():
    said, labels = drawn(2, 900, 7)
    options = {"costs": COSTS[2], "joint": 0.08}
    assert Cascade.calibrate(said, labels, **options).classes == CLASSES
    named = [Predictions.from_logits(z, class_names="wxyz") for z in said]
    words = [None if i % 9 == 0 else "wxyz"[k] for i, k in enumerate(labels)]
    assert Cascade.calibrate(named, words, **options).classes == ("w", "x", "y", "z")


def test_scores_of_true_logits_are_for_models_that_answer_by_themselves():
    said, labels = drawn(2, 900, 7)
    options = {"costs": COSTS[2], "trr": 0.5, "score": "energy"}
    with pytest.raises(InputError, match="needs the logits of one model"):
        Cascade.calibrate(said, labels, **options)
    own = Cascade.calibrate(said, labels, **options, combine="own")
    assert own.score == "energy"
    assert np.array_equal(
        own.screen(said).scores[own.screen(said).passes == 1],
        td.energy(said[own.asked[0]])[own.screen(said).passes == 1],
    )


GOOD = {"risk": 0.1, "costs": [0, 1, 12]}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"risk": None}, "one promise for the whole cascade, .* got none"),
        ({"joint": 0.1}, "one promise .* got risk, joint"),
        ({"risk": None, "frr": 0.1}, "out of risk, joint, trr, got frr"),
        ({"nothing": 1}, "expected a target out of .*'nothing'"),
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
        ({"shortlist": {"odd": 1}}, "a shortlist's level, .* got 'odd'"),
        ({"ids": np.arange(3)}, "as many ids"),
        ({"data": np.zeros((3, 2))}, "data only beside models"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_for_is_refused_in_a_line(change, match):
    said, labels = drawn(2, 200, 0)
    options = {
        k: v for k, v in (GOOD | change).items() if v is not None or k == "costs"
    }
    with pytest.raises(InputError, match=match) as found:
        Cascade.calibrate(said, labels, **options)
    assert "\n" not in str(found.value)


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
def test_mistakes_are_told_before_a_model_is_asked(change):
    said, labels = drawn(2, 200, 0)
    asked = []
    models = [lambda rows: asked.append(rows) or rows] * 2
    with pytest.raises(InputError):
        Cascade.calibrate(models, labels, data=said[0], **(GOOD | change))
    assert not asked


def test_numbers_of_any_kind_are_taken():
    said, labels = drawn(2, 900, 7)
    plain = Cascade.calibrate(said, labels, joint=0.25, costs=COSTS[2], seed=3)
    other = {"joint": np.float32(0.25), "costs": np.array(COSTS[2]), "seed": np.int8(3)}
    found = Cascade.calibrate(said, labels, confidence=np.float64(0.9), **other)
    assert found == plain
    Cascade.calibrate(said, labels, confidence=np.float32(0.9), **other)


def test_a_promise_that_no_policy_keeps_is_told_with_numbers():
    said, labels = drawn(2, 300, 0)
    for target in ({"risk": 1e-4}, {"joint": 1e-5}, {"trr": 0.9999}):
        ((name, value),) = target.items()
        with pytest.raises(NoPolicyError, match=f"no policy keeps {name} {value:g}"):
            Cascade.calibrate(said, labels, costs=COSTS[2], **target)
    blind = [np.zeros((300, CLASSES)) + 1e-3 * np.arange(CLASSES)] * 2
    with pytest.raises(NoPolicyError, match=r"wrong answers of .* accepted answers"):
        Cascade.calibrate(blind, labels, **GOOD)
    assert issubclass(NoPolicyError, InputError)


def test_too_few_rows_and_no_labels_are_told():
    said, labels = drawn(2, 300, 0)
    few = [z[:19] for z in said]
    with pytest.raises(InputError, match=r"at least 20 labelled rows .* got 19"):
        Cascade.calibrate(few, labels[:19], **GOOD)
    few = [z[:28] for z in said]
    with pytest.raises(InputError, match=r"third for the lists, .* got 28"):
        Cascade.calibrate(few, labels[:28], shortlist=0.9, **GOOD)
    with pytest.raises(LabelsMissingError, match="needs labels"):
        Cascade.calibrate(said, **GOOD)
    with pytest.raises(LabelsMissingError, match="needs labels"):
        Cascade.calibrate(said, np.full(300, np.nan), **GOOD)
    with pytest.raises(InputError, match="labels"):
        Cascade.calibrate(said, labels[:5], **GOOD)
    with pytest.raises(InputError, match="labels from 0 to 3"):
        Cascade.calibrate(said, labels + 1, **GOOD)
    models = [lambda x: x, lambda x: x]
    for wrong in (labels + 1, labels - 1):
        with pytest.raises(InputError, match=r"labels from 0 to 3|got -1"):
            Cascade.calibrate(models, wrong, data=said[0], **GOOD)
    for given in (None, said[0], len, []):
        with pytest.raises(InputError, match="stages as a list"):
            Cascade.calibrate(given, labels, **GOOD)


@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")
def test_certain_and_tied_models():
    """Doubts of -inf, ties everywhere, and errors among the certain."""
    said, labels = drawn(2, 1500, 8)
    certain = [Predictions.from_probs(np.eye(CLASSES)[z.argmax(1)]) for z in said]
    for combine in ("average", "own"):
        given = {"costs": COSTS[2], "risk": 0.35, "combine": combine}
        cascade = Cascade.calibrate(certain, labels, **given)
        _, tested = parts(1500)
        done, wrong = walked(cascade, [p[tested] for p in certain], labels[tested])
        assert done.costs.mean() == pytest.approx(cascade.measured.whole.cost.value)
        assert wrong[done.accepted].mean() <= 0.35
    with pytest.raises(NoPolicyError):
        Cascade.calibrate(certain, labels, risk=0.01, costs=COSTS[2])
    right = [5 * np.eye(CLASSES)[labels]] * 2
    perfect = Cascade.calibrate(right, labels, risk=0.05, costs=COSTS[2])
    assert perfect.measured.whole.cost.value == 0
    with pytest.raises(NoPolicyError, match="0 errors"):
        Cascade.calibrate(right, labels, trr=0.5, costs=COSTS[2])
