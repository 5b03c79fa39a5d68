"""Labels from a language model's token probabilities.

Reads the JSON of OpenAI-compatible chat completions asked for with ``logprobs`` and
``top_logprobs``, where the answer is one of a set of labels told apart by their first
token.
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor.errors import FileError, InputError
from trustdoctor.predictions import Predictions, TopK


def read_chat(
    responses: str | Path | Iterable[dict[str, Any]],
    names: Sequence[str],
    labels: Any = None,
) -> TopK:
    """Return the labels that a model's first token speaks for.

    The tokens that begin a label, whatever their case and the space before them, are
    summed up. The mass of all other tokens may belong to any label, so that both scores
    are intervals, and rows where it could change the answer are rejected.

    Parameters
    ----------
    responses : path, or iterable of dict
        A file of JSON, or of one JSON per line; or the responses themselves.
    names : sequence of str
        The labels, in the order of their numbers.
    labels : integer array (n,), optional
        The true ones.
    """
    names = [name.strip() for name in names]
    _check_names(names)
    if isinstance(responses, (str, Path)):
        responses = _read(Path(responses))
    rows = [_row(i, one, names) for i, one in enumerate(responses)]
    if not rows:
        message = "expected at least one response, got none."
        raise InputError(message)
    probs = np.array(rows)
    classes = np.broadcast_to(np.arange(len(names)), probs.shape)
    return Predictions.from_topk(
        probs, classes, labels, n_classes=len(names), open_rest=True
    )


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        try:
            found = json.loads(text)
        except ValueError:  # one response per line
            found = [json.loads(line) for line in text.split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        message = f"cannot read {path} as JSON, one response per line: {error}."
        raise FileError(message) from error
    return found if isinstance(found, list) else [found]


def _row(i: int, response: Any, names: Sequence[str]) -> list[float]:
    try:
        first = response["choices"][0]["logprobs"]["content"][0]
        tokens = {t["token"]: float(t["logprob"]) for t in first["top_logprobs"]}
        tokens.setdefault(first["token"], float(first["logprob"]))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        message = (
            f"response {i} has no choices[0].logprobs.content[0].top_logprobs. Ask for "
            "logprobs and top_logprobs."
        )
        raise InputError(message) from error
    row = [0.0] * len(names)
    for token, logprob in sorted(tokens.items()):
        at = _label(token, names)
        if at is not None:
            row[at] += float(np.exp(logprob))
    if not any(row):
        seen = ", ".join(repr(token) for token in sorted(tokens)[:5])
        message = f"response {i} speaks for none of the labels: its tokens are {seen}."
        raise InputError(message)
    return row


def _label(token: str, names: Sequence[str]) -> int | None:
    """Return the label that a token begins, or None; refuse one that begins two."""
    plain = token.strip().lower()
    if not plain:
        return None
    begun = [i for i, name in enumerate(names) if name.lower().startswith(plain)]
    if len(begun) > 1:
        shared = " and ".join(repr(names[i]) for i in begun[:2])
        message = (
            f"the labels {shared} share their first token {token!r}, so it cannot tell "
            "them apart. Ask for other labels, as A, B, C."
        )
        raise InputError(message)
    return begun[0] if begun else None


def _check_names(names: Sequence[str]) -> None:
    """Refuse labels of which one begins another: a token cannot tell them apart."""
    plain = sorted(name.lower() for name in names)
    for one, other in itertools.pairwise(plain):
        if not one or other.startswith(one):
            message = (
                f"the label {other!r} begins as {one!r} does. Ask for other labels."
            )
            raise InputError(message)
