"""Signs that labels are wrong: shifted, shuffled, swapped, copied from the model.

`LabelCounts` looks at labels, predicted classes and confidences alone. It adds up
batches in whole numbers, so their order changes nothing, and it keeps no rows.
"""

import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from trustdoctor.arrays import Array, to_numpy
from trustdoctor.errors import InputError
from trustdoctor.predictions import folded_name

LEVEL = 0.001
"""The significance level of every check of labels."""

LEAST_ERRORS = 10
"""Pairs and predicted classes with fewer errors are not judged."""

LARGE_SHARE = 0.1
"""A pair is judged if it holds this share of its label's rows, or of all errors."""

CLOSE = 0.75
"""Confidence counts as high if it is less than this below the usual one.

In standard deviations. Natural errors of large pairs are 1.2 below and more."""

APART = 1.35
"""Other errors must be this far below the usual confidence for it to be informative.

In networks they are 1.4 below and more; in shallow trees or naive Bayes, seldom."""

LEAST_ROWS = 30
"""Checks of all labels at once need this many rows."""

LARGEST_KAPPA = 0.1
"""Labels count as random if a Cohen's kappa above this is excluded."""

MANY_CORRECT = 1000
"""This many rows without an error are odd, whatever errors the confidences expect.

Fewer are if the confidences expect `EXPECTED_ERRORS`.
"""

EXPECTED_ERRORS = 7
"""No error comes where 7 are expected with probability exp(-7) < 0.001 (Poisson)."""

MOST_LISTED = 5
"""Classes, pairs and rows that a sentence names; the others are counted."""

# Confidences are stored in whole steps, so that sums do not depend on the order of
# batches: floats would round differently.
_STEPS = 1 << 15
_LEAST_SPREAD = 0.001  # confidences with a smaller deviation carry no information
_REFERENCE_ROWS = 30  # correct rows of a class that show its usual confidence
_MOST_PAIRS = 1 << 20  # pairs, or classes; beyond them pairs are no longer followed
_MOST_ANSWERS = 1 << 16  # different answers, likewise
_EXACT_ROWS = 1 << 22  # squares of steps (2^30) of as many rows fit a float's 2^53
_MOST_PENDING = 1 << 16  # pairs that may wait to be summed up

_Z_LEVEL = 3.1  # normal quantile of LEVEL, rounded up
_Z_QUARTER = 3.5  # normal quantile of LEVEL / 4: up and down, by accuracy or order


@dataclass(frozen=True)
class SuspectedPair:
    """Rows of one label, predicted as another class as surely as if that were right.

    Attributes
    ----------
    label, predicted : int or str
        Classes; texts for answers without a set of classes.
    n, n_labelled : int
        Rows of the pair, and all rows of that label.
    confidence, usual_confidence : float
        The mean in the pair, and in correct rows: those of the predicted class, or all
        where the class has few.
    as_high : bool
        Whether the two are equal but for chance; otherwise the first is a little lower.
    """

    label: Any
    predicted: Any
    n: int
    n_labelled: int
    confidence: float
    usual_confidence: float
    as_high: bool = True

    def sentence(self, class_names: Sequence[str] | None = None, rows: Any = ()) -> str:
        """Describe the pair, with the numbers of its first rows if they are given.

        Examples
        --------
        >>> pair = SuspectedPair(0, 1, 148, 150, 0.97, 0.98)
        >>> print(pair.sentence(["crt", "pem"], [7]))
        148 of 150 rows labelled crt are predicted pem, with confidence as high as for \
correct rows (0.97; 0.98): check these labels, first row 7.
        """
        label, predicted = (_name(c, class_names) for c in (self.label, self.predicted))
        numbers = ", ".join(str(row) for row in rows[:MOST_LISTED])
        plural = "s" * (len(rows) > 1)
        first_rows = f", first row{plural} {numbers}" if len(rows) else ""
        return (
            f"{self.n:,} of {self.n_labelled:,} rows labelled {label} are predicted "
            f"{predicted}, with confidence {'' if self.as_high else 'nearly '}as high "
            f"as for correct rows ({self.confidence:.2f}; "
            f"{self.usual_confidence:.2f}): check these labels{first_rows}."
        )


