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
import shutil
import sys
import tempfile
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from guarantees import chance
from pages import fill, processor, table
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
    trr_at_frr = td.trr_at_frr(doubts, wrong, frr=FRR)
    values = td.frr_at_trr(doubts, wrong, trr=TRR), td.auroc(doubts, wrong), trr_at_frr
    return 100 * np.array(values)


def paired(doubts, base_doubts, wrong):
    """Return the changes of FRR@95TRR and of AUROC, with 95% intervals."""
    ranking, base_ranking = Ranking(doubts, wrong), Ranking(base_doubts, wrong)
    paired_rates = (
        paired_frr(r, trr=TRR, confidence=0.95) for r in (ranking, base_ranking)
    )
    auroc_change = auroc_difference(ranking, base_ranking, confidence=0.95)
    return frr_difference(*paired_rates, wrong), auroc_change


def length(p):
    """Return the 2-norm of each row's centred logits."""
    z = p.logits.astype(np.float64)
    return np.linalg.norm(z - z.mean(1, keepdims=True), axis=1)


def among_alike(doubts, other_doubts, wrong):
    """Return the AUROC over pairs of rows that another score finds alike, in percent.

    Strata of that score hold equally many errors.
    """
    edges = np.quantile(other_doubts[wrong], np.linspace(0, 1, STRATA + 1)[1:-1])
    stratum, pairs_won, pairs = np.digitize(other_doubts, edges), 0.0, 0
    for k in range(STRATA):
        stratum_errors = wrong[stratum == k]
        if stratum_errors.any() and not stratum_errors.all():
            pairs_here = int(stratum_errors.sum()) * int((~stratum_errors).sum())
            pairs_won += pairs_here * td.auroc(doubts[stratum == k], stratum_errors)
            pairs += pairs_here
    return 100 * pairs_won / pairs


def look_at(path):
    """Return what one file says about length, and about margin, without choosing."""
    p = td.read(path)
    wrong, msp, normalised = p.errors, td.msp(p), td.normalised_alpha(p)
    aurocs_of_length = []
    if p.n_classes > 2:
        short = -length(p)
        aurocs_of_length = [100 * td.auroc(short, wrong)]
        aurocs_of_length += [
            among_alike(short, other_doubts, wrong)
            for other_doubts in (normalised, msp)
        ]
    frrs = [rates(d, wrong)[0] for d in (msp, normalised)]
    accuracy = 100 * (1 - wrong.mean())
    return accuracy, aurocs_of_length, frrs, paired(td.margin(p), msp, wrong)


def tune_file(task):
    """Tune on parts of a file; return changes on the other rows.

    For each number of rows one line per split: the changes of `rates`, whether it
    stayed msp, and the change of TRR@5FRR when tuned for that.
    """
    path, sizes, splits = task
    p = td.read(path)
    msp, wrong = td.msp(p), p.errors
    lines_by_size, intervals = {}, None
    for n in sizes:
        lines = []
        for seed in range(splits):
            order = np.random.default_rng(seed).permutation(len(p))
            tuning_rows, test_rows = np.split(order, [n])
            before = rates(msp[test_rows], wrong[test_rows])
            score = td.tune(p[tuning_rows])
            doubts = score(p)
            change = rates(doubts[test_rows], wrong[test_rows]) - before
            aimed_change = math.nan
            if n == USUAL:
                aimed_doubts = td.tune(p[tuning_rows], frr=FRR)(p)
                aimed_change = (
                    rates(aimed_doubts[test_rows], wrong[test_rows])[2] - before[2]
                )
                intervals = intervals or paired(
                    doubts[test_rows], msp[test_rows], wrong[test_rows]
                )
            lines.append([*change, score.members == ("msp",), aimed_change, before[2]])
        lines_by_size[n] = np.array(lines, float)
    return lines_by_size, intervals


