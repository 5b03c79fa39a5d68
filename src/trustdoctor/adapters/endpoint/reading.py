"""What a response says of the choices."""

from typing import TYPE_CHECKING, Any

from trustdoctor.errors import InputError, RowError

if TYPE_CHECKING:
    from trustdoctor.adapters.endpoint.model import Endpoint


def choice_shares(endpoint: "Endpoint", response: Any, row: int) -> list[float]:
    """Return the probabilities of choices, divided by their sum.

    Where nothing was said, or nothing for a choice, all are equal.
    """
    from trustdoctor.files import choice_probs, first_tokens

    count = len(endpoint.choices)
    try:
        first_tokens(row, response)
    except RowError as error:
        if _is_silent(response):
            return [1 / count] * count
        message = (
            f"{endpoint.url} answered row {row} without log-probabilities of the first "
            "token (choices[0].logprobs.content[0].top_logprobs) that can be used, "
            "though asked for them. Use a server and a model that give them."
        )
        raise InputError(message) from error
    try:
        probs = choice_probs(row, response, endpoint.choices)
    except RowError as error:
        message = f"{endpoint.url} answered row {row} with odd numbers: {error}"
        raise InputError(message) from error
    total = sum(probs)
    return [one / total for one in probs] if total > 0 else [1 / count] * count


def _is_silent(response: Any) -> bool:
    """Tell whether a model ended its answer, or a filter did, before any text."""
    try:
        first = response["choices"][0]
        said, end = first["message"]["content"], first["finish_reason"]
    except (KeyError, IndexError, TypeError):
        return False
    return not said and end in ("stop", "content_filter")