class LabelReport(NamedTuple):
    """What looks wrong about labels, in a sentence each.

    Attributes
    ----------
    odd : tuple of str
        Why nothing may rest on them.
    notes : tuple of str
        What else to check.
    """

    odd: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """All sentences, the odd ones first."""
        return (*self.odd, *self.notes)


class _PairSums(NamedTuple):
    """Sums (3, k) of rows, confidence steps and their squares, by pair (k,).

    A pair's key is label * `_MOST_PAIRS` + predicted class.
    """

    keys: Array
    sums: Array

    def grouped(self) -> "_PairSums":
        """Return each pair once, in order."""
        if not len(self.keys):
            return self
        order = np.argsort(self.keys)
        keys = self.keys[order]
        starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
        return _PairSums(
            keys[starts], np.add.reduceat(self.sums[:, order], starts, axis=1)
        )


_NO_PAIRS = _PairSums(np.zeros(0, np.int64), np.zeros((3, 0), np.int64))


class LabelCounts:
    """Counts that show where labels cannot be right.

    Examples
    --------
    >>> counts = LabelCounts()
    >>> counts.update([1, 2, 3] * 10, [0, 1, 2] * 10, np.full(30, 0.9), 4)
    >>> print(counts.report().odd[0])
    Labels seem to count from 1: accuracy would be 100.0% with every label lowered by \
one, and is 0.0% now. Check --first-class, and the order of the columns.
    """

    def __init__(self) -> None:
        self.n_classes: int | None = None
        self.n = 0
        self.n_correct = 0
        # Correct rows if every label were lowered, or raised, by one.
        self._correct_if_shifted = np.zeros(2, np.int64)
        # With labels moved up, or down, by a row: see `_add_neighbours`.
        self._neighbours = np.zeros((2, 4), np.int64)
        self._neighbour_steps = np.zeros((2, 4), np.int64)
        self._spellings: dict[str, set[str]] = {}
        self._rows_by_label = np.zeros(0, np.int64)
        # Rows, confidence steps and their squares, by predicted class.
        self._predicted_sums = np.zeros((3, 0), np.int64)
        self._error_pairs = _NO_PAIRS
        self._pending: list[_PairSums] = []
        self._answer_indices: dict[str, int] = {}
        self._pairs_dropped = False

    def fresh(self) -> "LabelCounts":
        """Return the same, without rows."""
        return LabelCounts()

    def update(
        self,
        labels: Any,
        predicted: Any,
        confidence: Any,
        n_classes: int,
        *,
        names: Sequence[str] | None = None,
    ) -> None:
        """Count more rows, in their order.

        Parameters
        ----------
        labels, predicted : integer arrays (n,)
            Missing labels and missing answers are below 0; rows that lack one count
            only as neighbours.
        confidence : array (n,), or None
            The probability that the prediction is right. Where it is None, or not from
            0 to 1, pairs are not judged.
        n_classes : int
            0 for answers without a set of classes.
        names : sequence of str, optional
            What the numbers mean in these rows, for such answers. Without them their
            labels are not judged.
        """
        self._check_classes(n_classes)
        label, guess = (
            to_numpy(a).astype(np.int64, copy=False) for a in (labels, predicted)
        )
        steps = _confidence_steps(confidence)
        if n_classes or names is not None:
            self._add_neighbours(label, guess, steps)
        complete = (label >= 0) & (guess >= 0)
        if not complete.all():
            label, guess = label[complete], guess[complete]
            steps = None if steps is None else steps[complete]
        wrong = np.flatnonzero(label != guess)
        self.n += len(label)
        self.n_correct += len(label) - len(wrong)
        if not n_classes:
            self._add_spellings(names or ())
            if names is None or self._pairs_dropped:
                self._drop_pairs()
                return
            index = self._indices_of(names)
            label, guess = index[label], index[guess]
        width = self._resize(n_classes or len(self._answer_indices))
        self._rows_by_label += np.bincount(label, minlength=width)
        step = guess[wrong] - label[wrong]
        self._correct_if_shifted += [np.count_nonzero(step == by) for by in (-1, 1)]
        self._add_confidences(label, guess, wrong, steps)

    def _add_neighbours(self, label: Array, guess: Array, steps: Array | None) -> None:
        """Count which labels fit the prediction of the row before, or after."""
        before, after = slice(None, -1), slice(1, None)
        for direction, (row, neighbour) in enumerate(  # up, down
            ((before, after), (after, before))
        ):
            both_known = (label[neighbour] >= 0) & (label[row] >= 0)
            fits_moved = (label[neighbour] == guess[row]) & both_known
            fits_now = (label[row] == guess[row]) & both_known
            fits_always = np.count_nonzero(fits_moved & fits_now)
            self._neighbours[direction] += (
                np.count_nonzero(both_known),
                np.count_nonzero(fits_moved) - fits_always,
                np.count_nonzero(fits_now) - fits_always,
                fits_always,
            )
            if steps is not None:
                row_steps = steps[row].astype(np.int64)
                changed = row_steps[fits_moved != fits_now]
                self._neighbour_steps[direction] += (
                    row_steps[fits_moved].sum(),
                    row_steps[fits_now].sum(),
                    changed.sum(),
                    (changed**2).sum(),
                )

    def _check_classes(self, n_classes: int) -> None:
        if self.n_classes is None:
            self.n_classes = n_classes
        if n_classes != self.n_classes:
            message = (
                f"expected {self.n_classes} classes everywhere, got {n_classes} in "
                "later rows. Count the rows of one model at a time."
            )
            raise InputError(message)
        if n_classes > _MOST_PAIRS:
            self._drop_pairs()

    def _add_spellings(self, names: Iterable[str]) -> None:
        """Remember how answers are spelt, unless there are very many."""
        if len(self._spellings) <= _MOST_ANSWERS:
            for name in names:
                self._spellings.setdefault(folded_name(name), set()).add(name)

    def _indices_of(self, names: Sequence[str]) -> Array:
        """Return the numbers that answers have in these counts."""
        indices = self._answer_indices
        return np.array(
            [indices.setdefault(str(name), len(indices)) for name in names], np.int64
        )

    def _resize(self, n_classes: int) -> int:
        """Make room for `n_classes` and return for how many there is room."""
        lacking = n_classes - len(self._rows_by_label)
        if lacking > 0:
            self._rows_by_label = np.pad(self._rows_by_label, (0, lacking))
            self._predicted_sums = np.pad(self._predicted_sums, ((0, 0), (0, lacking)))
        return len(self._rows_by_label)

    def _add_confidences(
        self, label: Array, guess: Array, wrong: Array, steps: Array | None
    ) -> None:
        """Sum confidences by predicted class, and by pair of label and prediction."""
        width = len(self._rows_by_label)
        self._predicted_sums[0] += np.bincount(guess, minlength=width)
        if steps is None or self._pairs_dropped:
            self._drop_pairs()
            return
        for start in range(0, len(guess), _EXACT_ROWS):
            block = slice(start, start + _EXACT_ROWS)
            classes, weights = guess[block], steps[block]
            for power, values in ((1, weights), (2, weights * weights)):
                sums = np.bincount(classes, values, width)
                self._predicted_sums[power] += sums.astype(np.int64)
        self._add_pairs(_sum_pairs(label[wrong], guess[wrong], steps[wrong], width))

    def _add_pairs(self, pairs: _PairSums) -> None:
        self._pending.append(pairs)
        waiting = sum(len(batch.keys) for batch in self._pending)
        # Waiting for as many as there are already sorts each a few times, and not once
        # per batch.
        if waiting > max(_MOST_PENDING, len(self._error_pairs.keys)):
            self._merge_pending()
        if len(self._answer_indices) > _MOST_ANSWERS:
            self._drop_pairs()

    def _merge_pending(self) -> None:
        """Sum up the pairs that wait; drop all pairs if there are too many."""
        columns = zip(self._error_pairs, *self._pending, strict=True)
        keys, sums = (np.concatenate(arrays, -1) for arrays in columns)
        self._error_pairs, self._pending = _PairSums(keys, sums).grouped(), []
        if len(self._error_pairs.keys) > _MOST_PAIRS:
            self._drop_pairs()

    def _drop_pairs(self) -> None:
        """Stop following pairs.

        Whether this happens must not depend on the order of rows, so it is final.
        """
        self._pairs_dropped = True
        self._error_pairs, self._pending, self._answer_indices = _NO_PAIRS, [], {}

    def merge(self, other: "LabelCounts") -> None:
        """Add the rows that another object counted."""
        if other.n_classes is None:
            return
        self._check_classes(other.n_classes)
        self.n += other.n
        self.n_correct += other.n_correct
        self._correct_if_shifted = self._correct_if_shifted + other._correct_if_shifted
        self._neighbours = self._neighbours + other._neighbours
        self._neighbour_steps = self._neighbour_steps + other._neighbour_steps
        self._add_spellings(n for names in other._spellings.values() for n in names)
        if self._pairs_dropped or other._pairs_dropped:
            self._drop_pairs()
            if not self.n_classes:
                return
        width = len(other._rows_by_label)
        index = np.arange(width)
        if other._answer_indices:
            index = self._indices_of(list(other._answer_indices))
        self._resize(max(width, len(self._answer_indices)))
        self._rows_by_label[index] += other._rows_by_label
        self._predicted_sums[:, index] += other._predicted_sums
        if self._pairs_dropped:
            return
        for keys, sums in (other._error_pairs, *other._pending):
            label, guess = np.divmod(keys, _MOST_PAIRS)
            self._add_pairs(_PairSums(index[label] * _MOST_PAIRS + index[guess], sums))

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.n

    def pairs(self) -> tuple[SuspectedPair, ...]:
        """Return the pairs whose labels are suspected, those of most rows first.

        A pair is suspected if it is large, if its rows are as confident as correct
        rows of the predicted class, by a test at 0.001 over all large pairs, and if
        that class has more errors than its confidences allow. Where other errors are
        not clearly less confident, or most pairs are suspected, none is.

        Examples
        --------
        >>> counts = LabelCounts()
        >>> confidence = np.tile([0.9, 0.95], 200)
        >>> counts.update([0, 1, 2, 0] * 100, [0, 1, 2, 1] * 100, confidence, 3)
        >>> [(pair.label, pair.predicted, pair.n) for pair in counts.pairs()]
        [(0, 1, 100)]
        """
        if not self._pairs_dropped:
            self._merge_pending()
        if self._pairs_dropped or not len(self._error_pairs.keys):
            return ()
        pairs = list(
            _suspected_pairs(
                self._error_pairs, self._predicted_sums, self._rows_by_label
            )
        )
        if self._answer_indices:
            answers = list(self._answer_indices)
            pairs = [
                replace(
                    pair, label=answers[pair.label], predicted=answers[pair.predicted]
                )
                for pair in pairs
            ]
        return tuple(sorted(pairs, key=lambda p: (-p.n, p.label, p.predicted)))

    def report(
        self,
        class_names: Sequence[str] | None = None,
        rows_of: Callable[[SuspectedPair], Any] | None = None,
    ) -> LabelReport:
        """Return what is suspicious; nothing on good data.

        Each test that makes labels odd errs with probability 0.001 at most, and fewer
        than 30 rows are not odd.

        Parameters
        ----------
        class_names : sequence of str, optional
        rows_of : callable, optional
            Returns the row numbers of a suspected pair, to name the first ones.

        Examples
        --------
        >>> counts, predicted = LabelCounts(), np.arange(900) ** 2 % 7 % 3
        >>> counts.update(np.roll(predicted, 1), predicted, None, 7)
        >>> print(*counts.report().odd)
        Labels fit better when moved up by one row: accuracy would be 100.0%, and is \
42.8% now. Check that no column was shifted against the others.
        """
        if not self.n:
            return LabelReport()
        shift, odd = self._class_shift(), ""
        if self.n >= LEAST_ROWS:
            odd = shift or self._row_shift() or self._below_chance()
            odd = odd or self._no_agreement() or self._no_errors()
        notes = [
            "" if odd else shift or self._below_chance(),
            self._absent_labels(class_names),
            self._similar_names(class_names),
        ]
        if not shift:
            notes += self._pair_notes(class_names, rows_of)
        return LabelReport(_capitalised([odd]), _capitalised(notes))

    def _pair_notes(
        self,
        class_names: Sequence[str] | None,
        rows_of: Callable[[SuspectedPair], Any] | None,
    ) -> Iterator[str]:
        pairs = self.pairs()
        for pair in pairs[:MOST_LISTED]:
            yield pair.sentence(class_names, () if rows_of is None else rows_of(pair))
        unlisted = pairs[MOST_LISTED:]
        if unlisted:
            yield (
                f"{sum(pair.n for pair in unlisted):,} rows of {len(unlisted)} more "
                f"pair{'s' * (len(unlisted) > 1)} of label and predicted class are as "
                "suspicious."
            )

    def _row_shift(self) -> str:
        """Return that labels fit better when they are moved by one row."""
        for direction, name in enumerate(("up", "down")):
            n, fit_moved, fit_now, always = self._neighbours[direction].tolist()
            if n < LEAST_ROWS:
                continue
            now, moved = (always + fit_now) / n, (always + fit_moved) / n
            if self._fits_better(direction, now, moved):
                fits = f"accuracy would be {moved:.1%}, and is {now:.1%} now"
            elif self._orders_better(direction):
                fits = (
                    "the more confident predictions would then be right more often, "
                    "and are not now"
                )
            else:
                continue
            return (
                f"labels fit better when moved {name} by one row: {fits}. Check that "
                "no column was shifted against the others."
            )
        return ""

    def _fits_better(self, direction: int, now: float, moved: float) -> bool:
        """Test whether more predictions are right with moved labels (sign test)."""
        from scipy.special import bdtr

        _, fit_moved, fit_now, _ = self._neighbours[direction].tolist()
        # McNemar's test, exact: of the rows that change, each way is as likely.
        p_value = bdtr(fit_now, fit_moved + fit_now, 0.5)
        if not (fit_moved > fit_now and p_value < LEVEL / 4):
            return False
        # Rows in the order of their classes fit nearly as well when moved. So half of
        # the errors at least must go, or agreement now must be little beyond chance.
        chance = self._chance_agreement()
        return 2 * (1 - moved) <= 1 - now or _is_far_less(now - chance, moved - chance)

    def _orders_better(self, direction: int) -> bool:
        """Test whether confidence orders errors with moved labels, and not now.

        A model that nearly always predicts the same is right as often with any labels,
        and its confidence alone tells where they belong. The test is that of a sum of
        confidences, less their mean, over rows that change from wrong to right (plus)
        or back (minus), whose signs would be random.
        """
        _, fit_moved, fit_now, always = self._neighbours[direction].tolist()
        steps = self._neighbour_steps[direction]
        # Of a model that always predicts the same, moving labels changes one row.
        if self._pairs_dropped or not steps.any() or fit_moved + 1 < fit_now:
            return False
        steps_moved, steps_now, steps_changed, squares = steps.tolist()
        rows, sums = self._predicted_sums[:2]
        mean = float(sums.sum()) / self.n
        # By chance as many agree in every predicted class as have its label.
        chance = (sums - mean * rows) @ self._rows_by_label / self.n
        beyond_moved = steps_moved - mean * (always + fit_moved) - chance
        beyond_now = steps_now - mean * (always + fit_now) - chance
        n_changed = fit_moved + fit_now
        variance = squares - 2 * mean * steps_changed + mean**2 * n_changed
        limit = _Z_QUARTER * math.sqrt(max(variance, 0))
        clear = beyond_moved - beyond_now > limit
        return bool(clear and _is_far_less(beyond_now, beyond_moved))

    def _chance_agreement(self) -> float:
        """Return the share of labels in random order that would agree; NaN: unknown."""
        rows = self._predicted_sums[0]
        complete = self._rows_by_label.sum() == rows.sum() == self.n
        labels, predicted = (counts / self.n for counts in (self._rows_by_label, rows))
        return float(labels @ predicted) if complete else math.nan

    def _no_agreement(self) -> str:
        """Return that labels in any other order would fit as well.

        The variance of the agreement over all orders is that of Cohen's kappa for
        fixed margins (Fleiss, Levin and Paik, Statistical Methods for Rates and
        Proportions, 2003, section 18.1).
        """
        n = self.n
        labels, predicted = (
            counts.astype(float)
            for counts in (self._rows_by_label, self._predicted_sums[0])
        )
        if labels.sum() != n or predicted.sum() != n:
            return ""
        products = labels * predicted
        largest = np.minimum(labels, predicted).sum()
        variance = (products * (n - labels) * (n - predicted)).sum()
        variance = variance + products.sum() ** 2 - (products**2).sum()
        limit = _Z_LEVEL * np.sqrt(variance / (n * n * (n - 1.0)))
        expected = products.sum() / n
        beyond = self.n_correct - expected
        # The limit must be small against the agreement that the margins allow: a model
        # that nearly always predicts the same tells nothing.
        if beyond >= limit or beyond + limit >= LARGEST_KAPPA * (largest - expected):
            return ""
        return (
            f"labels agree with the predictions as labels in random order would: "
            f"accuracy is {self.n_correct / n:.1%}, by chance {expected / n:.1%}. "
            "Check that the labels are those of these rows."
        )

    def _no_errors(self) -> str:
        """Return that there is no error where some are to be expected."""
        if self.n_correct < self.n:
            return ""
        expected = 0.0
        if not self._pairs_dropped:
            expected = self.n - float(self._predicted_sums[1].sum()) / _STEPS
        if self.n < MANY_CORRECT and expected < EXPECTED_ERRORS:
            return ""
        by = f", where the confidences expect {expected:,.0f} errors"
        return (
            f"all {self.n:,} predictions are correct{by * (expected >= 1)}: check that "
            "the label is not the model's own answer, and that the model was not "
            "trained on these rows."
        )

    def _similar_names(self, class_names: Sequence[str] | None) -> str:
        """Name two classes that are spelt alike but for case, spaces or Unicode."""
        spellings = self._spellings
        if self.n_classes:
            spellings = {}
            for name in class_names or ():
                spellings.setdefault(folded_name(name), set()).add(name)
        pairs = sorted(
            sorted(names)[:2] for names in spellings.values() if len(names) > 1
        )
        if not pairs:
            return ""
        more = len(pairs) - 1
        unlisted = f" So are {more} more pair{'s' * (more > 1)}." * (more > 0)
        first, second = pairs[0]
        return (
            f"the classes {first!r} and {second!r} differ only in "
            f"{_spelling_difference(first, second)}, and count as two: write them "
            f"alike.{unlisted}"
        )

    def _below_chance(self) -> str:
        """Return that guessing would do better (binomial test)."""
        from scipy.special import bdtr

        classes = self.n_classes or 0
        if classes < 2 or not bdtr(self.n_correct, self.n, 1 / classes) < LEVEL:
            return ""
        return (
            f"accuracy is {self.n_correct / self.n:.1%}, below the {1 / classes:.1%} "
            f"of guessing among {classes} classes: check that the labels number the "
            "classes as the columns do, and that higher means more likely."
        )

    def _class_shift(self) -> str:
        """Return that labels fit better when they are lowered or raised by one."""
        from scipy.special import bdtr, bdtrc

        best = int(self._correct_if_shifted.argmax())
        shifted, classes = int(self._correct_if_shifted[best]), self.n_classes or 0
        # Of two classes a wrong label is always the one beside.
        if classes < 3 or shifted <= 2 * self.n_correct:
            return ""
        no_better = bdtr(self.n_correct, self.n_correct + shifted, 0.5)
        by_chance = bdtrc(shifted - 1, self.n, 1 / classes)
        if not max(no_better, by_chance) < LEVEL:
            return ""
        mistake, change, check = (
            ("count from 1", "lowered", "--first-class, and the order of the columns")
            if best == 0
            else ("be one too low", "raised", "them, and the order of the columns")
        )
        return (
            f"labels seem to {mistake}: accuracy would be {shifted / self.n:.1%} with "
            f"every label {change} by one, and is {self.n_correct / self.n:.1%} now. "
            f"Check {check}."
        )

    def _absent_labels(self, class_names: Sequence[str] | None) -> str:
        """Name classes that never occur as a label, where that is to be expected."""
        if not self.n_classes:
            return ""
        predicted = self._predicted_sums[0]
        absent = np.flatnonzero(self._rows_by_label == 0)
        if self.n < 10 * self.n_classes:  # too few rows for every class to occur
            absent = absent[predicted[absent] >= LEAST_ERRORS]
        if not len(absent):
            return ""
        names = ", ".join(_name(int(c), class_names) for c in absent[:MOST_LISTED])
        more = ", ..." if len(absent) > MOST_LISTED else ""
        occur = f"classes never occur{'s' * (len(absent) == 1)}"
        return (
            f"{len(absent):,} of {self.n_classes:,} {occur} as a label ({names}{more}; "
            f"predicted {int(predicted[absent].sum()):,} times): check that the labels "
            "are complete and number the classes as the columns do."
        )


