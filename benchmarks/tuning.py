"""What a score tuned to the model is worth: fills docs/tuning.md, draws its picture.

    python benchmarks/tuning.py SHARED [--out docs/tuning.md] [--splits 20]

SHARED holds predictions/*-test.npz and predictions/public/*-test.npz. Each score is
tuned on ``--splits`` random parts of each file; gates are calibrated on five times as
many. Seeds are fixed. The words are those of docs/tuning.md; what stands between
``<!-- made: NAME -->`` and ``<!-- end -->`` there is made here. The picture goes to
pictures/tuning.png beside the page.
"""

import argparse
import importlib.util
import math
import os
import sys
import tempfile
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from guarantees import chance
from pages import processor
from scipy.stats import rankdata, t

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.metrics import Ranking, auroc_difference, frr_difference, paired_frr
from trustdoctor.report.theme import LIMIT, RIGHT, WRONG
from trustdoctor.tuning import FAMILY

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tuning.md"
NETS = {
    "resnet20": "ResNet-20",
    "resnet56": "ResNet-56",
    "vgg16_bn": "VGG-16-BN",
    "mobilenetv2_x1_0": "MobileNetV2 x1.0",
    "shufflenetv2_x1_0": "ShuffleNetV2 x1.0",
    "repvgg_a1": "RepVGG-A1",
}
SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
PUBLIC = {
    f"public/{net}-{data}-test": (NETS[net], SETS[data])
    for data, net in product(SETS, NETS)
}
OURS = {
    "resnet-20-cifar10-test": ("our ResNet-20", "CIFAR-10"),
    "densenet-bc-100-12-cifar10-test": ("our DenseNet", "CIFAR-10"),
    "minilm-imdb-test": ("our MiniLM", "IMDb, 2 classes"),
}
DRAWN = "public/repvgg_a1-cifar10-test"
ROWS, USUAL = (500, 1000, 2000, 5000), 2000
CALIBRATION = (1000, 2000, 4000, 6000)
RISKS = {"CIFAR-10": 0.01, "CIFAR-100": 0.05}
TRR, FRR, STRATA = 0.95, 0.05, 20
FRESH = 20_000
KINDS = (
    "two classes",
    "errors at random",
    "labels from the softmax",
    "length is noise",
)


def rates(doubts, wrong):
    """Return FRR@95TRR, AUROC and TRR@5FRR, in percent."""
    caught = td.trr_at_frr(doubts, wrong, frr=FRR)
    found = td.frr_at_trr(doubts, wrong, trr=TRR), td.auroc(doubts, wrong), caught
    return 100 * np.array(found)


def paired(own, base, wrong):
    """Return the changes of FRR@95TRR and of AUROC, with 95% intervals."""
    first, second = Ranking(own, wrong), Ranking(base, wrong)
    parts = (paired_frr(r, trr=TRR, confidence=0.95) for r in (first, second))
    area = auroc_difference(first, second, confidence=0.95)
    return frr_difference(*parts, wrong), area


def length(p):
    """Return the 2-norm of each row's centred logits."""
    z = p.logits.astype(np.float64)
    return np.linalg.norm(z - z.mean(1, keepdims=True), axis=1)


def among_alike(doubts, alike, wrong):
    """Return the AUROC over pairs of rows that another score finds alike, in percent.

    Strata of that score hold equally many errors.
    """
    edges = np.quantile(alike[wrong], np.linspace(0, 1, STRATA + 1)[1:-1])
    stratum, won, pairs = np.digitize(alike, edges), 0.0, 0
    for k in range(STRATA):
        own = wrong[stratum == k]
        if own.any() and not own.all():
            many = int(own.sum()) * int((~own).sum())
            won += many * td.auroc(doubts[stratum == k], own)
            pairs += many
    return 100 * won / pairs


