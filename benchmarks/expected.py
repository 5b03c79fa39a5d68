"""The accuracy that `td.expected` gives unlabelled rows, beside NannyML's CBPE.

    python benchmarks/expected.py SHARED [--nannyml PYTHON] [--page PAGE] [--json FILE]

SHARED holds predictions/*-test.npz and predictions/public/*-test.npz. Each file is
split at random into reference rows, whose labels are known, and the rest, from which
every scenario draws one chunk. Both see the same rows. PYTHON is an interpreter with
nannyml 0.13 (and statsmodels, which it imports); without it our figures are printed
alone. What stands in PAGE between ``<!-- made: expected -->`` and ``<!-- /made -->`` is
made here.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from pages import processor
from scipy.special import softmax
from scipy.stats import t

import trustdoctor as td

CHUNK, FRR = 1000, 0.05
PUBLIC = ("resnet20", "resnet56", "vgg16_bn", "mobilenetv2_x1_0", "shufflenetv2_x1_0")
PUBLIC = (*PUBLIC, "repvgg_a1")
SETS = {
    "CIFAR-10, our two nets": (
        "resnet-20-cifar10-test",
        "densenet-bc-100-12-cifar10-test",
    ),
    "CIFAR-10, six public nets": [f"public/{net}-cifar10-test" for net in PUBLIC],
    "CIFAR-100, six public nets": [f"public/{net}-cifar100-test" for net in PUBLIC],
    "IMDb, our MiniLM": ("minilm-imdb-test",),
}
SCENARIOS = {
    "clean": "clean",
    "hard": "classes of low accuracy",
    "easy": "classes of high accuracy",
    "doubtful": "more of the doubtful rows",
    "very doubtful": "many more of them",
    "noise 0.1": "noise of 0.1 of the logits' spread",
    "noise 0.25": "noise of 0.25",
    "noise 0.5": "noise of 0.5",
    "noise 1": "noise of 1",
}
DOUBTS = {"doubtful": 1.5, "very doubtful": 3.0}
START, END = "<!-- made: expected -->", "<!-- /made -->"

# Run by the other interpreter: files of reference and new probabilities to estimates.
CBPE = """
import os, sys, warnings
os.environ["NML_DISABLE_USAGE_LOGGING"] = "1"
warnings.filterwarnings("ignore")
import nannyml, numpy as np, pandas as pd

def frame(probs, names):
    return pd.DataFrame(probs, columns=names).assign(said=probs.argmax(1))

for path in sys.argv[2:]:
    with np.load(path) as file:
        known, labels, new = file["known"], file["labels"], file["new"]
    names = [f"p{k}" for k in range(known.shape[1])]
    two = len(names) == 2
    kind = "binary" if two else "multiclass"
    estimator = nannyml.CBPE(
        problem_type=f"classification_{kind}", metrics=["accuracy"],
        y_pred_proba="p1" if two else dict(enumerate(names)),
        y_pred="said", y_true="truth", chunk_size=int(sys.argv[1]),
    )
    estimator.fit(frame(known, names).assign(truth=labels))
    found = estimator.estimate(frame(new, names)).filter(period="analysis").to_df()
    np.save(path.replace(".npz", ".npy"), found[("accuracy", "value")].to_numpy(float))
print(nannyml.__version__)
"""


def chunks(p, reference, rng):
    """Draw the rows of every scenario."""
    known = reference.labels
    right = np.bincount(known, ~reference.errors, p.n_classes)
    accuracy = right / np.maximum(np.bincount(known, minlength=p.n_classes), 1)
    order, some = np.argsort(accuracy), max(1, round(0.3 * p.n_classes))
    ranks = td.beta(p).argsort().argsort() / len(p)
    z = reference.logits.astype(np.float64)
    spread = (z - z.mean(1, keepdims=True)).std()
    for name in SCENARIOS:
        weights = np.exp(DOUBTS.get(name, 0.0) * ranks)
        if name in ("hard", "easy"):
            own = order[:some] if name == "hard" else order[-some:]
            weights = np.isin(p.labels, own).astype(float)
        drawn = p[rng.choice(len(p), CHUNK, replace=False, p=weights / weights.sum())]
        if name.startswith("noise"):
            noise = (
                float(name.split()[1]) * spread * rng.normal(size=drawn.logits.shape)
            )
            drawn = td.Predictions.from_logits(drawn.logits + noise, drawn.labels)
        yield name, drawn


def look_at(path, given):
    """Return one record for each split and scenario of a file."""
    with np.load(path) as file:
        logits, labels = file["logits"], file["labels"]
    p = td.Predictions.from_logits(logits, labels)
    records, written = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for split in range(given.splits):
            rng = np.random.default_rng(split)
            first, rest = np.split(rng.permutation(len(p)), [given.reference])
            reference = p[first]
            drawn = dict(chunks(p[rest], reference, rng))
            records += ours(drawn, reference)
            written.append(f"{scratch}/{split}.npz")
            new = np.concatenate([rows.logits for rows in drawn.values()])
            known = softmax(reference.logits.astype(np.float64), axis=1)
            new = softmax(new.astype(np.float64), axis=1)
            np.savez(written[-1], known=known, labels=reference.labels, new=new)
        theirs, version = cbpe(given.nannyml, written)
    for record, value in zip(records, theirs, strict=True):
        record["NannyML"] = value
    return records, version


def ours(drawn, reference):
    """Return what is expected of every chunk, and what is so."""
    known = td.Reference.fit(reference)
    gate = td.calibrate(reference, score="alpha", frr=FRR)
    first = td.expected(reference, reference=known, gate=gate)
    for name, rows in drawn.items():
        found = td.expected(rows, reference=known, gate=gate)
        yield {
            "scenario": name,
            "accuracy": found.accuracy_check.actual.value,
            "reference": known.correct / known.n,
            "trustdoctor": found.accuracy.value,
            "inside": found.accuracy_check.fits,
            "risk": found.risk_check.actual.value,
            "reference risk": first.risk_check.actual.value,
            "expected risk": found.risk.value,
            "risk inside": found.risk_check.fits,
        }


def cbpe(python, written):
    """Return NannyML's estimates of all chunks, and its version; without it, NaN."""
    if python is None:
        return [np.nan] * (len(SCENARIOS) * len(written)), ""
    done = subprocess.run(
        [python, "-c", CBPE, str(CHUNK), *written],
        check=True,
        capture_output=True,
        text=True,
    )
    found = [np.load(path.replace(".npz", ".npy")) for path in written]
    return np.concatenate(found).tolist(), done.stdout.split()[-1]


