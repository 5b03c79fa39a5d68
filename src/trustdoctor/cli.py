"""The command line: parses, calls and prints. It holds no logic."""

import hashlib
import json
import os
import sys
import traceback
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import trustdoctor
from trustdoctor.adapters.decisions import check_output
from trustdoctor.adapters.files import (
    Columns,
    read_known_labels,
    read_matrix,
    read_predictions,
)
from trustdoctor.adapters.scan import Source, find_source
from trustdoctor.calibrate import calibrate as run_calibration
from trustdoctor.engines import Engine, find_engine
from trustdoctor.engines.local import fits, parse_memory
from trustdoctor.errors import (
    InputError,
    LabelsMissingError,
    MissingPackageError,
    OutputError,
    TrustDoctorError,
)
from trustdoctor.evaluate import evaluate as run_evaluation
from trustdoctor.examples.demo import bundled
from trustdoctor.examples.demo import save as save_demo
from trustdoctor.gate import Gate
from trustdoctor.output import require_writable, write_text
from trustdoctor.predictions import Predictions
from trustdoctor.progress import Tell, bar
from trustdoctor.protocols import evaluate_logits
from trustdoctor.reproduce import EXPERIMENTS, Options, Steps
from trustdoctor.reproduce import reproduce as run_experiment
from trustdoctor.reproduce.report import make_folder
from trustdoctor.scores import SCORES, find_score
from trustdoctor.select import calibrate_unlabelled
from trustdoctor.show import (
    make_console,
    show_comparison,
    show_evaluation,
    show_gate,
    show_report,
    show_screened,
    summarize_screened,
)
from trustdoctor.tally import Sketches, Tally
from trustdoctor.watch import Watch

app = typer.Typer(
    name="trustdoctor",
    help="Should this prediction be trusted? Reads a classifier's predictions, "
    "measures how far they can be trusted, and decides which to accept.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

PredictionsFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Predictions: .npz, .csv or .parquet.")
]
PredictionsSource = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Predictions: a .parquet, .csv, .npz or .npy file, a folder of them, or a "
        "quoted pattern.",
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Stay within, as 1GB [default: half of what is free]."
    ),
]
EngineOption = Annotated[
    str, typer.Option(metavar="NAME", help="local, ray, or ray=ADDRESS of a cluster.")
]
LogitsOption = Annotated[
    str | None,
    typer.Option("--logits", metavar="NAME", help="Array, list column or prefix."),
]
ProbsOption = Annotated[
    str | None,
    typer.Option("--probs", metavar="NAME", help="Array, list column or prefix."),
]
LabelsOption = Annotated[
    str | None, typer.Option("--labels", metavar="NAME", help="True labels' name.")
]
ScoreOption = Annotated[
    str, typer.Option("--score", metavar="NAME", help=f"{', '.join(SCORES)}.")
]
GateOption = Annotated[Path, typer.Option("--gate", help="A gate's file.")]
OptionalGateOption = Annotated[
    Path | None, typer.Option("--gate", help="A gate's file, from calibrate.")
]
ScoresOption = Annotated[
    list[str] | None,
    typer.Option(
        "--score", metavar="NAME", help=f"Repeatable. {', '.join(SCORES)}; or all."
    ),
]
TemperatureOption = Annotated[
    float, typer.Option("--temperature", "-T", help="Divides the logits.")
]
JsonOption = Annotated[
    str | None,
    typer.Option("--json", metavar="PATH", help="Write the result; - prints it."),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")
]


def _show_version(*, value: bool) -> None:
    if value:
        typer.echo(f"trustdoctor {trustdoctor.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show it."
        ),
    ] = False,
) -> None:
    """Hold the options that come before a command."""


