"""Ratios of the core against its peers, all in one run: ``make bench``.

Each line says what was timed, against what, and the ratio that is asked for.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.special
import torch
from sklearn.metrics import roc_auc_score

import trustdoctor as td
from trustdoctor.demo import bundled_file
from trustdoctor.reproduce.timings import (
    count_published,
    thresholds_published,
    values_published,
)

BUNDLED = bundled_file()


def best(function, repeat=3):
    """Return the shortest of a few runs, in seconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def line(what, ours, peer, theirs, asked):
    ratio = theirs / ours
    print(
        f"{what}: {ours:.3f} s; {peer} {theirs:.3f} s: {ratio:.1f}x ({asked})",
        flush=True,
    )


def extra_megabytes(function):
    """Return the peak memory of a call beyond what stood before and its result."""
    status = Path("/proc/self/status")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far

    def resident(field):
        return int(status.read_text().split(f"{field}:")[1].split()[0]) / 1024

    before = resident("VmRSS")
    result = function()
    return resident("VmHWM") - before - result.nbytes / 2**20


def scipy_alpha(z):
    p = scipy.special.softmax(z, axis=1)
    g = (p * p).sum(1)
    return (1 - g) / g


def torch_alpha(z):
    p = torch.softmax(z, 1)
    g = (p * p).sum(1)
    return (1 - g) / g


def bench_alpha(rng, rows, classes, asked):
    block = rng.normal(size=(rows // 100, classes)).astype(np.float32) * 3
    z = np.tile(block, (100, 1))
    td.alpha(z[:10])
    extra = extra_megabytes(lambda: td.alpha(z))
    ours = best(lambda: td.alpha(z))
    name = f"alpha at {rows:,} x {classes}"
    compiled = torch.compile(torch_alpha)
    tensor = torch.from_numpy(z)
    compiled(tensor)
    torch_time = best(lambda: compiled(tensor))
    line(name, ours, "scipy softmax + formula", best(lambda: scipy_alpha(z), 2), asked)
    print(
        f"{name}: {ours / torch_time:.2f}x the time of torch.compile of softmax + "
        f"formula (at most 1.3x); {extra:.0f} MB beyond input and output "
        "(under 64)",
        flush=True,
    )


def bench_metrics(rng, dtype):
    n = 10_000_000
    errors = rng.random(n) < 0.1
    scores = (rng.normal(size=n) + 2 * errors).astype(dtype)
    names = ("auroc", "frr_at_trr", "aurc")
    ours = best(lambda: td.measure(scores, errors, metrics=names))
    theirs = best(lambda: roc_auc_score(errors, scores), 1)
    line(
        f"AUROC + FRR@95TRR + AURC at {n:,} {np.dtype(dtype).name} rows",
        ours,
        "sklearn roc_auc_score alone",
        theirs,
        "at least 12x",
    )
    print(f"  np.sort of the same scores: {best(lambda: np.sort(scores)):.3f} s")


def authors_predictions():
    """Return the authors' rows where they are at hand, else the bundled ones."""
    default = Path(__file__).parents[2] / "shared"
    shared = Path(os.environ.get("TRUSTDOCTOR_SHARED", default))
    path = shared / "reference" / "cifar10-densenet-tbb.npz"
    if path.exists():
        return "the authors' 10,000 rows", td.read(path, probs="values", labels="label")
    return "the bundled 10,000 rows", td.read(BUNDLED)


def bench_calibrate(rng):
    n = 10_000_000
    errors = rng.random(n) < 0.1
    scores = (rng.normal(size=n) + 2 * errors).astype(np.float32)
    sort, argsort = best(lambda: np.sort(scores)), best(lambda: np.argsort(scores), 1)
    print(
        f"calibrate at {n:,} float32 rows; sort {sort:.2f} s, argsort {argsort:.2f} s"
    )
    for target in ({"frr": 0.05}, {"trr": 0.95}, {"coverage": 0.9}, {"joint": 0.02}):
        took = best(lambda t=target: td.calibrate_scores(scores, errors, **t))
        print(f"  {target}: {took / sort:.2f}x np.sort (at most 3x)", flush=True)
    took = best(lambda: td.calibrate_scores(scores, errors, risk=0.04))
    print(f"  risk 0.04: {took / argsort:.2f}x np.argsort (at most 1.5x)", flush=True)


def bench_evaluate():
    which, p = authors_predictions()
    probs = scipy.special.softmax(p.logits, axis=1)
    ours = best(lambda: td.evaluate(p, scores=["alpha"]))
    start = time.perf_counter()
    ratios = values_published(probs, "alpha")
    thresholds = thresholds_published(ratios)
    fixed = time.perf_counter() - start
    start = time.perf_counter()
    count_published(ratios, p.errors.tolist(), thresholds[::30])
    theirs = fixed + 30 * (time.perf_counter() - start)
    line(
        f"evaluate with alpha on {which}, intervals included",
        ours,
        f"the published loops over {len(thresholds):,} thresholds (a 30th timed)",
        theirs,
        "at least 100x",
    )
    command = [
        Path(sys.executable).with_name("trustdoctor"),
        "diagnose",
        BUNDLED,
        "--quiet",
    ]
    took = best(lambda: subprocess.run(command, check=True))
    print(f"trustdoctor diagnose of 10,000 rows, cold: {took:.2f} s (under 3)")


def bench_page():
    """Size and time of the page, at ten thousand and at ten million rows."""
    rng = np.random.default_rng(0)
    for n in (10_000, 10_000_000):
        logits = 3 * rng.standard_normal((n, 10), dtype=np.float32)
        labels = np.where(rng.random(n) < 0.9, logits.argmax(1), 0)
        p = td.Predictions.from_logits(logits, labels)
        start = time.perf_counter()
        found = td.evaluate(p)
        middle = time.perf_counter()
        page = found.to_html()
        end = time.perf_counter()
        print(
            f"page of {n:,} rows: {len(page.encode()) / 1000:.0f} kB (under 300), "
            f"{end - middle:.1f} s; the evaluation before it {middle - start:.1f} s",
            flush=True,
        )


def bench_start():
    for what, code in (
        ("import trustdoctor", "import trustdoctor"),
        ("trustdoctor --help", "from trustdoctor.cli import main; main()"),
    ):
        command = [sys.executable, "-c", code]
        if "help" in what:
            command.append("--help")
        took = best(
            lambda c=command: subprocess.run(c, check=True, capture_output=True), 5
        )
        bare = best(lambda: subprocess.run([sys.executable, "-c", ""], check=True), 5)
        print(f"{what}: {took:.2f} s, a bare interpreter {bare:.2f} s")


def main():
    rng = np.random.default_rng(0)
    print(json.dumps({"numpy": np.__version__, "torch": torch.__version__}))
    bench_start()
    bench_evaluate()
    bench_page()
    bench_metrics(rng, np.float32)
    bench_metrics(rng, np.float64)
    bench_calibrate(rng)
    bench_alpha(rng, 200_000, 1000, "at least 8x")
    bench_alpha(rng, 20_000_000, 10, "at least 6x")


if __name__ == "__main__":
    main()
