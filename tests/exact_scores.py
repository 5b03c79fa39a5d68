"""Extreme rows of logits, and their exact doubts, decisions and lists by mpmath."""

import warnings
from dataclasses import replace
from functools import cache, lru_cache
from itertools import product

import laws
import mpmath as mp
import numpy as np
import pytest
import torch

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.gates.groups import GroupThreshold
from trustdoctor.gates.shortlists import ListRule
from trustdoctor.scores import find_score, logit_scores

INF, NAN = np.inf, np.nan
KINDS = {
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "single": torch.float32,
    "double": torch.float64,
}
TEMPERATURES = (1.0, 1e-3, 1e3)
STATES = ("threshold", "accept-all", "reject-all", "groups")
C = 4


def table(kind):
    """The rows by name, before they are cast to `kind`."""
    about = torch.finfo(KINDS[kind])
    most, least = about.max, about.smallest_normal * about.eps
    return {
        "plain": [2, 1, 0, -1],
        "NaN first": [NAN, 1, 0, -1],
        "NaN last": [2, 1, 0, NAN],
        "NaN beside masked": [2, -INF, NAN, -INF],
        "nothing but NaN": [NAN] * 4,
        "NaN and +inf": [NAN, INF, 0, 0],
        "+inf": [0, INF, 0, -1],
        "+inf twice": [INF, INF, 0, -1],
        "+inf beside masked": [INF, -INF, 0, -INF],
        "+inf, all else masked": [-INF, -INF, INF, -INF],
        "+inf and the least": [INF, -most, -most, -most],
        "all masked": [-INF] * 4,
        "over half": [70_000, 0, 1, 2],
        "over half below": [0, -70_000, 1, -80_000],
        "all below half": [-70_000] * 4,
        "over single": [0, 1e39, 1e38, 2],
        "masked": [2, -INF, 0, -INF],
        "all but one masked": [-INF, 2, -INF, -INF],
        "all but a low one masked": [-INF, -INF, -most, -INF],
        "masked and far": [most, -most, -INF, -INF],
        "equal": [1] * 4,
        "zeros": [0, 0, -0.0, 0],
        "equal and large": [most] * 4,
        "equal and low": [-most] * 4,
        "large": [most, 0, 0, 0],
        "1e38": [1e38, -1e38, 0, 0],
        "farther than a number": [most, -most, -most, -most],
        "farther than a number, tied": [most, most, -most, -most],
        "half as far": [most / 2, -most / 2, 0, 0],
        "a third, tied": [most / 3, most / 3, most / 3, -most / 3],
        "subnormal": [least, 0, 0, 0],
        "subnormal steps": [3 * least, least, 0, -2 * least],
        "tied": [3, 3, 0, -1],
        "far": [1000, 0, -1000, -2000],
        "far and low": [-3000, -1000, -2000, -3001],
    }


@cache
def exact(kind):
    return np.array(list(table(kind).values()), np.float64)


@cache
def tensor(kind):
    return torch.from_numpy(exact(kind)).to(KINDS[kind])


@cache
def array(kind):
    """The rows as numpy has them, which lacks bfloat16."""
    rows = tensor(kind)
    return (rows.float() if kind == "bfloat16" else rows).numpy()


@cache
def good(kind):
    rows = array(kind)
    return ~np.isnan(rows).any(1) & np.isfinite(rows.max(1))


@cache
def fitted(name):
    p = laws.rows(classes=C)
    if name == "rel_u":
        return td.RelU.fit(p)
    return td.Fusion.fit(p, scores=["alpha", "entropy", "margin", "energy", "pnorm"])


SCORES = (*logit_scores(), "rel_u", "fusion")


LENGTHS = {
    "pnorm": (2, None),
    "normalised_alpha": (3, 0.2),
    "normalised_margin": (2, 1),
}
"""The p and t of scores that take out lengths; no t: that of the softmax."""


@lru_cache(256)
def direction(z, p):
    """Logits without mean and length; two, and equal ones, have no direction."""
    mean = mp.fsum(z) / len(z)
    length = mp.fsum(abs(x - mean) ** p for x in z) ** (mp.mpf(1) / p)
    return [(x - mean) / length for x in z] if length and len(z) > 2 else z


def definition(score, row, temperature, **options):
    """The doubt of a row by the score's definition."""
    if score == "rel_u":
        return _rel_u(row)
    if score == "fusion":
        return _fusion(row)
    z = sorted((mp.mpf(float(x)) for x in row if x > -INF), reverse=True)
    if score in LENGTHS:
        return _normalised(score, z, temperature, **options)
    return plain_definition(score, z, temperature)


