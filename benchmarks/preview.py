"""Does the page say what gates then do? Its headline against gates from other rows.

``python benchmarks/preview.py ../shared`` draws ``--rows`` rows of each file, reads the
headline that the page of these rows opens with, makes the gate of its value on 60 other
draws, and looks at what each does to all rows of the file, which are the truth. It
prints how often such a gate can be made, the share answered automatically (stated and
observed), how many gates lie within the stated range (four of five are meant to), and
how many break their promise (one of ten may).
"""

import argparse
from pathlib import Path

import numpy as np

import trustdoctor as td
from trustdoctor.gates import Rows, preview_gates
from trustdoctor.report.offers import make_opening

FILES = (
    "densenet-bc-100-12-cifar10-test",
    "minilm-imdb-test",
    "resnet-56-cifar100-test",
    "efficientnet-lite0-tinyimagenet-test",
    "resnet-20-svhn-test",
)


def measure(doubts, errors, rows, resamples, rng):
    """Return the opening offer, its outlook, and what gates on other draws do."""
    first = rng.choice(len(doubts), rows, replace=False)
    offer = make_opening(doubts[first], errors[first])
    values = {offer.target: [offer.value]}
    (preview,) = preview_gates(Rows(doubts[first], errors[first]), values)
    gates = []
    for _ in range(resamples):
        sample = rng.choice(
            len(doubts), rows
        )  # with replacement: the file is the truth
        target = {offer.target: offer.value}
        gate = td.calibrate_scores(doubts[sample], errors[sample], **target)
        accepted = gate.accept(doubts)
        risk = errors[accepted].mean() if accepted.any() else 0.0
        gates.append((gate.state, accepted.mean(), risk))
    return offer, preview.outlook, gates


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--resamples", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in FILES:
        predictions = td.read(arguments.shared / "predictions" / f"{name}.npz")
        doubts, errors = td.alpha(predictions), predictions.errors
        rng = np.random.default_rng(arguments.seed)
        offer, outlook, gates = measure(
            doubts, errors, arguments.rows, arguments.resamples, rng
        )
        thresholds = [gate for gate in gates if gate[0] == "threshold"]
        coverages = np.array([coverage for _, coverage, _ in thresholds])
        inside = (outlook.low <= coverages) & (coverages <= outlook.high)
        print(f"{name}: {offer.headline} {offer.detail}")
        print(
            f"  made {len(thresholds)} of {len(gates)}; automatically "
            f"{np.median(coverages):.1%}; within the range "
            f"{np.mean(inside):.0%}; broken "
            f"{np.mean([risk > offer.value for _, _, risk in thresholds]):.0%}"
        )


if __name__ == "__main__":
    main()
