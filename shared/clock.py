"""The wall clock. Domain code takes `now` as an argument instead."""

from datetime import UTC, datetime


def utcnow() -> datetime:
    """Now, aware, in UTC."""
    return datetime.now(UTC)