def look_at(path):
    """Return what one file says about length, and about margin, without choosing."""
    p = td.read(path)
    wrong, base, plain = p.errors, td.msp(p), td.normalised_alpha(p)
    tells = []
    if p.n_classes > 2:
        short = -length(p)
        tells = [100 * td.auroc(short, wrong)]
        tells += [among_alike(short, alike, wrong) for alike in (plain, base)]
    found = [rates(d, wrong)[0] for d in (base, plain)]
    accuracy = 100 * (1 - wrong.mean())
    return accuracy, tells, found, paired(td.margin(p), base, wrong)


def tune_file(task):
    """Tune on parts of a file; return changes on the other rows.

    For each number of rows one line per split: the changes of `rates`, whether it
    stayed msp, and the change of TRR@5FRR when tuned for that.
    """
    path, sizes, splits = task
    p = td.read(path)
    base, wrong = td.msp(p), p.errors
    found, intervals = {}, None
    for n in sizes:
        lines = []
        for seed in range(splits):
            order = np.random.default_rng(seed).permutation(len(p))
            chosen, rest = np.split(order, [n])
            before = rates(base[rest], wrong[rest])
            score = td.tune(p[chosen])
            own = score(p)
            change = rates(own[rest], wrong[rest]) - before
            aimed = math.nan
            if n == USUAL:
                other = td.tune(p[chosen], for_={"frr": FRR})(p)
                aimed = rates(other[rest], wrong[rest])[2] - before[2]
                intervals = intervals or paired(own[rest], base[rest], wrong[rest])
            lines.append([*change, score.members == ("msp",), aimed, before[2]])
        found[n] = np.array(lines, float)
    return found, intervals


def calibrate_file(task):
    """Calibrate on parts of a file, by auto and by msp; return what the rest saw.

    For each number of rows an array (splits, 2, 4): for auto and msp whether the
    promise was kept, how often it should be, FRR or coverage, and whether the gate
    rejects everything.
    """
    path, target, splits = task
    p = td.read(path)
    found, refused = {}, 0
    for n in CALIBRATION:
        lines = []
        for seed in range(splits):
            order = np.random.default_rng(1000 + seed).permutation(len(p))
            rows, test = p[order[:n]], p[order[n:]]
            plain = td.calibrate(rows, score="msp", **target)
            try:
                gate = td.calibrate(rows, score="auto", **target)
            except InputError:  # too few errors to choose by: msp is named
                gate, refused = plain, refused + 1
            lines.append([judge(g, test, target) for g in (gate, plain)])
        found[n] = np.array(lines, float)
    return found, refused


def judge(gate, test, target):
    """Return promise kept, how often foreseen, FRR or coverage, all rejected."""
    at = td.confusion(gate.score(test), test.errors, threshold=gate.threshold)
    none = gate.state == "reject-all"
    if "risk" in target:
        kept = at.accepted_errors <= target["risk"] * at.n_accepted
        return kept, math.nan, 100 * at.coverage, none
    beyond = 0.0 if none else chance(gate, at, "trr", target["trr"])
    return at.trr >= target["trr"], 1 - beyond, 100 * at.frr, none


def draw_rows(kind, rng, n):
    """Return rows of a made-up model, where it is known what can be found."""
    classes = 2 if kind == "two classes" else 10
    z = rng.normal(size=(n, classes)) * 6
    if kind == "length is noise":
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        top = np.sort(z)[:, -2:]
        wrong = rng.random(n) < np.exp(-10 * (top[:, 1] - top[:, 0]))
        z *= rng.exponential(20, size=(n, 1))
    elif kind == "errors at random":
        wrong = rng.random(n) < 0.1
    else:  # labels are drawn from the softmax itself
        labels = (z + rng.gumbel(size=z.shape)).argmax(1)
        return td.Predictions.from_logits(z, labels)
    return td.Predictions.from_logits(z, (z.argmax(1) + wrong) % classes)


def tune_drawn(task):
    """Tune on rows of a made-up model; return what it said, and what it changed."""
    kind, seed = task
    rng = np.random.default_rng(seed)
    score, new = td.tune(draw_rows(kind, rng, USUAL)), draw_rows(kind, rng, FRESH)
    changed = rates(score(new), new.errors) - rates(td.msp(new), new.errors)
    return score.members == ("msp",), *changed[:2]


