"""Which resources ConfigMaps make count."""

from typing import Any

import msgspec

from schemas.gpus.checks import LimitsPolicy, RequestsPolicy, ResourceDefinition
from services.cluster.domain.custom_devices import CustomDevices
from shared.accelerator_rules.device_config import config_map_of
from shared.kubernetes.objects.common import ConfigMap

NPU = "vendor.example/npu"


def definition(key: str = NPU, **changes: Any) -> ConfigMap:
    given: dict[str, Any] = {"custom_name": "vendor", "group": "npus", **changes}
    return msgspec.convert(config_map_of(ResourceDefinition(key=key, **given)), ConfigMap)


def test_valid_definitions_count_until_removed() -> None:
    devices = CustomDevices()

    devices.replace([definition(), definition("vendor.example/fpga")])
    assert devices.resources == {NPU, "vendor.example/fpga"}
    devices.apply(definition(enabled=False))
    assert devices.resources == {"vendor.example/fpga"}
    devices.remove(definition("vendor.example/fpga").metadata.name)
    assert devices.resources == frozenset()
    devices.replace(())
    assert (devices.definitions, devices.violations) == ((), ())


def test_violating_definition_is_named_and_ignored() -> None:
    devices = CustomDevices()
    broken = definition("vendor.example/fpga")
    broken = msgspec.structs.replace(broken, data=broken.data | {"dataType": "text"})

    devices.replace([definition(), broken])

    assert devices.resources == {NPU}
    (violation,) = devices.violations
    assert violation.startswith("ConfigMap cf-crl-vendor-fpga: expected 'integer'")


def test_memory_of_gpu_shares_counts_as_no_device() -> None:
    devices = CustomDevices()

    devices.replace(map(definition, ("tencent.com/vcuda-core", "tencent.com/vcuda-memory")))

    assert devices.resources == {"tencent.com/vcuda-core"}
    assert len(devices.definitions) == 2


def test_what_takes_no_limit_counts_as_no_device() -> None:
    devices = CustomDevices()

    devices.replace([definition(limits=LimitsPolicy.DISABLED, requests=RequestsPolicy.DISABLED)])

    assert devices.resources == frozenset()
    assert devices.violations == ()
