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
from trustdoctor.reproduce.cases import PBB, TBB, Case, Missing, make_case
from trustdoctor.reproduce.datasets import (
    DATASETS,
    DEBIAN,
    OUT_SETS,
    Dataset,
    find_dataset,
)
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.formats import read_images
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.roc_curves import points
from trustdoctor.reproduce.sources import (
    Answers,
    Exhibit,
    Setting,
    find_exhibits,
    read_answers,
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

ODIN_OOD = Setting("odin", 1000.0, 0.0014)
PERTURBED = PBB | {"odin_ood": ODIN_OOD}
PURE = {
    "alpha T=15": ("alpha", Setting("alpha", 15.0)),
    "beta T=1000": ("beta", Setting("beta", 1000.0)),
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


class Crowd(NamedTuple):
    """A set of out-of-distribution rows."""

    name: str
    title: str
    rows: Exhibit

    @property
    def like(self) -> str:
        """The set of the paper that it is, or that it was made like."""
        known = OUT_SETS.get(self.name)
        return known.like or self.name if known else self.name


def run(options: Options) -> Report:
    """Mix each set into each model's own rows, and judge every method."""
    tables: list[Table] = []
    pictures: list[Picture] = []
    models, notes = _model_rows(options)
    for one in models:
        own = "" if len(models) == 1 else f"{one.slug}-"
        found = _report(one, own, options)
        tables += found.tables
        pictures += found.pictures
        notes += found.notes
    words = WORDS.format(draws=options.draws, protocol=options.protocol)
    return Report("ood", TITLE, tuple(tables), words, tuple(pictures), tuple(notes))


class Found(NamedTuple):
    """What there is to show of one model."""

    tables: list[Table]
    pictures: list[Picture]
    notes: list[str]


def _report(one: Exhibit, prefix: str, options: Options) -> Found:
    """Mix each set into the rows of one model."""
    crowds = list(_crowds(one, options))
    box = None
    if one.bench is not None:
        one.bench.runs = 4 * (1 + len(crowds)) + 1
        if can_fit(one.bench):
            box = fit_whitebox(one.bench, one.bench.train(TRAIN))
    own = list(_cases(one, box))
    known = {(c.method, c.scenario): c for c in own if isinstance(c, Case)}
    tables, pictures = [], []
    for i, crowd in enumerate(crowds):
        mixed = [
            (c, known[c.method, c.scenario])
            for c in _cases(crowd.rows, box)
            if isinstance(c, Case) and (c.method, c.scenario) in known
        ]
        tables.append(_mixtures(one, crowd, mixed, options))
        tables.append(_pure(one, crowd, options))
        name = f"{prefix}{i + 1}-{_slug(crowd.name)}"
        pictures.append(_picture(name, one, crowd, mixed, options))
    notes = [_described(crowd, one) for crowd in crowds]
    if one.bench is not None and box is None:
        notes.append(
            f"{one.name}: mhlnb_wb needs the training images in the data folder, and a "
            "model of several layers."
        )
    notes += [
        f"{case.method} {case.scenario} needs {case.why}."
        for case in own
        if isinstance(case, Missing)
    ]
    return Found(tables, pictures, notes)


def _described(crowd: Crowd, one: Exhibit) -> str:
    """Say how many rows a set has, and whether they are drawn more than once."""
    n, errors = (
        len(crowd.rows.clean.predictions),
        int(one.clean.predictions.errors.sum()),
    )
    short = "" if n >= errors else ", fewer than errors: some are drawn repeatedly"
    return f"{crowd.title}: {n:,} rows{short}."


def _model_rows(options: Options) -> tuple[list[Exhibit], list[str]]:
    """Return whose rows are mixed with others, and name what was left out."""
    if options.model is not None:
        return runnable_exhibits(options), []
    found = find_exhibits(options)
    if not found:
        message = (
            "ood needs a model (--model, --weights, --data) or the predictions of one "
            "(--predictions FILE --ood FILE, or --data DIR --ood FILE)."
        )
        raise InputError(message)
    if all(_is_file(name) for name in options.ood) and options.ood:
        taken = found[:1]
    else:
        taken = list(_lightest(found, options)) or found[:1]
    note = f"The rows are of {', '.join(one.name for one in taken)}."
    others = "; ".join(one.name for one in found if one not in taken)
    return taken, [f"{note} Others, for --predictions: {others}."] if others else []


def _lightest(found: list[Exhibit], options: Options) -> Iterator[Exhibit]:
    """Yield the fastest model that can be run on each data set of the paper's table."""
    names = [options.dataset] if options.dataset else list(paper("ood")["mixtures"])
    for name in names:
        there = [one for one in found if one.dataset.name == name]
        runnable = [(one.bench.local.size(), one) for one in there if one.bench]
        if runnable:
            yield min(runnable, key=lambda pair: pair[0])[1]


def _is_file(name: str) -> bool:
    return Path(name).suffix in (".npz", ".csv") and Path(name).is_file()


def _crowds(one: Exhibit, options: Options) -> Iterator[Crowd]:
    names = options.ood or tuple(_present(one, options))
    if not names:
        message = (
            "expected out-of-distribution rows: --ood NAME, FOLDER or FILE, as "
            f"--ood noise. Names: noise, {', '.join(OUT_SETS | DATASETS)}."
        )
        raise InputError(message)
    for name in names:
        path = Path(name)
        if _is_file(name):
            answers = read_answers(path)
            _check_width(answers, one, path)
            yield Crowd(name, path.stem, Exhibit(one.dataset, path.stem, answers))
        else:
            yield _pictured(name, one, options)


def _present(one: Exhibit, options: Options) -> Iterator[str]:
    """Name the sets that are there; noise always is, where there is a model."""
    if one.bench is None:
        return
    others = {name: DATASETS[name] for name in ("svhn", "cifar10")}
    for name, dataset in (OUT_SETS | others).items():
        if name != one.dataset.name and _folder(dataset, options) is not None:
            yield name
    yield "noise"


def _folder(dataset: Dataset, options: Options) -> Path | None:
    for folder in (options.data, DEBIAN):
        if folder is not None and folder.is_dir() and dataset.locate(folder):
            return folder
    return None


def _pictured(name: str, one: Exhibit, options: Options) -> Crowd:
    bench = one.bench
    if bench is None:
        message = f"{name!r} is of images, which need --model. Or name predictions."
        raise InputError(message)
    rng = np.random.default_rng(options.seed)
    title = name
    if name == "noise":
        drawn = rng.normal(0.5, 1.0, (MOST, *bench.images.shape[1:]))
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
    pixels = bench.fitted(pixels)
    clean = Answers(Predictions.from_logits(bench.logits(images=pixels)))
    rows = Exhibit(one.dataset, title, clean, make_bench=lambda _: bench, images=pixels)
    return Crowd(name, title, rows)


def _check_width(answers: Answers, one: Exhibit, path: Path) -> None:
    width, own = (a.predictions.logits.shape[1] for a in (answers, one.clean))
    if width != own:
        message = f"{path} has {width} classes, the model's own rows have {own}."
        raise InputError(message)


def _cases(one: Exhibit, box: Any) -> Iterator[Case | Missing]:
    """Yield all methods on rows; out-of-distribution rows all count as errors."""
    known = one.clean.predictions.labels is not None
    for method, setting in TBB.items():
        if method != "sr":  # ODIN coincides with it there
            yield _case(method, "TBB", setting, one.clean, one.clean, known=known)
    for method, setting in PERTURBED.items():
        if method == "energy" and one.clean.predictions.from_probabilities:
            yield Missing(method, "PBB", "true logits")
            continue
        answers = one.perturbed(setting)
        if answers is None:
            yield Missing(method, "PBB", "--model")
            continue
        if setting.epsilon:
            yield _case(method, "PBB paper", setting, answers, answers, known=known)
        yield _case(method, "PBB deployed", setting, answers, one.clean, known=known)
    if box is not None and one.bench is not None:
        scores = whitebox_scores(one.bench, box, one.images)
        errors = one.clean.predictions.errors if known else np.ones(len(scores), bool)
        yield Case("mhlnb_wb", "WB", scores, errors, scores)


def _case(  # noqa: PLR0913 - what `make_case` takes
    method: str,
    scenario: str,
    setting: Setting,
    answers: Answers,
    judged: Answers,
    *,
    known: bool,
) -> Case:
    if known:
        return make_case(method, scenario, setting, answers, judged)
    labels = (judged.predictions.predicted + 1) % judged.predictions.logits.shape[1]
    wrong = Answers(
        Predictions.from_logits(judged.predictions.logits, labels), judged.probs
    )
    return make_case(method, scenario, setting, answers, wrong)


def _mixtures(
    one: Exhibit, crowd: Crowd, mixed: list[tuple[Case, Case]], options: Options
) -> Table:
    theirs = paper("ood")["mixtures"].get(one.dataset.name, {}).get(crowd.like, {})
    rows: list[tuple[Cell, ...]] = []
    for one_in in ONE_IN:
        for out, own in mixed:
            options.tell(0.95, f"{crowd.title}: {out.method}, one in {one_in}")
            printed = theirs.get(str(one_in), {}).get(out.scenario[:3], {})
            if out.scenario == "WB":
                printed = theirs.get(str(one_in), {}).get("PBB", {})
            cells = printed.get(out.method, {})
            if _judged_otherwise(out):
                cells = {}
            ours = _draw(out, own, one_in, options)
            shown = [
                (_pair(cells.get(metric)), _pair(found))
                for metric, found in zip(("auroc", "frr"), ours, strict=True)
            ]
            rows.append((out.method, out.scenario, one_in, *shown[0], *shown[1]))
    title = f"{one.dataset.title} ({one.model}) with {crowd.title}, in %"
    return Table(title, COLUMNS, tuple(rows))


def _judged_otherwise(case: Case) -> bool:
    """Tell whether the paper judges this method by its perturbed predictions."""
    setting = PERTURBED.get(case.method)
    return (
        case.scenario == "PBB deployed" and setting is not None and setting.epsilon > 0
    )


def _pair(pair: Any) -> str | None:
    """Show mean / standard deviation."""
    if pair is None:
        return None
    mean, spread = pair
    return f"{mean:.1f}" if spread is None else f"{mean:.1f} / {spread:.1f}"


def _draw(
    out: Case, own: Case, one_in: int, options: Options
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return mean and standard deviation of AUROC and of FRR95 over the draws."""
    wanted = round(int(own.errors.sum()) / (one_in - 1))
    rng = np.random.default_rng([options.seed, one_in])
    found = []
    for _ in range(options.draws):
        rows = rng.choice(len(out.scores), wanted, replace=wanted > len(out.scores))
        found.append(_judge(mix(own, out, rows), options))
    mean, spread = 100 * np.mean(found, 0), 100 * np.std(found, 0, ddof=1)
    return (mean[0], spread[0]), (mean[1], spread[1])


def mix(own: Case, out: Case, rows: NDArray[np.int64]) -> Case:
    """Return the model's rows with some out-of-distribution rows added as errors."""
    return Case(
        own.method,
        own.scenario,
        np.concatenate([own.scores, out.scores[rows]]),
        np.concatenate([own.errors, np.ones(len(rows), bool)]),
        np.concatenate([own.values, out.values[rows]]),
        own.below,
    )


def _judge(case: Case, options: Options) -> tuple[float, float]:
    if options.protocol == "grid":
        found = case.grid()
        return found.auroc, found.frr
    scores = np.asarray(case.scores)
    return auroc(scores, case.errors), frr_at_trr(scores, case.errors)


def _pure(one: Exhibit, crowd: Crowd, options: Options) -> Table:
    everything = paper("ood")
    theirs = everything["pure"].get(one.dataset.name, {}).get(crowd.like, {})
    near = everything["near"]
    if (one.dataset.name, crowd.name) == (near["in"], near["out"]):
        theirs = {key: near[key] for key in ("energy", "odin_ood")}
        theirs["alpha PBB"] = near["alpha"]
    rows: list[tuple[Cell, ...]] = []
    for shown, (key, setting) in PURE.items():
        parts = [exhibit.perturbed(setting) for exhibit in (one, crowd.rows)]
        inside, outside = parts
        if inside is None or outside is None or _needs_logits(setting, parts):
            continue
        both = _against(setting, inside, outside, one, crowd)
        auc, frr = both.judge(options)
        printed: list[Cell] = [None, None]
        if key in theirs:
            printed = [float(number) for number in theirs[key]]
        rows.append((shown, printed[0], auc, printed[1], frr))
    columns = ("method", "AUROC\npaper", "AUROC\nhere", "FRR95\npaper", "FRR95\nhere")
    title = f"{one.dataset.title} ({one.model}) against {crowd.title} alone, in %"
    return Table(title, columns, tuple(rows))


def _needs_logits(setting: Setting, parts: list[Answers | None]) -> bool:
    return setting.score == "energy" and any(
        part is not None and part.predictions.from_probabilities for part in parts
    )


def _against(
    setting: Setting, inside: Answers, outside: Answers, one: Exhibit, crowd: Crowd
) -> Case:
    """Set all rows of the model against all out-of-distribution rows."""
    own = _case("", "", setting, inside, one.clean, known=True)
    out = _case("", "", setting, outside, crowd.rows.clean, known=False)
    own = replace(own, errors=np.zeros(len(own.errors), bool))
    return mix(own, out, np.arange(len(out.scores)))


def _picture(
    name: str,
    one: Exhibit,
    crowd: Crowd,
    mixed: list[tuple[Case, Case]],
    options: Options,
) -> Picture:
    rng = np.random.default_rng(options.seed)
    panels = []
    for scenario in ("TBB", "PBB paper", "PBB deployed"):
        lines = []
        for out, own in mixed:
            if out.scenario == scenario:
                wanted, n = int(own.errors.sum()), len(out.scores)
                rows = rng.choice(n, wanted, replace=wanted > n)
                curve = mix(own, out, rows).curve(options)
                lines.append(Line(out.method, *points(curve)))
        if lines:
            panels.append(Panel(scenario, "FRR", "TRR", tuple(lines), level=0.95))
    title = f"{one.name}: of two rows to reject one is of {crowd.title}"
    return Picture(name, title, tuple(panels), columns=3)


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in Path(name).stem.lower())
