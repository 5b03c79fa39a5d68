"""The command that puts a gate to work: serve."""

import os
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from trustdoctor.cli.options import QuietOption, as_rate, as_share
from trustdoctor.errors import InputError, missing_package
from trustdoctor.gates import Gate
from trustdoctor.watch import check_noise

PORT = 8571
SECRET = "TRUSTDOCTOR_WEBHOOK_SECRET"  # the name of a variable
LONGEST = 1e10  # seconds, which is 300 years
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

MODEL_PANEL = "Model"
ROWS_PANEL = "Rows"
REVIEW_PANEL = "Review"
ACCESS_PANEL = "Access"

GateFileOption = Annotated[
    Path | None,
    typer.Option("--gate", metavar="GATE", help="A gate's file, from calibrate."),
]
LevelOption = Annotated[
    str,
    typer.Option(metavar="RATE", help="Probability of a false alarm, per gate."),
]
WebhookOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=f"Where alarms are posted; signed by the secret in {SECRET}.",
    ),
]
ModelOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="An ONNX model to run, too: POST /v2/models/NAME/infer.",
        rich_help_panel=MODEL_PANEL,
    ),
]
LogitsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Its tensor of logits, if neither the graph nor a name tells.",
        rich_help_panel=MODEL_PANEL,
    ),
]
ProbsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Its tensor of probabilities, likewise.",
        rich_help_panel=MODEL_PANEL,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Where rows are kept: a file of SQLite (default: beside the gate), or "
        "postgresql://USER@HOST/NAME, which any number of replicas share.",
        rich_help_panel=ROWS_PANEL,
    ),
]
FastOption = Annotated[
    bool,
    typer.Option(
        "--fast",
        help="Answer before the disk has it: a loss of power may lose the last "
        "answers; a killed process loses none.",
        rich_help_panel=ROWS_PANEL,
    ),
]
KeepOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Delete rows after this time, as 90d or 12h (default: never).",
        rich_help_panel=ROWS_PANEL,
    ),
]
KeepPayloadsOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Delete payloads after this time.",
        rich_help_panel=ROWS_PANEL,
    ),
]
RejectedOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="The share of rejected rows that people review (default 1; stored).",
        rich_help_panel=REVIEW_PANEL,
    ),
]
AcceptedOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="The share of accepted rows that people review, drawn at random (default "
        "0.02; stored).",
        rich_help_panel=REVIEW_PANEL,
    ),
]
DeadlineOption = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="How long to wait for a label.",
        rich_help_panel=REVIEW_PANEL,
    ),
]
NoiseOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="The share of labels that may be wrong (default: that of the gate's "
        "calibration).",
        rich_help_panel=REVIEW_PANEL,
    ),
]
HostOption = Annotated[
    str,
    typer.Option(
        metavar="HOST",
        help="The address to listen on; others than loopback need tokens.",
        rich_help_panel=ACCESS_PANEL,
    ),
]
PortOption = Annotated[
    int,
    typer.Option(
        metavar="PORT",
        help="The port; 0 for any that is free.",
        rich_help_panel=ACCESS_PANEL,
    ),
]
TokensOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Who may do what: lines from --new-token. Or the variable "
        "TRUSTDOCTOR_TOKENS, as admin=TOKEN,decide=TOKEN.",
        rich_help_panel=ACCESS_PANEL,
    ),
]
HostsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Repeatable. A host name of the service.",
        rich_help_panel=ACCESS_PANEL,
    ),
]
NewTokenOption = Annotated[
    str | None,
    typer.Option(
        metavar="ROLE",
        help="Print a new token and its line for --tokens, and exit: decide, label or "
        "admin.",
        rich_help_panel=ACCESS_PANEL,
    ),
]


