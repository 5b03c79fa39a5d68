"""Errors as JSON problems (RFC 9457)."""

from typing import Any

import msgspec
from starlette.exceptions import HTTPException

from trustdoctor.errors import InputError, TrustDoctorError
from trustdoctor.service.store import UnavailableError

TITLES = {
    400: "The request is not as expected",
    401: "A token is missing or unknown",
    403: "Not permitted",
    404: "Not found",
    405: "Method not allowed",
    408: "The request came too slowly",
    409: "Conflict with what is stored",
    413: "The request is too large",
    415: "Unsupported content type",
    421: "Unknown host",
    429: "Too many requests",
    431: "The request's head is too large",
    500: "Internal error",
    503: "Unavailable",
}

CONTENT_TYPE = b"application/problem+json"


class ProblemError(InputError):
    """A request that is refused, with the status that says so.

    Attributes
    ----------
    status : int
    fields : dict
        Further members of the problem, as `id`.
    """

    def __init__(self, status: int, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.status = status
        self.fields = fields


def as_problem(error: BaseException) -> ProblemError:
    """Return an error as a problem; an unexpected one tells nothing of the inside."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, HTTPException):  # Starlette raises it for other methods
        allowed = (error.headers or {}).get("Allow", "")
        message = f"expected {allowed or 'another method'}, got another method."
        return ProblemError(error.status_code, message, allow=allowed)
    if isinstance(error, msgspec.DecodeError):
        reason = str(error)
        hint = " (NaN is not valid JSON)" if "invalid character" in reason else ""
        message = f"expected JSON as /openapi.json describes it: {reason}{hint}."
        return ProblemError(400, message)
    if isinstance(error, RecursionError):
        return ProblemError(400, "expected JSON as documented, got it nested too deep.")
    if isinstance(error, UnicodeDecodeError):
        return ProblemError(400, "expected JSON in UTF-8, got other bytes.")
    if isinstance(error, UnavailableError):  # its text may name hosts and users
        message = "the store is unavailable; the log says why. Retry after 1 s."
        return ProblemError(503, message)
    if isinstance(error, TrustDoctorError):
        return ProblemError(400, str(error))
    return ProblemError(500, "an internal error; the log says more. Please report it.")


def problem_body(problem: ProblemError, *, inference: bool = False) -> bytes:
    """Return a problem as JSON.

    Clients of the Open Inference Protocol read the message from `error`.
    """
    content = {
        "type": "about:blank",
        "title": TITLES.get(problem.status, "Refused"),
        "status": problem.status,
        "detail": str(problem),
    }
    if inference:
        content["error"] = str(problem)
    return msgspec.json.encode(content | problem.fields)
