"""What a watch promises, measured: fills docs/watching.md and draws its picture.

    python benchmarks/watch.py [--only NAME] [--out docs/watching.md] [--quick]

``--only`` runs some parts: alarms, late, wrong, noise, preference, delay, blind,
groups, together, estimates, costs (several with commas between). ``--quick`` runs all
in a small form and writes nothing. Seeds are fixed. The words are those of
docs/watching.md; what stands between ``<!-- made: NAME -->`` and ``<!-- end -->`` there
is made here. The picture goes to pictures/watching.png beside the page.

Thousands of streams are counted at once, with the recursion of `Bet`. Some of them go
through a `Watch`, too, and their evidence must agree to 1e-9 after every batch. Where
labels come late, every stream goes through a `Watch`.
"""

import argparse
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from pages import fill, processor, table

import trustdoctor as td
from trustdoctor.gates import TARGETS
from trustdoctor.watch import RateTest, Review, Watch
from trustdoctor.watch.bets import ODDS, Bet, log_ratio, noisy_ratios
from trustdoctor.watch.review import DIFFERENT, Preference

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "watching.md"
LEVEL = 0.1
ROWS = 50_000
NULLS = (0.001, 0.01, 0.05, 0.2)
NAMES = {"frr": "FRR", "trr": "TRR", "risk": "risk", "joint": "joint"}
RATES = {
    "all rows": None,
    "1, 0.02": Review(1.0, 0.02),
    "1, 0.2": Review(1.0, 0.2),
    "0.5, 0.05": Review(0.5, 0.05),
    "changing": "changing",
}
CONSTANT_RATES = [review for review in RATES.values() if isinstance(review, Review)]
FR, TR, FA, TA = range(4)
RIGHT_SIDE = {"frr": (FR, TA), "trr": (FA, TR), "risk": (FA, TA), "joint": (FA,)}
"""Of each rate: the rows that speak against the promise, then those for it."""

MAX_STAKES = 1e300  # so that sums stay finite, long after an alarm

GATE = td.calibrate_scores(np.linspace(0, 1, 100), np.arange(100) > 90, threshold=0.5)
"""It accepts a doubt of 0 and rejects one of 1."""


def doubts(kind):
    """Return what makes the gate reject rows of the first two kinds, and no others."""
    return (kind < FA).astype(float)


def mix(name, null):
    """Return how probable FR, TR, FA and TA are where a rate is at the edge."""
    if name == "joint":
        return 0.1, 0.1, null, 0.8 - null
    return null / 2, (1 - null) / 2, null / 2, (1 - null) / 2


def make_test(name, null, groups=None, noise=0.0):
    """Return the test of one rate at LEVEL, its null given as a share of breaches."""
    target = TARGETS[name]
    low, high = (1 - null, 1.0) if target.at_least else (0.0, null)
    return RateTest(name, target, low, high, LEVEL, 1000, groups, noise=noise)


def make_watch(nulls, review=None, deadline=None, noise=0.0):
    """Return a watch with tests of its own, each at LEVEL."""
    tests = {name: make_test(name, null, noise=noise) for name, null in nulls.items()}
    return Watch(GATE, LEVEL, review, deadline, label_noise=noise, tests=tests)


def draw_sizes(rng, streams, rows, largest=2000):
    """Return sizes of batches, from one row to many, that add up in each stream."""
    batches = 30 + rows * 2 * math.ceil(math.log(largest)) // largest
    drawn = np.exp(rng.uniform(0, math.log(largest + 1), (streams, batches)))
    ends = np.minimum(drawn.astype(int).cumsum(1), rows)
    ends[:, -1] = rows
    sizes = np.diff(ends, axis=1, prepend=0)
    return sizes[:, : int((sizes > 0).sum(1).max())]


def draw_rates(rng, review, shape):
    """Return the review rates of each batch, of rejected and of accepted rows."""
    if review is None:
        return np.ones((*shape, 2))
    pairs = CONSTANT_RATES if review == "changing" else [review]
    table = np.array([(review.rejected, review.accepted) for review in pairs])
    return table[rng.integers(0, len(pairs), shape)]


def edge(name, null, rates):
    """Return the null among reviewed rows, as a share of breaches, for each batch."""
    target = TARGETS[name]
    value = 1 - null if target.at_least else null
    shares = np.empty(rates.shape[:-1])
    for pair in np.unique(rates.reshape(-1, 2), axis=0):
        rate = Review(*pair).reviewed_rate(target, value)
        shares[(rates == pair).all(-1)] = 1 - rate if target.at_least else rate
    return shares


def evidence(n, counted, null, starts, noisy=None):
    """Return the logarithm of the evidence after every batch, one line per stream.

    The recursion of `Bet`, for all streams at once. Where labels may be wrong, `noisy`
    has the ratios of hits, misses and opposed rows, and how many of these there are.
    """
    streams, batches = n.shape
    sums, unstaked, bets = np.zeros((streams, len(ODDS))), np.ones(streams), 0
    logs_after = np.empty((streams, batches))
    null = np.broadcast_to(null, n.shape)
    with np.errstate(under="ignore", over="ignore"):
        for t in range(batches):
            bets = bets + starts[:, t]
            stake = starts[:, t] * unstaked / (bets + 1)
            unstaked = unstaked - stake
            rows, breaches, null_rate = (x[:, t, None] for x in (n, counted, null))
            log_growth = log_ratio(rows, breaches, null_rate)
            if noisy is not None:
                (hit, miss, opposed_ratio), opposed = noisy
                log_growth = breaches * hit + (rows - breaches) * miss
                log_growth += opposed[:, t, None] * opposed_ratio
            growth = np.exp(log_growth)
            sums = np.minimum((sums + stake[:, None]) * growth, MAX_STAKES)
            logs_after[:, t] = np.log(sums.mean(1) + unstaked)
    return logs_after


def has_alarmed(logs):
    """Whether the evidence was ever enough for an alarm, by stream."""
    return (logs >= -math.log(LEVEL)).any(1)


def reviewed_counts(name, drawn, sizes, *, all_rows):
    """Return rows that a rate rests on, and those against the promise."""
    breaches = drawn[..., FA if name != "frr" else FR]
    if name == "joint":
        return (sizes if all_rows else drawn.sum(-1)), breaches
    return drawn[..., list(RIGHT_SIDE[name])].sum(-1), breaches


def begins(name, drawn, sizes):
    """Tell which batches start a bet: those with rows that were drawn for review."""
    return (sizes if name == "joint" else drawn.sum(-1)) > 0


