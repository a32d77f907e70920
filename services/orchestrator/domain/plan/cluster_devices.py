"""What an experiment requests of a cluster's custom devices, by what the cluster defines."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.cluster.kubernetes import ContainerDevices
from schemas.errors import ErrorCode
from schemas.gpus.checks import ResourceDefinition
from schemas.task.task_file import GpuPreferences
from services.orchestrator.domain.installation.installation import Installation, Workload
from services.orchestrator.domain.installation.offers import CLUSTER_MODES, name_nodes
from services.orchestrator.domain.plan.sizing import part_of
from shared.accelerator_rules.cluster_parts import ClusterPart, units_of
from shared.accelerator_rules.device_policies import RESOURCE, request_devices
from shared.accelerator_rules.modes import memory_resource_of
from shared.errors import RefusedError

MAX_GPUS: Final = 4096  # of a node, as a request has it

Definitions = tuple[ResourceDefinition, ...]


class DevicesOffered(Struct, frozen=True, kw_only=True):
    """The group of the resource that a task requests, in the clusters that have it."""

    definitions: Definitions = ()
    node_ids: tuple[str, ...]


def find_devices(
    installation: Installation, workload: Workload, node_ids: tuple[str, ...]
) -> DevicesOffered:
    """Return of the clusters in `node_ids` those that define the resource; all where none does.

    Raises RefusedError where they define it differently.
    """
    gpus, mode = workload.gpus, workload.mode
    part = part_of(gpus) if mode in CLUSTER_MODES else None
    resource = part.resource if part else gpus.resource if gpus is not None else None
    groups: dict[str, Definitions] = {}
    for offer, runtime in installation.in_mode(mode):
        if offer.executor_id in node_ids and (group := _group(runtime.devices, resource)):
            groups[offer.executor_id] = group
    if not groups:
        return DevicesOffered(node_ids=node_ids)
    if len(set(groups.values())) > 1:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"clusters {name_nodes(sorted(groups))} define {resource} differently: say which of"
            " them by gpus.cluster",
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
    preferences: GpuPreferences | None,
    world_size: int,
    definitions: Definitions,
    part: ClusterPart | None = None,
) -> Devices | None:
    """Return what a container asks for; None: whole GPUs, and nothing defines others.

    A `part` is held to what the cluster defines of its resource, where it does. Raises RefusedError
    with the rule that is broken.
    """
    if part is not None:
        request = None
        if any(definition.key == part.resource for definition in definitions):
            request = request_devices(definitions, part.resource, part.limits, None)
        if request is None:
            return Devices(
                container=ContainerDevices(limits=part.limits, requests=part.limits),
                gpus=part.gpus,
                part=part,
            )
        return Devices(
            container=request.container, gpus=part.gpus, part=_as_limited(part, request.container)
        )
    if preferences is None or preferences.resource is None:
        if preferences is not None and preferences.resource_amounts:
            raise RefusedError(
                ErrorCode.BAD_REQUEST, "expected gpus.resource beside its amounts", path=RESOURCE
            )
        return None
    gpus = preferences.count or (world_size if world_size > 1 else None)
    request = request_devices(definitions, preferences.resource, preferences.resource_amounts, gpus)
    if request is not None and request.gpus > MAX_GPUS:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {MAX_GPUS} devices, got {request.gpus}",
            path=RESOURCE,
        )
    if request is None:
        return None
    units, memory_units = units_of(preferences.resource, request.container.limits)
    part = ClusterPart(
        resource=preferences.resource,
        limits=dict(request.container.limits),
        gpus=request.gpus,
        units=units,
        memory_units=memory_units,
    )
    return Devices(container=request.container, gpus=request.gpus, part=part)


def _as_limited(part: ClusterPart, container: ContainerDevices) -> ClusterPart:
    """Return the part with the memory that the cluster's definitions add."""
    if part.units is None:
        return part
    memory = container.limits.get(memory_resource_of(part.resource) or "")
    return replace(part, memory_units=memory)


def _group(devices: Definitions, resource: str | None) -> Definitions:
    """Return the resource's group, sorted by key so that equal ones are equal."""
    names = {definition.group for definition in devices if definition.key == resource}
    return tuple(
        sorted(
            (definition for definition in devices if definition.group in names), key=lambda e: e.key
        )
    )
