"""Where the service keeps its rows: SQLite or PostgreSQL, asked in one dialect."""

from trustdoctor.service.store.base import (
    DELETED,
    Database,
    Session,
    UnavailableError,
    attempt,
    open_database,
    transaction,
)
from trustdoctor.service.store.schema import migrate

__all__ = [
    "DELETED",
    "Database",
    "Session",
    "UnavailableError",
    "attempt",
    "migrate",
    "open_database",
    "transaction",
]
