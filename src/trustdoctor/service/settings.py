"""The settings of a service, which stay as they are while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PORT = 8571
DAY = 86400.0


@dataclass(frozen=True)
class Limits:
    """Limits of a request.

    Attributes
    ----------
    body : int
        Bytes of a request.
    rows, labels : int
        In one request.
    classes, features : int
        In one row.
    payload : int
        Bytes of one row's payload.
    name : int
        Characters of an id, a group, a label.
    patience : float
        Seconds in which a request must have arrived.
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
        The rates at which rows are drawn for review, "rejected" and "accepted"; one
        that is missing stays as it is in the store.
    level : float
        The probability of a false alarm of each gate's watch.
    deadline : float or None
        Seconds that the watch waits for the label of a drawn row.
    label_noise : float, optional
        The share of labels that may be wrong, in watches and new gates; by default what
        the gate was calibrated with.
    keep, keep_payloads : float or None
        Seconds after which rows, and payloads, are deleted; None: never.
    webhook, webhook_secret : str or None
        Where alarms are sent, and the secret that signs them.
    fast : bool
        Whether to answer before the disk has the answer.
    watch_interval : float
        Seconds between steps of the watch.
    save_interval : float
        Seconds between full states of the watch in the store.
    limits : Limits
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
    watch_interval: float = 1.0
    save_interval: float = 60.0
    limits: Limits = field(default_factory=Limits)