def edge_cell(task):
    """Return the share of false alarms of one cell, and check it by a watch."""
    name, null, words, streams, rows, seed = task
    rng, review = np.random.default_rng(seed), RATES[words]
    sizes = draw_sizes(rng, streams, rows)
    kinds = rng.multinomial(sizes, mix(name, null))
    rates = draw_rates(rng, review, sizes.shape)
    drawn = rng.binomial(kinds, rates[..., [0, 0, 1, 1]])
    n, breaches = reviewed_counts(name, drawn, sizes, all_rows=True)
    starts = begins(name, drawn, sizes)
    logs = evidence(n, breaches, edge(name, null, rates), starts)
    check_by_watch(rng, name, null, (sizes[0], kinds[0], drawn[0], rates[0]), logs[0])
    return has_alarmed(logs).mean()


def check_by_watch(rng, name, null, stream, logs, noise=0.0):  # noqa: PLR0913
    """Count a stream by a watch; its evidence must be the one that was computed."""
    watch = make_watch({name: null}, noise=noise)
    for size, kinds, drawn, rates, expected in zip(*stream, logs, strict=True):
        if not size:
            continue
        order = rng.permutation(size)
        kind = np.repeat(np.arange(4), kinds)[order]
        reviewed_in_order = np.concatenate(
            [np.arange(k) < d for k, d in zip(kinds, drawn, strict=True)]
        )
        reviewed = reviewed_in_order[order]
        errors = np.where(reviewed, (kind == TR) | (kind == FA), np.nan)
        watch.update(doubts(kind), errors, reviewed=reviewed, review=Review(*rates))
        watched = watch.tests[name].evidence
        assert abs(watched - expected) < 1e-9, (name, null, watched, expected)


def alarms(pool, quick):
    """Count false alarms where labels come at once."""
    streams, rows = (30, 3000) if quick else (1000, ROWS)
    cells = list(product(NAMES, NULLS, RATES))
    tasks = [(*cell, streams, rows, seed) for seed, cell in enumerate(cells)]
    shares = dict(zip(cells, run(pool, edge_cell, tasks, "alarms"), strict=True))
    head = ["rate", "at the edge", *(f"reviewed: {words}" for words in RATES)]
    lines = [
        [NAMES[name], edge_words(name, null)]
        + [f"{shares[name, null, words]:.1%}" for words in RATES]
        for name, null in product(NAMES, NULLS)
    ]
    worst = max(shares, key=shares.get)
    words = (
        f"The largest of these {len(cells)} shares is {shares[worst]:.1%} "
        f"({NAMES[worst[0]]} {edge_words(*worst[:2])}, reviewed: {worst[2]}). At most "
        f"{LEVEL:.0%} was promised. One stream of each cell went through a `Watch`, "
        "too: after every batch its evidence was the same to 1e-9."
    )
    return {"alarms": f"{table(head, lines)}\n\n{words}"}, max(shares.values())


def edge_words(name, null):
    return f"{1 - null if name == 'trr' else null:g}"


LATE = {
    "late": ("uniformly late, reviewed 1, 0.2", Review(1.0, 0.2)),
    "first": ("breaches first, 30% of the others never", Review(1.0, 1.0)),
}
WAIT, DEADLINE = 6, 8.0


def late_stream(task):
    """Return which tests of a watch alarm where labels come late."""
    name, null, lateness, rows, seed = task
    rng, review = np.random.default_rng(seed), LATE[lateness][1]
    sizes = draw_sizes(rng, 1, rows, largest=8000)[0]
    batch = np.repeat(np.arange(len(sizes)), sizes)
    kind = rng.choice(4, rows, p=mix(name, null))
    against = (kind == FR) | (kind == FA)
    wrong = ((kind == TR) | (kind == FA)).astype(float)
    drawn = rng.random(rows) < np.where(kind < FA, review.rejected, review.accepted)
    delay = rng.integers(0, WAIT, rows)
    if lateness == "first":
        delay = np.where(against, 0, delay + 1)
        delay[~against & (rng.random(rows) < 0.3)] = 10**6
    names = ["joint"] if name == "joint" else ["frr", "trr", "risk"]
    watch = make_watch(dict.fromkeys(names, null), review, DEADLINE)
    ids, arrival = np.arange(rows), batch + delay
    labelled_at_once = np.where(drawn & (delay == 0), wrong, np.nan)
    ends = np.append(0, sizes.cumsum())
    for t in range(len(sizes) + WAIT):
        if t < len(sizes):
            batch_rows = slice(ends[t], ends[t + 1])
            watch.update(
                doubts(kind[batch_rows]),
                labelled_at_once[batch_rows],
                ids=ids[batch_rows],
                reviewed=drawn[batch_rows],
                at=t + 1.0,
            )
        late_ids = ids[drawn & (arrival == t) & (delay > 0)]
        if len(late_ids):
            watch.label(errors=wrong[late_ids], ids=late_ids, at=t + 1.0)
    if lateness == "late":
        check_late(watch, kind, drawn, batch, review)
    watch.update(np.zeros(1), ids=[rows], reviewed=[False], at=t + 2.0 + DEADLINE)
    t = watch.totals
    lost = t.unresolved / max(1, t.unresolved + t.labels)
    return {name: test.alarm is not None for name, test in watch.tests.items()}, lost


def check_late(watch, kind, drawn, batch, review):
    """Once all labels are there, the evidence is that of labels at once."""
    assert len(watch.queue) == 0
    sizes = np.bincount(batch)[None]
    cells = np.zeros((1, sizes.shape[1], 4), int)
    np.add.at(cells[0], (batch[drawn], kind[drawn]), 1)
    rates = draw_rates(np.random.default_rng(0), review, sizes.shape)
    for name, test in watch.tests.items():
        null = 1 - test.low if name == "trr" else test.high
        n, breaches = reviewed_counts(name, cells, sizes, all_rows=True)
        starts = begins(name, cells, sizes)
        expected = evidence(n, breaches, edge(name, null, rates), starts)[0, -1]
        assert abs(expected - test.evidence) < 1e-9, (name, expected, test.evidence)
        assert test.peak >= test.evidence


