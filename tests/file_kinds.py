"""Files as people have them, of a scikit-learn model's predictions on held-out rows.

Each kind of file comes with the options that it needs and with the plain `prob_0..`
(or `logit_0..`) file of the same rows, which it is compared with.
"""

import gzip
import json
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from trustdoctor.engines import Means
from trustdoctor.engines.local import LocalEngine
from trustdoctor.files import Columns, find_source

NAMES = ("cat", "dog", "horse", "ship")
ACCENTED = ("âne", "bœuf", "café", "dîner")
ROWS = 360
SEPARATE = {2: 0.7, 4: 1.4}
"""How far apart the classes lie: both models err on about a tenth of the rows."""


class StreamingEngine(LocalEngine):
    """The local engine, which never reads all rows at once."""

    in_memory = False


STREAMED = Means(StreamingEngine(), 2 * 10**9)
IN_MEMORY = Means(LocalEngine(), 2 * 10**9)


@dataclass(frozen=True)
class HeldOut:
    """Rows that a model was not fitted on, and its predictions."""

    probs: Any
    logits: Any
    labels: Any
    features: Any


@cache
def held_out(classes: int = 4) -> HeldOut:
    """Fit a model on some rows, and let it predict the others."""
    x, y = make_classification(
        n_samples=600 + ROWS,
        n_features=12,
        n_informative=2 * classes,
        n_classes=classes,
        n_clusters_per_class=1,
        class_sep=SEPARATE[classes],
        flip_y=0.05,
        random_state=7,
    )
    training_features, features, training_labels, labels = train_test_split(
        x, y, test_size=ROWS, random_state=0
    )
    model = LogisticRegression(max_iter=500).fit(training_features, training_labels)
    logits = model.decision_function(features)
    return HeldOut(model.predict_proba(features), logits, labels, features)


def columns(names: Any, values: Any) -> dict[str, Any]:
    """Return one column per class."""
    return {name: values[:, i] for i, name in enumerate(names)}


def numbered(prefix: str, values: Any, first: int = 0) -> dict[str, Any]:
    """Return numbered columns."""
    return columns([f"{prefix}{first + i}" for i in range(values.shape[1])], values)


def class_labels(labels: Any, names: Any = NAMES) -> list[str]:
    """Return labels by name."""
    return [names[i] for i in labels]


def text(
    table: pl.DataFrame,
    path: Path,
    *,
    separator: str = ",",
    encoding: str = "utf-8",
    comma: bool = False,
) -> None:
    """Write a text file; with `comma` numbers have a decimal comma."""
    content = table.write_csv(separator=separator, decimal_comma=comma)
    path.write_bytes(content.encode(encoding))


def packed(table: pl.DataFrame, path: Path) -> None:
    """Write a packed CSV file."""
    path.write_bytes(gzip.compress(table.write_csv().encode()))


