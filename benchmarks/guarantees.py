"""Do the promises hold? Simulated calibrations, and splits of real predictions.

``python benchmarks/guarantees.py --out docs/guarantees.md`` runs everything and writes
the page; ``--calibrations`` sets how many per cell. ``--only outlook`` runs a section
(several: separated by commas) and leaves the rest of the page alone. Seeds are fixed.

A cell is a rule, a mode, a number of rows, an accuracy and a kind of scores. Correct
rows score N(0, 1), errors N(2, 1): as they are; rounded to halves (heavily tied); or
fully certain (-inf) with probability 0.3 for correct rows and 0.05 for errors, as a
forest's one-hot probabilities are. The true rates at each threshold are exact.
"""

import argparse
import math
import os
import sys
from functools import cache
from itertools import product
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from scipy.stats import betabinom, norm

import trustdoctor as td
from trustdoctor.demo import bundled_file
from trustdoctor.gates import certification
from trustdoctor.gates.outlook import (
    LIKELY,
    find_sufficient_rows,
    simulate_outlook,
)
from trustdoctor.gates.request import Request
from trustdoctor.gates.sample import Rows

ROWS = (30, 100, 500, 5000)
ACCURACIES = (0.6, 0.9, 0.99)
KINDS = ("continuous", "tied", "one-hot")
DELTA = 0.1
TARGETS = {
    "frr": {"frr": 0.05},
    "trr": {"trr": 0.95},
    "coverage": {"coverage": 0.9},
    "joint": {"joint": 0.02},
    "frr and trr": {"frr": 0.4, "trr": 0.8},
    "risk and coverage": {"risk": 0.1, "coverage": 0.5},
    "risk and frr": {"risk": 0.1, "frr": 0.3},
    "risk and trr": {"risk": 0.1, "trr": 0.7},
}
MODES = ("confidence", "expectation")
RULES = [
    (name, mode, target, {})
    for name, target in TARGETS.items()
    for mode in MODES[: 2 - (len(target) == 2)]
]
RULES += [
    (f"risk, {method}", "confidence", {"risk": 0.05}, {"method": method})
    for method in ("sequence", "sgr", "grid")
]


def draw(rng, n, accuracy, kind):
    """Return scores and errors of n rows."""
    errors = rng.random(n) >= accuracy
    scores = rng.normal(size=n) + 2.0 * errors
    if kind == "tied":
        scores = np.round(2 * scores) / 2
    if kind == "one-hot":
        certain = rng.random(n) < np.where(errors, 0.05, 0.3)
        scores = np.where(certain, -np.inf, scores)
    return scores, errors


def below(threshold, mean, kind, certain):
    """Return the probability that a row of one kind scores at most the threshold."""
    if kind == "tied":
        top = math.floor(2 * threshold) if math.isfinite(threshold) else threshold
        return norm.cdf((top + 0.5) / 2 - mean)
    plain = norm.cdf(threshold - mean)
    return certain + (1 - certain) * plain if kind == "one-hot" else plain


def truth(gate, accuracy, kind):
    """Return the exact rates of a gate."""
    if gate.state == "threshold":
        correct = below(gate.threshold, 0.0, kind, 0.3)
        wrong = below(gate.threshold, 2.0, kind, 0.05)
    else:
        correct = wrong = float(gate.state == "accept-all")
    accepted = accuracy * correct + (1 - accuracy) * wrong
    joint = (1 - accuracy) * wrong
    return {
        "frr": 1 - correct,
        "trr": 1 - wrong,
        "coverage": accepted,
        "joint": joint,
        "risk": joint / accepted if accepted > 0 else 0.0,
    }


def broken(rates, target):
    """Whether a promise is broken."""
    slack = 1e-12
    return any(
        rates[k] < v - slack if k in ("trr", "coverage") else rates[k] > v + slack
        for k, v in target.items()
    )


def cell(task):
    """Run one cell; return broken promises, rates, and how many gates decide."""
    (name, mode, target, options), n, accuracy, kind, calibrations, seed = task
    rng = np.random.default_rng(seed)
    breaks, rates, decided = 0, [], 0
    for _ in range(calibrations):
        scores, errors = draw(rng, n, accuracy, kind)
        gate = td.calibrate_scores(
            scores, errors, confidence=1 - DELTA, mode=mode, **target, **options
        )
        true = truth(gate, accuracy, kind)
        # A gate that says that no threshold does both makes no promise.
        breaks += gate.certificate.guarantee and broken(true, target)
        rates.append([true[k] for k in target])
        decided += gate.state == "threshold"
    return name, mode, n, accuracy, kind, breaks, np.array(rates), decided


