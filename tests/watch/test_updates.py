"""Each row counts once; a refused update changes nothing."""

import copy
import math
import threading

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watch.streams import (
    AUDIT,
    calibrated,
    counts,
    decided,
    evidence,
    rows,
    snapshot,
)

import trustdoctor as td
from trustdoctor.errors import InputError, TrustDoctorError
from trustdoctor.watch import Reference

GATE = calibrated()


def batch(n=40, seed=0):
    return rows(np.random.default_rng(seed), n)


def test_a_second_delivery_with_ids_counts_once():
    doubts, errors = batch()
    watch = GATE.watch().update(doubts, errors, ids=range(40))
    before = snapshot(watch)
    repeated = watch.update(doubts, errors, ids=range(40))
    assert {k: v for k, v in snapshot(repeated).items() if k in ("tests", "ids")} == {
        k: v for k, v in before.items() if k in ("tests", "ids")
    }
    assert repeated.totals.rows == 40
    assert repeated.totals.repeated == 40
    assert "40 rows were counted before, and not again" in repr(repeated)


def test_a_second_delivery_may_bring_more_rows_and_more_labels():
    doubts, errors = batch(60)
    partly_labelled = np.where(np.arange(60) < 20, errors.astype(float), np.nan)
    watch = GATE.watch().update(doubts[:40], partly_labelled[:40], ids=range(40))
    watch.update(doubts, errors, ids=range(60))
    assert counts(watch) == counts(GATE.watch().update(doubts, errors))
    assert watch.totals.labels == 60
    assert watch.records()[-1].rows == 20


def test_without_names_rows_count_each_time():
    doubts, errors = batch()
    watch = GATE.watch().update(doubts, errors).update(doubts, errors)
    assert watch.totals.rows == 80
    assert watch.tests["frr"].n == 2 * (~errors).sum()


def test_a_batch_counts_once_by_its_name():
    doubts, errors = batch()
    watch = GATE.watch().update(doubts, errors, batch="monday")
    watch.update(doubts, errors, batch="monday").update(doubts, errors, batch="tuesday")
    assert watch.totals.rows == 80
    assert watch.totals.repeated == 40
    assert [entry.batch for entry in watch.records()] == ["monday", "monday", "tuesday"]


def test_labels_of_a_batch_may_come_later_with_its_rows():
    doubts, errors = batch()
    late = GATE.watch().update(doubts, batch="monday")
    late.label(doubts, errors, batch="monday").label(doubts, errors, batch="monday")
    assert counts(late) == counts(GATE.watch().update(doubts, errors))


@pytest.mark.parametrize(
    "ids",
    [
        [1, 2],
        ["a", "b"],
        ["\N{GRINNING FACE}", "\N{GRINNING FACE}\N{ZERO WIDTH JOINER}"],
        ["a\0b", "a"],
        [" ", "  "],
        ["r:a", "b:a"],
        np.array([1, 2], np.uint64) + np.uint64(2**63),
        [-1, 2**62],
        [1.5, 2.5],
        np.array(["2020-01-01", "2020-01-02"], "M8[D]"),
        pl.Series(["a", "b"]),
        pd.Series(["a", "b"], index=[7, 8]),
        ("a" * 5000, "b"),
    ],
    ids=repr,
)
def test_ids_of_any_kind_are_distinguished(ids, tmp_path):
    for path in (tmp_path / "state.json", tmp_path / "state.db"):
        for n in (2, 2):
            with td.Watch.open(path, GATE) as watch:
                watch.update([0.1, 0.2], ids=ids)
            assert watch.totals.rows == n
        assert td.Watch.load(path, GATE).totals.repeated == 2


@pytest.mark.parametrize(
    "ids",
    [
        ["a", None],
        ["a", ""],
        ["a", math.nan],
        [1.0, math.nan],
        np.array(["a", None], object),
        pl.Series(["a", None]),
        pd.Series(["a", None]),
        pd.Series(["a", pd.NA], dtype="string"),
        pd.Series([1, pd.NA], dtype="Int64"),
        np.array(["2020-01-01", "NaT"], "M8[D]"),
        ["a"],
        ["a", "b", "c"],
        [["a", "b"]],
        "ab",
        frozenset("a"),
        7,
        ["a", "\ud800"],
    ],
    ids=repr,
)
def test_ids_that_name_no_row_are_refused(ids):
    watch = GATE.watch()
    before = snapshot(watch)
    with pytest.raises(InputError):
        watch.update([0.1, 0.2], ids=ids)
    assert snapshot(watch) == before


