"""Answers of a language model: OpenAI-compatible responses, one per line.

The tokens that begin a choice, whatever their case and the space before them, are
summed up. The mass of all other tokens may belong to any choice, so that what is known
of a choice's probability is its lower end.
"""

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from trustdoctor import envelope
from trustdoctor.errors import InputError, RowError
from trustdoctor.files.columns import Columns
from trustdoctor.files.labels import look_up
from trustdoctor.predictions import TOPK_TOLERANCE, Answers, Predictions, make_answers

_ROUNDED = 1e-3  # how far above 0 rounding may bring a log-probability

NO_CHOICE = "(none of the choices)"
"""What a response answers that speaks for no choice."""


def from_lines(lines: pl.Series, columns: Columns) -> Answers:
    """Build answers from lines of JSON; truth comes by their ids.

    The confidence is the least probability that the answer has. Where the rest could
    make another choice the answer, or no choice is answered, it is 0 and the row
    ambiguous. A request that failed has no answer.
    """
    choices = checked_choices(columns.choices or ())
    responses = [_parsed(i, line) for i, line in enumerate(lines)]
    failed = np.array([content is None for _, content in responses])
    rows = [
        [0.0] * len(choices) if content is None else choice_probs(i, content, choices)
        for i, (_, content) in enumerate(responses)
    ]
    probs = np.array(rows)
    none = ~probs.any(1)
    probs[none, 0] = 1.0  # stands in: such rows are told apart below
    found = Predictions.from_topk(
        probs,
        np.broadcast_to(np.arange(len(choices)), probs.shape),
        n_classes=len(choices),
        open_rest=True,
    )
    names = np.array(choices, object)[found.predicted]
    names[none] = np.where(failed[none], "", NO_CHOICE)
    assert found.top is not None
    ambiguous = (found.top.ambiguous | none) & ~failed
    ids = np.array([name for name, _ in responses], object)
    labels = None
    if columns.truth is not None:
        truth = look_up(pl.Series(ids.tolist(), dtype=pl.String), columns)
        labels = _matched(truth, choices, strict=columns.need_labels)
    sure = np.where(ambiguous, 0.0, found.top.probs[:, 0])
    return make_answers(
        sure,
        signal="confidence",
        predicted=names,
        labels=labels,
        ids=ids,
        ambiguous=ambiguous,
    )


def response_ids(lines: pl.Series) -> pl.Series:
    """Return the ids of responses; null where one has none."""
    ids = [_parsed(i, line)[0] for i, line in enumerate(lines)]
    return pl.Series(ids, dtype=pl.String)


def _matched(truth: pl.Series, choices: Sequence[str], *, strict: bool) -> Any:
    """Return truths as the choices are written; case does not matter."""
    known = {choice.casefold(): choice for choice in choices}
    out = []
    for at, label in enumerate(truth):
        plain = "" if label is None else label.strip()
        if plain and plain.casefold() not in known and strict:
            shown = ", ".join(map(repr, choices[:5]))
            message = (
                f"expected true labels out of {shown}, got {plain!r} for the response "
                "of row {row}. Give every label in --choices."
            )
            raise RowError(message, at)
        out.append(known.get(plain.casefold(), ""))
    return np.array(out, object)


def _parsed(at: int, line: str | None) -> tuple[str | None, Any]:
    """Return the id and the response, None where the request failed; batches wrap it.

    Its row stays: a file without it would be judged by the requests that went well.
    """
    try:
        content = json.loads(line or "", object_pairs_hook=envelope.once)
        if "\\ud" in (line or "").lower():  # half a character, which nothing can hold
            json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        message = f"expected one JSON object per line, row {{row}} is not one: {error}."
        raise RowError(message, at) from error
    if not isinstance(content, dict):
        message = "expected one JSON object per line, got another at row {row}."
        raise RowError(message, at)
    name = content.get("custom_id", content.get("id"))
    inner = content.get("response")
    status = inner.get("status_code", 200) if isinstance(inner, dict) else 200
    body = inner.get("body", inner) if isinstance(inner, dict) else content
    failed = content.get("error") or status != 200
    return (None if name is None else str(name)), None if failed else body


def first_tokens(at: int, response: Any) -> dict[str, float]:
    """Return the tokens that a response may begin with, and their log-probabilities."""
    try:
        first = response["choices"][0]["logprobs"]["content"][0]
        tokens = {t["token"]: float(t["logprob"]) for t in first["top_logprobs"]}
        tokens.setdefault(first["token"], float(first["logprob"]))
        "".join(tokens)  # which takes texts alone
        return tokens
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        message = (
            "response {row} has no choices[0].logprobs.content[0].top_logprobs. Ask "
            "for logprobs and top_logprobs."
        )
        raise RowError(message, at) from error


def choice_probs(at: int, response: Any, names: Sequence[str]) -> list[float]:
    """Return what the first token of a response says for each choice; 0 for none.

    Tokens are different answers, so their probabilities sum to 1 at most.
    """
    tokens = first_tokens(at, response)
    odd = [one for one in tokens.values() if not one <= _ROUNDED]
    if odd:
        message = (
            f"expected log-probabilities, 0 or below, got {odd[0]:g} in response "
            "{row}. Ask again."
        )
        raise RowError(message, at)
    row = [0.0] * len(names)
    for token, logprob in sorted(tokens.items()):
        place = _begun(token, names)
        if place is not None:
            row[place] += math.exp(logprob)
    if sum(row) > 1 + TOPK_TOLERANCE:
        message = (
            "expected probabilities of choices that sum to 1 at most, got "
            f"{sum(row):.3g} in response {{row}}. Ask again."
        )
        raise RowError(message, at)
    return row


def _begun(token: str, names: Sequence[str]) -> int | None:
    """Return the choice that a token begins, or None; refuse one that begins two."""
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


def checked_choices(names: Sequence[str]) -> list[str]:
    """Return choices, refusing those of which one begins another."""
    found = [name.strip() for name in names]
    if len(found) < 2:
        message = f"expected two choices or more, got {', '.join(found) or 'none'}."
        raise InputError(message)
    for one, other in itertools.pairwise(sorted(name.lower() for name in found)):
        if not one or other.startswith(one):
            message = (
                f"the label {other!r} begins as {one!r} does. Ask for other labels."
            )
            raise InputError(message)
    return found