def ends(values):
    """Return the 95% interval of the mean of independent values."""
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1)
    half /= math.sqrt(len(values))
    return np.mean(values) - half, np.mean(values) + half


def interval(values, digits=2):
    """Return the mean of independent values with its interval, as text."""
    low, high = ends(values)
    return f"{np.mean(values):+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def table(head, lines):
    """Return a table as Markdown."""
    parts = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(map(str, part)) + " |" for part in parts)


def mean_sd(values):
    """Return the mean over splits, and the standard deviation over them."""
    return f"{np.mean(values):+.2f} ({np.std(values, ddof=1):.2f})"


def shown_pair(found):
    """Return a paired change; rows that are ranked alike change nothing."""
    alike = found.low == found.high == 0
    return "ranks alike" if alike else found.percent(sign=True)


def listed(names):
    names = list(names)
    return " and ".join(
        filter(None, [", ".join(names[:-1]), names[-1] if names else "none"])
    )


def of_set(data):
    return [name for name, (_, own) in PUBLIC.items() if own == data]


def why_table(looks):
    head = ["model", "data", "accuracy", "length alone", "direction alike"]
    head += ["msp alike", "FRR@95TRR, msp", "FRR@95TRR, normalised_alpha"]
    lines = []
    for name, words in (PUBLIC | OURS).items():
        accuracy, tells, found, _ = looks[name]
        if tells:
            shown = [f"{x:.1f}" for x in (accuracy, *tells, *found)]
            lines.append([*words, *shown])
    return table(head, lines)


def tuned_table(tuned, names):
    head = ["model", "data", "FRR@95TRR", "first split", "AUROC", "first split"]
    head += ["stayed msp"]
    lines = []
    for name, words in names.items():
        found, (frr, area) = tuned[name]
        own = found[USUAL]
        lines.append(
            [
                *words,
                mean_sd(own[:, 0]),
                shown_pair(frr),
                mean_sd(own[:, 1]),
                shown_pair(area),
                f"{own[:, 3].sum():.0f} of {len(own)}",
            ]
        )
    return table(head, lines)


def rows_table(tuned):
    head = ["data", "rows that choose", "FRR@95TRR", "AUROC", "stayed msp"]
    lines = []
    for data, n in product(SETS.values(), ROWS):
        own = np.array([tuned[name][0][n].mean(0) for name in of_set(data)])
        means = interval(own[:, 0]), interval(own[:, 1])
        lines.append([data, f"{n:,}", *means, f"{100 * own[:, 3].mean():.0f}%"])
    return table(head, lines)


def promise_table(gates, target):
    """Return the table of one target, and in words where auto is better."""
    rate, sign = ("FRR", 1) if target == "trr" else ("coverage", -1)
    head = ["data", "rows", "kept, auto", "kept, msp", f"{rate}, auto", f"{rate}, msp"]
    head += ["difference", "auto better on", "all rejected, auto", "all rejected, msp"]
    lines, words = [], []
    for data in SETS.values():
        better, clear = [], {-1: [], 1: []}
        for n in CALIBRATION:
            own = np.array([gates[name, target][0][n] for name in of_set(data)])
            mean, each = own.mean((0, 1)), own.mean(1)[:, :, 2]
            gain = each[:, 0] - each[:, 1]
            low, high = sorted(sign * x for x in ends(gain))
            better += [n] if low + high < 0 else []
            if low * high > 0:
                clear[1 if low > 0 else -1].append(f"{n:,}")
            shown = [kept_share(part) for part in mean]
            shown += [f"{x:.1f}" for x in mean[:, 2]] + [interval(gain, 1)]
            shown += [f"{(sign * gain < 0).sum()} of {len(gain)}"]
            shown += [f"{100 * x:.1f}%" for x in mean[:, 3]]
            lines.append([data, f"{n:,}", *shown])
        words.append(f"on {data} {sizes_words(better)} ({clear_words(clear)})")
    return table(head, lines), "; ".join(words)


