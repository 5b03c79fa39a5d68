"""The outlook on other calibrations, against populations known exactly."""

import json

import numpy as np
import pytest
from scipy.stats import binom

import trustdoctor as td
from trustdoctor.errors import FileError
from trustdoctor.gates import Rows, outlook
from trustdoctor.gates.boundary import find_boundary
from trustdoctor.gates.outlook import (
    CountedRows,
    Outlook,
    Population,
    find_sufficient_rows,
    simulate_outlook,
)
from trustdoctor.gates.request import Request
from trustdoctor.metrics import Sketch


def binormal(rng, rows):
    errors = rng.random(rows) >= 0.9
    return rng.normal(size=rows) + 2.0 * errors, errors


def four_values(rng, rows):
    scores, errors = binormal(rng, rows)
    return np.digitize(scores, [-0.5, 0.5, 1.5]).astype(float), errors


def rule(**target):
    ask = Request(target)
    return lambda sample: ask.cut(sample, ask.delta)


def observed_share(draw, rows, risk, *, samples):
    """Return how often the rule of risk passes; written again, from its definition.

    It passes where so few errors are among the first rows, whatever their number, that
    a binomial law of this risk has fewer with the boundary's level; or as few among the
    first 30% of the rows, or as many as can pass at all, in 8% of cases.
    """
    rng, passes = np.random.default_rng(11), 0
    level = find_boundary(rows, risk, 0.1).level
    start = max(np.ceil(0.3 * rows), np.ceil(np.log(0.08) / np.log1p(-risk)))
    for _ in range(samples):
        scores, errors = draw(rng, rows)
        order = np.argsort(scores, kind="stable")
        scores, wrong = scores[order], np.cumsum(errors[order])
        accepted = np.flatnonzero(np.append(scores[1:] > scores[:-1], True)) + 1
        p_values = binom.cdf(wrong[accepted - 1], accepted, risk)
        first = np.searchsorted(accepted, start)  # the first threshold of the sequence
        passes += (p_values <= level).any() or (p_values[first:][:1] <= 0.08).any()
    return passes / samples


@pytest.mark.parametrize(
    ("draw", "rows", "risk"),
    [
        (binormal, 300, 0.02),
        (binormal, 500, 0.03),
        (four_values, 300, 0.02),
        (four_values, 300, 0.05),
    ],
)
def test_stated_and_observed_shares_agree(draw, rows, risk):
    """Within 10 points, and two standard errors of the mean of 40 statements."""
    rng, stated = np.random.default_rng(5), []
    for _ in range(40):
        sample = Rows(*draw(rng, rows))
        stated.append(simulate_outlook(sample, rule(risk=risk), draws=40).decides)
    noise = 2 * np.std(stated) / np.sqrt(len(stated))
    truth = observed_share(draw, rows, risk, samples=1000)
    assert abs(np.mean(stated) - truth) < 0.1 + noise


def test_the_share_is_exact_where_only_the_number_of_errors_counts():
    """A TRR of 90% can be promised from 22 errors on: 0.9^22 < 0.1 < 0.9^21."""
    rng = np.random.default_rng(0)
    for n_errors in (15, 20, 30):
        sample = Rows(rng.normal(size=200), np.arange(200) < n_errors)
        stated = simulate_outlook(sample, rule(trr=0.9), draws=400).decides
        exact = binom.sf(21, 200, n_errors / 200)
        assert abs(stated - exact) < 4 * np.sqrt(0.25 / 400)


def test_errors_are_expected_before_the_first_one_too():
    scores = np.arange(400.0)
    population = Population.of(Rows(scores, scores >= 200))
    assert population.errors.sum() == pytest.approx(200)
    assert population.errors[:200].sum() > 1
    assert (population.errors >= 0).all()


def test_far_errors_stay_far():
    scores = np.append(np.arange(1000.0), 1e6 + np.arange(100.0))
    population = Population.of(Rows(scores, scores > 1e5))
    assert population.errors[:500].sum() < 0.01


