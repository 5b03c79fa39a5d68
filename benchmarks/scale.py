"""More rows than memory: local streaming, peers, sketches and Ray, in one run.

    python benchmarks/scale.py [--rows 1e8] [--folder FOLDER] [--peers PYTHON]

Writes a file of logits (rows x 10, float32) into the folder, and times each job in a
process of its own, with its peak memory. PYTHON is an interpreter with the peers
(torchmetrics, pytorch-ood, torch-uncertainty) installed.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEP = 1 << 18

COMMON = """
import resource, sys, time
import numpy as np, polars as pl
file, out = sys.argv[1], sys.argv[2]
columns = [f"logit_{j}" for j in range(10)]
start = time.perf_counter()
"""
END = """
took = time.perf_counter() - start
print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""

WRITE = """
from polars.io.plugins import register_io_source
n, step = int(sys.argv[3]), 1 << 18
def batches(with_columns, predicate, n_rows, batch_size):
    for i, first in enumerate(range(0, n, step)):
        k = min(step, n - first)
        rng = np.random.default_rng(i)
        z = rng.standard_normal((k, 10), dtype=np.float32) * 2
        label = rng.integers(0, 10, k)
        z[np.arange(k), label] += np.where(rng.random(k) < 0.9, 7, 1)
        named = {name: z[:, j] for j, name in enumerate(columns)}
        named["label"] = label.astype(np.int32)
        yield pl.DataFrame(named | {"id": np.arange(first, first + k)})
schema = dict.fromkeys(columns, pl.Float32) | {"label": pl.Int32, "id": pl.Int64}
register_io_source(batches, schema=schema).sink_parquet(file, row_group_size=step)
"""
COPY = """
added = {"score": pl.lit(1.0, pl.Float32), "accepted": pl.lit(True)}
pl.scan_parquet(file).with_columns(**added).sink_parquet(out, row_group_size=1 << 18)
"""
READ = "pl.read_parquet(file, columns=[*columns, 'label'])"
SUM = """
pl.scan_parquet(file).select(pl.col(*columns, "label").sum()).collect(
    engine="streaming")
"""
FAT = """
from polars.io.plugins import register_io_source
step, groups = 10_000, int(sys.argv[3])
def batches(with_columns, predicate, n_rows, batch_size):
    for i in range(10):
        rng = np.random.default_rng(i)
        z = rng.standard_normal((step, 10), dtype=np.float32) * 3
        label = np.where(rng.random(step) < 0.9, z.argmax(1), 0)
        named = {name: z[:, j] for j, name in enumerate(columns)}
        text = [f"{i * step + k:07d}" + "lorem ipsum " * 1700 for k in range(step)]
        yield pl.DataFrame(named | {"label": label.astype(np.int32), "text": text})
schema = dict.fromkeys(columns, pl.Float32) | {"label": pl.Int32, "text": pl.String}
rows = register_io_source(batches, schema=schema)
if file.endswith(".parquet"):
    rows.sink_parquet(file, row_group_size=10 * step // groups)
else:
    packed = "gzip" if file.endswith(".gz") else "uncompressed"
    rows.sink_csv(file, compression=packed, check_extension=False)
"""
CALIBRATE = """
from trustdoctor.cli import make_app
app = make_app()
app(["calibrate", file, "--frr", "0.05", "-o", out, "--memory", "1GB", "--quiet"],
    standalone_mode=False)
"""
SCREEN = """
from trustdoctor.cli import make_app
app = make_app()
app(["screen", file, "--threshold", "-1", "-o", out, "--memory", "1GB", "--quiet"],
    standalone_mode=False)
"""
DIAGNOSE = """
from trustdoctor.cli import make_app
app = make_app()
app(["diagnose", file, "--memory", "1GB", "--quiet"{}], standalone_mode=False)
"""
RAY = """
from trustdoctor.cli import make_app
app = make_app()
app(["screen", file, "--threshold", "-1", "-o", out, "--engine", "ray", "--quiet"],
    standalone_mode=False)
"""

