"""What the commands print of a cascade."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from injections import INJECTIONS
from scipy.stats import beta

import trustdoctor as td
from trustdoctor.report import (
    make_console,
    show_cascade,
    show_cascaded,
    summarize_cascaded,
)

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def printed(capsys, monkeypatch):
    """What a function prints; no line is longer than 80 columns."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(show, *arguments):
        show(make_console(quiet=False), *arguments)
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= 80
        return out

    return call


def flat(text):
    return " ".join(text.split())


def test_a_cascade_is_printed_against_each_model(by_hand, printed):
    out = printed(show_cascade, by_hand, Path("cascade.json"))
    assert out.startswith("Promise: at most 5% errors among the accepted, with conf")
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    assert ["small", "alpha at most -2.5", "100.0%", "75.0%"] in rows
    assert ["large", "alpha at most -1.25", "25.0%", "13.0%"] in rows
    assert ["a person", "always", "12.0%", "12.0%"] in rows
    assert ["cascade", "1.45 [1.35, 1.55]", "12.0%", "4.12"] in rows
    small = ["1.69 [1.60, 1.78]", "+0.24 [+0.10, +0.38]", "16.9%", "4.90"]
    assert ["small alone", *small] in rows
    text = flat(out)
    certificate = by_hand.certificate
    for words in (certificate.rule, certificate.assumption, *certificate.notes):
        assert f"- {words}" in text
    assert "Measured on 2,000 rows, with intervals of 95%." in text
    assert "slightly optimistic" in text
    assert text.endswith("Wrote cascade.json")


def test_a_gain_that_is_not_clear_is_printed(by_hand, printed):
    measured = by_hand.measured
    alone = tuple(
        replace(model, more=td.Estimate(0.0, -1.0, 1.0)) for model in measured.alone
    )
    unclear = replace(by_hand, measured=replace(measured, alone=alone))
    out = printed(show_cascade, unclear, Path("cascade.json"))
    assert "- Whether the cascade costs less than small alone is not clear." in out


def test_names_cannot_control_the_terminal_and_fit(three_models, printed):
    every, labels = three_models
    names = [INJECTIONS[3], "\x1b[31mred\nline" + "x" * 300]
    cascade = td.Cascade.calibrate(
        every[:2], labels, risk=0.05, costs=[0.00001, 0.00002, 0.0001], names=names
    )
    out = printed(show_cascade, cascade, Path("cascade.json"))
    out += printed(show_cascaded, cascade, cascade.screen(every[:2]))
    assert not STEERING.search(out)
    assert "\\u202egnp" in out
    assert "\\x1b[31mred" in out


@pytest.fixture
def screened(calibrated, three_models):
    """Decisions on new rows, some without a label."""
    every, labels = three_models
    partly = np.where(np.arange(3000) % 10 == 0, -1, labels[3000:])
    first = td.Predictions.from_logits(
        every[0][3000:], [None if k < 0 else k for k in partly.tolist()]
    )
    return calibrated.screen([first, every[1][3000:]]), partly


KINDS = "rejected_correct", "rejected_errors", "accepted_errors", "accepted_correct"


def counted(calibrated, three_models, labels):
    """Walk through the new rows one by one."""
    small, large = (logits[3000:] for logits in three_models[0][:2])
    out = {"small": 0, "large": 0, "person": 0, "asked": 0, "cost": 0.0}
    out |= dict.fromkeys(KINDS, 0)
    for a, b, label in zip(small, large, labels, strict=True):
        first = a - np.log(np.exp(a).sum())
        mean = (first + b - np.log(np.exp(b).sum())) / 2
        stopped, probs = "small", a
        if td.alpha(a[None])[0] > calibrated.thresholds[0]:
            out["asked"] += 1
            out["cost"] += 1
            stopped, probs = "large", mean
            if td.alpha(mean[None])[0] > calibrated.thresholds[1]:
                stopped = "person"
                out["cost"] += 10
        out[stopped] += 1
        if label >= 0:
            wrong = probs.argmax() != label
            decided = "rejected" if stopped == "person" else "accepted"
            out[f"{decided}_{'errors' if wrong else 'correct'}"] += 1
    return out


