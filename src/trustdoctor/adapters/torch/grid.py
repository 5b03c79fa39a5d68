"""One score at many temperatures and magnitudes, sharing what can be shared."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trustdoctor.adapters.torch.batches import Batch, Place
from trustdoctor.adapters.torch.doctor import (
    Objective,
    Traced,
    check_choice,
    check_epsilon,
    check_positive,
    doubt,
    find_objective,
    first_order,
    predictions,
    step_size,
    to_cpu,
    tracked,
)
from trustdoctor.adapters.torch.model import Forward, as_model, call, lay_out, run
from trustdoctor.atomic import replacing
from trustdoctor.errors import FileError, InputError, OutputError
from trustdoctor.evaluation import Protocols, evaluate_perturbed
from trustdoctor.metrics import ResultTable, Tabular, auroc
from trustdoctor.predictions import Predictions
from trustdoctor.progress import Tell

TEMPERATURES = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 2.0, 2.5, 3.0, 100.0, 1000.0)
"""The paper's 11 temperatures."""

EPSILONS = (
    0.0, 0.0002, 0.00025, 0.0003, 0.00035, 0.0004, 0.0006, 0.0008, 0.001, 0.0012,
    0.0014, 0.0016, 0.0018, 0.002, 0.0022, 0.0024, 0.0026, 0.0028, 0.003, 0.0032,
    0.0034, 0.0036, 0.0038, 0.004,
)  # fmt: skip
"""The paper's 24 magnitudes."""


@dataclass(frozen=True)
class Setting:
    """One cell of the grid."""

    score: str
    temperature: float
    epsilon: float


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Tabular):
    """The scores of a sweep, one column per setting.

    Attributes
    ----------
    predictions : Predictions
        The clean ones, which the scores judge.
    settings : tuple of Setting
        The columns of the two arrays.
    scores : array (n, settings)
        The doubt at the perturbed input, about the clean prediction.
    paper_scores : array (n, settings), or None
        The doubt about the perturbed prediction, which the paper judges.
    predicted : array (n, settings), or None
        What the model predicts at the perturbed input, for the paper's protocol;
        None for the first-order form, which never looks there.
    """

    predictions: Predictions
    settings: tuple[Setting, ...]
    scores: NDArray[Any]
    paper_scores: NDArray[Any] | None
    predicted: NDArray[np.int64] | None

    def __repr__(self) -> str:
        """Say how large it is."""
        n, settings = len(self.predictions), len(self.settings)
        return f"Sweep({n:,} rows, {settings} settings; table() compares them)"

    def column(self, setting: Setting) -> NDArray[Any]:
        """Return the doubts of one setting."""
        return np.asarray(self.scores[:, self._column_number(setting)])

    def _column_number(self, setting: Setting) -> int:
        if setting not in self.settings:
            settings = ", ".join(map(str, self.settings[:3]))
            message = (
                f"expected one of {len(self.settings)} settings ({settings}, ...), got "
                f"{setting}. `settings` lists them."
            )
            raise InputError(message)
        return self.settings.index(setting)

    def table(
        self, chosen: Setting | None = None, *, choose_on: slice | None = None
    ) -> ResultTable:
        """Return all settings under both protocols, the best setting marked.

        Parameters
        ----------
        chosen : Setting, optional
            The setting to mark; by default that of the highest AUROC as deployed.
        choose_on : slice, optional
            Rows that choose the marked setting; the table is then of the other rows.
            Without it the mark is optimistic: the rows that judge chose it.
        """
        labels = self.predictions.require_labels("a sweep's evaluation")
        judging = np.ones(len(labels), bool)
        if choose_on is not None:
            judging[choose_on] = False
        if chosen is None:
            errors = self.predictions.errors
            rows = judging if choose_on is None else ~judging
            areas = [auroc(column[rows], errors[rows]) for column in self.scores.T]
            chosen = self.settings[int(np.argmax(areas))]
        self._column_number(chosen)
        columns = {
            "chosen": "chosen",
            "score": "score",
            "temperature": "T",
            "epsilon": "magnitude",
            "auroc": "AUROC",
            "frr_at_trr": "FRR@95TRR",
            "paper_auroc": "AUROC, paper",
            "paper_frr_at_trr": "FRR@95TRR, paper",
        }
        judged = self._rows(judging)
        rows_of_table = []
        for setting in self.settings:
            protocols = judged.evaluate(setting)
            cells: dict[str, Any] = {
                "chosen": "*" if setting == chosen else "",
                "score": setting.score,
                "temperature": f"{setting.temperature:g}",
                "epsilon": f"{setting.epsilon:g}",
            }
            for prefix, protocol in (
                ("", protocols.deployed),
                ("paper_", protocols.paper),
            ):
                for name in ("auroc", "frr_at_trr"):
                    metrics = None if protocol is None else protocol.metrics
                    cells[prefix + name] = None if metrics is None else metrics[name]
            rows_of_table.append(cells)
        return ResultTable(columns, rows_of_table)

    def _rows(self, rows: NDArray[np.bool_]) -> "Sweep":
        """Return the same for some of the rows."""
        return Sweep(
            self.predictions[rows],
            self.settings,
            self.scores[rows],
            None if self.paper_scores is None else self.paper_scores[rows],
            None if self.predicted is None else self.predicted[rows],
        )

    def evaluate(self, setting: Setting, **options: Any) -> Protocols:
        """Evaluate one setting under both protocols, as `evaluate_perturbed` does."""
        at = self._column_number(setting)
        labels = self.predictions.require_labels("a sweep's evaluation")
        errors = self.predictions.errors
        if self.predicted is None or self.paper_scores is None:
            return evaluate_perturbed(self.scores[:, at], errors, **options)
        moved = self.predicted[:, at] != labels
        return evaluate_perturbed(
            self.scores[:, at], errors, moved, self.paper_scores[:, at], **options
        )


