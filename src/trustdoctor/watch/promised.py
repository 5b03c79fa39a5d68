"""Which rates of a gate are tested, and between which limits."""

from typing import Any

from trustdoctor.errors import InputError
from trustdoctor.gates import TARGETS, Certificate, Gate, Target
from trustdoctor.metrics import Confusion, clopper_pearson
from trustdoctor.watch.rate_tests import Group, RateTest

ACCEPTED = "accepted"
"""The test that the accept rate is what it was at calibration."""


def make_tests(
    gate: Gate, level: float, size: int, noise: float = 0.0
) -> dict[str, RateTest]:
    """Return the tests of a gate by name; none where it decides nothing.

    Each has an equal part of the level. A tenth of it covers the limits that the
    calibration rows only estimate.
    """
    certificate = require_certificate(gate)
    promised = [one for one in _promised(certificate) if not _is_kept(gate, one)]
    varies = not _only(gate, "accept-all") and not _only(gate, "reject-all")
    tests = varies + len(promised)
    if not tests:
        return {}
    limits, each = level / 10 / tests, 0.9 * level / tests
    out: dict[str, RateTest] = {}
    if varies:
        coverage = TARGETS["coverage"]
        low, high = _limits(certificate, coverage, limits)
        out[ACCEPTED] = RateTest(ACCEPTED, coverage, low, high, each, size)
    for target in promised:
        low, high = _null(certificate, target, limits)
        own = _groups(gate, target) if gate.groups else None
        alone = own if certificate.mode == "confidence" else None
        only = None if own is None else frozenset(own)
        out[target.name] = RateTest(
            target.name, target, low, high, each, size, alone, only, noise=noise
        )
    return out


def require_certificate(gate: Gate) -> Certificate:
    """Return what a gate promises, or refuse one that was not calibrated."""
    if gate.certificate is None:
        message = (
            "this gate has no certificate, so there is nothing to watch it by. Make it "
            "with calibrate."
        )
        raise InputError(message)
    return gate.certificate


def find_test(tests: dict[str, RateTest], name: str) -> RateTest:
    """Return the test of that name, or name those that there are."""
    if name in tests:
        return tests[name]
    known = ", ".join(tests) or "none"
    message = f"expected a test out of {known}, got {name!r}."
    raise InputError(message)


def idle_words(gate: Gate) -> str:
    """Say why there is nothing to watch."""
    what = "rejects" if _only(gate, "reject-all") else "accepts"
    kept = require_certificate(gate).guarantee
    told = ", so its promise holds whatever comes" if kept else ""
    return f"nothing to watch: the gate {what} every row{told}"


def _promised(certificate: Certificate) -> list[Target]:
    rates = [TARGETS[name] for name in certificate.target]
    asked = [target for target in rates if target.promised and target.counts]
    return asked if certificate.guarantee else []


def _only(gate: Gate, state: str) -> bool:
    return {gate.state, *(rule.state for rule in gate.groups.values())} == {state}


def _is_kept(gate: Gate, target: Target) -> bool:
    """Whether no row can break the promise: nothing is accepted, or all is."""
    if gate.groups:
        return not _groups(gate, target)
    return gate.state == f"{target.safe}-all"


def _groups(gate: Gate, target: Target) -> tuple[Group, ...]:
    """Return the groups that have a promise which rows can break."""
    return tuple(
        name
        for name, rule in gate.groups.items()
        if rule.promised and rule.state != f"{target.safe}-all"
    )


def _null(
    certificate: Certificate, target: Target, limits: float
) -> tuple[float, float]:
    value = certificate.target[target.name]
    low, high = (value, 1.0) if target.at_least else (0.0, value)
    if certificate.mode == "expectation":
        # On average the promise holds; this gate's own rate may lie beyond it.
        seen = _limits(certificate, target, limits)
        if target.at_least:
            low = min(low, seen[0])
        else:
            high = max(high, seen[1])
    return low, high


def _limits(
    certificate: Certificate, target: Target, level: float
) -> tuple[float, float]:
    """Return what the calibration rows say of a rate, at that level."""
    if target.name not in certificate.observed:
        return 0.0, 1.0
    assert target.counts is not None
    part, whole = target.counts(_seen(certificate))
    return clopper_pearson(part, whole, confidence=1 - level)


def _seen(certificate: Certificate) -> Confusion:
    """Return what the gate did to the calibration rows, from the rates in its file."""

    def part(name: str, whole: int) -> int:
        seen = certificate.observed.get(name)
        return 0 if seen is None else round((seen.value or 0.0) * whole)

    if certificate.n_errors < 0:
        kept = part("coverage", certificate.n)
        return Confusion(certificate.n - kept, 0, 0, kept)
    right, wrong = certificate.n_correct, certificate.n_errors
    fr, tr = part("frr", right), part("trr", wrong)
    return Confusion(fr, tr, wrong - tr, right - fr)


def identify(gate: Gate) -> dict[str, Any]:
    """Say which gate it is."""
    fingerprint = "" if gate.certificate is None else gate.certificate.fingerprint
    return {
        "score": gate.score,
        "temperature": gate.temperature,
        "state": gate.state,
        "threshold": str(gate.threshold),
        "fingerprint": fingerprint,
        "fitted": None if gate.fitted is None else gate.fitted.digest,
    }
