"""What is told when a GPU is partitioned."""

from schemas.telemetry.readings import DeviceFacts, HealthKind
from services.telemetry.domain.mig_changes import mig_changes, removed_instances

WHOLE = DeviceFacts(uuid="GPU-0", index=0, name="H100", mig_enabled=False)
CUT = DeviceFacts(uuid="GPU-0", index=0, name="H100", mig_enabled=True)
PART = DeviceFacts(uuid="MIG-1", index=1, name="MIG", parent_uuid="GPU-0", mig_profile="1g.10gb")


def by_uuid(*devices: DeviceFacts) -> dict[str, DeviceFacts]:
    return {device.uuid: device for device in devices}


def test_partitioning_and_its_end_are_one_change_each() -> None:
    (cut,) = mig_changes(by_uuid(WHOLE), by_uuid(CUT, PART))
    (joined,) = mig_changes(by_uuid(CUT, PART), by_uuid(WHOLE))

    assert (cut.kind, cut.device_uuid) == (HealthKind.MIG_CHANGED, "GPU-0")
    assert cut.detail == "MIG is on: 1g.10gb"
    assert joined.detail == "MIG is off"
    assert mig_changes(by_uuid(CUT, PART), by_uuid(PART, CUT)) == []


def test_an_instance_is_dissolved_only_if_its_gpu_is_there() -> None:
    before = by_uuid(CUT, PART)

    assert removed_instances(before, by_uuid(WHOLE)) == {"MIG-1"}
    assert removed_instances(before, {}) == set()
