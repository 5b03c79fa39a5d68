"""The gate: a score, a threshold, and the decision that they make."""

import math
import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from trustdoctor.arrays import as_groups, as_real, as_scores
from trustdoctor.errors import InputError
from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.classes import (
    Classes,
    check_classes,
    check_decisions,
)
from trustdoctor.gates.groups import (
    PREDICTED,
    Group,
    GroupThreshold,
    State,
    accepted_rows,
    as_kind_of,
    check_threshold,
    predicted_groups,
)
from trustdoctor.gates.margins import Margins
from trustdoctor.gates.outcome import Screened
from trustdoctor.gates.shortlists import Shortlist
from trustdoctor.metrics import html_facts
from trustdoctor.predictions import Answers, Predictions
from trustdoctor.scores import (
    FittedScore,
    Score,
    find_score,
    is_registered,
)

if TYPE_CHECKING:
    from trustdoctor.watch import Watch


SHOWN_GROUPS = 4
"""Groups that a gate names when it is printed."""


@dataclass(frozen=True)
class Gate:
    """Accepts a prediction iff its doubt is at most the threshold.

    A gate never changes, so threads may share one.

    Attributes
    ----------
    threshold : float
        On the scale of the score (the log of the paper's gamma for alpha and beta).
    score : Score or None
        The score, ready to call; its name in `SCORES` may be given. A gate without one
        decides on scores handed to `accept`, but cannot score predictions by itself.
    state : str
        "threshold", or "accept-all" or "reject-all", which no threshold can say: a
        fully certain row scores -inf, and -inf > -inf is false.
    certificate : Certificate or None
        The promise, if `calibrate` made the gate.
    groups : dict of group to GroupThreshold
        Thresholds for groups of rows; rows of other groups get the gate's.
    grouped_by : str
        What the groups are: "predicted" for the predicted class, which `screen` finds
        by itself, or what the user calls them.
    margins : Margins or None
        For a gate of `SecondOpinion`: when views stop being asked.
    on_confidences : bool
        Whether it was calibrated on confidences from 0 to 1: others are then refused.
    classes : int, tuple of str, or None
        How many classes the calibration rows have, or their names: rows of others are
        then refused.
    shortlist : Shortlist or None
        Which classes a rejected row may be, if `trustdoctor.shortlist` set it.
    decided_by : str
        What made the decisions of its calibration, if that is the user's system and
        not argmax: "cutoff 0.3" or "predicted". Rows decided otherwise are refused.

    Examples
    --------
    >>> gate = Gate.from_gamma(0.5, score="alpha")
    >>> gate.accept([-3.0, 2.0])
    array([ True, False])
    """

    threshold: float
    score: Score | None = None
    state: State = "threshold"
    certificate: Certificate | None = field(default=None, repr=False)
    groups: dict[Group, GroupThreshold] = field(default_factory=dict, repr=False)
    grouped_by: str = ""
    margins: Margins | None = field(default=None, repr=False)
    on_confidences: bool = False
    classes: Classes | None = field(default=None, repr=False)
    shortlist: Shortlist | None = field(default=None, repr=False)
    decided_by: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Refuse what no gate can be."""
        object.__setattr__(self, "threshold", as_real(self.threshold, "threshold"))
        if self.score is not None:
            score = find_score(self.score)
            if not is_registered(score):
                message = (
                    f"the score {score.name} is not in the registry, so a gate cannot "
                    "name it. Register it first: trustdoctor.register."
                )
                raise InputError(message)
            object.__setattr__(self, "score", score)
        check_threshold(self.threshold, self.state)
        if {type(group) for group in self.groups} not in (set(), {int}, {str}):
            message = "expected groups that are all integers, or all strings."
            raise InputError(message)
        if self.margins is not None and (self.groups or self.shortlist is not None):
            excluded = "groups" if self.groups else "shortlist"
            message = f"a gate with margins has no {excluded}. Leave one of them out."
            raise InputError(message)

    def __eq__(self, other: object) -> bool:
        """Tell whether gates decide and promise the same, fitted scores included."""
        if not isinstance(other, Gate):
            return NotImplemented
        return self._comparable() == other._comparable()

    def __hash__(self) -> int:
        """Return the same for gates that are equal."""
        thresholds = frozenset(self.groups.items())
        return hash((self.threshold, self.score_name, self.state, thresholds))

    def _comparable(self) -> list[Any]:
        """Return the fields, and what tells the score from others.

        A fitted score's own equality may compare arrays, and a formula with parameters
        is another function each time that its name is read.
        """
        digest = self.score.digest if isinstance(self.score, FittedScore) else None
        values = [getattr(self, f.name) for f in fields(self) if f.name != "score"]
        return [self.score_name, self.temperature, digest, *values]

    @property
    def score_name(self) -> str | None:
        """The name of the score; None for a gate without one."""
        return None if self.score is None else self.score.name

    @property
    def temperature(self) -> float:
        """The temperature of the score; 1 for a gate without one."""
        return 1.0 if self.score is None else self.score.temperature

    def require_score(self) -> Score:
        """Return the score, or refuse to score predictions without one."""
        if self.score is None:
            message = (
                "this gate names no score, so it cannot score predictions. Calibrate "
                "one on predictions, or score the rows and call accept."
            )
            raise InputError(message)
        return self.score

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

        Examples
        --------
        >>> Gate.from_gamma(1.0).threshold
        0.0
        """
        ratio_score = find_score(score, temperature=temperature)
        if ratio_score.scale == "none":
            message = (
                f"gamma bounds a ratio, and the score {score} is not one. Give a "
                "threshold on the score itself: Gate(threshold, score=...), or "
                "--threshold on the command line."
            )
            raise InputError(message)
        ratio = as_real(gamma, "gamma")
        if not 0 < ratio < math.inf:
            message = (
                f"expected gamma above 0 and finite, got {ratio!r}. 1 means even odds."
            )
            raise InputError(message)
        return cls(math.log(ratio), ratio_score)

    @property
    def gamma(self) -> float | None:
        """The threshold on the ratio, exp(threshold); None where there is no ratio."""
        if self.state != "threshold" or self.score is None:
            return None
        ratio = self.score.scale != "none" and self.threshold < 700
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
        checked = as_scores(scores)  # refuses NaN
        if self.groups:
            return as_kind_of(self._accept_groups(checked, groups), scores)
        is_tensor = hasattr(scores, "detach")
        doubts = scores.double() if is_tensor else checked.astype(np.float64)
        return accepted_rows(doubts, self.threshold, self.state)

    def _accept_groups(self, scores: NDArray[Any], groups: Any) -> NDArray[np.bool_]:
        if groups is None:
            message = (
                f"this gate has thresholds for groups ({self.grouped_by}), and no "
                "groups were given. Pass groups=, one per row, as in its calibration; "
                "on the command line --groups NAME."
            )
            raise InputError(message)
        row_groups = as_groups(groups, rows=len(scores))
        kinds = {type(group) for group in self.groups}
        if {type(group) for group in row_groups[:1].tolist()} - kinds:
            examples = ", ".join(map(repr, list(self.groups)[:5]))
            message = (
                f"expected groups like {examples}, got {row_groups.tolist()[0]!r}."
            )
            raise InputError(message)
        doubts = scores.astype(np.float64)
        accepted = accepted_rows(doubts, self.threshold, self.state)
        for group, rule in self.groups.items():
            is_member = row_groups == group
            accepted[is_member] = accepted_rows(
                doubts[is_member], rule.threshold, rule.state
            )
        return np.asarray(accepted)

    def screen(
        self,
        rows: Any,
        *,
        kind: Literal["logits", "probs"] | None = None,
        groups: Any = None,
    ) -> Screened:
        """Score rows and decide on each.

        Top-k answers are decided on the upper end of the score's interval, and rejected
        where what they leave out could change the prediction.

        Parameters
        ----------
        rows : Predictions, or array (n, C)
        kind : str
            What an array holds: "logits" or "probs".
        groups : array (n,), optional
            For a gate with groups; by default the predictions' own.

        Examples
        --------
        >>> gate = Gate.from_gamma(0.5)
        >>> screened = gate.screen([[9.0, 0.0], [0.1, 0.0]], kind="logits")
        >>> screened.accepted, screened.predicted
        (array([ True, False]), array([0, 0]))
        """
        if self.margins is not None:
            message = (
                "this gate asks for a second opinion, which takes the model: use "
                "SecondOpinion(model, views).screen(data, gate)."
            )
            raise InputError(message)
        p = as_predictions(rows, kind)
        return self.decide(self.doubts(p), p, groups=groups)

    def doubts(self, predictions: Predictions) -> Any:
        """Return the score of each row that the gate decides by."""
        check_decisions(self, predictions.decided_by)
        doubts = self.require_score()(predictions)
        if self.on_confidences and len(predictions) and not on_confidences(predictions):
            message = (
                "expected confidences from 0 to 1, as in the gate's calibration, "
                "got others. Divide percentages by 100 (--percent)."
            )
            raise InputError(message)
        return doubts

    def decide(
        self, scores: Any, predictions: Predictions, *, groups: Any = None
    ) -> Screened:
        """Decide on rows whose doubts are known, as `screen` does."""
        check_classes(self, predictions)
        if self.groups and groups is None:
            groups = self.groups_of(predictions)
        accepted = self.accept(scores, groups=groups)
        if predictions.always_rejected is not None:
            accepted = accepted & ~predictions.always_rejected
        lists = None
        if self.shortlist is not None:
            lists = self.shortlist.rejected_sets(predictions, accepted, groups)
        predicted = predictions.predicted_names
        if predicted is None:
            predicted = np.full(len(predictions), None)
        return Screened(
            scores, accepted, predicted, ids=predictions.ids, shortlist=lists
        )

    def groups_of(self, predictions: Predictions) -> Any:
        """Return the group of each row, as the gate names them; None if unknown."""
        if self.grouped_by == PREDICTED:
            numbered = any(type(group) is int for group in self.groups)
            if numbered and predictions.class_names is not None:
                message = (
                    "this gate has a threshold for each class by its number, and these "
                    "classes have names. Calibrate it on rows whose classes have names."
                )
                raise InputError(message)
            return predicted_groups(predictions)
        return predictions.groups

    def rejects(self, threshold: float) -> str:
        """Say which rows a threshold rejects: alpha > -2, or confidence < 0.9.

        Examples
        --------
        >>> Gate(-0.9, score="confidence").rejects(-0.9)
        'confidence < 0.9'
        """
        if self.score_name == "confidence":  # its doubt is minus the confidence
            return f"confidence < {_shown(0 - threshold)}"
        return f"{self.score_name or 'score'} > {_shown(threshold)}"

    def with_notes(self, *notes: str) -> "Gate":
        """Return the gate, with more notes in its certificate."""
        assert self.certificate is not None
        if not notes:
            return self
        notes = (*self.certificate.notes, *notes)
        return replace(self, certificate=structs.replace(self.certificate, notes=notes))

    def watch(self, **options: Any) -> "Watch":
        """Start watching whether the promise still holds; options of `Watch.start`."""
        from trustdoctor.watch import Watch

        return Watch.start(self, **options)

    def __repr__(self) -> str:
        """Say what is decided and promised, and why if the gate is trivial."""
        c = self.certificate
        promise = c.promise() if c else "no certificate"
        promise += ", in each group" if c and self.groups and c.guarantee else ""
        chance = "; careful: it passed by chance" if c and c.passed_by_chance else ""
        return f"Gate({self._decision_words()}; {promise}{chance})"

    def _repr_html_(self) -> str:
        """Show the decision, the promise and the notes in a notebook."""
        facts = {"decision": self._decision_words()}
        c = self.certificate
        if c is not None:
            facts |= {"promise": c.promise(), "calibrated on": f"{c.n:,} rows"}
            facts |= {f"note {i}": note for i, note in enumerate(c.notes, start=1)}
        return html_facts(facts)

    def _decision_words(self) -> str:
        """Say what is rejected, and why if the gate is trivial."""
        c = self.certificate
        if self.groups:
            return self._group_words()
        rule = f"reject iff {self.rejects(self.threshold)}"
        if self.state != "threshold":
            why = f", because {c.trivial}" if c and c.trivial else ""
            rule = f"{self.state.replace('-', ' ')}{why}"
        return rule

    def _group_words(self) -> str:
        """Say what is rejected of the first groups, and of others."""
        shown = []
        for name, group in list(self.groups.items())[:SHOWN_GROUPS]:
            rule = f"reject iff {self.rejects(group.threshold)}"
            if group.state != "threshold":
                rule = group.state.replace("-", " ")
            promise = "" if group.promised else " (no promise)"
            shown.append(f"{name}: {rule}{promise}")
        more = len(self.groups) - len(shown)
        rest = [f"and {more} more"] if more > 0 else []
        return f"by {self.grouped_by}: {'; '.join([*shown, *rest])}"

    def save(self, path: str | Path) -> None:
        """Write the gate as JSON, whole or not at all.

        A fitted score that is large goes into a file beside it.
        """
        from trustdoctor.gates.gate_file import save_gate

        save_gate(self, path)

    def to_json(self) -> str:
        """Return the gate as it is saved, a fitted score included."""
        from trustdoctor.gates.gate_file import to_json

        return to_json(self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Gate":
        """Read a gate, refusing whatever is not understood."""
        from trustdoctor.gates.gate_file import load_gate

        return load_gate(path)

    @classmethod
    def from_json(cls, text: str) -> "Gate":
        """Read what `to_json` returned, refusing whatever is not understood.

        Examples
        --------
        >>> gate = Gate(-1.0, score="beta")
        >>> Gate.from_json(gate.to_json()) == gate
        True
        """
        from trustdoctor.gates.gate_file import from_json

        return from_json(text)


def _shown(threshold: float) -> str:
    """Show a threshold in six digits, or in all where those would be a whole number."""
    short = f"{threshold:.6g}"
    return short if "." in short or float(short) == threshold else repr(threshold)


def on_confidences(predictions: Predictions) -> bool:
    """Tell whether predictions are answers with confidences from 0 to 1."""
    if not isinstance(predictions, Answers) or predictions.signal != "confidence":
        return False
    return predictions.confidence is not None


def as_predictions(rows: Any, kind: str | None) -> Predictions:
    """Return predictions as they are, or an array as what `kind` says it is."""
    if isinstance(rows, Predictions):
        if kind is not None:
            message = "predictions know what they hold. Leave kind out."
            raise InputError(message)
        return rows
    if kind == "logits":
        return Predictions.from_logits(rows)
    if kind == "probs":
        return Predictions.from_probs(rows)
    message = (
        f"expected Predictions, or an array with kind='logits' or kind='probs', got "
        f"{type(rows).__name__} with kind={kind!r}. Nothing guesses what numbers mean."
    )
    raise InputError(message)
