"""A candidate rests on a plain sample, however the rows came to be reviewed."""

import numpy as np
import pytest
from scipy.stats import binomtest, combine_pvalues
from service.house import NAMES, draw_rows

import trustdoctor as td
from trustdoctor.gates import Outcome
from trustdoctor.service.recalibration import ReviewedRow, plain_sample
from trustdoctor.service.times import format_time
from trustdoctor.watch import CORRECT, WRONG


def draw_reviewed(n, seed, rates, gate):
    """Rows that were drawn at these rates, as the store has them; and all rows."""
    rows = draw_rows(n, seed)
    rng = np.random.default_rng(seed + 1000)
    accepted = gate.screen(rows).accepted
    drawn = rng.random(n) < np.where(accepted, rates[1], rates[0])
    wrong = np.where(rows.predicted == rows.labels, CORRECT, WRONG)
    logits = np.asarray(rows.logits, float)
    reviewed = [
        ReviewedRow(
            at,
            int(accepted[at]),
            "logits",
            logits[at].tobytes(),
            None,
            None,
            str(int(rows.predicted[at])),
            str(int(rows.labels[at])),
            int(wrong[at]),
            0.0,
            *rates,
        )
        for at in np.flatnonzero(drawn).tolist()
    ]
    return reviewed, rows, accepted


@pytest.mark.parametrize("rates", [(1.0, 0.02), (0.5, 0.1), (0.02, 1.0), (1.0, 1.0)])
def test_what_is_kept_is_a_plain_sample(gate, rates):
    reviewed, rows, accepted = draw_reviewed(40_000, 3, rates, gate)
    sample, smallest = plain_sample(reviewed, seed=0)
    assert smallest == min(rates)
    if min(rates) == 1:
        assert sample == reviewed
    errors = rows.predicted != rows.labels
    for name, count, truth in (
        ("accepted", sum(row.accepted for row in sample), accepted.mean()),
        ("wrong", sum(row.judgement == WRONG for row in sample), errors.mean()),
        (
            "both",
            sum(row.judgement == WRONG and row.accepted == 1 for row in sample),
            (errors & accepted).mean(),
        ),
    ):
        assert binomtest(count, len(sample), truth).pvalue > 1e-3, name
    assert binomtest(len(sample), 40_000, min(rates)).pvalue > 1e-3 or min(rates) == 1


def test_rates_that_changed(gate):
    """Rows of two eras, drawn at other rates: the kept ones are as many of each."""
    first, rows, _ = draw_reviewed(30_000, 3, (1.0, 0.05), gate)
    second, *_ = draw_reviewed(30_000, 4, (0.3, 0.3), gate)
    sample, smallest = plain_sample(first + second, seed=1)
    assert smallest == 0.05
    early = sum(row.accepted_rate == 0.05 for row in sample)
    assert binomtest(early, len(sample), 0.5).pvalue > 1e-3
    share = np.mean([row.accepted for row in sample])
    assert share == pytest.approx(gate.screen(rows).accepted.mean(), abs=0.03)


def test_the_seed_decides(gate):
    reviewed, *_ = draw_reviewed(3000, 3, (1.0, 0.1), gate)
    first, _ = plain_sample(reviewed, 0)
    assert plain_sample(reviewed, 0)[0] == first
    assert plain_sample(reviewed, 1)[0] != first


def breaks(gate, rates, n, *, thinned):
    """Count the gates out of 25 that break their promise, joint 10%, on other rows."""
    fresh, count = draw_rows(20_000, 99), 0
    for seed in range(25):
        reviewed, *_ = draw_reviewed(n, seed, rates, gate)
        rows = plain_sample(reviewed, seed)[0] if thinned else reviewed
        logits = np.array([np.frombuffer(row.output) for row in rows])
        predictions = td.Predictions.from_logits(
            logits, [int(row.label) for row in rows]
        )
        candidate = td.calibrate(predictions, score="alpha", joint=0.1)
        outcome = Outcome.of_predictions(fresh, candidate.screen(fresh).accepted)
        count += outcome.rates()["joint"].value > 0.1
    return count


