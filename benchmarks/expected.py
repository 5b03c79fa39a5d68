"""The accuracy that `td.expected` gives unlabelled rows, beside NannyML's CBPE.

    python benchmarks/expected.py SHARED [--nannyml PYTHON] [--page PAGE] [--json FILE]

SHARED holds predictions/*-test.npz and predictions/public/*-test.npz. Each file is
split at random into reference rows, whose labels are known, and the rest, from which
every scenario draws one chunk. Both see the same rows. PYTHON is an interpreter with
nannyml 0.13 (and statsmodels, which it imports); without it our figures are printed
alone. What stands in PAGE between ``<!-- made: expected -->`` and ``<!-- end -->`` is
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
from pages import fill, processor
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
    labels = reference.labels
    correct = np.bincount(labels, ~reference.errors, p.n_classes)
    accuracy = correct / np.maximum(np.bincount(labels, minlength=p.n_classes), 1)
    order, share_of_classes = np.argsort(accuracy), max(1, round(0.3 * p.n_classes))
    ranks = td.beta(p).argsort().argsort() / len(p)
    z = reference.logits.astype(np.float64)
    spread = (z - z.mean(1, keepdims=True)).std()
    for name in SCENARIOS:
        weights = np.exp(DOUBTS.get(name, 0.0) * ranks)
        if name in ("hard", "easy"):
            chosen = (
                order[:share_of_classes]
                if name == "hard"
                else order[-share_of_classes:]
            )
            weights = np.isin(p.labels, chosen).astype(float)
        drawn = p[rng.choice(len(p), CHUNK, replace=False, p=weights / weights.sum())]
        if name.startswith("noise"):
            noise = (
                float(name.split()[1]) * spread * rng.normal(size=drawn.logits.shape)
            )
            drawn = td.Predictions.from_logits(drawn.logits + noise, drawn.labels)
        yield name, drawn


def look_at(path, options):
    """Return one record for each split and scenario of a file."""
    with np.load(path) as file:
        logits, labels = file["logits"], file["labels"]
    p = td.Predictions.from_logits(logits, labels)
    records, files = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for split in range(options.splits):
            rng = np.random.default_rng(split)
            reference_rows, chunk_rows = np.split(
                rng.permutation(len(p)), [options.reference]
            )
            reference = p[reference_rows]
            chunks_by_name = dict(chunks(p[chunk_rows], reference, rng))
            records += ours(chunks_by_name, reference)
            files.append(f"{scratch}/{split}.npz")
            new_probs = np.concatenate(
                [rows.logits for rows in chunks_by_name.values()]
            )
            reference_probs = softmax(reference.logits.astype(np.float64), axis=1)
            new_probs = softmax(new_probs.astype(np.float64), axis=1)
            np.savez(
                files[-1], known=reference_probs, labels=reference.labels, new=new_probs
            )
        estimates, version = cbpe(options.nannyml, files)
    for record, value in zip(records, estimates, strict=True):
        record["NannyML"] = value
    return records, version


def ours(chunks_by_name, reference):
    """Return what is expected of every chunk, and what is so."""
    fitted = td.Reference.fit(reference)
    gate = td.calibrate(reference, score="alpha", frr=FRR)
    on_reference = td.expected(reference, reference=fitted, gate=gate)
    for name, rows in chunks_by_name.items():
        expectation = td.expected(rows, reference=fitted, gate=gate)
        yield {
            "scenario": name,
            "accuracy": expectation.accuracy_check.actual.value,
            "reference": fitted.correct / fitted.n,
            "trustdoctor": expectation.accuracy.value,
            "inside": expectation.accuracy_check.fits,
            "risk": expectation.risk_check.actual.value,
            "reference risk": on_reference.risk_check.actual.value,
            "expected risk": expectation.risk.value,
            "risk inside": expectation.risk_check.fits,
        }


def cbpe(python, files):
    """Return NannyML's estimates of all chunks, and its version; without it, NaN."""
    if python is None:
        return [np.nan] * (len(SCENARIOS) * len(files)), ""
    process = subprocess.run(
        [python, "-c", CBPE, str(CHUNK), *files],
        check=True,
        capture_output=True,
        text=True,
    )
    estimates = [np.load(path.replace(".npz", ".npy")) for path in files]
    return np.concatenate(estimates).tolist(), process.stdout.split()[-1]


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
    all_records = [record for records in groups.values() for record in records]
    head = f"| {title} | actual accuracy | reference accuracy | NannyML's CBPE | "
    return "\n".join(
        [
            f"{head}`td.expected` | in its band |",
            "|---|---|---|---|---|---|",
            *(line(name, records) for name, records in groups.items()),
            line("all", all_records),
        ]
    )


