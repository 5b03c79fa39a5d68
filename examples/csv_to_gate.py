"""A CSV of probabilities to a gate with a promise, and the gate at work.

The promise is about the rate over all rows to come; the later rows here are a sample
of them. It prints::

    at most 4% errors among the accepted, with confidence 0.9
    later rows accepted: 85.2%
    of these wrong: 4.2%
    of all wrong: 10.3%
"""

import tempfile
from pathlib import Path

import polars as pl
from scipy.special import softmax

import trustdoctor as td
from trustdoctor.demo import bundled_file


def make_csv(path: Path) -> None:
    """Write the probabilities of the bundled predictions, as a model might."""
    p = td.read(bundled_file())
    columns = {f"prob_{j}": column for j, column in enumerate(softmax(p.logits, 1).T)}
    pl.DataFrame({**columns, "label": p.labels}).sample(
        fraction=1, shuffle=True, seed=0
    ).write_csv(path)


def main() -> None:
    """Calibrate on one half of the rows, and look at the other."""
    folder = Path(tempfile.mkdtemp())
    make_csv(folder / "probs.csv")
    p = td.read(folder / "probs.csv")
    first, later = p[:5000], p[5000:]
    gate = td.calibrate(first, score="alpha", risk=0.04)
    gate.save(folder / "gate.json")
    print(gate.certificate.promise())
    accepted = td.Gate.load(folder / "gate.json").screen(later).accepted
    print(f"later rows accepted: {accepted.mean():.1%}")
    print(f"of these wrong: {later.errors[accepted].mean():.1%}")
    print(f"of all wrong: {later.errors.mean():.1%}")


if __name__ == "__main__":
    main()