def test_the_same_rows_get_the_same_answer_in_any_order():
    rng = np.random.default_rng(3)
    scores, errors = binormal(rng, 300)
    order = rng.permutation(300)
    first = simulate_outlook(Rows(scores, errors), rule(risk=0.02))
    assert simulate_outlook(Rows(scores, errors), rule(risk=0.02)) == first
    assert (
        simulate_outlook(Rows(scores[order], errors[order]), rule(risk=0.02)) == first
    )


def test_the_scale_of_the_scores_does_not_matter():
    scores, errors = binormal(np.random.default_rng(3), 300)
    first = simulate_outlook(Rows(scores, errors), rule(risk=0.02))
    assert simulate_outlook(Rows(np.exp(scores), errors), rule(risk=0.02)) == first


@pytest.mark.parametrize("rows", [2000, 20_000])
def test_merging_groups_hardly_changes_what_is_accepted(rows):
    for seed in range(10):
        sample = Rows(*binormal(np.random.default_rng(seed), rows))
        merged = Population.of(sample).counts
        assert len(merged.errors) <= 1024
        assert merged.n_errors == sample.n_errors
        assert merged.n_correct == rows - sample.n_errors
        coverages = []
        for counted in (sample, CountedRows(merged)):
            cut = rule(risk=0.05)(counted)
            coverages.append(outlook._coverage(cut, counted))
        assert abs(coverages[0] - coverages[1]) < 0.001


@pytest.mark.parametrize("draw", [binormal, four_values])
def test_counted_rows_answer_as_the_rows_do(draw):
    scores, errors = draw(np.random.default_rng(2), 60)
    scores[:3] = -np.inf
    rows = Rows(scores, errors)
    counted = CountedRows(rows.counts)
    assert (len(counted), counted.n_errors) == (len(rows), rows.n_errors)
    for k in range(1, 61):
        assert counted.accepted_by_kth(k) == rows.accepted_by_kth(k)
    for threshold in (-np.inf, np.inf, *scores, *(scores + 0.25)):
        assert counted.confusion(threshold) == rows.confusion(threshold)
    for kind in ("correct", "errors", "all"):
        ours, theirs = counted.of_kind(kind), rows.of_kind(kind)
        assert len(ours) == len(theirs)
        for k in range(1, len(ours) + 1):
            assert ours.kth(k) == theirs.kth(k)
        for score in scores:
            assert ours.above(score) == theirs.above(score)
            assert ours.below(score) == theirs.below(score)
            assert ours.just_below(score) == theirs.just_below(score)
    for target in ({"risk": 0.3}, {"frr": 0.2}, {"trr": 0.4}, {"joint": 0.2}):
        ours, theirs = rule(**target)(counted), rule(**target)(rows)
        assert (ours.state, ours.side) == (theirs.state, theirs.side)
        assert ours.score == pytest.approx(theirs.score, nan_ok=True)


def test_the_rows_that_are_enough_are_the_fewest_that_were_tried():
    for seed in range(3):
        sample = Rows(*binormal(np.random.default_rng(seed), 150))
        find_cut = rule(risk=0.01)
        looks = find_sufficient_rows(sample, find_cut)
        every = [
            simulate_outlook(sample, find_cut, rows=rows)
            for rows in outlook._round_numbers(150)
            if rows <= looks[-1].rows
        ]
        assert looks[0] == simulate_outlook(sample, find_cut)
        assert looks[1] == every[-1]
        assert all(look.decides < outlook.LIKELY for look in every[:-1])


def test_the_predicted_number_of_rows_is_mostly_enough():
    rng, successes = np.random.default_rng(8), []
    find_cut = rule(risk=0.01)
    while len(successes) < 10:
        sample = Rows(*binormal(rng, 200))
        if find_cut(sample).failed:
            enough = find_sufficient_rows(sample, find_cut)[-1].rows
            successes.append(not find_cut(Rows(*binormal(rng, enough))).failed)
    assert np.mean(successes) > 0.6


