"""Answers of a language model: OpenAI-compatible responses, one per line.

The probabilities of all tokens that begin a choice are added up, whatever their case
and the space before them. The mass of the tokens that are not listed may belong to any
choice, so what is known of a choice's probability is its lower end.
"""

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trustdoctor import envelope
from trustdoctor.errors import InputError, RowError
from trustdoctor.files.columns import Columns
from trustdoctor.files.labels import look_up
from trustdoctor.predictions import TOPK_TOLERANCE, Answers, Predictions, make_answers

_HIGHEST_LOGPROB = 1e-3
"""Log-probabilities are 0 at most, but rounding may bring them a little above."""

NO_CHOICE = "(none of the choices)"
"""The answer of a response that begins with none of the choices."""


def from_lines(lines: pl.Series, columns: Columns) -> Answers:
    """Build answers from lines of JSON; true labels come by their ids.

    The confidence is the least probability that the answer can have. If the unlisted
    tokens could make another choice the answer, or no choice is answered, it is 0 and
    the row ambiguous. A request that failed has no answer.
    """
    choices = checked_choices(columns.choices or ())
    responses = [_parse_line(row, line) for row, line in enumerate(lines)]
    failed = np.array([body is None for _, body in responses])
    probs = np.array(
        [
            [0.0] * len(choices) if body is None else choice_probs(row, body, choices)
            for row, (_, body) in enumerate(responses)
        ]
    )
    without_choice = ~probs.any(1)
    probs[without_choice, 0] = 1.0  # a placeholder: these rows are set apart below
    predictions = Predictions.from_topk(
        probs,
        np.broadcast_to(np.arange(len(choices)), probs.shape),
        n_classes=len(choices),
        open_rest=True,
    )
    predicted = np.array(choices, object)[predictions.predicted]
    predicted[without_choice] = np.where(failed[without_choice], "", NO_CHOICE)
    assert predictions.top is not None
    ambiguous = (predictions.top.ambiguous | without_choice) & ~failed
    ids = np.array([response_id for response_id, _ in responses], object)
    labels = None
    if columns.truth is not None:
        truth = look_up(pl.Series(ids.tolist(), dtype=pl.String), columns)
        labels = _labels_as_choices(truth, choices, strict=columns.need_labels)
    return make_answers(
        np.where(ambiguous, 0.0, predictions.top.probs[:, 0]),
        signal="confidence",
        predicted=predicted,
        labels=labels,
        ids=ids,
        ambiguous=ambiguous,
    )


def response_ids(lines: pl.Series) -> pl.Series:
    """Return the ids of responses; null for those without."""
    ids = [_parse_line(row, line)[0] for row, line in enumerate(lines)]
    return pl.Series(ids, dtype=pl.String)


def _labels_as_choices(
    truth: pl.Series, choices: Sequence[str], *, strict: bool
) -> NDArray[Any]:
    """Return true labels as the choices are written; case does not matter."""
    choice_by_case = {choice.casefold(): choice for choice in choices}
    labels = []
    for row, text in enumerate(truth):
        label = "" if text is None else text.strip()
        if label and label.casefold() not in choice_by_case and strict:
            shown = ", ".join(map(repr, choices[:5]))
            message = (
                f"expected true labels out of {shown}, got {label!r} for the response "
                "of row {row}. Give every label in --choices."
            )
            raise RowError(message, row)
        labels.append(choice_by_case.get(label.casefold(), ""))
    return np.array(labels, object)


def _parse_line(row: int, line: str | None) -> tuple[str | None, Any]:
    """Return the id and the body of a response, None if the request failed.

    OpenAI's batch API wraps the body in `response`. The row of a failed request stays:
    a file without it would be judged by the requests that succeeded.
    """
    try:
        content = json.loads(line or "", object_pairs_hook=envelope.unique_keys)
        if "\\ud" in (line or "").lower():
            # JSON can spell an unpaired surrogate, which no file or table can hold.
            json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        message = f"expected one JSON object per line, row {{row}} is not one: {error}."
        raise RowError(message, row) from error
    if not isinstance(content, dict):
        message = "expected one JSON object per line, got something else at row {row}."
        raise RowError(message, row)
    response_id = content.get("custom_id", content.get("id"))
    response_id = None if response_id is None else str(response_id)
    response = content.get("response")
    status, body = 200, content
    if isinstance(response, dict):
        status, body = response.get("status_code", 200), response.get("body", response)
    failed = content.get("error") or status != 200
    return response_id, None if failed else body


def first_tokens(row: int, response: Any) -> dict[str, float]:
    """Return the tokens that a response may begin with, and their log-probabilities."""
    try:
        first = response["choices"][0]["logprobs"]["content"][0]
        logprobs = {t["token"]: float(t["logprob"]) for t in first["top_logprobs"]}
        # The token that was drawn may be none of the most probable ones.
        logprobs.setdefault(first["token"], float(first["logprob"]))
        "".join(logprobs)  # raises TypeError unless all tokens are texts
        return logprobs
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        message = (
            "response {row} has no choices[0].logprobs.content[0].top_logprobs. Ask "
            "for logprobs and top_logprobs."
        )
        raise RowError(message, row) from error


def choice_probs(row: int, response: Any, choices: Sequence[str]) -> list[float]:
    """Return what the first token of a response says for each choice; 0 for none.

    Tokens exclude each other, so their probabilities sum to 1 at most.
    """
    logprobs = first_tokens(row, response)
    # NaN fails this comparison, too.
    invalid = [value for value in logprobs.values() if not value <= _HIGHEST_LOGPROB]
    if invalid:
        message = (
            f"expected log-probabilities, 0 or below, got {invalid[0]:g} in response "
            "{row}. Ask again."
        )
        raise RowError(message, row)
    probs = [0.0] * len(choices)
    for token, logprob in sorted(logprobs.items()):
        choice = _begun_choice(token, choices)
        if choice is not None:
            probs[choice] += math.exp(logprob)
    if sum(probs) > 1 + TOPK_TOLERANCE:
        message = (
            "expected probabilities of choices that sum to 1 at most, got "
            f"{sum(probs):.3g} in response {{row}}. Ask again."
        )
        raise RowError(message, row)
    return probs


def _begun_choice(token: str, choices: Sequence[str]) -> int | None:
    """Return the choice that a token begins, or None; refuse one that begins two."""
    start = token.strip().lower()
    if not start:
        return None
    begun = [i for i, name in enumerate(choices) if name.lower().startswith(start)]
    if len(begun) > 1:
        shared = " and ".join(repr(choices[i]) for i in begun[:2])
        message = (
            f"the labels {shared} share their first token {token!r}, so it cannot tell "
            "them apart. Ask for other labels, as A, B, C."
        )
        raise InputError(message)
    return begun[0] if begun else None


def checked_choices(names: Sequence[str]) -> list[str]:
    """Return choices, refusing those of which one begins another."""
    choices = [name.strip() for name in names]
    if len(choices) < 2:
        message = f"expected two choices or more, got {', '.join(choices) or 'none'}."
        raise InputError(message)
    # Sorted, a name is followed by the names that it begins.
    for name, longer in itertools.pairwise(sorted(name.lower() for name in choices)):
        if not name or longer.startswith(name):
            message = (
                f"the label {longer!r} begins with {name!r}. Ask for other labels."
            )
            raise InputError(message)
    return choices
