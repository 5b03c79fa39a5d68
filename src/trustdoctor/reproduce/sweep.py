"""AUROC over temperatures and magnitudes: the figures of appendix C.4."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.metrics import Estimate, auroc, delong
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.experiment import Options, choose_rows, fingerprint, paper
from trustdoctor.reproduce.grid import evaluate_grid
from trustdoctor.reproduce.methods import fit_mahalanobis
from trustdoctor.reproduce.model_run import BATCH, ModelRun
from trustdoctor.reproduce.report import Cell, Report, Table, in_percent
from trustdoctor.reproduce.sources import Exhibit, ScoreSetting, small_exhibits

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


class SettingResult(NamedTuple):
    """One setting's AUROCs and the accuracy of the perturbed predictions."""

    deployed: float
    paper: float
    accuracy: float
    scores: Array
    errors: Array


SettingResults = dict[ScoreSetting, SettingResult]


class SweepPlan(NamedTuple):
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
    for exhibit in exhibits:
        assert exhibit.model_run is not None
        results = _sweep_figures(exhibit.model_run, exhibit, options)
        methods = list(dict.fromkeys(setting.score for setting in results))
        tables.append(_best_settings(exhibit, results, methods, options))
        prefix = "" if len(exhibits) == 1 else f"{exhibit.slug}-"
        pictures.append(_alpha_beta(f"{prefix}alpha-beta", results, exhibit))
        pictures.append(_all_methods(f"{prefix}all", results, methods, exhibit))
        if "mahalanobis" not in methods:
            notes.append(
                f"mahalanobis needs logits of the training rows: {exhibit.model}-"
                f"{exhibit.dataset.name}-train.npz in the data folder."
            )
    words = WORDS.format(
        rows=options.rows,
        grid=FULL if options.fine else COARSE,
        protocol=PROTOCOLS[options.protocol],
    )
    return Report("sweep", TITLE, tuple(tables), words, tuple(pictures), tuple(notes))


def choose(
    exhibit: Exhibit, options: Options
) -> tuple[dict[str, ScoreSetting], Array] | None:
    """Choose each method's setting on labelled rows, by its AUROC as deployed.

    Returns the settings, and the rows that judge them: others than those that chose.
    None if there is no model to run, or too few rows.
    """
    n = len(exhibit.clean.predictions)
    rows = choose_rows(n, replace(options, rows=ROWS))
    if exhibit.model_run is None or rows is None or n < 2 * ROWS:
        return None
    sample = replace(exhibit, clean=exhibit.clean.take(rows), stored={})
    plan = SweepPlan("choice", ("alpha", "beta"), CHOICES, COARSE_EPSILONS)
    results = _sweep([plan], exhibit.model_run.take(rows), sample, options)
    best: dict[str, ScoreSetting] = {}
    for setting, result in results.items():
        method = setting.score
        if method not in best or result.deployed > results[best[method]].deployed:
            best[method] = setting
    # The best of many settings flatters itself on the rows that chose it.
    rng = np.random.default_rng(options.seed)
    judging = rng.permutation(np.delete(np.arange(n), rows))[:JUDGES]
    return best, np.sort(judging)


def _sweep_figures(
    model_run: ModelRun, exhibit: Exhibit, options: Options
) -> SettingResults:
    """Sweep what the figures of appendix C.4 show."""
    from trustdoctor.adapters.torch import EPSILONS, TEMPERATURES

    fixed = _fixed_settings(exhibit)
    pair = ("alpha", "beta")
    fine = options.fine
    temperatures: Any = TEMPERATURES if fine else COARSE_TEMPERATURES
    epsilons: Any = EPSILONS if fine else COARSE_EPSILONS
    plans: list[SweepPlan] = [
        SweepPlan("magnitudes", (*pair, "odin"), SHOWN, epsilons),
        SweepPlan("temperatures", pair, temperatures, (0.0, fixed["epsilon"])),
        SweepPlan("magnitudes at beta's T", pair, (fixed["beta"],), epsilons),
    ]
    train = exhibit.train
    if train is not None and not train.predictions.from_probabilities:
        mahalanobis = fit_mahalanobis(train, "logits")
        plans.append(SweepPlan("mahalanobis", (mahalanobis,), (1.0,), epsilons))
    return _sweep(plans, model_run, exhibit, options)


def _sweep(
    plans: list[SweepPlan], model_run: ModelRun, exhibit: Exhibit, options: Options
) -> SettingResults:
    from trustdoctor.adapters.torch import sweep

    local = model_run.local
    batches = local.batches(model_run.images, model_run.labels, BATCH)
    results: SettingResults = {}
    for i, plan in enumerate(plans):

        def tell(share: float, _doing: str, i: int = i, name: str = plan.name) -> None:
            model_run.options.tell((i + share) / len(plans), f"settings, {name}")

        swept = sweep(
            local.model,
            batches,
            scores=plan.scores,
            temperatures=plan.temperatures,
            epsilons=plan.epsilons,
            scale=local.scale,
            checkpoint=options.steps.child(_folder(plan, model_run, exhibit)),
            progress=tell,
        )
        results |= _judge_settings(swept, options)
    return results


def _folder(plan: SweepPlan, model_run: ModelRun, exhibit: Exhibit) -> str:
    """Return the folder of a sweep's steps: one per model, rows and settings."""
    facts = [model_run.local.digest(), model_run.images, model_run.labels]
    sweep_id = fingerprint([*facts, plan.temperatures, plan.epsilons])
    return f"{exhibit.slug}-{plan.name.replace(' ', '-')}-{sweep_id}".replace("'", "")


def _fixed_settings(exhibit: Exhibit) -> dict[str, float]:
    """Return the values that the paper's figure holds fixed on this data set."""
    by_dataset = paper("sweep")
    return dict(by_dataset.get(exhibit.dataset.name, by_dataset["cifar10"]))


