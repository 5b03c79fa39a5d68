"""One version beside an earlier one: ratios of CPU time, in turns, in one run.

    python benchmarks/versions.py OLD_PYTHON [NEW_PYTHON] [--rounds 5] [--only NAME ...]

OLD_PYTHON and NEW_PYTHON are interpreters with the two versions installed (of their
wheels or checkouts, so that both have their kernels); by default NEW_PYTHON is the one
that runs this. Each job runs in processes of its own, old and new in turns, and the
medians are compared; below 1 the new version is faster. CPU time instead of time on the
clock, since other processes share the machine; the calls whose waiting counts
(command line) are timed by the clock as well.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

from pages import processor, table

SETUP = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import trustdoctor as td
rng = np.random.default_rng(0)

def rows(n, classes=10, dtype=np.float32):
    z = (2 * rng.standard_normal((n, classes))).astype(dtype)
    labels = rng.integers(0, classes, n)
    z[np.arange(n), labels] += np.where(rng.random(n) < 0.9, 7, 1)
    return td.Predictions.from_logits(z, labels)

def report(call, times):
    call()
    spent = []
    for _ in range(times):
        start = time.process_time()
        call()
        spent.append(time.process_time() - start)
    print(json.dumps(min(spent)))
"""

JOBS = {
    "calibrate risk, 5,000 rows": """
p = rows(5000)
report(lambda: td.calibrate(p, risk=0.03), 5)""",
    "calibrate frr, 1,000,000 rows": """
p = rows(1_000_000)
report(lambda: td.calibrate(p, frr=0.05), 3)""",
    "evaluate, 100,000 rows, five scores": """
z, y = rows(100_000).logits, rows(100_000).labels
report(lambda: td.evaluate(td.Predictions.from_logits(z, y)), 3)""",
    "gate.screen, one row of an array": """
gate = td.calibrate(rows(5000), frr=0.05)
one = rows(1).logits
def many():
    for _ in range(2000):
        gate.screen(one, kind="logits")
report(many, 3)""",
    "gate.screen, 1,000,000 rows": """
gate, p = td.calibrate(rows(5000), frr=0.05), rows(1_000_000)
report(lambda: gate.screen(p), 5)""",
    "watch.update, 50 x 1,000 rows": """
gate = td.calibrate(rows(5000), risk=0.03)
batches = [rows(1000) for _ in range(50)]
def watch():
    w = gate.watch()
    for batch in batches:
        w.update(batch)
report(watch, 3)""",
    "tune, 2,000 rows": """
p = rows(2000)
report(lambda: td.tune(p), 3)""",
    "compare, 6,000 rows": """
p = rows(6000)
report(lambda: td.compare(p), 3)""",
}

COMMANDS = {
    "import trustdoctor": ["-c", "import trustdoctor"],
    "trustdoctor --help": ["-m", "trustdoctor", "--help"],
    "diagnose, 5,000 rows": ["-m", "trustdoctor", "diagnose", "rows.csv"],
    "calibrate --risk, 5,000 rows": [
        *("-m", "trustdoctor", "calibrate", "rows.csv", "--risk", "5%"),
        *("-o", "gate.json", "-q"),
    ],
    "screen, 5,000 rows": [
        *("-m", "trustdoctor", "screen", "rows.csv", "--threshold", "-2"),
        *("-o", "decided.csv", "-q"),
    ],
}

CLOCK = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, capture_output=True)
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = spent.ru_utime + spent.ru_stime
print(json.dumps([time.perf_counter() - start, cpu]))
"""

WRITE = """
p = rows(5000, dtype=np.float64)
names = ",".join([*(f"logit_{k}" for k in range(10)), "label"])
table = np.column_stack([p.logits, p.labels])
np.savetxt("rows.csv", table, delimiter=",", header=names, comments="", fmt="%.6f")
"""


def run(python, code, folder, *arguments):
    completed = subprocess.run(
        [python, "-c", code, *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    return json.loads(completed.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new", nargs="?", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[])
    options = parser.parse_args()
    pythons = {"old": options.old, "new": options.new}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.new, "-c", SETUP + WRITE], check=True, cwd=folder)
        lines = []
        for name in [*JOBS, *COMMANDS]:
            if options.only and not any(part in name for part in options.only):
                continue
            spent = {"old": [], "new": []}
            for _ in range(options.rounds):
                for version, python in pythons.items():
                    if name in JOBS:
                        seconds = run(python, SETUP + JOBS[name], folder)
                        spent[version].append((seconds, seconds))
                    else:
                        command = [python, *COMMANDS[name]]
                        spent[version].append(
                            run(sys.executable, CLOCK, folder, *command)
                        )
            clock, cpu = (
                [statistics.median(s[k] for s in spent[v]) for v in ("old", "new")]
                for k in (0, 1)
            )
            waited = f"{clock[1] / clock[0]:.2f}" if name in COMMANDS else ""
            lines.append(
                (
                    name,
                    f"{1000 * cpu[0]:,.1f}",
                    f"{1000 * cpu[1]:,.1f}",
                    f"{cpu[1] / cpu[0]:.2f}",
                    waited,
                )
            )
            print(*lines[-1], sep=" | ", flush=True)
    head = ("job", "old, ms", "new, ms", "new/old", "by the clock")
    print(f"\n{processor()}\n")
    print(table(head, lines))


if __name__ == "__main__":
    main()
