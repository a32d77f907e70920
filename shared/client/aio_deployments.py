"""An InferenceService of OME on the node that the platform chooses, for asynchronous programs.

The service is its caller's, made with the caller's own rights in the cluster (KUBECONFIG): nothing
of the platform holds its GPUs, benchmarks or ends it. Once its pod is bound it counts as every
other pod of the cluster.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec import Struct

from schemas.cluster.node_selection import NodeSelection
from schemas.errors import ErrorCode
from shared.accelerator_rules.modes import GPU_RESOURCE
from shared.accelerator_rules.node_labels import HOSTNAME_LABEL, whole_gpu_expressions
from shared.client.errors import PlatformUnreachable
from shared.client.platform_query import query_platform
from shared.errors import RefusedError
from shared.gpu.node_selection import selection_lines
from shared.gpu.sizing import degree, degree_named, hyphenate, world_size_of
from shared.kubernetes.access import ClusterAccess
from shared.kubernetes.client import KubernetesClient
from shared.kubernetes.errors import NOT_FOUND, KubernetesError
from shared.kubernetes.names import Resource
from shared.kubernetes.ome import (
    BASE_MODELS,
    CLUSTER_MODELS,
    CLUSTER_RUNTIMES,
    ENGINE_CONTAINER,
    INFERENCE_SERVICES,
    OME_VERSION,
    SERVING_RUNTIMES,
)

log: Final = logging.getLogger(__name__)

FIELD_MANAGER: Final = "gpusteward-client"
# Of a namespace before the cluster's, as OME itself looks for them.
RUNTIMES: Final = {
    "ServingRuntime": SERVING_RUNTIMES,
    "ClusterServingRuntime": CLUSTER_RUNTIMES,
}
MODELS: Final = {
    "BaseModel": BASE_MODELS,
    "ClusterBaseModel": CLUSTER_MODELS,
}


@dataclass(frozen=True, slots=True)
class DeployedService:
    """An InferenceService that was made; `node_name` None: Kubernetes places its pod."""

    name: str
    namespace: str
    node_name: str | None


@dataclass(frozen=True, slots=True)
class InferenceServicePlan:
    """What an InferenceService is made of; `hostname` is the chosen node's, None for none.

    Kubernetes then keeps its pod off `avoided_hostnames` and nodes that say that their GPUs are
    divided; with None it chooses among all.
    """

    name: str
    namespace: str
    model_name: str
    model_kind: str
    runtime_name: str
    runtime_kind: str
    parameters: Mapping[str, Any]
    gpus: int
    hostname: str | None
    avoided_hostnames: tuple[str, ...] | None = None


async def deploy_inference_service(
    task_name: str,
    experiment_id: str,
    namespace: str,
    model_name: str,
    runtime_name: str,
    parameters: Mapping[str, Any],
    enable_gpu_selection: bool = True,
    *,
    access: ClusterAccess | None = None,
) -> DeployedService:
    """Make or change the InferenceService `TASK-expEXPERIMENT`.

    Its GPUs are what `parameters` come to (`tp-size`, ...), which are passed to the engine. It is
    bound to the node that `select-node` names. Where none is named, or the platform does not
    answer, Kubernetes chooses among nodes whose GPUs are not divided, and with
    `enable_gpu_selection=False` among all. `access` is the cluster's,
    None as kubectl finds it.

    Raises RefusedError for a model or a runtime that is not there and for no degree of
    parallelism, KubernetesError for what the cluster refuses.
    """
    gpus = gpus_of(parameters)
    selection = await select_for(gpus) if enable_gpu_selection else None
    async with KubernetesClient(access) as cluster:
        plan = InferenceServicePlan(
            name=f"{task_name}-exp{experiment_id}",
            namespace=namespace,
            model_name=model_name,
            model_kind=await _kind_of(cluster, MODELS, model_name, namespace),
            runtime_name=runtime_name,
            runtime_kind=await _kind_of(cluster, RUNTIMES, runtime_name, namespace),
            parameters=parameters,
            gpus=gpus,
            hostname=selection.hostname or selection.node_id if selection is not None else None,
            avoided_hostnames=selection.avoided_hostnames if selection is not None else None,
        )
        await cluster.apply(
            INFERENCE_SERVICES, inference_service(plan), field_manager=FIELD_MANAGER, force=True
        )
    node_name = selection.node_id if selection is not None else None
    where = f" on node '{node_name}'" if node_name else ""
    log.info("Created InferenceService '%s' in namespace '%s'%s", plan.name, namespace, where)
    return DeployedService(name=plan.name, namespace=namespace, node_name=node_name)


def gpus_of(parameters: Mapping[str, Any]) -> int:
    """Return the GPUs of one configuration. Raises RefusedError for no whole number."""
    return world_size_of(
        (kind, degree(value, f"$.parameters.{name}"))
        for name, value in parameters.items()
        if (kind := degree_named(name)) is not None and value is not None
    )


def inference_service(plan: InferenceServicePlan) -> dict[str, Any]:
    """Return the object that OME reads."""
    engine: dict[str, Any] = {
        "minReplicas": 1,
        "maxReplicas": 1,
        "runner": {
            "name": ENGINE_CONTAINER,
            "args": _arguments(plan.parameters),
            "resources": {"limits": {GPU_RESOURCE: str(plan.gpus)}},
        },
    }
    if (expressions := _node_expressions(plan)) is not None:
        terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        engine["affinity"] = {"nodeAffinity": required}
    return {
        "apiVersion": OME_VERSION,
        "kind": "InferenceService",
        "metadata": {"name": plan.name, "namespace": plan.namespace},
        "spec": {
            "model": {"name": plan.model_name, "kind": plan.model_kind, "apiGroup": "ome.io"},
            "runtime": {"name": plan.runtime_name, "kind": plan.runtime_kind, "apiGroup": "ome.io"},
            "engine": engine,
        },
    }


def _arguments(parameters: Mapping[str, Any]) -> list[str]:
    """Return the engine's flags; a cluster would replace $(NAME) by a variable."""
    arguments = []
    for name, value in parameters.items():
        if value is None or value is False:
            continue
        flag = f"--{hyphenate(name)}"
        text = flag if value is True else f"{flag}={value}"
        arguments.append(text.replace("$", "$$"))
    return arguments