def _capitalised(sentences: Iterable[str]) -> tuple[str, ...]:
    """Return the sentences that are not empty, with a capital letter."""
    return tuple(text[0].upper() + text[1:] for text in sentences if text)


def _is_far_less(now: float, moved: float) -> bool:
    """Return whether there is little agreement now, and much with moved labels."""
    return 4 * abs(now) <= moved


def _confidence_steps(confidence: Any) -> Array | None:
    """Return probabilities in whole steps; None where they are not probabilities."""
    if confidence is None:
        return None
    values = to_numpy(confidence).astype(np.float64, copy=False)
    if len(values) and not (values.min() >= 0 and values.max() <= 1):  # or NaN
        return None
    return np.rint(values * _STEPS)


def _sum_pairs(label: Array, guess: Array, steps: Array, width: int) -> _PairSums:
    """Sum errors by pair of label and predicted class."""
    powers = (np.ones_like(steps), steps, steps * steps)
    if not width * width <= len(label) <= _EXACT_ROWS:
        keys = label * _MOST_PAIRS + guess
        return _PairSums(keys, np.stack(powers).astype(np.int64)).grouped()
    # Few classes: a table of all pairs is faster than sorting the rows.
    cell = label * width + guess
    table = np.stack([np.bincount(cell, power, width * width) for power in powers])
    occupied = np.flatnonzero(table[0])
    row, column = np.divmod(occupied, width)
    keys = row * _MOST_PAIRS + column
    return _PairSums(keys, table[:, occupied].astype(np.int64))


