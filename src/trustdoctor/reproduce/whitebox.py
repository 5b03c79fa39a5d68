"""The white-box table: Mahalanobis over all layers against alpha."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.bench import BATCH, Bench
from trustdoctor.reproduce.cases import PBB, TBB, Case, make_case
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.formats import Examples
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.roc_curves import points
from trustdoctor.reproduce.sources import Exhibit, small_exhibits
from trustdoctor.reproduce.table1 import COLUMNS

TITLE = "Mahalanobis with all layers against alpha (appendix C.7)"
TRAIN = 6_000
WORDS = (
    "Mahalanobis (WB) fits class means and a covariance at each layer on five in six "
    "of {train:,} training images, and a logistic regression that tells "
    "the others from adversarial examples made of them by projected gradient descent "
    "(magnitude 0.0031 in pixels, as in the paper). What it learns to spot is "
    "adversarial examples, and wrong predictions are not those, so its AUROC may be "
    "near 50, as the paper's is. It depends on the layers: --layers chooses them."
)


def run(options: Options) -> Report:
    """Fit the white-box score of every model that can be run, beside alpha."""
    tables: list[Table] = []
    panels: list[Panel] = []
    exhibits, notes = small_exhibits(options)
    for one in exhibits:
        bench = one.bench
        assert bench is not None
        if not (options.layers or bench.local.blocks()):
            notes.append(f"{one.name} has no layers to look at.")
            continue
        cases, box, fitted = _cases(one, bench)
        theirs = paper("whitebox").get(one.dataset.name, {})
        rows = tuple(_row(case, theirs, options) for case in cases)
        tables.append(Table(f"{one.title}, in %", COLUMNS, rows))
        lines = (
            Line(f"{case.method}, {case.scenario}", *points(case.curve(options)))
            for case in cases
        )
        panels.append(Panel(one.title, "FRR", "TRR", tuple(lines), level=0.95))
        own = "" if len(exhibits) == 1 else f"{one.name}: "
        notes.append(f"{own}Layers: {', '.join(box.layers)}.")
        notes += [f"{one.name}: {fitted}"] if fitted else []
    words = WORDS.format(train=TRAIN)
    picture = Picture("roc", TITLE, tuple(panels))
    return Report("whitebox", TITLE, tuple(tables), words, (picture,), tuple(notes))


def _cases(one: Exhibit, bench: Bench) -> tuple[list[Case], Any, str]:
    """Judge alpha and the white-box score on the rows that the latter did not fit."""
    bench.runs = 4
    bench.options.tell(0.0, "fitting the layers")
    train, judging, note = _training_rows(bench)
    box = fit_whitebox(bench, train)
    scores = whitebox_scores(bench, box)
    moved = one.perturbed(PBB["alpha"])
    assert moved is not None
    cases = [
        make_case("alpha", "TBB", TBB["alpha"], one.clean, one.clean),
        make_case("alpha", "PBB paper", PBB["alpha"], moved, moved),
        make_case("alpha", "PBB deployed", PBB["alpha"], moved, one.clean),
        Case("mhlnb", "WB", scores, one.clean.predictions.errors, scores),
    ]
    return [case.take(judging) for case in cases], box, note


def _training_rows(bench: Bench) -> tuple[Examples, Any, str]:
    """Return rows to fit on, and those that judge: all, if training images are here.

    Otherwise a random part of the test images fits, and the others judge.
    """
    assert bench.options.data is not None
    if bench.dataset.locate(bench.options.data, "train") is not None:
        return bench.train(TRAIN), slice(None), ""
    n = len(bench.images)
    order = np.random.default_rng(bench.options.seed).permutation(n)
    fitting = np.sort(order[: min(TRAIN, n // 2)])
    judging = np.delete(np.arange(n), fitting)
    note = (
        f"the training images are absent, so {len(fitting):,} of the test images fit "
        f"and the other {len(judging):,} judge all methods."
    )
    return Examples(bench.images[fitting], bench.labels[fitting]), judging, note


def _row(case: Case, theirs: dict[str, Any], options: Options) -> tuple[Cell, ...]:
    auroc, frr = case.judge(options)
    printed: list[Cell] = [None, None]
    if case.scenario in ("PBB paper", "WB") and case.method in theirs:
        printed = [float(number) for number in theirs[case.method]]
    return (case.method, case.scenario, printed[0], auroc, printed[1], frr)


def can_fit(bench: Bench) -> bool:
    """Tell whether there are training images, and layers to look at."""
    assert bench.options.data is not None
    there = bench.dataset.locate(bench.options.data, "train") is not None
    return there and bool(bench.options.layers or bench.local.blocks())


def fit_whitebox(bench: Bench, rows: Examples) -> Any:
    """Fit `WhiteBox` on labelled images; a stopped run finds it again."""
    from trustdoctor.adapters.torch import WhiteBox
    from trustdoctor.scores import Mahalanobis

    options, local = bench.options, bench.local
    layers = options.layers or local.blocks()
    labels = rows.labels
    assert labels is not None
    cut = len(labels) * 5 // 6

    def fit() -> dict[str, NDArray[Any]]:
        parts = [
            local.batches(rows.values[part], labels[part], BATCH)
            for part in (slice(cut), slice(cut, None))
        ]
        box = WhiteBox.fit(
            local.model,
            *parts,
            layers=layers,
            scale=local.scale,
            seed=options.seed,
            quiet=True,
        )
        arrays = {"weights": box.weights, "bias": np.array(box.bias)}
        for i, distance in enumerate(box.distances):
            arrays |= {f"means_{i}": distance.means, f"factor_{i}": distance.factor}
        return arrays

    facts = [local.digest(), layers, options.seed, rows.values, labels]
    kept = options.steps.take("whitebox", facts, fit)
    distances = tuple(
        Mahalanobis(kept[f"means_{i}"], kept[f"factor_{i}"], "features")
        for i in range(len(layers))
    )
    return WhiteBox(tuple(layers), distances, kept["weights"], float(kept["bias"]))


def whitebox_scores(
    bench: Bench, box: Any, images: NDArray[np.uint8] | None = None
) -> NDArray[Any]:
    """Score the bench's images, or others."""
    facts = ["whitebox", box.layers, box.weights]
    examine = partial(_examine, bench, box)
    return bench.run("Mahalanobis WB", facts, examine, images)["scores"]


def _examine(
    bench: Bench, box: Any, pixels: NDArray[np.uint8]
) -> dict[str, NDArray[Any]]:
    found = box(bench.local.model, bench.local.inputs(pixels), quiet=True)
    return {"scores": found.scores}
