"""The kinds of objects that are made, read and removed, and what is read of them."""

from datetime import datetime
from typing import Any, Final

from msgspec import Struct, field

from shared.kubernetes.names import Resource
from shared.kubernetes.ome import INFERENCE_SERVICES, SERVING_RUNTIMES
from shared.kubernetes.requirements import KUEUE_VERSION

Object = dict[str, Any]
OME_GROUP: Final = "ome.io"

PODS: Final = Resource("v1", "pods")
SERVICES: Final = Resource("v1", "services")
CLAIMS: Final = Resource("v1", "persistentvolumeclaims")
NODES: Final = Resource("v1", "nodes", is_namespaced=False)
DEPLOYMENTS: Final = Resource("apps/v1", "deployments")
CLAIM_TEMPLATES: Final = Resource("resource.k8s.io/v1", "resourceclaimtemplates")
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io/v1", "customresourcedefinitions", is_namespaced=False
)
CONFIG_MAPS: Final = Resource("v1", "configmaps")
WORKLOADS: Final = Resource(KUEUE_VERSION, "workloads")

RESOURCE_OF_KIND: Final = {
    "Deployment": DEPLOYMENTS,
    "InferenceService": INFERENCE_SERVICES,
    "ResourceClaimTemplate": CLAIM_TEMPLATES,
    "Service": SERVICES,
    "ServingRuntime": SERVING_RUNTIMES,
}


class Owner(Struct, frozen=True, rename="camel"):
    uid: str = ""


class Metadata(Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


class Named(Struct, frozen=True):
    """Any object, as far as its metadata says."""

    metadata: Metadata


class NamedList(Struct, frozen=True):
    items: tuple[Named, ...] = ()


class DeviceConfigMap(Struct, frozen=True):
    """One that defines a custom device."""

    metadata: Metadata
    data: dict[str, str] = {}


class Condition(Struct, frozen=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class Waiting(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class Terminated(Struct, frozen=True, rename="camel"):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Struct, frozen=True):
    waiting: Waiting | None = None
    running: dict[str, Any] | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True, rename="camel"):
    name: str
    ready: bool = False
    image_id: str = field(default="", name="imageID")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class EnvironmentVariable(Struct, frozen=True, rename="camel"):
    name: str
    value: str = ""
    value_from: dict[str, Any] | None = None


class ContainerResources(Struct, frozen=True):
    limits: dict[str, str | int] = {}
    claims: tuple[dict[str, Any], ...] = ()


class Container(Struct, frozen=True, rename="camel"):
    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvironmentVariable, ...] = ()
    env_from: tuple[dict[str, Any], ...] = ()
    resources: ContainerResources = ContainerResources()


class SchedulingGate(Struct, frozen=True):
    name: str


class PodSpec(Struct, frozen=True, rename="camel"):
    containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class PodStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    host_ip: str = field(name="hostIP", default="")
    pod_ip: str = field(name="podIP", default="")


class Pod(Struct, frozen=True):
    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodList(Struct, frozen=True):
    items: tuple[Pod, ...] = ()


class Address(Struct, frozen=True):
    url: str = ""


class ModelFailure(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class ModelStatus(Struct, frozen=True, rename="camel"):
    last_failure_info: ModelFailure | None = None


class ObjectStatus(Struct, frozen=True, rename="camel"):
    """Of an InferenceService, a Deployment or a Workload of Kueue."""

    url: str = ""
    address: Address | None = None
    conditions: tuple[Condition, ...] = ()
    model_status: ModelStatus | None = None


class ObjectWithStatus(Struct, frozen=True):
    metadata: Metadata
    status: ObjectStatus = ObjectStatus()


class ModelFormat(Struct, frozen=True, omit_defaults=True):
    name: str
    version: str | None = None


class Storage(Struct, frozen=True, rename="camel"):
    path: str | None = None
    storage_uri: str = ""


class BaseModelSpec(Struct, frozen=True, rename="camel"):
    model_format: ModelFormat | None = None
    model_framework: ModelFormat | None = None
    model_architecture: str | None = None
    quantization: str | None = None
    disabled: bool = False
    storage: Storage = Storage()


class BaseModel(Struct, frozen=True):
    metadata: Metadata
    spec: BaseModelSpec = BaseModelSpec()


class Runner(Struct, frozen=True):
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class EngineConfig(Struct, frozen=True):
    runner: Runner | None = None


class ServingRuntimeSpec(Struct, frozen=True, rename="camel"):
    containers: tuple[Container, ...] = ()
    engine_config: EngineConfig | None = None
    disabled: bool = False


class ServingRuntime(Struct, frozen=True):
    metadata: Metadata
    spec: ServingRuntimeSpec = ServingRuntimeSpec()

    @property
    def runner(self) -> Runner | None:
        """The engine's container; None where it has none."""
        engine = self.spec.engine_config
        if engine is not None and engine.runner is not None:
            return engine.runner
        return next(
            (
                Runner(image=each.image, command=each.command, args=each.args)
                for each in self.spec.containers
            ),
            None,
        )


class ServingRuntimeList(Struct, frozen=True):
    items: tuple[ServingRuntime, ...] = ()


class ServicePort(Struct, frozen=True, rename="camel"):
    node_port: int = 0


class ServiceSpec(Struct, frozen=True):
    ports: tuple[ServicePort, ...] = ()


class Service(Struct, frozen=True):
    spec: ServiceSpec = ServiceSpec()
