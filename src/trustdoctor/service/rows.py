"""Stored rows: one with its labels, one forgotten, many as Parquet."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
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
from trustdoctor.service.times import read_time, shown
from trustdoctor.service.versions import (
    WAITING,
    GateVersions,
    count_review,
    last_position_before,
    parse_version,
)

_ROW = (
    "SELECT r.position, r.decided_at, r.version, r.group_name, r.predicted, r.doubt, "
    "r.accepted, r.drawn, r.kind, r.payload, r.shortlist FROM ids i JOIN rows r "
    "ON r.position = i.position WHERE i.id = ?"
)


_PERSONAL = (
    *("id", "digest", "doubt", "kind", "output", "features", "payload", "shortlist"),
    *("label", "shadow_version", "shadow_accepted"),
)


def _plain(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _find(session: Session, name: str) -> tuple[Any, ...]:
    found = session.rows(_ROW, name)
    if not found:
        message = f"expected the id of a row, got {name!r}, which is not known."
        raise ProblemError(404, message, id=name)
    return found[0]


def find_row(session: Session, name: str) -> dict[str, Any]:
    """Return a decision, and the history of its labels."""
    position, at, version, team, said, doubt, kept, drawn, kind, payload, short = _find(
        session, name
    )
    labels = session.rows(
        "SELECT labelled_at, label, judgement, source, author FROM labels "
        "WHERE row_position = ? ORDER BY position",
        position,
    )
    return {
        "id": name,
        "at": shown(at),
        "version": version,
        "kind": kind,
        "predicted": _plain(said),
        "doubt": json_number(doubt),
        "accepted": bool(kept),
        "review": bool(drawn),
        "group": _plain(team),
        "shortlist": _plain(short),
        "payload": _plain(payload),
        "labels": [
            {
                "at": shown(when),
                "label": _plain(label),
                "correct": {0: True, 1: False}.get(wrong),
                "source": source,
                "by": author,
            }
            for when, label, wrong, source, author in labels
        ],
    }


def forget_row(session: Session, versions: GateVersions, name: str) -> dict[str, Any]:
    """Remove a person's data: what is left counts, and names nobody.

    The position, the version, and whether the row was accepted, drawn and wrong stay,
    so that the watch is the same when it is computed anew; for a gate with groups, the
    group stays, too.
    """
    position, _, number, *_ = _find(session, name)
    gate = versions.get(session, number).gate
    by_class = gate.grouped_by == PREDICTED
    gone = [
        *([] if gate.groups and not by_class else ["group_name"]),
        *([] if gate.groups and by_class else ["predicted"]),
    ]
    session.run("DELETE FROM ids WHERE id = ?", name)
    for audit, what in enumerate(WAITING):
        if session.run(
            "DELETE FROM review_queue WHERE position = ? AND accepted = ?",
            position,
            audit,
        ):
            count_review(session, what, -1)
    empty = ", ".join(f"{column} = NULL" for column in (*_PERSONAL, *gone))
    session.run(f"UPDATE rows SET {empty} WHERE position = ?", position)
    session.run(
        "UPDATE labels SET label = NULL, author = NULL, lease = NULL "
        "WHERE row_position = ?",
        position,
    )
    return {"id": name, "result": "forgotten"}


if TYPE_CHECKING:
    from trustdoctor.service.service import Service

PIECE = 50_000
"""Rows that are read at once."""

_COLUMNS = {"logits": "logit_", "probs": "prob_"}
_ASKED = ("kind", "version", "since", "until")


async def export_rows(service: "Service", asked: dict[str, str]) -> Response:
    """Return rows as a file of Parquet; a large one is never in memory as a whole."""
    odd = set(asked) - set(_ASKED)
    if odd:
        message = f"expected {', '.join(_ASKED)}, got {ascii(min(odd))[:40]}."
        raise ProblemError(400, message)
    handle, name = tempfile.mkstemp(suffix=".parquet")
    os.close(handle)
    path = Path(name)
    try:
        await service.work(lambda s: write_export(s, service.versions, asked, path))
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
    session: Session, versions: GateVersions, asked: dict[str, str], path: Path
) -> None:
    """Write rows of one kind into a file."""
    where, values = _where(session, asked)
    kind, names = _one_kind(session, versions, where, values)
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for number, rows in enumerate(_pieces(session, where, values)):
            part = Path(folder) / f"{number:08d}.parquet"
            _table(kind, names, rows).write_parquet(part)
            parts.append(part)
        whole = pl.scan_parquet(parts, glob=False)
        whole.sink_parquet(path)


def _where(session: Session, asked: dict[str, str]) -> tuple[str, list[Any]]:
    parts, values = ["output IS NOT NULL"], list[Any]()
    if "version" in asked:
        parts.append("version = ?")
        values.append(parse_version(asked["version"]))
    for name, sign, place in (("since", ">=", ">"), ("until", "<", "<=")):
        if name in asked:
            at = read_time(asked[name])
            # By position, which is found by halves; `decided_at` has no index.
            parts += [f"position {place} ?", f"decided_at {sign} ?"]
            values += [last_position_before(session, at), at]
    if "kind" in asked:
        if asked["kind"] not in KINDS:
            message = f"expected a kind out of {', '.join(KINDS)}, got another."
            raise ProblemError(400, message)
        parts.append("kind = ?")
        values.append(asked["kind"])
    return " AND ".join(parts), values


def _one_kind(
    session: Session, versions: GateVersions, where: str, values: list[Any]
) -> tuple[str, tuple[str, ...] | None]:
    """Return the kind of all rows, and the names of their classes.

    A file has rows of one kind, over the same classes.
    """
    found = session.rows(
        "SELECT version, kind, CASE WHEN kind = 'topk' THEN 0 ELSE length(output) END "
        f"AS size, count(*) FROM rows WHERE {where} GROUP BY version, kind, size",
        *values,
    )
    if not found:
        message = "expected rows to export, got none like that. Ask for others."
        raise ProblemError(404, message)
    kinds = {
        (kind, size, versions.get(session, version).names)
        for version, kind, size, _ in found
    }
    if len(kinds) > 1:
        told = ", ".join(sorted({f"version {v}: {kind}" for v, kind, *_ in found}))
        message = (
            f"expected rows of one kind over the same classes, got several ({told}). "
            "Ask for one: ?version=N, or ?kind=NAME."
        )
        raise ProblemError(409, message)
    kind, _, names = kinds.pop()
    return kind, names


def _pieces(session: Session, where: str, values: list[Any]) -> Iterator[list[Any]]:
    last = 0
    while True:
        rows = session.rows(
            "SELECT position, id, decided_at, version, group_name, predicted, doubt, "
            "accepted, drawn, label, judgement, kind, output FROM rows "
            f"WHERE position > ? AND {where} ORDER BY position LIMIT ?",
            last,
            *values,
            PIECE,
        )
        if not rows:
            return
        yield rows
        last = rows[-1][0]


def _table(kind: str, names: tuple[str, ...] | None, rows: list[Any]) -> pl.DataFrame:
    columns = list(zip(*rows, strict=True))
    known = {0: True, 1: False}
    numbers = names is None and kind in (*_COLUMNS, "topk")
    out: dict[str, Any] = {
        "id": pl.Series(columns[1], dtype=pl.String),
        "at": [datetime.fromtimestamp(at, UTC) for at in columns[2]],
        "version": pl.Series(columns[3], dtype=pl.Int64),
        "group": pl.Series(_texts(columns[4]), dtype=pl.String),
        "predicted": _classes(columns[5], numbers=numbers),
        "doubt": pl.Series(columns[6], dtype=pl.Float64),
        "accepted": pl.Series(columns[7], dtype=pl.Int64).cast(pl.Boolean),
        "reviewed": pl.Series(columns[8], dtype=pl.Int64).cast(pl.Boolean),
        "label": _classes(columns[9], numbers=numbers),
        "correct": pl.Series([known.get(one) for one in columns[10]], dtype=pl.Boolean),
    }
    return pl.DataFrame(out | _answers(kind, columns[12], names))


def _texts(values: Any) -> list[str | None]:
    return [None if one is None else str(_plain(one)) for one in values]


def _classes(values: Any, *, numbers: bool) -> pl.Series:
    """Return classes as numbers, or as text: alike in every piece."""
    plain = [None if one is None else _plain(one) for one in values]
    if numbers:
        return pl.Series(plain, dtype=pl.Int64)
    texts = [None if one is None else str(one) for one in plain]
    return pl.Series(texts, dtype=pl.String)


def _answers(kind: str, answers: Any, names: tuple[str, ...] | None) -> dict[str, Any]:
    if kind == "topk":
        pairs = [_plain(one) for one in answers]
        return {
            # Not "probs": those would be taken for the probabilities of all classes.
            "topk_classes": [list(map(str, own)) for own, _ in pairs],
            "topk_probs": [probs for _, probs in pairs],
            "confidence": [max(probs) for _, probs in pairs],
        }
    values = np.frombuffer(b"".join(answers), np.float64).reshape(len(answers), -1)
    if kind not in _COLUMNS:
        return {kind: values[:, 0]}
    start = _COLUMNS[kind]
    ends = names if names is not None else range(values.shape[1])
    return {f"{start}{end}": values[:, at] for at, end in enumerate(ends)}
