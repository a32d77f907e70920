"""ConfigMaps of custom devices: what the accelerator guide asks of them, each violation told."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.gpus.checks import (
    DeviceConfigCheck,
    LimitsPolicy,
    RequestsPolicy,
    ResourceDefinition,
    Verdict,
)
from shared.accelerator_rules.device_config import answer_device_config, config_map_of

CORE: dict[str, Any] = {  # the guide's own
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "cf-crl-gpu-manager-vcuda-core",
        "namespace": "kube-public",
        "labels": {
            "features.alauda.io/type": "CustomResourceLimitation",
            "features.alauda.io/group": "gpu-manager",
            "features.alauda.io/enabled": "true",
        },
    },
    "data": {
        "key": "tencent.com/vcuda-core",
        "dataType": "integer",
        "defaultValue": "20",
        "descriptionZh": "",
        "descriptionEn": "GPU vcore count, 100 virtual cores equal 1 physical GPU core",
        "group": "gpu-manager",
        "limits": "optional",
        "requests": "disabled",
    },
}
GONE = object()


def changed(path: str, value: object) -> dict[str, Any]:
    config_map = copy.deepcopy(CORE)
    *parents, last = path.split("|")
    part = config_map
    for name in parents:
        part = part[name]
    part[last] = value
    if value is GONE:
        del part[last]
    return config_map


def judged(*config_maps: dict[str, Any]) -> Any:
    return answer_device_config(DeviceConfigCheck(config_maps=config_maps))


def test_the_guides_example_defines_a_resource() -> None:
    view = judged(CORE)

    assert (view.verdict, view.findings) == (Verdict.SUPPORTED, ())
    assert view.resources == (
        ResourceDefinition(
            custom_name="gpu-manager",
            group="gpu-manager",
            key="tencent.com/vcuda-core",
            default_value=20,
            description_en="GPU vcore count, 100 virtual cores equal 1 physical GPU core",
            limits=LimitsPolicy.OPTIONAL,
            requests=RequestsPolicy.DISABLED,
        ),
    )


@pytest.mark.parametrize(
    ("path", "value", "rule", "place"),
    [
        ("kind", "Secret", "no_config_map", ".kind"),
        ("apiVersion", "v2", "no_config_map", ".apiVersion"),
        ("metadata|namespace", "default", "namespace", ".metadata.namespace"),
        ("metadata|namespace", GONE, "namespace", ".metadata.namespace"),
        ("metadata|name", "gpu-manager-vcuda-core", "name_format", ".metadata.name"),
        ("metadata|name", "cf-crl-vcuda-core", "name_format", ".metadata.name"),
        ("metadata|name", "cf-crl-gpu-manager-vcuda-memory", "name_format", ".metadata.name"),
        ("metadata|name", "cf-crl-GPU-vcuda-core", "name_format", ".metadata.name"),
        ("metadata|name", 7, "name_format", ".metadata.name"),
        *(
            (f"metadata|labels|features.alauda.io/{name}", value, "labels", place)
            for name, values in {
                "type": ("Other", GONE),
                "group": ("", "a b", GONE),
                "enabled": (True, "yes", [], GONE),
            }.items()
            for value in values
            for place in [f'.metadata.labels["features.alauda.io/{name}"]']
        ),
        ("data|key", GONE, "required_field", ".data.key"),
        ("data|key", "vcuda-core", "key_format", ".data.key"),
        ("data|key", "a.com/vcuda-core,b.com/vcuda-core", "key_format", ".data.key"),
        ("data|dataType", "string", "data_type", ".data.dataType"),
        ("data|dataType", GONE, "required_field", ".data.dataType"),
        ("data|defaultValue", 20, "kubernetes_data_is_text", ".data.defaultValue"),
        ("data|defaultValue", "-1", "default_value", ".data.defaultValue"),
        ("data|defaultValue", "1.5", "default_value", ".data.defaultValue"),
        ("data|defaultValue", "0", "parts_or_whole_gpus", ".data.defaultValue"),
        ("data|defaultValue", "101", "parts_or_whole_gpus", ".data.defaultValue"),
        ("data|defaultValue", "250", "parts_or_whole_gpus", ".data.defaultValue"),
        ("data|group", "other", "group_mismatch", ".data.group"),
        ("data|limits", "fromLimits", "limits_policy", ".data.limits"),
        ("data|requests", "optional", "requests_policy", ".data.requests"),
        ("data|colour", "red", "unknown_field", ".data.colour"),
    ],
)
def test_each_violation_is_named_with_its_place(
    path: str, value: object, rule: str, place: str
) -> None:
    view = judged(changed(path, value))

    assert view.verdict is Verdict.BLOCKED
    assert [(each.rule, each.subject) for each in view.findings] == [
        (rule, f"$.config_maps[0]{place}")
    ]
    assert view.resources == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata|name", "cf-crl-gpu-manager-tencent-com-vcuda-core"),
        ("data|defaultValue", "1"),
        ("data|defaultValue", "100"),
        ("data|defaultValue", "300"),
        ("data|defaultValue", ""),
        ("data|defaultValue", GONE),
        ("data|descriptionZh", GONE),
        ("metadata|labels|features.alauda.io/enabled", "false"),
        ("data|limits", "required"),
        ("data|limits", "disabled"),
        ("data|requests", "required"),
        ("data|requests", "fromLimits"),
    ],
)
def test_what_the_guide_allows_is_no_violation(path: str, value: object) -> None:
    assert judged(changed(path, value)).findings == ()


@pytest.mark.parametrize("requests", ["required", "fromLimits"])
def test_a_request_needs_a_limit(requests: str) -> None:
    config_map = changed("data|limits", "disabled")
    config_map["data"]["requests"] = requests

    (finding,) = judged(config_map).findings

    assert finding.rule == "kubernetes_requests_need_limits"
    assert "kubernetes.io" in finding.source


def test_resources_of_group_are_together_and_unique() -> None:
    memory = changed("data|key", "tencent.com/vcuda-memory")
    memory["metadata"]["name"] = "cf-crl-gpu-manager-vcuda-memory"
    npu = config_map_of(
        ResourceDefinition(custom_name="npu", group="a", key="huawei.com/Ascend910")
    )

    assert [(each.group, each.key) for each in judged(memory, npu, CORE).resources] == [
        ("a", "huawei.com/Ascend910"),
        ("gpu-manager", "tencent.com/vcuda-core"),
        ("gpu-manager", "tencent.com/vcuda-memory"),
    ]
    assert [each.rule for each in judged(CORE, CORE).findings] == ["one_config_map_per_key"] * 2


def test_invalid_config_map_is_a_finding() -> None:
    for strange in ({}, {"metadata": 7, "data": []}, {"kind": "ConfigMap", "metadata": None}):
        assert judged(strange).verdict is Verdict.BLOCKED


NAMES = st.lists(st.sampled_from(["a", "vcuda", "7", "b-c"]), min_size=1, max_size=3)


@given(
    st.builds(
        ResourceDefinition,
        custom_name=NAMES.map("-".join),
        group=NAMES.map("_".join),
        key=st.tuples(NAMES.map(".".join), NAMES.map("_".join)).map("/".join),
        default_value=st.sampled_from([None, 0, 1, 20]),
        description_zh=st.text(max_size=20),
        limits=st.sampled_from([LimitsPolicy.OPTIONAL, LimitsPolicy.REQUIRED]),
        requests=st.sampled_from(RequestsPolicy),
        enabled=st.booleans(),
    )
)
def test_what_is_generated_is_read_back_the_same(resource: ResourceDefinition) -> None:
    view = judged(config_map_of(resource))

    assert view.findings == ()
    assert view.resources == (resource,)
