"""Reservations in sentences, called as people call them, with how long they have held or waited."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import SHORT_ID_CHARACTERS
from schemas.scheduler.namespaces import ANOTHER_NAMESPACE
from schemas.scheduler.reasons import Reason
from schemas.scheduler.reservations import holder_name

_MENTION: Final = re.compile(r"\breservation ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


class Holder(Struct, frozen=True, kw_only=True):
    """Who has a reservation. `granted_at` None: it is queued; `expected_end_at` None: unknown."""

    holder: str
    namespace: str
    requested_at: datetime
    granted_at: datetime | None = None
    expected_end_at: datetime | None = None


def find_ids(reasons: Iterable[Reason]) -> set[UUID]:
    """The reservations that the sentences name by their ids."""
    return {
        UUID(identifier) for reason in reasons for identifier in _MENTION.findall(reason.message)
    }


def with_names(
    reasons: Sequence[Reason],
    holders: Mapping[UUID, Holder],
    now: datetime,
    visible_namespaces: Collection[str] | None = None,
) -> tuple[Reason, ...]:
    """The reasons with each reservation of a known holder called by that and its time.

    `visible_namespaces` are those whose holders are named; None: all.
    """

    def describe(match: re.Match[str]) -> str:
        holder = holders.get(UUID(match[1]))
        if (
            holder is not None
            and visible_namespaces is not None
            and holder.namespace not in visible_namespaces
        ):
            holder = replace(holder, holder=ANOTHER_NAMESPACE)
        return match[0] if holder is None else _describe(match[1], holder, now)

    return tuple(
        replace(reason, message=_MENTION.sub(describe, reason.message)) for reason in reasons
    )


def _describe(identifier: str, holder: Holder, now: datetime) -> str:
    """`exec/ada (reservation 0123456789ab, for 12 min, about 3 min more)`."""
    facts = [f"reservation {identifier[-SHORT_ID_CHARACTERS:]}"]
    if holder.granted_at is None:
        facts.append(f"queued for {_duration(now - holder.requested_at)}")
    else:
        facts.append(f"for {_duration(now - holder.granted_at)}")
        if holder.expected_end_at is not None and holder.expected_end_at > now:
            facts.append(f"about {_duration(holder.expected_end_at - now)} more")
    return f"{holder_name(holder.holder) or 'somebody'} ({', '.join(facts)})"


def _duration(span: timedelta) -> str:
    seconds = max(0.0, span.total_seconds())
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