def late(pool, quick):
    """Count false alarms where labels come late, or never."""
    streams, rows = (4, 3000) if quick else (300, ROWS)
    cells = list(product(("frr", "joint"), (0.01, 0.05), LATE))
    tasks = [
        (*cell, rows, 10_000 * k + seed)
        for k, cell in enumerate(cells)
        for seed in range(streams)
    ]
    results = run(pool, late_stream, tasks, "late")
    shares, expired = {}, {}
    for k, (_, null, lateness) in enumerate(cells):
        results_of_cell = results[k * streams : (k + 1) * streams]
        expired.setdefault(lateness, []).extend(share for _, share in results_of_cell)
        for name in results_of_cell[0][0]:
            alarms = [by_name[name] for by_name, _ in results_of_cell]
            shares[name, null, lateness] = np.mean(alarms)
    head = ["rate", "at the edge", *(words for words, _ in LATE.values())]
    lines = [
        [NAMES[name], edge_words(name, null)]
        + [f"{shares[name, null, lateness]:.1%}" for lateness in LATE]
        for name, null in product(NAMES, (0.01, 0.05))
    ]
    words = (
        f"{streams} streams per cell, all through a `Watch`. In the last column "
        f"{np.mean(expired['first']):.0%} of the reviewed rows were given up on. The "
        f"largest share is {max(shares.values()):.1%}."
    )
    return {"late": f"{table(head, lines)}\n\n{words}"}, max(shares.values())


def wrong_cell(task):
    """Return the false alarms of one rate where labels are counted wrongly."""
    name, null, streams, rows, seed = task
    rng = np.random.default_rng(seed)
    sizes = draw_sizes(rng, streams, rows)
    kinds = rng.multinomial(sizes, mix(name, null))

    def share(drawn):
        n, breaches = reviewed_counts(name, drawn, sizes, all_rows=False)
        return has_alarmed(evidence(n, breaches, null, n > 0)).mean()

    against = np.isin(np.arange(4), (FR, FA))
    accepted_late = np.concatenate([np.zeros_like(kinds[:, :5]), kinds[:, :-5]], axis=1)
    arrived = np.where(against, kinds, accepted_late)
    after_expiry = np.where(against, kinds, rng.binomial(kinds, 0.7))
    accepted_sampled = rng.binomial(kinds, [1.0, 1.0, 0.02, 0.02])
    return [share(arrived), share(after_expiry), share(accepted_sampled)]


def wrong(pool, quick):
    """Show what goes wrong without the queue, the deadline's rule, and the rates."""
    streams, rows = (30, 3000) if quick else (1000, ROWS)
    cells = list(product(NAMES, (0.01, 0.05)))
    tasks = [(*cell, streams, rows, seed) for seed, cell in enumerate(cells)]
    share_lists = run(pool, wrong_cell, tasks, "wrong")
    head = ["rate", "at the edge", "counted as they come", "expired rows dropped"]
    head += ["rates 1, 0.02 not known, taken as even"]
    lines = [
        [NAMES[name], edge_words(name, null), *(f"{x:.0%}" for x in shares)]
        for (name, null), shares in zip(cells, share_lists, strict=True)
    ]
    return {"wrong": table(head, lines)}, 0.0


NOISE = 0.02
MISTAKES = {
    "of all": (1.0, 1.0),
    "of correct rows": (1.0, 0.0),
    "of errors": (0.0, 1.0),
}
"""Which labels are wrong, in units of NOISE: those of correct rows, and of errors."""
OPPOSED = {"frr": TR, "trr": TA}


def mislabel(rng, drawn, noise, mistakes):
    """Return drawn rows as they are labelled: FR and TA are correct, TR and FA not."""
    of_correct, of_errors = (noise * unit for unit in MISTAKES[mistakes])
    moved = rng.binomial(drawn, [of_correct, of_errors, of_errors, of_correct])
    return drawn - moved + moved[..., [TR, FR, TA, FA]]


def noisy_logs(name, review, labelled, sizes, noise):
    """Return the evidence of streams whose labels may be wrong."""
    null = EDGE[name]
    rates = draw_rates(np.random.default_rng(0), review, sizes.shape)
    n, breaches = reviewed_counts(name, labelled, sizes, all_rows=True)
    starts = begins(name, labelled, sizes)
    if name in OPPOSED:
        null_rate = float(edge(name, null, rates)[0, 0])
        noisy = noisy_ratios(null_rate, noise), labelled[..., OPPOSED[name]]
        return evidence(n, breaches, null_rate, starts, noisy if noise else None)
    return evidence(n, breaches, edge(name, null + (1 - null) * noise, rates), starts)


def noise_cell(task):
    """Return false alarms under wrong labels, untold and told."""
    name, words, streams, rows, seed = task
    rng, review, null = np.random.default_rng(seed), RATES[words], EDGE[name]
    sizes = draw_sizes(rng, streams, rows)
    kinds = rng.multinomial(sizes, USUAL)
    rates = draw_rates(rng, review, sizes.shape)
    drawn = rng.binomial(kinds, rates[..., [0, 0, 1, 1]])
    alarm_shares = []
    for mistakes in MISTAKES:
        labelled = mislabel(rng, drawn, NOISE, mistakes)
        told_logs = noisy_logs(name, review, labelled, sizes, NOISE)
        if mistakes == "of all":
            untold_logs = noisy_logs(name, review, labelled, sizes, 0.0)
            alarm_shares.append(has_alarmed(untold_logs).mean())
            cells = kinds - drawn + labelled
            stream = sizes[0], cells[0], labelled[0], rates[0]
            check_by_watch(rng, name, null, stream, told_logs[0], NOISE)
        alarm_shares.append(has_alarmed(told_logs).mean())
    return alarm_shares


def noise_delay(task):
    """Return after how many rows a doubled rate of errors accepted is found."""
    name, words, noise, streams, seed = task
    rng, review = np.random.default_rng(seed), RATES[words]
    sizes = np.full((streams, 200), BATCH)
    worse = 0.045, 0.01, 0.09, 0.855  # twice as many errors are accepted
    kinds = rng.multinomial(sizes, worse)
    rates = draw_rates(rng, review, sizes.shape)
    drawn = rng.binomial(kinds, rates[..., [0, 0, 1, 1]])
    labelled = mislabel(rng, drawn, noise, "of all")
    logs = noisy_logs(name, review, labelled, sizes, noise)
    return np.median(first_alarm(logs))


