"""Labels that cannot be right are named, and good ones are left in peace."""

import pickle
from collections import Counter

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import binomtest

from trustdoctor.demo import bundled_file
from trustdoctor.errors import InputError
from trustdoctor.evaluation import label_counts
from trustdoctor.evaluation.label_counts import LabelCounts


def count(probs, labels):
    counts = LabelCounts()
    counts.update(labels, probs.argmax(1), probs.max(1), probs.shape[1])
    return counts


def named_pairs(counts):
    return {(pair.label, pair.predicted) for pair in counts.pairs()}


@pytest.fixture(scope="module")
def bundled():
    with np.load(bundled_file()) as file:
        probs = softmax(file["logits"].astype(float), axis=1)
        return np.minimum(probs, 1), file["labels"].astype(int)


def calibrated(seed):
    """Draw rows whose probabilities are true, of many kinds."""
    rng = np.random.default_rng(seed)
    classes, n = rng.choice([2, 3, 10, 50]), rng.choice([200, 1000, 5000])
    prior = rng.normal(size=classes) * rng.choice([0, 1, 2])
    z = rng.normal(size=(n, classes))
    if seed % 4 == 2:  # classes that are confused with each other
        z = rng.normal(size=(n, 3)) @ rng.normal(size=(3, classes))
    probs = softmax(z * rng.choice([0.5, 2, 8]) + prior, axis=1)
    if seed % 4 == 3:  # a class that nothing foretells
        probs *= 0.8
        probs[:, 0] += 0.2
    drawn = (rng.random((n, 1)) > probs.cumsum(1)).sum(1)
    return np.minimum(probs, 1), np.minimum(drawn, classes - 1)


def test_good_rows_raise_no_remark(bundled):
    assert count(*bundled).report().lines == ()


def test_calibrated_rows_raise_no_alarm():
    """At most 1% of 200 data sets; a class may well never occur."""
    alarms = [
        [
            line
            for line in count(*calibrated(seed)).report().lines
            if "never" not in line
        ]
        for seed in range(200)
    ]
    assert sum(map(bool, alarms)) <= 2


@pytest.mark.parametrize("name", ["predictions", "predictions/public", "reference"])
def test_pairs_of_real_networks_raise_no_remark(shared, name):
    files = sorted((shared / name).glob("*.npz"))
    assert files
    for path in files:
        with np.load(path) as file:
            if "values" in file:
                probs, labels = file["values"].astype(float), file["label"]
            else:
                probs, labels = softmax(file["logits"].astype(float), 1), file["labels"]
        assert count(np.clip(probs, 0, 1), labels).report().lines == (), path.name


PAIRS = [(0, 9), (1, 2), (3, 5), (5, 3), (6, 2), (8, 1)]


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 1.0])
def test_relabelled_rows_are_found_and_nothing_else(bundled, rng, a, b, share):
    probs, labels = bundled
    relabelled = labels.copy()
    rows = rng.permutation(np.flatnonzero(labels == a))
    relabelled[rows[: int(share * len(rows))]] = b
    counts = count(probs, relabelled)
    assert named_pairs(counts) == {(b, a)}
    n = int(((relabelled == b) & (probs.argmax(1) == a)).sum())
    n_labelled = (relabelled == b).sum()
    start = f"{n:,} of {n_labelled:,} rows labelled {b} are predicted {a}, with"
    assert any(line.startswith(start) for line in counts.report().lines)


def test_few_correct_rows_left_hide_nothing(bundled, rng):
    """90% of each class, relabelled as each other one in turn."""
    probs, labels = bundled
    for a, b in ((a, b) for a in range(10) for b in range(10) if a != b):
        relabelled = labels.copy()
        relabelled[(labels == a) & (rng.random(len(labels)) < 0.9)] = b
        assert named_pairs(count(probs, relabelled)) == {(b, a)}


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_swapped_classes_are_found_and_nothing_else(bundled, a, b):
    probs, labels = bundled
    relabelled = np.where(labels == a, b, np.where(labels == b, a, labels))
    assert named_pairs(count(probs, relabelled)) == {(a, b), (b, a)}


