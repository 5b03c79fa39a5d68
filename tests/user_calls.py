"""What a researcher and an engineer write, with types that mypy and pyright check.

`make lint` checks this file strictly; tests/test_user_calls.py runs it.
"""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

import trustdoctor as td

Floats = NDArray[np.float64]


def answers(seed: int, noise: float = 2.0, n: int = 1200) -> td.Predictions:
    """Make a toy model's answers to labelled rows."""
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(n, 4))
    labels = (logits + noise * rng.normal(size=logits.shape)).argmax(1)
    names = ["cat", "dog", "fox", "owl"]
    return td.Predictions.from_logits(logits, labels, class_names=names)


def compare_models(folder: Path) -> pl.DataFrame:
    """Researcher: scores over models, as a table for the paper."""
    models = {"resnet": answers(0), "vgg": answers(1, noise=3.0)}
    result = td.benchmark(models, scores=["alpha", "msp", "rel_u"], splits=3)
    (folder / "table.tex").write_text(result.to_latex())
    wins, ties, losses = result.record("alpha")
    assert wins + ties + losses == len(models)
    return result.to_frame()


def compare_scores() -> td.Estimate:
    """Researcher: scores of my own against DOCTOR, paired."""
    p = answers(2)
    mine: Floats = -np.sort(p.logits, axis=1)[:, -1].astype(np.float64)
    evaluation = td.evaluate_scores({"mine": mine, "alpha": td.alpha(p)}, p.errors)
    print(evaluation)
    return evaluation.difference("alpha", "mine", "aurc")


def settings_side_by_side() -> str:
    """Researcher: one score at several settings."""
    scores = {"T = 0.5": "alpha:temperature=0.5", "T = 2": "alpha:temperature=2"}
    return td.evaluate(answers(3), scores=scores).to_markdown()


def errors_and_strangers() -> float:
    """Researcher: misclassified rows and rows of no class together."""
    p = answers(4)
    strangers = np.random.default_rng(5).normal(size=(300, 4))
    mixed = td.evaluate(p.with_outside(strangers), scores=["msp"])
    return mixed.scores["msp"]["auroc"].value or 0.0


def a_gate_in_production(folder: Path) -> pl.DataFrame:
    """Engineer: a promise, a file, decisions as a table."""
    gate = td.calibrate(answers(6, noise=1.0), risk=0.1)
    assert gate.certificate is not None
    print(gate.certificate.promise())
    gate.save(folder / "gate.json")
    screened = td.Gate.load(folder / "gate.json").screen(answers(7, noise=1.0))
    to_person: NDArray[np.bool_] = screened.review
    table = screened.to_frame()
    assert int(to_person.sum()) == len(table.filter(~pl.col("accepted")))
    return table


def a_score_for_the_model() -> td.Gate:
    """Engineer: tune on some rows, promise on others."""
    p = answers(8)
    score = td.tune(p[:600], trr=0.9)
    return td.calibrate(p[600:], score=score, trr=0.9, confidence=0.8)


def is_it_still_true() -> bool:
    """Engineer: watch the promise."""
    watch = td.calibrate(answers(9, noise=1.0), risk=0.2).watch()
    watch.update(answers(10, noise=1.0))
    return bool(watch.alarm)


def small_then_large() -> td.Cascade:
    """Engineer: a small model first, then a large one, then a person."""
    small, large = answers(11), answers(11, noise=2.0)
    cascade = td.Cascade.calibrate(
        {"small": small, "large": large}, risk=0.25, costs=[0, 1, 10]
    )
    print(cascade.screen({"small": small, "large": large}))
    return cascade


def numbers_as_arrays() -> tuple[NDArray[np.float64], float]:
    """Researcher: the numeric layer."""
    logits: Floats = np.random.default_rng(12).normal(size=(50, 3))
    doubts: Floats = td.beta(logits, temperature=2.0)
    errors: NDArray[np.bool_] = doubts > np.median(doubts)
    counts = td.counts(td.pnorm(logits, p=3.0), errors)
    return doubts, td.auroc(counts)


def main(folder: Path) -> None:
    """Call everything."""
    print(compare_models(folder), compare_scores(), settings_side_by_side())
    print(errors_and_strangers(), a_gate_in_production(folder))
    print(a_score_for_the_model(), is_it_still_true(), small_then_large())
    print(numbers_as_arrays())