def noise(pool, quick):
    """Count false alarms where labels are wrong, and what it costs to allow for it."""
    streams, rows = (20, 3000) if quick else (1000, ROWS)
    reviews = ("all rows", "1, 0.2", "1, 0.02")
    cells = list(product(NAMES, reviews))
    tasks = [(*cell, streams, rows, seed) for seed, cell in enumerate(cells)]
    share_lists = run(pool, noise_cell, tasks, "noise")
    delay_tasks = [(*cell, e, streams // 5, 99) for cell in cells for e in (0.0, NOISE)]
    delays = [
        "-" if name == "frr" else count_words(rows, most=200 * BATCH)
        for (name, *_), rows in zip(
            delay_tasks, run(pool, noise_delay, delay_tasks, "noise"), strict=True
        )
    ]
    head = ["rate", "reviewed", f"untold, {NOISE:.0%} of all wrong"]
    head += [f"told, {NOISE:.0%} {mistakes} wrong" for mistakes in MISTAKES]
    head += ["found after, no label wrong", f"found after, {NOISE:.0%} wrong, told"]
    lines = [
        [NAMES[name], words, *(f"{x:.1%}" for x in shares), *delays[2 * k : 2 * k + 2]]
        for k, ((name, words), shares) in enumerate(
            zip(cells, share_lists, strict=True)
        )
    ]
    worst = max(max(shares[1:]) for shares in share_lists)
    words = (
        f"{streams:,} streams of {rows:,} rows per cell at the edge, of a gate that "
        f"accepts 90% of the rows (FRR 5%, TRR 55%, risk 5%, joint 4.5%). The largest "
        f"share of false alarms with `label_noise={NOISE:g}` is {worst:.1%}; at most "
        f"{LEVEL:.0%} was promised. One stream of each cell went through a `Watch`. "
        f"The last two columns: twice as many errors are accepted; rows until the "
        f"alarm (median of {streams // 5} streams)."
    )
    return {"noise": f"{table(head, lines)}\n\n{words}"}, worst


AUDITS = {
    "at random": 0.0,
    "doubtful ones preferred": 1.5,
    "doubtful ones first": math.inf,
    "easy ones preferred": -1.5,
    "easy ones first": -math.inf,
}
"""How an audit of the accepted rows draws: the odds of the most doubtful row over the
easiest one are e to this power."""
AUDITED = 0.02


def drawn_by(rng, doubt, weight, rate):
    """Return which rows are audited: as many as by plain draws, by preference."""
    rank = doubt.argsort().argsort() / len(doubt)
    if math.isinf(weight):
        order = (-rank if weight > 0 else rank).argsort()
    else:
        order = (rng.exponential(size=len(doubt)) / np.exp(weight * rank)).argsort()
    mask = np.zeros(len(doubt), bool)
    mask[order[: rng.binomial(len(doubt), rate)]] = True
    return mask


def audited_rows(rng, size, risk, weight):
    """Return doubts, errors and draws: of accepted rows the doubtful ones are worse."""
    accepted = rng.random(size) < 0.9
    place = rng.random(size)
    odds = np.where(accepted, risk * (0.5 + place), 0.55)
    wrong = rng.random(size) < odds
    doubt = np.where(accepted, place / 2, 0.5 + (1 + place) / 4)
    drawn = ~accepted
    drawn[accepted] = drawn_by(rng, doubt[accepted], weight, AUDITED)
    return doubt, wrong, drawn


def preference_cell(task):
    """Return the shares of streams that alarm without comparing, and of verdicts."""
    words, risk, streams, batches, seed = task
    rng, review = np.random.default_rng(seed), Review(1.0, AUDITED)
    cells = np.zeros((streams, batches, 4), int)
    may_differ, differs = np.zeros((streams, batches), bool), np.zeros(streams, bool)
    watch = make_watch(EDGE, review)
    for stream in range(streams):
        accepted = Preference()
        for t in range(batches):
            doubt, wrong, drawn = audited_rows(rng, BATCH, risk, AUDITS[words])
            is_accepted = doubt <= 0.5
            accepted = accepted.add(doubt[is_accepted], drawn[is_accepted], review)
            may_differ[stream, t] = accepted.may_differ
            differs[stream] = accepted.differs
            kinds = np.where(is_accepted, TA - wrong, wrong)[drawn]
            cells[stream, t] = np.bincount(kinds, minlength=4)
            if not stream:
                labels = np.where(drawn, wrong, np.nan)
                watch.update(doubt, labels, reviewed=drawn)
    sizes, shares_by_rate = np.full((streams, batches), BATCH), {}
    rates = draw_rates(rng, review, sizes.shape)
    for name, null in EDGE.items():
        n, breaches = reviewed_counts(name, cells, sizes, all_rows=True)
        logs = evidence(n, breaches, edge(name, null, rates), sizes > 0)
        ever_alarms = np.maximum.accumulate(logs, 1) >= -math.log(LEVEL)
        alarm = (ever_alarms & ~may_differ).any(1)
        verdicts = np.where(alarm, "alarm", np.where(differs, TELLS, "holds"))
        assert verdicts[0] == watch.verdict(name), (words, risk, name)
        shares = {
            verdict: np.mean(verdicts == verdict)
            for verdict in ("alarm", "holds", TELLS)
        }
        shares_by_rate[name] = {"without": ever_alarms[:, -1].mean()} | shares
    return shares_by_rate


def plain_stream(task):
    """Tell whether plain draws of drifting rows are ever said to differ."""
    rows, seed = task
    rng = np.random.default_rng(seed)
    preference, rates = Preference(), np.exp(rng.uniform(math.log(0.01), 0, 3))
    for t, size in enumerate(draw_sizes(rng, 1, rows)[0]):
        rate = float(rates[rng.integers(3)])
        doubts = rng.normal(t / 50, 1, size).round(1 + seed % 3)
        preference = preference.add(doubts, rng.random(size) < rate, Review(1.0, rate))
    return preference.differs


def preference_delay(task):
    """Return after how many audited rows a preference is found that begins late."""
    weight, age, seed = task
    rng, preference = np.random.default_rng(seed), Preference()
    for t in range(age // BATCH + 400):
        doubts = rng.normal(size=int(0.9 * BATCH))
        weight_now = weight if t >= age // BATCH else 0.0
        preference = preference.add(
            doubts, drawn_by(rng, doubts, weight_now, AUDITED), None
        )
        if preference.differs:
            return (t + 1 - age // BATCH) * 0.9 * BATCH * AUDITED
    return math.inf


def preference(pool, quick):
    """Audits that prefer some rows: what is said, and what would be without it."""
    streams, batches = (4, 20) if quick else (200, 100)
    cells = list(product(AUDITS, (0.05, 0.1)))
    tasks = [(*cell, streams, batches, seed) for seed, cell in enumerate(cells)]
    shares = dict(
        zip(cells, run(pool, preference_cell, tasks, "preference"), strict=True)
    )
    head = ["audit of the accepted rows", "rate"]
    head += ["at the edge: alarm without comparing", "alarm", TELLS]
    head += ["errors doubled: alarm without comparing", "alarm", '"holds"', TELLS]
    lines = [
        [words, NAMES[name]]
        + [f"{shares[words, 0.05][name][x]:.0%}" for x in ("without", "alarm", TELLS)]
        + [f"{x:.0%}" for x in shares[words, 0.1][name].values()]
        for words, name in product(AUDITS, ("trr", "risk", "joint"))
    ]
    worst = max(shares[words, 0.05][name]["alarm"] for words in AUDITS for name in EDGE)
    plain_streams = 50 if quick else 1000
    plain = np.mean(
        run(pool, plain_stream, [(ROWS, k) for k in range(plain_streams)], "preference")
    )
    ages, delay_streams = (
        ((0, 10_000), 4) if quick else ((0, 10_000, 100_000, 1_000_000), 20)
    )
    delays_by_age = {}
    for age in ages:
        tasks = [(1.5, age, seed) for seed in range(delay_streams)]
        labels = np.median(run(pool, preference_delay, tasks, "preference"))
        delays_by_age[age] = f"{labels:,.0f} after {age:,} rows of plain audits"
    words = (
        f"{streams} streams of {batches * BATCH:,} rows per cell, all rejected rows "
        f"and {AUDITED:.0%} of the accepted ones reviewed. Plain draws, at rates that "
        f"change from batch to batch and of doubts that drift, were said to differ in "
        f"{plain:.2%} of {plain_streams:,} streams of {ROWS:,} rows; at most "
        f"{DIFFERENT:.1%} was promised. One stream of each cell went through a "
        f"`Watch`, too. Audited rows until a preference for doubtful ones is found: "
        f"{', '.join(delays_by_age.values())}."
    )
    return {"preference": f"{table(head, lines)}\n\n{words}"}, worst


AGES = (0, 1_000, 10_000, 100_000, 1_000_000)
RISES = {(0.045, 0.10): 2_000, (0.03, 0.07): 7_000}
BATCH, NULL = 500, 0.05


def delays(task):
    """Return after how many rows a rise is found: by `Bet`, and by lifetime counts."""
    (before, after), age, streams, horizon, seed = task
    rng, old = np.random.default_rng(seed), age // BATCH
    before_rise = rng.binomial(BATCH, before, (streams, old))
    after_rise = rng.binomial(BATCH, after, (streams, horizon))
    shown = min(horizon, 100)
    breaches = np.concatenate([before_rise, after_rise[:, :shown]], axis=1)
    n = np.full(breaches.shape, BATCH)
    logs = evidence(n, breaches, NULL, n > 0)
    check_by_bet(breaches[0], logs[0])
    unalarmed = ~has_alarmed(logs[:, :old])
    by_bets = first_alarm(logs[unalarmed, old:])
    lifetime_breaches = before_rise[unalarmed].sum(1)[:, None]
    lifetime_breaches = lifetime_breaches + after_rise[unalarmed].cumsum(1)
    totals = age + BATCH * np.arange(1, horizon + 1)
    by_lifetime = np.full(unalarmed.sum(), np.inf)
    for t in range(horizon):
        log_growth = log_ratio(totals[t], lifetime_breaches[:, t, None], NULL)
        log_evidence = np.logaddexp.reduce(log_growth, 1) - math.log(len(ODDS))
        alarms = log_evidence >= -math.log(LEVEL)
        by_lifetime[alarms & np.isinf(by_lifetime)] = BATCH * (t + 1)
        if np.isfinite(by_lifetime).all():
            break
    return np.median(by_bets), np.median(by_lifetime), int((~unalarmed).sum())


def check_by_bet(breaches, logs):
    bet = Bet(0.0, NULL)
    for count, expected in zip(breaches, logs, strict=True):
        if expected > 500:
            break
        bet = bet.add(BATCH, int(count))
        assert abs(bet.evidence - expected) < 1e-9, (bet.evidence, expected)


def first_alarm(logs):
    """Return after how many rows each stream alarms first."""
    over = logs >= -math.log(LEVEL)
    return np.where(over.any(1), BATCH * (over.argmax(1) + 1), np.inf)


def delay(pool, quick, out=None):
    """Delay of detection, by the age of the stream."""
    streams, horizon = (10, 100) if quick else (200, 4000)
    ages = AGES[:3] if quick else AGES
    cells = list(product(RISES, ages))
    tasks = [(*cell, streams, horizon, seed) for seed, cell in enumerate(cells)]
    delay_by_cell = dict(zip(cells, run(pool, delays, tasks, "delay"), strict=True))
    head = ["good rows before", *(f"{a:g} to {b:g}" for a, b in RISES)]
    head = [head[0], head[1], "by lifetime counts", head[2], "by lifetime counts"]
    lines = [
        [
            f"{age:,}",
            *(count_words(x) for rise in RISES for x in delay_by_cell[rise, age][:2]),
        ]
        for age in ages
    ]
    largest = {rise: max(delay_by_cell[rise, age][0] for age in ages) for rise in RISES}
    as_promised = all(largest[rise] <= limit for rise, limit in RISES.items())
    early = sum(cell[2] for cell in delay_by_cell.values())
    words = (
        f"Rows until the alarm, median of {streams} streams; {early} of all "
        f"{streams * len(cells):,} streams alarmed before the rise, and are left out."
    )
    if out is not None:
        draw_delays(delay_by_cell, out)
    return {"delay": f"{table(head, lines)}\n\n{words}"}, 0.0 if as_promised else 1.0


def count_words(rows, most=2_000_000):
    return f"{rows:,.0f}" if math.isfinite(rows) else f"over {most:,}"


def draw_delays(delay_by_cell, out):
    """Draw the delay over the age of the stream."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained", facecolor="white")
    for axes, rise in zip(figure.subplots(1, 2, sharey=True), RISES, strict=True):
        for k, (words, colour) in enumerate(
            (("a new bet with every batch", "#0072b2"), ("lifetime counts", "#d55e00"))
        ):
            rows = [delay_by_cell[rise, age][k] for age in AGES]
            axes.plot(range(len(AGES)), rows, "o-", color=colour, lw=2)
            axes.annotate(
                words,
                (3, rows[3]),
                xytext=(0, -16) if k == 0 else (-10, 4),
                textcoords="offset points",
                color=colour,
                ha="center" if k == 0 else "right",
                va="top" if k == 0 else "bottom",
            )
        axes.set_yscale("log")
        axes.set_xticks(range(len(AGES)), [f"{age:,}" for age in AGES])
        axes.set_xlabel("good rows before the rise")
        axes.set_title(f"rate from {rise[0]:g} to {rise[1]:g}, promised {NULL:g}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    figure.axes[0].set_ylabel("rows until the alarm")
    out.parent.mkdir(exist_ok=True)
    figure.savefig(out, dpi=130, metadata={"Software": None})


USUAL = 0.045, 0.055, 0.045, 0.855
EDGE = {"frr": 0.05, "trr": 0.45, "risk": 0.05, "joint": 0.045}
"""A gate that accepts 90% of the rows, and the edges of its rates."""

CHOICES = {
    "the rejected rows only": (1.0, 0.0),
    "all rejected rows, 10% of the accepted": (1.0, 0.1),
    "all rejected rows, 80% of the accepted": (1.0, 0.8),
    "10% of all rows": (0.1, 0.1),
}
TELLS = "cannot tell"


def blind_stream(task):
    """Return what a watch says of labels that were chosen, rates not given."""
    words, rows, seed = task
    rng, (rejected, accepted) = np.random.default_rng(seed), CHOICES[words]
    watch, verdicts_by_rate = make_watch(EDGE), {name: [] for name in NAMES}
    for size in draw_sizes(rng, 1, rows, largest=1000)[0]:
        kind = rng.choice(4, size, p=USUAL)
        drawn = rng.random(len(kind)) < np.where(kind < FA, rejected, accepted)
        wrong = (kind == TR) | (kind == FA)
        watch.update(doubts(kind), np.where(drawn, wrong, np.nan))
        for name in NAMES:
            verdicts_by_rate[name].append(watch.verdict(name))
    return {
        name: (
            np.mean(
                [verdict == TELLS for verdict in verdicts if verdict != "no rows yet"]
            ),
            TELLS in verdicts,
            "alarm" in verdicts,
        )
        for name, verdicts in verdicts_by_rate.items()
    }


def audit_delay(task):
    """Return how many audited labels it takes to find a rise of the risk."""
    age, streams, seed = task
    rng, promised, coverage, rate = np.random.default_rng(seed), 0.03, 0.8, 0.02
    batches_before, horizon = age // BATCH, 800
    risk = np.where(np.arange(batches_before + horizon) < batches_before, 0.02, 0.06)
    n = rng.binomial(BATCH, coverage * rate, (streams, batches_before + horizon))
    breaches = rng.binomial(n, risk)
    logs = evidence(n, breaches, promised, np.ones(n.shape, bool))
    unalarmed = ~has_alarmed(logs[:, :batches_before])
    over = logs[unalarmed, batches_before:] >= -math.log(LEVEL)
    labels = n[unalarmed, batches_before:].cumsum(1)
    labels_needed = np.where(
        over.any(1), labels[np.arange(len(over)), over.argmax(1)], np.inf
    )
    return np.median(labels_needed)


def blind(pool, quick):
    """Labels that were chosen: what is said, and what is not."""
    streams, rows = (4, 2000) if quick else (200, 10_000)
    tasks = [(words, rows, seed) for words in CHOICES for seed in range(streams)]
    results = run(pool, blind_stream, tasks, "blind")
    head = ["labelled", "rate", '"cannot tell", of all looks', "ever", "false alarms"]
    lines, worst = [], 0.0
    for k, words in enumerate(CHOICES):
        results_of_choice = results[k * streams : (k + 1) * streams]
        for name in NAMES:
            looks, ever, false = np.array(
                [result[name] for result in results_of_choice]
            ).mean(0)
            lines.append([words, NAMES[name], f"{looks:.1%}", f"{ever:.1%}"])
            lines[-1].append(f"{false:.1%}")
            if words == "the rejected rows only":
                worst = max(worst, float(looks < 1), false)
    ages = (0, 100_000) if quick else (0, 10_000, 100_000, 1_000_000)
    tasks = [(age, 20 if quick else 200, seed) for seed, age in enumerate(ages)]
    labels = run(pool, audit_delay, tasks, "blind")
    text = (
        "With an audit of 2% of the accepted rows, a rise of the risk from 2% to 6% "
        "against a promise of 3% is found after this number of audited labels (median "
        "of 200 streams): "
        + ", ".join(
            f"{n:,.0f} after {age:,} good rows"
            for n, age in zip(labels, ages, strict=True)
        )
        + "."
    )
    return {"blind": table(head, lines), "audit": text}, worst


GROUPS = tuple(f"g{k}" for k in range(10))


def group_stream(task):
    """Return when the test by group, and the pooled one, find a broken group."""
    batches_before, batches_after, seed = task
    rng = np.random.default_rng(seed)
    scores, row_groups = np.linspace(0, 1, 3000), np.tile(GROUPS, 300)
    wrong = rng.random(3000) < 0.1
    by_group = td.calibrate_scores(scores, wrong, groups=row_groups, frr=0.1)
    pooled = td.calibrate_scores(scores, wrong, frr=0.1)
    watches = [by_group.watch(window=1000), pooled.watch(window=1000)]
    alarms = [None, None]
    for t in range(batches_before + batches_after):
        group = rng.choice(GROUPS, BATCH)
        rejection_rate = np.full(BATCH, 0.1)
        if t >= batches_before:
            rejection_rate = np.where(group == GROUPS[3], 0.35, 0.06)
        errors = rng.random(BATCH) < 0.1
        doubt = np.where(
            rng.random(BATCH) < np.where(errors, 0.6, rejection_rate), 2.0, -1.0
        )
        watches[0].update(doubt, errors, groups=group)
        watches[1].update(doubt, errors)
        for k, watch in enumerate(watches):
            alarm = watch.tests["frr"].alarm
            if alarm is not None and alarms[k] is None:
                alarms[k] = (BATCH * (t + 1 - batches_before), alarm.groups)
        if alarms[0] and t >= batches_before + batches_after // 2:
            break
    return [alarm if alarm is None or alarm[0] > 0 else "before" for alarm in alarms]


def groups(pool, quick):
    """One of ten groups gets worse while the others get better."""
    streams, batches_before, batches_after = (2, 10, 30) if quick else (100, 40, 40)
    tasks = [(batches_before, batches_after, seed) for seed in range(streams)]
    results = run(pool, group_stream, tasks, "groups")
    first, second = zip(*results, strict=True)
    found_alarms = [alarm for alarm in first if isinstance(alarm, tuple)]
    named = sum(GROUPS[3] in alarm[1] for alarm in found_alarms)
    rows = [alarm[0] for alarm in found_alarms]
    text = (
        f"{streams} streams of ten groups, batches of {BATCH} rows, FRR at most 10% "
        f"promised to each. After {batches_before * BATCH:,} good rows one group goes "
        f"from 10% to 35%, the others from 10% to 6%. The test by group found it in "
        f"{len(found_alarms)} of {streams} streams, after {np.median(rows):,.0f} rows "
        f"of all groups (median; {np.quantile(rows, 0.9):,.0f} in the slowest tenth), "
        f"and named the group in {named}. One test of all rows together alarmed in "
        f"{sum(alarm is not None for alarm in second)} streams. Before the change "
        f"{sum(alarm == 'before' for alarm in first)} streams alarmed."
    )
    return {"groups": text}, 0.0


def worker(path, gate, numbers, rows, count):
    """Count batches, beginning with the first that may not be counted yet."""
    while count.value < len(numbers):
        number = numbers[count.value]
        with Watch.open(path, gate, review={"rejected": 1.0, "accepted": 1.0}) as watch:
            count_batch(watch, number, rows)
        count.value += 1


def count_batch(watch, number, rows):
    rng = np.random.default_rng(number)
    kind = rng.choice(4, rows, p=mix("frr", 0.05))
    wrong = (kind == TR) | (kind == FA)
    ids = [f"{number}-{row}" for row in range(rows)]
    watch.update(doubts(kind), wrong, ids=ids, batch=str(number), at=1.0 + number)


KILLS = 60


def kill_at_random(path, gate, batches, rows, pause):
    """Run four processes that count batches, and kill them; return how many died."""
    rng = np.random.default_rng(0)
    fork = get_context("fork")
    shares_of_work = [list(range(k, batches, 4)) for k in range(4)]
    counts = [fork.Value("i", 0, lock=False) for _ in shares_of_work]
    running, killed = {}, 0
    while any(d.value < len(p) for d, p in zip(counts, shares_of_work, strict=True)):
        for k, numbers in enumerate(shares_of_work):
            if counts[k].value < len(numbers) and (
                k not in running or not running[k].is_alive()
            ):
                assert k not in running or running[k].exitcode == -signal.SIGKILL
                counts[k].value = max(0, counts[k].value - 2)
                running[k] = fork.Process(
                    target=worker, args=(path, gate, numbers, rows, counts[k])
                )
                running[k].start()
        time.sleep(rng.exponential(pause))
        victim = running[int(rng.integers(4))]
        if killed < KILLS and victim.is_alive():
            os.kill(victim.pid, signal.SIGKILL)
            killed += 1
            victim.join()
    for process in running.values():
        process.join()
    return killed


def check_state(path, gate, batches, rows):
    """Demand that a state has every row once; return how many came again."""
    watch = Watch.load(path, gate)
    again = gate.watch(review={"rejected": 1.0, "accepted": 1.0})
    entries = [entry for entry in watch.records() if entry.rows]
    assert len(entries) == batches, len(entries)
    for entry in entries:
        count_batch(again, int(entry.batch), rows)
    assert watch.totals.rows == batches * rows
    assert watch.totals.labels == batches * rows
    assert dict(watch.ledger.items()) == dict(again.ledger.items())
    for name, test in watch.tests.items():
        expected = again.tests[name]
        assert (test.n, test.counted) == (expected.n, expected.counted)
        assert abs(test.evidence - expected.evidence) < 1e-9
    return watch.totals.repeated


def watched_gate():
    """Return a gate that rejects a doubt of 1, and promises an FRR."""
    rng = np.random.default_rng(0)
    errors = rng.random(2000) < 0.5
    spread = np.where(errors, rng.uniform(0.3, 1, 2000), rng.uniform(0, 0.9, 2000))
    return td.calibrate_scores(spread, errors, frr=0.06)


def together(_pool, quick):
    """Count by processes that are killed, and by threads."""
    batches, rows, gate = (60 if quick else 1000), 10, watched_gate()
    lines = []
    for kind, name, pause in (("JSON", "state.json", 1), ("SQLite", "state.db", 0.1)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            start = time.perf_counter()
            killed = kill_at_random(path, gate, batches, rows, pause)
            seconds = time.perf_counter() - start
            repeated = check_state(path, gate, batches, rows)
        counted = f"{batches:,} batches, {batches * rows:,} rows"
        lines.append([kind, counted, killed, f"{repeated:,}", "each row once"])
        print(f"  {kind}: {killed} killed, {seconds:.0f} s", flush=True)
    watch = gate.watch()
    updates = 25 if quick else 250

    def count():
        for _ in range(updates):
            watch.update(np.zeros(10), np.zeros(10, bool))

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    t = watch.totals
    assert (t.updates, t.rows, t.labels) == (8 * updates, 80 * updates, 80 * updates)
    head = ["state", "counted", "killed", "rows delivered again", "in the state"]
    words = (
        f"8 threads with {updates} updates of 10 rows each: {t.updates:,} updates and "
        f"{t.rows:,} rows counted."
    )
    return {"together": f"{table(head, lines)}\n\n{words}"}, 0.0


DRIFTS = {
    "constant": lambda x: np.full(len(x), 0.05),
    "slow, 0.02 to 0.12": lambda x: 0.02 + 0.1 * x,
    "jumps between 0.02 and 0.2": lambda x: np.where(np.floor(20 * x) % 2, 0.2, 0.02),
    "waves, 0.02 to 0.14": lambda x: 0.08 + 0.06 * np.sin(45 * x),
}
SEEN = {
    "FRR, all rows": ("frr", None),
    "FRR, reviewed 1, 0.02": ("frr", Review(1.0, 0.02)),
    "risk, reviewed 1, 0.02": ("risk", Review(1.0, 0.02)),
}


def covered_stream(task):
    """Return whether no window ever misses the mean of its rows, and its width."""
    drift, words, rows, seed = task
    rng, (name, review) = np.random.default_rng(seed), SEEN[words]
    sizes = draw_sizes(rng, 1, rows)[0]
    truth = DRIFTS[drift](sizes.cumsum() / rows)
    test, window, always_covered, width, widths = make_test(name, 0.5), 0, True, 0.0, []
    resting_rows = resting_breaches = 0.0
    for size, rate in zip(sizes, truth, strict=True):
        probs = (0.9 * rate, 0.06, 0.04, 0.9 * (1 - rate))
        if name == "risk":
            probs = (0.1, 0.1, 0.8 * rate, 0.8 * (1 - rate))
        kinds = rng.multinomial(size, probs)
        rates = (1, 1, 1, 1) if review is None else (1, 1, *2 * [review.accepted])
        cells = np.append(rng.binomial(kinds, rates), [0, 0])
        test.start_bets([None] if cells.any() else [], review)
        test.count({None: cells}, review)
        estimate = test.estimate()
        if estimate is None:
            continue
        if estimate.window != window:
            if window:
                widths.append(width)
            window, resting_rows, resting_breaches = estimate.window, 0.0, 0.0
        resting = kinds[list(RIGHT_SIDE[name])].sum()
        resting_rows, resting_breaches = (
            resting_rows + resting,
            resting_breaches + resting * rate,
        )
        width = estimate.high - estimate.low
        always_covered &= (
            estimate.low <= resting_breaches / max(resting_rows, 1) <= estimate.high
            or not resting_rows
        )
    return always_covered, np.mean([*widths, width])


def estimates(pool, quick):
    """Coverage of the windows at all times, where the rate drifts."""
    streams, rows = (4, 5000) if quick else (200, ROWS)
    cells = list(product(DRIFTS, SEEN))
    tasks = [
        (*cell, rows, 1000 * k + seed)
        for k, cell in enumerate(cells)
        for seed in range(streams)
    ]
    results = run(pool, covered_stream, tasks, "estimates")
    results_by_cell = dict(
        zip(
            cells,
            (results[k * streams : (k + 1) * streams] for k in range(len(cells))),
            strict=True,
        )
    )
    head = ["rate", *SEEN]
    lines, smallest = [], 1.0
    for drift in DRIFTS:
        line = [drift]
        for words in SEEN:
            covered, widths = zip(*results_by_cell[drift, words], strict=True)
            smallest = min(smallest, np.mean(covered))
            line.append(f"{np.mean(covered):.1%} (width {np.mean(widths):.3f})")
        lines.append(line)
    words = f"{streams} streams per cell. The least share is {smallest:.1%}."
    return {"estimates": f"{table(head, lines)}\n\n{words}"}, float(smallest < 0.95)


def best_of(function, repeats):
    """Return the least time of a few calls."""
    times = []
    for k in range(repeats):
        start = time.perf_counter()
        function(k)
        times.append(time.perf_counter() - start)
    return min(times)


def cost_row(rows, quick):
    """Return seconds for alpha on rows, and for updates with them, one per way."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(rows, 10))
    labels = np.where(rng.random(rows) < 0.9, logits.argmax(1), 0)
    p = td.Predictions.from_logits(logits, labels)
    calibration = td.Predictions.from_logits(
        logits := 3 * rng.normal(size=(2000, 10)),
        np.where(rng.random(2000) < 0.9, logits.argmax(1), 0),
    )
    gate, repeats = (
        td.calibrate(calibration, frr=0.05),
        3 if quick or rows > 10_000 else 20,
    )
    screened, wrong = gate.screen(p), p.errors
    rates = {"rejected": 1.0, "accepted": 0.02}
    watch_of_predictions, watch_of_decisions = gate.watch(), gate.watch()
    watch_with_ids, reviewing_watch = gate.watch(), gate.watch(review=rates)

    def ids(k):
        return [f"{k}-{row}" for row in range(rows)]

    def opened(name):
        path, earlier = Path(folder) / name, 1 if quick else 100_000 // rows
        first = gate.watch()
        for k in range(earlier):
            first.update(screened, wrong, ids=ids(f"old-{k}"))
        first.save(path)

        def update(k):
            with Watch.open(path, gate) as opened_watch:
                opened_watch.update(screened, wrong, ids=ids(k))

        return update

    def draw_and_label(k):
        names = ids(k)
        mask = reviewing_watch.draw(screened, ids=names)
        reviewing_watch.update(screened, ids=names, reviewed=mask)
        drawn_rows = np.flatnonzero(mask)
        reviewing_watch.label(
            errors=wrong[drawn_rows], ids=[names[row] for row in drawn_rows]
        )

    with tempfile.TemporaryDirectory() as folder:
        return {
            "scoring by alpha": best_of(lambda _: td.alpha(p), repeats),
            "update with predictions": best_of(
                lambda _: watch_of_predictions.update(p), repeats
            ),
            "update with decisions": best_of(
                lambda _: watch_of_decisions.update(screened, wrong), repeats
            ),
            "with ids, in memory": best_of(
                lambda k: watch_with_ids.update(screened, wrong, ids=ids(k)), repeats
            ),
            "draw, update, late labels, in memory": best_of(draw_and_label, repeats),
            "with ids, a state of JSON": best_of(opened("state.json"), repeats),
            "with ids, a state of SQLite": best_of(opened("state.db"), repeats),
        }


def costs(_pool, quick):
    """Show what an update costs, beside scoring its rows."""
    sizes = (500, 2000) if quick else (500, 100_000)
    columns = [cost_row(rows, quick) for rows in sizes]
    head = ["", *(f"{rows:,} rows" for rows in sizes)]
    lines = [
        [
            way,
            *(
                f"{seconds[way] / seconds['scoring by alpha']:,.0f}"
                for seconds in columns
            ),
        ]
        for way in columns[0]
    ]
    first_line = ", ".join(
        f"{1000 * seconds['scoring by alpha']:.2g} ms for {rows:,}"
        for seconds, rows in zip(columns, sizes, strict=True)
    )
    words = f"In units of the first line, which took {first_line} (10 classes)."
    return {"costs": f"{table(head, lines)}\n\n{words}"}, 0.0


PARTS = {
    "alarms": alarms,
    "late": late,
    "wrong": wrong,
    "noise": noise,
    "preference": preference,
    "delay": delay,
    "blind": blind,
    "groups": groups,
    "together": together,
    "estimates": estimates,
    "costs": costs,
}
"""Each returns what it writes, and a figure that must be at most LEVEL."""


def run(pool, function, tasks, name):
    """Run tasks on all cores, saying how far it is."""
    results = []
    for k, result in enumerate(pool.imap(function, tasks, chunksize=1), 1):
        results.append(result)
        if k == len(tasks) or k % max(1, len(tasks) // 10) == 0:
            print(f"  {name}: {k} of {len(tasks)}", flush=True)
    return results


def measure(names, write, *, quick, picture=None):
    """Run parts, writing what each gives; return those beyond what they promise."""
    failed = []
    with get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        for name in names:
            start = time.perf_counter()
            options = {"out": picture} if name == "delay" else {}
            texts, figure = PARTS[name](pool, quick, **options)
            write(texts)
            failed += [name] if figure > LEVEL else []
            print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
        pool.close()
        pool.join()
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PARTS)
    if unknown := set(names) - set(PARTS):
        sys.exit(f"expected parts of {', '.join(PARTS)}, got {', '.join(unknown)}.")
    picture = (
        None if options.quick else options.out.parent / "pictures" / "watching.png"
    )

    def write(texts):
        if options.quick:
            print("\n\n".join(texts.values()))
            return
        if not options.out.exists():
            shutil.copy(PAGE, options.out)
        fill(options.out, "", texts)

    failed = measure(names, write, quick=options.quick, picture=picture)
    words = (
        f"Made by `python benchmarks/watch.py` on {len(os.sched_getaffinity(0))} cores "
        f"({processor()}). Seeds are fixed."
    )
    write({"head": words})
    print(f"{sum(os.times()[:4]) / 60:.1f} minutes of one core", flush=True)
    if failed:
        sys.exit(f"beyond what was promised: {', '.join(failed)}")


if __name__ == "__main__":
    main()