@dataclass(frozen=True, eq=False)
class _Plan:
    """The settings and options that all batches share."""

    model: nn.Module
    objectives: tuple[Objective, ...]
    temperatures: tuple[float, ...]
    epsilons: tuple[float, ...]
    scale: Any
    order: int
    forward: Forward | None
    perturb: Place | None

    def settings(self) -> Iterator[Setting]:
        for objective in self.objectives:
            for temperature in self.temperatures:
                for epsilon in self.epsilons:
                    yield Setting(objective.name, temperature, epsilon)


def sweep(  # noqa: PLR0913 - options, by keyword only
    model: Any,
    data: Any,
    *,
    scores: Sequence[str | Objective] = ("alpha", "beta", "odin"),
    temperatures: Sequence[float] = TEMPERATURES,
    epsilons: Sequence[float] = EPSILONS,
    scale: Any = None,
    order: Literal[1, 2] = 2,
    batch_size: int = 256,
    device: Any = None,
    forward: Forward | None = None,
    perturb: Place | None = None,
    inputs: Any = None,
    labels: Place | None = None,
    labelled: bool | None = None,
    checkpoint: str | Path | None = None,
    quiet: bool = False,
    progress: Tell | None = None,
) -> Sweep:
    """Score data at every temperature and magnitude; by default on the paper's grid.

    A batch goes through the model once for its clean logits; each score and
    temperature takes one gradient from that pass; each magnitude then costs one
    more pass, or none with order=1.

    Parameters
    ----------
    checkpoint : path, optional
        A folder that takes one file per batch. A sweep that was stopped goes on from
        there; files of other data, settings or weights are refused.
    progress : callable, optional
        Told the share of the work done and what comes next, in place of a bar.
    model, data, scale, order, batch_size, device, forward, perturb, quiet
        As in `Doctor`; `inputs`, `labels` and `labelled` as well.

    Returns
    -------
    Sweep
    """
    plan = _Plan(
        as_model(model),
        tuple(find_objective(score) for score in scores),
        tuple(check_positive("temperature", t) for t in temperatures),
        tuple(check_epsilon(e) for e in epsilons),
        scale,
        check_choice("order", order, (1, 2)),
        forward,
        perturb,
    )
    settings = tuple(plan.settings())
    store = _Checkpoint(checkpoint, plan, settings)
    results = run(
        plan.model,
        data,
        store.work,
        layout=lay_out(
            plan.model, forward, inputs=inputs, labels=labels, labelled=labelled
        ),
        batch_size=batch_size,
        device=device,
        quiet=quiet,
        progress=progress,
    )
    return _join_batches(results, settings, order)


def _join_batches(
    results: list[Any], settings: tuple[Setting, ...], order: int
) -> Sweep:
    """Join the results of all batches."""
    arrays_by_batch, labels = zip(*results, strict=True)

    def joined(name: str) -> Any:
        return np.concatenate([arrays[name] for arrays in arrays_by_batch])

    return Sweep(
        predictions([arrays["logits"] for arrays in arrays_by_batch], labels),
        settings,
        joined("scores"),
        joined("paper_scores") if order == 2 else None,
        joined("predicted") if order == 2 else None,
    )


def _sweep_batch(plan: _Plan, batch: Batch) -> dict[str, NDArray[Any]]:
    columns: list[Tensor] = []
    paper: list[Tensor] = []
    classes: list[Tensor] = []
    with _clean_pass(plan, batch) as traced:
        clean = traced.logits.detach()
        for objective in plan.objectives:
            for temperature in plan.temperatures:
                for score, moved in _magnitudes(plan, traced, objective, temperature):
                    logits = clean if moved is None else moved
                    columns.append(score)
                    classes.append(logits.argmax(1))
                    paper.append(doubt(objective, logits, temperature))
    out = {"logits": clean, "scores": torch.stack(columns, 1)}
    if plan.order == 2:
        out["predicted"] = torch.stack(classes, 1)
        out["paper_scores"] = torch.stack(paper, 1)
    return {name: to_cpu(tensor).numpy() for name, tensor in out.items()}


@contextmanager
def _clean_pass(plan: _Plan, batch: Batch) -> Iterator[Any]:
    """Run the model once, for its gradients if any magnitude needs them."""
    if any(plan.epsilons):
        with tracked(plan.model, batch, plan.forward, plan.perturb) as traced:
            yield traced
    else:
        with torch.no_grad():
            yield SimpleNamespace(logits=call(plan.model, batch, plan.forward))


