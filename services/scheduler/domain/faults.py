"""Which faults take a device out of service, which silence is a loss, and when a loss is over."""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.scheduler.devices import LOSSES, CordonCause, CordonState
from schemas.telemetry.readings import (
    FaultSeen,
    HealthAction,
    HealthChanged,
    HealthKind,
    InventoryReported,
)

OUT_OF_SERVICE: Final = frozenset({HealthAction.DRAIN, HealthAction.RESET})


class Fault(Struct, frozen=True, kw_only=True):
    """A fault to act on once. `device_uuid` None: the whole node."""

    event_id: UUID
    device_uuid: DeviceUuid | None
    reason: str
    cause: CordonCause = CordonCause.FAULT


class NodeSilence(Struct, frozen=True, kw_only=True):
    """How long no message came from a node: not from its agent, not from its executor.

    `was_stopped`: its agent reported that it stops.
    """

    node_id: NodeId
    seconds: float
    was_stopped: bool = False


class Loss(Struct, frozen=True, kw_only=True):
    """A cordon for a loss or a restore: of a device, or with `device_no` None of a whole node.

    `is_well`: it is there again, without a fault, and accounted for after a restore. `quiet_since`:
    first seen so since the loss. `needs_quiet`: it has to stay so for a while.
    """

    node_id: NodeId
    device_no: int | None
    is_well: bool
    quiet_since: datetime | None
    needs_quiet: bool = True


class Recovery(Struct, frozen=True, kw_only=True):
    """Losses that seem over from now on, that are not over after all, and that are over."""

    new_losses: tuple[Loss, ...]
    broken: tuple[Loss, ...]
    over: tuple[Loss, ...]


def fault_of_event(event: HealthChanged) -> Fault | None:
    """The fault that an agent reports, if it takes anything out of service."""
    lost_nothing = event.change is HealthKind.GPU_LOST and event.device_uuid is None
    if lost_nothing or not _ends_service(event):
        return None
    return Fault(
        event_id=event.message_id,
        device_uuid=event.device_uuid,
        reason=_reason(event),
        cause=_cause(event),
    )


def faults_of_inventory(event: InventoryReported) -> tuple[Fault, ...]:
    """The faults that an inventory repeats, in case their events were missed."""
    return tuple(
        Fault(
            event_id=fault.event_id,
            device_uuid=device.uuid,
            reason=_reason(fault),
            cause=_cause(fault),
        )
        for device in event.devices
        for fault in device.recent_faults
        if _ends_service(fault)
    )


def lost_nodes(
    silences: Sequence[NodeSilence], *, limit_seconds: float, outage_seconds: float
) -> tuple[NodeId, ...]:
    """The nodes that count as lost.

    If no message came from any of several nodes within `outage_seconds`, the network is out, not
    they; of a node whose agent reported that it stops none is expected.
    """
    expected = [node for node in silences if not node.was_stopped]
    is_outage = len(expected) > 1 and all(node.seconds > outage_seconds for node in expected)
    return tuple(
        node.node_id
        for node in silences
        if node.seconds > limit_seconds and (node.was_stopped or not is_outage)
    )


def recovery(losses: Sequence[Loss], *, now: datetime, quiet_seconds: float) -> Recovery:
    """A loss is over once its device or node was well for `quiet_seconds` without a break; what was
    restored as soon as it is accounted for.
    """

    def is_over(loss: Loss) -> bool:
        quiet = (now - (loss.quiet_since or now)).total_seconds()
        return loss.is_well and (quiet >= quiet_seconds or not loss.needs_quiet)

    return Recovery(
        new_losses=tuple(
            x for x in losses if x.is_well and x.quiet_since is None and not is_over(x)
        ),
        broken=tuple(x for x in losses if not x.is_well and x.quiet_since is not None),
        over=tuple(x for x in losses if is_over(x)),
    )


def is_accounted_for(
    running: Iterable[UUID] | None, held_ids: Collection[UUID], *, has_executor: bool
) -> bool:
    """Return True if all that runs on a node is held in a ledger that was restored.

    `running` are the reservations of which its executor finds something; None: it did not answer.
    What was granted after the backup is in no ledger, and only the node knows of it.
    """
    if running is None:
        return not has_executor
    return all(reservation_id in held_ids for reservation_id in running)


def cordon_state(
    cause: CordonCause,
    *,
    reason: str,
    set_by: str,
    since_at: datetime | None,
    quiet_since: datetime | None,
    quiet_seconds: float,
) -> CordonState:
    """A cordon as people see it."""
    lifts_at = None
    if cause is CordonCause.MIG:
        until = "its agent has removed it, or refused to"
    elif cause is CordonCause.RESTORED:
        until = "its node has reported what runs there, and leases from before the restore are over"
    elif cause not in LOSSES:
        until = "it is uncordoned"
    elif quiet_since is None:
        until = f"it has been well for {quiet_seconds:g} s"
    else:
        lifts_at = quiet_since + timedelta(seconds=quiet_seconds)
        until = f"{lifts_at.astimezone(UTC):%H:%M:%S} UTC, if it stays well"
    return CordonState(
        cause=cause,
        until=until,
        reason=reason,
        set_by=set_by,
        since_at=since_at,
        lifts_at=lifts_at,
    )


def _ends_service(fault: FaultSeen | HealthChanged) -> bool:
    return fault.change is HealthKind.GPU_LOST or fault.action in OUT_OF_SERVICE


def _cause(fault: FaultSeen | HealthChanged) -> CordonCause:
    lasts = fault.action in OUT_OF_SERVICE or fault.change is not HealthKind.GPU_LOST
    return CordonCause.FAULT if lasts else CordonCause.GPU_LOST


def _reason(fault: FaultSeen | HealthChanged) -> str:
    what = f"XID {fault.xid}" if fault.xid is not None else fault.change.value.replace("_", " ")
    return f"{what}: {fault.detail}" if fault.detail else what
