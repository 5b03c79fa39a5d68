"""Out-of-distribution rows mixed in, and alone: Table 2 and appendix C."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import InputError
from trustdoctor.metrics import auroc, frr_at_trr
from trustdoctor.predictions import Predictions
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.datasets import (
    DATASETS,
    DEBIAN,
    OUT_SETS,
    Dataset,
    find_dataset,
)
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.formats import read_images
from trustdoctor.reproduce.methods import (
    PBB,
    TBB,
    MissingMethod,
    ScoredMethod,
    score_method,
)
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.roc_curves import points
from trustdoctor.reproduce.sources import (
    Exhibit,
    ModelOutput,
    ScoreSetting,
    find_exhibits,
    read_output,
    runnable_exhibits,
)
from trustdoctor.reproduce.whitebox import (
    TRAIN,
    can_fit,
    fit_whitebox,
    whitebox_scores,
)

TITLE = "Out-of-distribution rows mixed in (Table 2, appendix C)"
MOST = 2_000
"""Rows of each out-of-distribution set, drawn at random."""

ODIN_OOD = ScoreSetting("odin", 1000.0, 0.0014)
PERTURBED = PBB | {"odin_ood": ODIN_OOD}
PURE = {
    "alpha T=15": ("alpha", ScoreSetting("alpha", 15.0)),
    "beta T=1000": ("beta", ScoreSetting("beta", 1000.0)),
    "odin_ood": ("odin_ood", ODIN_OOD),
    "alpha PBB": ("alpha PBB", PBB["alpha"]),
    "energy": ("energy", PBB["energy"]),
}
ONE_IN = (5, 3, 2)
COLUMNS = (
    "method",
    "scenario",
    "one\nin",
    "AUROC\npaper",
    "AUROC\nhere",
    "FRR95\npaper",
    "FRR95\nhere",
)
WORDS = (
    "Rows to reject are the model's errors and the out-of-distribution rows; `one in "
    "5` means that one of five rows to reject is out of distribution. Numbers are mean "
    "/ standard deviation over {draws} draws of the latter, {protocol}. `PBB paper` "
    "counts the errors of the perturbed predictions, `PBB deployed` those of the clean "
    "ones. The pure table sets all of the model's rows, right or wrong, against the "
    "out-of-distribution ones. Where the paper has no numbers for a set, ours stand "
    "beside a dash."
)


class OutSet(NamedTuple):
    """A set of out-of-distribution rows."""

    name: str
    title: str
    rows: Exhibit

    @property
    def like(self) -> str:
        """The paper's set that this is, or is made like."""
        dataset = OUT_SETS.get(self.name)
        return dataset.like or self.name if dataset else self.name


def run(options: Options) -> Report:
    """Mix each set into each model's own rows, and judge every method."""
    tables: list[Table] = []
    pictures: list[Picture] = []
    exhibits, notes = _model_rows(options)
    for exhibit in exhibits:
        prefix = "" if len(exhibits) == 1 else f"{exhibit.slug}-"
        result = _mix_into(exhibit, prefix, options)
        tables += result.tables
        pictures += result.pictures
        notes += result.notes
    words = WORDS.format(draws=options.draws, protocol=options.protocol)
    return Report("ood", TITLE, tuple(tables), words, tuple(pictures), tuple(notes))


class OodResult(NamedTuple):
    """The tables, pictures and notes of one model."""

    tables: list[Table]
    pictures: list[Picture]
    notes: list[str]


def _mix_into(exhibit: Exhibit, prefix: str, options: Options) -> OodResult:
    """Mix each set into the rows of one model."""
    out_sets = list(_out_sets(exhibit, options))
    whitebox = None
    if exhibit.model_run is not None:
        # Clean, three perturbations, for the model's rows and each set.
        exhibit.model_run.expected_passes = 4 * (1 + len(out_sets)) + 1
        if can_fit(exhibit.model_run):
            training = exhibit.model_run.training_examples(TRAIN)
            whitebox = fit_whitebox(exhibit.model_run, training)
    in_methods = list(_methods(exhibit, whitebox))
    by_name = {
        (m.method, m.scenario): m for m in in_methods if isinstance(m, ScoredMethod)
    }
    tables, pictures = [], []
    for i, out_set in enumerate(out_sets):
        pairs = [
            (outside, by_name[outside.method, outside.scenario])
            for outside in _methods(out_set.rows, whitebox)
            if isinstance(outside, ScoredMethod)
            and (outside.method, outside.scenario) in by_name
        ]
        tables.append(_mixtures(exhibit, out_set, pairs, options))
        tables.append(_pure(exhibit, out_set, options))
        name = f"{prefix}{i + 1}-{_slug(out_set.name)}"
        pictures.append(_picture(name, exhibit, out_set, pairs, options))
    notes = [_size_note(out_set, exhibit) for out_set in out_sets]
    if exhibit.model_run is not None and whitebox is None:
        notes.append(
            f"{exhibit.name}: mhlnb_wb needs the training images in the data folder, "
            "and a model of several layers."
        )
    notes += [
        f"{missing.method} {missing.scenario} needs {missing.needs}."
        for missing in in_methods
        if isinstance(missing, MissingMethod)
    ]
    return OodResult(tables, pictures, notes)


