"""A configuration in the forms in which people run it."""

import re
import shlex
from typing import Any, Final

import yaml
from msgspec import json

from schemas.cluster.kubernetes import KubernetesSpec, VolumeClaim
from schemas.executor.attempts import EngineSpec
from schemas.gpus.gpu_request import GpuRequest
from schemas.task.report import Deployments
from shared.accelerator_rules.device_policies import devices_of
from shared.engines.launch import ANY_ADDRESS, EngineLaunch
from shared.engines.table import LAUNCHES
from shared.kubernetes.ome import OME_VERSION

SHARED_MEMORY: Final = "16Gi"
_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9]+")

Object = dict[str, Any]


def deployments(task_name: str, engine: EngineSpec, request: GpuRequest) -> Deployments:
    """Return how to start an engine whose start is known; else a note of what is missing."""
    if engine.endpoint is not None:
        return Deployments(notes=(f"the server ran already, at {engine.endpoint.url}",))
    launch = LAUNCHES.get(engine.engine)
    if launch is None:
        what = f"how {engine.engine} is started outside of this platform is not known here"
        return Deployments(notes=(what,))
    forms = _Forms(task_name, engine, request, launch)
    if request.nodes > 1:
        note = f"this engine ran on {request.nodes} nodes: start it on each, with its rank"
        return Deployments(command_line=forms.command_line(), notes=(note, *forms.model_notes()))
    return Deployments(
        command_line=forms.command_line(),
        compose=_yaml(forms.compose()),
        inference_service=_yaml(forms.serving_runtime(), forms.inference_service()),
        deployment=_yaml(forms.service(), forms.deployment()),
        notes=forms.notes(),
    )


