"""The fields of an endpoint: checked, written and read."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trustdoctor import envelope
from trustdoctor.adapters.asking import describe_inputs
from trustdoctor.atomic import resolved, write_text
from trustdoctor.errors import FileError, InputError, RowError
from trustdoctor.urls import check_timeout, checked_url, is_local

if TYPE_CHECKING:
    from trustdoctor.adapters.endpoint.model import Endpoint

SCHEMA = 1
MOST_WORKERS = 256

_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_KEY = re.compile(r"[!-~]*")
_SECRETS = re.compile(r"(api|access)?[_-]?(key|token)|authorization|password|secret")
_FIXED = {"model", "messages", "logprobs", "stream"}
_END = "/chat/completions"


def checked(endpoint: "Endpoint") -> dict[str, Any]:
    """Return the fields that are kept in another form; refuse what cannot be meant."""
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
    listed = isinstance(choices, Sequence) and not isinstance(choices, (str, bytes))
    if not listed or not all(isinstance(choice, str) for choice in choices):
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
    if checked.endswith(_END):
        message = f"{expected}, got {checked}. Leave {_END} out."
        raise InputError(message)
    return checked


def _check_key_name(name: Any) -> None:
    """Refuse what is not a name; it may be the key itself, so it is not shown."""
    if not isinstance(name, str) or not (not name or _NAME.fullmatch(name)):
        message = (
            "expected key_env as the name of an environment variable, in capitals, as "
            "OPENAI_API_KEY, got something else. The key itself belongs into that "
            "variable."
        )
        raise InputError(message)


def _check_numbers(endpoint: "Endpoint") -> None:
    check_timeout(endpoint.timeout)
    _check_count("retries", endpoint.retries, 0)
    _check_count("workers", endpoint.workers, 1, MOST_WORKERS)
    if endpoint.max_calls is None:
        return
    _check_count("max_calls", endpoint.max_calls, 1)
    if endpoint.answers is None:
        message = (
            "max_calls counts the calls over the life of a file of answers, and none "
            "is named. Name one: answers='answers.jsonl'."
        )
        raise InputError(message)


def _check_count(name: str, value: Any, least: int, most: float = math.inf) -> None:
    if type(value) is not int or not least <= value <= most:
        upto = "or more" if math.isinf(most) else f"to {most}"
        message = (
            f"expected {name} as a whole number, {least} {upto}, got "
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
    if fixed := _FIXED & set(extra):
        message = f"extra cannot change {', '.join(sorted(fixed))}. Leave it out."
        raise InputError(message)
    try:
        return envelope.parse(json.dumps(dict(extra)))
    except (TypeError, ValueError) as error:
        message = f"expected extra as plain values of JSON: {error}."
        raise InputError(message) from error


def _refuse_secrets(names: Any) -> None:
    secret = next((name for name in names if _SECRETS.fullmatch(name.lower())), None)
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
    whole = isinstance(rows, (str, bytes, Mapping)) or hasattr(rows, "columns")
    if whole or not hasattr(rows, "__iter__"):
        message = (
            "expected rows of text, as a list of str, got "
            f"{describe_inputs(rows)}. Give a list; of a table, one column."
        )
        raise InputError(message)
    texts = list(rows)
    if not texts:
        message = "expected at least one row of text, got none."
        raise InputError(message)
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            message = (
                f"expected text in row {{row}}, got {describe_inputs(text)}. Fix or "
                "remove that row."
            )
            raise RowError(message, at)
    return texts


def save(endpoint: "Endpoint", path: Path) -> None:
    """Write an endpoint as JSON; answers in its folder are named from there."""
    content = {name: getattr(endpoint, name) for name in _names(endpoint)}
    if endpoint.answers is not None:
        place, folder = resolved(endpoint.answers), resolved(path).parent
        inside = place.is_relative_to(folder)
        place = place.relative_to(folder) if inside else place
        content["answers"] = place.as_posix()
    write_text(path, envelope.dump("endpoint", SCHEMA, content))


def load(kind: type["Endpoint"], path: Path) -> "Endpoint":
    """Read an endpoint; a path of answers that is relative is one beside the file."""
    content = envelope.load(path, "endpoint", schemas=(SCHEMA,))
    try:
        _refuse_secrets(content)
        needed = {"schema", "url", "model", "choices"}
        envelope.check_fields(content, needed, set(_names(kind)))
        del content["schema"]
        envelope.read_list(content["choices"])
        if content.get("answers") is not None:
            content["answers"] = path.parent / envelope.read_text(content["answers"])
        return kind(**content)
    except (InputError, FileError) as error:
        message = f"the endpoint in {path} is not valid: {error}"
        raise FileError(message) from error


def _names(endpoint: Any) -> list[str]:
    return [one.name for one in fields_of(endpoint) if one.init]
