"""Do two versions decide alike? Gates, evaluations and watches on real files.

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
    "shortlist": {"frr": 0.1, "shortlist": 0.1},
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
        "accepted": digest(np.asarray(screened.accepted)),
        "observed": {
            name: [v if v is None else float(v).hex() for v in (e.value, e.low, e.high)]
            for name, e in sorted(certificate.observed.items())
        },
    }
    if gate.shortlist is not None:
        out["shortlist"] = digest(*[np.asarray(one) for one in gate.screen(second)][:2])
    if not gate.groups:
        watch = gate.watch()
        for rows in (second[: len(second) // 2], second[len(second) // 2 :]):
            watch.update(rows)
        out["watch"] = sorted(
            float(number).hex() for number in numbers(watch.to_dict()["tests"])
        )
    return out


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
        evaluation = json.loads(td.evaluate(second).to_json())
        entry["evaluate"] = sorted(float(n).hex() for n in numbers(evaluation))
        out[path.name] = entry
        print(path.name, file=sys.stderr)
    return out


def differences(one, other, where=""):
    """Yield where two records differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            place = f"{where} / {name}".removeprefix(" / ")
            yield from differences(one.get(name), other.get(name), place)
    elif one != other:
        yield f"{where}: {str(one)[:70]} and {str(other)[:70]}"


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
    found = list(differences(*(json.loads(p.read_text()) for p in options.records)))
    print("\n".join(found) or "no difference")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
