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
        """True if the source as a whole answers."""
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


def changes_between(health_before: NodeHealth, health_now: NodeHealth) -> list[Change]:
    """Beginnings before ends."""
    changes = [
        *_standing(health_before.failed, health_now.failed, HealthKind.SOURCE_FAILED),
        *_standing(health_before.hung, health_now.hung, HealthKind.PROBE_HUNG),
        *_began(health_before.lost, health_now.lost, HealthKind.GPU_LOST),
        *_began(health_before.stuck, health_now.stuck, HealthKind.PROBE_HUNG),
    ]
    if health_before.failed is not None and health_now.failed is None:
        changes.append(Change(HealthKind.SOURCE_RECOVERED))
    if health_before.hung is not None and health_now.hung is None:
        changes.append(Change(HealthKind.PROBE_RECOVERED))
    changes += _over(health_before.lost, health_now.lost, HealthKind.GPU_RECOVERED)
    changes += _over(health_before.stuck, health_now.stuck, HealthKind.PROBE_RECOVERED)
    return changes


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


def _began(
    reasons_before: Mapping[str, str], reasons_now: Mapping[str, str], kind: HealthKind
) -> list[Change]:
    return [
        Change(kind, uuid, detail)
        for uuid, detail in reasons_now.items()
        if uuid not in reasons_before
    ]


def _over(
    reasons_before: Mapping[str, str], reasons_now: Mapping[str, str], kind: HealthKind
) -> list[Change]:
    return [Change(kind, uuid) for uuid in reasons_before if uuid not in reasons_now]


def _standing(reason_before: str | None, reason_now: str | None, kind: HealthKind) -> list[Change]:
    return (
        [Change(kind, None, reason_now)] if reason_before is None and reason_now is not None else []
    )