@pytest.mark.parametrize(("rates", "n"), [((1.0, 0.02), 12_000), ((0.5, 0.1), 4000)])
def test_thinning_keeps_the_promise(gate, rates, n):
    """Without it accepted errors are too rare, and the gates too lax."""
    n_broken = breaks(gate, rates, n, thinned=True)
    assert binomtest(n_broken, 25, 0.1, alternative="greater").pvalue > 0.01
    assert breaks(gate, rates, n, thinned=False) > 20


@pytest.fixture
def drawn(serve, gate):
    """A service with labelled rows, of which some were drawn for review."""

    def start(
        review=(1.0, 0.5), gate=gate, names=None, n=1200, label_noise=0.0, **more
    ):
        served = serve(gate, review=review, label_noise=label_noise)
        rows = draw_rows(n, 5, names=names)
        logits = np.asarray(rows.logits, float).tolist()
        served.decide({"ids": list(range(n)), "logits": logits, **more})
        labels = [row if names is None else names[row] for row in rows.labels.tolist()]
        served.label(*({"id": at, "label": label} for at, label in enumerate(labels)))
        return served, rows

    return start


def test_a_candidate_allows_for_wrong_labels(drawn):
    served, _ = drawn(label_noise=0.02)
    response = served.post_ok("/v1/recalibrate", {"targets": {"joint": 0.1}})
    (note,) = (n for n in response["certificate"]["notes"] if "may be wrong" in n)
    assert "Up to 2% of the labels" in note
    assert "9.8% instead of 10%" in note


def test_a_candidate(drawn, gate):
    served, rows = drawn()
    response = served.post_ok("/v1/recalibrate", {"note": "again"})
    assert response["version"] == 2
    assert response["rate"] == 0.5
    assert response["labelled"] == response["rows"]
    assert 500 < response["kept"] < 700
    assert response["certificate"]["promise"] == gate.certificate.promise()
    listed = served.get("/v1/gates").json["gates"][0]
    assert (listed["origin"], listed["note"]) == ("recalibrate", "again")
    assert listed["state"] == "candidate"  # nothing is promoted automatically
    text = served.get("/v1/gates/2").content.decode()
    candidate = td.Gate.from_json(text)
    assert candidate.score == gate.score
    assert candidate.certificate.target == gate.certificate.target
    # Compared on the same rows: each gate's own rates there.
    sample = expected_sample(served, rows, seed=0)
    assert len(sample) == response["kept"]
    for name, version_gate in (("current", gate), ("candidate", candidate)):
        rates = Outcome.of_predictions(
            sample, version_gate.screen(sample).accepted
        ).rates()
        comparison = response["comparison"][name]
        assert {k: v[0] for k, v in comparison.items()} == {
            k: r.value for k, r in rates.items()
        }
    assert td.calibrate(sample, score="alpha", frr=0.1) == candidate


def expected_sample(served, rows, seed):
    """The rows that the service keeps, by hand."""
    stored = served.read(
        "SELECT id, accepted FROM rows WHERE drawn = 1 ORDER BY position"
    )
    rates = np.where([accepted for _, accepted in stored], 0.5, 1.0)
    keep = np.random.default_rng(seed).random(len(stored)) < 0.5 / rates
    return rows[
        [int(name) for (name, _), is_kept in zip(stored, keep, strict=True) if is_kept]
    ]


def test_other_targets(drawn):
    served, _ = drawn()
    response = served.post_ok(
        "/v1/recalibrate", {"targets": {"risk": 0.2}, "confidence": 0.8}
    )
    promise = response["certificate"]["promise"]
    assert "at most 20% errors among the accepted, with confidence 0.8" in promise


