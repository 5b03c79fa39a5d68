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


def coverage_and_size(mask, labels):
    """Return how often lists hold the truth, and how many classes they hold."""
    return mask[np.arange(len(labels)), labels].mean(), mask.sum(1).mean()


def all_rows(probs, labels, rows, new_rows):
    """Return the sets of 1 - p calibrated on rows without regard to the gate."""
    nonconformity = np.sort(1 - probs[rows, labels[rows]])
    k = math.ceil((len(rows) + 1) * LEVEL - 1e-9)
    return 1 - probs[new_rows] <= nonconformity[k - 1]


def make_lists(p, order):
    """Return gates with lists, by what set them; all but the last have one gate."""
    gate_rows, list_rows = np.split(order, [ROWS // 2])
    gate = td.calibrate(p[gate_rows], frr=FRR)
    lists = {
        f"{method}, other rows": td.shortlist(
            gate, p[list_rows], level=LEVEL, method=method
        )
        for method in ("lac", "aps", "raps")
    }
    return lists | {SAME: td.calibrate(p[order], frr=FRR, shortlist=LEVEL)}


def split_net(task):
    """Return coverage, size and rows of lists: a line per split, by what set them."""
    path, splits, peers = task
    p = td.read(path)
    probs, labels, lines_by_name = probabilities(p), np.asarray(p.labels), {}
    peer_arrays = {"rows": [], "rejected": [], "new": []}
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(p))
        new_rows, rows = order[ROWS:], order[ROWS // 2 : ROWS]
        lists = make_lists(p, order[:ROWS])
        for name, gate in lists.items():
            screened = gate.screen(p[new_rows])
            rejected = ~screened.accepted
            line = coverage_and_size(
                screened.shortlist[rejected], labels[new_rows[rejected]]
            )
            lines_by_name.setdefault(name, []).append((*line, rejected.sum()))
        rejected_new = new_rows[~lists[OTHER].screen(p[new_rows]).accepted]
        line = coverage_and_size(
            all_rows(probs, labels, rows, rejected_new), labels[rejected_new]
        )
        lines_by_name.setdefault(ALL, []).append((*line, len(rejected_new)))
        peer_arrays["rows"].append(rows)
        peer_arrays["rejected"].append(~lists[OTHER].screen(p[rows]).accepted)
        padding = (0, len(new_rows) - len(rejected_new))
        peer_arrays["new"].append(np.pad(rejected_new, padding, constant_values=-1))
    if peers:
        lines_by_name |= ask(
            peers, "sets", probs=probs, labels=labels, level=LEVEL, **peer_arrays
        )
    versions = str(lines_by_name.pop("versions", ""))
    return {name: np.array(lines) for name, lines in lines_by_name.items()}, versions


def mean_half(values):
    """Return the mean over independent runs, and half of its 95% interval."""
    return np.mean(values), 1.96 * np.std(values, ddof=1) / math.sqrt(len(values))


def shown(values, digits=2, scale=100):
    mean, half_width = mean_half(scale * np.asarray(values))
    return f"{mean:.{digits}f} ± {half_width:.{digits}f}"


def splits(pool, options):
    """Coverage and size on real predictions, beside other packages."""
    n_splits = 10 if options.quick else 200
    folder = options.shared / "predictions"
    tasks = [(folder / f"{name}.npz", n_splits, options.peers) for name in NETS]
    results = dict(zip(NETS, pool.map(split_net, tasks, 1), strict=True))
    head = ["model", "set by", "coverage among the rejected, %", "classes"]
    lines = [
        [words, setter, shown(lines[:, 0]), f"{lines[:, 1].mean():.2f}"]
        for net, words in NETS.items()
        for setter, lines in results[net][0].items()
    ]
    failures = [
        f"{NETS[net]}: {failure}"
        for net in OURS
        for failure in failures_of(results[net][0])
    ]
    versions = results[OURS[0]][1]
    words = (
        f"{n_splits} splits: {ROWS // 2:,} rows set the gate (FRR {FRR:.0%}), "
        f'{ROWS // 2:,} others the lists ({LEVEL:.0%}), {ROWS:,} others judge. "The '
        f"gate's rows\": all {ROWS:,} set both, by selection-conditional calibration. "
        "± is the 95% interval over the splits. "
        f"{versions + '. ' if versions else ''}Of {ROWS:,} rows, "
        f"{rejected_words(results)} were rejected."
    )
    return {"splits": f"{table(head, lines)}\n\n{words}"}, failures


def rejected_words(results):
    counts = [
        lines_by_name[OTHER][:, 2].mean() for lines_by_name, _ in results.values()
    ]
    return f"{min(counts):.0f} to {max(counts):.0f}"


def failures_of(lines_by_name):
    """Say where our lists are not what they should be."""
    coverage, size = lines_by_name[OTHER].mean(0)[:2]
    if not 0.945 <= coverage <= 0.955:
        yield f"coverage {coverage:.2%}"
    if size > 3.4:
        yield f"{size:.2f} classes"
    if not 0.88 <= lines_by_name[ALL][:, 0].mean() <= 0.92:
        yield f"coverage {lines_by_name[ALL][:, 0].mean():.2%} if all rows set them"


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
    rejected = ~gate.screen(p, groups=groups).accepted
    names = np.zeros(len(p)) if groups is None else groups
    first_rejected = [
        np.flatnonzero(rejected & (names == name))[:m] for name in np.unique(names)
    ]
    if min(map(len, first_rejected)) < m:
        return None
    return np.concatenate(first_rejected)


def draw_rejected(rng, gate, kind, m):
    """Return rows of which a gate rejects m, and their groups; other rows are none."""
    n, rejected = 4 * m, None
    while rejected is None:
        p = draw_rows(rng, n, kind)
        groups, n = groups_of(p, kind), 2 * n
        rejected = rejected_rows(gate, p, groups, m)
    return p[rejected], None if groups is None else groups[rejected]


def make_gate(rng, kind, m):
    """Return a function that calibrates lists anew, by m rejected rows."""
    gate_rows = draw_rows(rng, 20_000, kind)
    if kind == "the gate's rows":
        share = (~td.calibrate(gate_rows, frr=FRR).screen(gate_rows).accepted).mean()
        n = math.ceil(m / share)
        return lambda: td.calibrate(draw_rows(rng, n, kind), frr=FRR, shortlist=LEVEL)
    target = {"frr": FRR} if kind in GROUPS else {"threshold": 0.0}
    gate = td.calibrate(gate_rows, groups=groups_of(gate_rows, kind), **target)

    def calibrate_lists():
        p, groups = draw_rejected(rng, gate, kind, m)
        return td.shortlist(gate, p, level=LEVEL, groups=groups, **KINDS[kind])

    return calibrate_lists


def simulated_cell(task):
    """Return coverage and size among new rejected rows, a line per calibration.

    Every calibration has new rows of its own, so lines are independent. Of all new rows
    the share that is rejected and whose list holds the truth is divided by the share
    that is rejected; a line is what it adds to that ratio.
    """
    kind, m, calibrations, seed = task
    rng = np.random.default_rng(seed)
    calibrate_lists, lines = make_gate(rng, kind, m), []
    for _ in range(calibrations):
        gate, new_rows = calibrate_lists(), draw_rows(rng, FRESH, kind)
        groups = groups_of(new_rows, kind)
        screened = gate.screen(new_rows, groups=groups)
        rejected = ~screened.accepted & (
            True if groups is None else groups == GROUPS[kind]
        )
        lists, probs = screened.shortlist[rejected], probabilities(new_rows)[rejected]
        lines.append((probs[lists].sum(), lists.sum(), len(lists)))
    lists, rows = np.array(lines)[:, :2], np.array(lines)[:, 2:]
    ratio = lists.sum(0) / rows.sum()
    return ratio + (lists - ratio * rows) / rows.mean()


def exact_coverage(rows):
    """Return the exact coverage of lists that this number of rejected rows set."""
    return math.ceil((rows + 1) * LEVEL - 1e-9) / (rows + 1)


def simulated(pool, options):
    """Coverage on made-up rows, where it is known what it must be."""
    calibrations = 20 if options.quick else 1000
    cells = [(kind, m) for kind in KINDS for m in REJECTED]
    order = sorted(range(len(cells)), key=lambda i: -cells[i][1])  # the longest first
    tasks = [(*cells[i], calibrations, i) for i in order]
    lines_by_cell = dict(zip(order, pool.map(simulated_cell, tasks, 1), strict=True))
    head = ["rows", *(f"{m:,} rejected" for m in REJECTED)]
    lines, failures = [], []
    for kind in KINDS:
        line = [kind]
        for m in REJECTED:
            judged_lines = lines_by_cell[cells.index((kind, m))]
            coverage, size = shown(judged_lines[:, 0]), judged_lines[:, 1].mean()
            line.append(f"{coverage} ({size:.2f})")
            if is_astray(kind, m, judged_lines):
                failures.append(f"{kind}, {m:,}: {line[-1]}")
        lines.append(line)
    exact = ", ".join(f"{exact_coverage(m):.2%}" for m in REJECTED)
    words = (
        "Coverage among the rejected in %, in brackets the classes on a list, out of "
        f"{SIZE}. {calibrations:,} calibrations per cell, each judged by {FRESH:,} new "
        "rows of its own; ± is the 95% interval of the simulation. Without ties it "
        f"must be {exact}; with ties, or where long lists become a full review, at "
        f"least {LEVEL:.0%}. Two groups: that number in each. The gate's rows: "
        "about that number, and at least 95%."
    )
    return {"simulated": f"{table(head, lines)}\n\n{words}"}, failures


def is_astray(kind, m, judged_lines):
    """Whether coverage is outside its bounds, by more than chance."""
    mean, half_width = mean_half(judged_lines[:, 0])
    low, high = (LEVEL, LEVEL + 1 / (m + 1)) if kind in EXACT else (LEVEL, 1.0)
    return not low - 2 * half_width <= mean <= high + 2 * half_width


PARTS = {"splits": splits, "simulated": simulated}
"""Each returns what it writes, and what is not as it should be."""


if __name__ == "__main__":
    run(PARTS, PAGE, TITLE, __doc__)
