"""Mutations of Parquet and Arrow files: of their columns, their heads, their bytes."""

import io
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from fuzz import mutate_bytes, mutate_text

ODD = (
    float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 1e-320, 0.0, -0.0, 3e38,
)  # fmt: skip
TYPES: tuple[Callable[[], Any], ...] = (
    pa.float16, pa.float32, pa.float64,
    pa.int8, pa.int64, pa.uint64, pa.bool_, pa.string, pa.large_string, pa.binary,
    pa.null, pa.date32, lambda: pa.duration("us"), lambda: pa.timestamp("ns"),
    lambda: pa.timestamp("s", "UTC"), lambda: pa.time64("us"),
    lambda: pa.decimal128(38, 9), lambda: pa.decimal128(9, 2),
    lambda: pa.dictionary(pa.int32(), pa.string()), lambda: pa.list_(pa.float64()),
    lambda: pa.list_(pa.float64(), 2), lambda: pa.large_list(pa.string()),
    lambda: pa.struct([("a", pa.float64())]), pa.string_view,
)  # fmt: skip
FAILURES = (
    pa.ArrowException,
    ValueError,
    TypeError,
    OverflowError,
    OSError,
    LookupError,
)


def _odd_value(rng: Random, kind: Any) -> Any:
    """Return an odd value that may fit a type."""
    if pa.types.is_floating(kind):
        return rng.choice((rng.choice(ODD), rng.gauss(0, 3), rng.random()))
    if pa.types.is_integer(kind):
        return rng.choice((-1, 0, 4, 127, 2**31, 2**62, -(2**63)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = [
            _odd_value(rng, kind.value_type) for _ in range(rng.choice((0, 1, 3, 4, 5)))
        ]
        return [*inner, None] if rng.random() < 0.3 else inner
    if pa.types.is_fixed_size_list(kind):
        return [_odd_value(rng, kind.value_type) for _ in range(kind.list_size)]
    return rng.choice(mutate_text.CELLS)


def values(rng: Random, table: Any) -> Any:
    """Put awkward values, or none, into a column."""
    at = rng.randrange(table.num_columns)
    field, column = table.schema.field(at), table.column(at).to_pylist()
    for _ in range(rng.choice((1, 1, 5, len(column)))):
        if column:
            new = None if rng.random() < 0.2 else _odd_value(rng, field.type)
            column[rng.randrange(len(column))] = new
    return table.set_column(at, field, pa.array(column, field.type))


def cast(rng: Random, table: Any) -> Any:
    """Give a column another type; nulls if it cannot be cast."""
    at = rng.randrange(table.num_columns)
    kind = rng.choice(TYPES)()
    try:
        column = table.column(at).cast(kind)
    except FAILURES:
        column = pa.nulls(table.num_rows, kind)
    return table.set_column(at, table.schema.names[at], column)


def rename(rng: Random, table: Any) -> Any:
    names = list(table.schema.names)
    new = rng.choice((*mutate_text.HEADERS, rng.choice(names)))
    names[rng.randrange(len(names))] = new
    return table.rename_columns(names)


def shape(rng: Random, table: Any) -> Any:
    """Take rows or columns away, or have them twice."""
    change = rng.randrange(5)
    if change == 0:
        return table.slice(0, rng.choice((0, 1, table.num_rows // 2)))
    if change == 1:
        return pa.concat_tables([table] * rng.choice((2, 5)))
    at = rng.randrange(table.num_columns)
    if change == 2:
        return table.remove_column(at)
    if change == 3:
        return table.append_column(rng.choice(mutate_text.HEADERS), table.column(at))
    order = list(range(table.num_columns))
    rng.shuffle(order)
    return table.select(order)


def more(rng: Random, table: Any) -> Any:
    """Add another column, of any type, which must not matter."""
    kind = rng.choice(TYPES)()
    try:
        column = pa.array([_odd_value(rng, kind) for _ in range(table.num_rows)], kind)
    except FAILURES:
        column = pa.nulls(table.num_rows, kind)
    return table.append_column(
        rng.choice(("note", rng.choice(mutate_text.HEADERS))), column
    )


CHANGES = (values, values, values, more, more, cast, cast, rename, shape)


def _parquet(rng: Random, table: Any, out: Any) -> None:
    pq.write_table(
        table,
        out,
        row_group_size=rng.choice((7, 23, 10_000)),
        compression=rng.choice(("none", "snappy", "zstd", "gzip")),
        version=rng.choice(("1.0", "2.6")),
        data_page_version=rng.choice(("1.0", "2.0")),
        use_dictionary=rng.random() < 0.5,
        write_statistics=rng.random() < 0.5,
    )


def _arrow(rng: Random, table: Any, out: Any) -> None:
    chance = rng.random()
    if chance < 0.45:
        pa.feather.write_feather(table, out, chunksize=rng.choice((5, 1000)))
        return
    # A stream of Arrow batches has another head than a file.
    make = pa.ipc.new_file if chance < 0.9 else pa.ipc.new_stream
    with make(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=rng.choice((5, 1000)))


def _tables(
    read: Callable[[Any], Any], write: Callable[..., None]
) -> mutate_bytes.Mutator:
    """Return a mutator that changes the columns of a file and writes it again."""

    def mutate(rng: Random, data: bytes) -> bytes:
        try:
            table = read(io.BytesIO(data))
            table.validate(full=True)
            for _ in range(rng.choice((1, 1, 2))):
                table = rng.choice(CHANGES)(rng, table)
            out = io.BytesIO()
            write(rng, table, out)
            return out.getvalue()
        except FAILURES:
            return rng.choice(mutate_bytes.BYTES)(rng, data)

    return mutate


def foot(rng: Random, data: bytes) -> bytes:
    """Change bytes of a Parquet file's footer, whose length stands at its end."""
    length = int.from_bytes(data[-8:-4], "little")
    if not 0 < length < len(data) - 8:
        return mutate_bytes.flip(rng, data)
    start = len(data) - 8 - length
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = start + rng.randrange(length)
        out[at] = rng.choice(
            (out[at] ^ (1 << rng.randrange(8)), rng.randrange(256), 0xFF)
        )
    return bytes(out)


_PARQUET = _tables(pq.read_table, _parquet)
_ARROW = _tables(pa.feather.read_table, _arrow)

PARQUET: tuple[mutate_bytes.Mutator, ...] = (*[_PARQUET] * 4, foot)
ARROW: tuple[mutate_bytes.Mutator, ...] = (*[_ARROW] * 9, mutate_bytes.number)