def test_the_line_is_the_one_of_the_example():
    """148 of 150 rows labelled crt are predicted pem."""
    rng = np.random.default_rng(0)
    labels = np.r_[np.zeros(150, int), np.ones(400, int), np.full(400, 2)]
    predicted = np.r_[np.zeros(2, int), np.ones(548, int), np.full(400, 2)]
    predicted[-30:] = 0  # natural errors, less sure
    confidence = 1 - 0.04 * rng.random(950)
    confidence[-30:] = 0.6 + 0.1 * rng.random(30)
    counts = LabelCounts()
    counts.update(labels, predicted, confidence, 3)
    (line,) = counts.report(["crt", "pem", "txt"], lambda _: np.array([4, 9])).lines
    assert line == (
        "148 of 150 rows labelled crt are predicted pem, with confidence as high as "
        "for correct rows (0.98; 0.98): check these labels, first rows 4, 9."
    )


def test_an_uninformative_confidence_raises_no_suspicion(rng):
    """A third of one class is mistaken for another; the model is as sure of it all."""
    labels = rng.integers(0, 4, 4000)
    predicted = labels.copy()
    predicted[(labels == 1) & (rng.random(4000) < 0.3)] = 2
    other = rng.random(4000) < 0.05
    predicted[other] = rng.integers(0, 4, other.sum())
    for confidence in (np.ones(4000), 0.8 + 0.2 * rng.random(4000)):
        counts = LabelCounts()
        counts.update(labels, predicted, confidence, 4)
        assert counts.pairs() == ()


def test_errors_of_two_classes_are_not_a_concentration(rng):
    """If both pairs, or all rows, are equally confident, nothing is suspicious."""
    labels = rng.integers(0, 2, 4000)
    two_class_errors = np.where(rng.random(4000) < 0.2, 1 - labels, labels)
    one_class_errors = np.where(labels == 1, two_class_errors, labels)
    for predicted, confidence in (
        (two_class_errors, 0.95 + 0.05 * rng.random(4000)),
        (one_class_errors, 1.0),
    ):
        counts = LabelCounts()
        counts.update(labels, predicted, np.broadcast_to(confidence, 4000), 2)
        assert counts.pairs() == ()


def test_confidences_that_are_not_probabilities_are_not_judged(bundled):
    probs, labels = bundled
    relabelled = np.where(labels == 3, 5, labels)
    for confidence in (None, probs.max(1) * 100, np.full(len(relabelled), np.nan)):
        counts = LabelCounts()
        counts.update(relabelled, probs.argmax(1), confidence, 10)
        assert counts.pairs() == ()
        assert "never occurs as a label (3; predicted" in counts.report().lines[0]