@app.command()
def demo(  # noqa: PLR0913 - one parameter an option
    *,
    pbb: Annotated[
        bool,
        typer.Option("--pbb", help="Train a small CNN and perturb its inputs instead."),
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(help="Write the rows into a folder, to try other commands on."),
    ] = None,
    score: ScoresOption = None,
    temperature: TemperatureOption = 1.0,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Diagnose the bundled predictions of a DenseNet on the CIFAR-10 test set."""
    if pbb:
        if save is not None or json_path is not None:
            message = "--pbb trains a model of its own. Leave --save and --json out."
            raise InputError(message)
        _demo_pbb()
        return
    _check_json(json_path)
    source = bundled()
    console = make_console(quiet=quiet or json_path == "-")
    console.print("Bundled: DenseNet-BC-100-12 on the 10,000 CIFAR-10 test images.\n")
    with bar(quiet=quiet) as tell:
        predictions = read_predictions(source)
        found = run_evaluation(
            predictions,
            scores=_score_names(score, predictions),
            temperature=temperature,
            progress=tell,
        )
    _write_json(found.to_json(), json_path)
    show_evaluation(console, found)
    if save is not None:
        for path in save_demo(predictions, save):
            console.print(f"Wrote {path}", highlight=False, soft_wrap=True)
    console.print(
        "\nNext: trustdoctor diagnose YOUR_FILE, or trustdoctor --help", highlight=False
    )


@app.command()
def diagnose(  # noqa: PLR0913 - one parameter an option
    file: PredictionsSource,
    *,
    score: ScoresOption = None,
    temperature: TemperatureOption = 1.0,
    logits: LogitsOption = None,
    probs: ProbsOption = None,
    labels: LabelsOption = None,
    html: Annotated[
        Path | None, typer.Option(help="Write one page to look at and to file.")
    ] = None,
    ids: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --html: the rows' ids.")
    ] = None,
    texts: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --html: their texts.")
    ] = None,
    thumbnails: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --html: a column, folder or Parquet."),
    ] = None,
    class_names: Annotated[
        Path | None, typer.Option(help="With --html: a text file, one name a line.")
    ] = None,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    json_path: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Measure how far labelled predictions can be trusted.

    Where they do not fit into the memory, rows are counted in ranges of scores.
    """
    _check_json(json_path, file)
    wanted = PageOptions(html, ids, texts, thumbnails, class_names)
    wanted.check(file, json_path)
    limit, run = parse_memory(memory), find_engine(engine)
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, Columns(logits, probs, labels))
        _check_outputs(source, json_path, html)
        names = _score_names(score, source)
        if run.name != "local" or not fits(source, limit, scores=len(names or "12345")):
            wanted.refuse(run, limit)
            tally = Tally(names, temperature=temperature)
            run.diagnose(source, tally, memory=limit, progress=tell)
            tell(1.0, "measuring")
            found = tally.evaluate()
        else:
            predictions = source.read()
            found = run_evaluation(
                predictions, scores=names, temperature=temperature, progress=tell
            )
        if html is not None:
            tell(0.95, f"writing {html.name}")
            named = {"--logits": logits, "--probs": probs, "--labels": labels}
            flags = [x for key, v in named.items() if v is not None for x in (key, v)]
            found.to_html(html, **wanted.extras(file, predictions, tuple(flags)))
    _write_json(found.to_json(), json_path)
    console = make_console(quiet=quiet or json_path == "-")
    show_evaluation(console, found)
    if html is not None:
        console.print(f"Wrote {html}", highlight=False, soft_wrap=True)


