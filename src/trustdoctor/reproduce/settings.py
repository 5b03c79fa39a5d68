"""AUROC over temperatures and magnitudes: the figures of appendix C.4."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.metrics import Estimate, auroc, delong
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.bench import BATCH, Bench
from trustdoctor.reproduce.cases import fit
from trustdoctor.reproduce.experiment import Options, choose_rows, fingerprint, paper
from trustdoctor.reproduce.grid import evaluate_grid
from trustdoctor.reproduce.report import Cell, Report, Table, in_percent
from trustdoctor.reproduce.sources import Exhibit, Setting, small_exhibits

TITLE = "AUROC over temperature and magnitude (appendix C.4)"
ROWS = 1_000
JUDGES = 4_000
"""Rows that judge what others chose, at most: perturbing one takes milliseconds."""

SHOWN = (1.0, 1.3, 1.5, 1000.0)
COARSE_TEMPERATURES = (1.0, 1.3, 1.5, 2.0, 1000.0)
COARSE_EPSILONS = (0.0, 0.00035, 0.001, 0.002, 0.004)
CHOICES = (1.0, 1.5)
"""Temperatures to choose from: the paper's, for alpha and for beta."""

COARSE = (
    "This grid is coarser than the paper's, which takes a processor hours (--fine has "
    "all of its 11 temperatures and 24 magnitudes)."
)
FULL = "The grid is the paper's, 11 temperatures and 24 magnitudes."
WORDS = (
    "{rows:,} rows, so that the intervals are wide: differences of a point or less are "
    "chance here (--rows takes more). {grid} The best of "
    "many settings on the rows that chose it flatters itself; choose on some labelled "
    "rows, judge on others (`trustdoctor split`). `paper` counts the errors of the "
    "perturbed predictions: its AUROC is another quantity at every magnitude, since "
    "the accuracy changes, as the last column shows. `deployed` counts those of the "
    "clean predictions, which a user acts on. {protocol}"
)
PROTOCOLS = {
    "exact": "AUROCs are exact.",
    "grid": "AUROCs are on the published grid of thresholds, beta's and ODIN's "
    "probabilities rounded to float32 as stored ones are.",
}


class Result(NamedTuple):
    """One setting's AUROCs and the accuracy of the perturbed predictions."""

    deployed: float
    paper: float
    accuracy: float
    scores: Array
    errors: Array


Found = dict[tuple[str, float, float], Result]


class Plan(NamedTuple):
    """Scores at every one of some temperatures and magnitudes."""

    name: str
    scores: tuple[Any, ...]
    temperatures: tuple[float, ...]
    epsilons: tuple[float, ...]


def run(options: Options) -> Report:
    """Sweep settings of every model that can be run, on a thousand rows or --rows."""
    if options.rows is None:
        options = replace(options, rows=ROWS)
    tables: list[Table] = []
    pictures: list[Picture] = []
    exhibits, notes = small_exhibits(options)
    for one in exhibits:
        assert one.bench is not None
        found = _sweep_all(one.bench, one, options)
        methods = list(dict.fromkeys(key[0] for key in found))
        tables.append(_best(one, found, methods, options))
        own = "" if len(exhibits) == 1 else f"{one.slug}-"
        pictures.append(_alpha_beta(f"{own}alpha-beta", found, one))
        pictures.append(_everyone(f"{own}all", found, methods, one))
        if "mahalanobis" not in methods:
            notes.append(
                f"mahalanobis needs logits of the training rows: {one.model}-"
                f"{one.dataset.name}-train.npz in the data folder."
            )
    words = WORDS.format(
        rows=options.rows,
        grid=FULL if options.fine else COARSE,
        protocol=PROTOCOLS[options.protocol],
    )
    return Report("sweep", TITLE, tuple(tables), words, tuple(pictures), tuple(notes))


