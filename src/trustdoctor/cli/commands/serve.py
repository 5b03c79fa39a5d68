"""The command that puts a gate to work: serve."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from trustdoctor.cli.options import Option, OptionGroup, QuietOption, as_rate, as_share
from trustdoctor.errors import InputError, missing_package
from trustdoctor.gates import Gate
from trustdoctor.watch import check_noise

PORT = 8571
LONGEST = 1e10  # seconds, which is 300 years
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


@dataclass(frozen=True)
class Keeping:
    """Where rows are kept, and for how long, in seconds."""

    store: str | None
    fast: bool
    keep: float | None
    keep_payloads: float | None


@dataclass(frozen=True)
class Reviewing:
    """Which rows people review, how long labels are waited for, how many are wrong."""

    rates: dict[str, float]
    deadline: float | None
    label_noise: float | None


@dataclass(frozen=True)
class Reaching:
    """Where to listen, and to whom."""

    host: str
    port: int
    tokens: Path | None
    allow_host: tuple[str, ...]
    new_token: str | None


@dataclass(frozen=True)
class Running:
    """Which model is run, and which of its tensors the gate decides on."""

    model: Path | None
    logits: str | None
    probs: str | None


def as_time(text: str | None, name: str) -> float | None:
    """Read a length of time, as 90d, in seconds.

    Examples
    --------
    >>> as_time("90d", "--keep")
    7776000.0
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if found is None or not 0 < float(found[1]) * _UNITS[found[2]] < LONGEST:
        message = f"expected {name} as 90d, 12h or 30m, got {text!r}. Give another."
        raise InputError(message)
    return float(found[1]) * _UNITS[found[2]]


def _keeping_options() -> Iterator[Option]:
    text = (
        "Where rows are kept: a file of SQLite (default: beside the gate), or "
        "postgresql://USER@HOST/NAME, which any number of replicas share."
    )
    yield Option("store", str | None, text, metavar="PLACE")
    text = (
        "Answer before the disk has it: a loss of power may lose the last answers; a "
        "killed process loses none."
    )
    yield Option("fast", bool, text, default=False)
    text = "Delete rows after this time, as 90d or 12h (default: never)."
    yield Option("keep", str | None, text, metavar="TIME")
    text = "Delete payloads after this time."
    yield Option("keep_payloads", str | None, text, metavar="TIME")


def _keeping(
    *, store: str | None, fast: bool, keep: str | None, keep_payloads: str | None
) -> Keeping:
    payloads = as_time(keep_payloads, "--keep-payloads")
    return Keeping(store, fast, as_time(keep, "--keep"), payloads)


def _reviewing_options() -> Iterator[Option]:
    text = "The share of rejected rows that people review (at first: 1)."
    yield Option("review_rejected", str | None, text, metavar="RATE")
    text = "The share of accepted rows that they do, drawn at random (at first: 0.02)."
    yield Option("review_accepted", str | None, text, metavar="RATE")
    text = "How long a label is waited for."
    yield Option("deadline", str, text, default="30d", metavar="TIME")
    text = "The share of labels that may be wrong (default: what the gate was told)."
    yield Option("label_noise", str | None, text, metavar="RATE")


def _reviewing(
    *,
    review_rejected: str | None,
    review_accepted: str | None,
    deadline: str,
    label_noise: str | None,
) -> Reviewing:
    given = {"rejected": review_rejected, "accepted": review_accepted}
    rates = {
        name: as_share(text, f"review-{name}")
        for name, text in given.items()
        if text is not None
    }
    noise = None if label_noise is None else as_share(label_noise, "label-noise")
    if noise is not None:
        check_noise(noise)
    return Reviewing(rates, as_time(deadline, "--deadline"), noise)


def _reaching_options() -> Iterator[Option]:
    text = "The address to listen on; others than loopback need tokens."
    yield Option("host", str, text, default="127.0.0.1", metavar="HOST")
    text = "The port; 0 for any that is free."
    yield Option("port", int, text, default=PORT, metavar="PORT")
    text = (
        "Who may do what: lines from --new-token. Or the variable TRUSTDOCTOR_TOKENS, "
        "as admin=TOKEN,decide=TOKEN."
    )
    yield Option("tokens", Path | None, text, metavar="FILE")
    text = "Repeatable. A name that the service goes by."
    yield Option("allow_host", list[str] | None, text, metavar="NAME")
    text = (
        "Print a new token and its line for --tokens, and end: decide, label or admin."
    )
    yield Option("new_token", str | None, text, metavar="ROLE")


