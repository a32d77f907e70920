"""Which MIG instances appeared and disappeared between two inventories."""

from collections.abc import Mapping

from schemas.telemetry.readings import DeviceFacts, HealthKind
from services.telemetry.domain.health import Change

Devices = Mapping[str, DeviceFacts]


def mig_changes(before: Devices, after: Devices) -> list[Change]:
    """One change per whole GPU whose mode or instances are not what they were."""
    return [
        Change(HealthKind.MIG_CHANGED, uuid, _described(facts, after))
        for uuid, facts in after.items()
        if uuid in before
        and (
            facts.mig_enabled != before[uuid].mig_enabled
            or _instances(uuid, before) != _instances(uuid, after)
        )
    ]


def removed_instances(before: Devices, after: Devices) -> set[str]:
    """Instances that are gone though their GPU is there: nothing is wrong with those."""
    return {
        uuid
        for uuid, facts in before.items()
        if uuid not in after and facts.parent_uuid is not None and facts.parent_uuid in after
    }


def _instances(parent_uuid: str, devices: Devices) -> frozenset[str]:
    return frozenset(uuid for uuid, facts in devices.items() if facts.parent_uuid == parent_uuid)


def _described(facts: DeviceFacts, devices: Devices) -> str:
    profiles = sorted(
        device.mig_profile or device.name
        for device in devices.values()
        if device.parent_uuid == facts.uuid
    )
    mode = "on" if facts.mig_enabled else "off"
    return f"MIG is {mode}" + (f": {', '.join(profiles)}" if profiles else "")
