"""A model and its gate as one model of MLflow, which answers with doubts.

Nothing is pickled: skops writes estimators of scikit-learn, every other model comes as
an ONNX file, and the gate is JSON.
"""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor._version import __version__
from trustdoctor.adapters.errors import refuse_multi_label
from trustdoctor.errors import FileError, InputError, missing_package
from trustdoctor.gates import PREDICTED, Gate, describe_lists
from trustdoctor.predictions import Predictions

GATE, OPTIONS = "gate.json", "options.json"
ESTIMATOR, GRAPH = "model.skops", "model.onnx"


def log_model(  # noqa: PLR0913 - options, by keyword only
    model: Any,
    gate: Gate,
    *,
    name: str = "model",
    trusted: Sequence[str] = (),
    logits: str | None = None,
    probs: str | None = None,
    **options: Any,
) -> Any:
    """Log a model with its gate, as one pyfunc model of MLflow.

    The logged model answers with a table: `predicted`, `doubt` and `accepted` of each
    row, and `shortlist` if the gate has one. That is text, the most probable class
    first: "dog | cat", or "full review"; it is empty if the row is accepted.

    Parameters
    ----------
    model : classifier or path
        A fitted classifier of scikit-learn with `predict_proba`, or an ONNX file with
        one input. Export a torch module to ONNX first.
    gate : Gate
        With a score of logits or probabilities (an estimator gives only
        probabilities). Its groups, if any, are the predicted classes.
    name : str
        The model's name in MLflow.
    trusted : sequence of str
        Types that are not scikit-learn's own and may be made when an estimator is
        loaded. An error names those that are missing.
    logits, probs : str, optional
        The output of an ONNX file that holds them, if its name does not tell.
    options
        Options of `mlflow.pyfunc.log_model`, as input_example, registered_model_name or
        pip_requirements. An example is tried first, and gives the signature. By default
        trustdoctor and the packages that run the model are required.

    Returns
    -------
    mlflow.models.model.ModelInfo
        `mlflow.pyfunc.load_model` takes its `model_uri`.

    Examples
    --------
    >>> info = log_model(fitted, gate, name="digits")  # doctest: +SKIP
    >>> mlflow.pyfunc.load_model(info.model_uri).predict(rows)  # doctest: +SKIP
       predicted  doubt  accepted
    0          7  -4.89      True
    1          5  -0.26     False
    """
    try:
        import mlflow
    except ImportError as error:
        raise missing_package(
            what="logging a model", package="mlflow", extra="mlflow"
        ) from error
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "guarded"
        folder.mkdir()
        if isinstance(model, (str, Path)):
            _check_gate(gate, {"probs", "logits"})
            requirements = _write_graph(model, folder, logits, probs)
        else:
            _check_gate(gate, {"probs"})
            requirements = _write_estimator(model, folder, list(trusted))
        gate.save(folder / GATE)
        example = options.get("input_example")
        if example is not None:
            table = _load_pyfunc(str(folder)).predict(example)
            signature = mlflow.models.infer_signature(example, table)
            options.setdefault("signature", signature)
        options.setdefault("pip_requirements", requirements)
        return mlflow.pyfunc.log_model(
            name=name, loader_module=__name__, data_path=str(folder), **options
        )


class Guarded:
    """A model with its gate, as MLflow loads it.

    Parameters
    ----------
    ask : callable
        Rows to predictions.
    gate : Gate
    classes : array (C,), or None
        The names of the classes; None if they have only numbers.
    """

    def __init__(
        self, ask: Callable[[Any], Predictions], gate: Gate, classes: Any
    ) -> None:
        self._ask, self._gate, self._classes = ask, gate, classes

    def predict(self, model_input: Any, params: Any = None) -> Any:  # noqa: ARG002
        """Return a table of the model's predictions and the gate's decisions."""
        import pandas as pd

        p, classes = self._ask(model_input), self._classes
        screened = self._gate.screen(p)
        columns = {
            "predicted": p.predicted if classes is None else classes[p.predicted],
            "doubt": screened.doubts,
            "accepted": screened.accepted,
        }
        if screened.shortlist is not None:
            names = None if classes is None else tuple(map(str, classes))
            columns["shortlist"] = describe_lists(
                screened.shortlist, replace(p, class_names=names)
            )
        return pd.DataFrame(columns, index=getattr(model_input, "index", None))


def _load_pyfunc(path: str) -> Guarded:
    """Load a folder that `log_model` wrote; MLflow calls this function by its name."""
    folder = Path(path)
    gate = Gate.load(folder / GATE)
    options = json.loads((folder / OPTIONS).read_text(encoding="utf-8"))
    names = gate.classes if isinstance(gate.classes, tuple) else None
    if (folder / GRAPH).exists():
        from trustdoctor.adapters import onnx

        ask = onnx.predictor(folder / GRAPH, **options)
        classes = None if names is None else np.array(names, object)
    else:
        from trustdoctor.adapters import sklearn

        estimator = _skops().load(folder / ESTIMATOR, **options)
        ask, classes = sklearn.predictor(estimator), np.asarray(estimator.classes_)
        names = names and tuple(map(str, classes))
    return Guarded(lambda rows: _with_class_names(ask(rows), names), gate, classes)


