"""Setting the threshold of lists: against fractions, brute force and simulation."""

import json
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from msgspec import structs

import trustdoctor as td
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.gates import calibrate_scores, shortlist_calibration
from trustdoctor.gates.shortlist_calibration import (
    conformal_rank,
    conformal_rule,
    find_reference_set,
    shortlist_notes,
)
from trustdoctor.gates.shortlists import ListRule
from trustdoctor.gates.streams import NonconformitySketch, ShortlistSketch
from trustdoctor.metrics import Sketch
from trustdoctor.scores import ROUNDING

INF = math.inf
BY_RANK = {
    "frr": {"frr": 0.3},
    "frr on average": {"frr": 0.3, "mode": "expectation"},
    "trr": {"trr": 0.7},
    "trr on average": {"trr": 0.7, "mode": "expectation"},
    "joint": {"joint": 0.15},
    "joint on average": {"joint": 0.15, "mode": "expectation"},
    "coverage": {"coverage": 0.6},
    "coverage on average": {"coverage": 0.6, "mode": "expectation"},
    "threshold": {"threshold": -0.3},
}


def draw(n, seed, *, classes=4, digits=None, missing=0.0, scale=2.0):
    """Rows whose labels are drawn by their probabilities, and those."""
    rng = np.random.default_rng(seed)
    z = scale * rng.normal(size=(n, classes))
    z[:, 1:][rng.random((n, classes - 1)) < missing] = -INF
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    if digits is None:
        return td.Predictions.from_logits(z, labels), p
    stated = np.round(p, digits)
    return td.Predictions.from_probs(stated / stated.sum(1, keepdims=True), labels), p


def rank(m, level):
    """Return the least k with k / (m + 1) of at least the level."""
    exact = Fraction(Decimal(str(level)))
    return next(k for k in range(1, m + 2) if Fraction(k, m + 1) >= exact)


def above(value):
    """Return a threshold just above a value: rounding may move it that far."""
    return value + ROUNDING * max(1, abs(value)) if math.isfinite(value) else value


# --- the order statistic ------------------------------------------------------------


