"""What a container asks of custom devices, by their default values and policies."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from schemas.cluster.kubernetes import ContainerDevices, KubernetesSpec
from schemas.errors import ErrorCode
from schemas.gpus.checks import LimitsPolicy, RequestsPolicy, ResourceDefinition
from shared.accelerator_rules.modes import GPU_RESOURCE, uneven, units_per_gpu
from shared.errors import RefusedError

RESOURCE: Final = "$.gpus.resource"
AMOUNTS: Final = "$.gpus.resource_amounts"


class DeviceRequest(Struct, frozen=True, kw_only=True):
    """`gpus` devices are held for it."""

    container: ContainerDevices
    gpus: int


def devices_of(names: KubernetesSpec, resource: str | None, gpus: int) -> ContainerDevices:
    """Return the devices of a container: what its definitions give, else whole GPUs."""
    if names.devices.limits:
        return names.devices
    resource = resource or GPU_RESOURCE
    counts = {resource: gpus * units_per_gpu(resource)}
    return ContainerDevices(limits=counts, requests=counts)


def request_devices(
    definitions: Sequence[ResourceDefinition],
    resource: str,
    amounts: Mapping[str, int],
    gpus: int | None,
) -> DeviceRequest | None:
    """Return what a container gets that requests `resource`, including the rest of its group.

    `amounts` are requested units, `gpus` requested whole devices (None: not requested). Returns
    None where nothing defines the resource. Raises RefusedError with the rule that is broken.
    """
    main = next((definition for definition in definitions if definition.key == resource), None)
    if main is None:
        for key in amounts:
            raise _refusal(
                "undefined", f"{AMOUNTS}[{key!r}]", f"the cluster defines no {resource}, nor {key}"
            )
        return None
    group = _group(definitions, main)
    _refuse_strangers(amounts, group, main)
    per_gpu = units_per_gpu(resource)
    amount_by_key = dict(amounts)
    if gpus is not None:
        if resource in amounts and -(-amounts[resource] // per_gpu) != gpus:
            raise _refusal(
                "one_amount",
                f"{AMOUNTS}[{resource!r}]",
                f"expected as many as {gpus} GPUs are, {gpus * per_gpu}; got {amounts[resource]}",
            )
        amount_by_key.setdefault(resource, gpus * per_gpu)
    elif main.limits is not LimitsPolicy.REQUIRED:
        amount_by_key.setdefault(resource, main.default_value or per_gpu)
    limits = {
        key: amount
        for key, definition in sorted(group.items())
        if (amount := _limit(definition, amount_by_key.get(key), _place(key, resource, amounts)))
        is not None
    }
    if (says := uneven(resource, limits[resource])) is not None:
        raise _refusal("parts_or_whole_gpus", f"{AMOUNTS}[{resource!r}]", says)
    requests = {
        key: amount
        for key, amount in limits.items()
        if group[key].requests is not RequestsPolicy.DISABLED
    }
    return DeviceRequest(
        container=ContainerDevices(limits=limits, requests=requests),
        gpus=-(-limits[resource] // per_gpu),
    )


def _group(
    definitions: Sequence[ResourceDefinition], main: ResourceDefinition
) -> dict[str, ResourceDefinition]:
    """Return the enabled definitions of the group. Raises RefusedError."""
    times = Counter(definition.key for definition in definitions)
    group = {
        definition.key: definition
        for definition in definitions
        if definition.group == main.group and definition.enabled
    }
    for key in (main.key, *group):
        if times[key] > 1:
            says = f"{key} is defined {times[key]} times in the cluster"
            raise _refusal("one_config_map_per_key", RESOURCE, says)
    if main.key not in group:
        raise _refusal("enabled", RESOURCE, f"{main.key} is defined, but not enabled")
    return group


def _refuse_strangers(
    amounts: Mapping[str, int], group: Mapping[str, ResourceDefinition], main: ResourceDefinition
) -> None:
    for key in amounts.keys() - group.keys():
        names = ", ".join(sorted(group))
        raise _refusal(
            "group", f"{AMOUNTS}[{key!r}]", f"expected what group {main.group} has: {names}"
        )


def _place(key: str, resource: str, amounts: Mapping[str, int]) -> str:
    return RESOURCE if key == resource and key not in amounts else f"{AMOUNTS}[{key!r}]"


def _limit(definition: ResourceDefinition, amount_requested: int | None, path: str) -> int | None:
    """Return the container's limit; None leaves it out. Raises RefusedError."""
    key = definition.key
    match definition.limits:
        case LimitsPolicy.DISABLED:
            if amount_requested is not None:
                raise _refusal(
                    "limits_disabled",
                    path,
                    f"expected no {key}: it takes no limit, got {amount_requested}",
                )
            return None
        case LimitsPolicy.REQUIRED:
            amount = amount_requested or definition.default_value
            if not amount:
                raise _refusal(
                    "limits_required", path, f"expected an amount of {key}, which has no default"
                )
            return amount
        case LimitsPolicy.OPTIONAL:
            return amount_requested or definition.default_value or None


def _refusal(rule: str, path: str, says: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, f"{says} (rule {rule})", path=path)
