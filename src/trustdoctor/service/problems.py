"""What goes wrong, as JSON problems (RFC 9457)."""

from typing import Any

import msgspec
from starlette.exceptions import HTTPException

from trustdoctor.errors import InputError, TrustDoctorError
from trustdoctor.service.store import UnavailableError

TITLES = {
    400: "The request is not as expected",
    401: "A token is missing or not known",
    403: "This may not be done",
    404: "Not found",
    405: "Another method is expected",
    408: "The request came too slowly",
    409: "It contradicts what is stored",
    413: "The request is too large",
    415: "Another content type is expected",
    421: "This host is not served",
    429: "Too many at once",
    431: "The request's head is too large",
    500: "Internal error",
    503: "Not available now",
}

CONTENT_TYPE = b"application/problem+json"


class ProblemError(InputError):
    """A request that is refused, with the status that says so.

    Attributes
    ----------
    status : int
    more : dict
        What else the problem says, as `id` or `retry`.
    """

    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.more = more


def as_problem(error: BaseException) -> ProblemError:
    """Return an error as a problem; what nobody expected says no more than that."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, HTTPException):  # Starlette's own: another method
        allowed = (error.headers or {}).get("Allow", "")
        message = f"expected {allowed or 'another method'}, got another method."
        return ProblemError(error.status_code, message, allow=allowed)
    if isinstance(error, msgspec.DecodeError):
        said = str(error)
        hint = " (NaN and Infinity are not JSON)" if "invalid character" in said else ""
        told = f"expected JSON as /openapi.json describes it: {said}{hint}."
        return ProblemError(400, told)
    if isinstance(error, RecursionError):
        return ProblemError(400, "expected JSON as documented, got it nested too deep.")
    if isinstance(error, UnicodeDecodeError):
        return ProblemError(400, "expected JSON in UTF-8, got other bytes.")
    if isinstance(error, UnavailableError):  # whose words may name hosts and users
        message = "the store cannot be used now; the log says why. Send it again later."
        return ProblemError(503, message)
    if isinstance(error, TrustDoctorError):
        return ProblemError(400, str(error))
    return ProblemError(500, "an internal error; the log says more. Please report it.")


def body_of(problem: ProblemError, *, inference: bool = False) -> bytes:
    """Return a problem as JSON; clients of the inference protocol read `error`."""
    said = {
        "type": "about:blank",
        "title": TITLES.get(problem.status, "Refused"),
        "status": problem.status,
        "detail": str(problem),
    }
    more = problem.more | ({"error": str(problem)} if inference else {})
    return msgspec.json.encode(said | more)
