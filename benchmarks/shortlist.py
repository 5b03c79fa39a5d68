"""Do shortlists hold the true class? Fills docs/shortlists.md.

    python benchmarks/shortlist.py SHARED [--only NAME] [--out docs/shortlists.md]
                                   [--peers PYTHON] [--quick]

SHARED holds predictions/*-test.npz and predictions/public/*-test.npz. ``--only`` runs
some parts: splits, simulated (several with commas between). ``--peers`` is an
interpreter that has MAPIE and crepes; without it they are left out. ``--quick`` runs
all in a small form and writes nothing. Seeds are fixed. The words are those of
docs/shortlists.md; what stands between ``<!-- made: NAME -->`` and ``<!-- end -->``
there is made here.
"""

import math
from pathlib import Path

import numpy as np
from pages import run, table
from peers import ask

import trustdoctor as td

ROOT = Path(__file__).parents[1]
PAGE, TITLE = ROOT / "docs" / "shortlists.md", "A shortlist for the rejected"
FRR, LEVEL = 0.05, 0.95
NETS = {
    "resnet-20-cifar10-test": "our ResNet-20, CIFAR-10",
    "densenet-bc-100-12-cifar10-test": "our DenseNet, CIFAR-10",
    "public/mobilenetv2_x1_0-cifar10-test": "MobileNetV2 x1.0, CIFAR-10",
    "public/vgg16_bn-cifar10-test": "VGG-16-BN, CIFAR-10",
    "public/mobilenetv2_x1_0-cifar100-test": "MobileNetV2 x1.0, CIFAR-100",
}
OURS = list(NETS)[:2]
"""Whose lists must keep to what is asked of them: see `beyond`."""

ROWS = 5000
OTHER, SAME, ALL = "lac, other rows", "lac, the gate's rows", "lac, all rows"


def probabilities(p):
    """Return the softmax, in float64."""
    z = p.logits.astype(np.float64)
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def judged(mask, labels):
    """Return how often lists hold the truth, and how many classes they hold."""
    return mask[np.arange(len(labels)), labels].mean(), mask.sum(1).mean()


def all_rows(probs, labels, rows, new):
    """Return the sets of 1 - p calibrated on rows without regard to the gate."""
    strange = np.sort(1 - probs[rows, labels[rows]])
    k = math.ceil((len(rows) + 1) * LEVEL - 1e-9)
    return 1 - probs[new] <= strange[k - 1]


