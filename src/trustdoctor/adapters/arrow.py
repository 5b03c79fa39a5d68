"""Arrow batches in, Arrow batches out: for Spark, Ray, Dask, DuckDB and their kin.

Any engine that hands Arrow data to a Python function can decide on its rows::

    decide = Decider(gate)
    spark_frame.mapInArrow(decide.map, schema)        # Spark
    ray_dataset.map_batches(decide, batch_format="pyarrow")
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import polars as pl

from trustdoctor.errors import InputError, missing_package
from trustdoctor.files import Columns, find_layout, from_table
from trustdoctor.gates import Gate
from trustdoctor.predictions import Predictions

try:
    import pyarrow as pa
except ImportError as error:
    raise missing_package(
        what="the Arrow adapter", package="pyarrow", extra="ray"
    ) from error

ADDED = ("score", "accepted")


class Decider:
    """Adds a score and a decision to the rows of Arrow data.

    Parameters
    ----------
    gate : Gate
        One that names its score.
    columns
        What is called how, as in `trustdoctor.read`: logits, probs, confidence,
        features, groups, ...

    Examples
    --------
    >>> import pyarrow as pa
    >>> rows = pa.table({"logit_0": [9.0, 0.1], "logit_1": [0.0, 0.0]})
    >>> Decider(Gate.from_gamma(0.5))(rows)["accepted"].to_pylist()
    [True, False]
    """

    def __init__(self, gate: Gate, **columns: Any) -> None:
        if gate.score is None:
            message = "expected a gate that names its score: make it with calibrate."
            raise InputError(message)
        self.gate = gate
        try:
            self.columns = Columns(**columns, need_labels=False)
        except TypeError as error:
            message = f"expected columns by name, as probs= or features=: {error}."
            raise InputError(message) from error

    def __call__(self, batch: Any) -> Any:
        """Decide on a RecordBatch or a Table; the same with two columns more."""
        taken = [name for name in ADDED if name in batch.schema.names]
        if taken:
            message = f"the rows already have a column {taken[0]!r}. Rename it."
            raise InputError(message)
        added = self._added(batch)
        for name, values in zip(ADDED, added, strict=True):
            batch = batch.append_column(name, pa.array(values))
        return batch

    def _added(self, batch: Any) -> tuple[Any, Any]:
        if not batch.num_rows:
            kind = _score_type(batch.schema, self.columns)
            return np.zeros(0, kind), np.zeros(0, bool)
        done = self.gate.screen(to_predictions(batch, self.columns))
        return done.scores, done.accepted

    def map(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Decide on batch after batch, as Spark's mapInArrow calls it."""
        for batch in batches:
            yield self(batch)


def _score_type(schema: Any, columns: Columns) -> type[np.floating[Any]]:
    """Return the type that scores of such rows have."""
    kind = schema.field(find_layout(schema.names, columns).values[0]).type
    inner = getattr(kind, "value_type", kind)
    small = pa.types.is_float32(inner) or pa.types.is_float16(inner)
    return np.float32 if small else np.float64


def to_predictions(batch: Any, columns: Columns) -> Predictions:
    """Build predictions from the columns of Arrow data that hold them."""
    needed = find_layout(batch.schema.names, columns).needed
    table = pl.from_arrow(batch.select(needed))
    assert isinstance(table, pl.DataFrame)
    return from_table(table, columns)