@pytest.mark.parametrize("level", [0.5, 0.55, 0.7, 0.9, 0.95, 0.99, 0.999])
def test_the_threshold_is_an_order_statistic(level, rng):
    for m in [*range(60), 99, 100, 101, 999, 1999]:
        k = rank(m, level)
        assert conformal_rank(m, level) == k
        nonconformity = np.append(rng.normal(size=m - m // 3), np.full(m // 3, -INF))
        at = sorted(nonconformity.tolist())[k - 1] if k <= m else INF
        assert conformal_rule(nonconformity, level) == ListRule(above(at), m)
        more = sorted([*nonconformity.tolist(), INF, INF, INF])
        k = rank(m + 3, level)
        at = more[k - 1] if k <= m else INF
        assert conformal_rule(nonconformity, level, uncovered=3) == ListRule(
            above(at), m
        )


def test_nonconformities_that_differ_by_rounding_are_listed_together():
    size = 4e-6 * np.arange(30) // 1e-5  # three of a kind
    for seed in range(20):
        jitter = np.random.default_rng(seed).uniform(-ROUNDING, ROUNDING, 30)
        at = conformal_rule(size + jitter, 0.5).threshold
        listed = {(size + jitter <= at).sum(), (size <= at).sum()}
        assert len(listed) == 1


def truths(p, short):
    """Return how nonconformity each row's true class is."""
    return np.take_along_axis(short.nonconformity(p.logits), p.labels[:, None], 1)[:, 0]


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_other_rows_set_the_lists_by_hand(method):
    first, _ = draw(600, 0)
    p, _ = draw(800, 1)
    gate = td.calibrate(first, risk=0.2)
    listed = td.shortlist(gate, p, level=0.9, method=method, max_size=3)
    rejected = ~gate.screen(p).accepted
    m = int(rejected.sum())
    nonconformity = sorted(truths(p, listed.shortlist)[rejected].tolist())
    rule = ListRule(above(nonconformity[rank(m, 0.9) - 1]), m)
    assert listed.shortlist.rule == rule
    assert not listed.shortlist.same_rows
    assert replace(listed, shortlist=None, certificate=None) == (
        replace(gate, certificate=None)
    )
    note = listed.certificate.notes[-1]
    assert f"{m:,} rejected rows set it, of rows that had no part in the gate" in note
    assert listed.certificate.notes[:-1] == gate.certificate.notes


def test_every_group_has_its_own_lists():
    p, _ = draw(1200, 2)
    groups = np.array(["a", "b", "c"])[np.arange(1200) % 3]
    gate = td.calibrate(p[:600], frr=0.2, groups=groups[:600])
    list_rows = np.flatnonzero((np.arange(1200) >= 600) & (groups != "c"))
    listed = td.shortlist(gate, p[list_rows], groups=groups[list_rows], level=0.8)
    rejected = ~gate.screen(p[list_rows], groups=groups[list_rows]).accepted
    nonconformity = truths(p[list_rows], listed.shortlist)
    for name in "ab":
        group_nonconformity = sorted(
            nonconformity[rejected & (groups[list_rows] == name)].tolist()
        )
        rule = ListRule(
            above(group_nonconformity[rank(len(group_nonconformity), 0.8) - 1]),
            len(group_nonconformity),
        )
        assert listed.shortlist.groups[name] == rule
    assert listed.shortlist.groups["c"] == ListRule(INF, 0)
    assert "Too few rejected rows for a list in c" in listed.certificate.notes[-1]
    screened = listed.screen(p, groups=groups)
    assert screened.shortlist[(groups == "c") & ~screened.accepted].all()


def test_rows_without_a_label_have_no_part():
    p, _ = draw(900, 3)
    labels = np.where(np.arange(900) % 4 == 0, None, p.labels)
    partly_labelled = td.Predictions.from_logits(p.logits, labels)
    gate = td.Gate(-0.5, score="alpha")
    assert td.shortlist(gate, partly_labelled) == td.shortlist(
        gate, partly_labelled[partly_labelled.has_label]
    )
    bare = td.calibrate(partly_labelled, coverage=0.7)
    with pytest.raises(InputError, match="some of the rows that set the threshold"):
        td.shortlist(bare, partly_labelled)
    listed = td.calibrate(partly_labelled, coverage=0.7, shortlist=0.9)
    assert not listed.shortlist.same_rows
    assert listed.certificate.n == 900 - partly_labelled.has_label.sum() // 3
    same = td.calibrate(partly_labelled, frr=0.2, shortlist=0.9)
    assert same.shortlist.same_rows
    with pytest.raises(LabelsMissingError, match="a shortlist"):
        td.shortlist(gate, td.Predictions.from_logits(p.logits))


@pytest.mark.parametrize(
    "options",
    [{"risk": 0.2}, {"cost": 5.0}, {"frr": 0.3, "trr": 0.3}, {"frr": 0.2, "by": 1}],
    ids=str,
)
def test_a_third_sets_lists_where_the_same_rows_cannot(options):
    p, _ = draw(1500, 4)
    options = dict(options)
    if options.pop("by", None):
        options["groups"] = "predicted"
    gate = td.calibrate(p, shortlist=0.9, **options)
    assert not gate.shortlist.same_rows
    assert gate.certificate.n == 1000
    order = np.random.default_rng(0).permutation(1500)
    alone = td.calibrate(p[order[500:]], **options)
    listed = td.shortlist(alone, p[order[:500]], level=0.9)
    *notes, last = gate.certificate.notes
    assert listed == (
        replace(gate, certificate=structs.replace(gate.certificate, notes=tuple(notes)))
    )
    assert last.startswith("500 labelled rows, drawn at random, set the lists")
    all_rows_gate = td.calibrate(p, **options)
    with pytest.raises(InputError, match="these rows set the threshold for"):
        td.shortlist(all_rows_gate, p)


def test_misuse_is_refused_in_one_line():
    p, _ = draw(300, 5)
    gate = td.calibrate(p, frr=0.2)
    listed = td.shortlist(gate, p)
    for base, options, match in (
        (listed, {}, "this gate has a shortlist"),
        (td.Gate(0.0), {}, "a gate that scores predictions by itself"),
        ("gate", {}, "expected a gate .* got str"),
        (gate, {"level": 0.3}, "level of a shortlist from 0.5"),
        (gate, {"method": "best"}, "out of lac, aps, raps"),
        (gate, {"penalty": 0.1}, "belong to raps, not to lac"),
        (gate, {"method": "raps", "penalty": -1}, "of 0 or more"),
        (gate, {"max_size": 0}, "max size"),
    ):
        with pytest.raises(InputError, match=match) as caught:
            td.shortlist(base, p, **options)
        assert "\n" not in str(caught.value)
    for expected, match in (
        (0.2, "level"),
        ({"size": 3}, "got 'size'"),
        ("x", "level"),
    ):
        with pytest.raises(InputError, match=match):
            td.calibrate(p, frr=0.2, shortlist=expected)
    sure = td.Predictions.from_confidence(np.linspace(0, 1, 50), np.arange(50) % 2)
    with pytest.raises(InputError, match="every class"):
        td.calibrate(sure, frr=0.2, shortlist=0.9)
    assert td.calibrate(p, frr=0.2, shortlist=np.float64(0.95)) == listed


def test_too_few_rows_are_refused_with_the_number_that_suffices():
    for level, same in ((0.95, False), (0.95, True), (0.9, True), (0.5, False)):
        p, _ = draw(400, 6)
        short = td.shortlist(td.Gate(INF, score="alpha"), p, level=level).shortlist
        assert short.rule == ListRule(INF, 0)
        (_, note) = shortlist_notes(replace(short, same_rows=same))
        least = int(note.split("At least ")[1].split()[0])
        nonconformity = np.zeros(least)
        assert conformal_rule(nonconformity, level, uncovered=same).threshold == above(
            0
        )
        assert conformal_rule(nonconformity[1:], level, uncovered=same).threshold == INF


# --- the same rows ------------------------------------------------------------------


def wrong_ones(p, row, wrong):
    """Return the rows, each with a new one in its place, which is wrong."""
    for j in range(len(p)):
        logits, labels = p.logits.copy(), p.labels.copy()
        logits[j], labels[j] = row, wrong
        yield td.Predictions.from_logits(logits, labels)


def by_brute_force(p, short, row, options):
    """Return the list of a new row by swapping it with every calibration row."""
    other = (int(row.argmax()) + 1) % len(row)
    reference = [
        not td.calibrate(swapped, **options).screen(p[[j]]).accepted[0]
        for j, swapped in enumerate(wrong_ones(p, row, other))
    ]
    nonconformity = sorted(truths(p, short)[np.array(reference)].tolist())
    k = rank(len(nonconformity), short.level)
    at = nonconformity[k - 1] if k <= len(nonconformity) else INF
    return short.nonconformity(row[None])[0] <= at


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", BY_RANK)
def test_the_same_rows_give_lists_that_hold_those_of_brute_force(name):
    """Full conformal prediction among the rejected: every row is swapped."""
    rng, n_rejected, larger = np.random.default_rng(8), 0, 0
    for turn in range(24):
        level, method = (0.5, 0.7, 0.9)[turn % 3], ("lac", "aps", "raps")[turn // 3 % 3]
        p, _ = draw(int(rng.integers(15, 45)), (9, turn), digits=(None, 1, 2)[turn % 3])
        options = BY_RANK[name]
        list_options = {"level": level, "method": method}
        gate = td.calibrate(p, shortlist=list_options, **options)
        assert gate.shortlist.same_rows
        new, _ = draw(12, (10, turn), digits=(None, 1, 2)[turn % 3])
        screened = gate.screen(new)
        for row in np.flatnonzero(~screened.accepted)[:2]:
            brute_force = by_brute_force(p, gate.shortlist, new.logits[row], options)
            assert not (brute_force & ~screened.shortlist[row]).any()
            n_rejected += 1
            larger += (brute_force != screened.shortlist[row]).any()
    assert n_rejected >= 10
    assert larger <= n_rejected / 2, (
        "lists on so few rows are a little longer, not more"
    )


@pytest.fixture
def few_cells(monkeypatch):
    """Let sketches have 12 cells, so that some dozen rows are counted in ranges."""
    usual = Sketch.__init__

    def init(self, **_):
        usual(self)
        self._most = 12

    monkeypatch.setattr(Sketch, "__init__", init)
    monkeypatch.setattr(shortlist_calibration, "CELLS", 12)


def counted(scores, errors):
    out = Sketch()
    out.update(scores, errors)
    return out


@pytest.mark.sampled(9)
@pytest.mark.usefixtures("few_cells")
@pytest.mark.parametrize("name", BY_RANK)
def test_rows_in_ranges_give_thresholds_as_high_as_brute_force(name):
    options, n_compared = BY_RANK[name], 0
    for turn in range(6):
        rng = np.random.default_rng((11, turn))
        n, level = int(rng.integers(25, 60)), (0.5, 0.8)[turn % 2]
        errors = rng.random(n) < 0.5
        scores = rng.normal(size=n) + errors
        scores[:: 9 - turn] = (-INF, INF, scores[0])[turn % 3]
        nonconformity = np.where(errors, rng.normal(size=n), -INF)
        rows = counted(scores, errors)
        gate = calibrate_scores(rows, **options)
        members, uncertain = find_reference_set(gate, rows).members(
            scores, errors, ~gate.accept(scores)
        )
        ours = conformal_rule(
            nonconformity[members], level, uncovered=uncertain + 1
        ).threshold
        for new in 1 + rng.normal(size=3):
            if gate.accept([new])[0]:
                continue
            n_compared += 1
            selected = np.zeros(n, bool)
            for j in range(n):
                other, wrong = scores.copy(), errors.copy()
                other[j], wrong[j] = new, True
                swapped = calibrate_scores(counted(other, wrong), **options)
                selected[j] = not swapped.accept(scores[[j]])[0]
            assert ours >= conformal_rule(nonconformity[selected], level).threshold
    assert n_compared >= 3


# --- simulations --------------------------------------------------------------------


def covered(gate, new, probs):
    """Return rejected rows, and how many lists hold the truth, by expectation."""
    screened = gate.screen(new)
    return (~screened.accepted).sum(), (probs * screened.shortlist).sum()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("m", "turns"), [(50, 300), (500, 100), (5000, 15)], ids=["50", "500", "5000"]
)
@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["", "-inf"])
def test_other_rows_cover_what_is_promised_and_not_more(m, turns, missing):
    """Of m rejected rows the k-th covers k / (m + 1), where no two are tied."""
    gate, level = td.Gate(0.0, score="alpha"), 0.9
    new, probs = draw(20_000, 1, missing=missing)
    rejected = ~gate.screen(new).accepted
    share, ranks = rejected.mean(), []
    coverages = []
    for turn in range(turns):
        p, _ = draw(round(m / share), (12, turn), missing=missing)
        listed = td.shortlist(gate, p, level=level)
        assert math.isfinite(listed.shortlist.rule.threshold)
        rows, covered_rows = covered(listed, new, probs)
        coverages.append(covered_rows / rows)
        rule_rows = listed.shortlist.rule.rows
        ranks.append(rank(rule_rows, level) / (rule_rows + 1))
        assert level <= ranks[-1] <= level + 1 / (rule_rows + 1)
    spread = math.hypot(np.std(coverages) / math.sqrt(turns), 0.3 / math.sqrt(rows))
    assert abs(np.mean(coverages) - np.mean(ranks)) < 4 * spread


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_ties_and_groups_cover_at_least_what_is_promised(method):
    level, groups = 0.9, np.arange(4000) % 2
    gate = td.calibrate(draw(4000, 0)[0], frr=0.2, groups=groups)
    new, probs = draw(20_000, 1, digits=1)
    new_groups = np.arange(20_000) % 2
    coverages = {0: [], 1: []}
    for turn in range(60):
        p, _ = draw(600, (13, turn), digits=1)
        listed = td.shortlist(
            gate, p, groups=np.arange(600) % 2, level=level, method=method
        )
        screened = listed.screen(new, groups=new_groups)
        for name, group_coverages in coverages.items():
            rejected_rows = (new_groups == name) & ~screened.accepted
            group_coverages.append(
                (probs * screened.shortlist)[rejected_rows].sum() / rejected_rows.sum()
            )
    for group_coverages in coverages.values():
        spread = math.hypot(
            np.std(group_coverages) / math.sqrt(60),
            0.3 / math.sqrt(rejected_rows.sum()),
        )
        assert np.mean(group_coverages) > level - 4 * spread


@pytest.mark.sampled(6)
@pytest.mark.parametrize("digits", [None, 1], ids=["", "ties"])
@pytest.mark.parametrize("name", BY_RANK)
def test_the_same_rows_cover_at_least_what_is_promised(name, digits):
    level, new = 0.8, draw(10_000, 1, digits=digits)
    rows, covered_rows, rates = 0, 0.0, []
    for turn in range(60):
        p, _ = draw(150, (14, turn), digits=digits)
        gate = td.calibrate(p, shortlist=level, **BY_RANK[name])
        assert gate.shortlist.same_rows
        counts = covered(gate, *new)
        rows, covered_rows = rows + counts[0], covered_rows + counts[1]
        rates.append(counts[1] / max(1, counts[0]))
    assert rows
    spread = math.hypot(np.std(rates) / math.sqrt(60), 0.4 / math.sqrt(rows / 60))
    assert level - 4 * spread < covered_rows / rows < level + 0.15


# --- counted, not kept --------------------------------------------------------------


def streamed(gate, p, *, batches=5, reference=None, **options):
    """Set lists by rows that come in parts, to two states, in turn."""
    states = [ShortlistSketch(gate, options, reference) for _ in "xy"]
    for k, rows in enumerate(np.array_split(np.arange(len(p)), batches)):
        states[k % 2].update(p[rows])
    states[0].merge(states[1])
    return states[0]


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
@pytest.mark.parametrize("grouped", [False, True])
def test_other_rows_in_batches_give_the_same_lists(method, grouped):
    p, _ = draw(2400, 15, missing=0.2)
    labels = np.where(np.arange(2400) % 7 == 0, None, p.labels)
    region = np.array(["a", "b", "c"])[np.arange(2400) % 3]
    p = td.Predictions.from_logits(p.logits, labels, groups=region)
    by = {"groups": "given"} if grouped else {}
    has_group = p[:1200].has_label & (region[:1200] != "c")
    gate = td.calibrate(p[:1200][has_group], risk=0.3, **by)
    options = {"level": 0.9, "method": method}
    at_once = td.shortlist(gate, p[1200:], **options)
    for batches in (1, 7, 400):
        state = streamed(gate, p[1200:], batches=batches, **options)
        assert not state.are_gate_rows
        assert state.calibrate() == at_once
    assert set(at_once.shortlist.groups) == ({"a", "b"} if grouped else set())


@pytest.mark.parametrize("digits", [None, 2], ids=["", "ties"])
@pytest.mark.parametrize("name", BY_RANK)
def test_the_same_rows_in_batches_give_the_same_lists(name, digits):
    p, _ = draw(1500, 16, digits=digits)
    at_once = td.calibrate(p, shortlist=0.9, **BY_RANK[name])
    gate = td.calibrate(p, **BY_RANK[name])
    assert streamed(gate, p, level=0.9).are_gate_rows
    reference = find_reference_set(gate, counted(td.alpha(p), p.errors))
    assert reference.errors is None
    assert streamed(gate, p, reference=reference, level=0.9).calibrate() == at_once


@pytest.mark.parametrize("name", BY_RANK)
@pytest.mark.sampled(2)
def test_ranges_of_scores_are_never_less_careful(name, monkeypatch):
    """Of many rows some are counted as less conforming, and none is left out."""
    monkeypatch.setattr(shortlist_calibration, "CELLS", 1 << 13)
    p, _ = draw(40_000, 17)
    sketch = Sketch(cells=1 << 13)
    sketch.update(td.alpha(p), p.errors)
    assert not sketch.exact
    sketch_gate = calibrate_scores(sketch, **BY_RANK[name])
    gate = replace(td.calibrate(p, **BY_RANK[name]), threshold=sketch_gate.threshold)
    reference = find_reference_set(gate, sketch)
    assert reference.errors is not None
    streamed_lists = (
        streamed(gate, p, reference=reference, level=0.95).calibrate().shortlist
    )
    rejected = ~gate.screen(p).accepted
    nonconformity = truths(p, streamed_lists)
    plain = conformal_rule(nonconformity[rejected], 0.95)
    assert streamed_lists.rule.threshold >= plain.threshold
    nearby = conformal_rule(nonconformity[rejected], 0.955)
    assert streamed_lists.rule.threshold <= nearby.threshold
    usual = td.calibrate(p, **BY_RANK[name])
    exact_rule = td.shortlist(usual, p, level=0.95).shortlist.rule
    ranged = find_reference_set(
        replace(usual, threshold=usual.threshold + 1e-9), sketch
    )
    repeated = (
        streamed(usual, p, reference=ranged, level=0.95).calibrate().shortlist.rule
    )
    assert repeated.threshold >= exact_rule.threshold


def test_nonconformity_in_ranges_is_taken_at_its_upper_end(rng):
    nonconformity, small_sketch = rng.exponential(size=50_000), Sketch(cells=1 << 13)
    counted = NonconformitySketch(correct=1000, errors=small_sketch)
    for batch in np.split(nonconformity, 10):
        counted.add(10, batch)
    counted.add(5, nonconformity[:0])
    assert not small_sketch.exact
    every, above = np.append(nonconformity, np.full(1105, -INF)), 0
    for level in (0.5, 0.7, 0.9, 0.95, 0.99, 0.999):
        exact, ranged = conformal_rule(every, level), counted.rule(level)
        assert ranged.rows == exact.rows
        assert exact.threshold <= ranged.threshold < exact.threshold * 1.01
        above += ranged.threshold > exact.threshold
    assert above
    assert NonconformitySketch(correct=99).rule(0.9) == ListRule(-INF, 99)


def test_a_gate_of_ranges_gets_lists_from_its_rows_at_once(monkeypatch):
    """The certificate says that a sketch was used, and counts the same rows."""
    usual = Sketch.__init__
    monkeypatch.setattr(
        Sketch, "__init__", lambda self, **_: usual(self, cells=1 << 13)
    )
    monkeypatch.setattr(shortlist_calibration, "CELLS", 1 << 13)
    p, _ = draw(30_000, 18)
    sketch = counted(td.alpha(p), p.errors)
    gate = td.calibrate(p, frr=0.1)
    other = replace(gate, threshold=calibrate_scores(sketch, frr=0.1).threshold)
    assert other != gate
    listed = td.shortlist(other, p, level=0.9)
    assert listed.shortlist.same_rows
    reference = find_reference_set(other, sketch)
    members, uncertain = reference.members(
        td.alpha(p), p.errors, ~other.screen(p).accepted
    )
    nonconformity = truths(p, listed.shortlist)[members]
    assert listed.shortlist.rule == conformal_rule(
        nonconformity, 0.9, uncovered=uncertain + 1
    )


def test_states_refuse_what_has_no_lists():
    p, _ = draw(300, 19)
    risk = td.calibrate(p, risk=0.4)
    with pytest.raises(InputError, match="these rows set the threshold for risk"):
        _ = streamed(risk, p, level=0.9).are_gate_rows
    partly_labelled = td.Predictions.from_logits(
        p.logits, np.where(p.errors, None, p.labels)
    )
    with pytest.raises(InputError, match="some of the rows that set the threshold"):
        _ = streamed(
            td.calibrate(partly_labelled, coverage=0.8), partly_labelled, level=0.9
        ).are_gate_rows
    bare = td.Predictions.from_logits(p.logits, np.full(300, None))
    with pytest.raises(InputError, match="true label of some rows"):
        streamed(risk, bare, level=0.9).calibrate()
    other, _ = draw(300, 19, classes=5)
    with pytest.raises(InputError, match="expected rows of 4 classes"):
        streamed(risk, other, level=0.9)
    sure = td.Predictions.from_confidence(np.linspace(0, 1, 50), np.arange(50) % 2)
    with pytest.raises(InputError, match="every class"):
        streamed(td.calibrate(sure, coverage=0.5), sure, level=0.9)


def test_the_certificate_says_what_is_promised():
    p, _ = draw(800, 20)
    gate = td.calibrate(p, frr=0.2, shortlist={"level": 0.9, "max_size": 3})
    assert gate.certificate.notes[-1].startswith(
        "Shortlist: a rejected row's list holds the true class with probability at "
        "least 0.9 among the rejected rows, on average over calibrations."
    )
    assert "by selection-conditional calibration" in gate.certificate.notes[-1]
    assert json.loads(gate.to_json())["shortlist"]["max_size"] == 3