def choose(one: Exhibit, options: Options) -> tuple[dict[str, Setting], Array] | None:
    """Choose each method's setting on labelled rows, by its AUROC as deployed.

    Returns the settings, and the rows that judge them: others than those that chose.
    None where there is no model to run, or too few rows.
    """
    n = len(one.clean.predictions)
    rows = choose_rows(n, replace(options, rows=ROWS))
    if one.bench is None or rows is None or n < 2 * ROWS:
        return None
    some = replace(one, clean=one.clean.take(rows), stored={})
    plan = Plan("choice", ("alpha", "beta"), CHOICES, COARSE_EPSILONS)
    found = _sweep([plan], one.bench.part(rows), some, options)
    best: dict[str, Setting] = {}
    for key, cell in found.items():
        if key[0] not in best or cell.deployed > found[best[key[0]]].deployed:
            best[key[0]] = Setting(*key)
    rng = np.random.default_rng(options.seed)
    others = rng.permutation(np.delete(np.arange(n), rows))[:JUDGES]
    return best, np.sort(others)


def _sweep_all(bench: Bench, one: Exhibit, options: Options) -> Found:
    """Sweep what the figures of appendix C.4 show."""
    from trustdoctor.adapters.torch import EPSILONS, TEMPERATURES

    fixed = _fixed(one)
    pair = ("alpha", "beta")
    fine = options.fine
    temperatures: Any = TEMPERATURES if fine else COARSE_TEMPERATURES
    epsilons: Any = EPSILONS if fine else COARSE_EPSILONS
    plans: list[Plan] = [
        Plan("magnitudes", (*pair, "odin"), SHOWN, epsilons),
        Plan("temperatures", pair, temperatures, (0.0, fixed["epsilon"])),
        Plan("magnitudes at beta's T", pair, (fixed["beta"],), epsilons),
    ]
    if one.train is not None and not one.train.predictions.from_probabilities:
        fitted = fit(one.train, "logits")
        plans.append(Plan("mahalanobis", (fitted,), (1.0,), epsilons))
    return _sweep(plans, bench, one, options)


def _sweep(plans: list[Plan], bench: Bench, one: Exhibit, options: Options) -> Found:
    from trustdoctor.adapters.torch import sweep

    batches = bench.local.batches(bench.images, bench.labels, BATCH)
    found: Found = {}
    for i, plan in enumerate(plans):

        def tell(share: float, _what: str, i: int = i, name: str = plan.name) -> None:
            bench.options.tell((i + share) / len(plans), f"settings, {name}")

        swept = sweep(
            bench.local.model,
            batches,
            scores=plan.scores,
            temperatures=plan.temperatures,
            epsilons=plan.epsilons,
            scale=bench.local.scale,
            checkpoint=options.steps.child(_folder(plan, bench, one)),
            progress=tell,
        )
        found |= _judged(swept, options)
    return found


def _folder(plan: Plan, bench: Bench, one: Exhibit) -> str:
    """Return where a sweep keeps its steps: one folder per model, rows and settings."""
    facts = [bench.local.digest(), bench.images, bench.labels]
    made = fingerprint([*facts, plan.temperatures, plan.epsilons])
    return f"{one.slug}-{plan.name.replace(' ', '-')}-{made}".replace("'", "")


def _fixed(one: Exhibit) -> dict[str, float]:
    """Return what the paper's figure holds fixed on this data set."""
    known = paper("sweep")
    return dict(known.get(one.dataset.name, known["cifar10"]))


def _judged(swept: Any, options: Options) -> Found:
    p = swept.predictions
    found: Found = {}
    for j, setting in enumerate(swept.settings):
        moved = swept.predicted[:, j] != p.labels
        pair = (
            (swept.scores[:, j], p.errors),
            (swept.paper_scores[:, j], moved),
        )
        for _, errors in pair:
            if errors.all() or not errors.any():
                message = "every row is right or every row is wrong: take more --rows."
                raise InputError(message)
        deployed, paper = (_area(setting.score, *rows, options) for rows in pair)
        key = (setting.score, setting.temperature, setting.epsilon)
        found[key] = Result(deployed, paper, 1 - float(moved.mean()), *pair[0])
    return found


