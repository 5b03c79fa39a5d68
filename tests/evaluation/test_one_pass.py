"""The default scores take one pass over the logits, the page included."""

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.demo import bundled_file
from trustdoctor.evaluation.evaluations import DEFAULT_SCORES
from trustdoctor.kernels import _native
from trustdoctor.scores import registry

pytestmark = pytest.mark.skipif(
    not _native.available, reason="no compiler built the kernels"
)


@pytest.fixture(scope="module")
def rows():
    return td.read(bundled_file())


@pytest.fixture
def passes(monkeypatch):
    """The scores and rows of every pass: as asked for, and as the C kernel gets it."""
    requested, computed = [], []
    score_kinds, score = registry.score_kinds, _native.score

    def ask(logits, kinds, **options):
        requested.append((tuple(kinds), len(logits)))
        return score_kinds(logits, kinds, **options)

    def run(logits, kinds, **options):
        computed.append((tuple(kinds), len(logits)))
        return score(logits, kinds, **options)

    monkeypatch.setattr(registry, "score_kinds", ask)
    monkeypatch.setattr(_native, "score", run)
    return requested, computed


def test_the_counter_counts(rows, passes):
    requested, computed = passes
    td.alpha(rows)
    registry.score_all(rows, ["alpha", "beta"])
    assert requested == [(("alpha", "beta"), 10_000)]
    assert computed == [(("alpha",), 10_000), *requested]


def test_evaluation_and_page_take_one_pass(rows, passes):
    evaluation = td.evaluate(rows)
    assert tuple(evaluation.scores) == DEFAULT_SCORES
    assert "energy" in evaluation.to_html()
    requested, computed = passes
    assert requested == computed == [(DEFAULT_SCORES, 10_000)]


def test_other_scores_take_theirs_and_the_softmax_in_one_pass(rows, passes):
    td.evaluate(rows, scores=["margin"], temperature=2.0).to_html()
    requested, computed = passes
    assert requested == computed == [(("margin", "alpha", "beta"), 10_000)]


def test_a_tally_takes_one_pass_per_batch(rows, passes):
    tally = td.Tally()
    for batch in np.array_split(np.arange(10_000), 4):
        tally.update(rows[batch])
    tally.evaluate()
    requested, computed = passes
    assert requested == computed == [(DEFAULT_SCORES, 2_500)] * 4
