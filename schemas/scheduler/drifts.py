"""Where ledger and nodes disagree, and for how long."""

from enum import StrEnum
from typing import ClassVar
from uuid import UUID

from schemas.base import DeviceUuid, Event, NodeId, UtcDatetime


class DriftKind(StrEnum):
    """How reserved, running and physically used disagree."""

    GHOST_RESERVATION = "ghost_reservation"
    ORPHAN_WORKLOAD = "orphan_workload"
    SQUATTER = "squatter"
    UNDERUSE = "underuse"
    STALE_AGENT = "stale_agent"
    CLOCK_SKEW = "clock_skew"


class DriftAction(StrEnum):
    """What the scheduler does about a drift by itself."""

    NONE = "none"  # reported, and left to people
    RELEASE = "release"  # the reservation is ended: nothing runs under it
    FENCE = "fence"  # its executor is asked to stop what runs without a grant
    AVOID = "avoid"  # what is used there counts as used in placement
    STOP_GRANTING = "stop_granting"  # nothing new until the node reports again


class DriftEvent(Event, frozen=True, kw_only=True):
    """What drift facts carry. `since_at` is when it was first seen, so its age is countable."""

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    drift: DriftKind
    device_uuid: DeviceUuid | None = None
    reservation_id: UUID | None = None
    detail: str = ""
    drift_id: UUID | None = None
    since_at: UtcDatetime | None = None
    action: DriftAction = DriftAction.NONE
    pids: tuple[int, ...] = ()


class DriftDetected(DriftEvent, frozen=True, kw_only=True, tag="scheduler.drift_detected"):
    """The ledgers disagree."""


class DriftResolved(DriftEvent, frozen=True, kw_only=True, tag="scheduler.drift_resolved"):
    """They agree again."""