def _spelling_difference(first: str, second: str) -> str:
    """Return in what two names differ that have the same folded form."""
    if first.casefold() == second.casefold():
        return "case"
    if "".join(first.split()) == "".join(second.split()):
        return "spaces"
    composed = (unicodedata.normalize("NFKC", name) for name in (first, second))
    if len(set(composed)) == 1:
        return "their Unicode form"
    return "case, spaces or their Unicode form"


def _name(label: Any, class_names: Sequence[str] | None) -> str:
    if class_names is None or isinstance(label, str):
        return str(label)
    return class_names[label]


def _suspected_pairs(
    pairs: _PairSums, predicted_sums: Array, rows_by_label: Array
) -> Iterator[SuspectedPair]:
    """Yield the pairs whose labels are suspected; see `LabelCounts.pairs`."""
    label, guess = np.divmod(pairs.keys, _MOST_PAIRS)
    n, n_labelled = pairs.sums[0], rows_by_label[label]
    width = predicted_sums.shape[1]
    wrong = np.stack([np.bincount(guess, sums, width) for sums in pairs.sums])
    correct = predicted_sums - wrong
    all_correct = correct.sum(1)
    _, deviation = _mean_and_deviation(predicted_sums.sum(1))
    if all_correct[0] < _REFERENCE_ROWS or deviation < _LEAST_SPREAD:
        return
    large = (n >= LEAST_ERRORS) & (
        (n >= LARGE_SHARE * n_labelled) | (n >= LARGE_SHARE * n.sum())
    )
    n_tests = max(1, int(large.sum()))
    # A pair that outweighs the correct rows of its class is compared with all others.
    of_class, of_all = correct[:, guess], all_correct[:, None]
    by_class = of_class[0] >= _REFERENCE_ROWS
    by_class &= _as_confident(pairs.sums, of_class, n_tests)
    outweighs = of_class[0] < np.maximum(n, _REFERENCE_ROWS)
    by_all = outweighs & _as_confident(pairs.sums, of_all, n_tests)
    # Among rows of confidence c a share 1 - c is wrong, with variance c (1 - c).
    total, squares = predicted_sums[1] / _STEPS, predicted_sums[2] / _STEPS**2
    variance = np.maximum(total - squares, 0)
    allowed = predicted_sums[0] - total + _Z_LEVEL * np.sqrt(variance)
    too_many = (wrong[0] > allowed)[guess]
    suspected = np.flatnonzero(large & (by_class | by_all) & too_many)
    other_errors = wrong.sum(1) - pairs.sums[:, suspected].sum(1)
    usual, scale = _mean_and_deviation(all_correct)
    gap = usual - _mean_and_deviation(other_errors)[0]
    # If other errors are as confident, confidence says nothing about labels.
    uninformative = other_errors[0] >= LEAST_ERRORS and gap < APART * scale
    if uninformative or 2 * len(suspected) > width * (width - 1):
        return
    usual, scale = _mean_and_deviation(np.where(by_class, of_class, of_all))
    confidence, _ = _mean_and_deviation(pairs.sums)
    for i in suspected.tolist():
        yield SuspectedPair(
            int(label[i]),
            int(guess[i]),
            int(n[i]),
            int(n_labelled[i]),
            float(confidence[i]),
            float(usual[i]),
            as_high=bool(usual[i] - confidence[i] <= CLOSE / 3 * scale[i]),
        )