def serve(  # noqa: PLR0913 - one parameter per option
    *,
    gate_path: GateFileOption = None,
    level: LevelOption = "0.1",
    webhook: WebhookOption = None,
    model: ModelOption = None,
    logits: LogitsOption = None,
    probs: ProbsOption = None,
    store: StoreOption = None,
    fast: FastOption = False,
    keep: KeepOption = None,
    keep_payloads: KeepPayloadsOption = None,
    review_rejected: RejectedOption = None,
    review_accepted: AcceptedOption = None,
    deadline: DeadlineOption = "30d",
    label_noise: NoiseOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = PORT,
    tokens: TokensOption = None,
    allow_host: HostsOption = None,
    new_token: NewTokenOption = None,
    quiet: QuietOption = False,
) -> None:
    """Serve a gate over HTTP: decisions, reviews, labels, and a watch on the promise.

    Rows are kept in a file beside the gate. A page shows how it goes:
    http://127.0.0.1:8571. Stop it by Ctrl-C; it then finishes what it has taken.
    """
    review_rates = _review_rates(review_rejected, review_accepted)
    noise = None if label_noise is None else as_share(label_noise, "label-noise")
    if noise is not None:
        check_noise(noise)
    if not 0 <= port <= 65535:
        message = f"expected --port from 0 to 65535, got {port}."
        raise InputError(message)
    _require_packages()
    from trustdoctor.service import access, server
    from trustdoctor.service.settings import Settings

    if new_token is not None:
        _print_token(new_token)
        return
    if gate_path is None:
        message = "expected a gate to serve, got none. Name one: --gate gate.json."
        raise InputError(message)
    gate = Gate.load(gate_path)
    settings = Settings(
        review=review_rates,
        level=as_rate(level, "level"),
        deadline=as_seconds(deadline, "--deadline"),
        label_noise=noise,
        keep=None if keep is None else as_seconds(keep, "--keep"),
        keep_payloads=(
            None
            if keep_payloads is None
            else as_seconds(keep_payloads, "--keep-payloads")
        ),
        webhook=None if webhook is None else _checked_url(webhook),
        webhook_secret=os.environ.get(SECRET),
        fast=fast,
    )
    _check_retention(settings.keep, settings.deadline)
    known_tokens = [] if tokens is None else access.read_tokens(tokens)
    known_tokens += access.tokens_from()
    listening = server.ListenOptions(host, port, known_tokens, tuple(allow_host or ()))
    loaded_model = server.load_model(model, logits, probs)
    server.log_as_json(quiet=quiet)
    place = str(gate_path.with_suffix(".db")) if store is None else store
    server.serve(
        gate, place, settings=settings, listening=listening, model=loaded_model
    )


def as_seconds(text: str, name: str) -> float:
    """Read a length of time, as 90d, in seconds.

    Examples
    --------
    >>> as_seconds("90d", "--keep")
    7776000.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0 < seconds < LONGEST:
        message = f"expected {name} as 90d, 12h or 30m, got {text!r}. Give another."
        raise InputError(message)
    return seconds


def _review_rates(rejected: str | None, accepted: str | None) -> dict[str, float]:
    """Return the rates that were given; the store has the others."""
    rates = {"rejected": rejected, "accepted": accepted}
    return {
        name: as_share(text, f"review-{name}")
        for name, text in rates.items()
        if text is not None
    }


def _print_token(role: str) -> None:
    from trustdoctor.service.access import new_token

    token, line = new_token(role)
    typer.echo(f"{token}\n{line}")
    hint = "The first line is the token; keep it. The second goes into --tokens."
    typer.echo(hint, err=True)


def _require_packages() -> None:
    try:
        import httptools
        import msgspec
        import starlette
        import uvicorn
        import uvloop
    except ImportError as error:
        package = str(error.name or "starlette")
        raise missing_package(
            what="the service", package=package, extra="serve"
        ) from error
    del httptools, msgspec, starlette, uvicorn, uvloop


def _check_retention(keep: float | None, deadline: float | None) -> None:
    if keep is not None and (deadline is None or keep < deadline):
        message = (
            "expected --keep of at least --deadline, so that rows stay while their "
            "labels are waited for, got less. Keep them longer, or wait less."
        )
        raise InputError(message)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_http = False
    if not is_http:
        message = f"expected --webhook as https://..., got {url!r}."
        raise InputError(message)
    return url
