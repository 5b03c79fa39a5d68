"""What the service answers, field by field: `openapi` describes these types.

Nothing builds them. The tests compare them with what every route really sends.
"""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta, Struct

from trustdoctor.service.decisions import RowDecision
from trustdoctor.service.labels import LabelResult
from trustdoctor.service.schemas import Name

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""UTC, with milliseconds."""

Doubt = Annotated[float | str, Meta(description='A number, or "inf" or "-inf".')]
Interval = Annotated[
    list[float], Meta(description="The value, and its 95% interval: low, high.")
]
Classes = Annotated[
    list[str] | int | None,
    Meta(description="All classes by name, how many there are, or null: unknown."),
]
Predicted = Annotated[
    Name | None, Meta(description="The class by name if the gate has names.")
]


class DecisionRows(TypedDict):
    """The decisions on many rows, in their order."""

    rows: list[RowDecision]


class LabelResults(TypedDict):
    """What became of each label, and how many of each kind there were."""

    counted: int
    repeated: int
    corrected: int
    kept: Annotated[int, Meta(description="Stored, but not counted in the watch.")]
    refused: int
    rows: list[LabelResult]


class LeasedRow(TypedDict):
    """A row that waits for one reviewer's answer."""

    id: str
    lease: Annotated[str, Meta(description="To send with the answer.")]
    until: Annotated[Time, Meta(description="When the lease ends.")]
    kind: Annotated[
        Literal["rejected", "audit"],
        Meta(description="audit: an accepted row that was drawn at random."),
    ]
    doubt: Doubt
    predicted: Predicted
    shortlist: list[Name] | None
    classes: Classes
    payload: Annotated[
        dict[str, str] | None, Meta(description="text, image (a data URL) or link.")
    ]
    group: Name | None
    at: Annotated[Time, Meta(description="When the row was decided.")]
    version: int


class LeasedRows(TypedDict):
    """Rows to review; fewer than asked for, or none, if fewer wait."""

    rows: list[LeasedRow]
    waiting: Annotated[int, Meta(description="All rows in the queue.")]


class ReviewResult(TypedDict):
    """What became of a reviewer's answer."""

    id: str
    result: Literal["counted", "kept", "repeated", "corrected", "released"]


class StoredLabel(TypedDict):
    """One label of a row's history."""

    at: Time
    label: Name | None
    correct: Annotated[
        bool | None, Meta(description="null: the reviewer could not say.")
    ]
    source: Literal["labels", "review"]
    by: Annotated[str | None, Meta(description="The reviewer.")]


class StoredRow(TypedDict):
    """A decision, and the history of its labels."""

    id: str
    at: Time
    version: int
    kind: Literal["logits", "probs", "topk", "confidence", "doubt"]
    predicted: Predicted
    doubt: Doubt
    accepted: bool
    review: Annotated[bool, Meta(description="Whether it was drawn for review.")]
    group: Name | None
    shortlist: list[Name] | None
    payload: dict[str, str] | None
    labels: list[StoredLabel]


class ForgottenRow(TypedDict):
    """The id of a row that is forgotten."""

    id: str
    result: Literal["forgotten"]


class GateSummary(TypedDict):
    """What a gate decides by, and what it promises, in words."""

    score: str
    rule: str
    promise: str
    classes: Classes


class AddedGate(GateSummary):
    """A new version, which decides nothing yet."""

    version: int
    state: Literal["candidate"]


class CurrentGate(GateSummary):
    """The version that decides."""

    version: int
    since: Time


class VersionSummary(TypedDict):
    """A version of the gate, and how many rows it decided."""

    version: int
    at: Time
    origin: Literal["start", "upload", "recalibrate"]
    state: Literal["current", "shadow", "earlier", "candidate"]
    promise: str
    note: str
    rows: int
    accepted: int


class VersionList(TypedDict):
    """All versions, the newest first."""

    gates: list[VersionSummary]


class VersionChange(TypedDict):
    """The version that decides from now on, and the one before."""

    version: int
    before: int


class ShadowVersion(TypedDict):
    """The version that decides in the shadow, if any."""

    shadow: int | None


class CandidateComparison(TypedDict):
    """Rates of both gates on the same rows, each with its 95% interval."""

    current: dict[str, Interval]
    candidate: dict[str, Interval]


class Candidate(TypedDict):
    """A candidate made of reviewed rows, and the rows it rests on."""

    version: int
    since: Time | None
    rows: Annotated[int, Meta(description="Drawn for review since then.")]
    labelled: int
    kept: Annotated[int, Meta(description="A plain sample of the labelled ones.")]
    rate: Annotated[float, Meta(description="The smallest review rate.")]
    certificate: dict[str, Any] | None
    comparison: CandidateComparison
    notes: list[str]