def test_an_id_twice_in_one_delivery_is_one_row():
    watch = GATE.watch().update([0.1, 5.0, 0.1], ids=["a", "b", "a"])
    assert watch.totals.rows == 2
    assert watch.totals.repeated == 1
    watch = GATE.watch().update([0.1, 0.1], [np.nan, 0], ids=["a", "a"])
    assert watch.tests["frr"].n == 1


def test_numbers_and_texts_of_one_id_are_one_row():
    watch = GATE.watch().update([0.1], ids=[7]).update([0.1], ids=["7"])
    assert watch.totals.rows == 1


BAD = {
    "no doubt": lambda w: w.update([math.nan], ids=["n"]),
    "no rows": lambda w: w.update([]),
    "errors of another length": lambda w: w.update([0.1], [True, False]),
    "errors beyond 0 and 1": lambda w: w.update([0.1, 0.2], [0.5, 1.0]),
    "errors as words": lambda w: w.update([0.1], ["a"]),
    "errors as a set": lambda w: w.update([0.1], {True}),
    "errors as an object": lambda w: w.update([0.1], object()),
    "errors of nobody": lambda w: w.update([0.1, 0.2], np.array(["a", None], object)),
    "ids of another length": lambda w: w.update([0.1], ids=["x", "y"]),
    "a mask of another length": lambda w: w.update([0.1], ids=["x"], reviewed=[1, 0]),
    "a mask of words": lambda w: w.update([0.1], ids=["x"], reviewed=["yes"]),
    "a mask with a gap": lambda w: w.update([0.1], ids=["x"], reviewed=[None]),
    "drawn without a name": lambda w: w.update([0.1], reviewed=[True]),
    "a batch that is a number": lambda w: w.update([0.1], batch=7),
    "an empty batch": lambda w: w.update([0.1], batch=""),
    "half a character": lambda w: w.update([0.1], batch="\ud800"),
    "odd rates": lambda w: w.update([0.1], review={"accepted": 2}),
    "odd time": lambda w: w.update([0.1], at="today"),
    "predictions without a score": lambda w: w.update(
        td.Predictions.from_logits([[1.0, 0.0]])
    ),
    "label before update": lambda w: w.label([0.1], [True], ids=["new"]),
    "labels of an unknown batch": lambda w: w.label([0.1], [True], batch="new"),
    "labels without labels": lambda w: w.label([0.1], [None], ids=["a"]),
    "late labels without names": lambda w: w.label([0.1], [True]),
    "drawing without ids": lambda w: w.draw(np.array([True])),
    "drawing what was not screened": lambda w: w.draw([0.1, 0.2], ids=["a", "b"]),
}


@pytest.mark.parametrize("change", BAD)
def test_refused_calls_change_nothing(change):
    watch = GATE.watch(review=AUDIT)
    watch.update([0.1, 5.0], [None, True], ids=["a", "b"], reviewed=[True, True])
    before = snapshot(watch)
    with pytest.raises(TrustDoctorError) as refused:
        BAD[change](watch)
    assert snapshot(watch) == before
    message = str(refused.value)
    assert "\n" not in message
    assert len(message) < 300


def test_groups_that_cannot_be_change_nothing():
    rng = np.random.default_rng(0)
    doubts, errors = rows(rng, 3000)
    gate = td.calibrate_scores(doubts, errors, frr=0.1, groups=rng.integers(0, 2, 3000))
    watch = gate.watch().update(doubts[:9], errors[:9], groups=np.ones(9, int))
    before = snapshot(watch)
    for groups in (None, [1], ["a"] * 9, [0.5] * 9, [None] * 9):
        with pytest.raises(InputError):
            watch.update(doubts[:9], groups=groups)
        with pytest.raises(InputError):
            watch.update(decided([True] * 9), groups=groups)
    assert snapshot(watch) == before


def test_a_closed_watch_counts_no_more(tmp_path):
    with td.Watch.open(tmp_path / "state.json", GATE) as watch:
        watch.update([0.1])
    with pytest.raises(InputError, match="open it again"):
        watch.update([0.1])
    with pytest.raises(InputError, match="open it again"):
        watch.label([0.1], [True])
    assert watch.totals.rows == 1


def test_labels_may_come_late_and_incomplete():
    doubts, errors = batch(400)
    at_once, late = GATE.watch(), GATE.watch()
    partly_labelled = errors.astype(float)
    partly_labelled[::2] = np.nan
    at_once.update(doubts, partly_labelled)
    late.update(doubts).label(doubts[1::2], errors[1::2])
    assert evidence(at_once) == evidence(late)
    assert at_once.tests["accepted"].n == 400
    assert at_once.tests["frr"].n == (~errors[1::2]).sum()
    for given_as in (
        [None if np.isnan(error) else bool(error) for error in partly_labelled],
        pl.Series(
            [None if np.isnan(error) else bool(error) for error in partly_labelled]
        ),
        pd.Series(partly_labelled),
        partly_labelled.astype(np.float32),
    ):
        assert counts(GATE.watch().update(doubts, given_as)) == counts(at_once)