def sizes_words(better):
    """Say at which numbers of calibration rows something is better."""
    if better and tuple(better) == CALIBRATION[-len(better) :]:
        return f"from {better[0]:,} rows on"
    return f"at {listed(f'{n:,}' for n in better)} rows" if better else "at no size"


def clear_words(clear):
    """Say at which numbers of rows an interval excludes 0, for good and for bad."""
    said = {"clearly at": clear[-1], "clearly not at": clear[1]}
    parts = [f"{words} {listed(sizes)}" for words, sizes in said.items() if sizes]
    return ", ".join(parts) or "nowhere clearly"


def kept_share(part):
    """Return how often a promise was kept, and how often that was foreseen."""
    kept, foreseen = 100 * part[:2]
    return f"{kept:.1f}%" + ("" if math.isnan(foreseen) else f" ({foreseen:.1f}%)")


def kept_overall(gates, target):
    """Return how often auto and msp kept a promise, over all gates."""
    every = [
        own
        for (_, t), (found, _) in gates.items()
        if t == target
        for own in found.values()
    ]
    return [kept_share(part) for part in np.concatenate(every).mean(0)]


def null_table(drawn):
    head = ["rows", "stayed msp", "FRR@95TRR on new rows", "AUROC on new rows"]
    lines = []
    for kind, found in drawn.items():
        stayed, frr, area = np.array(found, float).T
        lines.append(
            [kind, f"{100 * stayed.mean():.0f}%", interval(frr), interval(area)]
        )
    return table(head, lines)


def margin_table(looks):
    head = ["model", "data", "FRR@95TRR", "AUROC"]
    lines = [
        [*words, *map(shown_pair, looks[name][3])]
        for name, words in (PUBLIC | OURS).items()
    ]
    return table(head, lines)


def aimed_table(tuned):
    head = ["model", "data", "TRR@5FRR msp", "tuned by AUROC", "tuned for FRR 5%"]
    lines = []
    for name, words in (PUBLIC | OURS).items():
        own = tuned[name][0][USUAL]
        shown = [f"{own[:, 5].mean():.1f}", mean_sd(own[:, 2]), mean_sd(own[:, 4])]
        lines.append([*words, *shown])
    return table(head, lines)


def draw(path, out):
    """Draw doubt against length for right and wrong rows, by msp and without length."""
    from matplotlib.figure import Figure

    p = td.read(path)
    wrong, long = p.errors, length(p)
    figure = Figure(figsize=(9, 4.1), layout="constrained", facecolor="white")
    panels = figure.subplots(1, 2, sharey=True)
    titles = "Before: msp", "After: normalised_alpha"
    for axes, title, score in zip(
        panels, titles, (td.msp, td.normalised_alpha), strict=True
    ):
        doubts = score(p)
        place = 100 * rankdata(doubts) / len(doubts)
        for rows, colour, bins in ((~wrong, RIGHT, 20), (wrong, WRONG, 8)):
            draw_bands(axes, long[rows], place[rows], colour, bins)
        cut = np.quantile(place[wrong], 1 - TRR, method="lower")
        lost = td.frr_at_trr(doubts, wrong, trr=TRR)
        axes.axhline(cut, color=LIMIT, linestyle="--", lw=1.2)
        words = f"catches {TRR:.0%} of the\nwrong rows, loses\n{lost:.0%} of the right"
        axes.text(6.3, cut - 2, words, color=LIMIT, fontsize=9, va="top")
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("length of the logits (2-norm, mean taken off)")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("doubt: place among all rows, 100 the worst")
    panels[0].set_ylim(-3, 108)
    for words, colour, *at in (("wrong", WRONG, 7, 101), ("right", RIGHT, 11.6, 30)):
        panels[0].text(*at, words, color=colour, fontsize=11, weight="bold")
    out.parent.mkdir(exist_ok=True)
    figure.savefig(out, dpi=130, metadata={"Software": None})


