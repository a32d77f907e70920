"""Pods: what each asks of its node, and of an engine's pod what it runs and how it fares."""

from typing import Any

from msgspec import field

from shared.kubernetes.objects.common import (
    ApiObject,
    ConditionDetails,
    Metadata,
    MetadataDetails,
)

Quantities = dict[str, str]


class Resources(ApiObject, frozen=True):
    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(ApiObject, frozen=True):
    name: str = ""
    container_port: int = 0


class Container(ApiObject, frozen=True):
    """`restart_policy` Always makes an init container one that runs beside the others."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""
    ports: tuple[ContainerPort, ...] = ()


class PodSpec(ApiObject, frozen=True):
    """`resources` are of the pod as a whole, in place of its containers' sum; `overhead` is what
    its runtime class adds.
    """

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Quantities = {}
    resources: Resources | None = None


class RequestMapping(ApiObject, frozen=True):
    resource_name: str = ""


class ExtendedResourceClaim(ApiObject, frozen=True):
    """The claim by which devices of a driver stand for an extended resource."""

    request_mappings: tuple[RequestMapping, ...] = ()


class Waiting(ApiObject, frozen=True):
    reason: str = ""
    message: str = ""


class Terminated(ApiObject, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(ApiObject, frozen=True):
    waiting: Waiting | None = None
    running: dict[str, Any] | None = None
    terminated: Terminated | None = None


class ContainerStatus(ApiObject, frozen=True):
    name: str = ""
    ready: bool = False
    image_id: str = field(default="", name="imageID")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(ApiObject, frozen=True):
    phase: str = ""
    pod_ip: str = field(default="", name="podIP")
    extended_resource_claim_status: ExtendedResourceClaim | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(ApiObject, frozen=True):
    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class EnvironmentVariable(ApiObject, frozen=True):
    name: str = ""
    value: str = ""
    value_from: dict[str, Any] | None = None


class ResourceDetails(ApiObject, frozen=True):
    """Of a container in a definition of another kind amounts may be numbers."""

    limits: dict[str, str | int] = {}
    claims: tuple[dict[str, Any], ...] = ()


class ContainerDetails(ApiObject, frozen=True):
    """A container with what it runs."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvironmentVariable, ...] = ()
    env_from: tuple[dict[str, Any], ...] = ()
    resources: ResourceDetails = ResourceDetails()


class SchedulingGate(ApiObject, frozen=True):
    name: str = ""


class PodSpecDetails(ApiObject, frozen=True):
    containers: tuple[ContainerDetails, ...] = ()
    node_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class PodStatusDetails(PodStatus, frozen=True):
    reason: str = ""
    message: str = ""
    conditions: tuple[ConditionDetails, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    host_ip: str = field(default="", name="hostIP")


class PodDetails(ApiObject, frozen=True):
    """A pod with what its containers run, and how far they are."""

    metadata: MetadataDetails
    spec: PodSpecDetails = PodSpecDetails()
    status: PodStatusDetails = PodStatusDetails()
