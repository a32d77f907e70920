"""Which resources ConfigMaps make count."""

from typing import Any

import msgspec

from schemas.gpus.checks import LimitsPolicy, RequestsPolicy, ResourceDefinition
from services.cluster.domain.custom_devices import ConfigMap, CustomDevices
from shared.accelerator_rules.device_config import config_map_of

NPU = "vendor.example/npu"


def definition(key: str = NPU, **changes: Any) -> ConfigMap:
    given: dict[str, Any] = {"custom_name": "vendor", "group": "npus", **changes}
    return msgspec.convert(config_map_of(ResourceDefinition(key=key, **given)), ConfigMap)


def test_sound_definitions_count_until_they_are_gone_or_disabled() -> None:
    devices = CustomDevices()

    devices.replace([definition(), definition("vendor.example/fpga")])
    assert devices.resources == {NPU, "vendor.example/fpga"}
    devices.apply(definition(enabled=False))
    assert devices.resources == {"vendor.example/fpga"}
    devices.remove(definition("vendor.example/fpga").metadata.name)
    assert devices.resources == frozenset()
    devices.replace(())
    assert (devices.definitions, devices.violations) == ((), ())


def test_one_with_a_violation_defines_nothing_and_is_named_with_it() -> None:
    devices = CustomDevices()
    broken = definition("vendor.example/fpga")
    broken = msgspec.structs.replace(broken, data=broken.data | {"dataType": "text"})

    devices.replace([definition(), broken])

    assert devices.resources == {NPU}
    (violation,) = devices.violations
    assert violation.startswith("ConfigMap cf-crl-vendor-fpga: expected 'integer'")


def test_memory_of_parts_of_gpus_counts_as_no_device() -> None:
    devices = CustomDevices()

    devices.replace(map(definition, ("tencent.com/vcuda-core", "tencent.com/vcuda-memory")))

    assert devices.resources == {"tencent.com/vcuda-core"}
    assert len(devices.definitions) == 2


def test_what_takes_no_limit_counts_as_no_device() -> None:
    devices = CustomDevices()

    devices.replace([definition(limits=LimitsPolicy.DISABLED, requests=RequestsPolicy.DISABLED)])

    assert devices.resources == frozenset()
    assert devices.violations == ()