def _with_class_names(p: Predictions, names: tuple[str, ...] | None) -> Predictions:
    """Return predictions with class names, unless their number does not fit."""
    # A gate of other classes refuses the predictions in its own words.
    fits = names is not None and len(names) == p.n_classes
    return replace(p, class_names=names if fits else None)


def _check_gate(gate: Gate, available: set[str]) -> None:
    """Refuse a gate that needs more than the model gives, and say why."""
    reason = ""
    if gate.margins is not None:
        reason = "it asks for a second opinion"
    elif gate.score is None:
        reason = "it names no score"
    elif gate.decided_by:
        reason = f"it is about decisions of the system's own ({gate.decided_by})"
    elif gate.score.needs - available:
        needs = " and ".join(sorted(gate.score.needs - available))
        reason = f"its score {gate.score_name} needs {needs}, which the model lacks"
    elif gate.groups and gate.grouped_by != PREDICTED:
        reason = f"it has thresholds for groups ({gate.grouped_by})"
    if reason:
        message = (
            "expected a gate that decides on the model's predictions alone, got "
            f"another: {reason}. Calibrate one with alpha, beta or msp, and without "
            "such groups."
        )
        raise InputError(message)


def _write_graph(
    path: str | Path, folder: Path, logits: str | None, probs: str | None
) -> list[str]:
    """Copy an ONNX file with its weights; return the requirements to run it."""
    import onnx

    from trustdoctor.adapters.onnx import find_scores

    try:
        graph = onnx.load(str(path))
    except Exception as error:  # protobuf, files, weights: each has its own
        first = (str(error).splitlines() or [type(error).__name__])[0]
        message = f"cannot read {path} as an ONNX model: {first}."
        raise FileError(message) from error
    find_scores(graph, logits=logits, probs=probs)
    onnx.save(
        graph,
        str(folder / GRAPH),
        save_as_external_data=True,  # a protobuf message holds at most 2 GB
        location=f"{GRAPH}.data",
    )
    _write_options(folder, logits=logits, probs=probs)
    return _requirements("onnx", "onnxruntime")


def _write_estimator(model: Any, folder: Path, trusted: list[str]) -> list[str]:
    """Write an estimator without pickle; return the requirements to run it."""
    _check_estimator(model)
    skops, target = _skops(), folder / ESTIMATOR
    try:
        skops.dump(model, target)
        untrusted = set(skops.get_untrusted_types(file=target)) - set(trusted)
    except Exception as error:  # skops calls code of the estimator's own types
        first = (str(error).splitlines() or [type(error).__name__])[0]
        message = (
            f"skops cannot write a {type(model).__name__}: {first}. Export the model "
            "to ONNX, and log the file."
        )
        raise InputError(message) from error
    if untrusted:
        message = (
            f"the model has types that are not scikit-learn's own: "
            f"{', '.join(sorted(untrusted))}. If you trust them, pass "
            f"trusted={sorted({*untrusted, *trusted})}."
        )
        raise InputError(message)
    _write_options(folder, trusted=trusted)
    return _requirements("sklearn", "scikit-learn", "skops")


def _check_estimator(model: Any) -> None:
    if hasattr(model, "gate_"):
        message = (
            f"a {type(model).__name__} already has a gate. Pass its parts: "
            "log_model(model.estimator_, model.gate_)."
        )
        raise InputError(message)
    if isinstance(getattr(model, "classes_", None), list):
        refuse_multi_label(f"a {type(model).__name__} that was fitted on several")
    if not (hasattr(model, "predict_proba") and hasattr(model, "classes_")):
        message = (
            "expected a fitted classifier with predict_proba, or the path of an ONNX "
            f"file, got {type(model).__name__}. Fit it, or export it to ONNX."
        )
        raise InputError(message)


def _skops() -> Any:
    try:
        import skops.io
    except ImportError as error:
        raise missing_package(
            what="an estimator in MLflow", package="skops", extra="mlflow"
        ) from error
    return skops.io


def _write_options(folder: Path, **options: Any) -> None:
    (folder / OPTIONS).write_text(json.dumps(options), encoding="utf-8")


def _requirements(extra: str, *packages: str) -> list[str]:
    """Return the model's requirements, in the installed versions."""
    trustdoctor = f"trustdoctor[mlflow,{extra}]=={__version__}"
    return [trustdoctor, *(f"{name}=={version(name)}" for name in packages)]
