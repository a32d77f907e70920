"""A drift: one disagreement of what is reserved, what runs and what is physically used."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.scheduler import DriftAction, DriftKind

DriftKey = tuple[DriftKind, NodeId, DeviceUuid | None, UUID | None]


class Finding(Struct, frozen=True, kw_only=True):
    """A disagreement as one look shows it; `key` tells whether two looks show the same one."""

    kind: DriftKind
    node_id: NodeId
    action: DriftAction
    detail: str
    device_uuid: DeviceUuid | None = None
    reservation_id: UUID | None = None
    pids: tuple[int, ...] = ()

    @property
    def key(self) -> DriftKey:
        """What it is about."""
        return (self.kind, self.node_id, self.device_uuid, self.reservation_id)


class Drift(Struct, frozen=True, kw_only=True):
    """A finding that has lasted beyond its grace, and was told. `since_at`: first seen."""

    drift_id: UUID
    since_at: datetime
    finding: Finding
    ended_at: datetime | None = None
