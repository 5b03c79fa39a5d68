"""What the service was told at its start."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PORT = 8571
DAY = 86400.0


@dataclass(frozen=True)
class Limits:
    """What a request may have at most.

    Attributes
    ----------
    body : int
        Bytes of a request.
    rows, labels : int
        Of one.
    classes, features : int
        Of one row.
    payload : int
        Bytes of one row's payload.
    name : int
        Characters of an id, a group, a label.
    patience : float
        Seconds in which a request has to be there.
    """

    body: int = 16 << 20
    rows: int = 20_000
    labels: int = 5_000
    classes: int = 100_000
    features: int = 100_000
    payload: int = 1 << 20
    name: int = 200
    patience: float = 30.0


@dataclass(frozen=True)
class Settings:
    """The options of `trustdoctor serve`.

    Attributes
    ----------
    review : dict
        The rates at which rows are drawn for review, "rejected" and "accepted"; those
        that are not given stay as they are in the store.
    level : float
        The probability of a false alarm of each gate's watch.
    deadline : float or None
        Seconds that the label of a drawn row is waited for.
    label_noise : float, optional
        The share of labels that may be wrong, in watches and new gates; by default what
        the gate was calibrated with.
    keep, keep_payloads : float or None
        Seconds after which rows, and payloads, are deleted; None never.
    webhook, webhook_secret : str or None
        Where alarms are sent, and what they are signed with.
    fast : bool
        Whether an answer may come before the disk has what it says.
    every : float
        Seconds between steps of the watch.
    saved : float
        Seconds between full states of the watch in the store.
    """

    review: Mapping[str, float] = field(default_factory=dict)
    level: float = 0.1
    deadline: float | None = 30 * DAY
    label_noise: float | None = None
    keep: float | None = None
    keep_payloads: float | None = None
    webhook: str | None = None
    webhook_secret: str | None = field(default=None, repr=False)
    fast: bool = False
    every: float = 1.0
    saved: float = 60.0
    limits: Limits = field(default_factory=Limits)