def draw_bands(axes, x, y, colour, bins):
    """Draw the median of y, and where the middle 50% and 80% lie, along x."""
    edges = np.quantile(x, np.linspace(0, 1, bins + 1)[1:-1])
    groups = [np.digitize(x, edges) == k for k in range(bins)]
    at = [np.median(x[g]) for g in groups]
    levels = [0.1, 0.25, 0.5, 0.75, 0.9]
    lowest, low, middle, high, highest = np.array(
        [np.quantile(y[g], levels) for g in groups]
    ).T
    axes.fill_between(at, lowest, highest, color=colour, alpha=0.15, lw=0)
    axes.fill_between(at, low, high, color=colour, alpha=0.3, lw=0)
    axes.plot(at, middle, color=colour, lw=2)


def head_words(splits, took):
    return (
        f"Tables made by `python benchmarks/tuning.py SHARED --splits {splits}`, in "
        f"{took / 60:.0f} minutes of one core ({processor()}): {splits} random splits "
        f"per file and number of rows, {5 * splits} for gates, {5 * splits} draws of "
        f"made-up models. {len(FAMILY)} scores are tried."
    )


def gain_words(tuned):
    """Say what tuning changed on average, and at worst."""
    parts, worst = [], [0.0]
    for data in SETS.values():
        own = np.array([tuned[name][0][USUAL].mean(0) for name in of_set(data)])
        frr, area = own.mean(0)[:2]
        parts.append(
            f"on {data} FRR@95TRR changed by {frr:+.1f} points and AUROC by {area:+.2f}"
        )
        worst.append(own[:, 0].max())
    return (
        f"On six public models, with {USUAL:,} rows that choose, judged on the others: "
        f"{'; '.join(parts)}. No model's FRR rose by more than "
        f"{max(worst):.2f} points on average over splits."
    )


def length_words(looks):
    """Say of which nets the length tells errors, direction being alike."""
    nets = {
        words[0]: looks[name][1][1]
        for name, words in (PUBLIC | OURS).items()
        if words[1] == "CIFAR-10"
    }
    told = listed(net for net, tells in nets.items() if tells >= 60)
    coin = listed(net for net, tells in nets.items() if tells < 55)
    return (
        f"On CIFAR-10 it is about a coin toss for {coin}. It is not for {told}: their "
        "length does tell errors."
    )


def kept_words(gates, target):
    """Say how often promises were kept, and how far the models differ."""
    auto, plain = kept_overall(gates, target)
    n, change = CALIBRATION[-1], {}
    for name, words in PUBLIC.items():
        mean = gates[name, target][0][n].mean(0)[:, 2]
        change[", ".join(words)] = mean[0] - mean[1]
    low, *_, high = sorted(change, key=change.get)
    return (
        f"Over all these gates, `auto` kept the promise in {auto}, `msp` in {plain}. "
        f"At {n:,} rows the difference runs from {change[low]:+.1f} ({low}) to "
        f"{change[high]:+.1f} ({high})."
    )


def refused_words(gates):
    refused = sum(found[1] for found in gates.values())
    every = sum(len(own) for found, _ in gates.values() for own in found.values())
    return (
        f"In {refused:,} of the {every:,} calibrations fewer than 10 errors were among "
        "the rows that choose. `auto` refuses then, and `msp` stands in for it."
    )


def margin_words(looks):
    parts = []
    for data in SETS.values():
        found = [looks[name][3] for name in of_set(data)]
        fell = sum(frr.value < 0 for frr, _ in found)
        rose = sum(area.value > 0 for _, area in found)
        parts.append(
            f"on {data} it lowered FRR@95TRR of {fell} of {len(found)} public models "
            f"and raised AUROC of {rose}"
        )
    return f"Against `msp`, {'; '.join(parts)}."


