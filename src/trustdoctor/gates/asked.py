"""What is asked of a calibration, checked: targets, confidence, mode and method."""

from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import as_real, shown_number
from trustdoctor.errors import InputError
from trustdoctor.gates.outlook import Outlook, fails, find_sufficient_rows
from trustdoctor.gates.pairs import (
    both_cut,
    is_pair,
    pair_delta,
    pair_rule,
    pair_words,
)
from trustdoctor.gates.rules import Cut, Mode
from trustdoctor.gates.sample import Rows, Sample
from trustdoctor.gates.targets import TARGETS, Target, Terms, find_target

MANY = 100_000
"""Rows that are enough wherever any number is."""

START = 0.3
"""The coverage where the main sequence of the risk rule starts, unless it is told."""


@dataclass(frozen=True)
class Ask:
    """What is asked of a calibration."""

    target: dict[str, float]
    mode: Mode | None = None
    method: str | None = None
    confidence: float = 0.9
    min_coverage: float = START
    label_noise: float = 0.0
    choices: int = 1
    """Values fixed in advance, of which one is taken; they share the level."""

    def __post_init__(self) -> None:
        """Refuse what no rule gives."""
        for name in self.target:
            find_target(name)
        if len(self.target) != 1 and not is_pair(self.target):
            got = ", ".join(self.target) or "none"
            message = (
                f"expected one target out of {', '.join(TARGETS)}, or two: "
                f"{pair_words()}; got {got}."
            )
            raise InputError(message)
        checked = {name: find_target(name).check(v) for name, v in self.target.items()}
        object.__setattr__(self, "target", checked)
        self._check_mode()
        for one in self.targets:
            one.rule(self.method)
        for name in ("confidence", "min_coverage"):
            value = getattr(self, name)
            number = as_real(value, name)
            object.__setattr__(self, name, number)
            if not 0 < number < 1:
                message = f"expected {name} between 0 and 1, got {shown_number(value)}."
                raise InputError(message)
        noise = self.label_noise
        number = as_real(noise, "label_noise")
        object.__setattr__(self, "label_noise", number)
        if not 0 <= number < 0.5:
            message = (
                "expected label_noise from 0 to below 0.5, the share of labels that "
                f"may be wrong, got {shown_number(noise)}."
            )
            raise InputError(message)

    def _check_mode(self) -> None:
        if self.mode not in (None, "confidence", "expectation"):
            message = f"expected mode 'confidence' or 'expectation', got {self.mode!r}."
            raise InputError(message)
        name = next(iter(self.target))
        if self.mode is not None and not self.promised:
            message = f"{name} carries no promise: leave mode out."
            raise InputError(message)
        if self.mode != "expectation":
            return
        if len(self.target) == 2:
            both = " and ".join(self.target)
            message = f"{both} together have no rule in expectation. Leave mode out."
            raise InputError(message)
        if not self.targets[0].in_expectation:
            message = (
                f"there is no rule for {name} in expectation. Use mode='confidence'."
            )
            raise InputError(message)

    @property
    def targets(self) -> list[Target]:
        """The targets that are asked for."""
        return [TARGETS[name] for name in self.target]

    @property
    def promised(self) -> bool:
        """Whether all of them carry a promise."""
        return all(target.promised for target in self.targets)

    @property
    def words(self) -> str:
        """The rule, in one sentence."""
        if len(self.target) == 2:
            return pair_rule(self.targets)
        return self.targets[0].rule(self.method).words

    @property
    def how(self) -> Mode:
        """The mode, "confidence" where none was named."""
        return self.mode or "confidence"

    @property
    def delta(self) -> float:
        """The probability with which a promise may be broken."""
        return (1 - self.confidence) / self.choices

    @property
    def tested(self) -> dict[str, float]:
        """The values that labels of this noise are held to.

        Of the errors that are accepted, labels call at least 1 - noise errors. So where
        the rate of errors is above r, that of errors by their labels is above
        (1 - noise) r, whatever else the wrong labels do.
        """
        return {
            name: value * (1 - self.label_noise)
            if TARGETS[name].scaled_by_noise
            else value
            for name, value in self.target.items()
        }

    def at_once(self, rows: Sample) -> Cut:
        """Find the cut on all rows together, at the whole level."""
        return self.cut(rows, self.delta)

    def cut(self, rows: Sample, delta: float) -> Cut:
        """Find the cut on some rows."""
        two = len(self.target) == 2
        own = pair_delta(self.target, delta) if two else delta
        terms = Terms(self.how, own, self.min_coverage)
        cuts = {
            name: TARGETS[name].rule(self.method).cut(rows, value, terms)
            for name, value in self.tested.items()
        }
        return both_cut(rows, cuts) if two else next(iter(cuts.values()))

    def allows(self, rows: Sample, groups: int) -> bool:
        """Tell whether so many rows could carry a promise that so many groups share.

        It asks how many rows there are, not how they score: of FRR and TRR the correct
        ones and the errors, which their rules take as given; else all of them.
        """
        delta = self.delta / groups
        if len(self.target) == 2:
            delta = pair_delta(self.target, delta)
        terms = Terms(self.how, delta, self.min_coverage)
        every = [target for target in self.targets if target.rests_on == "all"]
        return not any(
            target.rule(self.method)
            .cut(_ideal(rows, target), self.tested[target.name], terms)
            .short
            for target in every or self.targets
        )

    def outlook(self, rows: Sample, cut: Cut) -> tuple[Outlook, ...]:
        """Say how often calibrations on such rows succeed, where this one did not."""
        drawable = rows.labelled and 0 < rows.n_errors < len(rows)
        if not (self.promised and fails(cut) and drawable):
            return ()
        return find_sufficient_rows(rows, self.at_once)


def _ideal(rows: Sample, target: Target) -> Sample:
    """Return as many rows of the kind that a target rests on, with the best scores."""
    wrong = rows.n_errors if rows.labelled else 0
    counts = {"all": len(rows), "correct": len(rows) - wrong, "errors": wrong}
    size = min(max(1, counts[target.rests_on]), MANY)
    errors = np.full(size, target.rests_on == "errors")
    return Rows(np.arange(float(size)), errors if rows.labelled else None)
