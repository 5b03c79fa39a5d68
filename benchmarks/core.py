"""Ratios of the core against its peers, all in one run: ``make bench``.

Each line says what was timed, against what, and the ratio that is asked for.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.special
import torch
from published import evaluate_published
from sklearn.metrics import roc_auc_score

import trustdoctor as td


def best(function, repeat=3):
    """The shortest of a few runs, in seconds."""
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
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out = td.alpha(z)
    extra = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    extra = extra / 1024 - out.nbytes / 2**20
    ours = best(lambda: td.alpha(z))
    name = f"alpha at {rows:,} x {classes}"
    compiled = torch.compile(torch_alpha)
    tensor = torch.from_numpy(z)
    compiled(tensor)
    torch_time = best(lambda: compiled(tensor))
    line(name, ours, "scipy softmax + formula", best(lambda: scipy_alpha(z), 2), asked)
    print(
        f"{name}: {ours / torch_time:.2f}x the time of torch.compile of softmax + "
        f"formula (at most 1.3x); {max(extra, 0):.0f} MB beyond input and output "
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


def bench_evaluate():
    path = Path(td.__file__).parent / "data" / "cifar10-densenet.npz"
    p = td.adapters.files.read_predictions(path)
    probs = np.exp(p.logits - p.logits.max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    ours = best(lambda: td.evaluate(p, scores=["alpha"]))
    start = time.perf_counter()
    evaluate_published(probs, p.errors, thresholds=1000)
    theirs = (time.perf_counter() - start) * 10
    line(
        "evaluate with alpha on 10,000 rows, intervals included",
        ours,
        "the published loops over 10,000 thresholds (a tenth run, times ten)",
        theirs,
        "at least 100x",
    )
    command = [
        Path(sys.executable).with_name("trustdoctor"),
        "diagnose",
        path,
        "--quiet",
    ]
    took = best(lambda: subprocess.run(command, check=True))
    print(f"trustdoctor diagnose of 10,000 rows, cold: {took:.2f} s (under 3)")


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
    bench_metrics(rng, np.float32)
    bench_metrics(rng, np.float64)
    bench_alpha(rng, 200_000, 1000, "at least 8x")
    bench_alpha(rng, 20_000_000, 10, "at least 6x")


if __name__ == "__main__":
    main()
