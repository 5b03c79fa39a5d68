"""The files that cases are made from: small, and the same every time."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

import trustdoctor as td

NAMES = ("cat", "dog", "horse", "ship")
CHOICES = ("negative", "positive")
ROWS = 60


@dataclass(frozen=True)
class Seed:
    """A kind of file, and all that a command needs to read it.

    Attributes
    ----------
    format : str
        What the mutated file is, as ``--only`` takes it.
    target : str
        The name of the file that is mutated.
    files : callable
        Returns the content of every file, by its name in the folder of a case.
    rows : str
        The file, or the folder, of predictions; by default the target.
    options : dict
        The names of columns; `truth` and `names_file` name files of the folder.
    score : str
        The score that a threshold is on.
    gate : str
        The gate's file among `files`; empty if a case screens at a threshold.
    page : bool
        Whether `diagnose` always writes a page, which shows more of the file.
    """

    format: str
    target: str
    files: Callable[[], dict[str, bytes]]
    rows: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    score: str = "alpha"
    gate: str = ""
    page: bool = False


@dataclass(frozen=True)
class PredictedRows:
    """Labels, features and predictions of random rows."""

    logits: Any
    probs: Any
    labels: Any
    features: Any


@cache
def predicted_rows(rows: int = ROWS, classes: int = 4, seed: int = 0) -> PredictedRows:
    """Return logits whose largest is right for about four rows of five."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    logits = rng.normal(size=(rows, classes)).round(4)
    logits[np.arange(rows), labels] += 1.6
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return PredictedRows(
        logits, probs, labels, labels[:, None] + rng.normal(size=(rows, 3))
    )


def numbered(prefix: str, values: Any) -> dict[str, Any]:
    return {f"{prefix}{i}": values[:, i] for i in range(values.shape[1])}


def class_labels(labels: Any, names: Any = NAMES) -> list[str]:
    return [names[i] for i in labels]


def logits_table(rows: int = ROWS) -> pl.DataFrame:
    """Return logits beside ids, groups, labels and texts with signs in them."""
    sample = predicted_rows(rows)
    texts = [f'{i}, "quoted" é\n' if i % 9 == 0 else f"text {i}" for i in range(rows)]
    beside = {
        "id": [f"r{i}" for i in range(rows)],
        "region": class_labels(sample.labels % 2),
    }
    values = numbered("logit_", sample.logits) | {"label": sample.labels}
    return pl.DataFrame(beside | values | {"text": texts})


def plain_table(rows: int = ROWS) -> pl.DataFrame:
    """Return logits and labels, without a text that needs quotes."""
    return logits_table(rows).drop("text")


def quantised_table(rows: int = ROWS) -> pl.DataFrame:
    """Return the same with logits of few values: only rounding tells rows apart."""
    numbers = pl.col("^logit_.*$")
    return plain_table(rows).with_columns((numbers * 4).round() / 4)


def probs_table(rows: int = ROWS) -> pl.DataFrame:
    """Return probabilities in columns by the classes' names, and labels by name."""
    sample = predicted_rows(rows)
    values = {f"prob_{name}": sample.probs[:, i] for i, name in enumerate(NAMES)}
    return pl.DataFrame(values | {"label": class_labels(sample.labels)})


def answers_table() -> pl.DataFrame:
    sample = predicted_rows()
    best = sample.probs.argmax(1)
    return pl.DataFrame(
        {
            "id": [f"r{i}" for i in range(ROWS)],
            "prediction": class_labels(best),
            "confidence": sample.probs.max(1),
            "correct": best == sample.labels,
        }
    )


def binary_table() -> pl.DataFrame:
    sample = predicted_rows(classes=2)
    truth = class_labels(sample.labels, ("no", "yes"))
    return pl.DataFrame({"prob": sample.probs[:, 1], "label": truth})


def lists_table(rows: int = ROWS) -> pl.DataFrame:
    sample = predicted_rows(rows)
    values = pl.Series(sample.logits.tolist(), dtype=pl.List(pl.Float64))
    return pl.DataFrame({"logits": values, "label": sample.labels})


def text(table: pl.DataFrame, separator: str = ",", *, comma: bool = False) -> bytes:
    return table.write_csv(separator=separator, decimal_comma=comma).encode()


