"""The kinds of objects that are made, read and removed, and what is read of them."""

from typing import Any, Final

from msgspec import Struct

from shared.kubernetes.kinds import SERVICES
from shared.kubernetes.names import Resource
from shared.kubernetes.objects.common import ConditionDetails, MetadataDetails
from shared.kubernetes.objects.pods import ContainerDetails
from shared.kubernetes.ome import INFERENCE_SERVICES, SERVING_RUNTIMES
from shared.kubernetes.requirements import KUEUE_VERSION

Object = dict[str, Any]
OME_GROUP: Final = "ome.io"

SECRETS: Final = Resource("v1", "secrets")
CLAIMS: Final = Resource("v1", "persistentvolumeclaims")
DEPLOYMENTS: Final = Resource("apps/v1", "deployments")
CLAIM_TEMPLATES: Final = Resource("resource.k8s.io/v1", "resourceclaimtemplates")
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io/v1", "customresourcedefinitions", is_namespaced=False
)
WORKLOADS: Final = Resource(KUEUE_VERSION, "workloads")

RESOURCE_OF_KIND: Final = {
    "Deployment": DEPLOYMENTS,
    "InferenceService": INFERENCE_SERVICES,
    "ResourceClaimTemplate": CLAIM_TEMPLATES,
    "Service": SERVICES,
    "ServingRuntime": SERVING_RUNTIMES,
}


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
    conditions: tuple[ConditionDetails, ...] = ()
    model_status: ModelStatus | None = None


class ObjectWithStatus(Struct, frozen=True):
    metadata: MetadataDetails
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
    metadata: MetadataDetails
    spec: BaseModelSpec = BaseModelSpec()


class Runner(Struct, frozen=True):
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class EngineConfig(Struct, frozen=True):
    runner: Runner | None = None


class ServingRuntimeSpec(Struct, frozen=True, rename="camel"):
    containers: tuple[ContainerDetails, ...] = ()
    engine_config: EngineConfig | None = None
    disabled: bool = False


class ServingRuntime(Struct, frozen=True):
    metadata: MetadataDetails
    spec: ServingRuntimeSpec = ServingRuntimeSpec()

    @property
    def runner(self) -> Runner | None:
        """The engine's container; None where it has none."""
        engine = self.spec.engine_config
        if engine is not None and engine.runner is not None:
            return engine.runner
        return next(
            (
                Runner(image=container.image, command=container.command, args=container.args)
                for container in self.spec.containers
            ),
            None,
        )


class ServicePort(Struct, frozen=True, rename="camel"):
    node_port: int = 0


class ServiceSpec(Struct, frozen=True):
    ports: tuple[ServicePort, ...] = ()


class Service(Struct, frozen=True):
    spec: ServiceSpec = ServiceSpec()