@app.command()
def calibrate(  # noqa: PLR0913 - one parameter an option
    file: PredictionsSource,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write the gate (JSON).")
    ],
    frr: Annotated[
        float | None, typer.Option(help="At most this share of hits rejected.")
    ] = None,
    trr: Annotated[
        float | None, typer.Option(help="At least this share of errors rejected.")
    ] = None,
    risk: Annotated[
        float | None, typer.Option(help="At most this share of the accepted is wrong.")
    ] = None,
    joint: Annotated[
        float | None, typer.Option(help="At most this share wrong and accepted.")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="At least this share accepted.")
    ] = None,
    cost: Annotated[
        float | None, typer.Option(help="An error costs so many rejections.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Chosen by hand: no promise.")
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Probability that the promise holds.")
    ] = 0.9,
    mode: Annotated[
        str | None, typer.Option(help="confidence (default) or expectation.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="For --risk: sequence, sgr or grid.")
    ] = "sequence",
    per_class: Annotated[
        bool, typer.Option("--per-class", help="A threshold for each predicted class.")
    ] = False,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Trust the model itself: no guarantee.")
    ] = False,
    accuracy: Annotated[
        float | None, typer.Option(help="With --no-labels: the accuracy, if known.")
    ] = None,
    score: ScoreOption = "alpha",
    temperature: TemperatureOption = 1.0,
    logits: LogitsOption = None,
    probs: ProbsOption = None,
    labels: LabelsOption = None,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    quiet: QuietOption = False,
) -> None:
    """Choose a threshold that keeps a promise, and write it as a gate."""
    _check_json(str(output), file)
    plain = (joint, cost, threshold, mode) == (None,) * 4 and not per_class
    if no_labels and not (plain and method == "sequence"):
        message = "--no-labels takes one of --frr, --trr, --risk and --coverage alone."
        raise InputError(message)
    if accuracy is not None and not no_labels:
        message = "--accuracy goes with --no-labels. Leave one out, or add the other."
        raise InputError(message)
    asked: dict[str, Any] = {"frr": frr, "trr": trr, "risk": risk}
    asked["coverage"] = coverage
    options: dict[str, Any] = {"score": score, "temperature": temperature}
    find_score(score)
    limit, run = parse_memory(memory), find_engine(engine)
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        needs = coverage is None and threshold is None and not no_labels
        source = find_source(file, Columns(logits, probs, labels, needs))
        _check_outputs(source, output)
        if no_labels:
            p = _whole(source, limit, run, "--no-labels").read()
            gate = calibrate_unlabelled(p, accuracy=accuracy, **asked, **options)
        else:
            gate = run_calibration(
                **_calibration_rows(source, run, limit, per_class, options, tell),
                **asked,
                joint=joint,
                cost=cost,
                threshold=threshold,
                confidence=confidence,
                mode=mode,  # type: ignore[arg-type]
                method=method,  # type: ignore[arg-type]
                grouped_by="predicted",
                **options,
            )
    gate.save(output)
    show_gate(make_console(quiet=quiet), gate, output)


def _calibration_rows(  # noqa: PLR0913 - what the command was given
    source: Source,
    run: Engine,
    limit: int,
    per_class: bool,  # noqa: FBT001
    options: dict[str, Any],
    tell: Tell,
) -> dict[str, Any]:
    """Return the rows to calibrate on: scores and errors, or a sketch of them."""
    score, temperature = options["score"], options["temperature"]
    if run.name == "local" and fits(source, limit):
        p = source.read()
        tell(0.5, "calibrating")
        return {
            "scores": find_score(score)(p, temperature=temperature),
            "errors": None if p.labels is None else p.errors,
            "groups": p.predicted if per_class else None,
        }
    sketches = Sketches.of(score, temperature=temperature, per_class=per_class)
    run.sketch(source, sketches, memory=limit, progress=tell)
    tell(1.0, "calibrating")
    return {
        "scores": sketches.pooled,
        "groups": sketches.classes if per_class else None,
    }


def _whole(source: Source, limit: int, run: Engine, what: str) -> Source:
    """Return a source that can be read at once, or say why it cannot."""
    if run.name != "local":
        message = f"{what} needs all rows at once: use --engine local."
        raise InputError(message)
    if not fits(source, limit):
        message = (
            f"{what} needs all rows at once, which here take more than "
            f"{limit / 1e9:.1f} GB. Raise --memory, or give it a sample of the rows."
        )
        raise InputError(message)
    return source


