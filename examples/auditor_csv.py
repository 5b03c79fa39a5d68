"""For an auditor: a CSV with a column per class and labels in words, and no model.

The same on the command line, with the file that this script writes::

    trustdoctor diagnose audit.csv --probs airplane,automobile,... --html page.html
    trustdoctor calibrate audit.csv --probs airplane,automobile,... --risk 5% -o g.json

The rows are bundled: a DenseNet on the CIFAR-10 test set. It prints::

    Predictions(10,000 rows, 10 classes, probabilities, accuracy 89.93%)
    Rejecting the 10% most doubtful predictions by alpha leaves 5.5% errors [4.7%, 6.4%] instead of 9.9%.
    at most 5% errors among the accepted, with confidence 0.9
    later rows accepted: 87.8%
    of these wrong: 4.9%
    most often rejected: cat, 121 of 611
"""  # noqa: E501

import tempfile
from pathlib import Path

import polars as pl
from scipy.special import softmax

import trustdoctor as td
from trustdoctor.demo import CLASSES, bundled_file


def make_csv(path: Path) -> None:
    """Write what an auditor may get: airplane,automobile,...,label."""
    p = td.read(bundled_file())
    probs = dict(zip(CLASSES, softmax(p.logits, 1).T, strict=True))
    table = pl.DataFrame({**probs, "label": [CLASSES[i] for i in p.labels]})
    table.sample(fraction=1, shuffle=True, seed=0).write_csv(path)


def main() -> None:
    """Judge and calibrate on one half of the rows; decide on the other."""
    folder = Path(tempfile.mkdtemp())
    make_csv(folder / "audit.csv")
    p = td.read(folder / "audit.csv", probs=CLASSES)
    print(p)
    first, later = p[:5000], p[5000:]
    evaluation = td.evaluate(first, scores=["alpha", "msp"])
    print(evaluation.verdict())
    evaluation.to_html(folder / "page.html")  # to look at, to mail and to file

    gate = td.calibrate(first, score="alpha", risk=0.05)
    gate.save(folder / "gate.json")
    print(gate.certificate.promise())
    screened = td.Gate.load(folder / "gate.json").screen(later)
    print(f"later rows accepted: {screened.accepted.mean():.1%}")
    print(f"of these wrong: {later.errors[screened.accepted].mean():.1%}")
    rejected = pl.Series(screened.predicted[screened.review])
    name, count = rejected.value_counts(sort=True).row(0)
    print(f"most often rejected: {name}, {count} of {len(rejected)}")


if __name__ == "__main__":
    main()