def _size_note(out_set: OutSet, exhibit: Exhibit) -> str:
    """Return how many rows a set has, and whether they are drawn more than once."""
    n = len(out_set.rows.clean.predictions)
    errors = int(exhibit.clean.predictions.errors.sum())
    short = "" if n >= errors else ", fewer than errors: some are drawn repeatedly"
    return f"{out_set.title}: {n:,} rows{short}."


def _model_rows(options: Options) -> tuple[list[Exhibit], list[str]]:
    """Return the models whose rows are mixed with others; note the unused ones."""
    if options.model is not None:
        return runnable_exhibits(options), []
    exhibits = find_exhibits(options)
    if not exhibits:
        message = (
            "ood needs a model (--model, --weights, --data) or the predictions of one "
            "(--predictions FILE --ood FILE, or --data DIR --ood FILE)."
        )
        raise InputError(message)
    if all(_is_file(name) for name in options.ood) and options.ood:
        chosen = exhibits[:1]
    else:
        chosen = list(_lightest(exhibits, options)) or exhibits[:1]
    unused = "; ".join(e.name for e in exhibits if e not in chosen)
    if not unused:
        return chosen, []
    names = ", ".join(exhibit.name for exhibit in chosen)
    return chosen, [f"The rows are of {names}. Others, for --predictions: {unused}."]


def _lightest(exhibits: list[Exhibit], options: Options) -> Iterator[Exhibit]:
    """Yield the fastest model that can be run on each data set of the paper's table."""
    names = [options.dataset] if options.dataset else list(paper("ood")["mixtures"])
    for name in names:
        runnable = [
            (exhibit.model_run.local.size(), exhibit)
            for exhibit in exhibits
            if exhibit.dataset.name == name and exhibit.model_run
        ]
        if runnable:
            yield min(runnable, key=lambda pair: pair[0])[1]


def _is_file(name: str) -> bool:
    return Path(name).suffix in (".npz", ".csv") and Path(name).is_file()


def _out_sets(exhibit: Exhibit, options: Options) -> Iterator[OutSet]:
    names = options.ood or tuple(_sets_in_data(exhibit, options))
    if not names:
        message = (
            "expected out-of-distribution rows: --ood NAME, FOLDER or FILE, as "
            f"--ood noise. Names: noise, {', '.join(OUT_SETS | DATASETS)}."
        )
        raise InputError(message)
    for name in names:
        path = Path(name)
        if _is_file(name):
            output = read_output(path)
            _check_width(output, exhibit, path)
            rows = Exhibit(exhibit.dataset, path.stem, output)
            yield OutSet(name, path.stem, rows)
        else:
            yield _images_of_set(name, exhibit, options)


def _sets_in_data(exhibit: Exhibit, options: Options) -> Iterator[str]:
    """Name the sets in the data folder, and noise; none without a model to run."""
    if exhibit.model_run is None:
        return
    in_table_1 = {name: DATASETS[name] for name in ("svhn", "cifar10")}
    for name, dataset in (OUT_SETS | in_table_1).items():
        if name != exhibit.dataset.name and _folder(dataset, options) is not None:
            yield name
    yield "noise"


def _folder(dataset: Dataset, options: Options) -> Path | None:
    for folder in (options.data, DEBIAN):
        if folder is not None and folder.is_dir() and dataset.locate(folder):
            return folder
    return None