def _as_confident(pairs: Array, usual: Array, n_tests: int) -> Array:
    """Test which pairs are as confident as usual: surely within the margin `CLOSE`.

    A non-inferiority test (Schuirmann, Journal of Pharmacokinetics and
    Biopharmaceutics, 1987) by Student's t, with Bonferroni's correction.
    """
    from scipy.special import stdtrit

    pair_mean, pair_deviation = _mean_and_deviation(pairs)
    mean, deviation = _mean_and_deviation(usual)
    quantile = stdtrit(np.maximum(pairs[0] - 1, 1), 1 - LEVEL / n_tests)
    variance = 1 / pairs[0] + 1 / np.maximum(usual[0], 1)
    error = np.maximum(deviation, pair_deviation) * np.sqrt(variance)
    return np.asarray(mean - pair_mean + quantile * error < CLOSE * deviation)


def _mean_and_deviation(sums: Array) -> tuple[Array, Array]:
    """Return the mean of confidences and their standard deviation; 0 of no rows."""
    n = np.maximum(sums[0], 1)
    mean = sums[1] / n / _STEPS
    variance = np.maximum(sums[2] / n / _STEPS**2 - mean**2, 0)
    # Of equal confidences the deviation is 0, and a margin of 0 could never be met.
    return mean, np.maximum(np.sqrt(variance), _LEAST_SPREAD / 2)
