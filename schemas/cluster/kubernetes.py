"""What a task may name in a Kubernetes cluster, by names that lead nowhere else."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from schemas.base import END, Count, Namespace, NodeId, PositiveInt

_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,251}[a-z0-9])?"
OBJECT_NAME_PATTERN: Final = rf"^{_LABEL}(\.{_LABEL})*{END}"
OBJECT_NAME_FORM: Final = "1 to 253 small letters, digits, - and ., parts between . as in a domain"
_DIRECTORY: Final = r"(?!\.{1,2}(/|$))[A-Za-z0-9_.-]+"
MOUNT_PATH_PATTERN: Final = rf"^(/{_DIRECTORY})+{END}"
MOUNT_PATH_FORM: Final = "an absolute path of letters, digits, _, . and -, without parts . and .."
SUBPATH_PATTERN: Final = rf"^({_DIRECTORY}(/{_DIRECTORY})*)?{END}"
SUBPATH_FORM: Final = "a relative path of letters, digits, _, . and -, without parts . and .."
ObjectName = Annotated[
    str, Meta(pattern=OBJECT_NAME_PATTERN, description=OBJECT_NAME_FORM, max_length=253)
]
MountPath = Annotated[
    str, Meta(pattern=MOUNT_PATH_PATTERN, description=MOUNT_PATH_FORM, max_length=1024)
]
SubPath = Annotated[str, Meta(pattern=SUBPATH_PATTERN, description=SUBPATH_FORM, max_length=1024)]

Quantity = Annotated[
    str,
    Meta(
        pattern=rf"^[0-9]{{1,15}}(\.[0-9]{{1,9}})?(m|[kMGTPE]|[KMGTPE]i)?{END}",
        description="a Kubernetes quantity such as 500m, 4 or 64Gi",
    ),
]
Resources = dict[Literal["cpu", "memory", "ephemeral-storage"], Quantity]


class VolumeClaim(Struct, frozen=True, kw_only=True):
    """A PersistentVolumeClaim, of which `subpath` is mounted read-only at `mount_path`."""

    name: ObjectName
    mount_path: MountPath
    subpath: SubPath = ""


class ContainerResources(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a container gets beside its GPUs, which are the grant's."""

    requests: Resources = {}
    limits: Resources = {}


class ContainerOverrides(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a task may set of the engine's container: its program and image are the executor's."""

    resources: ContainerResources = ContainerResources()


class ContainerDevices(Struct, frozen=True, kw_only=True):
    """Custom devices of a container, as their definitions have it: counts by resource."""

    limits: dict[str, PositiveInt] = {}
    requests: dict[str, PositiveInt] = {}


class KubernetesSpec(Struct, frozen=True, kw_only=True):
    """What a task names in a cluster, all of it in `namespace`, or in the cluster as a whole.

    `namespace` None is the executor's own choice. `base_model` is a BaseModel or ClusterBaseModel
    of OME; `claim` holds the model instead. The engine's image is that of the
    ClusterServingRuntime `serving_runtime`, if one is named. `devices` without a limit: the grant's
    GPUs, and nothing beside them.
    """

    namespace: Namespace | None = None
    base_model: ObjectName | None = None
    claim: VolumeClaim | None = None
    serving_runtime: ObjectName | None = None
    container: ContainerOverrides = ContainerOverrides()
    devices: ContainerDevices = ContainerDevices()


class EnginePod(Struct, frozen=True, kw_only=True):
    """The container of a cluster that an engine runs in, bound to a node.

    `node_id` is under which a telemetry agent on that node reports, `gpus` how many it asks for;
    `rank` is which of the pods of an engine over several nodes it is.
    """

    node_id: NodeId
    namespace: str
    pod: str
    container: str
    gpus: PositiveInt
    rank: Count = 0
