"""The metrics that Prometheus scrapes, and the latency that this replica counts."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

BUCKETS = (
    *(0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.125, 0.25, 0.5),
    *(1.0, 2.5, 5.0),
)
"""Upper ends in seconds."""

Samples = list[tuple[dict[str, str], float]]
"""Labels and values of one metric."""


class Latency:
    """A histogram of the time that decisions take, in seconds."""

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
        rank, cumulative = share * sum(self.counts), 0
        if not rank:
            return None
        for end, count in zip((*BUCKETS, BUCKETS[-1]), self.counts, strict=True):
            cumulative += count
            if cumulative >= rank:
                return end
        return None

    def summary(self) -> dict[str, Any]:
        """Return what the page shows."""

        def milliseconds(share: float) -> float | None:
            seconds = self.quantile(share)
            return None if seconds is None else 1000 * seconds

        return {
            "p50_ms": milliseconds(0.5),
            "p99_ms": milliseconds(0.99),
            "count": sum(self.counts),
        }


def exposition(
    status: dict[str, Any],
    latency: Latency,
    problems: dict[int, int],
) -> str:
    """Return the metrics as text, in Prometheus's format."""
    metrics = _metrics(status, latency, problems)
    return "\n".join(line for metric in metrics for line in metric) + "\n"


def _metrics(
    status: dict[str, Any], latency: Latency, problems: dict[int, int]
) -> Iterator[list[str]]:
    """Yield the lines of each metric."""
    traffic, review = status["traffic"], status["review"]
    accepted = traffic["accepted"]
    rows: Samples = [
        ({"accepted": "true"}, accepted),
        ({"accepted": "false"}, traffic["rows"] - accepted),
    ]
    yield _lines("rows_total", "counter", "Rows decided.", rows)
    labels: Samples = [({}, traffic["labels"])]
    yield _lines("labels_total", "counter", "Labels counted.", labels)
    yield _lines("alarms_total", "counter", "Alarms, by test.", _alarms(status))
    yield from _test_metrics(status["watch"]["tests"])
    for name, value, text in (
        ("review_waiting", review["waiting"], "Rows that wait for a person."),
        ("review_leased", review["leased"], "Rows that a person has."),
        ("review_oldest_seconds", review["oldest_seconds"], "Age of the oldest one."),
        ("gate_version", status["gate"]["version"], "The gate that decides."),
    ):
        yield _lines(name, "gauge", text, [({}, value)])
    refused: Samples = [({"status": str(k)}, n) for k, n in sorted(problems.items())]
    text = "Requests refused by this replica, by status."
    yield _lines("problems_total", "counter", text, refused)
    yield _histogram(latency)


def _alarms(status: dict[str, Any]) -> Samples:
    """Return how often each test has alarmed; those that never have, too."""
    never = {test["name"]: 0 for test in status["watch"]["tests"]}
    return [({"test": name}, n) for name, n in (never | status["alarmed"]).items()]


def _test_metrics(tests: list[dict[str, Any]]) -> Iterator[list[str]]:
    for field, name, text in (
        ("evidence", "evidence", "Logarithm of the evidence against the promise."),
        ("limit", "evidence_limit", "Logarithm of the evidence that alarms."),
    ):
        values: Samples = [({"test": test["name"]}, test[field]) for test in tests]
        yield _lines(name, "gauge", text, values)
    alarms: Samples = [
        ({"test": test["name"]}, test["alarm"] is not None) for test in tests
    ]
    text = "1 where the test of the current gate has alarmed."
    yield _lines("alarm", "gauge", text, alarms)
    estimates: Samples = [
        ({"test": test["name"], "end": end}, test["estimate"][end])
        for test in tests
        if test["estimate"] is not None
        for end in ("value", "low", "high")
    ]
    text = "Estimated rates, with intervals."
    yield _lines("estimate", "gauge", text, estimates)


def _lines(name: str, kind: str, text: str, samples: Samples) -> list[str]:
    name = f"trustdoctor_{name}"
    header = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    return header + [
        f"{name}{_label_text(labels)} {value:.12g}" for labels, value in samples
    ]


def _label_text(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    pairs = []
    for name, value in labels.items():
        escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}"


def _histogram(latency: Latency) -> list[str]:
    name, cumulative = "trustdoctor_decide_seconds", 0
    lines = [
        f"# HELP {name} Time from a request to its answer, by this replica.",
        f"# TYPE {name} histogram",
    ]
    # A copy: requests are counted meanwhile, and the sum must be that of the buckets.
    counts = list(latency.counts)
    for end, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
        cumulative += count
        lines.append(f'{name}_bucket{{le="{end}"}} {cumulative}')
    lines += [f"{name}_sum {latency.total:.9g}", f"{name}_count {cumulative}"]
    return lines
