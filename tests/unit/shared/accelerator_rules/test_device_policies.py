"""Default values and policies of custom devices, in the guide's terms."""

from typing import Any

import pytest

from schemas.cluster.kubernetes import ContainerDevices, KubernetesSpec
from schemas.gpus.checks import LimitsPolicy, RequestsPolicy, ResourceDefinition
from shared.accelerator_rules.device_policies import (
    AMOUNTS,
    RESOURCE,
    devices_of,
    request_devices,
)
from shared.errors import RefusedError

CORE, MEMORY, NPU = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "vendor.example/npu"


def define(key: str = NPU, **changes: Any) -> ResourceDefinition:
    group = "gpu-manager" if key.startswith("tencent.com") else "npus"
    return ResourceDefinition(**{"custom_name": group, "group": group, "key": key, **changes})


VCUDA = (define(CORE, default_value=20), define(MEMORY, default_value=8))


@pytest.mark.parametrize(
    ("resource", "definitions", "amounts", "gpus", "limits", "held"),
    [
        pytest.param(CORE, VCUDA, {}, None, {CORE: 20, MEMORY: 8}, 1, id="defaults of the group"),
        pytest.param(CORE, VCUDA, {}, 2, {CORE: 200, MEMORY: 8}, 2, id="whole GPUs were said"),
        pytest.param(
            CORE, VCUDA, {CORE: 50, MEMORY: 16}, None, {CORE: 50, MEMORY: 16}, 1, id="said"
        ),
        pytest.param(CORE, VCUDA, {CORE: 300}, None, {CORE: 300, MEMORY: 8}, 3, id="three cards"),
        pytest.param(CORE, VCUDA, {CORE: 100}, 2, None, "one_amount", id="both, and they differ"),
        pytest.param(
            CORE, VCUDA, {CORE: 150}, None, None, "parts_or_whole_gpus", id="one and a half"
        ),
        pytest.param(CORE, VCUDA, {NPU: 1}, None, None, "group", id="of another group"),
        pytest.param(NPU, (define(),), {}, None, {NPU: 1}, 1, id="no default is one device"),
        pytest.param(NPU, (define(default_value=2),), {}, None, {NPU: 2}, 2, id="two by default"),
        pytest.param(NPU, (define(default_value=2),), {}, 1, {NPU: 1}, 1, id="one was said"),
        pytest.param(NPU, (define(default_value=0),), {}, None, {NPU: 1}, 1, id="never none"),
        pytest.param(NPU, (define(enabled=False),), {}, 1, None, "enabled", id="not enabled"),
        pytest.param(
            NPU,
            (define(limits=LimitsPolicy.DISABLED, requests=RequestsPolicy.DISABLED),),
            *({}, 1, None, "limits_disabled"),
            id="no limit may be set",
        ),
        pytest.param(
            NPU,
            (define(limits=LimitsPolicy.REQUIRED),),
            *({}, None, None, "limits_required"),
            id="nothing says how many",
        ),
        pytest.param(
            NPU,
            (define(limits=LimitsPolicy.REQUIRED, default_value=4),),
            *({}, None, {NPU: 4}, 4),
            id="a default is an amount",
        ),
        pytest.param(
            CORE,
            (VCUDA[0], define(MEMORY, limits=LimitsPolicy.REQUIRED)),
            *({}, None, None, "limits_required"),
            id="what is beside it is required",
        ),
        pytest.param(
            CORE,
            (VCUDA[0], define(MEMORY, limits=LimitsPolicy.DISABLED, default_value=8)),
            *({}, None, {CORE: 20}, 1),
            id="what takes no limit is left out",
        ),
        pytest.param(
            CORE, (VCUDA[0], define(MEMORY)), {}, None, {CORE: 20}, 1, id="none by default"
        ),
        pytest.param(
            NPU,
            (define(), define(custom_name="b")),
            {},
            1,
            None,
            "one_config_map_per_key",
            id="two",
        ),
        pytest.param(NPU, (), {NPU: 1}, None, None, "undefined", id="nothing defines it"),
    ],
)
def test_a_container_is_given_what_definitions_say(
    resource: str,
    definitions: tuple[ResourceDefinition, ...],
    amounts: dict[str, int],
    gpus: int | None,
    limits: dict[str, int] | None,
    held: int | str,
) -> None:
    if limits is None:
        with pytest.raises(RefusedError, match=rf"\(rule {held}\)") as refused:
            request_devices(definitions, resource, amounts, gpus)
        assert str(refused.value.path).startswith((RESOURCE, AMOUNTS))
        return

    asked = request_devices(definitions, resource, amounts, gpus)

    assert asked is not None
    assert (asked.container.limits, asked.gpus) == (limits, held)


@pytest.mark.parametrize(
    ("policy", "requests"),
    [
        (RequestsPolicy.DISABLED, {}),
        (RequestsPolicy.FROM_LIMITS, {NPU: 3}),
        (RequestsPolicy.REQUIRED, {NPU: 3}),
    ],
)
def test_requests_are_the_limits_or_left_out(
    policy: RequestsPolicy, requests: dict[str, int]
) -> None:
    asked = request_devices((define(requests=policy),), NPU, {}, 3)

    assert asked is not None
    assert asked.container == ContainerDevices(limits={NPU: 3}, requests=requests)


NO_LIMIT = LimitsPolicy.DISABLED


@pytest.mark.parametrize(
    ("resource", "definitions", "amounts", "path"),
    [
        pytest.param(NPU, (define(limits=NO_LIMIT),), {}, RESOURCE, id="the resource"),
        pytest.param(
            NPU, (define(limits=NO_LIMIT),), {NPU: 1}, f"{AMOUNTS}[{NPU!r}]", id="its amount"
        ),
        pytest.param(
            CORE,
            (VCUDA[0], define(MEMORY, limits=LimitsPolicy.REQUIRED)),
            {CORE: 20},
            f"{AMOUNTS}[{MEMORY!r}]",
            id="the amount of what is beside it",
        ),
    ],
)
def test_refusal_names_the_offending_field(
    resource: str,
    definitions: tuple[ResourceDefinition, ...],
    amounts: dict[str, int],
    path: str,
) -> None:
    with pytest.raises(RefusedError) as refused:
        request_devices(definitions, resource, amounts, None)

    assert refused.value.path == path


@pytest.mark.parametrize(
    ("devices", "resource", "limits"),
    [
        pytest.param({}, None, {"nvidia.com/gpu": 2}, id="whole GPUs"),
        pytest.param({}, CORE, {CORE: 200}, id="units of GPUs"),
        pytest.param({NPU: 7}, CORE, {NPU: 7}, id="as they were defined"),
    ],
)
def test_container_has_defined_devices_else_gpus(
    devices: dict[str, int], resource: str | None, limits: dict[str, int]
) -> None:
    given = ContainerDevices(limits=devices, requests=devices)

    found = devices_of(KubernetesSpec(devices=given), resource, 2)

    assert found == ContainerDevices(limits=limits, requests=limits)


def test_what_nothing_defines_is_asked_for_as_before() -> None:
    assert request_devices(VCUDA, NPU, {}, 3) is None