def judge(found, calibrations):
    """Return the measured figure of a cell, its bound, and whether it is within."""
    name, mode, _, _, _, breaks, rates, _ = found
    if mode == "confidence":
        share = breaks / calibrations
        bound = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / calibrations)
        return share, bound, share <= bound
    target = TARGETS[name]
    worst = -math.inf
    for i, (k, v) in enumerate(target.items()):
        sign = -1 if k in ("trr", "coverage") else 1
        error = rates[:, i].std() / math.sqrt(calibrations)
        excess = sign * (rates[:, i].mean() - v)
        worst = max(worst, excess - 3 * error)
    return worst, 0.0, worst <= 1e-12


def oracle(accuracy, risk, apart=2.0):
    """Return the largest coverage whose true risk is at most `risk`."""
    t = np.linspace(-6, 8, 200_001)
    accepted = accuracy * norm.cdf(t) + (1 - accuracy) * norm.cdf(t - apart)
    good = (1 - accuracy) * norm.cdf(t - apart) <= risk * accepted
    return float(accepted[good].max()) if good.any() else 0.0


def simulate(calibrations, out):
    tasks = [
        (rule, n, accuracy, kind, calibrations, seed)
        for seed, (rule, n, accuracy, kind) in enumerate(
            product(RULES, ROWS, ACCURACIES, KINDS)
        )
    ]
    with Pool(len(os.sched_getaffinity(0))) as pool:
        found = []
        for i, result in enumerate(pool.imap(cell, tasks, chunksize=4)):
            found.append(result)
            if sys.stderr.isatty():
                print(f"\r{i + 1} of {len(tasks)} cells", end="", file=sys.stderr)
    out.append(
        "| rule | mode | cells | within the bound | worst cell | figure there | "
        "P(broken given not trivial), worst |"
    )
    out.append("|---|---|---|---|---|---|---|")
    for name, mode, _, _ in RULES:
        own = [f for f in found if f[:2] == (name, mode)]
        judged = [judge(f, calibrations) for f in own]
        at = int(np.argmax([j[0] for j in judged]))
        _, _, n, accuracy, kind = own[at][:5]
        figure = f"{judged[at][0]:.2%} broken (at most {judged[at][1]:.2%})"
        if mode == "expectation":
            figure = f"mean beyond the target by {judged[at][0]:+.4f} less 3 s.e."
        out.append(
            f"| {name} | {mode} | {len(own)} | {sum(j[2] for j in judged)} | "
            f"n = {n}, accuracy {accuracy:g}, {kind} | {figure} | "
            f"{worst_given_decided(own, calibrations) if mode == MODES[0] else '-'} |"
        )
    return found


def worst_given_decided(cells, calibrations, least=20):
    """Say where gates that are not trivial break most often, and how rare they are."""
    able = [c for c in cells if c[7] >= least]
    worst = max(able, key=lambda c: c[5] / c[7])
    return f"{worst[5] / worst[7]:.0%} of the {worst[7] / calibrations:.1%} that decide"


