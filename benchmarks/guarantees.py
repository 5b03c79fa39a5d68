"""Do the promises hold? Simulated calibrations, and splits of real predictions.

``python benchmarks/guarantees.py --out docs/guarantees.md`` runs everything and writes
the page; ``--calibrations`` sets how many per cell. ``--only outlook`` runs a section
(several: separated by commas) and leaves the rest of the page alone. Seeds are fixed.

A cell is a rule, a mode, a number of rows, an accuracy and a kind of scores. Correct
rows score N(0, 1), errors N(2, 1): as they are; rounded to halves (heavily tied); or
fully certain (-inf) with probability 0.3 for correct rows and 0.05 for errors, as a
forest's one-hot probabilities are. The true rates at each threshold are exact. The
section "adversarial" has populations whose risk is just above the target where it
matters: oscillating, tied, and just above it everywhere.
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
from trustdoctor.gates.risk import risk_cut
from trustdoctor.gates.rules import threshold_of
from trustdoctor.gates.sample import Rows

ROWS = (30, 100, 500, 5000)
RISK_ROWS = (30, 100, 200, 300, 500, 1000, 2000, 5000)
ACCURACIES = (0.6, 0.9, 0.99)
KINDS = ("continuous", "tied", "one-hot")
DELTA = 0.1
TARGETS = {
    "frr": {"frr": 0.05},
    "trr": {"trr": 0.95},
    "coverage": {"coverage": 0.9},
    "joint": {"joint": 0.02},
    "risk": {"risk": 0.05},
    "frr and trr": {"frr": 0.4, "trr": 0.8},
    "risk and coverage": {"risk": 0.1, "coverage": 0.5},
    "risk and frr": {"risk": 0.1, "frr": 0.3},
    "risk and trr": {"risk": 0.1, "trr": 0.7},
}
MODES = ("confidence", "expectation")
RULES = [
    (name, mode, target)
    for name, target in TARGETS.items()
    for mode in MODES[: 2 - (len(target) == 2)]
]
RULES.append(("risk, strict", "confidence", {"risk": 0.02}))


def draw(rng, n, accuracy, kind):
    """Return scores and errors of n rows."""
    errors = rng.random(n) >= accuracy
    scores = rng.normal(size=n) + 2.0 * errors
    if kind == "tied":
        scores = np.round(2 * scores) / 2
    if kind == "one-hot":
        is_certain = rng.random(n) < np.where(errors, 0.05, 0.3)
        scores = np.where(is_certain, -np.inf, scores)
    return scores, errors


def below(threshold, mean, kind, certain):
    """Return the probability that a row of one kind scores at most the threshold."""
    if kind == "tied":
        highest_level = (
            math.floor(2 * threshold) if math.isfinite(threshold) else threshold
        )
        return norm.cdf((highest_level + 0.5) / 2 - mean)
    continuous = norm.cdf(threshold - mean)
    return certain + (1 - certain) * continuous if kind == "one-hot" else continuous


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
    (name, mode, target), n, accuracy, kind, calibrations, seed = task
    rng = np.random.default_rng(seed)
    broken_count, rates, nontrivial = 0, [], 0
    for _ in range(calibrations):
        scores, errors = draw(rng, n, accuracy, kind)
        gate = td.calibrate_scores(
            scores, errors, confidence=1 - DELTA, mode=mode, **target
        )
        true_rates = truth(gate, accuracy, kind)
        # A gate that says that no threshold does both makes no promise.
        broken_count += gate.certificate.guarantee and broken(true_rates, target)
        rates.append([true_rates[k] for k in target])
        nontrivial += gate.state == "threshold"
    return name, mode, n, accuracy, kind, broken_count, np.array(rates), nontrivial


def judge(result, calibrations):
    """Return the measured figure of a cell, its bound, and whether it is within."""
    name, mode, _, _, _, broken_count, rates, _ = result
    if mode == "confidence":
        share = broken_count / calibrations
        bound = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / calibrations)
        return share, bound, share <= bound
    target = TARGETS[name]
    worst_excess = -math.inf
    for i, (k, v) in enumerate(target.items()):
        sign = -1 if k in ("trr", "coverage") else 1
        error = rates[:, i].std() / math.sqrt(calibrations)
        excess = sign * (rates[:, i].mean() - v)
        worst_excess = max(worst_excess, excess - 3 * error)
    return worst_excess, 0.0, worst_excess <= 1e-12


def oracle(accuracy, risk, distance=2.0):
    """Return the largest coverage whose true risk is at most `risk`."""
    thresholds = np.linspace(-6, 8, 200_001)
    accepted = accuracy * norm.cdf(thresholds) + (1 - accuracy) * norm.cdf(
        thresholds - distance
    )
    keeping = (1 - accuracy) * norm.cdf(thresholds - distance) <= risk * accepted
    return float(accepted[keeping].max()) if keeping.any() else 0.0


def simulate(calibrations, lines):
    tasks = [
        (rule, n, accuracy, kind, calibrations, seed)
        for seed, (rule, n, accuracy, kind) in enumerate(
            (rule, n, accuracy, kind)
            for rule in RULES
            for n in (RISK_ROWS if list(rule[2]) == ["risk"] else ROWS)
            for accuracy, kind in product(ACCURACIES, KINDS)
        )
    ]
    with Pool(len(os.sched_getaffinity(0))) as pool:
        results = []
        for i, result in enumerate(pool.imap(cell, tasks, chunksize=4)):
            results.append(result)
            if sys.stderr.isatty():
                print(f"\r{i + 1} of {len(tasks)} cells", end="", file=sys.stderr)
    lines.append(
        "| rule | mode | cells | within the bound | worst cell | figure there | "
        "P(broken given not trivial), worst |"
    )
    lines.append("|---|---|---|---|---|---|---|")
    for name, mode, _ in RULES:
        rule_results = [result for result in results if result[:2] == (name, mode)]
        judgements = [judge(result, calibrations) for result in rule_results]
        measured, bounds, within = zip(*judgements, strict=True)
        worst = int(np.argmax(measured))
        _, _, n, accuracy, kind = rule_results[worst][:5]
        figure = f"{measured[worst]:.2%} broken (at most {bounds[worst]:.2%})"
        if mode == "expectation":
            figure = f"mean beyond the target by {measured[worst]:+.4f} less 3 s.e."
            given_decided = "-"
        else:
            given_decided = worst_given_decided(rule_results, calibrations)
        lines.append(
            f"| {name} | {mode} | {len(rule_results)} | {sum(within)} | n = {n}, "
            f"accuracy {accuracy:g}, {kind} | {figure} | {given_decided} |"
        )
    return results


def worst_given_decided(cells, calibrations, fewest=20):
    """Say where gates that are not trivial break most often, and how rare they are."""
    enough_gates = [result for result in cells if result[7] >= fewest]
    if not enough_gates:
        return "-"
    worst = max(enough_gates, key=lambda result: result[5] / result[7])
    return f"{worst[5] / worst[7]:.0%} of the {worst[7] / calibrations:.1%} that decide"


def compare_risk(calibrations, lines):
    """Compare the coverage of the two rules for risk with the oracle."""
    lines.append(
        "| n | accuracy | risk | with confidence | accept nothing | on average | "
        "accept nothing | oracle |"
    )
    lines.append("|---|---|---|---|---|---|---|---|")
    for n, accuracy, risk, runs in (
        (100, 0.9, 0.04, calibrations),
        (200, 0.9, 0.04, calibrations),
        (500, 0.9, 0.04, calibrations),
        (5000, 0.9, 0.04, calibrations // 4),
        (5000, 0.99, 0.005, calibrations // 4),
        (50_000, 0.6, 0.02, 50),
    ):
        coverages = {mode: [] for mode in MODES}
        rng = np.random.default_rng(n)
        for _ in range(runs):
            scores, errors = draw(rng, n, accuracy, "continuous")
            for mode, values in coverages.items():
                gate = td.calibrate_scores(scores, errors, risk=risk, mode=mode)
                values.append(truth(gate, accuracy, "continuous")["coverage"])
        cells = " | ".join(
            f"{np.mean(v):.3f} | {np.mean(np.array(v) == 0):.0%}"
            for v in coverages.values()
        )
        best_coverage = oracle(accuracy, risk)
        lines.append(
            f"| {n:,} | {accuracy:g} | {risk:g} | {cells} | {best_coverage:.3f} |"
        )


LEVELS = 2000
"""Scores of an adversarial population: its true risk is known at each."""

TIES = {"2,000 scores": LEVELS, "20 scores": 20, "7 scores": 7}
ADVERSARIAL_RISKS = (0.02, 0.05, 0.1)
ADVERSARIAL_ROWS = (100, 200, 300, 500, 1000, 2000)


def adversarial_populations(risk):
    """Return the probability of an error at each of `LEVELS` scores, by name.

    Their risk is just above the target at many thresholds, so that many can pass
    wrongly.
    """
    ends = np.arange(1, LEVELS + 1) / LEVELS
    curves = {"just above everywhere": np.full(LEVELS, 1.001 * risk)}
    for turns in (1, 3, 10):  # of the risk curve's logarithm
        speed = 2 * math.pi * turns / math.log(LEVELS)
        for phase in (0.0, math.pi):
            wave = np.sin(speed * np.log(ends) + phase)
            errors = risk * ends * (1 + 0.9 * wave / (1 + speed))
            name = f"oscillations: {turns}, {'down' if phase else 'up'} first"
            curves[name] = np.diff(errors, prepend=0.0) * LEVELS
    for turns in (3, 20):
        for phase in (0.0, math.pi):
            name = f"even waves: {turns}, {'down' if phase else 'up'} first"
            wave = np.sin(2 * math.pi * turns * ends + phase)
            curves[name] = risk * (1.001 + 0.95 * wave)
    clean, jump = ends <= 0.3, (ends > 0.3) & (ends <= 0.3 / (1 - 1.02 * risk))
    curves["clean, then a jump"] = np.where(clean, 0.0, np.where(jump, 1.0, risk))
    for seed in range(4):
        steps = np.random.default_rng(seed).beta(0.5, 2, 10).repeat(LEVELS // 10)
        curves[f"random steps: {seed}"] = steps * 1.01 * risk / steps.mean()
    return {name: np.clip(errors, 0.0, 1.0) for name, errors in curves.items()}


def adversarial_cell(task):
    """Return how often the promise is broken, and the mean risk on average."""
    risk, n, name, ties, calibrations = task
    error_rates = adversarial_populations(risk)[name]
    levels = np.arange(LEVELS) * TIES[ties] // LEVELS
    ends = np.append(np.flatnonzero(np.diff(levels)) + 1, LEVELS)
    true_risks = np.append(0.0, np.cumsum(error_rates)[ends - 1] / ends)
    rng = np.random.default_rng(n)
    broken_count, risks = 0, []
    for _ in range(calibrations):
        rows = rng.integers(0, LEVELS, n)
        sample = Rows(levels[rows].astype(float), rng.random(n) < error_rates[rows])
        for mode in MODES:
            cut = risk_cut(sample, risk, mode=mode, delta=DELTA)
            accepted = {"accept-all": TIES[ties], "reject-all": 0}.get(cut.state)
            if accepted is None:
                accepted = math.floor(threshold_of(cut, sample)) + 1
            if mode == "confidence":
                broken_count += true_risks[accepted] > risk * (1 + 1e-9)
            else:
                risks.append(true_risks[accepted])
    deviation = np.std(risks) / math.sqrt(calibrations)
    return broken_count, np.mean(risks) / risk, deviation / risk


def adversarial(calibrations, lines):
    """Break the promise of risk, if it can be broken; return cells beyond the bound."""
    names = list(adversarial_populations(0.05))
    tasks = [
        (*task, calibrations)
        for task in product(ADVERSARIAL_RISKS, ADVERSARIAL_ROWS, names, TIES)
    ]
    with Pool(len(os.sched_getaffinity(0))) as pool:
        results = pool.map(adversarial_cell, tasks, chunksize=4)
    bound = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / calibrations)
    limit = f"at most {bound:.1%}"
    lines.append(
        "| population | cells | within the bound | worst cell | broken there | "
        "on average: largest mean risk / r |"
    )
    lines.append("|---|---|---|---|---|---|")
    failures = []
    for name in names:
        cells = [
            (result[0] / calibrations, task, result)
            for task, result in zip(tasks, results, strict=True)
            if task[2] == name
        ]
        broken_share, (risk, n, _, ties, _), _ = max(cells)
        _, ratio, deviation = max((result for *_, result in cells), key=lambda r: r[1])
        within = sum(cell[0] <= bound for cell in cells)
        lines.append(
            f"| {name} | {len(cells)} | {within} | n = {n:,}, r = {risk:g}, {ties} | "
            f"{broken_share:.1%} ({limit}) | {ratio:.3f} ± {deviation:.3f} |"
        )
        failures += [cell for cell in cells if cell[0] > bound]
    return failures


def real_gates(task):
    """Return coverage, and what is accepted, broken and flagged, on real rows."""
    path, n, options, runs = task
    p = td.read(path)
    scores, errors, rng = td.alpha(p), p.errors, np.random.default_rng(0)
    order = np.argsort(scores)
    ascending, errors_below = scores[order], np.append(0, np.cumsum(errors[order]))
    outcomes = []
    for _ in range(runs):
        sample = rng.choice(len(scores), n, replace=False)
        gate = td.calibrate_scores(scores[sample], errors[sample], **options)
        accepted = np.searchsorted(ascending, gate.threshold, side="right")
        is_broken = errors_below[accepted] > options["risk"] * accepted
        outcomes.append(
            (
                accepted / len(scores),
                accepted > 0,
                is_broken,
                gate.certificate.passed_by_chance,
            )
        )
    return np.array(outcomes, float).T


def luck(calibrations, lines):
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
        (
            folder / f"{case[0]}.npz",
            case[1],
            {"risk": case[2]},
            calibrations,
        )
        for case in cells
    ]
    lines.append(
        "| predictions | n | risk | accept anything | broken | broken, of those that "
        "accept | flagged, of the broken | flagged, of the kept |"
    )
    lines.append("|---|---|---|---|---|---|---|---|")
    with Pool(len(os.sched_getaffinity(0))) as pool:
        results = pool.map(real_gates, tasks, chunksize=1)
    for (name, n, risk), (_, accepts, is_broken, flagged) in zip(
        cells, results, strict=True
    ):
        holds = accepts * (1 - is_broken)
        lines.append(
            f"| {name.split('/')[-1].removesuffix('-test')} | {n:,} | {risk:g} | "
            f"{accepts.mean():.1%} | {is_broken.mean():.1%} | "
            f"{share(is_broken, accepts)} | {share(flagged * is_broken, is_broken)} | "
            f"{share(flagged * holds, holds)} |"
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
    request, rng = Request({"risk": risk}), np.random.default_rng(rows)

    def find_cut(sample):
        return request.cut(sample, request.delta)

    def sample_of(size):
        drawn = rng.integers(0, len(scores), size)
        return Rows(scores[drawn], errors[drawn])

    successes = [not find_cut(sample_of(rows)).failed for _ in range(calibrations)]
    observed = np.mean(successes)
    if not BETWEEN[0] <= observed <= BETWEEN[1]:
        return source, rows, risk, observed, None, [], [], []
    stated, failed, needed, fresh_successes = [], [], [], []
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
            steps = find_sufficient_rows(sample, find_cut)
            needed.append(steps[1].rows if len(steps) > 1 else math.inf)
            fresh_successes += [
                not find_cut(sample_of(step.rows)).failed for step in steps[1:]
            ]
    return source, rows, risk, observed, stated, failed, needed, fresh_successes


def outlook(calibrations, lines):
    """Compare stated with observed shares of calibrations that accept something."""
    if not (shared_folder() / "predictions").is_dir():
        return
    names = {source: name for name, source in OUTLOOKS.items()}
    tasks = product(OUTLOOKS.values(), OUTLOOK_ROWS, OUTLOOK_RISKS, [calibrations])
    with Pool(len(os.sched_getaffinity(0))) as pool:
        cells = pool.map(stated_and_observed, list(tasks), chunksize=4)
    cells = [cell for cell in cells if cell[4] is not None]
    lines.append(
        "| predictions | n | risk | observed | stated, mean | apart | 8 of 10 "
        "statements | stated where it failed |"
    )
    lines.append("|---|---|---|---|---|---|---|---|")
    differences, errors, single_distances = [], [], []
    for source, rows, risk, observed, stated, failed, _, _ in cells:
        differences.append(np.mean(stated) - observed)
        variance = np.var(stated) / len(stated)
        errors.append(math.sqrt(variance + observed * (1 - observed) / calibrations))
        single_distances += list(np.abs(np.array(stated) - observed))
        low, high = np.quantile(stated, (0.1, 0.9))
        on_failure = f"{np.mean(failed):.0%}" if len(failed) >= 20 else "-"
        lines.append(
            f"| {names[source]} | {rows:,} | {risk:g} | {observed:.0%} | "
            f"{np.mean(stated):.0%} | {100 * differences[-1]:+.0f} ± "
            f"{100 * errors[-1]:.0f} | {low:.0%} to {high:.0%} | {on_failure} |"
        )
    distances, noise = np.abs(differences), np.array(errors)
    lines += [
        "",
        f"On average {100 * distances.mean():.1f} points apart, "
        f"{100 * distances.max():.1f} at most; more than 10 in "
        f"{np.sum(distances > 0.1)} of {len(distances)} cells, by more than two "
        f"standard errors in {np.sum(distances > 0.1 + 2 * noise)}. A single statement "
        f"is {100 * np.median(single_distances):.0f} points from the observed share in "
        f"the median, and within {100 * np.quantile(single_distances, 0.8):.0f} in 8 "
        "of 10 cases: it rests on one sample.",
        "",
        f"Rows said to be enough ({LIKELY:.0%} of calibrations), where a calibration "
        "failed, and whether a calibration on as many fresh rows succeeded:",
        "",
        "| predictions | a number is said | times n, median | fresh rows succeed |",
        "|---|---|---|---|",
    ]
    total = []
    for name, source in OUTLOOKS.items():
        file_cells = [cell for cell in cells if cell[0] == source]
        multiples = np.concatenate([np.array(cell[6]) / cell[1] for cell in file_cells])
        fresh = [success for cell in file_cells for success in cell[7]]
        total += fresh
        if fresh:
            has_number = np.isfinite(multiples)
            lines.append(
                f"| {name} | {has_number.mean():.0%} of {len(multiples)} | "
                f"{np.median(multiples[has_number]):.1f} | {np.mean(fresh):.0%} |"
            )
    lines += ["", f"In all, {np.mean(total):.0%} of {len(total):,} succeed."]


def share(counted, total):
    """Return a share in percent, where there is anything."""
    return f"{counted.sum() / total.sum():.0%}" if total.sum() else "-"


def clustered(task):
    """Run one target on rows in clusters; return how often it breaks, both ways."""
    target, calibrations = task
    rng, broken_counts = np.random.default_rng(4), [0, 0]
    for _ in range(calibrations):
        cluster_ids = np.repeat(np.arange(100), 20)
        errors = np.repeat(rng.random(100) >= 0.9, 20)
        cluster_doubts = np.repeat(rng.normal(size=100), 20)
        scores = 0.9 * cluster_doubts + math.sqrt(1 - 0.81) * rng.normal(size=2000)
        scores += 2.0 * errors
        for i, cluster_options in enumerate(({}, {"clusters": cluster_ids})):
            gate = td.calibrate_scores(scores, errors, **target, **cluster_options)
            broken_counts[i] += broken(truth(gate, 0.9, "continuous"), target)
    return [count / calibrations for count in broken_counts]


def clusters(calibrations, lines):
    """Compare promises on rows in clusters, with and without saying so."""
    targets = [{"frr": 0.1}, {"trr": 0.5}, {"coverage": 0.8}]
    targets += [{"joint": 0.05}, {"risk": 0.05}]
    lines.append("| target | broken, clusters not said | broken, one row per cluster |")
    lines.append("|---|---|---|")
    with Pool(len(os.sched_getaffinity(0))) as pool:
        results = pool.map(clustered, [(t, calibrations) for t in targets], chunksize=1)
    for target, (all_rows, one_per_cluster) in zip(targets, results, strict=True):
        ((name, value),) = target.items()
        lines.append(f"| {name} {value:g} | {all_rows:.1%} | {one_per_cluster:.1%} |")
    return [one_per_cluster for _, one_per_cluster in results]


def regret(calibrations, lines):
    """Report what `cost` loses against the best threshold."""
    lines.append("| n | accuracy | cost | mean cost per row | of the oracle | regret |")
    lines.append("|---|---|---|---|---|---|")
    thresholds = np.linspace(-6, 8, 20_001)
    for n, accuracy in product((100, 500, 5000), (0.9, 0.99)):
        rng = np.random.default_rng(n)
        costs = []
        for _ in range(calibrations // 4):
            gate = td.calibrate_scores(*draw(rng, n, accuracy, "continuous"), cost=20)
            rates = truth(gate, accuracy, "continuous")
            costs.append(20 * rates["joint"] + 1 - rates["coverage"])
        correct, wrong = (
            accuracy * norm.cdf(thresholds),
            (1 - accuracy) * norm.cdf(thresholds - 2),
        )
        best_cost = float((20 * wrong + 1 - correct - wrong).min())
        mean = np.mean(costs)
        lines.append(
            f"| {n:,} | {accuracy:g} | 20 | {mean:.4f} | {best_cost:.4f} | "
            f"{mean - best_cost:.4f} |"
        )


def shared_folder():
    """Return the folder of data that is not part of the project."""
    default = Path(__file__).parents[2] / "shared"
    return Path(os.environ.get("TRUSTDOCTOR_SHARED", default))


def real_splits(splits, lines):
    """Calibrate on a random half of real predictions, look at the other half."""
    shared = shared_folder()
    sources = {"CIFAR-10, bundled": td.read(bundled_file())}
    if shared.is_dir():
        path = shared / "predictions" / "minilm-imdb-test.npz"
        sources["IMDb, MiniLM"] = td.read(path)
        path = shared / "reference" / "cifar10-densenet-tbb.npz"
        options = {"probs": "values", "labels": "label"}
        sources["CIFAR-10, the authors'"] = td.read(path, **options)
    lines.append(
        "| predictions | target | mean on the other half | beyond it | expected |"
    )
    lines.append("|---|---|---|---|---|")
    for source, p in sources.items():
        scores, errors = td.alpha(p), p.errors
        for target in ({"frr": 0.05}, {"trr": 0.95}, {"coverage": 0.9}, {"risk": 0.02}):
            ((name, value),) = target.items()
            rates, chances = [], []
            for seed in range(splits):
                order = np.random.default_rng(seed).permutation(len(scores))
                calibration_rows, test_rows = np.split(order, 2)
                gate = td.calibrate_scores(
                    scores[calibration_rows], errors[calibration_rows], **target
                )
                confusion = td.confusion(
                    scores[test_rows], errors[test_rows], threshold=gate.threshold
                )
                rates.append(getattr(confusion, name))
                chances.append(chance(gate, confusion, name, value))
            is_minimum = name in ("trr", "coverage")
            beyond_share = np.mean(
                [x < value if is_minimum else x > value for x in rates]
            )
            expected_share = (
                f"{np.mean(chances):.1%}" if chances[0] is not None else "-"
            )
            lines.append(
                f"| {source} | {name} {value:g} | {np.mean(rates):.4f} | "
                f"{beyond_share:.1%} | {expected_share} |"
            )


def chance(gate, confusion, name, value):
    """Return how often the other half alone should lie beyond the target.

    The threshold is the k-th of n scores; how many of m others lie beyond it is
    beta-binomial, whatever the scores.
    """
    c = gate.certificate
    if name == "risk":
        return None
    n = {"frr": c.n - c.n_errors, "trr": c.n_errors, "coverage": c.n}[name]
    m = {
        "frr": confusion.n_correct,
        "trr": confusion.n_errors,
        "coverage": confusion.n,
    }[name]
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
    "(confidence 0.9). Rows 30, 100, 500, 5,000, for a risk also 200, 300, 1,000 and "
    "2,000; "
    "accuracies 0.6, 0.9, 0.99; scores continuous, heavily tied, and with fully "
    "certain errors. A risk is tested at all thresholds at once, by the exact "
    "boundary, with a sequence of tests beside it from 200 rows on; beyond 2,000 rows, "
    "in two sequences. A cell is within "
    "the bound if the share of broken promises is at most 0.1 plus three standard "
    "errors; in expectation, if the mean rate is within three standard errors of the "
    "target or on its safe side. For a risk in expectation that is seen here, not "
    "proved: proved is that the probability that a new row is wrong and accepted is at "
    "most the target times that of being accepted by the same rule, had its label been "
    "known. For two targets, a gate that says that no threshold does both, or that the "
    "rows are too few, makes no promise. The last column is about owners of gates that "
    "are not trivial: the bound is over all calibrations, and where nearly all are "
    "trivial, the others deserve no such confidence."
)
ADVERSARIAL = (
    "{n:,} calibrations per cell on populations made to break the promise of risk: the "
    "risk is just above r at many thresholds, or everywhere. Its curve oscillates on a "
    "logarithmic or an even scale of coverage, jumps after a clean start, or changes "
    "in random steps; r is 2%, 5% or 10%, there are 100 to 2,000 rows, and 2,000, 20 "
    "or 7 scores. The proof of the bound (`gates/boundary.py`) covers all of them. The "
    "last column is about the rule on average: the largest mean risk of its cells, "
    "with its standard error; the largest of many exceeds the true one by luck alone."
)
DRAWN = (
    "A promise of risk is about accepted rows alone. `draw` therefore picks the "
    "rows to label among the least doubtful share of a pool, uniformly and at "
    "random, and the gate rejects every row beyond that share. The rows that the "
    "gate may accept are then rows like the drawn ones, so the promise holds as it "
    "stands, whatever the share. Which share is best depends on what the model's "
    "probabilities say of its errors: calibrations are simulated on each of 19 "
    "shares, and the one with the largest mean coverage is taken, less 0.3 for "
    "calibrations that accept nothing. Models are too sure of themselves, so their "
    "probabilities of an error are first multiplied by 5, or by 1.3 where they were "
    "scaled to a known accuracy. Wrong probabilities cost coverage, never the "
    "promise. [With few labels](few_labels.md) compares it with labels drawn from "
    "all rows, on twenty files."
)
AVERAGE = (
    '`--on-average` (`mode="expectation"`) takes the last threshold with (errors + '
    "1) / (rows + 1) at most the target. Proved, by exchangeability of the n + 1 "
    "rows: the probability that a new row is wrong and accepted is at most the "
    "target times that of being accepted by the same rule, had its label been "
    "known. Not proved: that the risk itself is at most the target on average. It "
    "was, within the noise, in the simulations above and on [real "
    "files](few_labels.md). It says nothing of a single gate: up to about half of "
    "them exceed the target, and where most calibrations accept nothing, those that "
    "accept something exceed it, by up to 3.3 times on real files."
)
OUTLOOK = (
    "Where a calibration cannot promise a risk, it says in what share of calibrations "
    "on as many rows one can. All rows of a file are the population: samples are drawn "
    "from it with replacement. 'observed' is the share of {n:,} calibrations on fresh "
    "samples that accept something, 'stated' what is said on {quarter:,} samples; '8 "
    "of 10 statements' lie between these. Only a calibration that failed says it, and "
    "such samples look worse than most: the last column is the mean of theirs. Cells "
    "whose observed share is below 3% or above 97% are left out. It is too hopeful by "
    "12 to 17 points with 500 rows and fewer where a few errors lie evenly among the "
    "most certain rows (RepVGG-A1, SVHN): so few rows show one of them, or none."
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
    "adversarial": ("Adversarial populations", ADVERSARIAL),
    "drawn": ("Labels where they count", DRAWN),
    "average": ("On average", AVERAGE),
    "coverage": (
        "Coverage at a promised risk",
        "Mean coverage; a gate that rejects everything counts as 0. [With few "
        "labels](few_labels.md) has the same on real files, beside other rules.",
    ),
    "outlook": ("Too few rows", OUTLOOK),
    "luck": ("Luck", LUCK),
    "clusters": ("Clusters", CLUSTERS),
    "cost": ("Cost", "`cost` promises nothing; it loses this much."),
    "real": ("Real predictions", REAL),
}


def run(name, n, splits, lines):
    """Run a section; return cells beyond their bound."""
    if name == "promises":
        judged = [(*cell[:5], judge(cell, n)) for cell in simulate(n, lines)]
        return [cell for cell in judged if not cell[-1][2]]
    if name == "adversarial":
        return adversarial(n, lines)
    if name == "clusters":
        bound = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / (n // 4))
        return [
            ("clusters", share) for share in clusters(n // 4, lines) if share > bound
        ]
    {
        "coverage": lambda: compare_risk(n, lines),
        "outlook": lambda: outlook(n, lines),
        "luck": lambda: luck(n // 2, lines),
        "cost": lambda: regret(n, lines),
        "real": lambda: real_splits(splits, lines),
    }[name]()
    return []


def read_sections(page):
    """Return the sections that a page has, by their titles."""
    if page is None or not page.is_file():
        return {}
    sections = page.read_text().split("\n## ")[1:]
    return {section.split("\n")[0]: section.strip() for section in sections}


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
    sections, failures = read_sections(arguments.out), []
    for name in only.split(","):
        title, intro_template = SECTIONS[name]
        intro = intro_template.format(n=n, delta=DELTA, quarter=n // 4, splits=splits)
        command = (
            f"`python benchmarks/guarantees.py --only {name} --calibrations {n} --out"
        )
        if name in ("drawn", "average"):  # words alone
            sections[title] = "\n".join([title, "", intro])
            continue
        lines = [title, "", f"Made by {command} docs/guarantees.md`.", "", intro, ""]
        failures += run(name, n, splits, lines)
        sections[title] = "\n".join(lines)
    order = [title for title, _ in SECTIONS.values() if title in sections]
    text = "# Do the promises hold?\n\n" + "\n\n".join(
        f"## {sections[title]}" for title in order
    )
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(exist_ok=True)
        arguments.out.write_text(text + "\n")
    for cell in failures:
        print("beyond the bound:", *cell)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
