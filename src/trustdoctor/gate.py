"""The gate: a score, a threshold, and the decision that they make."""

import json
import math
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import FileError, InputError
from trustdoctor.output import write_text
from trustdoctor.predictions import Predictions, as_scores
from trustdoctor.scores import find_score

SCHEMA = 1
State = Literal["threshold", "accept-all", "reject-all"]
STATES = ("threshold", "accept-all", "reject-all")


class Screened(NamedTuple):
    """What a gate decided: a doubt and a decision for each row."""

    scores: NDArray[Any]
    accepted: NDArray[np.bool_]


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
        if math.isnan(self.threshold):
            message = "expected a threshold, got NaN. Give a number."
            raise InputError(message)
        if self.state not in STATES:
            message = (
                f"expected a state out of {', '.join(STATES)}, got {self.state!r}."
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

    def accept(self, scores: Any) -> Any:
        """Return True for each row to accept; numpy gives numpy, torch gives torch.

        Scores are compared in float64, so that a float32 score is never rounded
        onto the threshold.
        """
        if hasattr(scores, "detach"):
            rejected = scores.double() > self.threshold
            as_scores(scores)  # refuses NaN
        else:
            rejected = as_scores(scores).astype(np.float64) > self.threshold
        if self.state == "accept-all":
            return rejected | True
        if self.state == "reject-all":
            return rejected & False
        return ~rejected

    def screen(self, predictions: Predictions) -> Screened:
        """Score predictions and decide on each.

        Examples
        --------
        >>> p = Predictions.from_logits([[9.0, 0.0], [0.1, 0.0]])
        >>> Gate.from_gamma(0.5).screen(p).accepted
        array([ True, False])
        """
        if self.score is None:
            message = (
                "this gate names no score, so it cannot score predictions. Build it "
                "with score=..., or score the rows and call accept."
            )
            raise InputError(message)
        scores = find_score(self.score)(predictions, temperature=self.temperature)
        return Screened(scores, self.accept(scores))

    def save(self, path: str | Path) -> None:
        """Write the gate as JSON, whole or not at all."""
        content = {
            "trustdoctor": "gate",
            "schema": SCHEMA,
            "score": self.score,
            "temperature": self.temperature,
            "state": self.state,
            "threshold": self.threshold
            if math.isfinite(self.threshold)
            else str(self.threshold),
        }
        write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")

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


_FIELDS = {"score", "temperature", "state", "threshold"}


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
    if set(content) != _FIELDS:
        odd = ", ".join(sorted(set(content) ^ _FIELDS))
        message = f"the gate in {path} lacks or adds: {odd}. Save it again."
        raise FileError(message)
    threshold = content.pop("threshold")
    if threshold in ("inf", "-inf"):
        threshold = float(threshold)
    numbers = (threshold, content["temperature"])
    if not all(type(x) in (int, float) for x in numbers):
        message = f"expected numbers in the gate {path}, got {numbers}. Save it again."
        raise FileError(message)
    try:
        return Gate(float(threshold), **content)
    except (InputError, TypeError, OverflowError) as error:
        message = f"the gate in {path} is not valid: {error}"
        raise FileError(message) from error