def test_no_number_of_rows_is_enough_where_no_coverage_meets_the_risk():
    rng = np.random.default_rng(0)
    sample = Rows(rng.normal(size=500), rng.random(500) < 0.2)
    looks = find_sufficient_rows(sample, rule(risk=0.05))
    assert len(looks) == 1
    assert looks[0].decides < 0.1


@pytest.mark.parametrize("errors", [np.ones(30, bool), np.zeros(30, bool)])
def test_samples_of_one_kind_get_no_outlook(errors):
    gate = td.calibrate_scores(np.arange(30.0), errors, risk=0.05)
    assert gate.state == "reject-all"
    assert gate.certificate.outlook == ()
    sample = Rows(np.arange(30.0), errors)
    assert simulate_outlook(sample, rule(risk=0.05)).decides == 0


def test_fully_certain_errors_are_drawn_again():
    scores = np.where(np.arange(100) < 30, -np.inf, np.arange(100.0))
    sample = Rows(scores, np.arange(100) % 10 == 0)
    assert simulate_outlook(sample, rule(risk=0.05)).decides < 0.1
    assert Population.of(sample).errors.sum() == pytest.approx(10)


def test_coverages_describe_the_calibrations_that_decide():
    sample = Rows(*binormal(np.random.default_rng(1), 1000))
    look = simulate_outlook(sample, rule(risk=0.05))
    cut = rule(risk=0.05)(sample)
    assert 0 < look.low <= look.median <= look.high <= 1
    assert look.low - 0.1 < outlook._coverage(cut, sample) < look.high + 0.1


@pytest.mark.parametrize(
    ("decides", "often"),
    [
        (0.0, "none of 10"),
        (0.01, "fewer than 1 of 20"),
        (0.049, "fewer than 1 of 20"),
        (0.05, "about 1 of 10"),
        (0.14, "about 1 of 10"),
        (0.15, "about 2 of 10"),
        (0.5, "about 5 of 10"),
        (0.94, "about 9 of 10"),
        (0.95, "nearly all"),
        (1.0, "nearly all"),
    ],
)
def test_words(decides, often):
    words = Outlook(12_345, decides, 0.1, 0.2, 0.3).words()
    assert words == f"with 12,345 rows like these in {often} calibrations"


@pytest.fixture(scope="module")
def failed():
    scores, errors = binormal(np.random.default_rng(1), 300)
    gate = td.calibrate_scores(scores, errors, risk=0.01)
    assert gate.state == "reject-all"
    assert len(gate.certificate.outlook) == 2
    return gate


def test_the_outlook_is_part_of_the_file(failed, tmp_path):
    failed.save(tmp_path / "gate.json")
    loaded = td.Gate.load(tmp_path / "gate.json")
    assert loaded.certificate.outlook == failed.certificate.outlook
    assert loaded == failed


def test_a_gate_that_decides_has_no_outlook():
    scores, errors = binormal(np.random.default_rng(4), 2000)
    gate = td.calibrate_scores(scores, errors, risk=0.05)
    assert gate.certificate.outlook == ()
    assert "outlook" not in json.loads(gate.to_json())["certificate"]


@pytest.mark.parametrize(
    "look",
    [
        [0, 0.5, 0.1, 0.2, 0.3],
        [-1, 0.5, 0.1, 0.2, 0.3],
        [1.5, 0.5, 0.1, 0.2, 0.3],
        [True, 0.5, 0.1, 0.2, 0.3],
        [1 << 60, 0.5, 0.1, 0.2, 0.3],
        [100, 1.5, 0.1, 0.2, 0.3],
        [100, -0.5, 0.1, 0.2, 0.3],
        [100, None, 0.1, 0.2, 0.3],
        [100, "0.5", 0.1, 0.2, 0.3],
        [100, 0.5, 0.4, 0.2, 0.3],
        [100, 0.5, 0.1, 0.2],
        [100, 0.5, 0.1, 0.2, 0.3, 0.4],
        {"rows": 100},
        "text",
    ],
    ids=str,
)
def test_a_tampered_outlook_is_refused(failed, look, tmp_path):
    path = tmp_path / "gate.json"
    content = json.loads(failed.to_json())
    content["certificate"]["outlook"] = [look]
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=r"outlook|expected"):
        td.Gate.load(path)


