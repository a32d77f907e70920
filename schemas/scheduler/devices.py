"""Devices and nodes out of service and back: the scheduler's commands and events."""

from enum import StrEnum
from typing import ClassVar, Final
from uuid import UUID

from msgspec import Struct

from schemas.base import Command, DeviceUuid, Event, GivenReason, NodeId, UtcDatetime
from schemas.scheduler.reservations import SetBy


class DeviceState(StrEnum):
    """Whether a device can be had. Only `free` is granted to a request that has no wishes."""

    FREE = "free"
    HELD = "held"
    QUARANTINED = "quarantined"  # its last holder's stop is not confirmed
    CORDONED = "cordoned"
    UNAVAILABLE = "unavailable"  # held by nobody and not granted: unwell, unread, used by others


class CordonCause(StrEnum):
    """Who or what set a cordon. One for a loss or a restore lifts itself once that is over."""

    OPERATOR = "operator"
    FAULT = "fault"  # one that asks for a drain or a reset
    GPU_LOST = "gpu_lost"
    NODE_LOST = "node_lost"
    MIG = "mig"  # the instance is about to be removed, for another
    RESTORED = "restored"  # the ledger is from a backup: what was granted since is unknown


LOSSES: Final = frozenset({CordonCause.GPU_LOST, CordonCause.NODE_LOST})
LIFTS_ITSELF: Final = LOSSES | {CordonCause.RESTORED}


class CordonState(Struct, frozen=True, kw_only=True):
    """Why a device or a node is out of service.

    `set_by` names the operator, if known. `until` says what lifts it, for people; `lifts_at` is
    when, once that is only a matter of time. `since_at` None: longer ago than that was recorded.
    """

    cause: CordonCause
    until: str
    reason: str = ""
    set_by: str = ""
    since_at: UtcDatetime | None = None
    lifts_at: UtcDatetime | None = None


class Cordon(Command, frozen=True, kw_only=True, tag="scheduler.cordon"):
    """Grant nothing new on a device (None: on the whole node). `set_by` says who asks, for
    people.
    """

    node_id: NodeId
    device_uuid: DeviceUuid | None = None
    reason: GivenReason = ""
    set_by: SetBy = ""


class Uncordon(Command, frozen=True, kw_only=True, tag="scheduler.uncordon"):
    """Take a device (None: the whole node) back into service.

    `confirm_stopped` also frees quarantined holdings.
    """

    node_id: NodeId
    device_uuid: DeviceUuid | None = None
    confirm_stopped: bool = False
    reason: GivenReason = ""


class Drain(Command, frozen=True, kw_only=True, tag="scheduler.drain"):
    """Cordon a node and end its reservations. `set_by` says who asks, for people."""

    node_id: NodeId
    reason: GivenReason = ""
    set_by: SetBy = ""


class DeviceEvent(Event, frozen=True, kw_only=True):
    """What all device facts carry."""

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    device_uuid: DeviceUuid
    reservation_id: UUID | None = None
    reason: str = ""


class DeviceQuarantined(DeviceEvent, frozen=True, kw_only=True, tag="scheduler.device_quarantined"):
    """Its last holder's stop is not confirmed; not granted until then."""


class DeviceFreed(DeviceEvent, frozen=True, kw_only=True, tag="scheduler.device_freed"):
    """The stop was confirmed by the node, or by an administrator."""


class DeviceCordoned(DeviceEvent, frozen=True, kw_only=True, tag="scheduler.device_cordoned"):
    """Taken out of service."""


class DeviceUncordoned(DeviceEvent, frozen=True, kw_only=True, tag="scheduler.device_uncordoned"):
    """Back in service."""