def aimed_words(tuned):
    own = [tuned[name][0][USUAL].mean(0) for name in PUBLIC]
    lost, aimed = (sum(v[k] < -0.5 for v in own) for k in (2, 4))
    means = [np.mean([v[k] for v in own]) for k in (2, 4)]
    return (
        f"Tuned by AUROC, {lost} of {len(own)} public models lost more than half a "
        f"point there ({means[0]:+.2f} on average). Tuned for it, {aimed} did "
        f"({means[1]:+.2f})."
    )


def measure(files, splits):
    """Run everything, on the cores that there are."""
    sizes = {name: ROWS if name in PUBLIC else (USUAL,) for name in files}
    wanted = {
        (name, key): (files[name], {key: value}, 5 * splits)
        for name, (_, data) in PUBLIC.items()
        for key, value in (("trr", TRR), ("risk", RISKS[data]))
    }
    tasks = [(files[name], sizes[name], splits) for name in files]
    draws = {kind: [(kind, seed) for seed in range(5 * splits)] for kind in KINDS}
    # Not by fork: reading files starts threads.
    with get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        looks = dict(zip(files, pool.map(look_at, files.values(), 1), strict=True))
        tuned = dict(zip(files, pool.map(tune_file, tasks, 1), strict=True))
        every = pool.map(calibrate_file, wanted.values(), 1)
        drawn = {kind: pool.map(tune_drawn, own) for kind, own in draws.items()}
        pool.close()
        pool.join()
    return looks, tuned, dict(zip(wanted, every, strict=True)), drawn


def made_parts(looks, tuned, gates, drawn, splits):
    """Return what the script writes into the page, by the names of the places."""
    (caught, by_trr), (covered, by_risk) = (
        promise_table(gates, target) for target in ("trr", "risk")
    )
    auto = (
        f"On average over the models, `auto` loses fewer correct predictions for TRR "
        f"95% {by_trr}. For a promised risk it accepts more rows {by_risk}. Clearly: "
        "the interval over the models excludes 0."
    )
    return {
        "head": head_words(splits, sum(os.times()[:4])),
        "length": length_words(looks),
        "why": why_table(looks),
        "gain": gain_words(tuned),
        "public": tuned_table(tuned, PUBLIC),
        "rows": rows_table(tuned),
        "ours": tuned_table(tuned, OURS),
        "auto": auto,
        "caught": f"{caught}\n\n{kept_words(gates, 'trr')}",
        "covered": f"{covered}\n\n{kept_words(gates, 'risk')} {refused_words(gates)}",
        "nulls": null_table(drawn),
        "margin": f"{margin_words(looks)}\n\n{margin_table(looks)}",
        "aimed": f"{aimed_words(tuned)}\n\n{aimed_table(tuned)}",
    }


def filled(page, parts):
    """Return the page with each part in its place, and its blocks run anew."""
    for name, text in parts.items():
        start, end = f"<!-- made: {name} -->", "<!-- end -->"
        before, found, after = page.partition(start)
        if not found:
            sys.exit(f"expected a place {start} in {PAGE}, and found none.")
        page = f"{before}{start}\n\n{text}\n\n{end}{after.partition(end)[2]}"
    spec = importlib.util.spec_from_file_location("blocks", ROOT / "tests/blocks.py")
    blocks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(blocks)
    with tempfile.TemporaryDirectory() as scratch:
        return blocks.updated(page, scratch)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--splits", type=int, default=20)
    given = parser.parse_args()
    folder = given.shared / "predictions"
    if not (folder / "public").is_dir():
        sys.exit(f"expected the folder {folder / 'public'}, and found none.")
    files = {name: folder / f"{name}.npz" for name in PUBLIC | OURS}
    draw(files[DRAWN], given.out.parent / "pictures" / "tuning.png")
    parts = made_parts(*measure(files, given.splits), given.splits)
    page = filled(PAGE.read_text(encoding="utf-8"), parts)
    given.out.write_text(page, encoding="utf-8")
    print(parts["head"])


if __name__ == "__main__":
    main()
