"""Why something waits: a sentence, when it starts, and the reasons, gathered or one by one."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from schemas.scheduler.reason_counts import counts_text
from schemas.scheduler.reason_groups import group
from schemas.scheduler.reasons import Reason
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import AvailabilityView, Explanation
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import first_of, until

LISTED_NODES: Final = 4
NO_END: Final = "a lease or a duration that matters has no end yet"


def reason_table(reasons: Sequence[Reason]) -> Table:
    """Return every reason with its place."""
    rows = [
        [
            reason.code.value,
            reason.node_id or UNKNOWN,
            reason.device_uuid or UNKNOWN,
            reason.message,
        ]
        for reason in reasons
    ]
    return Table(
        ["reason", "node", "device", "says"],
        rows,
        important=("says",),
        shortened=frozenset({"device"}),
        wrapped=frozenset({"says"}),
    )


def reason_group_table(reasons: Sequence[Reason]) -> Table:
    """Return the reasons gathered by what they say and of whom, with how many and where."""
    rows = [
        [
            reason_group.code.value,
            str(reason_group.count),
            first_of(reason_group.node_ids, LISTED_NODES) or UNKNOWN,
            reason_group.says,
        ]
        for reason_group in group(reasons)
    ]
    return Table(
        ["reason", "count", "nodes", "says"],
        rows,
        numeric=frozenset({"count"}),
        important=("says", "count"),
        shortened=frozenset({"nodes"}),
        wrapped=frozenset({"says"}),
    )


def explanation_text(explanation: Explanation) -> str:
    """Return the sentence above the reasons, below what it is about."""
    where = ""
    if explanation.queue_position is not None:
        where = f", position {explanation.queue_position} of {explanation.queue_length}"
    state = explanation.state.value
    return f"reservation {explanation.reservation_id}: {state}{where}\n{explanation.summary}"


def help_lines(view: Explanation | AvailabilityView, now: datetime | None = None) -> list[str]:
    """Return when it starts, what would help, and what is not among the reasons that follow."""
    lines = []
    if view.expected_start_at is not None:
        at = view.expected_start_at.astimezone(UTC)
        lines.append(f"expected start: {at:%Y-%m-%d %H:%M:%S} UTC, in {until(at, now)}")
    elif _waits(view):
        lines.append(f"expected start: unknown, {NO_END}")
    if view.suggestion is not None:
        lines.append(f"what would help: {view.suggestion.message}")
    if view.reasons_left_out:
        count = sum(view.reasons_left_out.values())
        which = counts_text(view.reasons_left_out)
        lines.append(f"of {count + len(view.reasons)} reasons {count} are left out below: {which}")
    return lines


def _waits(view: Explanation | AvailabilityView) -> bool:
    if isinstance(view, Explanation):
        return view.state is ReservationState.QUEUED
    return not (view.available or view.impossible)
