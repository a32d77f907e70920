"""The newest faults of each device, repeated for consumers that missed their events."""

from collections import deque
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from schemas.telemetry.readings import DeviceFacts, FaultSeen
from services.telemetry.domain.faults import Fault

MAX_PER_DEVICE: Final = 8


class RecentFaults:
    """Eight of each device, oldest first."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[FaultSeen]] = {}

    def add(self, fault: Fault, event_id: UUID, occurred_at: datetime) -> None:
        of_device = self._seen.setdefault(fault.device_uuid, deque(maxlen=MAX_PER_DEVICE))
        of_device.append(
            FaultSeen(
                event_id=event_id,
                occurred_at=occurred_at,
                change=fault.change,
                action=fault.action,
                xid=fault.xid,
                detail=fault.detail,
            )
        )

    def add_to(self, facts: DeviceFacts) -> DeviceFacts:
        if facts.uuid not in self._seen:
            return facts
        return msgspec.structs.replace(facts, recent_faults=tuple(self._seen[facts.uuid]))