def _normalised(score, z, temperature, *, p=None, t=None):
    usual_p, usual_t = LENGTHS[score]
    p, t = mp.mpf(p or usual_p), mp.mpf(t or usual_t or temperature)
    short = direction(tuple(z), p)
    if score == "pnorm" and len(z) > 2:
        return mp.mpf(0) if z[0] == z[-1] else -short[0]
    plain = {"pnorm": "msp"}.get(score, score.removeprefix("normalised_"))
    return plain_definition(plain, short, t)


def plain_definition(score, z, t):
    """The same of logits that are sorted, the largest first."""
    u = [(x - z[0]) / t for x in z[1:]]
    if score == "margin":
        return u[0] if u else -mp.inf
    s, s2 = (mp.fsum(mp.exp(k * x) for x in u) for k in (1, 2))
    if score == "max_logit":
        return -z[0] / t
    if score == "energy":
        return -(z[0] + t * mp.log1p(s))
    if not u:
        return -mp.inf
    other_probs = [mp.exp(x) / (1 + s) for x in u]
    defined = {
        "alpha": lambda: mp.log((2 * s + s * s - s2) / (1 + s2)),
        "beta": lambda: mp.log(s),
        "msp": lambda: mp.log(s / (1 + s)),
        "entropy": lambda: mp.log(mp.log1p(s) - mp.fdot(u, other_probs)),
        "gen": lambda: mp.log(
            mp.fsum((p * (1 - p)) ** mp.mpf("0.1") for p in other_probs)
            + (s / (1 + s) ** 2) ** mp.mpf("0.1")
        ),
    }
    assert score in defined, f"write the definition of {score} here"
    return defined[score]()


def _rel_u(row):
    e = [mp.exp(mp.mpf(float(x)) - mp.mpf(float(max(row)))) for x in row]
    pairs = np.ndenumerate(fitted("rel_u").matrix)
    form = mp.fsum(e[i] * d * e[j] for (i, j), d in pairs if i != j)
    return mp.log(form / mp.fsum(e) ** 2) if form else -mp.inf


def _fusion(row):
    f = fitted("fusion")
    total = mp.mpf(f.bias)
    for k, name in enumerate(f.names):
        low, high = f.bounds[:, k]
        part_doubt = min(max(definition(name, row, 1), low), high)
        total += f.weights[k] * (part_doubt - f.means[k]) / f.deviations[k]
    return total


@cache
def right(score, kind, t):
    """The doubts of all rows; NaN for rows without one."""
    with mp.workdps(40):
        return [
            definition(score, row, mp.mpf(t)) if fine else mp.nan
            for row, fine in zip(array(kind), good(kind), strict=True)
        ]


@cache
def gate_of(score, kind, t, state):
    """A gate whose threshold is far from every row's doubt."""
    doubts = [float(min(max(d, -30), 30)) for d in right(score, kind, t) if d == d]
    doubts = np.unique(doubts)
    widest = int(np.diff(doubts).argmax())
    threshold = float(doubts[widest] + doubts[widest + 1]) / 2
    plain = score in logit_scores()
    scorer = find_score(score if plain else fitted(score), temperature=t)
    if state == "groups":
        groups = {0: GroupThreshold(0.0, "accept-all")}
        return td.Gate(threshold, scorer, groups=groups, grouped_by="predicted")
    return td.Gate(threshold, scorer, state=state)


def expected(score, kind, t, state):
    """Which rows are to be accepted."""
    threshold = gate_of(score, kind, t, state).threshold
    below = np.array([d <= threshold for d in right(score, kind, t)])
    if state == "groups":
        below |= array(kind).argmax(1) == 0
    everything = {"accept-all": True, "reject-all": False}
    return good(kind) & everything.get(state, below)


def cases(states=STATES, temperatures=TEMPERATURES, scores=SCORES):
    """Scores, temperatures and states; all states at temperature 1."""
    for score, t in product(scores, temperatures):
        if t == 1 or score in logit_scores():
            for state in states if t == 1 else states[:1]:
                yield score, t, state


