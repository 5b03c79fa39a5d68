"""Signs that labels are not what they should be.

`LabelCounts` looks at labels, predicted classes and confidences alone. It counts
batches in whole numbers, so their order changes nothing, and it keeps no rows.
"""

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from trustdoctor.arrays import Array, to_numpy
from trustdoctor.errors import InputError
from trustdoctor.predictions import folded_name

RARE = 0.001
"""What chance does less often than this is not put down to chance."""

FEWEST = 10
"""Fewer errors than these are not judged."""

LARGE = 0.1
"""A pair is judged if it holds this share of its label's rows, or of all errors."""

MARGIN = 0.75
"""Confidence counts as high if it is less than this below the usual.

In standard deviations. Natural errors of large pairs are 1.2 below and more."""

APART = 1.35
"""Other errors must be this far below the usual, for confidence to tell anything.

In networks they are 1.4 below and more; in shallow trees or naive Bayes, seldom."""

LEAST_ROWS = 30
"""On fewer rows nothing is odd that concerns all labels."""

KAPPA = 0.1
"""Labels agree by chance if more than this share of the possible is excluded."""

ALL_CORRECT = 1000
"""So many rows without an error are odd, whatever the confidences expect.

Fewer are if the confidences expect `EXPECTED_ERRORS`.
"""

EXPECTED_ERRORS = 7
"""None comes where so many are expected with probability exp(-7) < 0.001."""

SHOWN = 5
"""So many classes, pairs or rows are named; the others are counted."""

_UNIT = 1 << 15  # confidences are kept in whole steps of 1 / _UNIT
_FLAT = 0.001  # confidences that spread less tell nothing apart
_USUAL = 30  # so many correct rows of a class show what is usual for it
_MOST = 1 << 20  # pairs, or classes; where there are more, pairs are not followed
_MOST_NAMES = 1 << 16  # answers, likewise
_EXACT = 1 << 22  # so many squares of steps add up exactly in a float
_LATE = 1 << 16  # pairs that may wait to be summed up


@dataclass(frozen=True)
class SuspectedPair:
    """Rows of one label, predicted as another class as surely as if that were right.

    Attributes
    ----------
    label, predicted : int or str
        Classes; texts for answers without a set of classes.
    n, of : int
        Rows of the pair, and all rows of that label.
    confidence, usual : float
        The mean in the pair, and in correct rows: those of the predicted class, or all
        where the class has few.
    as_high : bool
        Whether the two are alike; otherwise the first is a little lower.
    """

    label: Any
    predicted: Any
    n: int
    of: int
    confidence: float
    usual: float
    as_high: bool = True

    def line(self, class_names: Sequence[str] | None = None, rows: Any = ()) -> str:
        """Say it in one line, with the first of its rows where they are given.

        Examples
        --------
        >>> print(SuspectedPair(0, 1, 148, 150, 0.97, 0.98).line(["crt", "pem"], [7]))
        148 of 150 rows labelled crt are predicted pem, with confidence as high as for \
correct rows (0.97; 0.98): check these labels, first row 7.
        """
        label, predicted = (_name(c, class_names) for c in (self.label, self.predicted))
        first = ", ".join(str(row) for row in rows[:SHOWN])
        where = f", first row{'s' * (len(rows) > 1)} {first}" if len(rows) else ""
        return (
            f"{self.n:,} of {self.of:,} rows labelled {label} are predicted "
            f"{predicted}, with confidence {'' if self.as_high else 'nearly '}as high "
            f"as for correct rows ({self.confidence:.2f}; {self.usual:.2f}): check "
            f"these labels{where}."
        )


class _Sums(NamedTuple):
    """Sums (3, k) of rows, steps of confidence and their squares, by pair (k,)."""

    keys: Array
    values: Array

    def gathered(self) -> "_Sums":
        """Return each pair once, in order."""
        if not len(self.keys):
            return self
        order = np.argsort(self.keys)
        keys = self.keys[order]
        new = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
        return _Sums(keys[new], np.add.reduceat(self.values[:, order], new, axis=1))


_NONE = _Sums(np.zeros(0, np.int64), np.zeros((3, 0), np.int64))


