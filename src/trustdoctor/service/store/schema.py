"""The tables, and how a store comes to have them."""

from collections.abc import Callable
from secrets import token_hex

from trustdoctor.errors import InputError
from trustdoctor.service.store.base import Database, Session, transaction

TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE head (id {integer} PRIMARY KEY, last_position {integer} NOT NULL,
    current_version {integer} NOT NULL, shadow_version {integer},
    review_rates {integer} NOT NULL);
CREATE TABLE gates (version {integer} PRIMARY KEY, added_at {real} NOT NULL,
    origin TEXT NOT NULL, note TEXT NOT NULL, document TEXT NOT NULL);
CREATE TABLE gate_changes (position {integer} PRIMARY KEY, changed_at {real} NOT NULL,
    action TEXT NOT NULL, version {integer}, previous_version {integer});
CREATE TABLE review_rates (number {integer} PRIMARY KEY, rejected {real} NOT NULL,
    accepted {real} NOT NULL);
CREATE TABLE rows (position {integer} NOT NULL PRIMARY KEY, id TEXT, digest {bytes},
    decided_at {real} NOT NULL, version {integer} NOT NULL,
    review_rates {integer} NOT NULL, group_name TEXT, predicted TEXT, doubt {real},
    accepted {integer} NOT NULL, drawn {integer} NOT NULL, kind TEXT, output {bytes},
    features {bytes}, payload TEXT, shortlist TEXT, shadow_version {integer},
    shadow_accepted {integer}, label TEXT, judgement {integer}) {partitioned};
CREATE TABLE ids (id {id} PRIMARY KEY, position {integer} NOT NULL) {keyed};
CREATE TABLE labels (position {integer} PRIMARY KEY, row_position {integer} NOT NULL,
    labelled_at {real} NOT NULL, version {integer} NOT NULL, label TEXT,
    judgement {integer} NOT NULL, counted {integer} NOT NULL, source TEXT NOT NULL,
    author TEXT, lease TEXT);
CREATE INDEX labels_row_position ON labels (row_position);
CREATE TABLE review_queue (position {integer} PRIMARY KEY, id TEXT NOT NULL,
    doubt {real} NOT NULL, accepted {integer} NOT NULL, decided_at {real} NOT NULL,
    lease TEXT, leased_until {real} NOT NULL, reviewer TEXT);
CREATE INDEX review_queue_doubt ON review_queue (doubt, position);
CREATE INDEX review_queue_accepted ON review_queue (accepted, position);
CREATE INDEX review_queue_leased ON review_queue (leased_until) WHERE leased_until > 0;
CREATE TABLE review_counts (name TEXT PRIMARY KEY, rows {integer} NOT NULL);
CREATE TABLE version_counts (version {integer} PRIMARY KEY, rows {integer} NOT NULL,
    accepted {integer} NOT NULL, labels {integer} NOT NULL);
CREATE TABLE minute_counts (minute {integer} NOT NULL, version {integer} NOT NULL,
    rows {integer} NOT NULL, accepted {integer} NOT NULL, drawn {integer} NOT NULL,
    labels {integer} NOT NULL, PRIMARY KEY (minute, version));
CREATE TABLE shadow_counts (shadow_version {integer} NOT NULL,
    current_version {integer} NOT NULL, shadow_accepted {integer} NOT NULL,
    current_accepted {integer} NOT NULL, rows {integer} NOT NULL,
    correct {integer} NOT NULL, wrong {integer} NOT NULL, PRIMARY KEY
    (shadow_version, current_version, shadow_accepted, current_accepted));
CREATE TABLE watches (version {integer} PRIMARY KEY, step {integer} NOT NULL,
    position {integer} NOT NULL, summary TEXT NOT NULL);
CREATE TABLE watch_states (version {integer} PRIMARY KEY, step {integer} NOT NULL,
    position {integer} NOT NULL, stored_at {real} NOT NULL, state TEXT NOT NULL);
CREATE TABLE watch_checkpoints (version {integer} PRIMARY KEY, step {integer} NOT NULL,
    position {integer} NOT NULL, stored_at {real} NOT NULL, state TEXT NOT NULL);
CREATE TABLE watch_steps (version {integer} NOT NULL, step {integer} NOT NULL,
    position {integer} NOT NULL, taken_at {real} NOT NULL, entry TEXT NOT NULL,
    charted {integer} NOT NULL, PRIMARY KEY (version, step));
CREATE INDEX watch_steps_charted ON watch_steps (version, step) WHERE charted = 1;
CREATE TABLE alarms (version {integer} NOT NULL, test TEXT NOT NULL,
    raised_at {real} NOT NULL, reason TEXT NOT NULL, sent_at {real},
    attempts {integer} NOT NULL, retry_at {real} NOT NULL, PRIMARY KEY (version, test));
CREATE TABLE leaders (job TEXT PRIMARY KEY, replica TEXT NOT NULL,
    leads_until {real} NOT NULL)
"""
"""Times are seconds since 1970. Classes, groups, shortlists, payloads are JSON.

A position orders everything that is counted: rows, labels and changes of gates share
one counter. `rows.output` is what the model said, as doubles (top-k as JSON), and
`judgement` whether the prediction is right: 0 correct, 1 wrong, 2 undecided.
"""


def _create_tables(session: Session, database: Database) -> None:
    partitioned = database.name == "postgresql"
    words = database.column_types | {
        "partitioned": "PARTITION BY RANGE (position)" if partitioned else "",
        "keyed": "" if partitioned else "WITHOUT ROWID",
    }
    for statement in TABLES.format(**words).split(";"):
        session.run(statement)
    session.run("INSERT INTO head VALUES (1, 0, 0, NULL, 0)")
    session.run("INSERT INTO meta VALUES ('cookie secret', ?)", token_hex(32))


MIGRATIONS: list[Callable[[Session, Database], None]] = [_create_tables]
"""The n-th brings a store from schema n to schema n + 1; none is ever changed."""


def migrate(session: Session, database: Database) -> None:
    """Bring a store to this version's schema, or refuse one that it cannot read."""
    with transaction(session):
        if database.name == "postgresql":  # one replica at a time
            session.rows("SELECT pg_advisory_xact_lock(740812)")
            if session.rows("SHOW search_path")[0][0] == "trustdoctor":
                session.run("CREATE SCHEMA IF NOT EXISTS trustdoctor")
        # Version 0.2 was the only one to write this table; its columns had other names.
        if session.has_table("schema"):
            message = (
                "expected a store of trustdoctor 0.3 or later, got one of 0.2: export "
                "its rows with that version (GET /v1/export), and name a new --store."
            )
            raise InputError(message)
        session.run(
            "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)"
        )
        stored = session.rows("SELECT version FROM schema_version")
        version = stored[0][0] if stored else 0
        if version > len(MIGRATIONS):
            message = (
                f"expected a store of schema {len(MIGRATIONS)} or earlier, got "
                f"{version}: a later version of trustdoctor wrote it. Install that one."
            )
            raise InputError(message)
        if not stored:
            session.run("INSERT INTO schema_version VALUES (0)")
        for migration in MIGRATIONS[version:]:
            migration(session, database)
        session.run("UPDATE schema_version SET version = ?", len(MIGRATIONS))
        (last_position,) = session.rows("SELECT last_position FROM head")[0]
        database.make_partitions(session, last_position, last_position)