def _images_of_set(name: str, exhibit: Exhibit, options: Options) -> OutSet:
    """Run the model on some images of a set."""
    model_run = exhibit.model_run
    if model_run is None:
        message = f"{name!r} is of images, which need --model. Or name predictions."
        raise InputError(message)
    rng = np.random.default_rng(options.seed)
    title = name
    if name == "noise":  # as the ODIN paper draws it
        drawn = rng.normal(0.5, 1.0, (MOST, *model_run.images.shape[1:]))
        pixels = (255 * np.clip(drawn, 0, 1)).astype(np.uint8)
        title = "Gaussian noise"
    elif name in OUT_SETS or name in DATASETS:
        dataset = find_dataset(name)
        title = dataset.title
        assert options.data is not None
        pixels = dataset.load(_folder(dataset, options) or options.data).values
    else:
        pixels = read_images(Path(name)).values
    if not isinstance(pixels, np.ndarray):
        message = f"{title} holds texts; the model takes images."
        raise InputError(message)
    pixels = pixels[np.sort(rng.permutation(len(pixels))[:MOST])]
    pixels = model_run.resized(pixels)
    clean = ModelOutput(Predictions.from_logits(model_run.logits(images=pixels)))
    rows = Exhibit(
        exhibit.dataset,
        title,
        clean,
        load_run=lambda _exhibit: model_run,
        images=pixels,
    )
    return OutSet(name, title, rows)


def _check_width(output: ModelOutput, exhibit: Exhibit, path: Path) -> None:
    classes, expected = (o.predictions.logits.shape[1] for o in (output, exhibit.clean))
    if classes != expected:
        message = f"{path} has {classes} classes, the model's own rows have {expected}."
        raise InputError(message)


def _methods(exhibit: Exhibit, whitebox: Any) -> Iterator[ScoredMethod | MissingMethod]:
    """Yield all methods on the rows of a model or of an out-of-distribution set."""
    clean = exhibit.clean
    for method, setting in TBB.items():
        if method != "sr":  # ODIN coincides with it there
            yield _score(method, "TBB", setting, clean, clean)
    for method, setting in PERTURBED.items():
        if method == "energy" and clean.predictions.from_probabilities:
            yield MissingMethod(method, "PBB", "true logits")
            continue
        perturbed = exhibit.perturbed(setting)
        if perturbed is None:
            yield MissingMethod(method, "PBB", "--model")
            continue
        if setting.epsilon:
            yield _score(method, "PBB paper", setting, perturbed, perturbed)
        yield _score(method, "PBB deployed", setting, perturbed, clean)
    if whitebox is not None and exhibit.model_run is not None:
        scores = whitebox_scores(exhibit.model_run, whitebox, exhibit.images)
        errors = _with_errors(clean).predictions.errors
        yield ScoredMethod("mhlnb_wb", "WB", scores, errors, scores)


def _score(
    method: str,
    scenario: str,
    setting: ScoreSetting,
    output: ModelOutput,
    judged: ModelOutput,
) -> ScoredMethod:
    return score_method(method, scenario, setting, output, _with_errors(judged))


def _with_errors(output: ModelOutput) -> ModelOutput:
    """Label out-of-distribution rows, which have no labels, so that all are wrong."""
    predictions = output.predictions
    if predictions.labels is not None:
        return output
    other_class = (predictions.predicted + 1) % predictions.logits.shape[1]
    wrong = Predictions.from_logits(predictions.logits, other_class)
    return ModelOutput(wrong, output.probs)


def _mixtures(
    exhibit: Exhibit,
    out_set: OutSet,
    pairs: list[tuple[ScoredMethod, ScoredMethod]],
    options: Options,
) -> Table:
    """Judge each method on the model's rows with rows of the set among the errors."""
    mixtures = paper("ood")["mixtures"].get(exhibit.dataset.name, {})
    printed_by_share = mixtures.get(out_set.like, {})
    rows: list[tuple[Cell, ...]] = []
    for one_in in ONE_IN:
        for outside, inside in pairs:
            doing = f"{out_set.title}: {outside.method}, one in {one_in}"
            options.tell(0.95, doing)
            # The paper has its white-box method among the PBB ones.
            scenario = "PBB" if outside.scenario == "WB" else outside.scenario[:3]
            printed = printed_by_share.get(str(one_in), {}).get(scenario, {})
            cells = printed.get(outside.method, {})
            if _judged_otherwise(outside):
                cells = {}
            areas_and_frrs = _draw(outside, inside, one_in, options)
            shown = [
                (_mean_and_deviation(cells.get(metric)), _mean_and_deviation(measured))
                for metric, measured in zip(
                    ("auroc", "frr"), areas_and_frrs, strict=True
                )
            ]
            rows.append(
                (outside.method, outside.scenario, one_in, *shown[0], *shown[1])
            )
    title = f"{exhibit.dataset.title} ({exhibit.model}) with {out_set.title}, in %"
    return Table(title, COLUMNS, tuple(rows))


def _judged_otherwise(scored: ScoredMethod) -> bool:
    """Return whether the paper judges this method by its perturbed predictions."""
    setting = PERTURBED.get(scored.method)
    return (
        scored.scenario == "PBB deployed"
        and setting is not None
        and setting.epsilon > 0
    )


