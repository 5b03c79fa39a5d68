"""Arrow batches in, Arrow batches out: for Spark, Ray, Dask, DuckDB and the like.

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
from trustdoctor.gates import Gate, describe_lists
from trustdoctor.predictions import Predictions

try:
    import pyarrow as pa
except ImportError as error:
    raise missing_package(
        what="the Arrow adapter", package="pyarrow", extra="ray"
    ) from error

DECISION_COLUMNS = ("score", "accepted")
SHORTLIST_COLUMN = "shortlist"


class Decider:
    """Adds a score and a decision to the rows of Arrow data.

    A gate with a shortlist also adds a column of text: the classes that a rejected row
    may be, the most probable first.

    Parameters
    ----------
    gate : Gate
        One that names its score.
    columns
        The names of columns, as in `trustdoctor.read`: logits, probs, confidence,
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
        """Decide on a RecordBatch or a Table; return it with the columns added."""
        lists = () if self.gate.shortlist is None else (SHORTLIST_COLUMN,)
        names = (*DECISION_COLUMNS, *lists)
        present = [name for name in names if name in batch.schema.names]
        if present:
            message = f"the rows already have a column {present[0]!r}. Rename it."
            raise InputError(message)
        for name, values in zip(names, self._new_columns(batch), strict=True):
            batch = batch.append_column(name, values)
        return batch

    def _new_columns(self, batch: Any) -> Iterator[Any]:
        """Yield the scores, the decisions, and the lists if the gate has any."""
        lists: Any = None if self.gate.shortlist is None else []
        if batch.num_rows:
            p = to_predictions(batch, self.columns)
            screened = self.gate.screen(p)
            scores, accepted = screened.doubts, screened.accepted
            if screened.shortlist is not None:
                lists = describe_lists(screened.shortlist, p)
        else:
            # Spark and Ray need the same type from an empty batch as from the others.
            dtype = _score_type(batch.schema, self.columns)
            scores, accepted = np.zeros(0, dtype), np.zeros(0, bool)
        yield from (pa.array(scores), pa.array(accepted))
        if lists is not None:
            yield pa.array(lists, pa.string())

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
    layout = find_layout(batch.schema.names, columns)
    table = pl.from_arrow(batch.select(layout.needed))
    assert isinstance(table, pl.DataFrame)
    return from_table(table, columns, layout)
