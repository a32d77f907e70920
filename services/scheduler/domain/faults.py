"""Which faults take a device out of service, and when a silent node is lost."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.telemetry import FaultSeen, HealthAction, HealthChanged, HealthKind, InventoryReported

OUT_OF_SERVICE: Final = frozenset({HealthAction.DRAIN, HealthAction.RESET})


class Fault(Struct, frozen=True, kw_only=True):
    """A fault to act on once. `device_uuid` None: the whole node."""

    event_id: UUID
    device_uuid: DeviceUuid | None
    reason: str


class NodeSilence(Struct, frozen=True, kw_only=True):
    """How long nothing was heard of a node: not its agent, not its executor.

    `was_stopped`: its agent said that it stops. `holds`: a reservation lives there.
    """

    node_id: NodeId
    seconds: float
    was_stopped: bool = False
    holds: bool = False


def fault_of_event(event: HealthChanged) -> Fault | None:
    """The fault that an agent tells, if it takes anything out of service."""
    if not _ends_service(event.change, event.action):
        return None
    if event.change is HealthKind.GPU_LOST and event.device_uuid is None:
        return None
    return Fault(
        event_id=event.message_id,
        device_uuid=event.device_uuid,
        reason=_reason(event.change, event.xid, event.detail),
    )


def faults_of_inventory(event: InventoryReported) -> tuple[Fault, ...]:
    """The faults that an inventory repeats, for whoever missed their events."""
    return tuple(
        Fault(
            event_id=seen.event_id,
            device_uuid=device.uuid,
            reason=_reason(seen.change, seen.xid, seen.detail),
        )
        for device in event.devices
        for seen in device.recent_faults
        if _is_out_of_service(seen)
    )


def lost_nodes(
    silences: Sequence[NodeSilence], *, limit_seconds: float, outage_seconds: float
) -> tuple[NodeId, ...]:
    """The nodes that count as lost.

    If none of several nodes was heard within `outage_seconds`, the way to them is out, not they. A
    node that was stopped on purpose is lost only to a reservation that lives there.
    """
    expected = [node for node in silences if node.holds or not node.was_stopped]
    if len(expected) > 1 and all(node.seconds > outage_seconds for node in expected):
        return ()
    return tuple(node.node_id for node in expected if node.seconds > limit_seconds)


def _is_out_of_service(seen: FaultSeen) -> bool:
    return _ends_service(seen.change, seen.action)


def _ends_service(change: HealthKind, action: HealthAction | None) -> bool:
    return change is HealthKind.GPU_LOST or action in OUT_OF_SERVICE


def _reason(change: HealthKind, xid: int | None, detail: str) -> str:
    what = f"XID {xid}" if xid is not None else change.value.replace("_", " ")
    return f"{what}: {detail}" if detail else what
