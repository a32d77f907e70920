"""What an experiment requests of a cluster's custom devices, by what the cluster defines."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.cluster.kubernetes import ContainerDevices
from schemas.errors import ErrorCode
from schemas.gpus.checks import ResourceDefinition
from schemas.task.task_file import DeploymentMode, GpuPreferences
from services.orchestrator.domain.plan.executor_offers import CLUSTER_MODES, Offer, named
from services.orchestrator.domain.plan.sizing import part_of
from shared.accelerator_rules.cluster_parts import ClusterPart, units_of
from shared.accelerator_rules.device_policies import RESOURCE, request_devices
from shared.accelerator_rules.modes import memory_resource_of
from shared.errors import RefusedError

MOST_GPUS: Final = 4096  # of a node, as a request has it

Definitions = tuple[ResourceDefinition, ...]


class DevicesOffered(Struct, frozen=True, kw_only=True):
    """The group of the resource that a task requests, in the clusters that have it."""

    definitions: Definitions = ()
    node_ids: tuple[str, ...]


def devices_offered(
    wanted: GpuPreferences | None,
    mode: DeploymentMode,
    offers: Sequence[Offer],
    node_ids: tuple[str, ...],
) -> DevicesOffered:
    """Of the clusters in `node_ids` those that define the resource; all of them where none does.

    Raises RefusedError where they define it differently.
    """
    part = part_of(wanted) if mode in CLUSTER_MODES else None
    resource = part.resource if part else wanted.resource if wanted is not None else None
    groups: dict[str, Definitions] = {}
    for offer in offers:
        for runtime in offer.in_mode(mode):
            if offer.executor_id in node_ids and (group := _group(runtime.devices, resource)):
                groups[offer.executor_id] = group
    if not groups:
        return DevicesOffered(node_ids=node_ids)
    if len(set(groups.values())) > 1:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"clusters {named(sorted(groups))} define {resource} differently: say which of them by"
            " gpus.cluster",
            path=RESOURCE,
        )
    able = tuple(node_id for node_id in node_ids if node_id in groups)
    return DevicesOffered(definitions=next(iter(groups.values())), node_ids=able)


class Devices(Struct, frozen=True, kw_only=True):
    """What a container is given, of which `gpus` are held, or a `part` of one."""

    container: ContainerDevices
    gpus: int
    part: ClusterPart | None = None


def devices_for(
    wanted: GpuPreferences | None,
    world_size: int,
    definitions: Definitions,
    part: ClusterPart | None = None,
) -> Devices | None:
    """None: whole GPUs, and nothing defines others. A `part` is held to what the cluster defines of
    its resource, where it does. Raises RefusedError with the rule that is broken.
    """
    if part is not None:
        asked = None
        if any(each.key == part.resource for each in definitions):
            asked = request_devices(definitions, part.resource, part.limits, None)
        if asked is None:
            return Devices(
                container=ContainerDevices(limits=part.limits, requests=part.limits),
                gpus=part.gpus,
                part=part,
            )
        return Devices(
            container=asked.container, gpus=part.gpus, part=_as_limited(part, asked.container)
        )
    if wanted is None or wanted.resource is None:
        if wanted is not None and wanted.resource_amounts:
            raise RefusedError(
                ErrorCode.BAD_REQUEST, "expected gpus.resource beside its amounts", path=RESOURCE
            )
        return None
    gpus = wanted.count or (world_size if world_size > 1 else None)
    asked = request_devices(definitions, wanted.resource, wanted.resource_amounts, gpus)
    if asked is not None and asked.gpus > MOST_GPUS:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {MOST_GPUS} devices, got {asked.gpus}",
            path=RESOURCE,
        )
    if asked is None:
        return None
    units, memory_units = units_of(wanted.resource, asked.container.limits)
    part = ClusterPart(
        resource=wanted.resource,
        limits=dict(asked.container.limits),
        gpus=asked.gpus,
        units=units,
        memory_units=memory_units,
    )
    return Devices(container=asked.container, gpus=asked.gpus, part=part)


def _as_limited(part: ClusterPart, container: ContainerDevices) -> ClusterPart:
    """Return the part with the memory that the cluster's definitions add."""
    if part.units is None:
        return part
    memory = container.limits.get(memory_resource_of(part.resource) or "")
    return replace(part, memory_units=memory)


def _group(devices: Definitions, resource: str | None) -> Definitions:
    """By key, so that equal ones are equal."""
    names = {each.group for each in devices if each.key == resource}
    return tuple(sorted((each for each in devices if each.group in names), key=lambda e: e.key))
