"""The spans of time whose samples one packed row has."""

from datetime import timedelta
from typing import Final

SPAN: Final = timedelta(minutes=5)


def spans_of(start: str, end: str) -> str:
    """Return what a query of `stored_sample` says beside its times, so that of the packed rows it
    unpacks only those of these times.
    """
    return (
        f"span_at > {start}::timestamptz - interval '{SPAN // timedelta(minutes=1)} minutes'"
        f" AND span_at <= {end}"
    )
