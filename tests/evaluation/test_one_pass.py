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
    asked, done = [], []
    score_kinds, score = registry.score_kinds, _native.score

    def ask(logits, kinds, **options):
        asked.append((tuple(kinds), len(logits)))
        return score_kinds(logits, kinds, **options)

    def run(logits, kinds, **options):
        done.append((tuple(kinds), len(logits)))
        return score(logits, kinds, **options)

    monkeypatch.setattr(registry, "score_kinds", ask)
    monkeypatch.setattr(_native, "score", run)
    return asked, done


def test_the_counter_counts(rows, passes):
    asked, done = passes
    td.alpha(rows)
    registry.score_all(rows, ["alpha", "beta"])
    assert asked == [(("alpha", "beta"), 10_000)]
    assert done == [(("alpha",), 10_000), *asked]


def test_evaluation_and_page_take_one_pass(rows, passes):
    found = td.evaluate(rows)
    assert tuple(found.scores) == DEFAULT_SCORES
    assert "energy" in found.to_html()
    asked, done = passes
    assert asked == done == [(DEFAULT_SCORES, 10_000)]


def test_other_scores_take_theirs_and_the_softmax_in_one_pass(rows, passes):
    td.evaluate(rows, scores=["margin"], temperature=2.0).to_html()
    asked, done = passes
    assert asked == done == [(("margin", "alpha", "beta"), 10_000)]


def test_a_tally_takes_one_pass_per_batch(rows, passes):
    tally = td.Tally()
    for batch in np.array_split(np.arange(10_000), 4):
        tally.update(rows[batch])
    tally.evaluate()
    asked, done = passes
    assert asked == done == [(DEFAULT_SCORES, 2_500)] * 4
