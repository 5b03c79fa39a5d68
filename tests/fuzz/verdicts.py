"""How a case ends."""

from dataclasses import dataclass
from typing import NoReturn

REFUSED, EQUAL = "refused", "equal"


class FindingError(Exception):
    """A case that is neither refused as promised nor the same everywhere."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(kind, detail)
        self.kind, self.detail = kind, detail


def report(kind: str, detail: str = "") -> NoReturn:
    """End a case with a finding."""
    raise FindingError(kind, detail)


@dataclass(frozen=True)
class Verdict:
    """How a case ended: refused, equal, or the kind of a finding."""

    case: str
    outcome: str
    detail: str = ""

    @property
    def good(self) -> bool:
        return self.outcome in (REFUSED, EQUAL)