def test_predictions_are_watched_as_their_scores_are():
    """`update` computes the scores; the labels are those of the predictions."""
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(3000, 4))
    labels = np.where(rng.random(3000) < 0.8, z.argmax(1), 0)
    p = td.Predictions.from_logits(z, labels)
    for options in ({}, {"groups": "predicted"}):
        gate = td.calibrate(p[:2000], frr=0.1, **options)
        new = p[2000:]
        groups = new.predicted if options else None
        by_scores = gate.watch().update(td.alpha(new), new.errors, groups=groups)
        expected = evidence(by_scores)
        assert evidence(gate.watch().update(new)) == expected
        screened = gate.screen(new)
        by_decisions = gate.watch().update(screened, new.errors, groups=groups)
        assert evidence(by_decisions) == expected
        bare = td.Predictions.from_logits(new.logits)
        assert evidence(gate.watch().update(bare).label(new)) == expected
        partial_errors = np.where(np.arange(1000) % 2, new.errors, np.nan)
        partial = gate.watch().update(bare, partial_errors)
        assert partial.tests["frr"].n == (~new.errors[1::2]).sum()
    with pytest.raises(td.errors.LabelsMissingError, match="late labels are missing"):
        gate.watch().label(bare)
    with pytest.raises(InputError, match="this gate has groups"):
        gate.watch().update(screened)


def test_a_reference_goes_with_every_kind_of_delivery(tmp_path):
    """What the model expects of itself is counted once, and can be saved."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(1200, 4))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    p = td.Predictions.from_logits(logits, labels)
    gate, reference = td.calibrate(p[:800], frr=0.1), p[:800]
    new, bare = p[800:], td.Predictions.from_logits(logits[800:])
    ids = range(400)
    watch = gate.watch(reference=reference).update(bare, ids=ids)
    value = watch.expected.accuracy.value
    assert value == td.expected(new, reference=reference).accuracy.value
    watch.update(bare, ids=ids).label(new, ids=ids).label(new, ids=ids)
    assert watch.expected.accuracy.value == value
    for watched in (
        gate.watch(reference=reference).update(bare).label(new).label(new),
        gate.watch(reference=reference).update(gate.screen(bare)).label(new),
        gate.watch(reference=reference).update(td.alpha(new), new.errors),
        watch,
    ):
        watched.save(tmp_path / "state.json")
        loaded = td.Watch.load(tmp_path / "state.json", gate)
        assert snapshot(loaded) == snapshot(watched)
    assert gate.watch(reference=Reference.fit(reference)).reference == watch.reference
    before = snapshot(watch)
    with pytest.raises(InputError, match="classes"):
        watch.update(td.Predictions.from_logits(logits[:3, :3]))
    assert snapshot(watch) == before


@settings(max_examples=30)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    mixed=st.permutations(range(6)),
)
def test_counts_do_not_depend_on_the_cut_into_batches(sizes, mixed):
    doubts, errors = batch(sum(sizes))
    at_once = GATE.watch().update(doubts, errors)
    batches, at = [], 0
    for size in sizes:
        batches.append((doubts[at : at + size], errors[at : at + size]))
        at += size
    in_batches = GATE.watch()
    for turn in (turn for turn in mixed if turn < len(batches)):
        in_batches.update(*batches[turn])
    assert counts(in_batches) == counts(at_once)


@pytest.mark.soak
def test_threads_count_every_row():
    """8 threads, 250 updates each, of rows that overlap by their ids."""
    watch, doubts = GATE.watch(), np.zeros(2)
    failed = []

    def work(k):
        try:
            for i in range(250):
                row_id = 250 * k + i
                watch.update(doubts, [False, False], ids=[row_id, row_id // 2 - 10**6])
                if i % 125 == 0:
                    repr(watch), watch.history, watch.to_dict()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert watch.totals.updates == 2000
    assert watch.totals.rows == 2000 + 1000
    assert watch.totals.repeated == 1000
    assert watch.tests["frr"].n == 3000
    assert len(watch.history) == 2000


def test_a_copy_is_independent():
    watch = GATE.watch().update([0.1], ids=["a"])
    other = copy.deepcopy(watch).update([0.1], ids=["b"])
    assert (watch.totals.rows, other.totals.rows) == (1, 2)
