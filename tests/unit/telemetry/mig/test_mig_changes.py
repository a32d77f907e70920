"""What is told when a GPU is partitioned."""

from schemas.telemetry.readings import DeviceFacts, HealthKind
from services.telemetry.domain.mig_changes import find_removed_instances, mig_changes

WHOLE = DeviceFacts(uuid="GPU-0", index=0, name="H100", mig_enabled=False)
CUT = DeviceFacts(uuid="GPU-0", index=0, name="H100", mig_enabled=True)
PART = DeviceFacts(uuid="MIG-1", index=1, name="MIG", parent_uuid="GPU-0", mig_profile="1g.10gb")


def by_uuid(*devices: DeviceFacts) -> dict[str, DeviceFacts]:
    return {device.uuid: device for device in devices}


def test_partitioning_and_its_end_are_changes() -> None:
    (cut,) = mig_changes(by_uuid(WHOLE), by_uuid(CUT, PART))
    (joined,) = mig_changes(by_uuid(CUT, PART), by_uuid(WHOLE))

    assert (cut.kind, cut.device_uuid) == (HealthKind.MIG_CHANGED, "GPU-0")
    assert cut.detail == "MIG is on: 1g.10gb"
    assert joined.detail == "MIG is off"
    assert mig_changes(by_uuid(CUT, PART), by_uuid(PART, CUT)) == []


def test_instance_is_dissolved_only_with_its_gpu() -> None:
    before = by_uuid(CUT, PART)

    assert find_removed_instances(before, by_uuid(WHOLE)) == {"MIG-1"}
    assert find_removed_instances(before, {}) == set()