class LabelCounts:
    """Counts that show where labels cannot be right.

    Examples
    --------
    >>> counts = LabelCounts()
    >>> counts.update([1, 2, 3] * 10, [0, 1, 2] * 10, np.full(30, 0.9), 4)
    >>> print(counts.warnings()[0])
    Labels seem to count from 1: accuracy would be 100.0% with every label lowered by \
one, and is 0.0% now. Check --first-class, and the order of the columns.
    """

    def __init__(self) -> None:
        self.n_classes: int | None = None
        self.n = 0
        self.n_right = 0
        self._shifted = np.zeros(2, np.int64)  # right if lowered, or raised, by one
        self._moved = np.zeros((2, 4), np.int64)  # up, down: see `compare_rows`
        self._moved_steps = np.zeros((2, 4), np.int64)
        self._spellings: dict[str, set[str]] = {}
        self._labels = np.zeros(0, np.int64)
        self._said = np.zeros((3, 0), np.int64)  # as in _Sums, by predicted class
        self._pairs = _NONE  # of errors alone
        self._late: list[_Sums] = []
        self._names: dict[str, int] = {}
        self._blind = False  # whether pairs cannot be judged

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
        """Count more rows, all with labels.

        Parameters
        ----------
        labels, predicted : integer arrays (n,)
        confidence : array (n,), or None
            The probability that the prediction is right. Where it is None, or not from
            0 to 1, pairs are not judged.
        n_classes : int
            0 for answers without a set of classes.
        names : sequence of str, optional
            What the numbers mean in these rows, for such answers. Without them nothing
            is said of their labels.
        """
        self._meet(n_classes)
        y, k = (to_numpy(a).astype(np.int64, copy=False) for a in (labels, predicted))
        wrong = np.flatnonzero(y != k)
        self.n += len(y)
        self.n_right += len(y) - len(wrong)
        if not n_classes:
            self._spell(names or ())
            if names is None or self._blind:
                self._forget()
                return
            own = self._numbers(names)
            y, k = own[y], own[k]
        width = self._widen(n_classes or len(self._names))
        self._labels += np.bincount(y, minlength=width)
        step = k[wrong] - y[wrong]
        self._shifted += [np.count_nonzero(step == by) for by in (-1, 1)]
        self._see(y, k, wrong, _steps(confidence))

    def compare_rows(self, labels: Any, predicted: Any, confidence: Any = None) -> None:
        """Count which labels fit the prediction of the row before, or after, better.

        Parameters
        ----------
        labels, predicted : integer arrays (n,)
            In the order of the rows; labels below 0 are missing.
        confidence : array (n,), optional
            As in `update`; of rows without a label it does not matter.
        """
        y, k, steps = to_numpy(labels), to_numpy(predicted), _steps(confidence)
        ends = slice(None, -1), slice(1, None)
        for moved, (row, neighbour) in enumerate((ends, ends[::-1])):  # up, down
            counts, moved_label, label, said = (
                self._moved[moved],
                y[neighbour],
                y[row],
                k[row],
            )
            both = (moved_label >= 0) & (label >= 0)
            fits_moved, fits_now = (moved_label == said) & both, (label == said) & both
            always = np.count_nonzero(fits_moved & fits_now)
            counts[0] += np.count_nonzero(both)
            counts[1] += np.count_nonzero(fits_moved) - always
            counts[2] += np.count_nonzero(fits_now) - always
            counts[3] += always
            if steps is not None:
                q = steps[row].astype(np.int64)
                either = q[fits_moved != fits_now]
                self._moved_steps[moved] += (
                    q[fits_moved].sum(),
                    q[fits_now].sum(),
                    either.sum(),
                    (either**2).sum(),
                )

    def _meet(self, n_classes: int) -> None:
        if self.n_classes is None:
            self.n_classes = n_classes
        if n_classes != self.n_classes:
            message = (
                f"expected {self.n_classes} classes everywhere, got {n_classes} in "
                "later rows. Count the rows of one model at a time."
            )
            raise InputError(message)
        if n_classes > _MOST:
            self._forget()

    def _spell(self, names: Iterable[str]) -> None:
        """Remember how answers are spelt, unless there are very many."""
        if len(self._spellings) <= _MOST_NAMES:
            for name in names:
                self._spellings.setdefault(folded_name(name), set()).add(name)

    def _numbers(self, names: Sequence[str]) -> Array:
        """Return the numbers that answers have here."""
        own = self._names
        return np.array([own.setdefault(str(n), len(own)) for n in names], np.int64)

    def _widen(self, classes: int) -> int:
        """Make room for so many classes, and return for how many there is room."""
        more = classes - len(self._labels)
        if more > 0:
            self._labels = np.pad(self._labels, (0, more))
            self._said = np.pad(self._said, ((0, 0), (0, more)))
        return len(self._labels)

    def _see(self, y: Array, k: Array, wrong: Array, steps: Array | None) -> None:
        """Count confidences, by predicted class and by pairs of errors."""
        width = len(self._labels)
        self._said[0] += np.bincount(k, minlength=width)
        if steps is None or self._blind:
            self._forget()
            return
        for start in range(0, len(k), _EXACT):
            at, q = k[start : start + _EXACT], steps[start : start + _EXACT]
            self._said[1] += np.bincount(at, q, width).astype(np.int64)
            self._said[2] += np.bincount(at, q * q, width).astype(np.int64)
        self._add(_by_pair(y[wrong], k[wrong], steps[wrong], width))

    def _add(self, sums: _Sums) -> None:
        self._late.append(sums)
        waiting = sum(len(late.keys) for late in self._late)
        # As many again as are kept: each is then sorted a few times, not once a batch.
        if waiting > max(_LATE, len(self._pairs.keys)):
            self._gather()
        if len(self._names) > _MOST_NAMES:
            self._forget()

    def _gather(self) -> None:
        """Sum up what waits, and give pairs up where there are too many."""
        every = [self._pairs, *self._late]
        keys, values = (np.concatenate(parts, -1) for parts in zip(*every, strict=True))
        self._pairs, self._late = _Sums(keys, values).gathered(), []
        if len(self._pairs.keys) > _MOST:
            self._forget()

    def _forget(self) -> None:
        """Follow pairs no longer. Rows in any other order come to the same."""
        self._blind = True
        self._pairs, self._late, self._names = _NONE, [], {}

    def merge(self, other: "LabelCounts") -> None:
        """Count the rows of another, too."""
        if other.n_classes is None:
            return
        self._meet(other.n_classes)
        self.n += other.n
        self.n_right += other.n_right
        self._shifted = self._shifted + other._shifted
        self._moved = self._moved + other._moved
        self._moved_steps = self._moved_steps + other._moved_steps
        self._spell(name for names in other._spellings.values() for name in names)
        if self._blind or other._blind:
            self._forget()
            if not self.n_classes:
                return
        width = len(other._labels)
        own = self._numbers(list(other._names)) if other._names else np.arange(width)
        self._widen(max(width, len(self._names)))
        self._labels[own] += other._labels
        self._said[:, own] += other._said
        for keys, values in () if self._blind else (other._pairs, *other._late):
            label, predicted = np.divmod(keys, _MOST)
            self._add(_Sums(own[label] * _MOST + own[predicted], values))

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
        >>> [(pair.label, pair.predicted, pair.n, pair.of) for pair in counts.pairs()]
        [(0, 1, 100, 200)]
        """
        if not self._blind:
            self._gather()
        if self._blind or not len(self._pairs.keys):
            return ()
        found = list(_suspected(self._pairs, self._said, self._labels))
        if self._names:
            of = list(self._names)
            found = [
                replace(pair, label=of[pair.label], predicted=of[pair.predicted])
                for pair in found
            ]
        return tuple(sorted(found, key=lambda p: (-p.n, p.label, p.predicted)))

    def warnings(
        self, class_names: Sequence[str] | None = None, rows: Sequence[Any] = ()
    ) -> tuple[str, ...]:
        """Say what is suspicious, in one line each; nothing on good data.

        Parameters
        ----------
        class_names : sequence of str, optional
        rows : sequence of arrays, optional
            Those of each of `pairs`, to name the first: see `suspected_rows`.
        """
        if not self.n:
            return ()
        odd = self.odd() or (self._shift() or self._chance(),)
        out = [*odd, self._absent(class_names), self._twins(class_names)]
        pairs = () if self._shift() else self.pairs()
        for i, pair in enumerate(pairs[:SHOWN]):
            out.append(pair.line(class_names, rows[i] if i < len(rows) else ()))
        if len(pairs) > SHOWN:
            n, more = sum(pair.n for pair in pairs[SHOWN:]), len(pairs) - SHOWN
            which = f"{more} more pair{'s' * (more > 1)} of label and predicted class"
            out.append(f"{n:,} rows of {which} are as suspicious.")
        return tuple(line[0].upper() + line[1:] for line in out if line)

    def odd(self) -> tuple[str, ...]:
        """Return why nothing may rest on these labels; empty where nothing is odd.

        Each test errs with probability 0.001 at most, and fewer than 30 rows are not
        judged.

        Examples
        --------
        >>> counts, said = LabelCounts(), np.arange(900) ** 2 % 7 % 3
        >>> counts.update(np.roll(said, 1), said, None, 7)
        >>> counts.compare_rows(np.roll(said, 1), said)
        >>> print(*counts.odd())
        Labels fit better when moved up by one row: accuracy would be 100.0%, and is \
