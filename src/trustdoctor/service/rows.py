"""Stored rows: one with its labels, one forgotten, many as Parquet."""

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from trustdoctor.gates import PREDICTED
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.schemas import KINDS, json_number
from trustdoctor.service.store import Session
from trustdoctor.service.times import format_time, read_time
from trustdoctor.service.versions import (
    WAITING,
    GateVersions,
    count_review,
    last_position_before,
    parse_version,
)
from trustdoctor.watch import CORRECT, WRONG

if TYPE_CHECKING:
    from trustdoctor.service.service import Service

_ROW = (
    "SELECT r.position, r.decided_at, r.version, r.group_name, r.predicted, r.doubt, "
    "r.accepted, r.drawn, r.kind, r.payload, r.shortlist FROM ids i JOIN rows r "
    "ON r.position = i.position WHERE i.id = ?"
)

_PERSONAL_COLUMNS = (
    *("id", "digest", "doubt", "kind", "output", "features", "payload", "shortlist"),
    *("label", "shadow_version", "shadow_accepted"),
)
_IS_CORRECT = {CORRECT: True, WRONG: False}

EXPORT_BATCH = 50_000
"""Rows that an export reads at once."""

_COLUMN_PREFIXES = {"logits": "logit_", "probs": "prob_"}
_EXPORTED = (
    *("position", "id", "decided_at", "version", "group_name", "predicted", "doubt"),
    *("accepted", "drawn", "label", "judgement", "output"),
)
_EXPORT_PARAMETERS = ("kind", "version", "since", "until")


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _read_row(session: Session, name: str) -> tuple[Any, ...]:
    rows = session.rows(_ROW, name)
    if not rows:
        message = f"expected the id of a row, got {name!r}, which is not known."
        raise ProblemError(404, message, id=name)
    return rows[0]


def find_row(session: Session, name: str) -> dict[str, Any]:
    """Return a decision, and the history of its labels."""
    position, decided_at, version, group, predicted, doubt, *rest = _read_row(
        session, name
    )
    accepted, drawn, kind, payload, shortlist = rest
    labels = session.rows(
        "SELECT labelled_at, label, judgement, source, author FROM labels "
        "WHERE row_position = ? ORDER BY position",
        position,
    )
    return {
        "id": name,
        "at": format_time(decided_at),
        "version": version,
        "kind": kind,
        "predicted": _decoded(predicted),
        "doubt": json_number(doubt),
        "accepted": bool(accepted),
        "review": bool(drawn),
        "group": _decoded(group),
        "shortlist": _decoded(shortlist),
        "payload": _decoded(payload),
        "labels": [
            {
                "at": format_time(labelled_at),
                "label": _decoded(label),
                "correct": _IS_CORRECT.get(judgement),
                "source": source,
                "by": author,
            }
            for labelled_at, label, judgement, source, author in labels
        ],
    }


def forget_row(session: Session, versions: GateVersions, name: str) -> dict[str, Any]:
    """Remove a person's data: what stays counts, and names nobody.

    The position, the version, and whether the row was accepted, drawn and wrong stay,
    so that the watch is the same when it is computed anew. So does the group, if the
    gate has thresholds for groups.
    """
    position, _, number, *_ = _read_row(session, name)
    gate = versions.get(session, number).gate
    group_column = None
    if gate.groups:
        group_column = "predicted" if gate.grouped_by == PREDICTED else "group_name"
    columns = [*_PERSONAL_COLUMNS]
    columns += [c for c in ("group_name", "predicted") if c != group_column]
    session.run("DELETE FROM ids WHERE id = ?", name)
    for accepted, count in enumerate(WAITING):
        if session.run(
            "DELETE FROM review_queue WHERE position = ? AND accepted = ?",
            position,
            accepted,
        ):
            count_review(session, count, -1)
    nulls = ", ".join(f"{column} = NULL" for column in columns)
    session.run(f"UPDATE rows SET {nulls} WHERE position = ?", position)
    session.run(
        "UPDATE labels SET label = NULL, author = NULL, lease = NULL "
        "WHERE row_position = ?",
        position,
    )
    return {"id": name, "result": "forgotten"}


async def export_rows(service: "Service", parameters: dict[str, str]) -> Response:
    """Return rows as a file of Parquet; a large one is never in memory as a whole."""
    unknown = set(parameters) - set(_EXPORT_PARAMETERS)
    if unknown:
        expected = ", ".join(_EXPORT_PARAMETERS)
        message = f"expected {expected}, got {ascii(min(unknown))[:40]}."
        raise ProblemError(400, message)
    handle, name = tempfile.mkstemp(suffix=".parquet")
    os.close(handle)
    path = Path(name)
    try:
        await service.read_long(
            lambda s: write_export(s, service.versions, parameters, path)
        )
    except BaseException:
        path.unlink()
        raise
    return FileResponse(
        path,
        media_type="application/vnd.apache.parquet",
        filename="decisions.parquet",
        headers={"cache-control": "no-store"},
        background=BackgroundTask(asyncio.to_thread, path.unlink),
    )


def write_export(
    session: Session, versions: GateVersions, parameters: dict[str, str], path: Path
) -> None:
    """Write rows of one kind into a file."""
    condition, values = _condition(session, parameters)
    kind, names = _kind_and_names(session, versions, condition, values)
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for number, rows in enumerate(_batches(session, condition, values)):
            part = Path(folder) / f"{number:08d}.parquet"
            _table(kind, names, rows).write_parquet(part)
            parts.append(part)
        pl.scan_parquet(parts, glob=False).sink_parquet(path)


