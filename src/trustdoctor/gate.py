"""The gate: a score, a threshold, and the decision that they make."""

import json
import math
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.certificate import Certificate
from trustdoctor.errors import FileError, InputError
from trustdoctor.output import write_text
from trustdoctor.predictions import Predictions, as_scores, to_numpy
from trustdoctor.scores import find_score
from trustdoctor.topk import TopK

if TYPE_CHECKING:
    from trustdoctor.watch import Watch

SCHEMA = 1
State = Literal["threshold", "accept-all", "reject-all"]
STATES = ("threshold", "accept-all", "reject-all")
Group = int | str


class Screened(NamedTuple):
    """What a gate decided: a doubt and a decision for each row."""

    scores: NDArray[Any]
    accepted: NDArray[np.bool_]


@dataclass(frozen=True)
class GroupRule:
    """The threshold of one group of rows.

    Attributes
    ----------
    threshold, state
        As in `Gate`.
    n : int
        Its calibration rows.
    promised : bool
        Whether the certificate's promise holds for this group by itself; where it had
        too few rows it has the pooled threshold and no promise.
    """

    threshold: float
    state: State = "threshold"
    n: int = 0
    promised: bool = True


@dataclass(frozen=True)
class Margins:
    """When a second opinion stops asking.

    With s_k the doubt after k passes, K of them in all, a row is accepted early if
    s_k <= t - accept_k, rejected early if s_k > t + reject_k. That decides as R > t
    does, where R_K = s_K and R_k = clip(R_(k+1), s_k - reject_k, s_k + accept_k).

    Attributes
    ----------
    views : tuple of str
        The views that are asked after the clean input, in their order.
    accept, reject : tuple of float
        After the first pass, the second, ...; one fewer than passes.
    """

    views: tuple[str, ...]
    accept: tuple[float, ...]
    reject: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what is no sequential rule."""
        sizes = {len(self.views), len(self.accept), len(self.reject)}
        whole = [a + r for a, r in zip(self.accept, self.reject, strict=False)]
        if len(sizes) > 1 or not self.views or not all(w >= 0 for w in whole):
            message = (
                "expected a margin for accepting and one for rejecting a view, their "
                "sums not negative."
            )
            raise InputError(message)

    def sequential(self, doubts: Any) -> NDArray[Any]:
        """Return the one score (n,) that the procedure decides by, from (n, K)."""
        s = np.asarray(doubts, np.float64)
        if s.ndim != 2 or s.shape[1] != len(self.views) + 1:
            message = (
                f"expected doubts (n, {len(self.views) + 1}), got shape {s.shape}."
            )
            raise InputError(message)
        if np.isnan(s).any():
            message = "expected doubts without NaN, got one. Mend that row."
            raise InputError(message)
        result = s[:, -1]
        for k in reversed(range(len(self.views))):
            result = np.clip(result, s[:, k] - self.reject[k], s[:, k] + self.accept[k])
        return result

    def stopped(self, doubts: NDArray[Any], k: int, gate: "Gate") -> NDArray[np.bool_]:
        """Say which rows are settled after pass k + 1, whose doubts are given."""
        if k == len(self.views) or gate.state != "threshold":
            return np.ones(len(doubts), bool)
        low, high = doubts - self.reject[k], doubts + self.accept[k]
        return (high <= gate.threshold) | (low > gate.threshold)

    def moved(self, doubts: NDArray[Any], k: int, gate: "Gate") -> NDArray[Any]:
        """Return doubts moved to where their rows are settled, if they are."""
        if k == len(self.views) or gate.state != "threshold":
            return doubts
        low, high = doubts - self.reject[k], doubts + self.accept[k]
        return np.where(
            high <= gate.threshold, high, np.where(low > gate.threshold, low, doubts)
        )


@dataclass(frozen=True)
class Gate:
    """Accepts a prediction iff its doubt is at most the threshold.

    Attributes
    ----------
    threshold : float
        On the scale of the score (the log of the paper's gamma for alpha and beta).
    score : str or None
        The name in `SCORES`. A gate without one decides on scores handed to
        `accept`, but cannot score predictions by itself.
    temperature : float
        The score's temperature.
    state : str
        "threshold", or "accept-all" or "reject-all", which no threshold can say: a
        fully certain row scores -inf, and -inf > -inf is false.
    certificate : Certificate or None
        The promise, where `calibrate` made the gate.
    groups : dict of group to GroupRule
        Thresholds of their own for groups of rows; other rows get the gate's.
    grouped_by : str
        What the groups are: "predicted" for the predicted class, which `screen` finds
        by itself, or a name of the user's.
    margins : Margins or None
        For a gate of `SecondOpinion`: when views stop being asked.

    Examples
    --------
    >>> gate = Gate.from_gamma(0.5, score="alpha")
    >>> gate.accept([-3.0, 2.0])
    array([ True, False])
    """

    threshold: float
    score: str | None = None
    temperature: float = 1.0
    state: State = "threshold"
    certificate: Certificate | None = field(default=None, repr=False)
    groups: dict[Group, GroupRule] = field(default_factory=dict, repr=False)
    grouped_by: str = ""
    margins: Margins | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what no gate can be."""
        for name in ("threshold", "temperature"):
            value = getattr(self, name)
            if not isinstance(value, Real):
                message = f"expected a number as {name}, got {value!r}."
                raise InputError(message)
            object.__setattr__(self, name, float(value))
        if self.score is not None:
            find_score(self.score)
        rules: list[Gate | GroupRule] = [self, *self.groups.values()]
        for rule in rules:
            if math.isnan(rule.threshold):
                message = "expected a threshold, got NaN. Give a number."
                raise InputError(message)
            if rule.state not in STATES:
                message = (
                    f"expected a state out of {', '.join(STATES)}, got {rule.state!r}."
                )
                raise InputError(message)
        if not 0 < self.temperature < math.inf:
            message = f"expected a temperature above 0, got {self.temperature!r}."
            raise InputError(message)

    @classmethod
    def from_gamma(
        cls, gamma: float, *, score: str = "alpha", temperature: float = 1.0
    ) -> "Gate":
        """Build the paper's discriminator: reject iff the ratio exceeds gamma.

        The ratio is (1 - g) / g for alpha and (1 - p) / p for beta; for a score
        that is the log of another quantity (msp, entropy, gen) it is that quantity.

        References
        ----------
        Granese et al., DOCTOR, NeurIPS 2021, definition 2.
        """
        entry = find_score(score)
        if entry.scale == "none":
            message = (
                f"gamma bounds a ratio, and the score {score} is none. Give a "
                "threshold on the score itself: Gate(threshold, score=...), or "
                "--threshold on the command line."
            )
            raise InputError(message)
        if not 0 < gamma < math.inf:
            message = (
                f"expected gamma above 0 and finite, got {gamma!r}. 1 means even odds."
            )
            raise InputError(message)
        return cls(math.log(gamma), score=score, temperature=temperature)

    @property
    def gamma(self) -> float | None:
        """The threshold on the ratio, exp(threshold); None where there is no ratio."""
        if self.state != "threshold" or self.score is None:
            return None
        ratio = find_score(self.score).scale != "none" and self.threshold < 700
        return math.exp(self.threshold) if ratio else None

    def accept(self, scores: Any, *, groups: Any = None) -> Any:
        """Return True for each row to accept; numpy gives numpy, torch gives torch.

        Scores are compared in float64, so that a float32 score is never rounded
        onto the threshold.

        Parameters
        ----------
        scores : array (n,)
        groups : array (n,), optional
            Each row's group, for a gate with thresholds of their own for groups.
        """
        plain = as_scores(scores)  # refuses NaN
        if self.groups:
            accepted = self._accept_groups(plain, groups)
            return _like(accepted, scores)
        if hasattr(scores, "detach"):
            return _decide(scores.double() > self.threshold, self.state)
        return _decide(plain.astype(np.float64) > self.threshold, self.state)

    def _accept_groups(self, scores: NDArray[Any], groups: Any) -> NDArray[np.bool_]:
        if groups is None:
            message = (
                "this gate has thresholds for groups, and no groups were given. Pass "
                "groups=, one a row, as in its calibration."
            )
            raise InputError(message)
        given = as_groups(groups, rows=len(scores))
        kinds = {type(group) for group in self.groups}
        if {type(group) for group in given.tolist()} - kinds:
            known = ", ".join(map(repr, list(self.groups)[:5]))
            message = f"expected groups like {known}, got {given.tolist()[0]!r}."
            raise InputError(message)
        accepted = _decide(scores.astype(np.float64) > self.threshold, self.state)
        for group, rule in self.groups.items():
            own = given == group
            accepted[own] = _decide(
                scores[own].astype(float) > rule.threshold, rule.state
            )
        return np.asarray(accepted)

    def screen(
        self, predictions: Predictions | TopK, *, groups: Any = None
    ) -> Screened:
        """Score predictions and decide on each.

        Top-k answers are decided on the upper end of the score's interval, and rejected
        where what they leave out could change the prediction.

        Examples
        --------
        >>> p = Predictions.from_logits([[9.0, 0.0], [0.1, 0.0]])
        >>> Gate.from_gamma(0.5).screen(p).accepted
        array([ True, False])
        """
        if self.margins is not None:
            message = (
                "this gate asks for a second opinion, which takes the model: use "
                "SecondOpinion(model, views).screen(data, gate)."
            )
            raise InputError(message)
        if self.score is None:
            message = (
                "this gate names no score, so it cannot score predictions. Build it "
                "with score=..., or score the rows and call accept."
            )
            raise InputError(message)
        if self.groups and groups is None and self.grouped_by == "predicted":
            groups = predictions.predicted
        if isinstance(predictions, TopK):
            if self.temperature != 1:
                message = "top-k answers have no temperature but 1. Calibrate at 1."
                raise InputError(message)
            scores = predictions.doubt(self.score)
            accepted = self.accept(scores, groups=groups) & ~predictions.ambiguous
            return Screened(scores, accepted)
        scores = find_score(self.score)(predictions, temperature=self.temperature)
        return Screened(scores, self.accept(scores, groups=groups))

    def watch(self, *, level: float = 0.1) -> "Watch":
        """Start watching whether the promise still holds; see `trustdoctor.watch`."""
        from trustdoctor.watch import watch

        return watch(self, level=level)

    def __repr__(self) -> str:
        """Say what is decided, and what is promised."""
        what = self.score or "score"
        rule = {
            "threshold": f"reject iff {what} > {self.threshold:.6g}",
            "accept-all": "accept all",
            "reject-all": "reject all",
        }[self.state]
        own = f", {len(self.groups)} groups with their own" if self.groups else ""
        promised = self.certificate.promise() if self.certificate else "no certificate"
        return f"Gate({rule}{own}; {promised})"

    def save(self, path: str | Path) -> None:
        """Write the gate as JSON, whole or not at all."""
        write_text(path, self.to_json())

    def to_json(self) -> str:
        """Return the gate as it is saved."""
        groups = [
            {
                "group": group,
                "threshold": _number(rule.threshold),
                "state": rule.state,
                "n": rule.n,
                "promised": rule.promised,
            }
            for group, rule in self.groups.items()
        ]
        content = {
            "trustdoctor": "gate",
            "schema": SCHEMA,
            "score": self.score,
            "temperature": self.temperature,
            "state": self.state,
            "threshold": _number(self.threshold),
            "gamma": self.gamma,
            "groups": groups,
            "grouped_by": self.grouped_by,
            "margins": self.margins
            and {
                "views": list(self.margins.views),
                "accept": list(map(_number, self.margins.accept)),
                "reject": list(map(_number, self.margins.reject)),
            },
            "certificate": self.certificate and self.certificate.to_dict(),
        }
        return json.dumps(content, indent=2, allow_nan=False) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> "Gate":
        """Read a gate, refusing whatever is not understood."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            message = f"cannot read the gate {path}: {(error.strerror or '').lower()}."
            raise FileError(message) from error
        except (ValueError, RecursionError) as error:
            message = f"expected a gate as JSON in {path}, got something else: {error}."
            raise FileError(message) from error
        return _from_content(content, path)


def as_groups(groups: Any, *, rows: int) -> NDArray[Any]:
    """Check groups: one integer or string a row."""
    array = to_numpy(groups)
    if array.dtype == object:  # strings, or integers, that pandas holds as objects
        kinds = {type(np.asarray(g).item()) for g in array.ravel()}
        plain = {str: str, int: np.int64}.get(kinds.pop()) if len(kinds) == 1 else None
        array = array if plain is None else array.astype(plain)
    if array.shape != (rows,) or array.dtype.kind not in "iuUT":
        message = (
            f"expected groups as {rows} integers or strings, one a row, got "
            f"{array.dtype} of shape {array.shape}."
        )
        raise InputError(message)
    return array


def _decide(rejected: Any, state: State) -> Any:
    if state == "accept-all":
        return rejected | True
    if state == "reject-all":
        return rejected & False
    return ~rejected


def _like(accepted: NDArray[np.bool_], scores: Any) -> Any:
    if not hasattr(scores, "detach"):
        return accepted
    return scores.new_tensor(accepted, dtype=(scores == scores).dtype)


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


_FIELDS = {"score", "temperature", "state", "threshold", "gamma", "groups"}
_FIELDS |= {"grouped_by", "margins", "certificate"}
_GROUP_FIELDS = {"group", "threshold", "state", "n", "promised"}


def _from_content(content: Any, path: str | Path) -> Gate:
    if not isinstance(content, dict) or content.pop("trustdoctor", None) != "gate":
        message = f"{path} is JSON, but no gate of trustdoctor. Name another file."
        raise FileError(message)
    schema = content.pop("schema", None)
    if schema != SCHEMA:
        message = (
            f"expected a gate of schema {SCHEMA} in {path}, got {schema!r}. "
            "Use the version of trustdoctor that wrote it."
        )
        raise FileError(message)
    content.setdefault("margins", None)  # gates were saved before there were any
    try:
        _check_fields(content, _FIELDS)
        gamma = content.pop("gamma")
        certificate = content.pop("certificate")
        gate = Gate(
            _read_number(content.pop("threshold")),
            score=content["score"],
            temperature=_read_number(content["temperature"]),
            state=content["state"],
            certificate=None
            if certificate is None
            else Certificate.from_dict(certificate),
            groups=dict(map(_read_group, _read_list(content["groups"]))),
            grouped_by=str(content["grouped_by"]),
            margins=_read_margins(content["margins"]),
        )
    except (InputError, FileError, TypeError, OverflowError) as error:
        message = f"the gate in {path} is not valid: {error}"
        raise FileError(message) from error
    if gamma != gate.gamma:
        message = f"the gate in {path} is not valid: its gamma is not exp(threshold)."
        raise FileError(message)
    return gate


def _read_margins(content: Any) -> Margins | None:
    if content is None:
        return None
    _check_fields(content, {"views", "accept", "reject"})
    views = tuple(map(str, _read_list(content["views"])))
    ends = (
        tuple(map(_read_number, _read_list(content[n]))) for n in ("accept", "reject")
    )
    return Margins(views, *ends)


def _read_group(content: Any) -> tuple[Group, GroupRule]:
    _check_fields(content, _GROUP_FIELDS)
    group, n, promised = content["group"], content["n"], content["promised"]
    if (
        type(group) not in (int, str)
        or type(n) is not int
        or type(promised) is not bool
    ):
        message = f"a group is not as expected: {content!r}."
        raise FileError(message)
    threshold = _read_number(content["threshold"])
    return group, GroupRule(threshold, content["state"], n, promised)


def _check_fields(content: Any, names: set[str]) -> None:
    if not isinstance(content, dict) or set(content) != names:
        odd = set(content) ^ names if isinstance(content, dict) else {str(content)}
        message = f"it lacks or adds: {', '.join(sorted(map(str, odd)))}."
        raise FileError(message)


def _read_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    message = f"expected a list of groups, got {value!r}."
    raise FileError(message)


def _read_number(value: Any) -> float:
    if value in ("inf", "-inf") or type(value) in (int, float):
        return float(value)
    message = f"expected numbers, got {value!r}."
    raise FileError(message)
