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
    """How long no message came from a node: not from its agent, not from its executor.

    `was_stopped`: its agent reported that it stops. `holds`: a live reservation has devices there.
    """

    node_id: NodeId
    seconds: float
    was_stopped: bool = False
    holds: bool = False


def fault_of_event(event: HealthChanged) -> Fault | None:
    """The fault that an agent reports, if it takes anything out of service."""
    lost_nothing = event.change is HealthKind.GPU_LOST and event.device_uuid is None
    if lost_nothing or not _ends_service(event):
        return None
    return Fault(event_id=event.message_id, device_uuid=event.device_uuid, reason=_reason(event))


def faults_of_inventory(event: InventoryReported) -> tuple[Fault, ...]:
    """The faults that an inventory repeats, in case their events were missed."""
    return tuple(
        Fault(event_id=seen.event_id, device_uuid=device.uuid, reason=_reason(seen))
        for device in event.devices
        for seen in device.recent_faults
        if _ends_service(seen)
    )


def lost_nodes(
    silences: Sequence[NodeSilence], *, limit_seconds: float, outage_seconds: float
) -> tuple[NodeId, ...]:
    """The nodes that count as lost.

    If no message came from any of several nodes within `outage_seconds`, the network is out, not
    they. A node stopped on purpose is lost only if a live reservation has devices there.
    """
    expected = [node for node in silences if node.holds or not node.was_stopped]
    if len(expected) > 1 and all(node.seconds > outage_seconds for node in expected):
        return ()
    return tuple(node.node_id for node in expected if node.seconds > limit_seconds)


def _ends_service(seen: FaultSeen | HealthChanged) -> bool:
    return seen.change is HealthKind.GPU_LOST or seen.action in OUT_OF_SERVICE


def _reason(seen: FaultSeen | HealthChanged) -> str:
    what = f"XID {seen.xid}" if seen.xid is not None else seen.change.value.replace("_", " ")
    return f"{what}: {seen.detail}" if seen.detail else what
