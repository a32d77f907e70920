"""What a cluster has to have for engines of ours: its version, kinds, their fields, permissions."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from shared.kubernetes.names import Resource
from shared.kubernetes.ome import OME_VERSION

OLDEST: Final = (1, 25)
KUEUE_VERSION: Final = "kueue.x-k8s.io/v1beta1"
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")
_CHANGE: Final = ("get", "list", "create", "patch", "delete")
_WATCH: Final = ("list", "watch")


class Right(Struct, frozen=True):
    """Verbs on a kind, on a part of it, or on the object of a name. Without one that `tells`
    something all works, and that alone is not known.
    """

    resource: Resource
    verbs: tuple[str, ...]
    subresource: str = ""
    name: str = ""
    tells: str = ""

    @property
    def place(self) -> str:
        """The resource as RBAC names it: `pods/log`, `deployments.apps`."""
        group = self.resource.api_version.rpartition("/")[0]
        plural = f"{self.resource.plural}.{group}" if group else self.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


def _of(
    api_version: str, plural: str, verbs: tuple[str, ...], part: str = "", *, here: bool = True
) -> Right:
    return Right(Resource(api_version, plural, is_namespaced=here), verbs, part)


# In the whole cluster, of its watcher.
WATCHER_RIGHTS: Final = (
    _of("v1", "nodes", _WATCH, here=False),
    _of("v1", "pods", _WATCH),
)
WATCHER_DRA_RIGHTS: Final = (
    _of("resource.k8s.io/v1", "resourceslices", _WATCH, here=False),
    _of("resource.k8s.io/v1", "deviceclasses", _WATCH, here=False),
    _of("resource.k8s.io/v1", "resourceclaims", _WATCH),
)
# In the whole cluster, of a watcher outside of it.
WATCHER_PROXY_RIGHTS: Final = (
    Right(Resource("v1", "pods"), ("get",), "proxy", tells="how busy GPUs are, by dcgm-exporter"),
)
# In kube-public, of watcher and executor.
DEVICE_RIGHTS: Final = (
    Right(Resource("v1", "configmaps"), _WATCH, tells="which custom devices there are"),
)
# In each namespace of engines, of the watcher: nvidia-smi in pods of ours.
WATCHER_EXEC_RIGHTS: Final = (_of("v1", "pods", ("create", "get"), "exec"),)
# In each namespace of engines, of the executor.
POD_RIGHTS: Final = (
    _of("v1", "pods", (*_WATCH, "delete")),
    _of("v1", "pods", ("get",), "log"),
    _of("v1", "persistentvolumeclaims", ("get",)),
)
ENGINE_RIGHTS: Final = (
    *POD_RIGHTS,
    _of("apps/v1", "deployments", (*_CHANGE, "watch")),
    _of("v1", "services", _CHANGE),
)
ENGINE_DRA_RIGHTS: Final = (_of("resource.k8s.io/v1", "resourceclaimtemplates", _CHANGE),)
OME_RIGHTS: Final = (
    _of(OME_VERSION, "inferenceservices", (*_CHANGE, "watch")),
    _of(OME_VERSION, "servingruntimes", _CHANGE),
    _of(OME_VERSION, "basemodels", ("get",)),
)
# In the whole cluster, of the executor.
EXECUTOR_RIGHTS: Final = (_of("v1", "nodes", ("get",), here=False),)
OME_CLUSTER_RIGHTS: Final = (
    _of(OME_VERSION, "clusterbasemodels", ("get",), here=False),
    _of(OME_VERSION, "clusterservingruntimes", ("get", "list"), here=False),
)

OME_DEFINITION_RIGHTS: Final = tuple(
    Right(
        Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", is_namespaced=False),
        ("get",),
        name=f"{plural}.ome.io",
        tells="which fields of ours OME knows",
    )
    for plural in ("inferenceservices", "servingruntimes")
)
# In each namespace of engines, of the executor.
SECRET_RIGHTS: Final = (
    Right(
        Resource("v1", "secrets"),
        ("create",),
        tells="give engines their certificates, and the secrets that tasks name",
    ),
)
KUEUE_RIGHTS: Final = (
    Right(Resource(KUEUE_VERSION, "workloads"), _WATCH, tells="why Kueue holds an engine back"),
)

# What we set, by the kinds of OME: a cluster's version may not know all of it.
OUR_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "inferenceservices": (
        "spec.engine.affinity",
        "spec.engine.annotations",
        "spec.engine.labels",
        "spec.engine.maxReplicas",
        "spec.engine.minReplicas",
        "spec.engine.tolerations",
        "spec.model.apiGroup",
        "spec.model.kind",
        "spec.model.name",
        "spec.runtime.apiGroup",
        "spec.runtime.kind",
        "spec.runtime.name",
        "status.conditions",
        "status.url",
    ),
    "servingruntimes": (
        "spec.engineConfig.annotations",
        "spec.engineConfig.automountServiceAccountToken",
        "spec.engineConfig.enableServiceLinks",
        "spec.engineConfig.labels",
        "spec.engineConfig.resourceClaims",
        "spec.engineConfig.runner.args",
        "spec.engineConfig.runner.command",
        "spec.engineConfig.runner.env",
        "spec.engineConfig.runner.image",
        "spec.engineConfig.runner.readinessProbe",
        "spec.engineConfig.runner.resources",
        "spec.engineConfig.runner.securityContext",
        "spec.engineConfig.runner.volumeMounts",
        "spec.engineConfig.securityContext",
        "spec.engineConfig.terminationGracePeriodSeconds",
        "spec.engineConfig.volumes",
        "spec.supportedModelFormats.modelFormat",
        "spec.supportedModelFormats.modelFramework",
    ),
}


def version_of(text: str) -> tuple[int, int] | None:
    """Return the major and minor version of Kubernetes; None if unreadable."""
    match = _VERSION.match(text)
    return (int(match[1]), int(match[2])) if match is not None else None


def is_too_old(version: str) -> bool:
    """True if this Kubernetes is too old; False for an unreadable version."""
    return (version_of(version) or OLDEST) < OLDEST


def unknown_fields(definition: bytes, fields: Iterable[str]) -> tuple[str, ...]:
    """Return the fields that the served version of a CustomResourceDefinition lacks."""
    spec = msgspec.json.decode(definition)["spec"]
    version = OME_VERSION.rpartition("/")[2]
    schema = next(
        (
            (version_spec.get("schema") or {}).get("openAPIV3Schema") or {}
            for version_spec in spec["versions"]
            if version_spec["name"] == version and version_spec.get("served")
        ),
        {},
    )
    return tuple(field for field in fields if not _knows(schema, field.split(".")))


def _knows(schema: Mapping[str, Any], path: list[str]) -> bool:
    for step in path:
        if schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema:
            return True
        properties = (schema.get("items") or schema).get("properties") or {}
        if step not in properties:
            return False
        schema = properties[step]
    return True