WRONG_REQUESTS = [
    ({"targets": {"frr": 2}}, ""),
    ({"targets": {"speed": 2}}, "expected targets out of"),
    ({"targets": {}}, "expected targets"),
    ({"confidence": 2}, ""),
    ({"seed": -1}, ""),
    ({"seed": 10**30}, ""),
    ({"since": "soon"}, "expected a time like"),
    ({"since": "3000-01-01"}, "in the past"),
    ({"since": "0001-01-01T00:00:00+10:00"}, "after 1970"),
    ({"note": "x" * 2001}, "note"),
    ({"note": "a\u0000"}, "note"),
    ({"other": 1}, ""),
    (b"[]", ""),
]


def test_wrong_requests_make_no_candidate(drawn):
    served, _ = drawn(n=200)
    before = served.everything()
    for body, message in WRONG_REQUESTS:
        answer = served.post("/v1/recalibrate", body)
        assert answer.status == 400, body
        assert message in answer.detail
    assert served.everything() == before
    assert served.post("/v1/recalibrate", {"since": "2020-01-01"}).status == 201


def test_too_few_rows(serve, gate):
    served = serve(gate, review=(1.0, 0.01))
    assert "got none" in served.post("/v1/recalibrate").detail
    served.decide({"id": "x", "logits": [0.1, 0, 0, 0]})
    assert served.post("/v1/recalibrate").status == 409
    served.label({"id": "x", "label": 1})
    assert served.post("/v1/recalibrate", {"seed": 1}).status == 409
    served.label({"id": "x", "cannot_say": True})
    assert "got none" in served.post("/v1/recalibrate").detail


def test_a_rate_of_zero_says_nothing_of_the_others(drawn):
    served, _ = drawn(review=(1.0, 0.0))
    response = served.post("/v1/recalibrate")
    assert response.status == 409
    assert "a review rate of 0" in response.detail


def test_since_leaves_earlier_rows_out(drawn):
    served, _ = drawn()
    everything = served.post_ok("/v1/recalibrate")["rows"]
    served.change(
        "UPDATE rows SET decided_at = decided_at - 10000 WHERE position <= 601"
    )
    (now,) = served.read("SELECT max(decided_at) FROM rows")[0]
    since = format_time(now - 5000)
    response = served.post_ok("/v1/recalibrate", {"since": since})
    assert response["since"] == since
    (later,) = served.read(
        "SELECT count(*) FROM rows WHERE drawn = 1 AND position > 601"
    )[0]
    assert response["rows"] == later < everything


def test_rows_that_wait_are_waited_for(serve, gate):
    served = serve(gate, review=(1.0, 0.5))
    rows = draw_rows(800, 5)
    served.decide(
        {"ids": list(range(800)), "logits": np.asarray(rows.logits, float).tolist()}
    )
    stored = served.read("SELECT id FROM rows WHERE drawn = 1 ORDER BY position")
    names = [name for (name,) in stored]
    hole = len(names) // 2
    labels = rows.labels.tolist()
    served.label(
        *(
            {"id": row_id, "label": labels[int(row_id)]}
            for at, row_id in enumerate(names)
            if at != hole
        )
    )
    response = served.post_ok("/v1/recalibrate")
    assert response["labelled"] == hole
    assert any("still waits for its label" in note for note in response["notes"])
    served.label({"id": names[hole], "cannot_say": True})
    response = served.post_ok("/v1/recalibrate")
    assert response["labelled"] == len(names) - 1
    assert any("nobody could say" in note for note in response["notes"])


def test_names_groups_and_lists(drawn):
    teams = np.array(["a", "b"])[np.arange(2000) % 2]
    rows = draw_rows(2000, 1, names=NAMES)
    gate = td.calibrate(
        rows, score="alpha", risk=0.15, groups=teams, grouped_by="team", shortlist=0.9
    )
    served, _ = drawn(
        review=(1.0, 1.0), gate=gate, names=NAMES, groups=teams[:1200].tolist()
    )
    response = served.post_ok("/v1/recalibrate")
    candidate = td.Gate.from_json(served.get("/v1/gates/2").content.decode())
    fresh = draw_rows(1200, 5, names=NAMES)
    expected = td.calibrate(
        fresh,
        score="alpha",
        risk=0.15,
        groups=teams[:1200],
        grouped_by="team",
        shortlist=0.9,
    )
    assert candidate == expected
    assert response["kept"] == 1200