@app.command()
def check(  # noqa: PLR0913 - one parameter an option
    file: PredictionsFile,
    *,
    gate_path: GateOption,
    state: Annotated[
        Path, typer.Option(help="What earlier checks saw; made if it is not there.")
    ],
    level: Annotated[
        float | None,
        typer.Option(help="Probability of a false alarm, for ever [default: 0.1]."),
    ] = None,
    late: Annotated[
        bool,
        typer.Option("--late", help="Rows seen before, whose labels came only now."),
    ] = False,
    logits: LogitsOption = None,
    probs: ProbsOption = None,
    labels: LabelsOption = None,
    quiet: QuietOption = False,
) -> None:
    """Check on new rows whether a gate's promise still holds."""
    gate = Gate.load(gate_path)
    _check_json(str(state), file)
    watch = Watch.load(state, gate) if state.exists() else None
    if watch is not None and level not in (None, watch.level):
        message = f"the state was begun at level {watch.level:g}. Leave --level out."
        raise InputError(message)
    watch = watch or gate.watch(level=0.1 if level is None else level)
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        p = read_predictions(
            file, logits=logits, probs=probs, labels=labels, need_labels=False
        )
        known = read_known_labels(file, p, labels=labels)
        if known is None and late:
            message = f"--late needs labels, and {file} has none."
            raise LabelsMissingError(message)
        wrong = None
        if known is not None:
            wrong = np.where(np.isnan(known), np.nan, known != p.predicted)
        groups = _groups(gate, p)
        scores = gate.screen(p, groups=groups).scores
        (watch.label if late else watch.update)(scores, wrong, groups=groups)
    watch.save(state)
    make_console(quiet=quiet).print(repr(watch), highlight=False)


@app.command()
def screen(  # noqa: PLR0913 - one parameter an option
    file: PredictionsSource,
    *,
    gamma: Annotated[
        float | None, typer.Option(help="Reject where the score's ratio exceeds it.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Reject where the score itself exceeds it.")
    ] = None,
    gate_path: OptionalGateOption = None,
    score: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With a threshold: alpha, unless named."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", "-T", help="Divides the logits.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Rows with score and accepted added: a file, or a folder for a file "
            "each.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Keep what a stopped run left in the folder."),
    ] = False,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    logits: LogitsOption = None,
    probs: ProbsOption = None,
    labels: LabelsOption = None,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Accept or reject each prediction of a file, by a gate or a threshold."""
    gate = _gate(gamma, threshold, gate_path, score, temperature)
    _check_json(json_path, file)
    if output is not None and output.suffix:
        check_output(output, file)
    limit, run = parse_memory(memory), find_engine(engine)
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, Columns(logits, probs, labels, need_labels=False))
        _check_outputs(source, json_path, output)
        done = run.screen(
            source, gate, output, memory=limit, resume=resume, progress=tell
        )
    summary = summarize_screened(gate, done)
    _write_json(json.dumps(summary, indent=2, allow_nan=False) + "\n", json_path)
    console = make_console(quiet=quiet or json_path == "-")
    show_screened(console, gate, done)
    if done.counts is None and source.has_labels:
        console.print("  some labels are missing or no classes: no rates are shown")
    if output is not None:
        console.print(f"Wrote {output}", highlight=False, soft_wrap=True)


@app.command()
def compare(  # noqa: PLR0913 - one parameter an option
    file: PredictionsFile,
    *,
    features: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Features: array, list column or prefix."),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="That no comparison errs, all together.")
    ] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the split into thirds.")] = 0,
    logits: LogitsOption = None,
    probs: ProbsOption = None,
    labels: LabelsOption = None,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Say which score to use: all that the file allows, judged against the softmax."""
    from trustdoctor.compare import compare as run_comparison

    _check_json(json_path, file)
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        predictions = read_predictions(file, logits=logits, probs=probs, labels=labels)
        known = None if features is None else read_matrix(file, features)
        tell(0.3, "comparing scores")
        found = run_comparison(
            predictions, features=known, confidence=confidence, seed=seed
        )
    _write_json(found.to_json(), json_path)
    show_comparison(make_console(quiet=quiet or json_path == "-"), found)


