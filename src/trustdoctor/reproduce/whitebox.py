"""The white-box table: Mahalanobis over all layers against alpha."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.experiment import Arrays, Options, paper
from trustdoctor.reproduce.formats import Examples
from trustdoctor.reproduce.methods import PBB, TBB, ScoredMethod, score_method
from trustdoctor.reproduce.model_run import BATCH, ModelRun
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
    """Fit the white-box score of every runnable model, beside alpha."""
    tables: list[Table] = []
    panels: list[Panel] = []
    exhibits, notes = small_exhibits(options)
    for exhibit in exhibits:
        model_run = exhibit.model_run
        assert model_run is not None
        if not (options.layers or model_run.local.blocks()):
            notes.append(f"{exhibit.name} has no layers to look at.")
            continue
        scored, layers, training_note = _score_on_judging_rows(exhibit, model_run)
        theirs = paper("whitebox").get(exhibit.dataset.name, {})
        rows = tuple(_row(method, theirs, options) for method in scored)
        tables.append(Table(f"{exhibit.title}, in %", COLUMNS, rows))
        lines = (
            Line(f"{method.method}, {method.scenario}", *points(method.curve(options)))
            for method in scored
        )
        panels.append(Panel(exhibit.title, "FRR", "TRR", tuple(lines), level=0.95))
        prefix = "" if len(exhibits) == 1 else f"{exhibit.name}: "
        notes.append(f"{prefix}Layers: {', '.join(layers)}.")
        notes += [f"{exhibit.name}: {training_note}"] if training_note else []
    words = WORDS.format(train=TRAIN)
    picture = Picture("roc", TITLE, tuple(panels))
    return Report("whitebox", TITLE, tuple(tables), words, (picture,), tuple(notes))


def _score_on_judging_rows(
    exhibit: Exhibit, model_run: ModelRun
) -> tuple[list[ScoredMethod], tuple[str, ...], str]:
    """Score alpha and the white box on rows that the latter was not fitted on.

    Returns also the layers, and a note on the rows if they are not the usual ones.
    """
    model_run.expected_passes = 4
    model_run.options.tell(0.0, "fitting the layers")
    training, judging, note = _training_rows(model_run)
    whitebox = fit_whitebox(model_run, training)
    scores = whitebox_scores(model_run, whitebox)
    clean, perturbed = exhibit.clean, exhibit.perturbed(PBB["alpha"])
    assert perturbed is not None
    scored = [
        score_method("alpha", "TBB", TBB["alpha"], clean, clean),
        score_method("alpha", "PBB paper", PBB["alpha"], perturbed, perturbed),
        score_method("alpha", "PBB deployed", PBB["alpha"], perturbed, clean),
        ScoredMethod("mhlnb", "WB", scores, clean.predictions.errors, scores),
    ]
    return [method.take(judging) for method in scored], whitebox.layers, note


def _training_rows(model_run: ModelRun) -> tuple[Examples, Any, str]:
    """Return rows to fit on, and those that judge: all, if training images are here.

    Otherwise a random part of the test images fits, and the others judge.
    """
    assert model_run.options.data is not None
    if model_run.dataset.locate(model_run.options.data, "train") is not None:
        return model_run.training_examples(TRAIN), slice(None), ""
    n = len(model_run.images)
    order = np.random.default_rng(model_run.options.seed).permutation(n)
    fitting = np.sort(order[: min(TRAIN, n // 2)])
    judging = np.delete(np.arange(n), fitting)
    note = (
        f"the training images are absent, so {len(fitting):,} of the test images fit "
        f"and the other {len(judging):,} judge all methods."
    )
    return Examples(model_run.images[fitting], model_run.labels[fitting]), judging, note


def _row(
    scored: ScoredMethod, theirs: dict[str, Any], options: Options
) -> tuple[Cell, ...]:
    auroc, frr = scored.judge(options)
    printed: list[Cell] = [None, None]
    if scored.scenario in ("PBB paper", "WB") and scored.method in theirs:
        printed = [float(number) for number in theirs[scored.method]]
    return (scored.method, scored.scenario, printed[0], auroc, printed[1], frr)


def can_fit(model_run: ModelRun) -> bool:
    """Return whether there are training images and layers to fit on."""
    assert model_run.options.data is not None
    has_images = model_run.dataset.locate(model_run.options.data, "train") is not None
    return has_images and bool(model_run.options.layers or model_run.local.blocks())


def fit_whitebox(model_run: ModelRun, rows: Examples) -> Any:
    """Fit `WhiteBox` on labelled images, or load it from the cache."""
    from trustdoctor.adapters.torch import WhiteBox
    from trustdoctor.scores import Mahalanobis

    options, local = model_run.options, model_run.local
    layers = options.layers or local.blocks()
    labels = rows.labels
    assert labels is not None
    cut = len(labels) * 5 // 6  # the regression must not see rows of the means

    def fit() -> Arrays:
        train, held_out = (
            local.batches(rows.values[some_rows], labels[some_rows], BATCH)
            for some_rows in (slice(cut), slice(cut, None))
        )
        whitebox = WhiteBox.fit(
            local.model,
            train,
            held_out,
            layers=layers,
            scale=local.scale,
            seed=options.seed,
            quiet=True,
        )
        arrays = {"weights": whitebox.weights, "bias": np.array(whitebox.bias)}
        for i, distance in enumerate(whitebox.distances):
            arrays |= {f"means_{i}": distance.means, f"factor_{i}": distance.factor}
        return arrays

    facts = [local.digest(), layers, options.seed, rows.values, labels]
    arrays = options.steps.take("whitebox", facts, fit)
    distances = tuple(
        Mahalanobis(arrays[f"means_{i}"], arrays[f"factor_{i}"], "features")
        for i in range(len(layers))
    )
    return WhiteBox(tuple(layers), distances, arrays["weights"], float(arrays["bias"]))


def whitebox_scores(
    model_run: ModelRun, whitebox: Any, images: NDArray[np.uint8] | None = None
) -> NDArray[Any]:
    """Score the run's own images, or others."""
    facts = ["whitebox", whitebox.layers, whitebox.weights]
    local = model_run.local

    def examine(pixels: NDArray[np.uint8]) -> Arrays:
        examination = whitebox(local.model, local.inputs(pixels), quiet=True)
        return {"scores": examination.scores}

    return model_run.examine("Mahalanobis WB", facts, examine, images)["scores"]