@pytest.mark.parametrize("classes", [2, 5])
def test_accuracy_below_chance_agrees_with_the_exact_test(classes):
    n, verdicts = 300, set()
    for right in range(n):
        labels = np.sort(np.arange(n) % classes)  # neighbours are alike
        predicted = (labels + classes // 2) % classes  # for 5, never a neighbour's
        predicted[:right] = labels[:right]
        counts = LabelCounts()
        counts.update(labels, predicted, None, classes)
        p = binomtest(right, n, 1 / classes, alternative="less").pvalue
        below = any("below the" in line for line in counts.report().lines)
        assert below == (p < 0.001)
        verdicts.add(below)
    assert verdicts == {True, False}


@pytest.mark.parametrize(("by", "words"), [(1, "count from 1"), (-1, "one too low")])
def test_shifted_labels_are_seen_through(bundled, by, words):
    probs, labels = bundled
    moved = labels + by
    inside = (moved >= 0) & (moved < 10)
    probs, moved = probs[inside], moved[inside]
    line = count(probs, moved).report().lines[0]
    accuracy = (probs.argmax(1) == moved - by).mean()
    now = (probs.argmax(1) == moved).mean()
    assert words in line
    assert f"would be {accuracy:.1%} with every label" in line
    assert f"is {now:.1%} now" in line
    assert not any("below the" in text for text in count(probs, moved).report().lines)


def test_a_bad_model_is_not_mistaken_for_shifted_labels(rng):
    probs, labels = softmax(rng.normal(size=(3000, 10)), 1), rng.integers(0, 10, 3000)
    assert not any("seem" in line for line in count(probs, labels).report().lines)


def test_classes_that_never_occur_are_named(bundled):
    probs, labels = bundled
    kept_rows = ~np.isin(labels, [2, 7])
    names = [f"class {c}" for c in range(10)]
    (line,) = count(probs[kept_rows], labels[kept_rows]).report(names).lines
    n_predicted = int(np.isin(probs[kept_rows].argmax(1), [2, 7]).sum())
    assert line.startswith(
        "2 of 10 classes never occur as a label "
        f"(class 2, class 7; predicted {n_predicted} "
    )
    sample = np.flatnonzero(kept_rows)[:: len(labels) // 60]
    assert (
        count(probs[sample], labels[sample]).report().lines == ()
    )  # too few rows to tell


def test_pairs_are_those_of_brute_force(rng):
    labels, predicted = rng.integers(0, 30, (2, 20_000))
    labels[:15_000] = predicted[:15_000]
    counts = LabelCounts()
    for batch in np.array_split(np.arange(20_000), 7):
        counts.update(labels[batch], predicted[batch], np.full(len(batch), 0.5), 30)
    counts._merge_pending()
    wrong = labels != predicted
    expected = Counter(map(tuple, np.stack([labels, predicted], 1)[wrong].tolist()))
    n, total, square = counts._error_pairs.sums.tolist()
    keys = np.divmod(counts._error_pairs.keys, label_counts._MOST_PAIRS)
    pairs = map(tuple, np.stack(keys, 1).tolist())
    assert dict(zip(pairs, n, strict=True)) == expected
    assert total == [label_counts._STEPS // 2 * x for x in n]
    assert square == [label_counts._STEPS**2 // 4 * x for x in n]
    assert (counts.n, counts.n_correct) == (20_000, int((~wrong).sum()))


def state(counts):
    counts._merge_pending()
    arrays = (
        counts._rows_by_label,
        counts._predicted_sums,
        *counts._error_pairs,
        counts._correct_if_shifted,
    )
    return [array.tolist() for array in arrays], counts.n, counts.n_correct


@pytest.mark.parametrize("late", [1, 1 << 16])
def test_the_order_of_batches_and_merges_changes_nothing(
    bundled, rng, monkeypatch, late
):
    monkeypatch.setattr(label_counts, "_MOST_PENDING", late)
    probs, labels = bundled
    relabelled = np.where((labels == 3) & (rng.random(len(labels)) < 0.5), 5, labels)
    at_once = count(probs, relabelled)
    for sizes in (3, 40):
        batches = np.array_split(rng.permutation(len(relabelled)), sizes)
        merged = at_once.fresh()
        for batch in batches[::2]:
            merged.update(
                relabelled[batch], probs[batch].argmax(1), probs[batch].max(1), 10
            )
        for batch in batches[1::2]:
            merged.merge(
                pickle.loads(pickle.dumps(count(probs[batch], relabelled[batch])))
            )
        merged.merge(LabelCounts())
        assert state(merged) == state(at_once)
        assert merged.report().lines == at_once.report().lines
    assert named_pairs(at_once) == {(5, 3)}


def test_too_many_pairs_are_given_up_in_any_order(rng, monkeypatch):
    monkeypatch.setattr(label_counts, "_MOST_PENDING", 1)
    monkeypatch.setattr(label_counts, "_MOST_PAIRS", 50)
    labels, predicted = rng.integers(0, 40, (2, 3000))
    predicted[:20] = labels[:20] = 0
    for order in (np.arange(3000), rng.permutation(3000)):
        counts = LabelCounts()
        for batch in np.array_split(order, 30):
            counts.update(labels[batch], predicted[batch], np.full(len(batch), 0.9), 40)
        assert counts._pairs_dropped
        assert not len(counts._error_pairs.keys)
        assert counts.n_correct == int((labels == predicted).sum())


def answers(bundled, rows, names):
    """Return rows as texts are numbered: by those that occur in these rows."""
    probs, labels = bundled
    predicted, true = (np.asarray(names)[x[rows]] for x in (probs.argmax(1), labels))
    names_here, codes = np.unique(np.r_[predicted, true], return_inverse=True)
    codes = codes.ravel()
    return (
        codes[len(rows) :],
        codes[: len(rows)],
        probs[rows].max(1),
        names_here.tolist(),
    )


def test_answers_are_identified_by_name(bundled, rng):
    """Each batch numbers its answers independently."""
    probs, labels = bundled
    relabelled = np.where((labels == 3) & (rng.random(len(labels)) < 0.5), 5, labels)
    names = [f"answer {chr(106 - c)}" for c in range(10)]
    results = set()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(labels))
        counters = LabelCounts(), LabelCounts()
        for i, batch in enumerate(np.array_split(order, 300)):
            *arrays, names_here = answers((probs, relabelled), batch, names)
            counters[i % 2].update(*arrays, 0, names=names_here)
        counters[0].merge(counters[1])
        results.add(counters[0].report().lines)
    ((line,),) = results
    assert f"rows labelled {names[5]} are predicted {names[3]}, with" in line


def test_answers_without_names_raise_no_remark(bundled):
    probs, labels = bundled
    counts = LabelCounts()
    counts.update(np.where(labels == 3, 5, labels), probs.argmax(1), probs.max(1), 0)
    assert counts.report().lines == ()


def test_answers_without_end_are_given_up(monkeypatch):
    monkeypatch.setattr(label_counts, "_MOST_ANSWERS", 20)
    counts = LabelCounts()
    for i in range(10):
        names = [f"{i} {j}" for j in range(5)]
        counts.update(np.arange(5), np.arange(5), np.full(5, 0.9), 0, names=names)
    assert counts._pairs_dropped
    assert not counts._answer_indices
    assert counts.report().lines == ()


def test_other_numbers_of_classes_are_refused():
    counts = LabelCounts()
    counts.update([0], [0], [0.5], 3)
    with pytest.raises(InputError, match="3 classes everywhere, got 4"):
        counts.update([0], [0], [0.5], 4)
    assert LabelCounts().report().lines == ()


def test_many_pairs_are_counted_and_not_all_named(bundled):
    """All labels of the first eight classes in another order, without neighbours."""
    probs, labels = bundled
    order = np.array([2, 3, 0, 1, 6, 7, 4, 5, 8, 9])
    lines = count(probs, order[labels]).report().lines
    assert (
        sum("check these labels" in line for line in lines) == label_counts.MOST_LISTED
    )
    assert "more pairs of label and predicted class are as suspicious" in lines[-1]


def rows(counts, labels, predicted):
    """Count labels and predicted classes, and how labels fit the adjacent row."""
    classes = int(max(predicted.max(), labels.max())) + 1
    counts.update(labels, predicted, np.full(len(predicted), 0.8), classes)
    return counts


def guesses(seed, n=1000, classes=5, accuracy=0.7):
    """Draw predicted classes, and labels for which they have this accuracy."""
    rng = np.random.default_rng(seed)
    predicted = rng.integers(0, classes, n)
    wrong = rng.random(n) > accuracy
    return (predicted + wrong * rng.integers(1, classes, n)) % classes, predicted


@pytest.mark.parametrize(("by", "direction"), [(1, "up"), (-1, "down")])
def test_labels_shifted_by_one_row(by, direction):
    labels, predicted = guesses(0)
    (line,) = rows(LabelCounts(), np.roll(labels, by), predicted).report().odd
    # Rolled back, all labels are in place but for the one at the end.
    accuracy = (
        (labels == predicted)[1:].mean()
        if by > 0
        else (labels == predicted)[:-1].mean()
    )
    assert f"moved {direction} by one row: accuracy would be {accuracy:.1%}" in line


def test_a_row_off_is_seen_where_labels_are_missing_and_in_batches():
    labels, predicted = guesses(1, n=3000)
    off = np.roll(labels, 1)
    off[np.random.default_rng(0).random(3000) < 0.3] = -1
    at_once, merged = LabelCounts(), LabelCounts()
    for batch_rows in np.split(np.arange(3000), [700, 1500]):
        batch_counts = LabelCounts()
        batch_counts.update(off[batch_rows], predicted[batch_rows], None, 5)
        merged.merge(batch_counts)
    at_once.update(off, predicted, None, 5)
    for counts in (at_once, merged):
        assert "moved up by one row" in counts.report().odd[0]


def test_rows_in_the_order_of_their_classes_are_not_shifted():
    labels, predicted = guesses(2, accuracy=0.95)
    order = np.argsort(labels, kind="stable")
    assert rows(LabelCounts(), labels[order], predicted[order]).report().odd == ()


def test_labels_in_random_order():
    labels, predicted = guesses(3)
    mixed = np.random.default_rng(0).permutation(labels)
    (line,) = rows(LabelCounts(), mixed, predicted).report().odd
    assert line.startswith("Labels agree with the predictions as labels in random")


def test_the_spread_of_the_agreement_is_that_over_all_orders():
    """999 in 1,000 random orders are reported; labels that agree a little never are."""
    rng, quiet = np.random.default_rng(0), 0
    labels, predicted = guesses(4, n=2000, classes=3)
    for _ in range(300):
        quiet += (
            not rows(LabelCounts(), rng.permutation(labels), predicted).report().odd
        )
    assert quiet <= 2
    for seed in range(100):  # kappa 0.2
        labels, predicted = guesses(seed, n=2000, classes=3, accuracy=0.47)
        assert rows(LabelCounts(), labels, predicted).report().odd == ()


def test_a_nearly_constant_model_raises_no_remark():
    predicted = np.zeros(5000, int)
    predicted[:4] = 1
    labels = (np.arange(5000) % 50 == 49).astype(int)
    assert rows(LabelCounts(), labels, predicted).report().odd == ()


def test_reversed_labels_of_two_classes_named_in_text():
    predicted = np.repeat([0, 1], 150)
    labels = np.where(np.arange(300) % 10 == 0, predicted, 1 - predicted)
    counts = LabelCounts()
    counts.update(labels, predicted, np.full(300, 0.9), 0, names=("no", "yes"))
    assert "labels in random order" in counts.report().odd[0]


@pytest.mark.parametrize(
    ("n", "confidence", "odd"),
    [(100, 0.9, True), (100, 0.99, False), (2000, 0.9999, True), (29, 0.5, False)],
)
def test_every_prediction_is_correct(n, confidence, odd):
    predicted, counts = np.arange(n) % 3, LabelCounts()
    counts.update(predicted, predicted, np.full(n, confidence), 3)
    assert bool(counts.report().odd) is odd
    assert not odd or f"All {n:,} predictions are correct" in counts.report().odd[0]


@pytest.mark.parametrize(
    ("names", "difference"),
    [
        (["Paris", "paris", "Rome"], "case"),
        (["New York", "NewYork", "Rome"], "spaces"),
        (["\uff11", "1", "Rome"], "their Unicode form"),
        (["STRASSE ", "stra\u00dfe", "Rome"], "case, spaces or their Unicode form"),
    ],
)
def test_names_that_look_alike(names, difference):
    predicted = np.arange(30) % 3
    texts, classes = LabelCounts(), LabelCounts()
    texts.update(predicted, predicted, None, 0, names=names)
    classes.update(predicted, predicted, None, 3)
    for lines in (texts.report().lines, classes.report(names).lines):
        (line,) = [line for line in lines if "differ" in line]
        assert f"differ only in {difference}," in line
        assert all(repr(name) in line for name in names[:2])
        assert "Rome" not in line
    merged = LabelCounts()
    for name in names:  # one spelling in each part
        batch_counts = LabelCounts()
        batch_counts.update([0] * 9, [0] * 9, None, 0, names=[name])
        merged.merge(batch_counts)
    assert f"differ only in {difference}," in merged.report().lines[0]


def test_good_labels_are_not_odd():
    """None of 200 data sets; the tests err once in 1,000."""
    for seed in range(200):
        probs, labels = calibrated(seed)
        counts = count(probs, labels)
        assert counts.report().odd == (), seed