# Gates that passed because almost no error was possible at their size.


def flags(scores, errors, n, runs, risk, seed=0):
    """Return which of many gates are not trivial, flagged, and broken on all rows."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(runs):
        drawn = rng.choice(len(scores), n, replace=False)
        gate = td.calibrate_scores(scores[drawn], errors[drawn], risk=risk)
        accepted = gate.accept(scores)
        broken = bool(accepted.any() and errors[accepted].mean() > risk)
        out.append(
            (gate.state != "reject-all", gate.certificate.passed_by_chance, broken)
        )
    return np.array(out).T


@pytest.mark.soak
def test_gates_that_passed_by_chance_are_flagged(shared):
    """IMDb: one calibration in eight accepts anything, and most of those break."""
    p = td.read(shared / "predictions" / "minilm-imdb-test.npz")
    passing, by_chance, broken = flags(td.alpha(p), p.errors, 500, 500, risk=0.01)
    assert 0.05 < passing.mean() < 0.25
    assert broken.mean() <= 0.1
    assert (broken & passing).sum() / passing.sum() > 0.4
    assert (by_chance & broken).sum() / broken.sum() > 0.75
    assert not (by_chance & ~passing).any()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("n", "risk"), [(500, 0.05), (2000, 0.02)])
def test_gates_on_enough_rows_are_not(n, risk, rng):
    errors = rng.random(50_000) < 0.1
    scores = rng.normal(size=50_000) + 2 * errors
    passing, by_chance, _ = flags(scores, errors, n, 200, risk=risk)
    assert passing.mean() > 0.9
    assert by_chance.mean() < 0.03


@pytest.mark.more
def test_no_gate_passes_by_chance_where_one_error_is_allowed(rng):
    """By scipy: the flag needs that one error would have failed."""
    errors = rng.random(4000) < 0.2
    scores = rng.normal(size=4000) + errors
    for seed in range(150):
        drawn = np.random.default_rng(seed).choice(4000, 300)
        gate = td.calibrate_scores(scores[drawn], errors[drawn], risk=0.05)
        if gate.certificate.passed_by_chance:
            n_accepted = int(gate.accept(scores[drawn]).sum())
            assert binom.cdf(1, n_accepted, 0.05) > 0.01
            assert not errors[drawn][gate.accept(scores[drawn])].any()


def without_errors_accepted(first=250):
    """No error among the first rows, then every third."""
    errors = (np.arange(500) >= first) & (np.arange(500) % 3 == 0)
    return np.arange(500.0), errors


@pytest.mark.parametrize("width", [10, 20, 40])
def test_a_gate_that_one_error_would_not_have_failed_is_not_flagged(width):
    """Both the boundary and the sequence end at the tied rows; one is less strict."""
    rows = np.arange(300)
    scores = np.where(rows < 100, rows, 100 + (rows - 100) // width * width)
    errors = (rows >= 100) & (rows % 3 == 0)
    gates = []
    for first_is_wrong in (False, True):
        errors[0] = first_is_wrong
        gates.append(td.calibrate_scores(scores, errors, risk=0.05))
    assert [int(gate.accept(scores).sum()) for gate in gates] == [100, 100]
    assert not any(gate.certificate.passed_by_chance for gate in gates)


def test_the_flag_is_in_the_text_the_file_and_the_gate(tmp_path):
    gate = td.calibrate_scores(*without_errors_accepted(), risk=0.01)
    assert gate.certificate.passed_by_chance
    assert "Careful: it passed with no error among 252 accepted rows" in str(
        gate.certificate.notes
    )
    assert "careful: it passed by chance" in repr(gate)
    gate.save(tmp_path / "gate.json")
    assert json.loads((tmp_path / "gate.json").read_text())["certificate"][
        "passed_by_chance"
    ]
    assert td.Gate.load(tmp_path / "gate.json").certificate.passed_by_chance


def test_groups_that_passed_by_chance_are_named():
    scores, errors = (
        np.tile(group_rows, 2) for group_rows in without_errors_accepted(330)
    )
    errors[500:] = np.arange(500) >= 495
    groups = np.repeat(["bad", "good"], 500)
    certificate = td.calibrate_scores(
        scores, errors, risk=0.01, groups=groups
    ).certificate
    assert certificate.passed_by_chance
    chance_notes = [note for note in certificate.notes if "no error among" in note]
    assert "in group bad" in chance_notes[0]
    assert "good" not in chance_notes[0]


def test_promises_say_what_their_confidence_counts(rng):
    scores = rng.normal(size=2000)
    errors = rng.random(2000) < 0.1
    certificate = td.calibrate_scores(
        scores, errors, frr=0.1, confidence=0.95
    ).certificate
    assert "at least 95 of 100 keep the promise" in certificate.notes[-1]
    for options in ({"frr": 0.1, "mode": "expectation"}, {"cost": 5}):
        notes = td.calibrate_scores(scores, errors, **options).certificate.notes
        assert not any("of 100" in note for note in notes)


def test_gates_that_decide_nothing_say_why():
    gate = td.calibrate_scores([1.0, 2.0, 3.0], [False] * 3, trr=0.95)
    assert repr(gate).startswith("Gate(reject all, because 0 errors are too few")
    gate = td.calibrate_scores([1.0, 2.0, 3.0], [False] * 3, frr=0.05)
    assert repr(gate).startswith("Gate(accept all, because 3 rows of the kind")


UNPROMISED = [
    {"frr": 0.05},
    {"frr": 0.9},  # 0.1 at confidence 0.9: where logarithms are one off
    {"trr": 0.95},
    {"trr": 0.1},
    {"risk": 0.02},
    {"risk": 0.1},
    {"risk": 0.05, "mode": "expectation"},
    {"joint": 0.02},
    {"joint": 0.9},
    {"coverage": 0.99},
    {"frr": 0.05, "trr": 0.9},
    {"frr": 0.1, "trr": 0.5},
    {"frr": 0.05, "mode": "expectation"},
    {"trr": 0.95, "mode": "expectation"},
    {"joint": 0.02, "mode": "expectation"},
]


def samples():
    """Rows of every size, good and bad, continuous, tied, and with certain errors."""
    for n in (1, 3, 10, 40, 100, 400, 1500, 3600):
        for accuracy, gap in ((0.6, 0.5), (0.9, 1.5), (0.97, 1.5)):
            for kind in ("continuous", "tied", "certain"):
                rng = np.random.default_rng(n)
                errors = rng.random(n) > accuracy
                scores = rng.normal(size=n) + gap * errors
                if kind == "tied":
                    scores = np.round(scores)
                if kind == "certain":
                    scores[rng.random(n) < 0.05] = -np.inf
                yield scores, errors


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", UNPROMISED, ids=str)
def test_an_outlook_is_given_where_a_promise_fails(target):
    """Of as many rows first; of more rows only where most calibrations succeed."""
    for scores, errors in samples():
        if len(scores) not in (10, 400):
            continue
        certificate = td.calibrate_scores(scores, errors, **target).certificate
        looks = certificate.outlook
        if not certificate.trivial or not errors.any() or errors.all():
            assert looks == ()
        if looks:
            assert looks[0].rows == len(scores)
            assert all(look.rows > len(scores) for look in looks[1:])
            assert all(look.decides >= 0.8 for look in looks[1:])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", UNPROMISED, ids=str)
def test_sketches_have_the_outlook_of_their_rows(target):
    for scores, errors in samples():
        if len(scores) == 400:
            sketch = Sketch()
            sketch.update(scores, errors)
            looks = [
                td.calibrate_scores(*rows, **target).certificate.outlook
                for rows in ((scores, errors), (sketch,))
            ]
            if all(looks):
                rows, cells = (look[0].decides for look in looks)
                assert rows == pytest.approx(cells, abs=0.15)