def lines(rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(table: pl.DataFrame, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table.to_arrow(), out, row_group_size=23, **options)
    return out.getvalue()


def by_polars(table: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    table.write_parquet(out, row_group_size=25)
    return out.getvalue()


def arrow(table: pl.DataFrame, compression: Any = "uncompressed") -> bytes:
    out = io.BytesIO()
    table.write_ipc(out, compression=compression)
    return out.getvalue()


def feather(table: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    pa.feather.write_feather(table.to_arrow(), out, chunksize=17)
    return out.getvalue()


def npy(values: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, values, allow_pickle=False)
    return out.getvalue()


def npz(save: Any = np.savez, **arrays: Any) -> bytes:
    out = io.BytesIO()
    save(out, **arrays)
    return out.getvalue()


def arrays(kind: Any = np.float64) -> dict[str, Any]:
    sample = predicted_rows()
    return {"logits": sample.logits.astype(kind), "labels": sample.labels}


def perturbed() -> dict[str, Any]:
    """Return logits of perturbed inputs, as pages show them."""
    return {
        "pbb_alpha_T1_eps0.001": predicted_rows().logits + 0.1,
        "pbb_odin_T2": predicted_rows().logits,
    }


def named_arrays() -> bytes:
    sample = predicted_rows()
    truth = np.array(class_labels(sample.labels))
    more = {"features": sample.features, "probs": np.asfortranarray(sample.probs)}
    return npz(np.savez_compressed, labels=truth, **more)


def response(p: float) -> dict[str, Any]:
    """Return a chat completion whose first token says positive with probability p."""
    shares = {"positive": 0.7 * p, " Neg": 0.9 * (1 - p), "The": 0.05}
    tops = [{"token": t, "logprob": float(np.log(s))} for t, s in shares.items()]
    content = [{**tops[0], "top_logprobs": tops}]
    return {"choices": [{"logprobs": {"content": content}}]}


def responses() -> bytes:
    sample = predicted_rows(classes=2).probs[:, 1]
    return lines({"id": f"r{i}", **response(p)} for i, p in enumerate(sample))


def batch() -> bytes:
    rows = []
    for i, p in enumerate(predicted_rows(classes=2).probs[:, 1]):
        inner = {"status_code": 200, "body": {"id": f"c{i}", **response(p)}}
        rows.append({"custom_id": f"r{i}", "error": None, "response": inner})
    return lines(rows)


def truth(classes: int = 2, names: Any = CHOICES) -> pl.DataFrame:
    labels = class_labels(predicted_rows(classes=classes).labels, names)
    return pl.DataFrame({"id": [f"r{i}" for i in range(ROWS)], "label": labels})


@cache
def read(kind: str) -> td.Predictions:
    """Return the rows that gates and states are made on."""
    sample = predicted_rows(400, seed=1)
    groups = np.array(class_labels(sample.labels % 2))
    if kind == "confidence":
        right = sample.probs.argmax(1) == sample.labels
        return td.Predictions.from_confidence(sample.probs.max(1), right)
    return td.Predictions.from_logits(
        sample.logits, sample.labels, features=sample.features, groups=groups
    )


def _gate(kind: str) -> td.Gate:
    makers: dict[str, Callable[[], td.Gate]] = {
        "plain": lambda: td.calibrate(read("logits"), score="alpha", frr=0.2),
        "risk": lambda: td.calibrate(read("logits"), score="msp", risk=0.15),
        "groups": lambda: td.calibrate(
            read("logits"), score="alpha", coverage=0.6, groups="given"
        ),
        "classes": lambda: td.calibrate(
            read("logits"), score="entropy", coverage=0.6, groups="predicted"
        ),
        "fitted": lambda: td.calibrate(
            read("logits"),
            score=td.Mahalanobis.fit(read("logits"), space="logits"),
            frr=0.2,
        ),
        "confidence": lambda: td.calibrate(read("confidence"), frr=0.2),
        "threshold": lambda: td.Gate(-0.5, td.SCORES["alpha"].with_temperature(2.0)),
        "accept": lambda: td.Gate(0.0, score="alpha", state="accept-all"),
    }
    return makers[kind]()


def saved(document: Any, name: str = "saved.json") -> bytes:
    """Return what `save` writes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        document.save(path)
        return path.read_bytes()


@cache
def gate(kind: str) -> bytes:
    return saved(_gate(kind))


@cache
def state(kind: str, name: str = "saved.json") -> bytes:
    """Return a watch with waiting rows, rows by their ids, and a named batch."""
    predictions = read("confidence" if kind == "confidence" else "logits")
    rates = {"rejected": 1.0, "accepted": 0.5}
    watch = _gate(kind).watch(review=rates, deadline=None)
    drawn = [row % 3 == 0 for row in range(len(predictions))]
    watch.update(predictions, batch="first", at=1.5e9)
    errors = [None if row % 2 else False for row in range(len(predictions))]
    watch.update(
        predictions, errors, ids=range(len(predictions)), reviewed=drawn, at=1.6e9
    )
    return saved(watch, name)


@cache
def fitted() -> bytes:
    return saved(td.Mahalanobis.fit(read("logits"), space="logits"))
