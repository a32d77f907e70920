"""Reservations in sentences, called as people call them, with how long they have held or waited."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.scheduler.reasons import Reason
from schemas.scheduler.reservations import holder_name

SHORT_ID_CHARACTERS: Final = 12
_MENTION: Final = re.compile(r"\breservation ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")
ANOTHER_NAMESPACE: Final = "another namespace"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


class Holder(Struct, frozen=True, kw_only=True):
    """Who has a reservation. `granted_at` None: it is queued; `expected_end_at` None: unknown."""

    holder: str
    namespace: str
    requested_at: datetime
    granted_at: datetime | None = None
    expected_end_at: datetime | None = None


def mentioned(reasons: Iterable[Reason]) -> set[UUID]:
    """The reservations that the sentences name by their ids."""
    return {UUID(found) for reason in reasons for found in _MENTION.findall(reason.message)}


def with_names(
    reasons: Sequence[Reason],
    holders: Mapping[UUID, Holder],
    now: datetime,
    told: Collection[str] | None = None,
) -> tuple[Reason, ...]:
    """The reasons with each reservation of a known holder called by that and its time.

    `told` are the namespaces whose holders are named; None: all.
    """

    def named(found: re.Match[str]) -> str:
        holder = holders.get(UUID(found[1]))
        if holder is not None and told is not None and holder.namespace not in told:
            holder = replace(holder, holder=ANOTHER_NAMESPACE)
        return found[0] if holder is None else _described(found[1], holder, now)

    return tuple(replace(reason, message=_MENTION.sub(named, reason.message)) for reason in reasons)


def _described(identifier: str, holder: Holder, now: datetime) -> str:
    """`exec/ada (reservation 0123456789ab, for 12 min, about 3 min more)`."""
    known = [f"reservation {identifier[-SHORT_ID_CHARACTERS:]}"]
    if holder.granted_at is None:
        known.append(f"queued for {_duration(now - holder.requested_at)}")
    else:
        known.append(f"for {_duration(now - holder.granted_at)}")
        if holder.expected_end_at is not None and holder.expected_end_at > now:
            known.append(f"about {_duration(holder.expected_end_at - now)} more")
    return f"{holder_name(holder.holder) or 'somebody'} ({', '.join(known)})"


def _duration(span: timedelta) -> str:
    seconds = max(0.0, span.total_seconds())
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