def make_lists(p, order):
    """Return gates with lists, by what set them; all but the last have one gate."""
    first, rows = np.split(order, [ROWS // 2])
    gate = td.calibrate(p[first], frr=FRR)
    lists = {
        f"{how}, other rows": td.shortlist(gate, p[rows], level=LEVEL, method=how)
        for how in ("lac", "aps", "raps")
    }
    return lists | {SAME: td.calibrate(p[order], frr=FRR, shortlist=LEVEL)}


def split_net(task):
    """Return coverage, size and rows of lists: a line per split, by what set them."""
    path, splits, peers = task
    p = td.read(path)
    probs, labels, found = probabilities(p), np.asarray(p.labels), {}
    sent = {"rows": [], "rejected": [], "new": []}
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(p))
        new, rows = order[ROWS:], order[ROWS // 2 : ROWS]
        lists = make_lists(p, order[:ROWS])
        for name, gate in lists.items():
            said = gate.screen(p[new])
            out = ~said.accepted
            held = judged(said.shortlist[out], labels[new[out]])
            found.setdefault(name, []).append((*held, out.sum()))
        mine = new[~lists[OTHER].screen(p[new]).accepted]
        held = judged(all_rows(probs, labels, rows, mine), labels[mine])
        found.setdefault(ALL, []).append((*held, len(mine)))
        sent["rows"].append(rows)
        sent["rejected"].append(~lists[OTHER].screen(p[rows]).accepted)
        sent["new"].append(np.pad(mine, (0, len(new) - len(mine)), constant_values=-1))
    if peers:
        found |= ask(peers, "sets", probs=probs, labels=labels, level=LEVEL, **sent)
    versions = str(found.pop("versions", ""))
    return {name: np.array(own) for name, own in found.items()}, versions


def mean_half(values):
    """Return the mean over independent runs, and half of its 95% interval."""
    return np.mean(values), 1.96 * np.std(values, ddof=1) / math.sqrt(len(values))


def shown(values, digits=2, scale=100):
    mean, half = mean_half(scale * np.asarray(values))
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def splits(pool, given):
    """Coverage and size on real predictions, beside other packages."""
    many = 10 if given.quick else 200
    folder = given.shared / "predictions"
    tasks = [(folder / f"{name}.npz", many, given.peers) for name in NETS]
    found = dict(zip(NETS, pool.map(split_net, tasks, 1), strict=True))
    head = ["model", "set by", "coverage among the rejected, %", "classes"]
    lines = [
        [words, way, shown(own[:, 0]), f"{own[:, 1].mean():.2f}"]
        for net, words in NETS.items()
        for way, own in found[net][0].items()
    ]
    bad = [f"{NETS[net]}: {w}" for net in OURS for w in beyond(found[net][0])]
    versions = found[OURS[0]][1]
    words = (
        f"{many} splits: {ROWS // 2:,} rows set the gate (FRR {FRR:.0%}), "
        f'{ROWS // 2:,} others the lists ({LEVEL:.0%}), {ROWS:,} others judge. "The '
        f"gate's rows\": "
        f"all {ROWS:,} set both, by selection-conditional calibration. ± is the 95% "
        f"interval over the splits. {versions + '. ' if versions else ''}Of "
        f"{ROWS:,} rows, {rejected_words(found)} were rejected."
    )
    return {"splits": f"{table(head, lines)}\n\n{words}"}, bad


def rejected_words(found):
    many = [own[OTHER][:, 2].mean() for own, _ in found.values()]
    return f"{min(many):.0f} to {max(many):.0f}"


def beyond(found):
    """Say where our lists are not what they should be."""
    hit, size = found[OTHER][:, 0].mean(), found[OTHER][:, 1].mean()
    if not 0.945 <= hit <= 0.955:
        yield f"coverage {hit:.2%}"
    if size > 3.4:
        yield f"{size:.2f} classes"
    if not 0.88 <= found[ALL][:, 0].mean() <= 0.92:
        yield f"coverage {found[ALL][:, 0].mean():.2%} if all rows set them"


KINDS = {
    "continuous": {},
    "tied": {},
    "with -inf": {},
    "at most 3 classes": {"max_size": 3},
    "aps": {"method": "aps"},
    "raps": {"method": "raps"},
    "two groups, the first": {},
    "two groups, the second": {},
    "the gate's rows": {},
}
GROUPS = {"two groups, the first": "a", "two groups, the second": "b"}
EXACT = "continuous", "aps", "raps", *GROUPS
"""Kinds whose coverage is known exactly."""

REJECTED = (50, 200, 1000, 5000)
SIZE, FRESH = 10, 4000


def draw_rows(rng, n, kind):
    """Return rows of a made-up model whose softmax is the truth."""
    z = 2 * rng.normal(size=(n, SIZE))
    if kind == "tied":
        z = np.round(z)
    if kind == "with -inf":
        z[:, 1:][rng.random((n, SIZE - 1)) < 0.4] = -np.inf
    if kind in GROUPS:
        z[n // 2 :] *= 2
    labels = (z + rng.gumbel(size=z.shape)).argmax(1)
    return td.Predictions.from_logits(z, labels)


def groups_of(p, kind):
    """Return the groups of `draw_rows`, where it has some."""
    if kind not in GROUPS:
        return None
    return np.where(np.arange(len(p)) < len(p) // 2, "a", "b")


def rejected_rows(gate, p, groups, m):
    """Return the first m rows that a gate rejects, of each group; None if fewer."""
    out = ~gate.screen(p, groups=groups).accepted
    names = np.zeros(len(p)) if groups is None else groups
    own = [np.flatnonzero(out & (names == name))[:m] for name in np.unique(names)]
    return np.concatenate(own) if min(map(len, own)) == m else None


def draw_rejected(rng, gate, kind, m):
    """Return rows of which a gate rejects m, and their groups; other rows are none."""
    n, kept = 4 * m, None
    while kept is None:
        p = draw_rows(rng, n, kind)
        groups, n = groups_of(p, kind), 2 * n
        kept = rejected_rows(gate, p, groups, m)
    return p[kept], None if groups is None else groups[kept]


def make_gate(rng, kind, m):
    """Return a function that calibrates lists anew, by m rejected rows."""
    first = draw_rows(rng, 20_000, kind)
    if kind == "the gate's rows":
        share = (~td.calibrate(first, frr=FRR).screen(first).accepted).mean()
        n = math.ceil(m / share)
        return lambda: td.calibrate(draw_rows(rng, n, kind), frr=FRR, shortlist=LEVEL)
    target = {"frr": FRR} if kind in GROUPS else {"threshold": 0.0}
    gate = td.calibrate(first, groups=groups_of(first, kind), **target)

    def listed():
        p, groups = draw_rejected(rng, gate, kind, m)
        return td.shortlist(gate, p, level=LEVEL, groups=groups, **KINDS[kind])

    return listed


def simulated_cell(task):
    """Return coverage and size among new rejected rows, a line per calibration.

    Every calibration has new rows of its own, so lines are independent. Of all new rows
    the share that is rejected and whose list holds the truth is divided by the share
    that is rejected; a line is what it adds to that ratio.
    """
    kind, m, many, seed = task
    rng = np.random.default_rng(seed)
    listed, lines = make_gate(rng, kind, m), []
    for _ in range(many):
        gate, new = listed(), draw_rows(rng, FRESH, kind)
        groups = groups_of(new, kind)
        said = gate.screen(new, groups=groups)
        out = ~said.accepted & (True if groups is None else groups == GROUPS[kind])
        held, mass = said.shortlist[out], probabilities(new)[out]
        lines.append((mass[held].sum(), held.sum(), len(held)))
    held, rows = np.array(lines)[:, :2], np.array(lines)[:, 2:]
    ratio = held.sum(0) / rows.sum()
    return ratio + (held - ratio * rows) / rows.mean()


def foreseen(rows):
    """Return the exact coverage of lists set by this number of rejected rows."""
    return math.ceil((rows + 1) * LEVEL - 1e-9) / (rows + 1)


def simulated(pool, given):
    """Coverage on made-up rows, where it is known what it must be."""
    many = 20 if given.quick else 1000
    cells = [(kind, m) for kind in KINDS for m in REJECTED]
    order = sorted(range(len(cells)), key=lambda i: -cells[i][1])  # the longest first
    tasks = [(*cells[i], many, i) for i in order]
    made = dict(zip(order, pool.map(simulated_cell, tasks, 1), strict=True))
    head = ["rows", *(f"{m:,} rejected" for m in REJECTED)]
    lines, bad = [], []
    for kind in KINDS:
        line = [kind]
        for m in REJECTED:
            own = made[cells.index((kind, m))]
            line.append(f"{shown(own[:, 0])} ({own[:, 1].mean():.2f})")
            bad += [f"{kind}, {m:,}: {line[-1]}"] if astray(kind, m, own) else []
        lines.append(line)
    exact = ", ".join(f"{foreseen(m):.2%}" for m in REJECTED)
    words = (
        f"Coverage among the rejected in %, in brackets the classes on a list, out of "
        f"{SIZE}. {many:,} calibrations per cell, each judged by {FRESH:,} new rows of "
        "its own; ± is the 95% interval of the simulation. Without ties it must be "
        f"{exact}; with ties, or where long lists become a full review, at least "
        f"{LEVEL:.0%}. Two groups: that number of rejected rows in each. The "
        "gate's rows: about that number, and at least 95%."
    )
    return {"simulated": f"{table(head, lines)}\n\n{words}"}, bad


def astray(kind, m, own):
    """Whether coverage is outside its bounds, by more than chance."""
    mean, half = mean_half(own[:, 0])
    low, high = (LEVEL, LEVEL + 1 / (m + 1)) if kind in EXACT else (LEVEL, 1.0)
    return not low - 2 * half <= mean <= high + 2 * half


PARTS = {"splits": splits, "simulated": simulated}
"""Each returns what it writes, and what is not as it should be."""


if __name__ == "__main__":
    run(PARTS, PAGE, TITLE, __doc__)