def compare_risk(calibrations, out):
    """Compare coverage of the methods for risk with each other and the oracle."""
    out.append("| n | accuracy | risk | sequence | grid | SGR | oracle |")
    out.append("|---|---|---|---|---|---|---|")
    for n, accuracy, risk, runs in (
        (500, 0.9, 0.04, calibrations),
        (5000, 0.9, 0.04, calibrations // 4),
        (5000, 0.99, 0.005, calibrations // 4),
        (50_000, 0.6, 0.02, 50),
    ):
        covered = {"sequence": [], "grid": [], "sgr": []}
        rng = np.random.default_rng(n)
        for _ in range(runs):
            scores, errors = draw(rng, n, accuracy, "continuous")
            for method, values in covered.items():
                gate = td.calibrate_scores(scores, errors, risk=risk, method=method)
                values.append(truth(gate, accuracy, "continuous")["coverage"])
        cells = " | ".join(f"{np.mean(v):.3f}" for v in covered.values())
        best = oracle(accuracy, risk)
        out.append(f"| {n:,} | {accuracy:g} | {risk:g} | {cells} | {best:.3f} |")


def real_gates(task):
    """Return coverage, and what is accepted, broken and flagged, on real rows."""
    path, n, options, runs = task
    p = td.read(path)
    scores, errors, rng = td.alpha(p), p.errors, np.random.default_rng(0)
    order = np.argsort(scores)
    ascending, wrong = scores[order], np.append(0, np.cumsum(errors[order]))
    found = []
    for _ in range(runs):
        some = rng.choice(len(scores), n, replace=False)
        gate = td.calibrate_scores(scores[some], errors[some], **options)
        kept = np.searchsorted(ascending, gate.threshold, side="right")
        bad = wrong[kept] > options["risk"] * kept
        found.append(
            (kept / len(scores), kept > 0, bad, gate.certificate.passed_by_chance)
        )
    return np.array(found, float).T


def luck(calibrations, out):
    """Show how often gates are luck, and whether they are flagged."""
    folder = shared_folder() / "predictions"
    if not folder.is_dir():
        return
    cells = [
        (name, n, risk)
        for name in ("minilm-imdb-test", "resnet-20-cifar10-test")
        for n, risk in ((200, 0.02), (500, 0.01), (500, 0.02), (2000, 0.01))
    ]
    cells += [("public/repvgg_a1-cifar10-test", 500, 0.02)]
    cells += [("public/resnet20-cifar100-test", 500, 0.02)]
    tasks = [
        (folder / f"{c[0]}.npz", c[1], {"risk": c[2]}, calibrations) for c in cells
    ]
    out.append(
        "| predictions | n | risk | accept anything | broken | broken, of those that "
        "accept | flagged, of the broken | flagged, of the kept |"
    )
    out.append("|---|---|---|---|---|---|---|---|")
    with Pool(len(os.sched_getaffinity(0))) as pool:
        found = pool.map(real_gates, tasks, chunksize=1)
    for (name, n, risk), (_, able, bad, flagged) in zip(cells, found, strict=True):
        kept = able * (1 - bad)
        out.append(
            f"| {name.split('/')[-1].removesuffix('-test')} | {n:,} | {risk:g} | "
            f"{able.mean():.1%} | {bad.mean():.1%} | {share(bad, able)} | "
            f"{share(flagged * bad, bad)} | {share(flagged * kept, kept)} |"
        )


OUTLOOKS = {
    "CIFAR-10, bundled": None,
    "CIFAR-10, ResNet-20": "resnet-20-cifar10-test",
    "CIFAR-10, RepVGG-A1": "public/repvgg_a1-cifar10-test",
    "CIFAR-100, ResNet-56": "resnet-56-cifar100-test",
    "Tiny ImageNet, EfficientNet": "efficientnet-lite0-tinyimagenet-test",
    "IMDb, MiniLM": "minilm-imdb-test",
    "SVHN, ResNet-20": "resnet-20-svhn-test",
}
OUTLOOK_ROWS = (200, 500, 1000, 2000)
OUTLOOK_RISKS = (0.01, 0.02, 0.05, 0.1)
BETWEEN = (0.03, 0.97)
"""Observed shares that are worth stating: beyond, nothing is left to foresee."""


@cache
def file_rows(source):
    """Return the scores and errors of a file, which are a population's truth here."""
    folder = shared_folder() / "predictions"
    p = td.read(bundled_file() if source is None else folder / f"{source}.npz")
    return td.alpha(p), p.errors


def stated_and_observed(task):
    """Compare what is stated at every sample with what is observed on fresh ones."""
    source, rows, risk, calibrations = task
    scores, errors = file_rows(source)
    ask, rng = Request({"risk": risk}), np.random.default_rng(rows)

    def find_cut(sample):
        return ask.cut(sample, ask.delta)

    def sample_of(size):
        chosen = rng.integers(0, len(scores), size)
        return Rows(scores[chosen], errors[chosen])

    successes = [not find_cut(sample_of(rows)).failed for _ in range(calibrations)]
    observed = np.mean(successes)
    if not BETWEEN[0] <= observed <= BETWEEN[1]:
        return source, rows, risk, observed, None, [], [], []
    stated, failed, needed, enough = [], [], [], []
    for _ in range(calibrations // 4):
        sample = sample_of(rows)
        if not sample.n_errors:  # nothing to simulate, and no outlook is made of it
            stated.append(float(not find_cut(sample).failed))
            continue
        stated.append(simulate_outlook(sample, find_cut).decides)
        if not find_cut(sample).failed:
            continue
        failed.append(stated[-1])
        if len(failed) <= calibrations // 80:
            looks = find_sufficient_rows(sample, find_cut)
            needed.append(looks[1].rows if len(looks) > 1 else math.inf)
            enough += [not find_cut(sample_of(look.rows)).failed for look in looks[1:]]
    return source, rows, risk, observed, stated, failed, needed, enough


def outlook(calibrations, out):
    """Compare stated with observed shares of calibrations that accept something."""
    if not (shared_folder() / "predictions").is_dir():
        return
    names = {source: name for name, source in OUTLOOKS.items()}
    tasks = product(OUTLOOKS.values(), OUTLOOK_ROWS, OUTLOOK_RISKS, [calibrations])
    with Pool(len(os.sched_getaffinity(0))) as pool:
        cells = pool.map(stated_and_observed, list(tasks), chunksize=4)
    cells = [cell for cell in cells if cell[4] is not None]
    out.append(
        "| predictions | n | risk | observed | stated, mean | apart | 8 of 10 "
        "statements | stated where it failed |"
    )
    out.append("|---|---|---|---|---|---|---|---|")
    apart, errors, single = [], [], []
    for source, rows, risk, observed, stated, failed, _, _ in cells:
        apart.append(np.mean(stated) - observed)
        variance = np.var(stated) / len(stated)
        errors.append(math.sqrt(variance + observed * (1 - observed) / calibrations))
        single += list(np.abs(np.array(stated) - observed))
        low, high = np.quantile(stated, (0.1, 0.9))
        on_failure = f"{np.mean(failed):.0%}" if len(failed) >= 20 else "-"
        out.append(
            f"| {names[source]} | {rows:,} | {risk:g} | {observed:.0%} | "
            f"{np.mean(stated):.0%} | {100 * apart[-1]:+.0f} ± {100 * errors[-1]:.0f} "
            f"| {low:.0%} to {high:.0%} | {on_failure} |"
        )
    off, noise = np.abs(apart), np.array(errors)
    out += [
        "",
        f"On average {100 * off.mean():.1f} points apart, {100 * off.max():.1f} at "
        f"most; more than 10 in {np.sum(off > 0.1)} of {len(off)} cells, by more than "
        f"two standard errors in {np.sum(off > 0.1 + 2 * noise)}. A single statement "
        f"is {100 * np.median(single):.0f} points from the observed share in the "
        f"median, and within {100 * np.quantile(single, 0.8):.0f} in 8 of 10 cases: it "
        "rests on one sample.",
        "",
        f"Rows said to be enough ({LIKELY:.0%} of calibrations), where a calibration "
        "failed, and whether a calibration on as many fresh rows succeeded:",
        "",
        "| predictions | a number is said | times n, median | fresh rows succeed |",
        "|---|---|---|---|",
    ]
    total = []
    for name, source in OUTLOOKS.items():
        own = [cell for cell in cells if cell[0] == source]
        times = np.concatenate([np.array(cell[6]) / cell[1] for cell in own])
        fresh = [success for cell in own for success in cell[7]]
        total += fresh
        if fresh:
            said = np.isfinite(times)
            out.append(
                f"| {name} | {said.mean():.0%} of {len(times)} | "
                f"{np.median(times[said]):.1f} | {np.mean(fresh):.0%} |"
            )
    out += ["", f"In all, {np.mean(total):.0%} of {len(total):,} succeed."]


def share(part, whole):
    """Return a share in percent, where there is anything."""
    return f"{part.sum() / whole.sum():.0%}" if whole.sum() else "-"


def clustered(task):
    """Run one target on rows in clusters; return how often it breaks, both ways."""
    target, calibrations = task
    rng, broke = np.random.default_rng(4), [0, 0]
    for _ in range(calibrations):
        own = np.repeat(np.arange(100), 20)
        errors = np.repeat(rng.random(100) >= 0.9, 20)
        shared = np.repeat(rng.normal(size=100), 20)
        scores = 0.9 * shared + math.sqrt(1 - 0.81) * rng.normal(size=2000)
        scores += 2.0 * errors
        for i, known in enumerate(({}, {"clusters": own})):
            gate = td.calibrate_scores(scores, errors, **target, **known)
            broke[i] += broken(truth(gate, 0.9, "continuous"), target)
    return [b / calibrations for b in broke]


def clusters(calibrations, out):
    """Compare promises on rows in clusters, with and without saying so."""
    targets = [{"frr": 0.1}, {"trr": 0.5}, {"coverage": 0.8}]
    targets += [{"joint": 0.05}, {"risk": 0.05}]
    out.append("| target | broken, clusters not said | broken, one row per cluster |")
    out.append("|---|---|---|")
    with Pool(len(os.sched_getaffinity(0))) as pool:
        found = pool.map(clustered, [(t, calibrations) for t in targets], chunksize=1)
    for target, (plain, known) in zip(targets, found, strict=True):
        ((name, value),) = target.items()
        out.append(f"| {name} {value:g} | {plain:.1%} | {known:.1%} |")
    return [known for _, known in found]


def regret(calibrations, out):
    """Report what `cost` loses against the best threshold."""
    out.append("| n | accuracy | cost | mean cost per row | of the oracle | regret |")
    out.append("|---|---|---|---|---|---|")
    t = np.linspace(-6, 8, 20_001)
    for n, accuracy in product((100, 500, 5000), (0.9, 0.99)):
        rng = np.random.default_rng(n)
        spent = []
        for _ in range(calibrations // 4):
            gate = td.calibrate_scores(*draw(rng, n, accuracy, "continuous"), cost=20)
            rates = truth(gate, accuracy, "continuous")
            spent.append(20 * rates["joint"] + 1 - rates["coverage"])
        correct, wrong = accuracy * norm.cdf(t), (1 - accuracy) * norm.cdf(t - 2)
        best = float((20 * wrong + 1 - correct - wrong).min())
        mean = np.mean(spent)
        out.append(
            f"| {n:,} | {accuracy:g} | 20 | {mean:.4f} | {best:.4f} | "
            f"{mean - best:.4f} |"
        )


def shared_folder():
    """Return the folder of data that is not part of the project."""
    default = Path(__file__).parents[2] / "shared"
    return Path(os.environ.get("TRUSTDOCTOR_SHARED", default))


def real_splits(splits, out):
    """Calibrate on a random half of real predictions, look at the other half."""
    shared = shared_folder()
    sources = {"CIFAR-10, bundled": td.read(bundled_file())}
    if shared.is_dir():
        path = shared / "predictions" / "minilm-imdb-test.npz"
        sources["IMDb, MiniLM"] = td.read(path)
        path = shared / "reference" / "cifar10-densenet-tbb.npz"
        options = {"probs": "values", "labels": "label"}
        sources["CIFAR-10, the authors'"] = td.read(path, **options)
    out.append(
        "| predictions | target | mean on the other half | beyond it | expected |"
    )
    out.append("|---|---|---|---|---|")
    for source, p in sources.items():
        scores, errors = td.alpha(p), p.errors
        for target in ({"frr": 0.05}, {"trr": 0.95}, {"coverage": 0.9}, {"risk": 0.02}):
            ((name, value),) = target.items()
            seen, foreseen = [], []
            for seed in range(splits):
                order = np.random.default_rng(seed).permutation(len(scores))
                fit, test = np.split(order, 2)
                gate = td.calibrate_scores(scores[fit], errors[fit], **target)
                at = td.confusion(scores[test], errors[test], threshold=gate.threshold)
                seen.append(getattr(at, name))
                foreseen.append(chance(gate, at, name, value))
            low = name in ("trr", "coverage")
            beyond = np.mean([x < value if low else x > value for x in seen])
            known = f"{np.mean(foreseen):.1%}" if foreseen[0] is not None else "-"
            out.append(
                f"| {source} | {name} {value:g} | {np.mean(seen):.4f} | {beyond:.1%} | "
                f"{known} |"
            )


def chance(gate, at, name, value):
    """Return how often the other half alone should lie beyond the target.

    The threshold is the k-th of n scores; how many of m others lie beyond it is
    beta-binomial, whatever the scores.
    """
    c = gate.certificate
    if name == "risk":
        return None
    n = {"frr": c.n - c.n_errors, "trr": c.n_errors, "coverage": c.n}[name]
    m = {"frr": at.n_correct, "trr": at.n_errors, "coverage": at.n}[name]
    rate = c.observed[name].value
    if name == "frr":
        k = round((1 - rate) * n)
        return float(betabinom.sf(math.floor(value * m), m, n - k + 1, k))
    if name == "coverage":
        k = round(rate * n)
        return float(betabinom.sf(math.floor((1 - value) * m), m, n - k + 1, k))
    k = round((1 - rate) * n) + 1
    return float(betabinom.sf(math.floor((1 - value) * m), m, k, n - k + 1))


PROMISES = (
    "{n:,} simulated calibrations per cell, {delta:g} allowed to break their promise "
    "(confidence 0.9). Rows 30, 100, 500, 5,000; accuracies 0.6, 0.9, 0.99; scores "
    "continuous, heavily tied, and with fully certain errors. A cell is within the "
    "bound if the share of broken promises is at most 0.1 plus three standard errors; "
    "in expectation, if the mean rate is within three standard errors of the target or "
    "on its safe side. For two targets, a gate that says that no threshold does both, "
    "or that the rows are too few, makes no promise. The last column is about owners "
    "of gates that are not trivial: the bound is over all calibrations, and where "
    "nearly all are trivial, the others deserve no such confidence."
)
OUTLOOK = (
    "Where a calibration cannot promise a risk, it says in what share of calibrations "
    "on as many rows one can. All rows of a file are the population: samples are drawn "
    "from it with replacement. 'observed' is the share of {n:,} calibrations on fresh "
    "samples that accept something, 'stated' what is said on {quarter:,} samples; '8 "
    "of 10 statements' lie between these. Only a calibration that failed says it, and "
    "such samples look worse than most: the last column is the mean of theirs. Cells "
    "whose observed share is below 3% or above 97% are left out. It is too hopeful by "
    "10 to 15 points where a few errors lie evenly among the most certain rows "
    "(RepVGG-A1, SVHN): so few rows show one of them, or none."
)
LUCK = (
    "Gates that pass because almost no error was possible at their size. All rows of "
    "the file are the truth. A flag says that the gate rests on no error, where a "
    "smooth fit to all errors did not make that likely."
)
CLUSTERS = (
    "100 clusters of 20 rows, whose doubts correlate by 0.81 and whose errors are "
    "shared. The promise is for a random row of a random cluster."
)
REAL = (
    "{splits} random halves calibrate alpha, the other halves are looked at. 'beyond "
    "it' is the share of splits whose other half by itself lies beyond the target; "
    "that half is a sample, too, so more than 10% of them must, and 'expected' is what "
    "exchangeability alone foresees."
)
SECTIONS = {
    "promises": ("Every rule", PROMISES),
    "coverage": (
        "Coverage at a promised risk",
        "Mean coverage; a gate that rejects everything counts as 0.",
    ),
    "outlook": ("Too few rows", OUTLOOK),
    "luck": ("Luck", LUCK),
    "clusters": ("Clusters", CLUSTERS),
    "cost": ("Cost", "`cost` promises nothing; it loses this much."),
    "real": ("Real predictions", REAL),
}


def run(name, n, splits, out):
    """Run a section; return cells beyond their bound."""
    if name == "promises":
        judged = [(*cell[:5], judge(cell, n)) for cell in simulate(n, out)]
        return [cell for cell in judged if not cell[-1][2]]
    if name == "clusters":
        beyond = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / (n // 4))
        return [
            ("clusters", share) for share in clusters(n // 4, out) if share > beyond
        ]
    {
        "coverage": lambda: compare_risk(n, out),
        "outlook": lambda: outlook(n, out),
        "luck": lambda: luck(n // 2, out),
        "cost": lambda: regret(n, out),
        "real": lambda: real_splits(splits, out),
    }[name]()
    return []


def read_sections(page):
    """Return the sections that a page has, by their titles."""
    if page is None or not page.is_file():
        return {}
    parts = page.read_text().split("\n## ")[1:]
    return {part.split("\n")[0]: part.strip() for part in parts}


def without_outlooks(*_):
    """Stand in for `certification.outlooks`, which simulates calibrations.

    They change no gate, and the section "outlook" calls them by themselves.
    """
    return ()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calibrations", type=int, default=600)
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    n, splits, only = arguments.calibrations, arguments.splits, arguments.only
    certification.outlooks = (
        without_outlooks  # here, not on import: tests import this file
    )
    sections, bad = read_sections(arguments.out), []
    for name in only.split(","):
        title, words = SECTIONS[name]
        intro = words.format(n=n, delta=DELTA, quarter=n // 4, splits=splits)
        made = (
            f"`python benchmarks/guarantees.py --only {name} --calibrations {n} --out"
        )
        out = [title, "", f"Made by {made} docs/guarantees.md`.", "", intro, ""]
        bad += run(name, n, splits, out)
        sections[title] = "\n".join(out)
    order = [title for title, _ in SECTIONS.values() if title in sections]
    text = "# Do the promises hold?\n\n" + "\n\n".join(
        f"## {sections[title]}" for title in order
    )
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(exist_ok=True)
        arguments.out.write_text(text + "\n")
    for cell in bad:
        print("beyond the bound:", *cell)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
