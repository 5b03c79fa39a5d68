"""The options that only the service has."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trustdoctor.cli.options import Option, OptionGroup, as_share
from trustdoctor.errors import InputError
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