def calibrate_file(task):
    """Calibrate on parts of a file, by auto and by msp; return what the rest saw.

    For each number of rows an array (splits, 2, 4): for auto and msp whether the
    promise was kept, how often it should be, FRR or coverage, and whether the gate
    rejects everything.
    """
    path, target, splits = task
    p = td.read(path)
    lines_by_size, refused = {}, 0
    for n in CALIBRATION:
        lines = []
        for seed in range(splits):
            order = np.random.default_rng(1000 + seed).permutation(len(p))
            rows, test = p[order[:n]], p[order[n:]]
            msp_gate = td.calibrate(rows, score="msp", **target)
            try:
                auto_gate = td.calibrate(rows, score="auto", **target)
            except InputError:  # too few errors to choose by: msp is named
                auto_gate, refused = msp_gate, refused + 1
            lines.append([judge(gate, test, target) for gate in (auto_gate, msp_gate)])
        lines_by_size[n] = np.array(lines, float)
    return lines_by_size, refused


def judge(gate, test, target):
    """Return promise kept, how often foreseen, FRR or coverage, all rejected."""
    confusion = td.confusion(gate.score(test), test.errors, threshold=gate.threshold)
    rejects_all = gate.state == "reject-all"
    if "risk" in target:
        is_kept = confusion.accepted_errors <= target["risk"] * confusion.n_accepted
        return is_kept, math.nan, 100 * confusion.coverage, rejects_all
    trr = target["trr"]
    broken = 0.0 if rejects_all else chance(gate, confusion, "trr", trr)
    return confusion.trr >= trr, 1 - broken, 100 * confusion.frr, rejects_all


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
    score, new_rows = td.tune(draw_rows(kind, rng, USUAL)), draw_rows(kind, rng, FRESH)
    base = rates(td.msp(new_rows), new_rows.errors)
    changes = rates(score(new_rows), new_rows.errors) - base
    return score.members == ("msp",), *changes[:2]


def ends(values):
    """Return the 95% interval of the mean of independent values."""
    half_width = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1)
    half_width /= math.sqrt(len(values))
    return np.mean(values) - half_width, np.mean(values) + half_width


def interval(values, digits=2):
    """Return the mean of independent values with its interval, as text."""
    low, high = ends(values)
    return f"{np.mean(values):+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def mean_sd(values):
    """Return the mean over splits, and the standard deviation over them."""
    return f"{np.mean(values):+.2f} ({np.std(values, ddof=1):.2f})"


def shown_pair(change):
    """Return a paired change; rows that are ranked alike change nothing."""
    ranks_alike = change.low == change.high == 0
    return "ranks alike" if ranks_alike else change.percent(sign=True)


def listed(names):
    names = list(names)
    return " and ".join(
        filter(None, [", ".join(names[:-1]), names[-1] if names else "none"])
    )


def of_set(data):
    return [name for name, (_, model_data) in PUBLIC.items() if model_data == data]


def why_table(looks):
    head = ["model", "data", "accuracy", "length alone", "direction alike"]
    head += ["msp alike", "FRR@95TRR, msp", "FRR@95TRR, normalised_alpha"]
    lines = []
    for name, words in (PUBLIC | OURS).items():
        accuracy, aurocs_of_length, frrs, _ = looks[name]
        if aurocs_of_length:
            shown = [f"{x:.1f}" for x in (accuracy, *aurocs_of_length, *frrs)]
            lines.append([*words, *shown])
    return table(head, lines)


def tuned_table(tuned, names):
    head = ["model", "data", "FRR@95TRR", "first split", "AUROC", "first split"]
    head += ["stayed msp"]
    lines = []
    for name, words in names.items():
        lines_by_size, (frr, auroc_change) = tuned[name]
        by_split = lines_by_size[USUAL]
        lines.append(
            [
                *words,
                mean_sd(by_split[:, 0]),
                shown_pair(frr),
                mean_sd(by_split[:, 1]),
                shown_pair(auroc_change),
                f"{by_split[:, 3].sum():.0f} of {len(by_split)}",
            ]
        )
    return table(head, lines)


