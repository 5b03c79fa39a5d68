"""The command that puts a gate to work: serve."""

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from trustdoctor.cli.options import QuietOption, as_rate
from trustdoctor.cli.serve_options import Keeping, Reaching, Reviewing, Running
from trustdoctor.errors import InputError, missing_package
from trustdoctor.gates import Gate

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
    where = server.Listening(reaching.host, reaching.port, who, reaching.allow_host)
    model = server.load_model(running.model, running.logits, running.probs)
    server.log_lines(quiet=quiet)
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
