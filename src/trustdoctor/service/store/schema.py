"""The tables, and how a store of an earlier version comes to have them."""

from collections.abc import Callable
from secrets import token_hex

from trustdoctor.errors import InputError
from trustdoctor.service.store.base import Database, Session, transaction

TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE head (one {whole} PRIMARY KEY, position {whole} NOT NULL,
    current {whole} NOT NULL, shadow {whole}, rates {whole} NOT NULL);
CREATE TABLE gates (version {whole} PRIMARY KEY, at {real} NOT NULL,
    origin TEXT NOT NULL, note TEXT NOT NULL, content TEXT NOT NULL);
CREATE TABLE tallies (version {whole} PRIMARY KEY, rows {whole} NOT NULL,
    accepted {whole} NOT NULL, labels {whole} NOT NULL);
CREATE TABLE changes (position {whole} PRIMARY KEY, at {real} NOT NULL,
    what TEXT NOT NULL, version {whole}, before {whole});
CREATE TABLE rates (number {whole} PRIMARY KEY, rejected {real} NOT NULL,
    accepted {real} NOT NULL);
CREATE TABLE rows (position {whole} NOT NULL PRIMARY KEY, id TEXT, digest {bytes},
    at {real} NOT NULL, version {whole} NOT NULL, rates {whole} NOT NULL, team TEXT,
    predicted TEXT, doubt {real}, accepted {whole} NOT NULL, drawn {whole} NOT NULL,
    kind TEXT, answer {bytes}, features {bytes}, payload TEXT, shortlist TEXT,
    shadow {whole}, label TEXT, wrong {whole}) {partitioned};
CREATE TABLE ids (id {id} PRIMARY KEY, position {whole} NOT NULL) {keyed};
CREATE TABLE labels (position {whole} PRIMARY KEY, line {whole} NOT NULL,
    at {real} NOT NULL, version {whole} NOT NULL, label TEXT, wrong {whole} NOT NULL,
    source TEXT NOT NULL, counts {whole} NOT NULL, author TEXT, lease TEXT);
CREATE INDEX labels_line ON labels (line);
CREATE TABLE queue (line {whole} PRIMARY KEY, id TEXT NOT NULL, doubt {real} NOT NULL,
    audit {whole} NOT NULL, at {real} NOT NULL, lease TEXT, until {real} NOT NULL,
    reviewer TEXT);
CREATE INDEX queue_doubt ON queue (doubt, line);
CREATE INDEX queue_audit ON queue (audit, line);
CREATE INDEX queue_until ON queue (until) WHERE until > 0;
CREATE TABLE reviews (what TEXT PRIMARY KEY, rows {whole} NOT NULL);
CREATE TABLE watches (version {whole} PRIMARY KEY, number {whole} NOT NULL,
    upto {whole} NOT NULL, summary TEXT NOT NULL);
CREATE TABLE states (version {whole} PRIMARY KEY, number {whole} NOT NULL,
    upto {whole} NOT NULL, at {real} NOT NULL, state TEXT NOT NULL);
CREATE TABLE checkpoints (version {whole} PRIMARY KEY, number {whole} NOT NULL,
    upto {whole} NOT NULL, at {real} NOT NULL, state TEXT NOT NULL);
CREATE TABLE steps (version {whole} NOT NULL, number {whole} NOT NULL,
    upto {whole} NOT NULL, at {real} NOT NULL, entry TEXT NOT NULL,
    shown {whole} NOT NULL, PRIMARY KEY (version, number));
CREATE INDEX steps_shown ON steps (version, number) WHERE shown = 1;
CREATE TABLE alarms (version {whole} NOT NULL, test TEXT NOT NULL, at {real} NOT NULL,
    words TEXT NOT NULL, sent {real}, tries {whole} NOT NULL, due {real} NOT NULL,
    PRIMARY KEY (version, test));
CREATE TABLE minutes (minute {whole} NOT NULL, version {whole} NOT NULL,
    rows {whole} NOT NULL, accepted {whole} NOT NULL, drawn {whole} NOT NULL,
    labels {whole} NOT NULL, PRIMARY KEY (minute, version));
CREATE TABLE shadows (version {whole} NOT NULL, current {whole} NOT NULL,
    accepted {whole} NOT NULL, agrees {whole} NOT NULL, wrong {whole} NOT NULL,
    rows {whole} NOT NULL, PRIMARY KEY (version, current, accepted, agrees, wrong));
CREATE TABLE keepers (role TEXT PRIMARY KEY, holder TEXT NOT NULL,
    until {real} NOT NULL)
"""
"""`rows.team` is the group, and `labels.line` the position of the row."""


def _first(session: Session, database: Database) -> None:
    own = database.name == "postgresql"
    words = database.types | {
        "partitioned": "PARTITION BY RANGE (position)" if own else "",
        "keyed": "" if own else "WITHOUT ROWID",
    }
    for statement in TABLES.format(**words).split(";"):
        session.run(statement)
    session.run("INSERT INTO head VALUES (1, 0, 0, NULL, 0)")
    session.run("INSERT INTO meta VALUES ('secret', ?)", token_hex(32))


MIGRATIONS: list[Callable[[Session, Database], None]] = [_first]
"""The n-th brings a store from schema n to schema n + 1; none is ever changed."""


def migrate(session: Session, database: Database) -> None:
    """Bring a store to this version's schema, or refuse one of a later version."""
    with transaction(session):
        if database.name == "postgresql":  # one replica at a time
            session.rows("SELECT pg_advisory_xact_lock(740812)")
            if session.rows("SHOW search_path")[0][0] == "trustdoctor":
                session.run("CREATE SCHEMA IF NOT EXISTS trustdoctor")
        session.run("CREATE TABLE IF NOT EXISTS schema (version BIGINT NOT NULL)")
        found = session.rows("SELECT version FROM schema")
        at = found[0][0] if found else 0
        if at > len(MIGRATIONS):
            message = (
                f"expected a store of schema {len(MIGRATIONS)} or earlier, got {at}: a "
                "later version of trustdoctor wrote it. Install that one."
            )
            raise InputError(message)
        if not found:
            session.run("INSERT INTO schema VALUES (0)")
        for step in MIGRATIONS[at:]:
            step(session, database)
        session.run("UPDATE schema SET version = ?", len(MIGRATIONS))
        (position,) = session.rows("SELECT position FROM head")[0]
        database.prepare(session, position, position)