def _reaching(
    *,
    host: str,
    port: int,
    tokens: Path | None,
    allow_host: list[str] | None,
    new_token: str | None,
) -> Reaching:
    if not 0 <= port <= 65535:
        message = f"expected --port from 0 to 65535, got {port}."
        raise InputError(message)
    return Reaching(host, port, tokens, tuple(allow_host or ()), new_token)


def _running_options() -> Iterator[Option]:
    text = "An ONNX model to run, too: POST /v2/models/NAME/infer."
    yield Option("model", Path | None, text, metavar="FILE")
    text = "Its tensor of logits, where neither the graph nor a name tells."
    yield Option("logits", str | None, text, metavar="NAME")
    text = "Its tensor of probabilities, likewise."
    yield Option("probs", str | None, text, metavar="NAME")


KEEPING = OptionGroup(_keeping_options, _keeping, "Keeping")
REVIEWING = OptionGroup(_reviewing_options, _reviewing, "Review")
REACHING = OptionGroup(_reaching_options, _reaching, "Access")
RUNNING = OptionGroup(_running_options, Running, "Model")


SECRET = "TRUSTDOCTOR_WEBHOOK_SECRET"  # the name of a variable

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


def serve(  # noqa: PLR0913 - one parameter per option
    *,
    gate_path: GateFileOption = None,
    level: LevelOption = "0.1",
    webhook: WebhookOption = None,
    running: Running,
    keeping: Keeping,
    reviewing: Reviewing,
    reaching: Reaching,
    quiet: QuietOption = False,
) -> None:
    """Serve a gate over HTTP: decisions, reviews, labels, and a watch on the promise.

    Rows are kept in a file beside the gate. A page shows how it goes:
    http://127.0.0.1:8571. Stop it by Ctrl-C; it then finishes what it has taken.
    """
    _require_packages()
    from trustdoctor.service import access, server, settings

    if reaching.new_token is not None:
        _print_token(reaching.new_token)
        return
    gate, store = _gate_and_store(gate_path, keeping.store)
    told = settings.Settings(
        review=reviewing.rates,
        level=as_rate(level, "level"),
        deadline=reviewing.deadline,
        label_noise=reviewing.label_noise,
        keep=keeping.keep,
        keep_payloads=keeping.keep_payloads,
        webhook=_checked_url(webhook),
        webhook_secret=os.environ.get(SECRET),
        fast=keeping.fast,
    )
    _check_keeping(told.keep, told.deadline)
    known = [] if reaching.tokens is None else access.read_tokens(reaching.tokens)
    who = [*known, *access.tokens_from()]
    where = server.ListenOptions(reaching.host, reaching.port, who, reaching.allow_host)
    model = server.load_model(running.model, running.logits, running.probs)
    server.log_as_json(quiet=quiet)
    server.serve(gate, store, settings=told, listening=where, model=model)


def _gate_and_store(path: Path | None, store: str | None) -> tuple[Gate, str]:
    """Return the gate, and where rows are kept: by default beside it."""
    if path is None:
        message = "expected a gate to serve, got none. Name one: --gate gate.json."
        raise InputError(message)
    return Gate.load(path), str(path.with_suffix(".db")) if store is None else store


def _print_token(role: str) -> None:
    from trustdoctor.service.access import new_token

    token, line = new_token(role)
    typer.echo(f"{token}\n{line}")
    told = "The first line is the token; keep it. The second goes into --tokens."
    typer.echo(told, err=True)


def _require_packages() -> None:
    try:
        import httptools
        import msgspec
        import starlette
        import uvicorn
        import uvloop
    except ImportError as error:
        package = str(error.name or "starlette")
        what = "the service"
        raise missing_package(what=what, package=package, extra="serve") from error
    del httptools, msgspec, starlette, uvicorn, uvloop


def _check_keeping(keep: float | None, deadline: float | None) -> None:
    if keep is not None and (deadline is None or keep < deadline):
        message = (
            "expected --keep of at least --deadline, so that rows stay while their "
            "labels are waited for, got less. Keep them longer, or wait less."
        )
        raise InputError(message)


def _checked_url(url: str | None) -> str | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        good = False
    if not good:
        message = f"expected --webhook as https://..., got {url!r}."
        raise InputError(message)
    return url