def error(records, name, actual="accuracy"):
    """Return the mean absolute error, in points."""
    return 100 * np.mean([abs(r[name] - r[actual]) for r in records])


def line(title, records):
    """Return one line of the tables."""
    errors = [error(records, name) for name in ("reference", "NannyML", "trustdoctor")]
    shown = [f"{100 * np.mean([r['accuracy'] for r in records]):.1f}"]
    shown += [f"{value:.2f}".replace("nan", "-") for value in errors]
    inside = f"{np.mean([r['inside'] for r in records]):.0%}"
    return f"| {title} | " + " | ".join([*shown, inside]) + " |"


def table(title, groups):
    """Return lines for groups of records, and one for all of them."""
    every = [record for records in groups.values() for record in records]
    head = f"| {title} | actual accuracy | reference accuracy | NannyML's CBPE | "
    return "\n".join(
        [
            f"{head}`td.expected` | in its band |",
            "|---|---|---|---|---|---|",
            *(line(name, records) for name, records in groups.items()),
            line("all", every),
        ]
    )


def paired_words(by_file):
    """Say by how much NannyML's error is larger, with an interval over the models."""
    less = {
        name: error(records, "NannyML") - error(records, "trustdoctor")
        for name, records in by_file.items()
    }
    if np.isnan(list(less.values())).any():
        return ""
    few = [value for name, value in less.items() if "cifar100-" not in name]
    ahead = sum(value > 0 for value in less.values())
    return (
        f"NannyML's error is larger by {with_interval([*less.values()])} points (95%, "
        f"over the models), without CIFAR-100 by {with_interval(few)}, and larger for "
        f"{ahead} of {len(less)} models."
    )


def with_interval(values):
    """Return a mean with its 95% interval by Student's t."""
    reach = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    middle = np.mean(values)
    return f"{middle:.2f} [{middle - reach:.2f}, {middle + reach:.2f}]"


def risk_words(records):
    """Say how good the expected risk is."""
    kept = [record for record in records if record["risk"] is not None]
    inside = np.mean([record["risk inside"] for record in kept])
    return (
        f"Behind a gate (alpha, FRR {FRR:.0%}, calibrated on the reference rows) the "
        f"expected risk is off by {error(kept, 'expected risk', 'risk'):.2f} points, "
        f"the reference rows' own risk by "
        f"{error(kept, 'reference risk', 'risk'):.2f}; {inside:.0%} are in the band."
    )


def made(by_file, given, version, took):
    """Return what the script writes into the page."""
    every = [record for records in by_file.values() for record in records]
    by_scenario = {
        words: [r for r in every if r["scenario"] == name]
        for name, words in SCENARIOS.items()
    }
    by_set = {
        name: [r for file in files for r in by_file[file]]
        for name, files in SETS.items()
    }
    beside = f" NannyML {version}: its own calibration." if version else ""
    protocol = (
        f"{given.splits} random splits of each of {len(by_file)} files: "
        f"{given.reference:,} reference rows, chunks of {CHUNK:,} rows. Mean absolute "
        "errors of the estimated accuracy, in points; the band is meant to hold the "
        f"actual accuracy in 95% of the chunks.{beside} Made by `python "
        f"benchmarks/expected.py SHARED --nannyml PYTHON --splits {given.splits}` in "
        f"{took / 60:.0f} minutes ({processor()})."
    )
    parts = [protocol, table("rows", by_scenario), table("data", by_set)]
    parts += [paired_words(by_file), risk_words(every)]
    return "\n\n".join(part for part in parts if part)


def fill(path, text):
    """Write the text into its place of a page."""
    before, found, after = path.read_text(encoding="utf-8").partition(START)
    if not found:
        sys.exit(f"expected a place {START} in {path}, and found none.")
    page = f"{before}{START}\n\n{text}\n\n{END}{after.partition(END)[2]}"
    path.write_text(page, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--nannyml", metavar="PYTHON", help="one that has nannyml")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--reference", type=int, default=5000, metavar="ROWS")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    folder, start = given.shared / "predictions", time.perf_counter()
    names = [name for files in SETS.values() for name in files]
    paths = [folder / f"{name}.npz" for name in names]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        sys.exit(f"expected the file {missing[0]}, and found none.")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda path: look_at(path, given), paths))
    by_file = dict(zip(names, (records for records, _ in found), strict=True))
    text = made(by_file, given, found[0][1], time.perf_counter() - start)
    print(text)
    if given.page:
        fill(given.page, text)
    if given.json:
        about = {"reference": given.reference, "chunk": CHUNK, "splits": given.splits}
        about |= {"processor": processor(), "nannyml": found[0][1], "files": by_file}
        given.json.write_text(json.dumps(about, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
