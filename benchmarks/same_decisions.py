"""Do two versions decide alike? Gates, watches, evaluations, tuning on real files.

``python benchmarks/same_decisions.py record SHARED OUT.json`` calibrates, screens,
evaluates and watches on the files of the shared folder; ``compare A.json B.json`` names
every difference of two such records, to the last bit. Record once with each version.
"""

import argparse
import hashlib
import json
import sys
import warnings
from pathlib import Path

import numpy as np

import trustdoctor as td

ROWS = 3_000
"""Rows that calibrate, and as many that are decided."""

TARGETS = {
    "frr": {"frr": 0.05},
    "frr on average": {"frr": 0.05, "mode": "expectation"},
    "trr": {"trr": 0.9},
    "risk 2%": {"risk": 0.02},
    "risk 10%": {"risk": 0.1},
    "risk of three": {"risk": [0.02, 0.05, 0.1]},
    "joint": {"joint": 0.02},
    "coverage": {"coverage": 0.8},
    "cost": {"cost": 5},
    "two": {"frr": 0.1, "trr": 0.5},
    "wrong labels": {"risk": 0.1, "label_noise": 0.02},
    "per class": {"frr": 0.1, "groups": "predicted"},
    "clusters": {"frr": 0.1, "clusters": np.arange(ROWS) // 3},
    "shortlist": {"frr": 0.1, "shortlist": 0.9},
    "shortlist aside": {"risk": 0.1, "shortlist": 0.95},
    "auto": {"trr": 0.9, "score": "auto"},
    "entropy": {"frr": 0.05, "score": "entropy"},
}
ANSWERS = {
    "coco-ssd-boxes.csv": {
        "confidence": "score", "predicted": "class", "correct": "matched"
    },
    "mmlu-qwen3-32b.csv": {
        "confidence": "confidence", "predicted": "answer", "labels": "truth"
    },
    **{
        f"mmlu-pro-{model}.csv": {
            "confidence": "verbal", "predicted": "answer", "labels": "truth"
        }
        for model in ("gpt-4.1-mini", "gpt-4.1-nano", "llama-3.1-8b", "qwen2.5-7b")
    },
}  # fmt: skip


def files(folder):
    """Yield each file with what its columns are called."""
    for path in sorted((folder / "predictions").rglob("*-test.npz")):
        yield path, {}
    for name, columns in ANSWERS.items():
        yield folder / "answers" / name, columns


def digest(*arrays):
    """Return a digest of arrays, to the bit."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def numbers(value):
    """Return every number in a document of JSON, whatever it is called there."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for inner in value for number in numbers(inner)]
    return [value] if type(value) in (int, float) else []


def bits(number):
    """Return a number as text that gives every bit; None as it is."""
    return None if number is None else float(number).hex()


def estimates(value, place=""):
    """Yield the place, value and limits of every estimate in a document of JSON."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        if "value" in value and "low" in value:
            yield place, [bits(value[name]) for name in ("value", "low", "high")]
        for name, inner in value.items():
            yield from estimates(inner, f"{place}.{name}".removeprefix("."))


def decisions(first, second, options):
    """Calibrate on the first rows, decide the others, and watch them."""
    try:
        gate = td.calibrate(first, **options)
    except td.errors.InputError as error:
        return {"refused": type(error).__name__}
    screened = gate.screen(second)
    certificate = gate.certificate
    out = {
        "threshold": float(gate.threshold).hex(),
        "state": gate.state,
        "groups": {
            str(name): float(rule.threshold).hex() for name, rule in gate.groups.items()
        },
        "accepted": digest(screened.accepted),
        "doubts": digest(screened.doubts),
        "observed": {
            name: [bits(v) for v in (e.value, e.low, e.high)]
            for name, e in sorted(certificate.observed.items())
        },
    }
    if gate.shortlist is not None:
        out["shortlist"] = digest(screened.shortlist)
    if not gate.groups:
        watch = gate.watch()
        for rows in (second[: len(second) // 2], second[len(second) // 2 :]):
            watch.update(rows)
        out["watch"] = sorted(
            float(number).hex() for number in numbers(watch.to_dict()["tests"])
        )
    return out


def evaluation(rows):
    """Measure rows: every estimate, every doubt, and the errors doubted least."""
    evaluation = td.evaluate(rows)
    document = json.loads(evaluation.to_json())
    return {
        "estimates": dict(estimates(document)),
        "rows": [document["n_errors"], document["n_classes"]],
        "doubts": {name: digest(d) for name, d in evaluation.doubts.items()},
        "odd labels": len(document["odd_labels"]),
        "least doubtful": [bits(n) for n in numbers(document["least_doubtful_errors"])],
    }


def tuning(first, second):
    """Tune a score on the first rows, and doubt the others by it."""
    try:
        tuned = td.tune(first)
    except td.errors.InputError as error:
        return {"refused": type(error).__name__}
    return {"members": list(tuned.members), "doubts": digest(tuned(second))}


def record(folder):
    """Return everything that is decided and measured on each file."""
    out = {}
    for path, columns in files(folder):
        rows = td.read(path, **columns)
        order = np.random.default_rng(0).permutation(len(rows))[: 2 * ROWS]
        half = len(order) // 2
        first, second = rows[order[:half]], rows[order[half:]]
        entry = {}
        for name, options in TARGETS.items():
            of_rows = {n: options[n][:half] for n in options if n == "clusters"}
            entry[name] = decisions(first, second, options | of_rows)
        entry["evaluate"] = evaluation(second)
        entry["tune"] = tuning(first, second)
        out[path.name] = entry
        print(path.name, file=sys.stderr)
    return out


def differences(record, other, path=""):
    """Yield where two records differ."""
    if isinstance(record, dict) and isinstance(other, dict):
        for name in sorted({*record, *other}):
            place = f"{path} / {name}".removeprefix(" / ")
            yield from differences(record.get(name), other.get(name), place)
    elif record != other:
        yield f"{path}: {str(record)[:70]} and {str(other)[:70]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("shared", type=Path)
    recording.add_argument("out", type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("records", type=Path, nargs=2)
    options = parser.parse_args()
    if options.command == "record":
        warnings.simplefilter("ignore", td.errors.OddLabelsWarning)
        options.out.write_text(json.dumps(record(options.shared), indent=1))
        return 0
    unequal = list(differences(*(json.loads(p.read_text()) for p in options.records)))
    print("\n".join(unequal) or "no difference")
    return bool(unequal)


if __name__ == "__main__":
    sys.exit(main())