def _magnitudes(
    plan: _Plan, traced: Traced, objective: Objective, temperature: float
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield doubt and perturbed logits for each epsilon, from one gradient."""
    clean = doubt(objective, traced.logits, temperature)
    predicted = traced.logits.argmax(1)
    gradient = None
    if any(plan.epsilons):
        gradient = traced.gradient(clean, keep=True)
    clean = clean.detach()
    # The step is along the sign, so one gradient serves all magnitudes.
    for epsilon in plan.epsilons:
        if epsilon == 0 or gradient is None:
            yield clean, None
            continue
        size = objective.perturbation_sign * step_size(epsilon, plan.scale, gradient)
        if plan.order == 1:
            yield clean + first_order(size, gradient), None
        else:
            logits = traced.logits_at(size * gradient.sign())
            yield doubt(objective, logits, temperature, predicted), logits


class _Checkpoint:
    """The checkpoint folder; without one nothing is kept."""

    def __init__(
        self, folder: str | Path | None, plan: _Plan, settings: tuple[Setting, ...]
    ) -> None:
        if not settings:
            message = "expected at least one score, temperature and epsilon."
            raise InputError(message)
        self.plan = plan
        self.folder = None if folder is None else Path(folder)
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"cannot make the folder {self.folder}: {error.strerror}."
            raise OutputError(message) from error
        facts = [[s.score, s.temperature, s.epsilon] for s in settings]
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json.dumps([facts, plan.order, plan.perturb]).encode())
        digest.update(
            _code(plan.forward) + _code(getattr(plan.model, "function", None))
        )
        if plan.scale is not None:
            digest.update(_bytes(torch.as_tensor(plan.scale, dtype=torch.float64)))
        for objective in plan.objectives:
            for name, value in _state(objective):
                array = isinstance(value, np.ndarray)
                digest.update(name.encode() + (value.tobytes() if array else b""))
        for name, tensor in sorted(plan.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(_bytes(tensor))
        self.plan_digest = digest.hexdigest()

    def work(self, i: int, batch: Batch, device: torch.device) -> Any:
        """Return the result of a batch, computed now or in an earlier run."""
        arrays = self.get(i, batch) or self.put(i, batch, device)
        return arrays, batch.labels

    def get(self, i: int, batch: Batch) -> dict[str, NDArray[Any]] | None:
        """Return an earlier run's result of this batch."""
        if self.folder is None or not (path := self._path(i)).exists():
            return None
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                content = dict(file)
        except Exception as error:
            message = f"cannot read the checkpoint {path}: {error}. Delete it."
            raise FileError(message) from error
        if content.pop("fingerprint", None) != self._fingerprint(batch):
            message = (
                f"the checkpoint {path} belongs to other data, settings or weights. "
                "Name another folder, or delete this one."
            )
            raise FileError(message)
        return content

    def put(
        self, i: int, batch: Batch, device: torch.device
    ) -> dict[str, NDArray[Any]]:
        """Sweep a batch, and keep the result."""
        arrays = _sweep_batch(self.plan, batch.to(device))
        if self.folder is not None:
            content = arrays | {"fingerprint": np.array(self._fingerprint(batch))}
            with replacing(self._path(i)) as temporary, temporary.open("wb") as file:
                np.savez(file, **content)  # type: ignore[arg-type]
        return arrays

    def _path(self, i: int) -> Path:
        assert self.folder is not None
        return self.folder / f"batch-{i:06d}.npz"

    def _fingerprint(self, batch: Batch) -> str:
        digest = hashlib.blake2b(self.plan_digest.encode(), digest_size=16)
        for place, value in batch.inputs.items():
            digest.update(str(place).encode())
            tensor = isinstance(value, Tensor)
            digest.update(_bytes(value) if tensor else repr(value).encode())
        return digest.hexdigest()


def _state(objective: Objective) -> list[tuple[str, Any]]:
    """Return the attributes of a score, without cached ones."""
    attributes = getattr(objective, "__dict__", {})
    return [
        (name, attributes[name])
        for name in sorted(attributes)
        if not isinstance(getattr(type(objective), name, None), cached_property)
    ]


def _bytes(tensor: Tensor) -> bytes:
    plain = tensor.detach().cpu().contiguous()
    return plain.flatten().view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def _code(function: Any) -> bytes:
    """Return bytes that differ between functions: names, code and constants."""
    code = getattr(function, "__code__", None)
    if code is None:
        return repr(type(function)).encode() if function else b""
    return _code_bytes(code)


def _code_bytes(code: CodeType) -> bytes:
    """Return the code's bytes that are the same in every process.

    The repr of a function or comprehension within it holds an address and a file, and
    that of a set the order of its hashes.
    """
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            constants.append(_code_bytes(constant))
        elif isinstance(constant, frozenset):
            constants.append(repr(sorted(map(repr, constant))).encode())
        else:
            constants.append(repr(constant).encode())
    names = repr(code.co_names).encode()
    return b"\0".join([code.co_code, *constants, names])