def _area(score: str, scores: Array, errors: Array, options: Options) -> float:
    if options.protocol == "exact":
        return auroc(scores, errors)
    wide = np.asarray(scores, np.float64)
    if score == "alpha":
        return evaluate_grid(np.exp(wide), errors).auroc
    if score == "beta":
        top = (1 / (1 + np.exp(wide))).astype(np.float32).astype(np.float64)
        return evaluate_grid((1 - top) / top, errors).auroc
    if score == "odin":
        top = (-np.expm1(wide)).astype(np.float32).astype(np.float64)
        return evaluate_grid(top, errors, below=True).auroc
    return evaluate_grid(wide, errors).auroc


def _best(one: Exhibit, found: Found, methods: list[str], options: Options) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for method in methods:
        own = {key: cell for key, cell in found.items() if key[0] == method}
        clean = min(own, key=lambda key: (key[2], key[1]))
        for what, key in (
            ("T=1, eps=0", clean),
            ("best deployed", max(own, key=lambda key: own[key].deployed)),
            ("best paper", max(own, key=lambda key: own[key].paper)),
        ):
            cell = own[key]
            deployed = Estimate(cell.deployed)
            if options.protocol == "exact":
                low, high = delong(cell.scores, cell.errors)
                deployed = Estimate(cell.deployed, low, high)
            deployed = in_percent(deployed)
            at = f"{key[1]:g}, {key[2]:g}"
            accuracy = 100 * cell.accuracy
            rows.append((method, what, at, deployed, 100 * cell.paper, accuracy))
    columns = (
        "method",
        "setting",
        "T, eps",
        "AUROC\ndeployed",
        "AUROC\npaper",
        "accuracy\nperturbed",
    )
    return Table(f"{one.title}, in %", columns, tuple(rows))


def _line(
    label: str, found: Found, keys: list[tuple[str, float, float]], axis: int
) -> Line:
    at = [key for key in keys if key in found]
    return Line(
        label,
        tuple(key[1] if axis == 1 else key[2] for key in at),
        tuple(100 * getattr(found[key], label.split()[-1]) for key in at),
    )


def _alpha_beta(name: str, found: Found, one: Exhibit) -> Picture:
    fixed = _fixed(one)
    eps, own = fixed["epsilon"], fixed["beta"]
    temperatures = sorted({k[1] for k in found if k[2] == eps})
    epsilons = sorted({key[2] for key in found})
    panels = []
    for title, keys, axis in (
        (f"eps = {eps:g}", [(t, eps) for t in temperatures], 1),
        ("T = 1", [(1.0, e) for e in epsilons], 2),
        (f"T = {own:g}", [(own, e) for e in epsilons], 2),
    ):
        lines = tuple(
            _line(f"{method} {kind}", found, [(method, *key) for key in keys], axis)
            for method in ("alpha", "beta")
            for kind in ("deployed", "paper")
        )
        x = "temperature" if axis == 1 else "epsilon (pixels)"
        panels.append(Panel(title, x, "AUROC %", lines, log_x=axis == 1))
    title = f"alpha against beta, {one.title}"
    return Picture(name, title, tuple(panels), columns=3)


def _everyone(name: str, found: Found, methods: list[str], one: Exhibit) -> Picture:
    epsilons = sorted({key[2] for key in found})
    panels = []
    for kind in ("deployed", "paper"):
        for t in SHOWN:
            lines = tuple(
                _line(f"{method} {kind}", found, [(method, t, e) for e in epsilons], 2)
                for method in methods
                if (method, t, epsilons[-1]) in found
            )
            title = f"T = {t:g}, {kind}"
            panels.append(Panel(title, "epsilon (pixels)", "AUROC %", lines))
    return Picture(name, f"All methods, {one.title}", tuple(panels), columns=4)