def rows_table(tuned):
    head = ["data", "rows that choose", "FRR@95TRR", "AUROC", "stayed msp"]
    lines = []
    for data, n in product(SETS.values(), ROWS):
        model_means = np.array([tuned[name][0][n].mean(0) for name in of_set(data)])
        shown = interval(model_means[:, 0]), interval(model_means[:, 1])
        lines.append([data, f"{n:,}", *shown, f"{100 * model_means[:, 3].mean():.0f}%"])
    return table(head, lines)


def promise_table(gates, target):
    """Return the table of one target, and in words where auto is better."""
    rate, sign = ("FRR", 1) if target == "trr" else ("coverage", -1)
    head = ["data", "rows", "kept, auto", "kept, msp", f"{rate}, auto", f"{rate}, msp"]
    head += ["difference", "auto better on", "all rejected, auto", "all rejected, msp"]
    lines, words = [], []
    for data in SETS.values():
        better_sizes, clear_sizes = [], {-1: [], 1: []}
        for n in CALIBRATION:
            judged = np.array([gates[name, target][0][n] for name in of_set(data)])
            mean, by_model = judged.mean((0, 1)), judged.mean(1)[:, :, 2]
            gain = by_model[:, 0] - by_model[:, 1]
            low, high = sorted(sign * x for x in ends(gain))
            better_sizes += [n] if low + high < 0 else []
            if low * high > 0:
                clear_sizes[1 if low > 0 else -1].append(f"{n:,}")
            shown = [kept_share(judged_means) for judged_means in mean]
            shown += [f"{x:.1f}" for x in mean[:, 2]] + [interval(gain, 1)]
            shown += [f"{(sign * gain < 0).sum()} of {len(gain)}"]
            shown += [f"{100 * x:.1f}%" for x in mean[:, 3]]
            lines.append([data, f"{n:,}", *shown])
        words.append(
            f"on {data} {sizes_words(better_sizes)} ({clear_words(clear_sizes)})"
        )
    return table(head, lines), "; ".join(words)


def sizes_words(better):
    """Say at which numbers of calibration rows something is better."""
    if better and tuple(better) == CALIBRATION[-len(better) :]:
        return f"from {better[0]:,} rows on"
    return f"at {listed(f'{n:,}' for n in better)} rows" if better else "at no size"


def clear_words(clear):
    """Say at which numbers of rows an interval excludes 0, for good and for bad."""
    sizes_by_words = {"clearly at": clear[-1], "clearly not at": clear[1]}
    phrases = [
        f"{words} {listed(sizes)}" for words, sizes in sizes_by_words.items() if sizes
    ]
    return ", ".join(phrases) or "nowhere clearly"


def kept_share(judged_means):
    """Return how often a promise was kept, and how often that was foreseen."""
    kept_percent, foreseen = 100 * judged_means[:2]
    return f"{kept_percent:.1f}%" + (
        "" if math.isnan(foreseen) else f" ({foreseen:.1f}%)"
    )


def kept_overall(gates, target):
    """Return how often auto and msp kept a promise, over all gates."""
    judged = [
        lines
        for (_, t), (lines_by_size, _) in gates.items()
        if t == target
        for lines in lines_by_size.values()
    ]
    return [kept_share(judged_means) for judged_means in np.concatenate(judged).mean(0)]