SCORES = """
rng = np.random.default_rng(0)
n = int(sys.argv[3])
errors = rng.random(n) < 0.1
scores = rng.standard_normal(n, dtype=np.float32) + 2 * errors.astype(np.float32)
"""
OURS = "import trustdoctor as td\nstart = time.perf_counter()\n"
PEERS = {
    "trustdoctor, AUROC + FRR@95TRR + AURC": OURS
    + "td.measure(scores, errors, metrics=('auroc', 'frr_at_trr', 'aurc'))",
    "trustdoctor Sketch, all three with bounds": OURS
    + "s = td.Sketch(); s.update(scores, errors)\n"
    "[s.bounds(m) for m in ('auroc', 'frr_at_trr', 'aurc')]",
    "sklearn roc_auc_score": "from sklearn.metrics import roc_auc_score\n"
    "start = time.perf_counter()\nroc_auc_score(errors, scores)",
    "torchmetrics AUROC, exact": "import torch, torchmetrics\n"
    "p, t = torch.sigmoid(torch.from_numpy(scores)), torch.from_numpy(errors)\n"
    "start = time.perf_counter()\n"
    "torchmetrics.functional.classification.binary_auroc(p, t.long())",
    "torchmetrics AUROC, 200 thresholds": "import torch, torchmetrics\n"
    "p, t = torch.sigmoid(torch.from_numpy(scores)), torch.from_numpy(errors)\n"
    "start = time.perf_counter()\n"
    "torchmetrics.functional.classification.binary_auroc(p, t.long(), thresholds=200)",
    "pytorch-ood OODMetrics": "import torch\n"
    "from pytorch_ood.metrics import OODMetrics\n"
    "p, t = torch.from_numpy(scores), torch.where(torch.from_numpy(errors), -1, 1)\n"
    "start = time.perf_counter()\nm = OODMetrics(); m.update(p, t); m.compute()",
    "torch-uncertainty AURC": "import torch\n"
    "from torch_uncertainty.metrics import AURC\n"
    "q = torch.sigmoid(-torch.from_numpy(scores))\n"
    "p = torch.stack([q, 1 - q], 1).clamp(0.5).nan_to_num()\n"
    "t = torch.from_numpy(errors).long()\nstart = time.perf_counter()\n"
    "m = AURC(); m.update(p, t); m.compute()",
}
LOGITS = """
rng = np.random.default_rng(0)
n = int(sys.argv[3])
z = np.tile(rng.standard_normal((n // 100, 100), dtype=np.float32) * 3, (100, 1))
"""
MSP = {
    "trustdoctor msp": "import trustdoctor as td\ntd.msp(z[:9])\n"
    "start = time.perf_counter()\ntd.msp(z)",
    "pytorch-ood MaxSoftmax.score": "import torch\n"
    "from pytorch_ood.detector import MaxSoftmax\nt = torch.from_numpy(z)\n"
    "start = time.perf_counter()\nMaxSoftmax.score(t)",
    "torch-uncertainty MaxSoftmaxCriterion": "import torch\n"
    "from torch_uncertainty.ood_criteria import MaxSoftmaxCriterion\n"
    "t = torch.from_numpy(z)\nstart = time.perf_counter()\nMaxSoftmaxCriterion()(t)",
}


def run(code, *arguments, python=sys.executable, limit=None, timeout=900):
    """Run code in a process of its own; return its seconds and peak megabytes."""
    prefix = ["prlimit", f"--as={limit}"] if limit else []
    command = [*prefix, str(python), "-W", "ignore", "-c", COMMON + code + END]
    process = subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if process.returncode:
        last = (process.stderr.strip().splitlines() or ["killed"])[-1]
        raise RuntimeError(last[:90])
    seconds, peak = process.stdout.split()[-2:]
    return float(seconds), float(peak)


def bench_files(folder, largest):
    print(
        f"{'rows':>12} {'job':<34} {'seconds':>8} {'peak MB':>8}  against", flush=True
    )
    n = 1_000_000
    while n <= largest:
        file, out = folder / f"{n}.parquet", folder / "out.parquet"
        run(WRITE, file, out, n)
        times = {}
        for name, code, peer in (
            ("polars copy, two constant columns", COPY, None),
            ("screen --memory 1GB", SCREEN, "polars copy, two constant columns"),
            ("polars read_parquet", READ, None),
            ("polars streaming sum", SUM, None),
            ("diagnose, alpha", DIAGNOSE.format(", '--score', 'alpha'"), "polars read"),
            ("diagnose, five scores", DIAGNOSE.format(""), "polars read"),
        ):
            results = [run(code, file, out) for _ in range(3 if n < 10**8 else 2)]
            seconds, peak = min(r[0] for r in results), max(r[1] for r in results)
            times[name] = seconds
            against = ""
            if peer == "polars read":
                reading = seconds / times["polars read_parquet"]
                summing = seconds / times["polars streaming sum"]
                against = f"{reading:.2f}x reading, {summing:.2f}x summing"
            elif peer:
                against = f"{seconds / times[peer]:.2f}x the copy (at most 2x)"
            print(
                f"{n:>12,} {name:<34} {seconds:>8.2f} {peak:>8.0f}  {against}",
                flush=True,
            )
        file.unlink()
        n *= 10


