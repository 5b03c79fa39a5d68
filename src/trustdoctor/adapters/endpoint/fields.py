"""The fields of an endpoint: checked, written and read."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from trustdoctor import envelope
from trustdoctor.adapters.errors import describe_inputs
from trustdoctor.atomic import resolved, write_text
from trustdoctor.envelope import Document, convert
from trustdoctor.errors import FileError, InputError, RowError
from trustdoctor.urls import check_timeout, checked_url, is_local

if TYPE_CHECKING:
    from trustdoctor.adapters.endpoint.model import Endpoint

SCHEMA = 1
MAX_WORKERS = 256

_VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_KEY = re.compile(r"[!-~]*")
_SECRET_NAME = re.compile(
    r"(api|access)?[_-]?(key|token)|authorization|password|secret"
)
_FIXED_FIELDS = {"model", "messages", "logprobs", "stream"}
_CALL_PATH = "/chat/completions"


class EndpointDocument(Document, frozen=True):
    """An endpoint's file. What it leaves out has the default of `Endpoint`."""

    schema: int
    url: str
    model: str
    choices: list[str]
    prompt: str | UnsetType = UNSET
    system: str | UnsetType = UNSET
    key_env: str | UnsetType = UNSET
    timeout: float | UnsetType = UNSET
    retries: int | UnsetType = UNSET
    workers: int | UnsetType = UNSET
    max_calls: int | UnsetType | None = UNSET
    answers: str | UnsetType | None = UNSET
    extra: dict[str, Any] | UnsetType = UNSET


def checked_fields(endpoint: "Endpoint") -> dict[str, Any]:
    """Return the fields that an endpoint has in another form; refuse wrong values."""
    from trustdoctor.files import checked_choices

    for name in ("model", "prompt", "system"):
        _check_text(name, getattr(endpoint, name))
    if not endpoint.model.strip():
        message = "expected the name of a model, got an empty text."
        raise InputError(message)
    if "{text}" not in endpoint.prompt:
        message = (
            "expected {text} in the prompt, where each row's text goes, got "
            f"{envelope.shown(endpoint.prompt)}."
        )
        raise InputError(message)
    _check_key_name(endpoint.key_env)
    _check_numbers(endpoint)
    choices, answers = endpoint.choices, endpoint.answers
    is_list = isinstance(choices, Sequence) and not isinstance(choices, (str, bytes))
    if not is_list or not all(isinstance(choice, str) for choice in choices):
        message = (
            "expected choices as texts, as ('yes', 'no'), got "
            f"{envelope.shown(choices)}."
        )
        raise InputError(message)
    return {
        "url": _checked_url(endpoint.url),
        "choices": tuple(checked_choices(choices)),
        "answers": None if answers is None else _checked_path(answers),
        "extra": _checked_extra(endpoint.extra),
    }


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        message = f"expected {name} as text, got {envelope.shown(value)}."
        raise InputError(message)


def _checked_url(url: Any) -> str:
    """Return a base URL without a slash at its end."""
    _check_text("url", url)
    expected = "expected url as the base of a server, as http://127.0.0.1:8000/v1"
    checked = checked_url(
        url,
        expected,
        "a key belongs into the environment variable that key_env names",
    )
    if checked.endswith(_CALL_PATH):
        message = f"{expected}, got {checked}. Leave {_CALL_PATH} out."
        raise InputError(message)
    return checked


def _check_key_name(name: Any) -> None:
    # What is no name may be the key itself, so messages do not show it.
    if not isinstance(name, str) or not (not name or _VARIABLE_NAME.fullmatch(name)):
        message = (
            "expected key_env as the name of an environment variable, in capitals, as "
            "OPENAI_API_KEY, got something else. The key itself belongs into that "
            "variable."
        )
        raise InputError(message)


def _check_numbers(endpoint: "Endpoint") -> None:
    check_timeout(endpoint.timeout)
    _check_count("retries", endpoint.retries, 0)
    _check_count("workers", endpoint.workers, 1, MAX_WORKERS)
    if endpoint.max_calls is None:
        return
    _check_count("max_calls", endpoint.max_calls, 1)
    if endpoint.answers is None:
        message = (
            "max_calls counts the calls over the life of a file of answers, and none "
            "is named. Name one: answers='answers.jsonl'."
        )
        raise InputError(message)


