"""Calibrating a shortlist: on other rows than the gate, or on the same.

On other rows the threshold is the ceil((m + 1) level)-th least strangeness of the true
class, over the m rows that the gate rejects.

On the rows that set the gate's threshold the rejected ones are a selection that a new
row had a part in: were it a calibration row, and one of those the new row, the
threshold could be another. So each row is compared with the new one by changing places
(Jin and Ren, Confidence on the Focal, 2024): a calibration row counts if it would be
rejected with the new row, wrong and rejected, in its place. The prediction is on every
list, so a new row that is correct needs no list. Where a threshold is next to an order
statistic, that leaves all rejected errors and, of the rejected correct rows, those that
one error more would leave rejected; but for the row next to the threshold, of which it
depends on the new row. A row more that no list holds makes up for it (`swaps.py`).
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, as_groups
from trustdoctor.errors import InputError
from trustdoctor.gates.certifying import EXCHANGEABLE, with_notes
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.rules import exact
from trustdoctor.gates.sample import Fingerprint, Rows, Sample
from trustdoctor.gates.shortlists import (
    FREE,
    PENALTY,
    ListRule,
    Shortlist,
    blocks,
    require_classes,
)
from trustdoctor.gates.swaps import find_swaps
from trustdoctor.gates.targets import TARGETS
from trustdoctor.predictions import Predictions
from trustdoctor.scores import ROUNDING

LEVEL = 0.95
LIST_SHARE = 1 / 3
"""How many of the labelled rows set the lists, where the others set the gate."""

LIST_SEED = 0
"""Of the permutation that parts them."""

OPTIONS = ("level", "method", "penalty", "free", "max_size")


def shortlist(  # noqa: PLR0913 - options, by keyword only
    gate: Gate,
    predictions: Predictions,
    *,
    level: float = LEVEL,
    method: str = "lac",
    penalty: float | None = None,
    free: int | None = None,
    max_size: int | None = None,
    groups: Any = None,
) -> Gate:
    """Give a gate short lists of classes for the rows that it rejects.

    A list holds the true class with probability at least `level`, among the rejected
    rows and on average over calibrations; by group where the gate has groups.

    Parameters
    ----------
    gate : Gate
        One that scores by itself.
    predictions : Predictions
        Labelled rows that had no part in the gate; or the very rows that set its
        threshold, where its target is frr, trr, joint, coverage or threshold.
    level : float
        From 0.5 to below 1.
    method : str
        "lac" (the default): every class of at least some probability. "aps": the most
        probable classes up to some mass. "raps": likewise, and every rank beyond the
        first `free` costs `penalty`.
    max_size : int, optional
        A longer list becomes a full review, which holds every class.
    groups : array (n,), optional
        Each row's group, for a gate with groups; by default the predictions' own.

    Examples
    --------
    >>> from trustdoctor import calibrate
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(4000, 5)) * 2
    >>> labels = [rng.choice(5, p=np.exp(z) / np.exp(z).sum()) for z in logits]
    >>> p = Predictions.from_logits(logits, labels)
    >>> gate = shortlist(calibrate(p[:2000], frr=0.05), p[2000:])
    >>> gate.screen(p).shortlist.shape
    (4000, 5)
    """
    require_scoring(gate)
    require_classes(predictions)
    short = bare_lists(
        predictions.n_classes,
        level=level,
        method=method,
        penalty=penalty,
        free=free,
        max_size=max_size,
    )
    if gate.groups and groups is None:
        groups = gate.groups_of(predictions)
    known, every = predictions.has_label, np.asarray(gate.doubts(predictions))
    rows = predictions.labelled("a shortlist")
    if groups is not None:
        groups = as_groups(groups, rows=len(known))[known]
    if not known.all():
        refuse_part(gate, Fingerprint.of(every))
    return list_rows(gate, short, rows, every[known], groups=groups)


def bare_lists(  # noqa: PLR0913 - options, by keyword only
    n_classes: int,
    *,
    level: float = LEVEL,
    method: str = "lac",
    penalty: float | None = None,
    free: int | None = None,
    max_size: int | None = None,
) -> Shortlist:
    """Return lists whose threshold is not set, so that they hold every class."""
    raps = method == "raps"
    if not raps and (penalty, free) != (None, None):
        message = f"penalty and free belong to raps, not to {method}. Leave them out."
        raise InputError(message)
    return Shortlist(
        level,
        ListRule(math.inf, 0),
        n_classes,
        method,
        penalty=(PENALTY if penalty is None else penalty) if raps else 0.0,
        free=(FREE if free is None else free) if raps else 0,
        max_size=max_size,
    )


def refuse_part(gate: Gate, every: Fingerprint) -> None:
    """Refuse the labelled ones of rows that set a threshold without labels."""
    c = gate.certificate
    if c is not None and c.fingerprint == every.digest:
        message = (
            "some of the rows that set the threshold have no label, so the others are "
            "not those rows: lists need other rows. Part the rows, or use "
            "calibrate(..., shortlist=...), which does."
        )
        raise InputError(message)


def list_rows(  # noqa: PLR0913 - what lists are made of
    gate: Gate,
    short: Shortlist,
    rows: Predictions,
    doubts: Array,
    *,
    predicted: Array | None = None,
    groups: Any = None,
) -> Gate:
    """Set the threshold of lists on labelled rows whose doubts are known."""
    assert rows.labels is not None
    said = rows.predicted if predicted is None else predicted
    wrong = np.asarray(said != rows.labels)
    accepted = np.asarray(gate.accept(doubts, groups=groups))
    same = is_same(gate, Fingerprint.of(doubts, wrong))
    kept, more = ~accepted, 0
    if same:
        swaps = find_swaps(gate, Rows(doubts, wrong, gate.scorer.rounding))
        kept, unsure = swaps.count(doubts, wrong, kept)
        more = unsure + 1
    strange = np.full(len(wrong), -np.inf)
    hard = np.flatnonzero(kept & wrong)
    strange[hard] = true_strangeness(short, rows, hard, said)
    rule = find_rule(strange[kept], short.level, more=more)
    own: dict[Any, ListRule] = {}
    if gate.groups:
        given = as_groups(groups, rows=len(wrong))
        for name in gate.groups:
            part = strange[kept & (given == name)]
            own[name] = find_rule(part, short.level)
    short = replace(short, rule=rule, groups=own, same_rows=same)
    return listing(gate, short)


def listing(gate: Gate, short: Shortlist) -> Gate:
    """Return a gate with a shortlist, whose certificate says what that promises."""
    gate = replace(gate, shortlist=short)
    if gate.certificate is None:
        return gate
    assumed = replace(gate.certificate, assumption=EXCHANGEABLE)
    return with_notes(replace(gate, certificate=assumed), *list_notes(short))


def true_strangeness(
    short: Shortlist, rows: Predictions, at: Array, said: Array
) -> Array:
    """Return how strange the true class of some rows is."""
    assert rows.labels is not None
    out = np.empty(len(at))
    for part in blocks((len(at), rows.n_classes)):
        own = at[part]
        found = short.strangeness(rows.logits[own], said[own])
        out[part] = np.take_along_axis(found, rows.labels[own][:, None], 1)[:, 0]
    return out


def find_rule(strange: Array, level: float, *, more: int = 0) -> ListRule:
    """Return the threshold that holds a new row's true class so often.

    `more` rows count as stranger than any list allows.
    """
    m = len(strange)
    k = needed_rank(m + more, level)
    if k > m:
        return ListRule(math.inf, m)
    return ListRule(above_ties(Rows(strange, rounding=ROUNDING), k), m)


def above_ties(strange: Sample, k: int) -> float:
    """Return a threshold just above the k-th least value, and all tied with it.

    There is room for the rounding of another runtime, so that it lists the same.
    """
    value = strange.of_kind("all").kth(k)[1]
    room = ROUNDING * max(1.0, abs(value)) if math.isfinite(value) else 0.0
    return value + room


def needed_rank(rows: int, level: float) -> int:
    """Return ceil((m + 1) level), the level read as the decimal that it is.

    Examples
    --------
    >>> needed_rank(19, 0.95), needed_rank(9, 0.7)
    (19, 7)
    """
    return math.ceil((rows + 1) * exact(level))


def is_same(gate: Gate, rows: Fingerprint) -> bool:
    """Tell whether these rows set the gate's threshold; refuse where that is too late.

    A threshold that is not next to an order statistic would have to be found anew for
    every row that could change places with a new one.
    """
    c = gate.certificate
    unlabelled = replace(rows, labelled=False)
    if c is None or c.fingerprint not in (rows.digest, unlabelled.digest):
        return False
    if gate.groups or c.choices > 1 or not by_rank(c.target):
        how = " in groups" if gate.groups else ""
        how += " at one of several values" if c.choices > 1 else ""
        message = (
            f"these rows set the threshold for {' and '.join(c.target)}{how}: its "
            "lists need other rows. Part the rows, or use calibrate(..., "
            "shortlist=...), which does."
        )
        raise InputError(message)
    return True


def by_rank(target: Mapping[str, Any]) -> bool:
    """Tell whether a threshold is next to an order statistic, or was given.

    Of several values the rows choose one, and so which order statistic it is.
    """
    return len(target) == 1 and all(
        TARGETS[name].by_rank and isinstance(value, Real)
        for name, value in target.items()
    )


def require_scoring(gate: Any) -> None:
    """Refuse what cannot have lists."""
    if not isinstance(gate, Gate) or gate.score is None or gate.margins is not None:
        what = "a gate" if isinstance(gate, Gate) else type(gate).__name__
        message = (
            f"expected a gate that scores predictions by itself, from calibrate, got "
            f"{what}{' without a score, or with views' * isinstance(gate, Gate)}."
        )
        raise InputError(message)
    if gate.shortlist is not None:
        message = "this gate has a shortlist. Give the gate that it was made of."
        raise InputError(message)


def list_notes(short: Shortlist) -> list[str]:
    """Say what the lists promise, and on what grounds."""
    rule, groups = short.rule, short.groups
    how = "the rows that set the threshold, by selection-conditional calibration"
    grounds = how if short.same_rows else "rows that had no part in the gate"
    notes = [
        f"Shortlist: {short.promise()}. {rule.rows:,} rejected rows set it, of "
        f"{grounds}."
    ]
    endless = [name for name, one in groups.items() if one.threshold == math.inf]
    if (not groups and rule.threshold == math.inf) or endless:
        where = f" in {', '.join(map(str, endless[:20]))}" if endless else ""
        # The least m with needed_rank(m + same_rows, level) <= m.
        level = exact(short.level)
        least = max(math.ceil((1 + short.same_rows) * level / (1 - level)), 1)
        notes.append(
            f"Too few rejected rows for a list{where}, or their true classes too "
            f"improbable: each gets a full review. At least {least:,} are needed."
        )
    return notes


def calibrate_listed(
    predictions: Predictions, wanted: Any, options: dict[str, Any]
) -> Gate:
    """Calibrate a gate and its lists on the rows of one file; see `calibrate`.

    On the same rows where the threshold is next to an order statistic; else on a third
    of them, drawn at random, which has no part in the gate.
    """
    from trustdoctor.gates.calibration import AUTO, calibrate, needs_labels

    own = list_options(wanted)
    require_classes(predictions)
    target = {k: v for k, v in options.items() if k in TARGETS and v is not None}
    plain = options.get("groups") is None and options.get("score") != AUTO
    plain &= needs_labels(target) or bool(predictions.has_label.all())
    if plain and by_rank(target):
        return shortlist(calibrate(predictions, **options), predictions, **own)
    predictions.labelled("a shortlist")  # says where there are no labels
    known = np.flatnonzero(predictions.has_label)
    order = known[np.random.default_rng(LIST_SEED).permutation(len(known))]
    mine, others = np.split(order, [int(LIST_SHARE * len(order))])
    rest = np.append(others, np.flatnonzero(~predictions.has_label))
    groups = options.get("groups")
    ours = None
    if groups is not None and not isinstance(groups, str):
        every = as_groups(groups, rows=len(predictions))
        options, ours = options | {"groups": every[rest]}, every[mine]
    gate = calibrate(predictions[rest], **options)
    if not len(mine):
        message = f"expected more rows than {len(known)} for a gate and its lists."
        raise InputError(message)
    listed = shortlist(gate, predictions[mine], groups=ours, **own)
    return with_notes(listed, aside_note(len(mine), len(rest)))


def aside_note(mine: int, rest: int) -> str:
    """Say that some rows set the lists, and others the gate."""
    return (
        f"{mine:,} labelled rows, drawn at random, set the lists and had no part in "
        f"the gate, which {rest:,} others set."
    )


def list_options(wanted: Any) -> dict[str, Any]:
    """Return the options of lists: a level, or a mapping of `shortlist`'s options."""
    own = dict(wanted) if isinstance(wanted, Mapping) else {"level": wanted}
    odd = [name for name in own if name not in OPTIONS]
    if odd:
        known = ", ".join(OPTIONS)
        message = f"expected a shortlist's {known}, got {odd[0]!r}. Leave it out."
        raise InputError(message)
    return own
