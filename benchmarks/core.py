"""Ratios of the core against its peers, all in one run: ``make bench``.

Each line says what was timed, against what, and the ratio that is asked for. Alpha and
the metrics are timed once for each instruction set of the processor, and once without
the C kernel, each in a process of its own and next to its peer; ``--kernel`` is such
a process. The other lines are those of the widest instruction set.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.special
import torch
from pages import processor
from sklearn.metrics import roc_auc_score

import trustdoctor as td
from trustdoctor.demo import bundled_file
from trustdoctor.kernels import _native, cores, order, place
from trustdoctor.reproduce.timings import (
    count_published,
    thresholds_published,
    values_published,
)

BUNDLED = bundled_file()


REQUIRED_RATIOS = {"baseline": (3, 3, 12), "numpy": (1, 1, None)}
"""How often faster than the peer alpha of 1000 classes, of 10, and metrics shall be."""


WIDE = (8, 6, 12)


def kernel():
    """Name the kernel of this process: an instruction set, or numpy."""
    return _native.ISAS[_native.isa] if _native.available else "numpy"


def best(function, repeat=3, seconds=2):
    """Return the shortest of `repeat` runs, or of more that fit in a few seconds."""
    times = []
    while len(times) < repeat or sum(times) < seconds:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def line(task, ours, peer, theirs, requirement):
    ratio = theirs / ours
    print(
        f"[{kernel()}, {processor()}, {cores()} cores] {task}: {ours:.3f} s; "
        f"{peer} {theirs:.3f} s: {ratio:.1f}x ({requirement})",
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


def bench_alpha(rng, rows, classes, requirement):
    block = rng.normal(size=(rows // 100, classes)).astype(np.float32) * 3
    z = np.tile(block, (100, 1))
    td.alpha(z[:10])
    extra = extra_megabytes(lambda: td.alpha(z))
    ours = best(lambda: td.alpha(z))
    name = f"alpha at {rows:,} x {classes}"
    line(
        name,
        ours,
        "scipy softmax + formula",
        best(lambda: scipy_alpha(z), 2),
        requirement,
    )
    print(f"  {extra:.0f} MB beyond input and output (under 64)", flush=True)


def bench_lengths(rng, rows, classes):
    """Time alpha of normalised logits next to alpha, by turns."""
    z = rng.normal(size=(rows, classes)).astype(np.float32)
    jobs = {0: lambda: td.alpha(z)}
    for p in (2, 3, 4, 5):
        jobs[p] = lambda p=p: td.normalised_alpha(z, p=p)
    times = dict.fromkeys(jobs, np.inf)
    for _ in range(6):
        times = {p: min(times[p], best(job, 1, 0)) for p, job in jobs.items()}
    shown = ", ".join(f"p={p} {times[p] / times[0]:.2f}" for p in jobs if p)
    print(
        f"[{kernel()}, {processor()}, {cores()} cores] normalised_alpha at {rows:,} x "
        f"{classes} against alpha, {times[0]:.3f} s: {shown} times (at most 1.5)",
        flush=True,
    )


def bench_tune(rng):
    """Time the search of `tune`."""
    z = 3 * rng.normal(size=(2000, 100)).astype(np.float32)
    labels = np.where(rng.random(2000) < 0.7, z.argmax(1), 0)
    p = td.Predictions.from_logits(z, labels)
    print(f"tune on 2,000 x 100: {best(lambda: td.tune(p)):.3f} s (below 1)")


def bench_torch(rng, rows, classes):
    """Alpha against what torch makes of the same formula."""
    z = rng.normal(size=(rows // 100, classes)).astype(np.float32) * 3
    tensor = torch.from_numpy(np.tile(z, (100, 1)))
    compiled = torch.compile(torch_alpha)
    compiled(tensor)
    theirs = best(lambda: compiled(tensor))
    ours = best(lambda: td.alpha(tensor.numpy()))
    print(
        f"alpha at {rows:,} x {classes}: {ours / theirs:.2f}x the time of "
        "torch.compile of softmax + formula (at most 1.3x)",
        flush=True,
    )


def bench_metrics(rng, dtype, requirement):
    n = 10_000_000
    errors = rng.random(n) < 0.1
    scores = (rng.normal(size=n) + 2 * errors).astype(dtype)
    theirs = best(lambda: roc_auc_score(errors, scores), 2)

    def together():
        td.measure(scores, errors, metrics=("auroc", "frr_at_trr", "aurc"))

    def in_turn():
        c = td.counts(scores, errors)
        td.auroc(c)
        td.frr_at_trr(c)
        td.aurc(c)

    for way, function in (("in one call", together), ("of counts", in_turn)):
        task = f"AUROC + FRR@95TRR + AURC at {n:,} {np.dtype(dtype).name} rows, {way}"
        line(task, best(function), "sklearn roc_auc_score alone", theirs, requirement)


def bench_sorting(rng, dtype):
    """Time the kernels that order scores, and place some among others."""
    n = 10_000_000
    errors = rng.random(n) < 0.1
    scores = (rng.normal(size=n) + 2 * errors).astype(dtype)
    kind = np.dtype(dtype).name
    ours, theirs = best(lambda: order(scores)), best(lambda: np.argsort(scores), 1)
    line(f"order of {n:,} {kind} scores", ours, "np.argsort", theirs, "over 1x")
    wrong, correct = np.sort(scores[errors]), np.sort(scores[~errors])
    ours = best(lambda: place(wrong, correct) and place(correct, wrong))
    theirs = best(
        lambda: [
            np.searchsorted(among, scores_placed, side)
            for scores_placed, among in ((wrong, correct), (correct, wrong))
            for side in ("left", "right")
        ],
        1,
    )
    line(f"places of {n:,} {kind} scores", ours, "np.searchsorted", theirs, "over 1x")


def bench_kernel():
    """Time the kernel of this process."""
    for_many_classes, for_few_classes, metrics = (
        "any" if ratio is None else f"at least {ratio}x"
        for ratio in REQUIRED_RATIOS.get(kernel(), WIDE)
    )
    rng = np.random.default_rng(0)
    bench_alpha(rng, 200_000, 1000, for_many_classes)
    bench_alpha(rng, 20_000_000, 10, for_few_classes)
    bench_lengths(rng, 200_000, 1000)
    bench_metrics(rng, np.float32, metrics)
    bench_metrics(rng, np.float64, metrics)


def bench_each_kernel():
    sets = [{"TRUSTDOCTOR_ISA": name} for name in _native.instruction_sets()]
    for forced in (*sets, {"TRUSTDOCTOR_NATIVE": "0"}):
        command = [sys.executable, __file__, "--kernel"]
        subprocess.run(command, check=True, env={**os.environ, **forced})


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
    origin, p = authors_predictions()
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
        f"evaluate with alpha on {origin}, intervals included",
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
    seconds = best(lambda: subprocess.run(command, check=True))
    print(f"trustdoctor diagnose of 10,000 rows, cold: {seconds:.2f} s (under 3)")


def bench_page():
    """Time an evaluation of five scores, all metrics and intervals; then its page."""
    rng = np.random.default_rng(0)
    requirements = {1_000_000: "CPU: at most 2", 10_000_000: "clock: at most 15"}
    for n in (10_000, 1_000_000, 10_000_000):
        logits = 3 * rng.standard_normal((n, 10), dtype=np.float32)
        labels = np.where(rng.random(n) < 0.9, logits.argmax(1), 0)
        p = td.Predictions.from_logits(logits, labels)
        start, cpu = time.perf_counter(), time.process_time()
        evaluation = td.evaluate(p)
        middle, cpu = time.perf_counter(), time.process_time() - cpu
        page = evaluation.to_html()
        end = time.perf_counter()
        print(
            f"evaluate {n:,} x 10, five scores, all metrics and intervals: "
            f"{middle - start:.1f} s, {cpu:.1f} s of CPU "
            f"({requirements.get(n, 'any')}); "
            f"its page {len(page.encode()) / 1000:.0f} kB (under 300), "
            f"{end - middle:.1f} s",
            flush=True,
        )


def bench_start():
    for task, code in (
        ("import trustdoctor", "import trustdoctor"),
        ("trustdoctor --help", "from trustdoctor.cli import main; main()"),
    ):
        command = [sys.executable, "-c", code]
        if "help" in task:
            command.append("--help")
        seconds = best(
            lambda c=command: subprocess.run(c, check=True, capture_output=True), 5
        )
        bare = best(lambda: subprocess.run([sys.executable, "-c", ""], check=True), 5)
        print(f"{task}: {seconds:.2f} s, a bare interpreter {bare:.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", action="store_true", help="time the kernel alone")
    if parser.parse_args().kernel:
        bench_kernel()
        return
    rng = np.random.default_rng(0)
    print(json.dumps({"numpy": np.__version__, "torch": torch.__version__}))
    bench_each_kernel()
    bench_torch(rng, 200_000, 1000)
    bench_torch(rng, 20_000_000, 10)
    bench_sorting(rng, np.float32)
    bench_sorting(rng, np.float64)
    bench_calibrate(rng)
    bench_tune(rng)
    bench_start()
    bench_evaluate()
    bench_page()


if __name__ == "__main__":
    main()