def _judge_settings(swept: Any, options: Options) -> SettingResults:
    """Judge every setting of a sweep by the clean and by the perturbed errors."""
    p = swept.predictions
    results: SettingResults = {}
    for j, setting in enumerate(swept.settings):
        perturbed_errors = swept.predicted[:, j] != p.labels
        by_protocol = (
            (swept.scores[:, j], p.errors),
            (swept.paper_scores[:, j], perturbed_errors),
        )
        for _, errors in by_protocol:
            if errors.all() or not errors.any():
                message = "every row is right or every row is wrong: take more --rows."
                raise InputError(message)
        deployed, paper = (_area(setting.score, *rows, options) for rows in by_protocol)
        accuracy = 1 - float(perturbed_errors.mean())
        key = ScoreSetting(setting.score, setting.temperature, setting.epsilon)
        results[key] = SettingResult(deployed, paper, accuracy, *by_protocol[0])
    return results


def _area(score: str, scores: Array, errors: Array, options: Options) -> float:
    """Return the AUROC by the protocol; the grid needs the published values."""
    if options.protocol == "exact":
        return auroc(scores, errors)
    wide = np.asarray(scores, np.float64)
    # Alpha and beta are the logs of the published ratios, ODIN of the probability.
    # Stored probabilities are float32, and saturate to 1 there: the grid needs that.
    if score == "alpha":
        return evaluate_grid(np.exp(wide), errors).auroc
    if score == "beta":
        top = (1 / (1 + np.exp(wide))).astype(np.float32).astype(np.float64)
        return evaluate_grid((1 - top) / top, errors).auroc
    if score == "odin":
        top = (-np.expm1(wide)).astype(np.float32).astype(np.float64)
        return evaluate_grid(top, errors, below=True).auroc
    return evaluate_grid(wide, errors).auroc


def _best_settings(
    exhibit: Exhibit, results: SettingResults, methods: list[str], options: Options
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for method in methods:
        of_method = {k: result for k, result in results.items() if k.score == method}
        clean = min(of_method, key=lambda k: (k.epsilon, k.temperature))
        best_deployed = max(of_method, key=lambda k: of_method[k].deployed)
        best_paper = max(of_method, key=lambda k: of_method[k].paper)
        for title, setting in (
            ("T=1, eps=0", clean),
            ("best deployed", best_deployed),
            ("best paper", best_paper),
        ):
            result = of_method[setting]
            deployed = Estimate(result.deployed)
            if options.protocol == "exact":
                low, high = delong(result.scores, result.errors)
                deployed = Estimate(result.deployed, low, high)
            t_and_eps = f"{setting.temperature:g}, {setting.epsilon:g}"
            numbers = 100 * result.paper, 100 * result.accuracy
            rows.append((method, title, t_and_eps, in_percent(deployed), *numbers))
    columns = (
        "method",
        "setting",
        "T, eps",
        "AUROC\ndeployed",
        "AUROC\npaper",
        "accuracy\nperturbed",
    )
    return Table(f"{exhibit.title}, in %", columns, tuple(rows))


def _line(
    label: str, results: SettingResults, settings: list[ScoreSetting], axis: str
) -> Line:
    """Draw the AUROC over temperature or epsilon; the label ends in the protocol."""
    drawn = [setting for setting in settings if setting in results]
    protocol = label.split()[-1]
    return Line(
        label,
        tuple(float(getattr(setting, axis)) for setting in drawn),
        tuple(100 * getattr(results[setting], protocol) for setting in drawn),
    )


def _alpha_beta(name: str, results: SettingResults, exhibit: Exhibit) -> Picture:
    fixed = _fixed_settings(exhibit)
    fixed_epsilon, beta_temperature = fixed["epsilon"], fixed["beta"]
    temperatures = sorted(
        {k.temperature for k in results if k.epsilon == fixed_epsilon}
    )
    epsilons = sorted({k.epsilon for k in results})
    panels = []
    for title, pairs, axis in (
        (
            f"eps = {fixed_epsilon:g}",
            [(t, fixed_epsilon) for t in temperatures],
            "temperature",
        ),
        ("T = 1", [(1.0, e) for e in epsilons], "epsilon"),
        (
            f"T = {beta_temperature:g}",
            [(beta_temperature, e) for e in epsilons],
            "epsilon",
        ),
    ):
        lines = tuple(
            _line(
                f"{method} {protocol}",
                results,
                [ScoreSetting(method, *pair) for pair in pairs],
                axis,
            )
            for method in ("alpha", "beta")
            for protocol in ("deployed", "paper")
        )
        log_x = axis == "temperature"
        x = "temperature" if log_x else "epsilon (pixels)"
        panels.append(Panel(title, x, "AUROC %", lines, log_x=log_x))
    title = f"alpha against beta, {exhibit.title}"
    return Picture(name, title, tuple(panels), columns=3)


def _all_methods(
    name: str, results: SettingResults, methods: list[str], exhibit: Exhibit
) -> Picture:
    epsilons = sorted({setting.epsilon for setting in results})
    panels = []
    for protocol in ("deployed", "paper"):
        for t in SHOWN:
            lines = tuple(
                _line(
                    f"{method} {protocol}",
                    results,
                    [ScoreSetting(method, t, e) for e in epsilons],
                    "epsilon",
                )
                for method in methods
                if ScoreSetting(method, t, epsilons[-1]) in results
            )
            title = f"T = {t:g}, {protocol}"
            panels.append(Panel(title, "epsilon (pixels)", "AUROC %", lines))
    return Picture(name, f"All methods, {exhibit.title}", tuple(panels), columns=4)
