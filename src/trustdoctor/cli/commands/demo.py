"""The command that diagnoses bundled predictions: demo."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    JsonOption,
    QuietOption,
    ScoresOption,
    TemperatureOption,
    named_scores,
)
from trustdoctor.cli.output import print_written, write_result
from trustdoctor.demo import MODELS, bundled_file, save_demo
from trustdoctor.errors import InputError, missing_package
from trustdoctor.evaluation import evaluate
from trustdoctor.files import read
from trustdoctor.progress import bar
from trustdoctor.report import make_console, show_evaluation
from trustdoctor.scores import logit_scores

PbbOption = Annotated[
    bool,
    typer.Option("--pbb", help="Instead: train a small CNN and perturb its inputs."),
]
ModelOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"Whose predictions: {' or '.join(MODELS)}, a smaller model, of the same "
        "rows.",
    ),
]
SaveOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Write the rows into a folder, to try other commands on.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


def demo(  # noqa: PLR0913 - one parameter per option
    *,
    pbb: PbbOption = False,
    model: ModelOption = "densenet",
    score: ScoresOption = None,
    temperature: TemperatureOption = 1.0,
    save: SaveOption = None,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Diagnose the bundled predictions of a model on the CIFAR-10 test set."""
    if pbb:
        if save is not None or json_path is not None:
            message = "--pbb trains a model of its own. Leave --save and --json out."
            raise InputError(message)
        _perturb_digits()
        return
    file = bundled_file(model)
    console = make_console(quiet=quiet or json_path == "-")
    name = MODELS[model][0]
    console.print(f"Bundled: {name} on the 10,000 CIFAR-10 test images.\n")
    with bar(quiet=quiet) as tell:
        predictions = read(file)
        evaluation = evaluate(
            predictions,
            scores=named_scores(score, logit_scores()),
            temperature=temperature,
            progress=tell,
        )
    write_result(evaluation.to_json(), json_path)
    show_evaluation(console, evaluation)
    if save is not None:
        print_written(console, *save_demo(predictions, save))
    console.print(
        "\nNext: trustdoctor diagnose YOUR_FILE, or trustdoctor --help", highlight=False
    )


def _perturb_digits() -> None:
    for package in ("torch", "sklearn"):
        if find_spec(package) is None:
            raise missing_package(
                what="demo --pbb", package=package, extra="torch,sklearn"
            )
    from trustdoctor.demo.digits import main as run_digits

    run_digits()