def _node_expressions(plan: InferenceServicePlan) -> list[dict[str, Any]] | None:
    if plan.hostname is not None:
        return [{"key": HOSTNAME_LABEL, "operator": "In", "values": [plan.hostname]}]
    if plan.avoided_hostnames is None:
        return None
    return whole_gpu_expressions(GPU_RESOURCE, plan.avoided_hostnames)


async def select_for(gpus: int) -> NodeSelection:
    """Return the platform's choice; one without a node where it has none or does not answer."""
    try:
        selection = await query_platform(lambda client: client.select_node(gpus))
    except PlatformUnreachable as error:
        log.warning("No node selected, left to Kubernetes: %s", error)
        return NodeSelection(node_id=None)
    log.info("\n".join(selection_lines(gpus, selection)))
    if selection.node_id is not None and (
        selection.summary is None or selection.summary.cluster_id is None
    ):
        log.warning("Left to Kubernetes: '%s' is a node of no cluster", selection.node_id)
        return NodeSelection(node_id=None)
    return selection


async def _kind_of(
    cluster: KubernetesClient, kinds: Mapping[str, Resource], name: str, namespace: str
) -> str:
    """Return which kind of object has the name. Raises RefusedError where none has."""

    class Anything(Struct):
        """An object, of which it counts that it is there."""

    for kind, resource in kinds.items():
        try:
            await cluster.get(resource, name, Anything, namespace=namespace)
        except KubernetesError as error:
            if error.code != NOT_FOUND:
                raise
        else:
            return kind
    expected = " or ".join(kinds)
    raise RefusedError(
        ErrorCode.NOT_FOUND,
        f"expected a {expected} named {name!r}, for namespace {namespace!r}; found none",
    )