def test_lists_need_the_true_class(drawn):
    gate = td.calibrate(draw_rows(2000, 1), score="alpha", frr=0.1, shortlist=0.9)
    served, rows = drawn(gate=gate, review=(1.0, 1.0))
    assert td.Gate.from_json(candidate_text(served)).shortlist is not None
    wrong = np.flatnonzero(rows.predicted != rows.labels)[:1].tolist()
    served.label({"id": wrong[0], "correct": False})
    response = served.post_ok("/v1/recalibrate")
    text = served.get(f"/v1/gates/{response['version']}").content.decode()
    assert td.Gate.from_json(text).shortlist is None
    assert any("no shortlists" in note for note in response["notes"])


def candidate_text(served):
    response = served.post_ok("/v1/recalibrate")
    return served.get(f"/v1/gates/{response['version']}").content.decode()


@pytest.mark.parametrize("names", [None, NAMES], ids=["numbers", "names"])
def test_topk(serve, names):
    rows = draw_rows(2000, 1, names=names)
    gate = td.calibrate(rows, score="alpha", frr=0.1)
    served = serve(gate, review=(1.0, 1.0))
    fresh = draw_rows(600, 5)
    probs = np.exp(fresh.logits) / np.exp(fresh.logits).sum(1, keepdims=True)
    order = np.argsort(-probs, 1)[:, :3]
    best = np.take_along_axis(probs, order, 1)
    classes = order if names is None else np.array(names)[order]
    topk = {"classes": classes.tolist(), "probs": best.tolist()}
    served.decide({"ids": list(range(600)), "topk": topk})
    labels = fresh.labels if names is None else np.array(names)[fresh.labels]
    row_labels = [
        {"id": at, "label": label} for at, label in enumerate(labels.tolist())
    ]
    served.label(*row_labels)
    response = served.post_ok("/v1/recalibrate")
    predictions = td.Predictions.from_topk(best, order, fresh.labels, n_classes=4)
    expected = td.calibrate(predictions, score="alpha", frr=0.1)
    text = served.get("/v1/gates/2").content.decode()
    assert td.Gate.from_json(text).threshold == expected.threshold
    assert response["kept"] == 600


@pytest.mark.parametrize("kind", ["confidence", "doubt"])
def test_rows_without_classes(serve, kind):
    rng = np.random.default_rng(0)
    sure = rng.uniform(0.3, 1, 1000)
    right = rng.random(1000) < sure
    make = getattr(td.Predictions, f"from_{kind}")
    value = sure if kind == "confidence" else 1 - sure
    gate = td.calibrate(make(value, right), score=kind, risk=0.2)
    served = serve(gate, review=(1.0, 1.0))
    served.decide({"ids": list(range(500)), kind: value[:500].tolist()})
    served.label(*({"id": at, "correct": bool(right[at])} for at in range(500)))
    served.post_ok("/v1/recalibrate")
    expected = td.calibrate(make(value[:500], right[:500]), score=kind, risk=0.2)
    candidate = td.Gate.from_json(served.get("/v1/gates/2").content.decode())
    assert candidate.threshold == expected.threshold


def test_rows_of_several_kinds_are_refused(drawn):
    served, _ = drawn(review=(1.0, 1.0))
    served.decide({"id": "p", "probs": [0.4, 0.3, 0.2, 0.1]})
    served.label({"id": "p", "label": 0})
    response = served.post("/v1/recalibrate")
    assert response.status == 409
    assert "of one kind" in response.detail


def test_combined_pvalues_of_kept_rows(gate):
    """Over several seeds, too, nothing is off."""
    pvalues = []
    for seed in range(8):
        reviewed, _, accepted = draw_reviewed(5000, seed, (1.0, 0.1), gate)
        sample, _ = plain_sample(reviewed, seed)
        count = sum(row.accepted for row in sample)
        pvalues.append(binomtest(count, len(sample), accepted.mean()).pvalue)
    assert combine_pvalues(pvalues).pvalue > 1e-3