class _Forms:
    def __init__(
        self, task_name: str, engine: EngineSpec, request: GpuRequest, launch: EngineLaunch
    ) -> None:
        self._engine, self._request, self._launch = engine, request, launch
        name = _NOT_IN_A_NAME.sub("-", task_name.lower()).strip("-")[:50].strip("-")
        # A Service is named by what is a host's name too: it begins with a letter.
        self._name = name if name[:1].isalpha() else f"llm-{name}".strip("-")
        self._image = f"{launch.repository}:{engine.image_tag or launch.tag}"
        self._labels = {"app": self._name}
        kubernetes = engine.kubernetes
        self._claim: VolumeClaim | None = kubernetes.claim if kubernetes is not None else None

    def notes(self) -> tuple[str, ...]:
        notes = [f"the image is that of this release, {self._image}: an operator may have another"]
        if self._request.shares is not None or self._request.mig_profile is not None:
            notes.append("it ran on a part of a GPU; this asks for whole ones")
        return (*notes, *self.model_notes())

    def model_notes(self) -> tuple[str, ...]:
        model = self._engine.model
        if self._launch.knows_where(model):
            return ()
        return (f"{model!r} is this platform's name of the model: put the path of its file there",)

    def command_line(self) -> str:
        """Return the command line with one parameter in each line."""
        launch = self._launch
        variables = [f"{name}={value}" for name, value in self._engine.env.items()]
        first = [*variables, *launch.program, *launch.model_arguments(self._engine.model)]
        parts = [first, *launch.arguments(self._engine.parameters), self._address]
        return " \\\n  ".join(shlex.join(part) for part in parts if part)

    def compose(self) -> Object:
        device = {"driver": "nvidia", "count": self._request.gpus, "capabilities": ["gpu"]}
        service: Object = {
            "image": self._image,
            # Compose replaces $NAME by a variable.
            "command": [argument.replace("$", "$$") for argument in self._image_arguments()],
            "ports": [f"{self._launch.port}:{self._launch.port}"],
            "shm_size": "16gb",
            **({"environment": dict(self._engine.env)} if self._engine.env else {}),
            "deploy": {"resources": {"reservations": {"devices": [device]}}},
        }
        if self._launch.entrypoint is not None:
            service["entrypoint"] = list(self._launch.entrypoint)
        if self._model_path is not None:
            path = self._model_path.replace("$", "$$")
            mount = {"type": "bind", "source": path, "target": path, "read_only": True}
            service["volumes"] = [mount]
        return {"services": {self._name: service}}

    def service(self) -> Object:
        port = self._launch.port
        ports = [{"name": "http", "port": port, "targetPort": port}]
        return self._object("v1", "Service", {"selector": self._labels, "ports": ports})

    def deployment(self) -> Object:
        pod = {"containers": [self._container("engine")], "volumes": self._volumes()}
        return self._object(
            "apps/v1",
            "Deployment",
            {
                "replicas": 1,
                # Its GPUs are those of the one before.
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": self._labels},
                "template": {"metadata": {"labels": self._labels}, "spec": pod},
            },
        )

    def serving_runtime(self) -> Object:
        runner = self._container("ome-container")  # by this name OME knows the engine's
        engine = {"runner": runner, "volumes": self._volumes()}
        return self._object(OME_VERSION, "ServingRuntime", {"engineConfig": engine})

    def inference_service(self) -> Object:
        kubernetes = self._engine.kubernetes
        spec: Object = {
            "runtime": {"name": self._name, "kind": "ServingRuntime", "apiGroup": "ome.io"},
            "engine": {"minReplicas": 1, "maxReplicas": 1},
        }
        if kubernetes is not None and kubernetes.base_model is not None:
            spec["model"] = {"name": kubernetes.base_model, "apiGroup": "ome.io"}
        return self._object(OME_VERSION, "InferenceService", spec)

    @property
    def _address(self) -> list[str]:
        return ["--host", ANY_ADDRESS, "--port", str(self._launch.port)]

    @property
    def _model_path(self) -> str | None:
        return self._engine.model if self._engine.model.startswith("/") else None

    @property
    def _limits(self) -> dict[str, str]:
        cluster = self._request.cluster
        resource = cluster.resource if cluster is not None else None
        names = self._engine.kubernetes or KubernetesSpec()
        limits = devices_of(names, resource, self._request.gpus).limits
        return {name: str(count) for name, count in limits.items()}

    def _image_arguments(self) -> list[str]:
        launch = self._launch
        task_arguments = [
            part for argument in launch.arguments(self._engine.parameters) for part in argument
        ]
        model = launch.model_arguments(self._engine.model)
        return [*launch.image_program, *model, *task_arguments, *self._address]

    def _container(self, name: str) -> Object:
        launch = self._launch
        made: Object = {
            "name": name,
            "image": self._image,
            # A cluster replaces $(NAME) by a variable.
            "args": [argument.replace("$", "$$") for argument in self._image_arguments()],
            "ports": [{"name": "http", "containerPort": launch.port}],
            "resources": {"limits": self._limits},
            "readinessProbe": {"httpGet": {"path": launch.readiness_path, "port": launch.port}},
            "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],  # noqa: S108  # the pod's own
        }
        if launch.entrypoint is not None:
            made["command"] = list(launch.entrypoint)
        if self._engine.env:
            variables = self._engine.env.items()
            made["env"] = [{"name": name, "value": value} for name, value in variables]
        if self._claim is not None:
            mount = {"name": "model", "mountPath": self._claim.mount_path, "readOnly": True}
            subpath = {"subPath": self._claim.subpath} if self._claim.subpath else {}
            made["volumeMounts"].append({**mount, **subpath})
        elif self._model_path is not None:
            mount = {"name": "model", "mountPath": self._model_path, "readOnly": True}
            made["volumeMounts"].append(mount)
        return made

    def _volumes(self) -> list[Object]:
        memory = {"medium": "Memory", "sizeLimit": SHARED_MEMORY}
        made: list[Object] = [{"name": "shared-memory", "emptyDir": memory}]
        if self._claim is not None:
            source = {"claimName": self._claim.name, "readOnly": True}
            made.append({"name": "model", "persistentVolumeClaim": source})
        elif self._model_path is not None:
            made.append({"name": "model", "hostPath": {"path": self._model_path}})
        return made

    def _object(self, version: str, kind: str, spec: Object) -> Object:
        metadata = {"name": self._name, "labels": self._labels}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _yaml(*documents: Object) -> str:
    # Copied, or what stands in several places would be written as anchors and aliases.
    copies = [json.decode(json.encode(document)) for document in documents]
    text: str = yaml.safe_dump_all(copies, sort_keys=False, width=100)
    return text
