"""What --help says besides the options: the four steps, examples and exit codes.

The examples run on the rows that the first of them writes, and a test runs them. Lines
have at most 78 characters, so that a terminal of 80 columns breaks none.
"""

import inspect

from rich.markup import escape

from trustdoctor.cli.exit_codes import EXIT_CODES

STEPS = (
    ("see how far these predictions can be trusted",
     "trustdoctor diagnose demo-rows/labelled.csv"),
    ("choose a threshold that keeps a promise, on labelled rows",
     "trustdoctor calibrate demo-rows/labelled.csv --risk 5% -o gate.json"),
    ("accept or reject new predictions",
     "trustdoctor screen demo-rows/new.csv --gate gate.json -o decided.csv"),
    ("see, later on, whether the promise still holds",
     "trustdoctor check demo-rows/new.csv --gate gate.json --state watch.json"),
)  # fmt: skip

EXAMPLES = {
    "demo": (
        "trustdoctor demo --save demo-rows",
        "trustdoctor demo --model resnet-20 --save small",
    ),
    "diagnose": (
        "trustdoctor diagnose demo-rows/labelled.csv --score all",
        "trustdoctor diagnose demo-rows/labelled.csv --html page.html --ids id",
    ),
    "split": (
        "trustdoctor split demo-rows/labelled.csv -o look.csv rest.csv",
        "trustdoctor split demo-rows/labelled.csv --part 500 --ids id -o a.csv b.csv",
    ),
    "draw": (
        "trustdoctor draw pool.csv --for risk=5% --labels 200 -o to_label.csv",
        "trustdoctor draw pool.csv --for risk=5% --labels 400 --after to_label.csv "
        "-o more.csv",
    ),
    "compare": (
        "trustdoctor compare demo-rows/labelled.csv",
        "trustdoctor compare demo-rows/labelled.csv -o score.safetensors",
    ),
    "calibrate": (
        "trustdoctor calibrate demo-rows/labelled.csv --risk 5% -o gate.json",
        "trustdoctor calibrate demo-rows/labelled.csv --trr 95% --score auto "
        "-o g2.json",
        "trustdoctor calibrate small/labelled.csv --frr 5% --shortlist 95% "
        "-o list.json",
    ),
    "screen": (
        "trustdoctor screen demo-rows/new.csv --gate gate.json -o decided.csv",
        "trustdoctor screen 'demo-rows/*.csv' --gate gate.json -o decided",
    ),
    "cascade": (
        "trustdoctor cascade small demo-rows --costs 0,1,10 --risk 5% -o two.json",
        "trustdoctor cascade small demo-rows --costs 0,1,9 --trr 70% -o three.json",
    ),
    "check": (
        "trustdoctor check demo-rows/new.csv --gate gate.json --state watch.json",
        "trustdoctor check demo-rows/new.csv --gate gate.json --state w.db --ids id",
    ),
    "serve": (
        "trustdoctor serve --gate gate.json --review-accepted 5%",
        "trustdoctor serve --gate gate.json --store postgresql://host/name",
    ),
    "predict": (
        "trustdoctor predict --model sst2-folder --data texts.csv -o rows.parquet",
        "trustdoctor predict --model vit --data rows.parquet --column image -o p.csv",
    ),
    "export": (
        "trustdoctor export model.onnx --gate gate.json -o guarded.onnx",
        "trustdoctor export model.onnx --gate gate.json --logits z -o guarded.onnx",
    ),
    "reproduce": (
        "trustdoctor reproduce --list",
        "trustdoctor reproduce gaussian --out gaussian",
    ),
}
"""Two for every command, or more, in an order in which they run."""


OVERVIEW = "\n\n".join(
    (
        "Should this prediction be trusted? Reads a classifier's predictions, "
        "measures how far they can be trusted, and decides which to accept.",
        "Four steps. Try them on the rows of: trustdoctor demo --save demo-rows",
        "\n".join(
            f"{number}. {goal}:\n   {escape(example)}"
            for number, (goal, example) in enumerate(STEPS, 1)
        ),
    )
)
"""The first paragraph of the help, and the four steps."""

EXIT_CODE_LINES = "\n".join(
    ["Exit codes:", *(f"{code:>3}  {text}" for code, text in EXIT_CODES.items())]
)
"""The exit codes, one per line."""


def examples(command: str) -> str:
    """Return the examples of a command, one per line."""
    return "\n".join(["Examples:", *map(escape, EXAMPLES[command])])


def unwrapped(text: str | None) -> str:
    """Return a docstring with each paragraph in one line, which Typer wraps anew."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(escape(" ".join(words.split())) for words in paragraphs)