def _condition(
    session: Session, parameters: dict[str, str]
) -> tuple[str, list[int | float | str]]:
    """Return what to export as SQL, and its values."""
    terms = ["output IS NOT NULL"]  # that of a forgotten row is gone
    values: list[int | float | str] = []
    if "version" in parameters:
        terms.append("version = ?")
        values.append(parse_version(parameters["version"]))
    for name, time_sign, position_sign in (("since", ">=", ">"), ("until", "<", "<=")):
        if name in parameters:
            time = read_time(parameters[name])
            # Also by position: `decided_at` has no index.
            terms += [f"position {position_sign} ?", f"decided_at {time_sign} ?"]
            values += [last_position_before(session, time), time]
    if "kind" in parameters:
        if parameters["kind"] not in KINDS:
            message = f"expected a kind out of {', '.join(KINDS)}, got another."
            raise ProblemError(400, message)
        terms.append("kind = ?")
        values.append(parameters["kind"])
    return " AND ".join(terms), values


def _kind_and_names(
    session: Session, versions: GateVersions, condition: str, values: Sequence[Any]
) -> tuple[str, tuple[str, ...] | None]:
    """Return the kind of all rows, and the names of their classes.

    A file has rows of one kind, over the same classes.
    """
    groups = session.rows(
        "SELECT version, kind, CASE WHEN kind = 'topk' THEN 0 ELSE length(output) END "
        f"AS size, count(*) FROM rows WHERE {condition} GROUP BY version, kind, size",
        *values,
    )
    if not groups:
        message = "expected rows to export, got none like that. Ask for others."
        raise ProblemError(404, message)
    kinds = {
        (kind, size, versions.get(session, version).names)
        for version, kind, size, _ in groups
    }
    if len(kinds) > 1:
        listed = sorted({f"version {version}: {kind}" for version, kind, *_ in groups})
        message = (
            "expected rows of one kind over the same classes, got several "
            f"({', '.join(listed)}). Ask for one: ?version=N, or ?kind=NAME."
        )
        raise ProblemError(409, message)
    kind, _, names = kinds.pop()
    return kind, names


def _batches(
    session: Session, condition: str, values: Sequence[Any]
) -> Iterator[list[Any]]:
    last = 0
    while True:
        rows = session.rows(
            f"SELECT {', '.join(_EXPORTED)} FROM rows "
            f"WHERE position > ? AND {condition} ORDER BY position LIMIT ?",
            last,
            *values,
            EXPORT_BATCH,
        )
        if not rows:
            return
        yield rows
        last = rows[-1][0]


def _table(kind: str, names: tuple[str, ...] | None, rows: list[Any]) -> pl.DataFrame:
    # Types are given: a batch of nulls alone must have those of the others.
    columns = dict(zip(_EXPORTED, zip(*rows, strict=True), strict=True))
    by_number = names is None and kind in (*_COLUMN_PREFIXES, "topk")
    correct = [_IS_CORRECT.get(judgement) for judgement in columns["judgement"]]
    return pl.DataFrame(
        {
            "id": pl.Series(columns["id"], dtype=pl.String),
            "at": [datetime.fromtimestamp(time, UTC) for time in columns["decided_at"]],
            "version": pl.Series(columns["version"], dtype=pl.Int64),
            "group": _class_series(columns["group_name"], by_number=False),
            "predicted": _class_series(columns["predicted"], by_number=by_number),
            "doubt": pl.Series(columns["doubt"], dtype=pl.Float64),
            "accepted": pl.Series(columns["accepted"], dtype=pl.Int64).cast(pl.Boolean),
            "reviewed": pl.Series(columns["drawn"], dtype=pl.Int64).cast(pl.Boolean),
            "label": _class_series(columns["label"], by_number=by_number),
            "correct": pl.Series(correct, dtype=pl.Boolean),
            **_output_columns(kind, columns["output"], names),
        }
    )


def _class_series(texts: Any, *, by_number: bool) -> pl.Series:
    """Return groups or classes as numbers, or as text."""
    values = [_decoded(text) for text in texts]
    if by_number:
        return pl.Series(values, dtype=pl.Int64)
    names = [None if value is None else str(value) for value in values]
    return pl.Series(names, dtype=pl.String)


def _output_columns(
    kind: str, outputs: Any, names: tuple[str, ...] | None
) -> dict[str, Any]:
    if kind == "topk":
        pairs = [msgspec.json.decode(output) for output in outputs]
        return {
            # Not "probs": those would be taken for the probabilities of all classes.
            "topk_classes": [list(map(str, classes)) for classes, _ in pairs],
            "topk_probs": [probs for _, probs in pairs],
            "confidence": [max(probs) for _, probs in pairs],
        }
    values = np.frombuffer(b"".join(outputs), np.float64).reshape(len(outputs), -1)
    if kind not in _COLUMN_PREFIXES:
        return {kind: values[:, 0]}
    suffixes = names if names is not None else range(values.shape[1])
    return {
        f"{_COLUMN_PREFIXES[kind]}{suffix}": values[:, number]
        for number, suffix in enumerate(suffixes)
    }
