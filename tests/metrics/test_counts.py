from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.metrics import count, count_runs, counts


@pytest.fixture
def many(monkeypatch):
    """Rows that are many: remembered, and counted in slices."""
    monkeypatch.setattr(counts, "_REMEMBERED_ROWS", 1)
    monkeypatch.setattr(counts, "_SLICED_ROWS", 1)
    monkeypatch.setattr(counts, "cores", lambda: 3)
    monkeypatch.setattr(counts, "_MEMORY", counts._Memory())
    rng = np.random.default_rng(1)
    errors = rng.random(500) < 0.2
    return (rng.normal(size=500) + errors).round(1), errors


@pytest.fixture
def counted(monkeypatch):
    """How often rows were counted."""
    calls, inner = [], counts._count_runs

    def listening(scores, errors):
        calls.append(len(scores))
        return inner(scores, errors)

    monkeypatch.setattr(counts, "_count_runs", listening)
    return calls


def runs_by_hand(scores, errors):
    """Count, row by row, between and at the scores of the errors."""
    values = sorted(set(scores[errors].tolist()))
    groups = [[0, 0] for _ in range(2 * len(values) + 1)]
    for score, error in zip(scores.tolist(), errors.tolist(), strict=True):
        below = sum(value < score for value in values)
        at = 2 * below + (score in values)
        groups[at][error] += 1
    return np.array(groups).T


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_runs_are_those_counted_row_by_row(many, dtype, share):
    scores = (10 * many[0]).astype(dtype)
    errors = np.random.default_rng(2).random(len(scores)) < share
    found = count_runs(scores, errors)
    expected = runs_by_hand(scores, errors)
    assert np.array_equal([found.correct, found.errors], expected)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_every_distinct_score_is_counted(many, share):
    scores = many[0]
    errors = np.random.default_rng(2).random(len(scores)) < share
    found = count(scores, errors)
    values = np.unique(scores)
    assert np.array_equal(found.highest, values)
    wrong = [(scores[errors] == value).sum() for value in values]
    right = [(scores[~errors] == value).sum() for value in values]
    assert np.array_equal([found.correct, found.errors], [right, wrong])


def test_zeros_of_both_signs_are_one_score():
    found = count([0.0, -0.0, 0.0], [True, False, False])
    assert (found.correct.tolist(), found.errors.tolist()) == ([2], [1])
    found = count_runs([0.0, -0.0, 0.0], [True, False, False])
    assert found.correct.tolist() == [0, 2, 0]


def test_rows_are_counted_once_for_one_metric_after_another(many, counted):
    td.auroc(*many), td.frr_at_trr(*many), td.aurc(*many)
    td.measure(many[0].copy(), many[1].astype(int))
    assert len(counted) == 1


def test_rows_that_changed_in_place_are_counted_again(many, counted):
    scores, errors = many
    before = td.auroc(scores, errors)
    scores[np.flatnonzero(errors)[0]] = -9
    lower = td.auroc(scores, errors)
    errors[np.flatnonzero(~errors)[0]] = True
    td.auroc(scores, errors)
    assert len(counted) == 3
    assert lower < before


def test_few_rows_are_not_remembered(many, counted, monkeypatch):
    monkeypatch.setattr(counts, "_REMEMBERED_ROWS", len(many[0]) + 1)
    td.auroc(*many), td.auroc(*many)
    assert len(counted) == 2


def test_the_oldest_counts_are_forgotten_for_the_newest(many, counted, monkeypatch):
    scores, errors = many
    size = counts._size(count_runs(scores, errors))
    monkeypatch.setattr(counts, "_REMEMBERED_BYTES", 2 * size)
    for step in (1, 2, 3, 2, 1):
        count_runs(scores + step, errors)
    assert len(counted) == 1 + 4
    assert sum(map(counts._size, counts._MEMORY._kept.values())) <= 2 * size


def test_counts_beyond_the_bound_are_not_kept(many, counted, monkeypatch):
    monkeypatch.setattr(counts, "_REMEMBERED_BYTES", 1)
    assert td.auroc(*many) == td.auroc(*many)
    assert len(counted) == 2
    assert not counts._MEMORY._kept


def test_remembered_counts_cannot_be_written_to(many):
    with pytest.raises(ValueError, match="read-only"):
        count_runs(*many).correct[0] = 7


def test_threads_get_the_counts_of_their_own_rows(many, monkeypatch):
    scores, errors = many
    monkeypatch.setattr(counts, "_REMEMBERED_BYTES", 20_000)
    shifts = [np.roll(scores, step) for step in range(8)] * 10
    expected = [float(counts.auroc(counts._count_runs(s, errors))) for s in shifts]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda s: td.auroc(s, errors), shifts))
    assert found == expected