def bench_fat(folder):
    """Rows that carry a text of 20 kB: 2 GB of text, in 1 GB of memory."""
    kinds = {
        "one row group": ("one.parquet", 1),
        "10 row groups": ("ten.parquet", 10),
        "CSV": ("fat.csv", 1),
        "CSV, gzipped": ("fat.csv.gz", 1),
    }
    for kind, (name, groups) in kinds.items():
        file = folder / name
        run(FAT, file, "-", groups)
        for job, code, out in (
            ("diagnose", DIAGNOSE.format(""), "-"),
            ("calibrate", CALIBRATE, folder / "gate.json"),
            ("screen to Parquet", SCREEN, folder / "out.parquet"),
            ("screen to CSV", SCREEN, folder / "out.csv"),
        ):
            took, peak = run(code, file, out)
            size = file.stat().st_size / 1e6
            print(
                f"100,000 rows with 20 kB of text, {kind} ({size:,.0f} MB): "
                f"{job:<17} {took:>6.1f} s, peak {peak:>5.0f} MB (at most 1,200)",
                flush=True,
            )
        file.unlink()


def bench_peers(python):
    for title, setup, peers in (
        ("metrics of float32 scores", SCORES, PEERS),
        ("softmax response, 100 classes", LOGITS, MSP),
    ):
        for n in (10**6, 10**7) if setup is LOGITS else (10**7, 10**8):
            for name, code in peers.items():
                is_ours = name.startswith("trustdoctor")
                try:
                    seconds, peak = run(
                        setup + code,
                        "-",
                        "-",
                        n,
                        python=sys.executable if is_ours else python,
                        limit=None if is_ours else 20 << 30,
                        timeout=100,
                    )
                    figures = f"{n / seconds / 1e6:>8.2f} M rows/s {peak:>8.0f} MB"
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    late = isinstance(error, subprocess.TimeoutExpired)
                    figures = "over 100 s" if late else f"stops: {error}"
                print(f"{title}: {n:>11,} {name:<42} {figures}", flush=True)


def bench_ray(folder):
    file, out = folder / "ray.parquet", folder / "out.parquet"
    for n in (1_000_000, 5_000_000):
        run(WRITE, file, out, n)
        ours = min(run(SCREEN, file, out)[0] for _ in range(2))
        theirs = min(run(RAY, file, out)[0] for _ in range(2))
        print(f"screen, {n:,} rows: local {ours:.2f} s, ray {theirs:.2f} s", flush=True)
    file.unlink()


def bench_sketch(rows):
    import numpy as np

    import trustdoctor as td
    from trustdoctor.demo import bundled_file

    shared = Path(
        os.environ.get("TRUSTDOCTOR_SHARED", Path(__file__).parents[2] / "shared")
    )
    sources = {"the bundled DenseNet": td.read(bundled_file())}
    for file in sorted((shared / "predictions").glob("*test.npz")):
        sources[file.stem] = td.read(file)
    for name, p in sources.items():
        for score in ("alpha",):
            doubts = td.SCORES[score](p).astype(np.float64)
            finite = np.sort(doubts[np.isfinite(doubts)])
            gap = float(np.median(np.diff(finite)[np.diff(finite) > 0]))
            sketch, rng, start = (
                td.Sketch(),
                np.random.default_rng(0),
                time.perf_counter(),
            )
            counting = 0.0
            for _ in range(max(1, rows // 10_000_000)):
                drawn_rows = rng.integers(0, len(doubts), min(rows, 10_000_000))
                drawn = doubts[drawn_rows] + gap * rng.standard_normal(
                    len(drawn_rows), dtype=np.float32
                )
                began = time.perf_counter()
                sketch.update(drawn, p.errors[drawn_rows])
                counting += time.perf_counter() - began
            widths = {
                m: np.subtract(*sketch.bounds(m)[::-1])
                for m in ("auroc", "frr_at_trr", "aurc")
            }
            shown = ", ".join(f"{m} {w:.1e}" for m, w in widths.items())
            print(
                f"sketch of {len(sketch):,} rows resampled from {name}, {score}, "
                f"jittered by {gap:.1e}: bounds {shown} wide (at most 1e-4); "
                f"{len(sketch.to_bytes()) / 1e6:.1f} MB; "
                f"{len(sketch) / counting / 1e6:.0f} M rows/s; "
                f"{time.perf_counter() - start:.0f} s in all",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--sketch", type=float, default=1e8)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--only", default="files,fat,sketch,ray,peers")
    options = parser.parse_args()
    version = platform.python_version()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {version}")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if "files" in options.only:
            bench_files(Path(folder), int(options.rows))
        if "fat" in options.only:
            bench_fat(Path(folder))
        if "ray" in options.only:
            bench_ray(Path(folder))
    if "sketch" in options.only:
        bench_sketch(int(options.sketch))
    if "peers" in options.only:
        bench_peers(options.peers or sys.executable)


if __name__ == "__main__":
    main()
