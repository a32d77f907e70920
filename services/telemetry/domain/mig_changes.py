"""Which MIG instances appeared and disappeared between two inventories."""

from collections.abc import Mapping

from schemas.telemetry.readings import DeviceFacts, HealthKind
from services.telemetry.domain.health import Change

Devices = Mapping[str, DeviceFacts]


def mig_changes(devices_before: Devices, devices_now: Devices) -> list[Change]:
    """Return one change per whole GPU whose mode or instances differ."""
    return [
        Change(HealthKind.MIG_CHANGED, uuid, _describe(facts, devices_now))
        for uuid, facts in devices_now.items()
        if uuid in devices_before
        and (
            facts.mig_enabled != devices_before[uuid].mig_enabled
            or _instances(uuid, devices_before) != _instances(uuid, devices_now)
        )
    ]


def find_removed_instances(devices_before: Devices, devices_now: Devices) -> set[str]:
    """Instances that are gone though their GPU is there: nothing is wrong with those."""
    return {
        uuid
        for uuid, facts in devices_before.items()
        if uuid not in devices_now
        and facts.parent_uuid is not None
        and facts.parent_uuid in devices_now
    }


def _instances(parent_uuid: str, devices: Devices) -> frozenset[str]:
    return frozenset(uuid for uuid, facts in devices.items() if facts.parent_uuid == parent_uuid)


def _describe(facts: DeviceFacts, devices: Devices) -> str:
    profiles = sorted(
        device.mig_profile or device.name
        for device in devices.values()
        if device.parent_uuid == facts.uuid
    )
    mode = "on" if facts.mig_enabled else "off"
    return f"MIG is {mode}" + (f": {', '.join(profiles)}" if profiles else "")
