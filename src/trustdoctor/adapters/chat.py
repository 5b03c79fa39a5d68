"""Labels from a language model's token probabilities.

Reads the JSON of OpenAI-compatible chat completions asked for with ``logprobs`` and
``top_logprobs``, where the answer is one of a set of labels told apart by their first
token.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError
from trustdoctor.files import checked_choices, choice_probs
from trustdoctor.predictions import Answers, Predictions

MAX_FILE_BYTES = 1 << 30


def read_chat(
    responses: str | Path | Iterable[dict[str, Any]],
    names: Sequence[str],
    labels: Any = None,
) -> Answers:
    """Return the labels that a model's first token speaks for.

    The probabilities of tokens that begin a label, whatever their case and the space
    before them, are summed. The mass of all other tokens may belong to any label, so
    both scores are intervals, and rows whose answer it could change are rejected.

    Parameters
    ----------
    responses : path, or iterable of dict
        A file of JSON, or with one JSON per line; or the responses themselves.
    names : sequence of str
        The labels, in the order of their numbers.
    labels : integer array (n,), optional
        The true ones.
    """
    names = checked_choices(names)
    if isinstance(responses, (str, Path)):
        responses = _read(Path(responses))
    rows = [choice_probs(i, response, names) for i, response in enumerate(responses)]
    if not rows:
        message = "expected at least one response, got none."
        raise InputError(message)
    probs = np.array(rows)
    if not probs.any(1).all():
        first = int((~probs.any(1)).argmax())
        message = f"response {first} speaks for none of the labels {', '.join(names)}."
        raise InputError(message)
    classes = np.broadcast_to(np.arange(len(names)), probs.shape)
    return Predictions.from_topk(
        probs, classes, labels, n_classes=len(names), open_rest=True
    )


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        text = envelope.read_bounded(path, "file of responses", MAX_FILE_BYTES)
        try:
            content = json.loads(text)
        except ValueError:  # one response per line
            content = [json.loads(line) for line in text.split("\n") if line.strip()]
    except (RecursionError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        message = f"cannot read {path} as JSON, one response per line: {error}."
        raise FileError(message) from error
    return content if isinstance(content, list) else [content]
