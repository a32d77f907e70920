"""What is made in a cluster for one engine: the grant, the engine's command and the bounds as
objects.

Pure: the same plan always makes the same objects, so a test sees all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import to_builtins

from schemas.cluster.kubernetes import ContainerDevices
from schemas.cluster.nodes import GpuSupply
from schemas.executor.attempts import Runtime
from services.executor.engines.compile_cache import CONTAINER_TARGET, cache_variables
from services.executor.runtimes.engine_process import label_environment
from services.executor.runtimes.kubernetes.kinds import OME_GROUP, Object
from services.executor.runtimes.kubernetes.leader_worker import keep_variables
from services.executor.runtimes.kubernetes.plan import (
    LEADER_PORT,
    RANKS,
    Plan,
    finding_labels,
    rank_name,
    workload_name,
)
from services.executor.runtimes.kubernetes.secrets import secret_variables
from services.executor.runtimes.kubernetes.tls import readiness_probe, tls_mounts, tls_volumes
from services.executor.runtimes.runtime import Launch
from services.executor.settings import ExecutorSettings
from shared.accelerator_rules.advice import advise_environment
from shared.accelerator_rules.cuda_versions import image_cuda, runtime_cuda
from shared.accelerator_rules.device_policies import devices_of
from shared.accelerator_rules.modes import DEVICE_CLASS, GPU_RESOURCE
from shared.accelerator_rules.node_labels import HOSTNAME_LABEL, cuda_terms, whole_gpu_expressions
from shared.kubernetes.ome import ENGINE_CONTAINER, OME_VERSION
from shared.labels import (
    ATTEMPT_LABEL,
    EPOCH_LABEL,
    EXPERIMENT_LABEL,
    RANK_LABEL,
)

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
KAI: Final = "kai-scheduler"
KAI_QUEUE_LABEL: Final = "kai.scheduler/queue"
MODEL_VOLUME: Final = "model"
COMPILED_VOLUME: Final = "compiled"
SHARED_MEMORY: Final = "shared-memory"
CLAIM_NAME: Final = "gpus"
# The toleration that the device plugin's own documentation gives every pod with GPUs.
TOLERATIONS: Final = ({"key": GPU_RESOURCE, "operator": "Exists"},)


def objects_of(
    launch: Launch, plans: Sequence[Plan], settings: ExecutorSettings
) -> tuple[Object, ...]:
    """Return all objects of an engine's ranks in the order in which they are made; the last make
    its pods.
    """
    make, *members = [_Maker(launch, plan, settings) for plan in plans]
    template = (make.claim_template(),) if make.has_claims else ()
    if plans[0].kind is Runtime.OME:
        worker = members[0] if members else None  # one template makes all of them
        return (*template, make.serving_runtime(worker), make.inference_service(worker))
    meeting = (make.meeting_service(),) if members else ()
    deployments = (make.deployment(), *(member.deployment() for member in members))
    return (*template, make.service(), *meeting, *deployments)


def engine_container(launch: Launch, plan: Plan, settings: ExecutorSettings) -> Object:
    """The engine's container as it is intended."""
    return _Maker(launch, plan, settings).container()


def literal(text: str) -> str:
    """So that a cluster leaves it as it is, which replaces `$(NAME)` by a variable."""
    return text.replace("$", "$$")


def _counts(devices: Mapping[str, int]) -> dict[str, str]:
    return {resource: str(count) for resource, count in devices.items()}