def lines(table: pl.DataFrame, path: Path) -> None:
    """Write one JSON object per line, as Python does."""
    rows = [json.dumps(row) for row in table.iter_rows(named=True)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def parquet(table: pl.DataFrame, path: Path) -> None:
    """Write a Parquet file."""
    table.write_parquet(path)


def arrow(table: pl.DataFrame, path: Path) -> None:
    """Write an Arrow file, which a Feather file is, too."""
    table.write_ipc(path)


def archive(table: pl.DataFrame, path: Path) -> None:
    """Write arrays: the columns of classes as one, and the labels."""
    label = table["label"].to_numpy()
    values = table.drop("label").to_numpy()
    np.savez(path, probs=values, label=label.astype(str))


def written(**options: Any) -> Callable[[pl.DataFrame, Path], None]:
    """Return a function that writes text files with these options."""
    return lambda table, path: text(table, path, **options)


def plain_probs(classes: int = 4, change: Any = None) -> pl.DataFrame:
    """Return the plain rows: `prob_0..` and `label`."""
    rows = held_out(classes)
    probs = rows.probs if change is None else change(rows.probs)
    return pl.DataFrame(numbered("prob_", probs) | {"label": rows.labels})


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes
    ----------
    table : callable
        Returns all rows.
    options : dict
        The names of columns that must be given.
    suffix, write
        How rows are written.
    plain : callable
        Returns the rows as the plain file has them.
    names : tuple of str, or None
        The names of the classes that are expected.
    """

    table: Callable[[], pl.DataFrame]
    options: dict[str, Any] = field(default_factory=dict)
    suffix: str = ".csv"
    write: Callable[[pl.DataFrame, Path], None] = text
    plain: Callable[[], pl.DataFrame] = plain_probs
    names: tuple[str, ...] | None = NAMES

    def alone(self, folder: Path) -> Path:
        """Write all rows into one file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"rows{self.suffix}"
        self.write(self.table(), path)
        return path

    def halves(self, folder: Path) -> Path:
        """Write the rows into two files of one folder."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = self.table()
        half = len(rows) // 2
        self.write(rows[:half], folder / f"a{self.suffix}")
        self.write(rows[half:], folder / f"b{self.suffix}")
        return folder

    def source(self, path: Path, **more: Any) -> Any:
        """Return the files as tasks take them."""
        return find_source(path, Columns(**self.options, **more))

    def arguments(self, folder: Path) -> list[str]:
        """Return the options as the command line takes them."""
        options = dict(self.options)
        names = options.pop("class_names", None)
        arguments = Columns(**options).options()
        if names is not None:
            path = folder / "names.txt"
            path.write_text("\n".join(names) + "\n", encoding="utf-8")
            arguments += ["--class-names", str(path)]
        return arguments


def plain_logits() -> pl.DataFrame:
    """Return the plain rows as logits."""
    rows = held_out()
    return pl.DataFrame(numbered("logit_", rows.logits) | {"label": rows.labels})


def plain_binary() -> pl.DataFrame:
    """Return the binary rows: the rest of 1 is the other class's."""
    rows = held_out(2)
    positive = rows.probs[:, 1]
    probs = np.column_stack([1 - positive, positive])
    return pl.DataFrame(numbered("prob_", probs) | {"label": rows.labels})


def plain_binary_logits() -> pl.DataFrame:
    """Return the binary rows as logits: 0 and the model's one output."""
    rows = held_out(2)
    z = np.column_stack([np.zeros(ROWS), rows.logits])
    return pl.DataFrame(numbered("logit_", z) | {"label": rows.labels})


def by_name(prefix: str = "", names: Any = NAMES) -> pl.DataFrame:
    """Return columns called as the classes are, and labels by name."""
    rows = held_out()
    values = columns([prefix + name for name in names], rows.probs)
    return pl.DataFrame(values | {"label": class_labels(rows.labels, names)})


def _logits_by_name() -> pl.DataFrame:
    rows = held_out()
    return pl.DataFrame(
        columns(NAMES, rows.logits) | {"label": class_labels(rows.labels)}
    )


def _from_one(first: int) -> pl.DataFrame:
    rows = held_out()
    values = numbered("prob_", rows.probs, first)
    return pl.DataFrame(values | {"label": rows.labels + 1})


def _binary(labels: Any, name: str = "prob") -> pl.DataFrame:
    return pl.DataFrame({name: held_out(2).probs[:, 1], "label": labels})


def _yes_no() -> list[str]:
    return class_labels(held_out(2).labels, ("no", "yes"))


def _labelled(labels: pl.Series) -> pl.DataFrame:
    return plain_probs().with_columns(label=labels)


def _whole_floats() -> pl.DataFrame:
    return _labelled(pl.Series(held_out().labels.astype(float)))


def _categorical() -> pl.DataFrame:
    return by_name("prob_").with_columns(pl.col("label").cast(pl.Categorical))


def _booleans() -> pl.DataFrame:
    rows = held_out(2)
    truth = pl.Series(rows.labels == 1)
    return pl.DataFrame(numbered("prob_", rows.probs)).with_columns(label=truth)


def _true_false(*, as_text: bool) -> pl.DataFrame:
    """Return columns as scikit-learn's classes_ of booleans name them; True first."""
    rows = held_out(2)
    values = columns(("prob_True", "prob_False"), rows.probs[:, ::-1])
    truth = pl.Series(rows.labels == 1)
    if as_text:
        truth = pl.Series([str(bool(label)) for label in truth])
    return pl.DataFrame(values).with_columns(label=truth)


def _swapped() -> pl.DataFrame:
    rows = held_out(2)
    probs = rows.probs[:, ::-1]
    return pl.DataFrame(numbered("prob_", probs) | {"label": 1 - rows.labels})


def _float_names() -> pl.DataFrame:
    """Return what f"prob_{c}" makes of the classes 1.0 to 4.0."""
    rows = held_out()
    values = columns([f"prob_{c}.0" for c in range(1, 5)], rows.probs)
    return pl.DataFrame(values | {"label": (rows.labels + 1).astype(float)})


def _lists() -> pl.DataFrame:
    rows = held_out()
    values = pl.Series(rows.probs.tolist(), dtype=pl.List(pl.Float64))
    return pl.DataFrame({"probs": values, "label": class_labels(rows.labels)})


def percentages(probs: Any) -> Any:
    """Return probabilities as a spreadsheet shows them."""
    return np.round(100 * probs, 3)


def _percent() -> pl.DataFrame:
    return plain_probs(change=percentages)


def _decomposed() -> pl.DataFrame:
    """Return names as a Mac writes them, and labels as all others do."""
    table = by_name("prob_", ACCENTED)
    return table.rename({n: unicodedata.normalize("NFD", n) for n in table.columns})


def _accented() -> pl.DataFrame:
    return by_name("prob_", ACCENTED)


def rounded(digits: int) -> Kind:
    """Return a kind of file whose probabilities have this number of decimals."""

    def table() -> pl.DataFrame:
        return plain_probs(change=lambda probs: np.round(probs, digits))

    return Kind(table, plain=table, names=None)


_PREFIXED = Kind(lambda: by_name("prob_"))
_SEMICOLON = written(separator=";")
_LISTED = {"probs": ",".join(NAMES)}
_POSITIVE = {"probs": "prob", "positive": "yes"}
_BINARY = Kind(
    lambda: _binary(_yes_no()), _POSITIVE, plain=plain_binary, names=("no", "yes")
)
_ACCENTED = Kind(_accented, names=ACCENTED)

KINDS: dict[str, Kind] = {
    "columns by name": Kind(by_name, _LISTED),
    "a list of columns": Kind(by_name, {"probs": list(NAMES)}),
    "logits by name": Kind(
        _logits_by_name, {"logits": ",".join(NAMES)}, plain=plain_logits
    ),
    "prob_ and a name": _PREFIXED,
    "logit_ and a name": Kind(
        lambda: _logits_by_name().rename(lambda n: n if n == "label" else f"logit_{n}"),
        plain=plain_logits,
    ),
    "another prefix": Kind(lambda: by_name("p."), {"probs": "p."}),
    "columns from 1": Kind(
        lambda: _from_one(1), {"first_class": 1}, names=("1", "2", "3", "4")
    ),
    "labels from 1": Kind(
        lambda: _from_one(0), {"first_class": 1}, names=("1", "2", "3", "4")
    ),
    "binary, yes and no": _BINARY,
    "binary, 1 and 0": replace(_BINARY, table=lambda: _binary(held_out(2).labels)),
    "binary, booleans": replace(
        _BINARY,
        table=lambda: _binary(held_out(2).labels == 1),
        options={"probs": "prob", "positive": "true"},
        suffix=".parquet",
        write=parquet,
        names=("false", "true"),
    ),
    "binary, one logit": Kind(
        lambda: pl.DataFrame({"z": held_out(2).logits, "label": _yes_no()}),
        {"logits": "z", "positive": "yes"},
        plain=plain_binary_logits,
        names=("no", "yes"),
    ),
    "whole floats, text": Kind(_whole_floats, names=None),
    "whole floats": Kind(_whole_floats, {}, ".parquet", parquet, names=None),
    "categoricals": Kind(_categorical, {}, ".parquet", parquet),
    "booleans": Kind(
        _booleans, {}, ".parquet", parquet, lambda: plain_probs(2), names=None
    ),
    "columns True and False": Kind(
        lambda: _true_false(as_text=True), plain=_swapped, names=("True", "False")
    ),
    "columns True and False, booleans": Kind(
        lambda: _true_false(as_text=False),
        suffix=".parquet",
        write=parquet,
        plain=_swapped,
        names=("True", "False"),
    ),
    "classes that are floats": Kind(_float_names, names=("1.0", "2.0", "3.0", "4.0")),
    "numbers of named classes": Kind(
        lambda: by_name().with_columns(label=pl.Series(held_out().labels)), _LISTED
    ),
    "a list column": Kind(_lists, {"class_names": NAMES}, ".parquet", parquet),
    "arrays": Kind(by_name, {"class_names": NAMES}, ".npz", archive),
    "percentages": Kind(
        _percent,
        {"percent": True},
        plain=lambda: plain_probs(change=lambda probs: percentages(probs) / 100),
        names=None,
    ),
    "2 decimals": rounded(2),
    "3 decimals": rounded(3),
    "semicolons": replace(_PREFIXED, write=_SEMICOLON),
    "decimal commas": replace(_PREFIXED, write=written(separator=";", comma=True)),
    "tabs in .csv": replace(_PREFIXED, write=written(separator="\t")),
    "tabs in .tsv": replace(_PREFIXED, suffix=".tsv", write=written(separator="\t")),
    "packed": replace(_PREFIXED, suffix=".csv.gz", write=packed),
    "JSON lines": replace(_PREFIXED, suffix=".jsonl", write=lines),
    "Arrow": replace(_PREFIXED, suffix=".arrow", write=arrow),
    "Feather": replace(_PREFIXED, suffix=".feather", write=arrow),
    "a byte-order mark": replace(_ACCENTED, write=written(encoding="utf-8-sig")),
    "UTF-16": replace(_ACCENTED, write=written(encoding="utf-16", separator="\t")),
    "decomposed names": replace(_ACCENTED, table=_decomposed),
}
"""Every row of the table of files that have classes."""


def answers(classes: int = 4) -> pl.DataFrame:
    """Return answers with a confidence, and labels or correctness."""
    rows = held_out(classes)
    best = rows.probs.argmax(1)
    return pl.DataFrame(
        {
            "id": [f"row {i}" for i in range(ROWS)],
            "prediction": class_labels(best),
            "confidence": rows.probs.max(1),
            "uncertainty": -np.log(rows.probs.max(1)),
            "label": class_labels(rows.labels),
            "correct": best == rows.labels,
        }
    )


def _answer_columns(*names: str, **changed: Any) -> Callable[[], pl.DataFrame]:
    return lambda: answers().select(*names).with_columns(**changed)


_RIGHT = {"confidence": "confidence", "correct": "correct"}

ANSWERS: dict[str, Kind] = {
    "confidence and correct": Kind(
        _answer_columns("id", "confidence", "correct"), _RIGHT
    ),
    "correct as 1 and 0": Kind(
        _answer_columns("confidence", correct=answers()["correct"].cast(pl.Int64)),
        _RIGHT,
    ),
    "correct, Parquet": Kind(
        _answer_columns("confidence", "correct"), _RIGHT, ".parquet", parquet
    ),
    "correct, semicolons": Kind(
        _answer_columns("confidence", "correct"),
        _RIGHT,
        write=written(separator=";", comma=True),
    ),
    "correct, JSON lines": Kind(
        _answer_columns("confidence", "correct"), _RIGHT, ".jsonl", lines
    ),
    "prediction and label": Kind(
        _answer_columns("confidence", "prediction", "label"),
        {"confidence": "confidence", "predicted": "prediction", "labels": "label"},
    ),
    "usual names": Kind(
        _answer_columns("confidence", "prediction", "label"),
        {"confidence": "confidence"},
    ),
    "percent": Kind(
        _answer_columns("correct", confidence=100 * answers()["confidence"]),
        {**_RIGHT, "percent": True},
    ),
    "doubt and correct": Kind(
        _answer_columns("uncertainty", "correct"),
        {"doubt": "uncertainty", "correct": "correct"},
    ),
    "doubt, prediction and label": Kind(
        _answer_columns("uncertainty", "prediction", "label"), {"doubt": "uncertainty"}
    ),
}
"""Files of answers with one number each, and no classes."""


def unlabelled(table: pl.DataFrame, rows: Any) -> pl.DataFrame:
    """Return the table without the labels of some rows."""
    blank = pl.Series(np.asarray(rows, bool))
    return table.with_columns(label=pl.when(~blank).then(pl.col("label")))


CHOICES = ("negative", "positive")


def response(p: float, other: float = 0.1) -> dict[str, Any]:
    """Return a chat completion whose first token says positive with probability p.

    The mass of a choice is split between two tokens that begin it, and `other` is left
    for a token that begins none.
    """
    mass = {"positive": 0.75 * p, " Pos": 0.25 * p}
    mass |= {"negative": 0.75 * (1 - p), " Neg": 0.25 * (1 - p)}
    shares = {token: (1 - other) * share for token, share in mass.items()}
    shares["The"] = other
    tops = [
        {"token": token, "logprob": float(np.log(share))}
        for token, share in sorted(shares.items(), key=lambda item: -item[1])
        if share > 0
    ]
    content = [{**tops[0], "top_logprobs": tops}]
    return {"choices": [{"logprobs": {"content": content}}]}


def responses(*, batch: bool) -> list[dict[str, Any]]:
    """Return possible responses of a language model for the binary rows."""
    lines = []
    for i, p in enumerate(held_out(2).probs[:, 1]):
        body = response(p)
        answer = {"status_code": 200, "body": {"id": f"chat-{i}", **body}}
        batched = {"custom_id": f"r{i}", "error": None, "response": answer}
        lines.append(batched if batch else {"id": f"r{i}", **body})
    return lines


def write_responses(folder: Path, rows: Any, name: str = "answers.jsonl") -> Path:
    """Write one response per line."""
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_truth(folder: Path, labels: Any = None, name: str = "truth.csv") -> Path:
    """Write the true labels by id."""
    path = folder / name
    truth = held_out(2).labels if labels is None else labels
    ids = [f"r{i}" for i in range(len(truth))]
    pl.DataFrame({"id": ids, "label": class_labels(truth, CHOICES)}).write_csv(path)
    return path
