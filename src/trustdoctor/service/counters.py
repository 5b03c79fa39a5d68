"""What this replica counts by itself, and how scrapers read it (Prometheus)."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

BUCKETS = (
    *(0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.125, 0.25, 0.5),
    *(1.0, 2.5, 5.0),
)
"""Upper ends in seconds."""


class Latency:
    """How long requests take, as counts."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count a request."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def quantile(self, share: float) -> float | None:
        """Return the end of the bucket that holds a quantile; None without requests.

        Examples
        --------
        >>> latency = Latency()
        >>> latency.add(0.003)
        >>> latency.quantile(0.99)
        0.004
        """
        rank, seen = share * sum(self.counts), 0
        if not rank:
            return None
        for end, count in zip((*BUCKETS, BUCKETS[-1]), self.counts, strict=True):
            seen += count
            if seen >= rank:
                return end
        return None

    def summary(self) -> dict[str, Any]:
        """Return what the page shows."""

        def shown(share: float) -> float | None:
            end = self.quantile(share)
            return None if end is None else 1000 * end

        return {"p50_ms": shown(0.5), "p99_ms": shown(0.99), "count": sum(self.counts)}


def exposition(
    status: dict[str, Any],
    latency: Latency,
    problems: dict[int, int],
) -> str:
    """Return the metrics as text."""
    lines = [line for block in _blocks(status, latency, problems) for line in block]
    return "\n".join(lines) + "\n"


def _blocks(
    status: dict[str, Any], latency: Latency, problems: dict[int, int]
) -> Iterator[list[str]]:
    traffic, review = status["traffic"], status["review"]
    yield _block("rows_total", "counter", "Rows decided.", _rows(traffic))
    labels: Values = [({}, traffic["labels"])]
    yield _block("labels_total", "counter", "Labels counted.", labels)
    yield _block("alarms_total", "counter", "Alarms, by test.", _alarms(status))
    yield from _tests(status["watch"]["tests"])
    for name, value, what in (
        ("review_waiting", review["waiting"], "Rows that wait for a person."),
        ("review_leased", review["leased"], "Rows that a person has."),
        ("review_oldest_seconds", review["oldest_seconds"], "Age of the oldest one."),
        ("gate_version", status["gate"]["version"], "The gate that decides."),
    ):
        yield _block(name, "gauge", what, [({}, value)])
    refused: Values = [({"status": str(k)}, n) for k, n in sorted(problems.items())]
    what = "Requests refused by this replica, by status."
    yield _block("problems_total", "counter", what, refused)
    yield _histogram(latency)


Values = list[tuple[dict[str, str], float]]


def _rows(traffic: dict[str, Any]) -> Values:
    kept = traffic["accepted"]
    lost = traffic["rows"] - kept
    return [({"accepted": "true"}, kept), ({"accepted": "false"}, lost)]


def _alarms(status: dict[str, Any]) -> Values:
    """Return how often each test has alarmed; those that never have, too."""
    counts = {one["name"]: 0 for one in status["watch"]["tests"]} | status["alarmed"]
    return [({"test": name}, n) for name, n in counts.items()]


def _tests(tests: list[dict[str, Any]]) -> Iterator[list[str]]:
    for name, called, what in (
        ("evidence", "evidence", "Logarithm of the evidence against the promise."),
        ("limit", "evidence_limit", "Logarithm of the evidence that alarms."),
    ):
        values: Values = [({"test": one["name"]}, one[name]) for one in tests]
        yield _block(called, "gauge", what, values)
    alarms: Values = [
        ({"test": one["name"]}, one["alarm"] is not None) for one in tests
    ]
    what = "1 where the test of the current gate has alarmed."
    yield _block("alarm", "gauge", what, alarms)
    yield _block("estimate", "gauge", "Estimated rates, with intervals.", _ends(tests))


def _ends(tests: list[dict[str, Any]]) -> Values:
    return [
        ({"test": one["name"], "end": end}, one["estimate"][end])
        for one in tests
        if one["estimate"] is not None
        for end in ("value", "low", "high")
    ]


def _block(name: str, kind: str, what: str, values: Values) -> list[str]:
    name = f"trustdoctor_{name}"
    head = [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
    return head + [f"{name}{_labels(labels)} {value:.12g}" for labels, value in values]


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    parts = []
    for name, value in labels.items():
        safe = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        parts.append(f'{name}="{safe}"')
    return "{" + ",".join(parts) + "}"


def _histogram(latency: Latency) -> list[str]:
    name, seen = "trustdoctor_decide_seconds", 0
    out = [
        f"# HELP {name} Time from a request to its answer, by this replica.",
        f"# TYPE {name} histogram",
    ]
    counts = list(latency.counts)
    for end, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
        seen += count
        out.append(f'{name}_bucket{{le="{end}"}} {seen}')
    return [*out, f"{name}_sum {latency.total:.9g}", f"{name}_count {seen}"]