42.8% now. Check that no column was shifted against the others.
        """
        if self.n < LEAST_ROWS:
            return ()
        line = self._shift() or self._row_shift() or self._chance() or self._agreement()
        line = line or self._all_correct()
        return (line[0].upper() + line[1:],) if line else ()

    def _row_shift(self) -> str:
        """Say that labels fit better when they are moved by one row."""
        for moved, where in enumerate(("up", "down")):
            n, more, fewer, always = self._moved[moved].tolist()
            if n < LEAST_ROWS:
                continue
            now, then = (always + fewer) / n, (always + more) / n
            if self._fits_better(moved, now, then):
                fits = f"accuracy would be {then:.1%}, and is {now:.1%} now"
            elif self._orders_better(moved):
                fits = (
                    "the more confident predictions would then be right more often, "
                    "and are not now"
                )
            else:
                continue
            return (
                f"labels fit better when moved {where} by one row: {fits}. Check that "
                "no column was shifted against the others."
            )
        return ""

    def _fits_better(self, moved: int, now: float, then: float) -> bool:
        """Tell whether more predictions are right with moved labels, by a sign test.

        Rows in the order of their classes fit nearly as well when moved. So half of the
        errors at least must go, or what agrees now must be little beyond chance.
        """
        from scipy.special import bdtr

        _, more, fewer, _ = self._moved[moved].tolist()
        if not (more > fewer and bdtr(fewer, more + fewer, 0.5) < RARE / 4):
            return False
        chance = self._by_chance()
        return 2 * (1 - then) <= 1 - now or _instead(now - chance, then - chance)

    def _orders_better(self, moved: int) -> bool:
        """Tell whether confidence orders errors with moved labels, and not as they are.

        A model that nearly always says the same is right as often with any labels, and
        its confidence alone tells where they belong. The test is that of a sum of
        confidences, less their mean, over rows that change from wrong to right (plus)
        or back (minus), whose signs would be random.
        """
        _, more, fewer, always = self._moved[moved].tolist()
        # Of a model that always says the same, moving labels changes one row at most.
        if self._blind or not self._moved_steps[moved].any() or more + 1 < fewer:
            return False
        then, now, either, squares = self._moved_steps[moved].tolist()
        mean = float(self._said[1].sum()) / self.n
        # By chance as many agree in every predicted class as have its label.
        chance = (self._said[1] - mean * self._said[0]) @ self._labels / self.n
        beyond_then = then - mean * (always + more) - chance
        beyond_now = now - mean * (always + fewer) - chance
        variance = squares - 2 * mean * either + mean**2 * (more + fewer)
        sure = beyond_then - beyond_now > 3.5 * math.sqrt(max(variance, 0))  # < RARE/4
        return bool(sure and _instead(beyond_now, beyond_then))

    def _by_chance(self) -> float:
        """Return which share of labels in random order would agree; nan: not known."""
        labels, said = (counts / self.n for counts in (self._labels, self._said[0]))
        whole = self._labels.sum() == self._said[0].sum() == self.n
        return float(labels @ said) if whole else math.nan

    def _agreement(self) -> str:
        """Say that labels in any other order would fit as well.

        The variance of the agreement over all orders is that of Cohen's kappa for
        fixed margins (Fleiss, Levin and Paik, Statistical Methods for Rates and
        Proportions, 2003, section 18.1). It must be small against the agreement that
        the margins allow: a model that nearly always says the same tells nothing.
        """
        labels, said = (v.astype(float) for v in (self._labels, self._said[0]))
        n = self.n
        if labels.sum() != n or said.sum() != n:
            return ""
        both, most = labels * said, np.minimum(labels, said).sum()
        spread = (both * (n - labels) * (n - said)).sum() + both.sum() ** 2
        spread = np.sqrt((spread - (both**2).sum()) / (n * n * (n - 1.0)))
        expected, limit = both.sum() / n, 3.1 * spread  # 0.001 on one side
        beyond = self.n_right - expected
        if beyond >= limit or beyond + limit >= KAPPA * (most - expected):
            return ""
        return (
            f"labels agree with the predictions as labels in random order would: "
            f"accuracy is {self.n_right / n:.1%}, by chance {expected / n:.1%}. Check "
            "that the labels are those of these rows."
        )

    def _all_correct(self) -> str:
        """Say that there is no error where some are to be expected."""
        if self.n_right < self.n:
            return ""
        expected = 0.0 if self._blind else self.n - float(self._said[1].sum()) / _UNIT
        if self.n < ALL_CORRECT and expected < EXPECTED_ERRORS:
            return ""
        by = f", where the confidences expect {expected:,.0f} errors"
        return (
            f"all {self.n:,} predictions are correct{by * (expected >= 1)}: check that "
            "the label is not the model's own answer, and that the model was not "
            "trained on these rows."
        )

    def _twins(self, class_names: Sequence[str] | None) -> str:
        """Name two classes that are spelt alike but for case, spaces or Unicode."""
        spellings = self._spellings
        if self.n_classes:
            spellings = {}
            for name in class_names or ():
                spellings.setdefault(folded_name(name), set()).add(name)
        alike = sorted(sorted(names)[:2] for names in spellings.values() if names)
        alike = [pair for pair in alike if len(pair) > 1]
        if not alike:
            return ""
        more = len(alike) - 1
        others = f" So are {more} more pair{'s' * (more > 1)}." * (more > 0)
        first, second = alike[0]
        return (
            f"the classes {first!r} and {second!r} differ only in "
            f"{_difference(first, second)}, and count as two: write them alike.{others}"
        )

    def _chance(self) -> str:
        """Say that guessing would do better."""
        from scipy.special import bdtr

        classes = self.n_classes or 0
        if classes < 2 or not bdtr(self.n_right, self.n, 1 / classes) < RARE:
            return ""
        return (
            f"accuracy is {self.n_right / self.n:.1%}, below the {1 / classes:.1%} of "
            f"guessing among {classes} classes: check that the labels number the "
            "classes as the columns do, and that higher means more likely."
        )

    def _shift(self) -> str:
        """Say that labels fit better when they are lowered or raised by one."""
        from scipy.special import bdtr, bdtrc

        best = int(self._shifted.argmax())
        right, classes = int(self._shifted[best]), self.n_classes or 0
        if classes < 3 or right <= 2 * self.n_right:
            return ""  # of two classes, a wrong label always is the one beside
        no_better = bdtr(self.n_right, self.n_right + right, 0.5)
        if not max(no_better, bdtrc(right - 1, self.n, 1 / classes)) < RARE:
            return ""
        what, how, check = (
            ("count from 1", "lowered", "--first-class, and the order of the columns")
            if best == 0
            else ("be one too low", "raised", "them, and the order of the columns")
        )
        return (
            f"labels seem to {what}: accuracy would be {right / self.n:.1%} with every "
            f"label {how} by one, and is {self.n_right / self.n:.1%} now. Check "
            f"{check}."
        )

    def _absent(self, class_names: Sequence[str] | None) -> str:
        """Say which classes never occur as a label, where that is worth saying."""
        if not self.n_classes:
            return ""
        absent = np.flatnonzero(self._labels == 0)
        if self.n < 10 * self.n_classes:  # too few rows for every class to occur
            absent = absent[self._said[0][absent] >= FEWEST]
        if not len(absent):
            return ""
        said = int(self._said[0][absent].sum())
        named = ", ".join(_name(int(c), class_names) for c in absent[:SHOWN])
        more = ", ..." if len(absent) > SHOWN else ""
        occur = f"classes never occur{'s' * (len(absent) == 1)}"
        return (
            f"{len(absent):,} of {self.n_classes:,} {occur} as a label ({named}{more}; "
            f"predicted {said:,} times): check that the labels are complete and number "
            "the classes as the columns do."
        )


def _instead(now: float, moved: float) -> bool:
    """Tell whether there is little agreement now, and much with moved labels."""
    return 4 * abs(now) <= moved


def _steps(confidence: Any) -> Array | None:
    """Return probabilities in whole steps; None where they are not probabilities."""
    if confidence is None:
        return None
    given = to_numpy(confidence).astype(np.float64, copy=False)
    if len(given) and not (given.min() >= 0 and given.max() <= 1):  # or NaN
        return None
    return np.rint(given * _UNIT)


def _by_pair(y: Array, k: Array, steps: Array, width: int) -> _Sums:
    """Sum up errors by pair."""
    terms = (np.ones_like(steps), steps, steps * steps)
    if not width * width <= len(y) <= _EXACT:
        return _Sums(y * _MOST + k, np.stack(terms).astype(np.int64)).gathered()
    # Few classes: a table of all pairs is faster than sorting the rows.
    at = y * width + k
    table = np.stack([np.bincount(at, term, width * width) for term in terms])
    met = np.flatnonzero(table[0])
    label, predicted = np.divmod(met, width)
    return _Sums(label * _MOST + predicted, table[:, met].astype(np.int64))


def _difference(first: str, second: str) -> str:
    """Say in what two names differ that have the same folded form."""
    if first.casefold() == second.casefold():
        return "case"
    if first.split() == second.split() or _joined(first) == _joined(second):
        return "spaces"
    composed = (unicodedata.normalize("NFKC", name) for name in (first, second))
    if len(set(composed)) == 1:
        return "their Unicode form"
    return "case, spaces or their Unicode form"


def _joined(name: str) -> str:
    return "".join(name.split())


def _name(of: Any, class_names: Sequence[str] | None) -> str:
    return str(of) if class_names is None or isinstance(of, str) else class_names[of]


def _suspected(pairs: _Sums, said: Array, labels: Array) -> Iterator[SuspectedPair]:
    """Give the pairs whose labels are suspected; see `LabelCounts.pairs`."""
    label, k = np.divmod(pairs.keys, _MOST)
    n, of = pairs.values[0], labels[label]
    width = said.shape[1]
    wrong = np.stack([np.bincount(k, v, width) for v in pairs.values])
    right = said - wrong
    every = right.sum(1)
    if every[0] < _USUAL or _moments(said.sum(1))[1] < _FLAT:
        return
    large = (n >= FEWEST) & ((n >= LARGE * of) | (n >= LARGE * n.sum()))
    tests = max(1, int(large.sum()))
    # A pair that outweighs the correct rows of its class may be held to all others.
    own, others = right[:, k], every[:, None]
    by_class = (own[0] >= _USUAL) & _as_high(pairs.values, own, tests)
    outweighs = own[0] < np.maximum(n, _USUAL)
    by_all = outweighs & _as_high(pairs.values, others, tests)
    # Among rows of confidence c a share 1 - c may be wrong, with variance c (1 - c).
    c, square = said[1] / _UNIT, said[2] / _UNIT**2
    allowed = said[0] - c + 3.1 * np.sqrt(np.maximum(c - square, 0))
    found = np.flatnonzero(large & (by_class | by_all) & (wrong[0] > allowed)[k])
    rest = wrong.sum(1) - pairs.values[:, found].sum(1)
    level, scale = _moments(every)
    alike = rest[0] >= FEWEST and level - _moments(rest)[0] < APART * scale
    if alike or 2 * len(found) > width * (width - 1):
        return
    mean, spread = _moments(np.where(by_class, own, others))
    reached = _moments(pairs.values)[0]
    for i in found.tolist():
        ends, counts = (int(label[i]), int(k[i])), (int(n[i]), int(of[i]))
        means = (float(reached[i]), float(mean[i]))
        high = bool(mean[i] - reached[i] <= MARGIN / 3 * spread[i])
        yield SuspectedPair(*ends, *counts, *means, as_high=high)


def _as_high(pairs: Array, usual: Array, tests: int) -> Array:
    """Tell which pairs are as confident as usual, surely and within the margin."""
    from scipy.special import stdtrit

    (own, own_spread), (mean, spread) = _moments(pairs), _moments(usual)
    sure = stdtrit(np.maximum(pairs[0] - 1, 1), 1 - RARE / tests)
    share = 1 / pairs[0] + 1 / np.maximum(usual[0], 1)
    error = np.maximum(spread, own_spread) * np.sqrt(share)
    return np.asarray(mean - own + sure * error < MARGIN * spread)


def _moments(sums: Array) -> tuple[Array, Array]:
    """Return the mean and the spread of confidences; 0 of no rows."""
    n = np.maximum(sums[0], 1)
    mean = sums[1] / n / _UNIT
    spread = np.sqrt(np.maximum(sums[2] / n / _UNIT**2 - mean**2, 0))
    return mean, np.maximum(spread, _FLAT / 2)