def _mean_and_deviation(pair: Any) -> str | None:
    """Show mean / standard deviation."""
    if pair is None:
        return None
    mean, deviation = pair
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} / {deviation:.1f}"


def _draw(
    outside: ScoredMethod, inside: ScoredMethod, one_in: int, options: Options
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return mean and standard deviation of AUROC and of FRR95 over the draws."""
    size = round(int(inside.errors.sum()) / (one_in - 1))
    n = len(outside.scores)
    rng = np.random.default_rng([options.seed, one_in])
    metrics = []
    for _ in range(options.draws):
        # A model that is often wrong has more errors than a set has rows.
        rows = rng.choice(n, size, replace=size > n)
        metrics.append(_judge(mix(inside, outside, rows), options))
    mean, deviation = 100 * np.mean(metrics, 0), 100 * np.std(metrics, 0, ddof=1)
    return (mean[0], deviation[0]), (mean[1], deviation[1])


def mix(
    inside: ScoredMethod, outside: ScoredMethod, rows: NDArray[np.int64]
) -> ScoredMethod:
    """Return the model's rows with some out-of-distribution rows added as errors."""
    return ScoredMethod(
        inside.method,
        inside.scenario,
        np.concatenate([inside.scores, outside.scores[rows]]),
        np.concatenate([inside.errors, np.ones(len(rows), bool)]),
        np.concatenate([inside.values, outside.values[rows]]),
        inside.below,
    )


def _judge(scored: ScoredMethod, options: Options) -> tuple[float, float]:
    if options.protocol == "grid":
        grid = scored.grid()
        return grid.auroc, grid.frr
    scores = np.asarray(scored.scores)
    return auroc(scores, scored.errors), frr_at_trr(scores, scored.errors)


def _pure(exhibit: Exhibit, out_set: OutSet, options: Options) -> Table:
    """Set all of the model's rows, right or wrong, against the set's."""
    printed = paper("ood")
    theirs = printed["pure"].get(exhibit.dataset.name, {}).get(out_set.like, {})
    near = printed["near"]
    if (exhibit.dataset.name, out_set.name) == (near["in"], near["out"]):
        theirs = {key: near[key] for key in ("energy", "odin_ood")}
        theirs["alpha PBB"] = near["alpha"]
    rows: list[tuple[Cell, ...]] = []
    for shown, (key, setting) in PURE.items():
        inside, outside = exhibit.perturbed(setting), out_set.rows.perturbed(setting)
        if inside is None or outside is None:
            continue
        if setting.score == "energy" and (
            inside.predictions.from_probabilities
            or outside.predictions.from_probabilities
        ):
            continue  # it needs true logits
        model_rows = _score("", "", setting, inside, exhibit.clean)
        set_rows = _score("", "", setting, outside, out_set.rows.clean)
        none_wrong = np.zeros(len(model_rows.errors), bool)
        all_rows = np.arange(len(set_rows.scores))
        scored = mix(replace(model_rows, errors=none_wrong), set_rows, all_rows)
        area, frr = scored.judge(options)
        cells: list[Cell] = [None, None]
        if key in theirs:
            cells = [float(number) for number in theirs[key]]
        rows.append((shown, cells[0], area, cells[1], frr))
    columns = ("method", "AUROC\npaper", "AUROC\nhere", "FRR95\npaper", "FRR95\nhere")
    title = (
        f"{exhibit.dataset.title} ({exhibit.model}) against {out_set.title} alone, in %"
    )
    return Table(title, columns, tuple(rows))


def _picture(
    name: str,
    exhibit: Exhibit,
    out_set: OutSet,
    pairs: list[tuple[ScoredMethod, ScoredMethod]],
    options: Options,
) -> Picture:
    rng = np.random.default_rng(options.seed)
    panels = []
    for scenario in ("TBB", "PBB paper", "PBB deployed"):
        lines = []
        for outside, inside in pairs:
            if outside.scenario == scenario:
                size, n = int(inside.errors.sum()), len(outside.scores)
                rows = rng.choice(n, size, replace=size > n)
                curve = mix(inside, outside, rows).curve(options)
                lines.append(Line(outside.method, *points(curve)))
        if lines:
            panels.append(Panel(scenario, "FRR", "TRR", tuple(lines), level=0.95))
    title = f"{exhibit.name}: of two rows to reject one is of {out_set.title}"
    return Picture(name, title, tuple(panels), columns=3)


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in Path(name).stem.lower())
