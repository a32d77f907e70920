"""Which changes of health follow from what an agent sees."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from schemas.telemetry import DeviceFacts, HealthKind, HealthState


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """What is wrong at present, each with its cause; None and empty mean well.

    `hung` and `failed` stand until a reading succeeds, and may stand together.
    """

    hung: str | None = None
    failed: str | None = None
    lost: Mapping[str, str] = field(default_factory=dict)

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


def changes_between(before: NodeHealth, after: NodeHealth) -> list[Change]:
    """What to announce, causes before their ends."""
    found = [
        *_standing(before.failed, after.failed, HealthKind.SOURCE_FAILED),
        *_standing(before.hung, after.hung, HealthKind.PROBE_HUNG),
        *(
            Change(HealthKind.GPU_LOST, uuid, detail)
            for uuid, detail in after.lost.items()
            if uuid not in before.lost
        ),
    ]
    if before.failed is not None and after.failed is None:
        found.append(Change(HealthKind.SOURCE_RECOVERED))
    if before.hung is not None and after.hung is None:
        found.append(Change(HealthKind.PROBE_RECOVERED))
    found += [
        Change(HealthKind.GPU_RECOVERED, uuid) for uuid in before.lost if uuid not in after.lost
    ]
    return found


def with_health(facts: DeviceFacts, health: NodeHealth) -> DeviceFacts:
    """The facts with the present health. No device is ok whose source does not answer."""
    if facts.uuid in health.lost:
        return _unwell(facts, HealthState.LOST, health.lost[facts.uuid])
    if health.hung is not None:
        return _unwell(facts, HealthState.HUNG, health.hung)
    if health.failed is not None:
        return _unwell(facts, HealthState.LOST, health.failed)
    return msgspec.structs.replace(facts, health=HealthState.OK, health_detail=None)


def _unwell(facts: DeviceFacts, state: HealthState, detail: str) -> DeviceFacts:
    return msgspec.structs.replace(facts, health=state, health_detail=detail)


def _standing(before: str | None, after: str | None, kind: HealthKind) -> list[Change]:
    return [Change(kind, None, after)] if before is None and after is not None else []
