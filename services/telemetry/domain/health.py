"""Which changes of health follow from a reading."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from schemas.telemetry.readings import DeviceFacts, HealthAction, HealthKind, HealthState
from services.telemetry.domain.faults import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """Present conditions, each with its cause; None and empty mean healthy.

    `hung` and `failed` concern every device; they stand until a reading succeeds, and may stand
    together. `lost`, `stuck` (its driver call does not return) and `failing` concern single ones.
    """

    hung: str | None = None
    failed: str | None = None
    lost: Mapping[str, str] = field(default_factory=dict)
    stuck: Mapping[str, str] = field(default_factory=dict)
    failing: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_readable(self) -> bool:
        """Whether the source as a whole answers."""
        return self.hung is None and self.failed is None


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that happened; `device_uuid` None concerns the whole agent."""

    kind: HealthKind
    device_uuid: str | None = None
    detail: str = ""
    xid: int | None = None
    action: HealthAction | None = None
    action_source: str | None = None
    reservation_id: UUID | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None

    @classmethod
    def of_fault(cls, fault: Fault) -> "Change":
        return cls(
            fault.change,
            fault.device_uuid,
            fault.detail,
            xid=fault.xid,
            action=fault.action,
            action_source=fault.action_source,
        )


def changes_between(before: NodeHealth, after: NodeHealth) -> list[Change]:
    """Beginnings before ends."""
    found = [
        *_standing(before.failed, after.failed, HealthKind.SOURCE_FAILED),
        *_standing(before.hung, after.hung, HealthKind.PROBE_HUNG),
        *_begun(before.lost, after.lost, HealthKind.GPU_LOST),
        *_begun(before.stuck, after.stuck, HealthKind.PROBE_HUNG),
    ]
    if before.failed is not None and after.failed is None:
        found.append(Change(HealthKind.SOURCE_RECOVERED))
    if before.hung is not None and after.hung is None:
        found.append(Change(HealthKind.PROBE_RECOVERED))
    found += _ended(before.lost, after.lost, HealthKind.GPU_RECOVERED)
    found += _ended(before.stuck, after.stuck, HealthKind.PROBE_RECOVERED)
    return found


def with_health(facts: DeviceFacts, health: NodeHealth) -> DeviceFacts:
    """The facts with the present health. No device is ok whose source does not answer."""
    if facts.uuid in health.lost:
        return _unwell(facts, HealthState.LOST, health.lost[facts.uuid])
    if health.hung is not None:
        return _unwell(facts, HealthState.HUNG, health.hung)
    if health.failed is not None:
        return _unwell(facts, HealthState.LOST, health.failed)
    if facts.uuid in health.stuck:
        return _unwell(facts, HealthState.HUNG, health.stuck[facts.uuid])
    if facts.uuid in health.failing:
        return _unwell(facts, HealthState.FAILING, health.failing[facts.uuid])
    return msgspec.structs.replace(facts, health=HealthState.OK, health_detail=None)


def _unwell(facts: DeviceFacts, state: HealthState, detail: str) -> DeviceFacts:
    return msgspec.structs.replace(facts, health=state, health_detail=detail)


def _begun(before: Mapping[str, str], after: Mapping[str, str], kind: HealthKind) -> list[Change]:
    return [Change(kind, uuid, detail) for uuid, detail in after.items() if uuid not in before]


def _ended(before: Mapping[str, str], after: Mapping[str, str], kind: HealthKind) -> list[Change]:
    return [Change(kind, uuid) for uuid in before if uuid not in after]


def _standing(before: str | None, after: str | None, kind: HealthKind) -> list[Change]:
    return [Change(kind, None, after)] if before is None and after is not None else []
