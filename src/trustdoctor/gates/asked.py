"""What is asked of a calibration, checked: targets, confidence, mode and method."""

from dataclasses import dataclass, replace
from numbers import Real

from trustdoctor.errors import InputError
from trustdoctor.gates import rules
from trustdoctor.gates.enough import enough
from trustdoctor.gates.rules import Cut, Mode
from trustdoctor.gates.sample import Sample
from trustdoctor.gates.targets import TARGETS, Target, Terms, find_target

BOTH = "Order statistics of the correct rows' and of the errors' scores bound it."
TOGETHER = {"frr", "trr"}
"""The two targets that may be asked for at once."""


@dataclass(frozen=True)
class Ask:
    """What is asked of a calibration."""

    target: dict[str, float]
    mode: Mode | None = None
    method: str | None = None
    confidence: float = 0.9
    min_coverage: float = 0.3

    def __post_init__(self) -> None:
        """Refuse what no rule gives."""
        for name in self.target:
            find_target(name)
        if len(self.target) != 1 and set(self.target) != TOGETHER:
            got = ", ".join(self.target) or "none"
            message = (
                f"expected one target out of {', '.join(TARGETS)}, or frr with trr; "
                f"got {got}."
            )
            raise InputError(message)
        checked = {name: find_target(name).check(v) for name, v in self.target.items()}
        object.__setattr__(self, "target", checked)
        self._check_mode()
        for one in self.targets:
            one.rule(self.method)
        for name in ("confidence", "min_coverage"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 0 < float(value) < 1):
                message = f"expected {name} between 0 and 1, got {value!r}."
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
            message = (
                "frr and trr together have no rule in expectation. Leave mode out."
            )
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
            return BOTH
        return self.targets[0].rule(self.method).words

    @property
    def how(self) -> Mode:
        """The mode, "confidence" where none was named."""
        return self.mode or "confidence"

    def cut(self, rows: Sample, delta: float) -> Cut:
        """Find the cut on some rows."""
        if len(self.target) == 2:
            return rules.both_cut(rows, **self.target, mode=self.how, delta=delta)
        terms = Terms(self.how, delta, self.min_coverage)
        (value,) = self.target.values()
        return self.targets[0].rule(self.method).cut(rows, value, terms)

    def cut_and_needed(self, rows: Sample, delta: float) -> Cut:
        """Find the cut; where rows are too few for one, how many would be enough."""
        found = self.cut(rows, delta)
        if not (found.short or found.broken):
            return found
        needed = enough(
            rows,
            lambda more: self.cut(more, delta).state != found.state,
            first=found.needed,
        )
        why = found.trivial
        if found.short and needed is None and 0 < rows.n_errors < len(rows):
            why += "; more rows like these would not help"
        return replace(found, needed=needed, trivial=why)