class ShadowRisks(TypedDict):
    """The share of wrong rows among those that each gate accepts."""

    rows: Annotated[int, Meta(description="Labelled rows that both have decided.")]
    risk_current: Interval | None
    risk_shadow: Interval | None


class ShadowSummary(TypedDict):
    """How many rows the current gate and the shadow accept."""

    version: int
    rows: int
    both: int
    only_current: int
    only_shadow: int
    neither: int
    labelled: ShadowRisks | None


class Minute(TypedDict):
    """The traffic of one minute."""

    at: Time
    rows: int
    accepted: int
    drawn: Annotated[int, Meta(description="For review.")]
    labels: int
    current_rows: Annotated[int, Meta(description="Decided by the current version.")]
    current_accepted: int


class Traffic(TypedDict):
    """Counts since the store began, and of the last minutes."""

    rows: int
    accepted: int
    labels: int
    minutes: list[Minute]


class WatchEstimate(TypedDict):
    """A rate as the watch estimates it, from its `n` latest rows."""

    value: float
    low: float
    high: float
    n: int
    window: int


class WatchAlarm(TypedDict):
    """When a promise was found broken, and by what."""

    at: Time
    words: str


class WatchWords(TypedDict):
    """A test in words, as a watch prints it."""

    promise: str
    observed: Annotated[
        list[str], Meta(description="The rate now, or those of the worst groups.")
    ]
    groups: Annotated[int, Meta(description="Their number; 0 without groups.")]
    evidence: Annotated[
        str, Meta(description="How improbable this is if the promise holds.")
    ]


class WatchTest(TypedDict):
    """One promise that is watched."""

    name: str
    verdict: str
    why: str
    words: WatchWords
    estimate: WatchEstimate | None
    low: float
    high: float
    evidence: Annotated[
        Any, Meta(description="Natural logarithm; by group if the gate has groups.")
    ]
    limit: Annotated[float, Meta(description="The evidence that raises an alarm.")]
    alarm: WatchAlarm | None


class WatchStep(TypedDict):
    """The watch after a step."""

    number: int
    at: Time
    rows: int
    accepted: int
    labels: int
    waiting: int
    evidence: dict[str, Any]
    estimates: dict[str, Any]
    alarms: list[str]


class ReviewRates(TypedDict):
    """The shares of rows that are drawn for review."""

    rejected: float
    accepted: float


class WatchSummary(TypedDict):
    """How the watch of the current version stands."""

    version: int
    headline: str
    waiting: Annotated[int, Meta(description="Drawn rows without a label.")]
    upto: Annotated[int, Meta(description="The last position that is counted.")]
    label_noise: NotRequired[float]
    review: ReviewRates | None
    tests: list[WatchTest]
    history: list[WatchStep]


class RaisedAlarm(TypedDict):
    """An alarm of any version."""

    version: int
    test: str
    at: Time
    words: str
    sent: Annotated[Time | None, Meta(description="When the webhook took it.")]


class ReviewQueue(TypedDict):
    """The rows that wait for people, and what people did so far."""

    waiting: int
    leased: int
    rejected: int
    audit: int
    oldest: Time | None
    oldest_seconds: float
    answered: int
    cannot_say: int


class ReplicaSummary(TypedDict):
    """The replica that answers."""

    version: str
    started: Time
    store: Literal["sqlite", "postgresql"]
    replica: str
    durable: Annotated[bool, Meta(description="Whether answers wait for the disk.")]


class LatencySummary(TypedDict):
    """Requests to decide, as this replica answered them."""

    p50_ms: float | None
    p99_ms: float | None
    count: int


class Status(TypedDict):
    """How the service stands."""

    time: Time
    gate: CurrentGate
    shadow: ShadowSummary | None
    traffic: Traffic
    watch: WatchSummary
    alarms: list[RaisedAlarm]
    alarmed: Annotated[dict[str, int], Meta(description="Alarms by the test's name.")]
    versions: list[VersionSummary]
    review: ReviewQueue
    service: ReplicaSummary
    latency: LatencySummary


class Health(TypedDict):
    """The process answers, or its store does."""

    status: Literal["ok", "ready"]


class InferenceServer(TypedDict):
    """The server, as the Open Inference Protocol names it."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(TypedDict):
    """A tensor that a model takes or gives; -1 in its shape is any size."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(TypedDict):
    """A model, as the Open Inference Protocol describes it."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class OutputTensor(TensorMetadata):
    """A tensor with its entries in `data`, or in binary after the JSON."""

    data: NotRequired[list[Any]]
    parameters: NotRequired[dict[str, int]]


class InferenceResponse(TypedDict):
    """The outputs of the model, with `doubt` and `accepted` of each row."""

    model_name: str
    model_version: str
    id: str
    parameters: dict[str, int]
    outputs: list[OutputTensor]


class Problem(Struct):
    """What was expected, what came, and what to do (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