class _Maker:
    def __init__(self, launch: Launch, plan: Plan, settings: ExecutorSettings) -> None:
        self._launch, self._plan, self._settings = launch, plan, settings
        self._name = workload_name(launch.command)

    @property
    def has_claims(self) -> bool:
        return self._plan.placement.supply is GpuSupply.DRA

    def claim_template(self) -> Object:
        placement = self._plan.placement
        device_class = placement.resource or DEVICE_CLASS
        request = {
            "name": CLAIM_NAME,
            "exactly": {"deviceClassName": device_class, "count": placement.gpus},
        }
        spec = {
            "metadata": {"labels": self._labels},
            "spec": {"devices": {"requests": [request]}},
        }
        return self._object("resource.k8s.io/v1", "ResourceClaimTemplate", spec)

    def service(self) -> Object:
        port = self._plan.image.port
        spec: dict[str, Any] = {
            "selector": self._labels,
            "ports": [{"name": "http", "port": port, "targetPort": port}],
        }
        if self._settings.cluster_access == "node_port":
            spec["type"] = "NodePort"
        return self._object("v1", "Service", spec)

    def meeting_service(self) -> Object:
        """Return the name of rank 0's pod, which the others look for before it is ready."""
        spec = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": self._labels,
            "ports": [{"name": "ranks", "port": LEADER_PORT, "targetPort": LEADER_PORT}],
        }
        return self._object("v1", "Service", spec, name=f"{self._name}{RANKS}")

    def deployment(self) -> Object:
        pod = {
            "metadata": {"labels": self._pod_labels, "annotations": self._annotations},
            "spec": {
                "containers": [self.container()],
                **self.pod_parts(),
                **self.placement_parts(),
            },
        }
        spec = {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            # An engine that ends has failed, whatever would be started in its place.
            "progressDeadlineSeconds": 3600,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": self._labels},
            "template": pod,
        }
        name = rank_name(self._launch.command, self._plan.rank)
        return self._object("apps/v1", "Deployment", spec, labels=self._queue, name=name)

    def serving_runtime(self, worker: "_Maker | None") -> Object:
        """Return the ServingRuntime with the complete command, as a catalogue's additions are
        unknown.
        """
        parts = self._by_template(
            worker, lambda make: {"runner": make.container(), **make.pod_parts()}
        )
        spec: dict[str, Any] = {
            "engineConfig": {
                **self._replicas,
                "labels": self._pod_labels,
                "annotations": self._annotations,
                **parts,
            }
        }
        if (formats := self._formats) is not None:
            spec["supportedModelFormats"] = [formats]
        return self._object(OME_VERSION, "ServingRuntime", spec)

    def inference_service(self, worker: "_Maker | None") -> Object:
        spec: dict[str, Any] = {
            "runtime": {"name": self._name, "kind": "ServingRuntime", "apiGroup": OME_GROUP},
            "engine": {
                **self._replicas,
                "labels": self._pod_labels,
                "annotations": self._annotations,
                **self._by_template(worker, lambda make: make.placement_parts()),
            },
        }
        if (model := self._plan.model) is not None:
            spec["model"] = {"name": model.name, "kind": model.kind, "apiGroup": OME_GROUP}
        annotations = {
            # Replicas are ours: no autoscaler, and none that scales to zero.
            f"{OME_GROUP}/deploymentMode": "MultiNode" if worker else "RawDeployment",
            f"{OME_GROUP}/autoscalerClass": "external",
        }
        return self._object(
            OME_VERSION, "InferenceService", spec, labels=self._queue, annotations=annotations
        )

    def _by_template(
        self, worker: "_Maker | None", parts_of: "Callable[[_Maker], Object]"
    ) -> Object:
        """Return what OME makes pods from: one template, or one of the leader and one of all its
        workers.
        """
        if worker is None:
            return parts_of(self)
        size = {"size": len(self._plan.worker_nodes)}
        return {"leader": parts_of(self), "worker": {**size, **parts_of(worker)}}

    def container(self) -> Object:
        plan = self._plan
        port = plan.image.port
        made: Object = {
            "name": ENGINE_CONTAINER,
            "image": plan.reference,
            "args": [keep_variables(literal(argument), plan) for argument in plan.command.argv],
            "env": [*self._variables(), *secret_variables(self._launch)],
            "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
            "resources": self._resources(),
            "volumeMounts": self._mounts(),
            "readinessProbe": readiness_probe(plan),
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "privileged": False,
                # As in a container of ours elsewhere: models may belong to any user.
                "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]},
            },
        }
        if plan.image.entrypoint is not None:
            made["command"] = [literal(word) for word in plan.image.entrypoint]
        if plan.rank:  # it answers no HTTP
            del made["readinessProbe"]
        return made

    def _object(
        self,
        api_version: str,
        kind: str,
        spec: Object,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Object:
        return {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {
                "name": name or self._name,
                "namespace": self._plan.namespace,
                "labels": {**self._labels, **(labels or {})},
                "annotations": {**self._annotations, **(annotations or {})},
            },
            "spec": spec,
        }

    @property
    def _labels(self) -> dict[str, str]:
        labels = self._launch.labels
        written = {
            **finding_labels(self._settings, self._plan.kind, labels),
            ATTEMPT_LABEL: self._launch.command.attempt_id,
            EPOCH_LABEL: labels.epoch or 0,
            EXPERIMENT_LABEL: labels.experiment_id,
            RANK_LABEL: self._plan.labelled_rank,
        }
        return {name: str(value) for name, value in written.items() if value is not None}

    @property
    def _pod_labels(self) -> dict[str, str]:
        """KAI reads a pod's queue from the pod, Kueue that of what makes it."""
        is_kai = self._settings.cluster_scheduler == KAI
        return {**self._labels, **(self._queue if is_kai else {})}

    @property
    def _annotations(self) -> dict[str, str]:
        return {EPOCH_LABEL: str(self._launch.labels.epoch or 0)}

    @property
    def _queue(self) -> dict[str, str]:
        queue = self._settings.cluster_queue
        label = KAI_QUEUE_LABEL if self._settings.cluster_scheduler == KAI else QUEUE_LABEL
        return {label: queue} if queue else {}

    @property
    def _replicas(self) -> dict[str, int]:
        return {"minReplicas": 1, "maxReplicas": 1}

    @property
    def _formats(self) -> Object | None:
        """The model's own: OME refuses a runtime that does not say that it takes them."""
        model = self._plan.model
        if model is None or model.spec.model_format is None or model.spec.model_framework is None:
            return None
        fields = {
            "modelFormat": to_builtins(model.spec.model_format),
            "modelFramework": to_builtins(model.spec.model_framework),
            "modelArchitecture": model.spec.model_architecture,
            "quantization": model.spec.quantization,
            "autoSelect": False,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def _variables(self) -> list[Object]:
        variables = {
            "PYTHONUNBUFFERED": "1",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            **advise_environment(self._plan.reference, self._plan.placement.resource or ""),
            **self._plan.command.env,
            **(cache_variables(CONTAINER_TARGET) if self._plan.cache is not None else {}),
            **label_environment(self._launch.labels),
            "GPUSTEWARD_ATTEMPT": str(self._launch.command.attempt_id),
        }
        return [{"name": name, "value": literal(value)} for name, value in variables.items()]

    def _resources(self) -> Object:
        command = self._launch.command
        container_resources = self._plan.names.container.resources
        bounds: dict[str, str] = {}
        if (cpus := command.cpu_count or self._settings.engine_cpus) > 0:
            bounds["cpu"] = f"{round(cpus * 1000)}m"
        if (memory_mb := command.host_memory_mb or self._settings.engine_memory_mb) > 0:
            bounds["memory"] = f"{memory_mb}Mi"
        devices = self._devices()
        made: Object = {
            "requests": {**bounds, **container_resources.requests, **_counts(devices.requests)},
            "limits": {**bounds, **container_resources.limits, **_counts(devices.limits)},
        }
        if self.has_claims:
            made["claims"] = [{"name": CLAIM_NAME}]
        return {name: value for name, value in made.items() if value}

    def _devices(self) -> ContainerDevices:
        if self.has_claims:
            return ContainerDevices()
        placement = self._plan.placement
        return devices_of(self._plan.names, placement.resource, placement.gpus)

    def _mounts(self) -> list[Object]:
        mounts: list[Object] = [{"name": SHARED_MEMORY, "mountPath": "/dev/shm"}]  # noqa: S108  # the pod's own
        if (claim := self._plan.names.claim) is not None:
            mount = {"name": MODEL_VOLUME, "mountPath": claim.mount_path, "readOnly": True}
            mounts.append({**mount, "subPath": claim.subpath} if claim.subpath else mount)
        if (cache := self._plan.cache) is not None:
            mount = {"name": COMPILED_VOLUME, "mountPath": CONTAINER_TARGET}
            mounts.append({**mount, "subPath": cache.directory})
        return [*mounts, *tls_mounts(self._plan)]

    def pod_parts(self) -> Object:
        """Return the fields of the pod that do not say where it runs."""
        shm_mb = self._plan.image.shm_mb or self._settings.container_shm_mb
        volumes: list[Object] = [
            {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm_mb}Mi"}}
        ]
        if (claim := self._plan.names.claim) is not None:
            source = {"claimName": claim.name, "readOnly": True}
            volumes.append({"name": MODEL_VOLUME, "persistentVolumeClaim": source})
        if (cache := self._plan.cache) is not None:
            volumes.append({"name": COMPILED_VOLUME, **cache.volume.source})
        volumes += tls_volumes(self._plan, self._name)
        made: Object = {
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": max(1, round(self._settings.stop_grace_seconds)),
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": volumes,
        }
        if self._settings.cluster_scheduler:
            made["schedulerName"] = self._settings.cluster_scheduler
        if self.has_claims:
            made["resourceClaims"] = [{"name": CLAIM_NAME, "resourceClaimTemplateName": self._name}]
        return made

    def placement_parts(self) -> Object:
        made: Object = {"tolerations": [dict(toleration) for toleration in TOLERATIONS]}
        if terms := self._node_terms():
            required = "requiredDuringSchedulingIgnoredDuringExecution"
            made["affinity"] = {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}
            if len(self._plan.hostnames) > 1:
                attempt = {ATTEMPT_LABEL: str(self._launch.command.attempt_id)}
                apart = {"labelSelector": {"matchLabels": attempt}, "topologyKey": HOSTNAME_LABEL}
                made["affinity"]["podAntiAffinity"] = {required: [apart]}
        return made

    def _node_terms(self) -> list[Object]:
        """The nodes that were chosen; where none was, those whose GPUs are not divided, and whose
        driver serves the image.
        """
        if hostnames := self._plan.hostnames:
            values = list(hostnames)
            host_expression = {"key": HOSTNAME_LABEL, "operator": "In", "values": values}
            return [{"matchExpressions": [host_expression]}]
        gpu_expressions = self._whole_gpus()
        cuda = image_cuda(self._plan.reference, (), {})
        if cuda is None or not self._settings.cluster_cuda_labels:
            return [{"matchExpressions": gpu_expressions}] if gpu_expressions else []
        terms = cuda_terms(runtime_cuda(cuda))
        return [
            {"matchExpressions": [*term["matchExpressions"], *gpu_expressions]} for term in terms
        ]

    def _whole_gpus(self) -> list[Object]:
        placement = self._plan.placement
        if placement.units is not None:
            return []
        return whole_gpu_expressions(placement.resource, placement.avoided_hostnames)