def null_table(drawn):
    head = ["rows", "stayed msp", "FRR@95TRR on new rows", "AUROC on new rows"]
    lines = []
    for kind, results in drawn.items():
        stayed, frr, auroc_change = np.array(results, float).T
        lines.append(
            [kind, f"{100 * stayed.mean():.0f}%", interval(frr), interval(auroc_change)]
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
        by_split = tuned[name][0][USUAL]
        shown = [
            f"{by_split[:, 5].mean():.1f}",
            mean_sd(by_split[:, 2]),
            mean_sd(by_split[:, 4]),
        ]
        lines.append([*words, *shown])
    return table(head, lines)


def draw(path, out):
    """Draw doubt against length for right and wrong rows, by msp and without length."""
    from matplotlib.figure import Figure

    p = td.read(path)
    wrong, lengths = p.errors, length(p)
    figure = Figure(figsize=(9, 4.1), layout="constrained", facecolor="white")
    panels = figure.subplots(1, 2, sharey=True)
    titles = "Before: msp", "After: normalised_alpha"
    for axes, title, score in zip(
        panels, titles, (td.msp, td.normalised_alpha), strict=True
    ):
        doubts = score(p)
        percentile = 100 * rankdata(doubts) / len(doubts)
        for rows, colour, bins in ((~wrong, RIGHT, 20), (wrong, WRONG, 8)):
            draw_bands(axes, lengths[rows], percentile[rows], colour, bins)
        limit = np.quantile(percentile[wrong], 1 - TRR, method="lower")
        frr = td.frr_at_trr(doubts, wrong, trr=TRR)
        axes.axhline(limit, color=LIMIT, linestyle="--", lw=1.2)
        words = f"catches {TRR:.0%} of the\nwrong rows, loses\n{frr:.0%} of the right"
        axes.text(6.3, limit - 2, words, color=LIMIT, fontsize=9, va="top")
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("length of the logits (2-norm, mean taken off)")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("doubt: place among all rows, 100 the worst")
    panels[0].set_ylim(-3, 108)
    for words, colour, *position in (
        ("wrong", WRONG, 7, 101),
        ("right", RIGHT, 11.6, 30),
    ):
        panels[0].text(*position, words, color=colour, fontsize=11, weight="bold")
    out.parent.mkdir(exist_ok=True)
    figure.savefig(out, dpi=130, metadata={"Software": None})


def draw_bands(axes, x, y, colour, bins):
    """Draw the median of y, and where the middle 50% and 80% lie, along x."""
    edges = np.quantile(x, np.linspace(0, 1, bins + 1)[1:-1])
    groups = [np.digitize(x, edges) == k for k in range(bins)]
    middles = [np.median(x[g]) for g in groups]
    levels = [0.1, 0.25, 0.5, 0.75, 0.9]
    lowest, low, middle, high, highest = np.array(
        [np.quantile(y[g], levels) for g in groups]
    ).T
    axes.fill_between(middles, lowest, highest, color=colour, alpha=0.15, lw=0)
    axes.fill_between(middles, low, high, color=colour, alpha=0.3, lw=0)
    axes.plot(middles, middle, color=colour, lw=2)


def head_words(splits, seconds):
    return (
        f"Tables made by `python benchmarks/tuning.py SHARED --splits {splits}`, in "
        f"{seconds / 60:.0f} minutes of one core ({processor()}): {splits} random "
        f"splits per file and number of rows, {5 * splits} for gates, {5 * splits} "
        f"draws of made-up models. {len(FAMILY)} scores are tried."
    )


def gain_words(tuned):
    """Say what tuning changed on average, and at worst."""
    phrases, worst = [], [0.0]
    for data in SETS.values():
        model_means = np.array([tuned[name][0][USUAL].mean(0) for name in of_set(data)])
        frr, auroc_change = model_means.mean(0)[:2]
        phrases.append(
            f"on {data} FRR@95TRR changed by {frr:+.1f} points and AUROC by "
            f"{auroc_change:+.2f}"
        )
        worst.append(model_means[:, 0].max())
    return (
        f"On six public models, with {USUAL:,} rows that choose, judged on the others: "
        f"{'; '.join(phrases)}. No model's FRR rose by more than "
        f"{max(worst):.2f} points on average over splits."
    )


def length_words(looks):
    """Say of which nets the length tells errors, direction being alike."""
    nets = {
        words[0]: looks[name][1][1]
        for name, words in (PUBLIC | OURS).items()
        if words[1] == "CIFAR-10"
    }
    telling = listed(net for net, auroc in nets.items() if auroc >= 60)
    not_telling = listed(net for net, auroc in nets.items() if auroc < 55)
    return (
        f"On CIFAR-10 it is about a coin toss for {not_telling}. It is not for "
        f"{telling}: their length does tell errors."
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
    refused = sum(result[1] for result in gates.values())
    total = sum(
        len(lines)
        for lines_by_size, _ in gates.values()
        for lines in lines_by_size.values()
    )
    return (
        f"In {refused:,} of the {total:,} calibrations fewer than 10 errors were among "
        "the rows that choose. `auto` refuses then, and `msp` stands in for it."
    )


def margin_words(looks):
    phrases = []
    for data in SETS.values():
        changes = [looks[name][3] for name in of_set(data)]
        fell = sum(frr.value < 0 for frr, _ in changes)
        rose = sum(auroc_change.value > 0 for _, auroc_change in changes)
        phrases.append(
            f"on {data} it lowered FRR@95TRR of {fell} of {len(changes)} public models "
            f"and raised AUROC of {rose}"
        )
    return f"Against `msp`, {'; '.join(phrases)}."


def aimed_words(tuned):
    model_means = [tuned[name][0][USUAL].mean(0) for name in PUBLIC]
    worse, worse_aimed = (sum(means[k] < -0.5 for means in model_means) for k in (2, 4))
    mean_changes = [np.mean([means[k] for means in model_means]) for k in (2, 4)]
    return (
        f"Tuned by AUROC, {worse} of {len(model_means)} public models lost more than "
        f"half a point there ({mean_changes[0]:+.2f} on average). Tuned for it, "
        f"{worse_aimed} did ({mean_changes[1]:+.2f})."
    )


def measure(files, splits):
    """Run everything, on the cores that there are."""
    sizes = {name: ROWS if name in PUBLIC else (USUAL,) for name in files}
    gate_tasks = {
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
        gates = pool.map(calibrate_file, gate_tasks.values(), 1)
        drawn = {
            kind: pool.map(tune_drawn, kind_tasks) for kind, kind_tasks in draws.items()
        }
        pool.close()
        pool.join()
    return looks, tuned, dict(zip(gate_tasks, gates, strict=True)), drawn


def made_parts(looks, tuned, gates, drawn, splits):
    """Return what the script writes into the page, by the names of the places."""
    (trr_table, by_trr), (risk_table, by_risk) = (
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
        "caught": f"{trr_table}\n\n{kept_words(gates, 'trr')}",
        "covered": f"{risk_table}\n\n{kept_words(gates, 'risk')} "
        f"{refused_words(gates)}",
        "nulls": null_table(drawn),
        "margin": f"{margin_words(looks)}\n\n{margin_table(looks)}",
        "aimed": f"{aimed_words(tuned)}\n\n{aimed_table(tuned)}",
    }


def run_blocks(path):
    """Run the code blocks of a page anew."""
    spec = importlib.util.spec_from_file_location("blocks", ROOT / "tests/blocks.py")
    blocks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(blocks)
    with tempfile.TemporaryDirectory() as scratch:
        page = blocks.updated(path.read_text(encoding="utf-8"), scratch)
    path.write_text(page, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--splits", type=int, default=20)
    options = parser.parse_args()
    folder = options.shared / "predictions"
    if not (folder / "public").is_dir():
        sys.exit(f"expected the folder {folder / 'public'}, and found none.")
    files = {name: folder / f"{name}.npz" for name in PUBLIC | OURS}
    draw(files[DRAWN], options.out.parent / "pictures" / "tuning.png")
    texts = made_parts(*measure(files, options.splits), options.splits)
    if options.out != PAGE:
        shutil.copy(PAGE, options.out)
    fill(options.out, "", texts)
    run_blocks(options.out)
    print(texts["head"])


if __name__ == "__main__":
    main()