def check(decided, score, kind, t, state):
    """Compare doubts and decisions with the exact ones."""
    doubts, accepted = decided
    names = np.array(list(table(kind)))
    wanted = expected(score, kind, t, state)
    off = names[np.asarray(accepted) != wanted].tolist()
    assert not off, f"{score} of {kind} at {t}, {state}: {off}"
    largest = np.finfo(np.float64 if kind == "double" else np.float32).max
    bound = 1e-12 if kind == "double" else 1e-5
    for name, doubt, true in zip(names, doubts, right(score, kind, t), strict=True):
        detail = f"{score} of {kind} at {t}, {name}: {doubt}, not {mp.nstr(true, 8)}"
        if np.isnan(doubt) or mp.isnan(true):
            assert np.isnan(doubt), detail
            assert mp.isnan(true), detail
        elif np.isinf(doubt):  # beyond what can be written, or on the way there
            assert (doubt > 0) == (true > 0), detail
            assert abs(true) * max(1, t) > largest / 20, detail
        else:
            size = max(1, abs(true), t if score == "energy" else 0)
            assert abs(mp.mpf(float(doubt)) - true) <= bound * size, detail


def quiet(score):
    """REL-U warns of operations whose results it then replaces."""
    action = "ignore" if score == "rel_u" else "error"
    return warnings.catch_warnings(action=action, category=RuntimeWarning)


def one_by_one(kind, decide):
    """Decide on all good rows at once; a bad row after them must be refused by name.

    `decide` takes the numbers of rows to doubts and decisions.
    """
    fine = good(kind)
    sound = np.flatnonzero(fine)
    doubts, accepted = np.full(len(fine), NAN), np.zeros(len(fine), bool)
    doubts[sound], accepted[sound] = decide(sound)
    for bad_row in np.flatnonzero(~fine):
        with pytest.raises(InputError, match=r"\brow 1\b"):
            decide(np.array([sound[0], bad_row]))
    return doubts, accepted


LISTS = {"lac": {}, "aps": {}, "raps": {"penalty": 0.05, "free": 1}}


def nonconformity(row, method, penalty=0, free=0):
    """The nonconformity of each class, by definition; -inf for the prediction."""
    z = [mp.mpf(float(x)) for x in row]
    top = z.index(max(z))
    mass = [mp.exp(x - z[top]) for x in z]
    p = [x / mp.fsum(mass) for x in mass]
    order = sorted(range(len(z)), key=lambda k: (-z[k], k))
    out = [-mp.inf] * len(z)
    for rank, k in enumerate(order[1:], 2):
        before = mp.fsum(p[j] for j in order[: rank - 1])
        ranked = max(rank - free, 0) * mp.mpf(penalty) + before - 1
        out[k] = ranked if method != "lac" else -mp.log(p[k]) if p[k] else mp.inf
    return out


@cache
def nonconformities(method, kind):
    """The same for all rows; None for rows without a prediction."""
    with mp.workdps(40):
        return [
            nonconformity(row, method, **LISTS[method]) if fine else None
            for row, fine in zip(array(kind), good(kind), strict=True)
        ]


def list_gates(kind, states=STATES[:3]):
    """Gates with lists whose thresholds are far from all classes, and the right lists.

    A row that has no prediction may be any class.
    """
    for method in LISTS:
        finite = [
            x for row in nonconformities(method, kind) if row for x in row if x > -INF
        ]
        levels = np.unique([float(min(x, 30)) for x in finite])
        wide = np.argsort(np.diff(levels))[-3:]
        for at in (*(levels[wide] + levels[wide + 1]) / 2, INF, -INF):
            for state, size in zip(states, (None, 2, 3), strict=False):
                rule = ListRule(float(at), 9)
                short = td.Shortlist(
                    0.9, rule, C, method, max_size=size, **LISTS[method]
                )
                gate = gate_of("alpha", kind, 1.0, state)
                yield replace(gate, shortlist=short), listed(short, kind, state)


def listed(short, kind, state):
    """The right lists of all rows."""
    out = np.ones((len(good(kind)), C), bool)
    for k, row in enumerate(nonconformities(short.method, kind)):
        if row is not None:
            out[k] = [x <= short.rule.threshold for x in row]
            if short.max_size is not None and out[k].sum() > short.max_size:
                out[k] = True
    out[expected("alpha", kind, 1.0, state)] = False
    return out


def check_lists(lists, wanted, gate, kind):
    """Compare the shortlists of all rows, or of the good ones, with the exact ones."""
    names, rows = np.array(list(table(kind))), np.ones(len(wanted), bool)
    if len(lists) < len(wanted):
        rows = good(kind)
    off = names[rows][(np.asarray(lists) != wanted[rows]).any(1)].tolist()
    assert not off, f"{gate.shortlist} of {kind}, {gate.state}: {off}"