def paired_words(by_file):
    """Say by how much NannyML's error is larger, with an interval over the models."""
    gain_by_file = {
        name: error(records, "NannyML") - error(records, "trustdoctor")
        for name, records in by_file.items()
    }
    if np.isnan(list(gain_by_file.values())).any():
        return ""
    without_cifar100 = [
        value for name, value in gain_by_file.items() if "cifar100-" not in name
    ]
    files_ahead = sum(value > 0 for value in gain_by_file.values())
    return (
        f"NannyML's error is larger by {with_interval([*gain_by_file.values()])} "
        "points (95%, over the models), without CIFAR-100 by "
        f"{with_interval(without_cifar100)}, and larger for {files_ahead} of "
        f"{len(gain_by_file)} models."
    )


def with_interval(values):
    """Return a mean with its 95% interval by Student's t."""
    half_width = (
        t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    )
    mean = np.mean(values)
    return f"{mean:.2f} [{mean - half_width:.2f}, {mean + half_width:.2f}]"


def risk_words(records):
    """Say how good the expected risk is."""
    with_risk = [record for record in records if record["risk"] is not None]
    inside = np.mean([record["risk inside"] for record in with_risk])
    return (
        f"Behind a gate (alpha, FRR {FRR:.0%}, calibrated on the reference rows) the "
        f"expected risk is off by {error(with_risk, 'expected risk', 'risk'):.2f} "
        "points, the reference rows' own risk by "
        f"{error(with_risk, 'reference risk', 'risk'):.2f}; {inside:.0%} are in the "
        "band."
    )


def page_text(by_file, options, version, seconds):
    """Return what the script writes into the page."""
    all_records = [record for records in by_file.values() for record in records]
    by_scenario = {
        words: [r for r in all_records if r["scenario"] == name]
        for name, words in SCENARIOS.items()
    }
    by_set = {
        name: [r for file in files for r in by_file[file]]
        for name, files in SETS.items()
    }
    version_words = f" NannyML {version}: its own calibration." if version else ""
    protocol = (
        f"{options.splits} random splits of each of {len(by_file)} files: "
        f"{options.reference:,} reference rows, chunks of {CHUNK:,} rows. Mean "
        "absolute errors of the estimated accuracy, in points; the band is meant to "
        f"hold the actual accuracy in 95% of the chunks.{version_words} Made by "
        "`python benchmarks/expected.py SHARED --nannyml PYTHON --splits "
        f"{options.splits}` in {seconds / 60:.0f} minutes ({processor()})."
    )
    texts = [protocol, table("rows", by_scenario), table("data", by_set)]
    texts += [paired_words(by_file), risk_words(all_records)]
    return "\n\n".join(text for text in texts if text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--nannyml", metavar="PYTHON", help="one that has nannyml")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--reference", type=int, default=5000, metavar="ROWS")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder, start = options.shared / "predictions", time.perf_counter()
    names = [name for files in SETS.values() for name in files]
    paths = [folder / f"{name}.npz" for name in names]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        sys.exit(f"expected the file {missing[0]}, and found none.")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda path: look_at(path, options), paths))
    by_file = dict(zip(names, (records for records, _ in results), strict=True))
    text = page_text(by_file, options, results[0][1], time.perf_counter() - start)
    print(text)
    if options.page:
        fill(options.page, "", {"expected": text})
    if options.json:
        content = {
            "reference": options.reference,
            "chunk": CHUNK,
            "splits": options.splits,
        }
        content |= {
            "processor": processor(),
            "nannyml": results[0][1],
            "files": by_file,
        }
        options.json.write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