def _check_count(
    name: str, value: Any, minimum: int, maximum: float = math.inf
) -> None:
    if type(value) is not int or not minimum <= value <= maximum:
        limit = "or more" if math.isinf(maximum) else f"to {maximum}"
        message = (
            f"expected {name} as a whole number, {minimum} {limit}, got "
            f"{envelope.shown(value)}."
        )
        raise InputError(message)


def _checked_path(path: Any) -> Path:
    if isinstance(path, (str, Path)) and str(path) not in ("", "."):
        return Path(path)
    message = f"expected answers as the path of a file, got {envelope.shown(path)}."
    raise InputError(message)


def _checked_extra(extra: Any) -> dict[str, Any]:
    """Return fields of a request as JSON has them."""
    if not isinstance(extra, Mapping) or not all(isinstance(n, str) for n in extra):
        message = (
            "expected extra as fields of the request, as {'top_logprobs': 5}, got "
            f"{describe_inputs(extra)}."
        )
        raise InputError(message)
    _refuse_secrets(extra)
    if fixed := _FIXED_FIELDS & set(extra):
        message = f"extra cannot change {', '.join(sorted(fixed))}. Leave it out."
        raise InputError(message)
    try:
        return envelope.parse(json.dumps(dict(extra)))
    except (TypeError, ValueError) as error:
        message = f"expected extra as plain values of JSON: {error}."
        raise InputError(message) from error


def _refuse_secrets(names: Any) -> None:
    secrets = (name for name in names if _SECRET_NAME.fullmatch(name.lower()))
    secret = next(secrets, None)
    if secret is not None:
        message = (
            f"it holds a key, {secret!r}. Remove it: the key comes from the "
            "environment variable that key_env names."
        )
        raise InputError(message)


def check_key(endpoint: "Endpoint", key: str) -> None:
    """Refuse a key that cannot be sent, or would be sent where others can read it."""
    if not _KEY.fullmatch(key):
        message = (
            f"expected a key in the environment variable {endpoint.key_env}, got text "
            "with spaces or other characters that no key has. Set it anew."
        )
        raise InputError(message)
    if key and endpoint.url.startswith("http:") and not is_local(endpoint.url):
        message = (
            f"{endpoint.url} is not encrypted, so the key in {endpoint.key_env} could "
            "be read on the way. Use https, or key_env='' to send no key."
        )
        raise InputError(message)


def as_texts(rows: Any) -> list[str]:
    """Return rows as a list of texts, refusing tables and single texts."""
    no_list = isinstance(rows, (str, bytes, Mapping)) or hasattr(rows, "columns")
    if no_list or not hasattr(rows, "__iter__"):
        message = (
            "expected rows of text, as a list of str, got "
            f"{describe_inputs(rows)}. Give a list; of a table, one column."
        )
        raise InputError(message)
    texts = list(rows)
    if not texts:
        message = "expected at least one row of text, got none."
        raise InputError(message)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            message = (
                f"expected text in row {{row}}, got {describe_inputs(text)}. Fix or "
                "remove that row."
            )
            raise RowError(message, row)
    return texts


def save_endpoint(endpoint: "Endpoint", path: Path) -> None:
    """Write an endpoint as JSON; answers in its folder are named from there."""
    names = [n for n in EndpointDocument.__struct_fields__ if n != "schema"]
    content = {name: getattr(endpoint, name) for name in names}
    if endpoint.answers is not None:
        answers, folder = resolved(endpoint.answers), resolved(path).parent
        if answers.is_relative_to(folder):
            answers = answers.relative_to(folder)
        content["answers"] = answers.as_posix()
    write_text(path, envelope.dump("endpoint", SCHEMA, content))


def load_endpoint(kind: type["Endpoint"], path: Path) -> "Endpoint":
    """Read an endpoint; a relative path of answers is one beside the file."""
    content = envelope.load(path, "endpoint", schemas=(SCHEMA,))
    try:
        _refuse_secrets(content)
        fields = msgspec.structs.asdict(convert(content, EndpointDocument))
        del fields["schema"]
        fields = {name: value for name, value in fields.items() if value is not UNSET}
        if fields.get("answers") is not None:
            fields["answers"] = path.parent / fields["answers"]
        return kind(**fields)
    except (InputError, FileError) as error:
        message = f"the endpoint in {path} is not valid: {error}"
        raise FileError(message) from error