def test_what_was_screened_is_counted_as_row_by_row(
    calibrated, three_models, screened, printed
):
    screened_rows, labels = screened
    expected = counted(calibrated, three_models, labels)
    out = flat(printed(show_cascaded, calibrated, screened_rows))
    accepted = expected["small"] + expected["large"]
    assert min(expected["large"], expected["person"], expected["accepted_errors"]) > 50
    assert out.startswith(
        f"Accepted {accepted:,} of 3,000 answers ({accepted / 3000:.1%}): "
        f"{expected['small']:,} by small, {expected['large']:,} by large; "
        f"{expected['person']:,} go to a person. "
        f"Cost {expected['cost'] / 3000:.2f} per row. "
        f"large was asked about {expected['asked']:,} ({expected['asked'] / 3000:.1%})"
    )
    assert f"the cascade's promise: {calibrated.certificate.promise()}" in out
    k, n = (
        expected["accepted_errors"],
        expected["accepted_errors"] + expected["accepted_correct"],
    )
    low, high = beta.ppf(0.025, k, n - k + 1), beta.ppf(0.975, k + 1, n - k)
    ends = f"[{100 * low:.2f}, {100 * high:.2f}]"
    assert f"errors among the accepted (risk) {100 * k / n:.2f} {ends} %" in out
    caught = expected["rejected_errors"] / (
        expected["rejected_errors"] + expected["accepted_errors"]
    )
    assert f"errors caught (TRR) {100 * caught:.2f} [" in out
    assert "300 of 3,000 rows have no label" in out


def test_lists_are_counted_where_rows_go_to_a_person(calibrated, screened, printed):
    screened_rows, labels = screened
    sizes, with_true_class, labelled = [], 0, 0
    for row in np.flatnonzero(screened_rows.goes_to == "a person"):
        sizes.append(int(screened_rows.shortlist[row].sum()))
        if labels[row] >= 0:
            labelled += 1
            with_true_class += bool(screened_rows.shortlist[row, labels[row]])
    out = flat(printed(show_cascaded, calibrated, screened_rows))
    reviews = sizes.count(5)
    assert reviews != 1
    assert (
        f"Lists for {len(sizes):,} rejected rows: {np.mean(sizes):.2f} classes on "
        f"average, {reviews:,} full reviews; they hold the true class in "
        f"{100 * with_true_class / labelled:.2f} ["
    ) in out
    assert "% (promised: 90%)." in out
    summary = summarize_cascaded(calibrated, screened_rows)["shortlist"]
    list_counts = {"rows": len(sizes), "classes": sum(sizes), "full_reviews": reviews}
    assert summary == {
        **list_counts,
        "labelled": labelled,
        "with_true_class": with_true_class,
    }


def test_the_summary_is_plain_and_counts_the_same(calibrated, three_models, screened):
    screened_rows, labels = screened
    expected = counted(calibrated, three_models, labels)
    summary = json.loads(json.dumps(summarize_cascaded(calibrated, screened_rows)))
    assert summary["rows"] == 3000
    assert summary["accepted"] == expected["small"] + expected["large"]
    assert summary["unlabelled"] == 300
    assert summary["cost"] == pytest.approx(expected["cost"] / 3000)
    assert summary["goes_to"] == {"a person": expected["person"]}
    assert {kind: summary[kind] for kind in KINDS} == {
        kind: expected[kind] for kind in KINDS
    }
    small, large = summary["stages"]
    assert (small["name"], small["asked"]) == ("small", 3000)
    assert (large["asked"], large["accepted"]) == (expected["asked"], expected["large"])
    assert large["threshold"] == calibrated.thresholds[1]


def test_the_first_stage_alone_sends_rows_on(calibrated, three_models, printed):
    small = three_models[0][0][3000:]
    screened_rows = calibrated.screen([small])
    n_sent_on = int((td.alpha(small) > calibrated.thresholds[0]).sum())
    out = flat(printed(show_cascaded, calibrated, screened_rows))
    assert f"{n_sent_on:,} go on to large. Cost 0.00 per row so far." in out
    assert "Lists" not in out
    assert "(risk)" not in out  # there are no labels
    summary = summarize_cascaded(calibrated, screened_rows)
    assert summary["goes_to"] == {"large": n_sent_on}
    assert "accepted_errors" not in summary


def test_a_cascade_made_by_hand_promises_nothing(printed):
    bare = td.Cascade(("small", "large"), (np.inf, -np.inf), (1.0, 2.0, 10.0))
    screened_rows = bare.screen([np.array([[2.0, 0.0]])])
    out = printed(show_cascaded, bare, screened_rows)
    assert flat(out) == (
        "Accepted 1 of 1 answers (100.0%): 1 by small; 0 go to a person. Cost 1.00 per "
        "row."
    )
    summary = summarize_cascaded(bare, screened_rows)
    assert summary["stages"][0]["threshold"] == "inf"
    assert summary["goes_to"] == {}
    assert "shortlist" not in summary
