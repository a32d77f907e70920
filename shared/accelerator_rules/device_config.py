"""Custom devices by ConfigMap: `cf-crl-{customName}-{keyName}`, read, judged and written."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from schemas.gpus.checks import (
    CheckView,
    DeviceConfigCheck,
    Finding,
    LimitsPolicy,
    RequestsPolicy,
    ResourceDefinition,
    Verdict,
)
from shared.accelerator_rules.modes import uneven, units_per_gpu

DOCUMENT: Final = "accelerator guide, Add Custom Devices Using ConfigMap"
KUBERNETES: Final = (
    "https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/"
    "#extended-resources"
)
NAMESPACE: Final = "kube-public"
KIND: Final = {"apiVersion": "v1", "kind": "ConfigMap"}
PREFIX: Final = "cf-crl-"
TYPE: Final = "CustomResourceLimitation"
LABEL_TYPE: Final = "features.alauda.io/type"
DEVICE_DEFINITIONS: Final = f"{LABEL_TYPE}={TYPE}"
LABEL_GROUP: Final = "features.alauda.io/group"
LABEL_ENABLED: Final = "features.alauda.io/enabled"
INTEGER: Final = "integer"

_DNS_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/, qualified
_RESOURCE: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_SPECIAL: Final = re.compile(r"[^a-z0-9]+")
_COUNT: Final = re.compile(r"\d{1,18}")
_REQUIRED: Final = ("key", "dataType", "group", "limits", "requests")
_KNOWN: Final = frozenset({*_REQUIRED, "defaultValue", "descriptionZh", "descriptionEn"})

Violation = tuple[str, str, str]  # rule, place, sentence


def answer_device_config(check: DeviceConfigCheck) -> CheckView:
    """Return every violation by its place, and what the ConfigMaps without one define, by group."""
    findings: list[Finding] = []
    sound: list[tuple[str, ResourceDefinition]] = []
    for number, config_map in enumerate(check.config_maps):
        place = f"$.config_maps[{number}]"
        violations = list(_violations(config_map))
        findings += [
            Finding(
                verdict=Verdict.BLOCKED,
                rule=rule,
                message=says,
                subject=f"{place}{path}",
                source=KUBERNETES if rule.startswith("kubernetes_") else DOCUMENT,
            )
            for rule, path, says in violations
        ]
        if not violations:
            sound.append((place, _definition(config_map)))
    findings += _find_repeated(sound)
    resources = sorted(
        (definition for _, definition in sound),
        key=lambda definition: (definition.group, definition.key),
    )
    verdict = Verdict.BLOCKED if findings or not sound else Verdict.SUPPORTED
    return CheckView(verdict=verdict, findings=tuple(findings), resources=tuple(resources))


def definitions_in(config_maps: Iterable[Mapping[str, Any]]) -> tuple[ResourceDefinition, ...]:
    """Return what ConfigMaps, each with `metadata` and `data`, define; faulty ones define
    nothing.
    """
    documents = tuple({**KIND, **config_map} for config_map in config_maps)
    return answer_device_config(DeviceConfigCheck(config_maps=documents)).resources


def config_map_of(resource: ResourceDefinition) -> dict[str, Any]:
    """The ConfigMap that defines it."""
    return {
        **KIND,
        "metadata": {
            "name": f"{PREFIX}{resource.custom_name}-{_slug(resource.key.partition('/')[2])}",
            "namespace": NAMESPACE,
            "labels": {
                LABEL_TYPE: TYPE,
                LABEL_GROUP: resource.group,
                LABEL_ENABLED: "true" if resource.enabled else "false",
            },
        },
        "data": {
            "key": resource.key,
            "dataType": INTEGER,
            "defaultValue": "" if resource.default_value is None else str(resource.default_value),
            "descriptionZh": resource.description_zh,
            "descriptionEn": resource.description_en,
            "group": resource.group,
            "limits": resource.limits.value,
            "requests": resource.requests.value,
        },
    }


def _violations(config_map: Mapping[str, Any]) -> Iterator[Violation]:
    for name, want in KIND.items():
        if config_map.get(name) != want:
            yield "no_config_map", f".{name}", f"expected {want!r}, got {config_map.get(name)!r}"
    metadata, data = _part(config_map, "metadata"), _part(config_map, "data")
    labels = _part(metadata, "labels")
    yield from _of_metadata(metadata, data)
    yield from _of_labels(labels)
    yield from _of_data(data, labels)


def _of_metadata(metadata: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Violation]:
    name, namespace, key = metadata.get("name"), metadata.get("namespace"), data.get("key")
    if namespace != NAMESPACE:
        yield "namespace", ".metadata.namespace", f"expected {NAMESPACE!r}, got {namespace!r}"
    if not isinstance(name, str) or not _DNS_NAME.fullmatch(name):
        yield "name_format", ".metadata.name", f"expected a name of Kubernetes, got {name!r}"
        return
    if isinstance(key, str) and _custom_name(name, key) is None:
        yield (
            "name_format",
            ".metadata.name",
            f"expected {PREFIX}CUSTOMNAME-{_slug(key.rpartition('/')[2])}, got {name!r}",
        )


def _of_labels(labels: Mapping[str, Any]) -> Iterator[Violation]:
    group, enabled = labels.get(LABEL_GROUP), labels.get(LABEL_ENABLED)
    if labels.get(LABEL_TYPE) != TYPE:
        yield _label(LABEL_TYPE, f"expected {TYPE!r}, got {labels.get(LABEL_TYPE)!r}")
    if not _is_group(group):
        yield _label(LABEL_GROUP, f"expected the name of a resource group, got {group!r}")
    if not isinstance(enabled, str) or enabled not in {"true", "false"}:
        yield _label(LABEL_ENABLED, f'expected "true" or "false" in quotes, got {enabled!r}')


def _of_data(data: Mapping[str, Any], labels: Mapping[str, Any]) -> Iterator[Violation]:
    for name in sorted(map(str, data.keys() - _KNOWN)):
        yield "unknown_field", f".data.{name}", f"expected one of {', '.join(sorted(_KNOWN))}"
    for name in sorted(_KNOWN & data.keys()):
        if not isinstance(data[name], str):
            says = f"expected text in quotes, got {data[name]!r}"
            yield "kubernetes_data_is_text", f".data.{name}", says
    for name in _REQUIRED:
        if name not in data:
            yield "required_field", f".data.{name}", "expected a value, found none"
    text = {name: value for name, value in data.items() if isinstance(value, str)}
    if "key" in text and not _RESOURCE.fullmatch(text["key"]):
        says = f"expected one resource such as vendor.com/name, got {text['key']!r}"
        yield "key_format", ".data.key", says
    if text.get("dataType", INTEGER) != INTEGER:
        says = f"expected {INTEGER!r}: Kubernetes counts devices whole; got {text['dataType']!r}"
        yield "data_type", ".data.dataType", says
    yield from _of_default(text)
    group = labels.get(LABEL_GROUP)
    if "group" in text and _is_group(group) and text["group"] != group:
        says = f"expected {group!r}, as the label says, got {text['group']!r}"
        yield "group_mismatch", ".data.group", says
    yield from _of_policies(text)


def _of_default(text: Mapping[str, str]) -> Iterator[Violation]:
    default = text.get("defaultValue", "")
    if not default:
        return
    if not _COUNT.fullmatch(default):
        yield "default_value", ".data.defaultValue", f"expected a whole number, got {default!r}"
    elif units_per_gpu(key := text.get("key", "")) > 1 and (says := uneven(key, int(default))):
        yield "parts_or_whole_gpus", ".data.defaultValue", says


def _of_policies(text: Mapping[str, str]) -> Iterator[Violation]:
    for name, choices in (("limits", LimitsPolicy), ("requests", RequestsPolicy)):
        if name in text and text[name] not in set(choices):
            says = f"expected one of {', '.join(choices)}, got {text[name]!r}"
            yield f"{name}_policy", f".data.{name}", says
    if text.get("limits") == LimitsPolicy.DISABLED and text.get("requests") in {
        RequestsPolicy.FROM_LIMITS,
        RequestsPolicy.REQUIRED,
    }:
        says = "expected limits that are not disabled: a device is requested by its limit"
        yield "kubernetes_requests_need_limits", ".data.requests", says


def _is_group(group: object) -> bool:
    return isinstance(group, str) and _LABEL_VALUE.fullmatch(group) is not None


def _label(name: str, says: str) -> Violation:
    return "labels", f'.metadata.labels["{name}"]', says


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = document.get(name)
    return part if isinstance(part, dict) else {}


def _slug(text: str) -> str:
    return _SPECIAL.sub("-", text.lower()).strip("-")


def _custom_name(name: str, key: str) -> str | None:
    """Return the text between the prefix and the key; the vendor's domain may be part of it."""
    written = _slug(key.rpartition("/")[2])
    if not (name.startswith(PREFIX) and written and name.endswith(f"-{written}")):
        return None
    return name[len(PREFIX) : -len(written) - 1] or None


def _definition(config_map: Mapping[str, Any]) -> ResourceDefinition:
    metadata, data = config_map["metadata"], config_map["data"]
    default = data.get("defaultValue", "")
    return ResourceDefinition(
        custom_name=_custom_name(metadata["name"], data["key"]) or "",
        group=data["group"],
        key=data["key"],
        default_value=int(default) if default else None,
        description_zh=data.get("descriptionZh", ""),
        description_en=data.get("descriptionEn", ""),
        limits=LimitsPolicy(data["limits"]),
        requests=RequestsPolicy(data["requests"]),
        enabled=metadata["labels"][LABEL_ENABLED] == "true",
    )


def _find_repeated(sound: Sequence[tuple[str, ResourceDefinition]]) -> Iterator[Finding]:
    times = Counter(definition.key for _, definition in sound)
    for place, definition in sound:
        if times[definition.key] > 1:
            yield Finding(
                verdict=Verdict.BLOCKED,
                rule="one_config_map_per_key",
                message=f"{definition.key} is defined {times[definition.key]} times",
                subject=f"{place}.data.key",
                source=DOCUMENT,
            )