@app.command()
def predict(  # noqa: PLR0913 - one parameter an option
    *,
    model: Annotated[Path, typer.Option(help="A local folder, Hugging Face layout.")],
    data: Annotated[Path, typer.Option(help="Rows to classify: .parquet or .csv.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The rows with logits added.")
    ],
    column: Annotated[
        str, typer.Option(help="The column of texts, or of encoded images.")
    ] = "text",
    where: Annotated[
        str | None, typer.Option(metavar="COLUMN=VALUE", help="Only these rows.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="At most so many, drawn at random.")
    ] = None,
    plain_breaks: Annotated[
        bool, typer.Option("--plain-breaks", help="Read <br /> as a space.")
    ] = False,
    max_length: Annotated[
        int | None, typer.Option(help="At most so many tokens a text.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Rows a pass.")] = 32,
    seed: Annotated[int, typer.Option(help="Of --rows.")] = 0,
    quiet: QuietOption = False,
) -> None:
    """Run a local model over a table and write its predictions beside the rows."""
    from trustdoctor.adapters import tables

    check_output(output, data)
    table = tables.read_rows(data, column, where=where, rows=rows, seed=seed)
    values = tables.values(table, column, plain_breaks=plain_breaks)
    from trustdoctor.adapters import transformers as adapter

    with bar(quiet=quiet) as tell:
        tell(0.0, "loading the model")
        loaded, processor = adapter.load_folder(model)
        found = adapter.predict(
            loaded,
            values,
            processor=processor,
            max_length=max_length,
            batch_size=batch_size,
            progress=tell,
        )
    names = adapter.class_names(loaded)
    tables.write_logits(output, table, found.logits, names)
    console = make_console(quiet=quiet)
    console.print(
        f"{len(found):,} rows over {found.n_classes} classes.", highlight=False
    )
    console.print(f"Wrote {output}", highlight=False, soft_wrap=True)


@app.command()
def export(  # noqa: PLR0913 - one parameter an option
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX model.")],
    *,
    gate_path: GateOption,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write the guarded model.")
    ],
    logits: Annotated[
        str | None, typer.Option(metavar="NAME", help="The tensor of logits.")
    ] = None,
    probs: Annotated[
        str | None, typer.Option(metavar="NAME", help="The tensor of probabilities.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Put a gate into an ONNX model, as two more outputs: doubt and accepted."""
    from trustdoctor.adapters.onnx import export as run_export

    gate = Gate.load(gate_path)
    taken = run_export(model, gate, output, logits=logits, probs=probs)
    console = make_console(quiet=quiet)
    what = "probabilities" if taken.probs else "logits"
    for line in (
        f"Took {taken.why}: {what} in the tensor {taken.tensor}.",
        f"Added doubt ({gate.score}) and accepted; {_grown(model, output)}.",
    ):
        console.print(line, highlight=False)
    console.print(f"Wrote {output}", highlight=False, soft_wrap=True)


def _grown(before: Path, after: Path) -> str:
    grown = after.stat().st_size - before.stat().st_size
    return f"the file grew by {grown / 1000:.1f} kB"


@app.command()
def reproduce(  # noqa: PLR0913 - one parameter an option
    name: Annotated[str | None, typer.Argument(help="The experiment.")] = None,
    *,
    listing: Annotated[
        bool, typer.Option("--list", help="Name the experiments there are.")
    ] = False,
    predictions: Annotated[
        Path | None, typer.Option(help="Softmax outputs or logits, and labels.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder of data sets and prediction files.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="What --predictions or --model is about: cifar10, ..."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="FILE.py:NAME", help="NAME() builds a torch model."),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="The model's, as safetensors.")
    ] = None,
    layers: Annotated[
        str, typer.Option(help="Layers for Mahalanobis, with commas between.")
    ] = "",
    ood: Annotated[
        list[str] | None,
        typer.Option(help="Repeatable: a data set, folder or prediction file."),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="At most so many rows, drawn at random.")
    ] = None,
    draws: Annotated[int, typer.Option(help="Of each mixture.")] = 10,
    protocol: Annotated[
        str, typer.Option(help="exact, or grid: evaluated as published.")
    ] = "exact",
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder for Markdown, JSON and pictures. A run that was stopped "
            "goes on from what it left there."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn at random.")] = 0,
    quiet: QuietOption = False,
) -> None:
    """Run an experiment of the DOCTOR paper again, beside its own numbers."""
    console = make_console(quiet=quiet)
    if listing or name is None:
        for known, entry in EXPERIMENTS.items():
            console.print(f"{known:<12}{entry.what}", highlight=False)
        return
    steps = Steps(None if out is None else make_folder(out) / f"{name}.parts")
    with bar(quiet=quiet) as tell:
        options = Options(
            seed=seed,
            protocol=protocol,
            predictions=predictions,
            data=data,
            dataset=dataset,
            model=model,
            weights=weights,
            ood=tuple(ood or ()),
            layers=tuple(layer for layer in layers.split(",") if layer),
            rows=rows,
            draws=draws,
            steps=steps,
            tell=tell,
        )
        report = run_experiment(name, options)
    written = [] if out is None else report.write(out)
    steps.forget()
    show_report(console, report, written)


@dataclass(frozen=True)
class PageOptions:
    """What `diagnose --html` was asked to show."""

    html: Path | None
    ids: str | None
    texts: str | None
    thumbnails: str | None
    class_names: Path | None

    def check(self, file: Path, json_path: str | None) -> None:
        """Refuse options without a page, and say early where it cannot be written."""
        if self.html is not None:
            inputs = (self.thumbnails, self.class_names, json_path)
            for other in (file, *(Path(one) for one in inputs if one)):
                _check_json(str(self.html), other)
            if str(self.html) == "-":
                message = "the page goes to a file. Name one: --html report.html."
                raise InputError(message)
            return
        for name in ("ids", "texts", "thumbnails", "class_names"):
            if getattr(self, name) is not None:
                option = name.replace("_", "-")
                message = f"--{option} is for the page. Give --html PAGE with it."
                raise InputError(message)

    def refuse(self, run: Engine, limit: int) -> None:
        """Say that a page cannot be made of rows that are counted alone."""
        if self.html is None:
            return
        why = f"they take more than {limit / 1e9:.1f} GB: raise --memory"
        if run.name != "local":
            why = "another engine counts them: use --engine local"
        message = f"a page shows rows, and {why}, or make it from a sample."
        raise InputError(message)

    def extras(
        self, file: Path, predictions: Predictions, options: tuple[str, ...]
    ) -> dict[str, Any]:
        """Read what the page shows beside the evaluation."""
        from trustdoctor.adapters import rows

        ids = rows.read_column(file, self.ids) if self.ids else None
        pictures = (
            rows.thumbnails(self.thumbnails, file, len(predictions), ids)
            if self.thumbnails
            else None
        )
        return {
            "source": file.name.encode("utf-8", "replace").decode(),
            "file": str(file).encode("utf-8", "replace").decode(),
            "options": options,
            "digest": hashlib.sha256(file.read_bytes()).hexdigest(),
            "ids": ids,
            "texts": rows.read_column(file, self.texts) if self.texts else None,
            "thumbnails": pictures,
            "class_names": rows.read_class_names(self.class_names)
            if self.class_names
            else None,
            "perturbed": {
                f"{score}, T {t:g}, epsilon {eps:g}": evaluate_logits(
                    predictions, logits, score=score, temperature=t
                )
                for (score, t, eps), logits in rows.read_perturbed(file).items()
            },
        }


def _groups(gate: Gate, predictions: Predictions) -> Any:
    """Return the rows' groups, where the gate's are the predicted classes."""
    if not gate.groups:
        return None
    if gate.grouped_by != "predicted":
        message = (
            f"the gate has thresholds for groups of its own ({gate.grouped_by}), which "
            "the command line does not know. Use gate.screen in Python, with groups=."
        )
        raise InputError(message)
    return predictions.predicted


def _demo_pbb() -> None:
    for package in ("torch", "sklearn"):
        if find_spec(package) is None:
            message = (
                f"demo --pbb needs {package}, which is not installed: "
                'pip install "trustdoctor[torch,sklearn]"'
            )
            raise MissingPackageError(message)
    from trustdoctor.examples.digits import main as run_digits

    run_digits()


def main() -> None:
    """Run the command line; 0 done, 1 a failure of ours, 2 the user's mistake."""
    try:
        app()
    except TrustDoctorError as error:
        _fail(str(error), 2)
    except OSError as error:
        _fail(f"cannot write the output: {(error.strerror or str(error)).lower()}.", 2)
    except MemoryError:
        _fail("the machine ran out of memory. Split the file and run again.", 2)
    except Exception as error:
        if os.environ.get("TRUSTDOCTOR_TRACEBACK"):
            traceback.print_exc()
        _fail(
            f"internal error, {type(error).__name__}: {error}. Please report it; "
            "TRUSTDOCTOR_TRACEBACK=1 shows where.",
            1,
        )


def _fail(message: str, code: int) -> None:
    typer.echo(f"trustdoctor: {' '.join(message.split())}", err=True)
    sys.exit(code)


def _score_names(
    names: list[str] | None, predictions: Predictions | Source
) -> list[str] | None:
    if not names or "all" not in names:
        return names or None
    logits = not predictions.from_probabilities
    fit = [name for name, s in SCORES.items() if logits or s.needs != "logits"]
    return [name for name in names if name != "all"] + fit


def _gate(
    gamma: float | None,
    threshold: float | None,
    path: Path | None,
    score: str | None,
    temperature: float | None,
) -> Gate:
    if sum(given is not None for given in (gamma, threshold, path)) != 1:
        message = "expected one of --gate, --gamma and --threshold. Give one of them."
        raise InputError(message)
    if path is not None:
        if score is not None or temperature is not None:
            message = "a gate names its own score and temperature. Leave these out."
            raise InputError(message)
        return Gate.load(path)
    score, temperature = score or "alpha", 1.0 if temperature is None else temperature
    if gamma is not None:
        return Gate.from_gamma(gamma, score=score, temperature=temperature)
    assert threshold is not None
    return Gate(threshold, score=score, temperature=temperature)


def _check_json(path: str | None, file: Path | None = None) -> None:
    """Say before any work why the result cannot be written there."""
    if path is None or path == "-":
        return
    if require_writable(path) == (file and file.resolve()):
        message = f"the output {path} is the input itself or another output."
        raise OutputError(message)


def _check_outputs(source: Source, *outputs: str | Path | None) -> None:
    """Refuse to write over an input, or two results into one file."""
    inputs = {file.resolve() for file in source.files}
    places = [Path(p).resolve() for p in outputs if p is not None and str(p) != "-"]
    if len(source.files) > 1 and any(place in inputs for place in places):
        message = "an output is one of the inputs. Name another file."
        raise OutputError(message)
    if len(set(places)) < len(places):
        message = "two outputs go to one file. Name another for one of them."
        raise OutputError(message)


def _write_json(text: str, path: str | None) -> None:
    if path == "-":
        sys.stdout.write(text)
    elif path is not None:
        write_text(path, text)
