"""What OME makes of an InferenceService, by its documentation (v1.3) and its CRDs (v0.1.5).

A stand-in's knowledge, pure: objects in, objects out. Left out: decoders, routers, engines by Ray,
autoscalers, ingress, fine-tuned weights, and the scores by which OME chooses among several runtimes
that fit.

What surprises, each with its test in tests/real/kubernetes/test_ome_stand_in.py:

- The InferenceService wins over its runtime, but what a runtime says for the chosen accelerator
  class is applied after that: it rewrites the tensor parallelism of the task in silence, and its
  environment goes over the task's.
- `args` and `command` replace the runtime's whole lists. A runtime with its flags in `command`
  keeps them all beside the InferenceService's `args`.
- `MODEL_PATH` and `PARALLELISM_SIZE` are added; the latter replaces any value.
- Values of the runner are templates over the InferenceService's metadata: a malformed one leaves
  the workload as it was.
- A model's pods run only on nodes that have the model, but for models in a volume claim.
- An engine with a leader or workers becomes a LeaderWorkerSet, whose pods all get the engine's
  labels: which is which only the LeaderWorkerSet's own labels say.
- A named runtime that is not there leaves what runs as it is; one that was chosen is chosen anew
  at every change.
"""

import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.kubernetes.api import Object
from tests.support.kubernetes.leader_worker_sets import SETS_VERSION, leader_template

API_VERSION: Final = "ome.io/v1beta1"
SERVICE_LABEL: Final = "ome.io/inferenceservice"
CONTAINER: Final = "ome-container"
PORT: Final = 8080
HEAD: Final = {"ray.io/node-type": "head"}  # the leader's, by Ray or not
GRACE_SECONDS: Final = 600  # what OME's chart sets
# Lists whose items have a name; every other list is replaced as a whole.
_ITEM_KEYS: Final = {
    "env": "name",
    "volumes": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
}
# The fields of a component that are not those of a pod.
_NOT_OF_A_POD: Final = frozenset(
    {
        "acceleratorOverride",
        "annotations",
        "canaryTrafficPercent",
        "containerConcurrency",
        "deploymentStrategy",
        "kedaConfig",
        "labels",
        "leader",
        "maxReplicas",
        "maxUnavailable",
        "minAvailable",
        "minReplicas",
        "runner",
        "scaleMetric",
        "scaleTarget",
        "size",
        "timeout",
        "timeoutSeconds",
        "worker",
    }
)
_PARALLELISM: Final = {
    "tensorParallelSize": ("--tp-size", "--tp", "--tensor-parallel-size"),
    "pipelineParallelSize": ("--pp-size", "--pp", "--pipeline-parallel-size"),
}
_PLACEHOLDER: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_FIELD: Final = re.compile(r"\.(Name|Namespace|(?:Labels|Annotations)\.[A-Za-z0-9_]+)")
_INDEX: Final = re.compile(r"index \.(Labels|Annotations) `([^`]*)`")


class Refused(Exception):
    """Nothing is made; `reason` is that of the event, of a condition or of the failure."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Installed:
    """Everything of OME in the cluster, by namespace (None for all of them) and name."""

    runtimes: Mapping[tuple[str | None, str], Object] = field(default_factory=dict)
    models: Mapping[tuple[str | None, str], Object] = field(default_factory=dict)
    accelerator_classes: Mapping[str, Object] = field(default_factory=dict)


def workload_of(service: Object, installed: Installed) -> Object:
    """The engine's Deployment, or its LeaderWorkerSet over several nodes. Raises Refused."""
    if "engine" not in service["spec"]:
        raise Refused("DeploymentModeError", "an InferenceService needs an engine")
    model = _model(service, installed)
    runtime = _runtime(service, model, installed)
    own = service["spec"]["engine"]
    engine = merged(runtime["spec"].get("engineConfig", {}), own)
    accelerator = _accelerator_class(service, runtime, installed)
    override = _override(runtime, model, accelerator)

    def pod_of(part: Object, own_part: Object) -> Object:
        made = _runner(part, own_part, model, accelerator, override)
        pod: Object = {key: value for key, value in part.items() if key not in _NOT_OF_A_POD}
        pod.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
        pod["containers"] = [_rendered(made, service["metadata"]), *pod.pop("containers", [])]
        selector = _node_selector(service, runtime, part, own_part, model, accelerator)
        if selector:
            pod["nodeSelector"] = selector
        if accelerator is not None and "affinity" not in own_part:
            pod |= {
                key: value
                for key, value in accelerator["spec"].get("discovery", {}).items()
                if key == "affinity"
            }
        if model is not None:
            pod["volumes"] = [*pod.get("volumes", []), _model_volume(model)]
        return pod

    name = f"{service['metadata']['name']}-engine"
    labels = {
        **service["metadata"].get("labels", {}),
        **engine.get("labels", {}),
        SERVICE_LABEL: service["metadata"]["name"],
        "component": "engine",
        "serving-runtime": runtime["metadata"]["name"],
    }
    annotations = {**service["metadata"].get("annotations", {}), **engine.get("annotations", {})}
    selector_labels = {"app": f"isvc.{name}"}
    if "leader" in engine or "worker" in engine:
        leader, worker = (
            pod_of(engine.get(part, {}), own.get(part, {})) for part in ("leader", "worker")
        )
        metadata = {"labels": labels, "annotations": annotations}
        head = {**metadata, "labels": {**labels, **selector_labels, **HEAD}}
        return {
            "apiVersion": SETS_VERSION,
            "kind": "LeaderWorkerSet",
            "metadata": _owned(service, f"lws-{name[-50:]}", labels, annotations),
            "spec": {
                "replicas": engine.get("minReplicas", 1),
                "leaderWorkerTemplate": {
                    "size": engine["worker"].get("size", 0) + 1,
                    "restartPolicy": "RecreateGroupOnPodRestart",
                    "leaderTemplate": {"metadata": head, "spec": leader},
                    "workerTemplate": {"metadata": metadata, "spec": worker},
                },
            },
        }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _owned(service, name, labels, annotations),
        "spec": {
            "replicas": engine.get("minReplicas", 1),
            "selector": {"matchLabels": selector_labels},
            "template": {
                "metadata": {"labels": {**labels, **selector_labels}, "annotations": annotations},
                "spec": pod_of(engine, own),
            },
        },
    }


def services_of(service: Object, workload: Object) -> list[Object]:
    """The Service of the engine, and the one in front of it at which clients ask."""
    template = workload["spec"].get("template") or leader_template(workload)
    [runner, *_] = template["spec"]["containers"]
    port = runner.get("ports", [{"containerPort": PORT}])[0]["containerPort"]
    selector = template["metadata"]["labels"]
    chosen = {key: selector[key] for key in ("app", *HEAD) if key in selector}
    made = []
    for name in (f"{service['metadata']['name']}-engine", service["metadata"]["name"]):
        labels = {SERVICE_LABEL: service["metadata"]["name"]}
        made.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": _owned(service, name, labels, {}),
                "spec": {
                    "selector": chosen,
                    "ports": [{"name": "http", "port": PORT, "targetPort": port}],
                },
            }
        )
    return made


def merged(runtime: Any, own: Any, key: str = "") -> Any:
    """A component of the runtime with the InferenceService's over it."""
    if isinstance(runtime, Mapping) and isinstance(own, Mapping):
        both = {**runtime, **own}
        return {
            name: merged(runtime[name], own[name], name)
            if name in runtime and name in own
            else copy.deepcopy(value)
            for name, value in both.items()
        }
    if isinstance(runtime, list) and isinstance(own, list) and (name := _ITEM_KEYS.get(key)):
        by_name = {each[name]: each for each in runtime}
        for each in own:
            by_name[each[name]] = merged(by_name.get(each[name], {}), each)
        return list(by_name.values())
    return copy.deepcopy(own)


def _runner(
    engine: Object,
    own: Object,
    model: Object | None,
    accelerator: Object | None,
    override: Object,
) -> Object:
    runner: Object = copy.deepcopy(engine.get("runner", {}))
    runner["name"] = runner.get("name") or CONTAINER
    if model is not None:
        path = model["spec"]["storage"].get("path", "")
        if all(each["name"] != "MODEL_PATH" for each in runner.get("env", [])):
            _set_variable(runner, "MODEL_PATH", path)
        mount = {"name": model["metadata"]["name"], "mountPath": path, "readOnly": True}
        runner["volumeMounts"] = [*runner.get("volumeMounts", []), mount]
    for name, value in override.get("environmentOverride", {}).items():
        _set_variable(runner, name, value)
    if accelerator is not None and not own.get("runner", {}).get("resources"):
        amounts = {
            each["name"]: each["quantity"] for each in accelerator["spec"].get("resources", [])
        }
        for kind in ("requests", "limits"):
            resources = runner.setdefault("resources", {})
            resources[kind] = {**resources.get(kind, {}), **amounts}
    if arguments := override.get("runtimeArgsOverride"):
        runner["args"] = _with_flags(runner.get("args", []), arguments)
    sizes = override.get("tensorParallelismOverride", {})
    for name, flags in _PARALLELISM.items():
        if sizes.get(name):
            _rewrite(runner, flags, str(sizes[name]))
    limits = runner.get("resources", {}).get("limits", {})
    gpus = sum(int(amount) for name, amount in limits.items() if name.endswith("/gpu"))
    if gpus and not sizes:
        _set_variable(runner, "PARALLELISM_SIZE", str(gpus))
    return runner


def _set_variable(runner: Object, name: str, value: str) -> None:
    runner["env"] = merged(
        {"env": runner.get("env", [])}, {"env": [{"name": name, "value": value}]}
    )["env"]


def _with_flags(arguments: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """A flag that is there gets the new value, in its own form; others are appended."""
    result = list(arguments)
    for override in overrides:
        flag, _, value = override.partition("=")
        if not _rewrite_in(result, flag, value):
            result.append(override)
    return result


def _rewrite(runner: Object, flags: Sequence[str], value: str) -> None:
    """The first of these flags that `args` has, or else `command`; none is added."""
    for place in ("args", "command"):
        for flag in flags:
            values = list(runner.get(place, []))
            if _rewrite_in(values, flag, value):
                runner[place] = values
                return


def _rewrite_in(values: list[str], flag: str, value: str) -> bool:
    for number, each in enumerate(values):
        if each == flag and number + 1 < len(values):
            values[number + 1] = value
            return True
        if each.startswith(f"{flag}="):
            values[number] = f"{flag}={value}"
            return True
        # The line of a shell.
        in_line, count = re.subn(rf"(?<!\S)({re.escape(flag)}[= ])\S+", rf"\g<1>{value}", each)
        if count:
            values[number] = in_line
            return True
    return False


def _rendered(runner: Object, metadata: Object) -> Object:
    def value_of(match: re.Match[str]) -> str:
        inside = match[1].strip()
        if found := _INDEX.fullmatch(inside):
            values = metadata.get(found[1].lower(), {})
            return str(values.get(found[2], ""))
        if found := _FIELD.fullmatch(inside):
            kind, _, key = found[1].partition(".")
            if key:
                return str(metadata.get(kind.lower(), {}).get(key, "<no value>"))
            return str(metadata[kind.lower()])
        raise Refused("ReconcileError", f"malformed placeholder {match[0]}")

    def rendered(value: Any) -> Any:
        if isinstance(value, str):
            return _PLACEHOLDER.sub(value_of, value)
        if isinstance(value, list):
            return [rendered(each) for each in value]
        if isinstance(value, Mapping):
            return {key: rendered(each) for key, each in value.items()}
        return value

    result: Object = rendered(runner)
    return result


def _model(service: Object, installed: Installed) -> Object | None:
    if (wanted := service["spec"].get("model")) is None:
        return None
    is_own = wanted.get("kind") == "BaseModel"
    place = service["metadata"]["namespace"] if is_own else None
    if (found := installed.models.get((place, wanted["name"]))) is None:
        raise Refused("BaseModelNotFound", f"no model {wanted['name']}")
    return found


def _runtime(service: Object, model: Object | None, installed: Installed) -> Object:
    namespace = service["metadata"]["namespace"]
    if (wanted := service["spec"].get("runtime")) is not None:
        is_own = wanted.get("kind") == "ServingRuntime"
        places = (namespace,) if is_own else (None, namespace)
        for place in places:
            if (found := installed.runtimes.get((place, wanted["name"]))) is not None:
                if found["spec"].get("disabled"):
                    raise Refused("RuntimeDisabled", f"runtime {wanted['name']} is disabled")
                return found
        raise Refused("RuntimeNotRecognized", f"no runtime {wanted['name']}")
    fitting = [
        (place is None, -max(each.get("priority", 1) for each in formats), name, runtime)
        for (place, name), runtime in installed.runtimes.items()
        if place in (None, namespace) and not runtime["spec"].get("disabled")
        if (formats := [each for each in _formats(runtime, model) if each.get("autoSelect")])
    ]
    if not fitting:
        raise Refused("NoSupportingRuntime", "no runtime supports the model")
    return min(fitting, key=lambda each: each[:3])[3]


def _formats(runtime: Object, model: Object | None) -> list[Object]:
    formats: list[Object] = runtime["spec"].get("supportedModelFormats", [])
    if model is None:
        return formats
    wanted = model["spec"].get("modelFormat", {}).get("name")
    return [each for each in formats if each["modelFormat"]["name"] == wanted]


def _accelerator_class(service: Object, runtime: Object, installed: Installed) -> Object | None:
    listed = runtime["spec"].get("acceleratorRequirements", {}).get("acceleratorClasses", [])
    choice = service["spec"]["engine"].get("acceleratorOverride") or service["spec"].get(
        "acceleratorSelector", {}
    )
    if not listed or not choice:
        return None
    if (name := choice.get("acceleratorClass")) is None:
        # By a policy; the first that is listed stands for whatever the policy prefers.
        name = next((each for each in listed if each in installed.accelerator_classes), None)
        if name is None:
            return None
    if name not in installed.accelerator_classes:
        raise Refused("AcceleratorClassError", f"no accelerator class {name}")
    return installed.accelerator_classes[name]


def _override(runtime: Object, model: Object | None, accelerator: Object | None) -> Object:
    if accelerator is None:
        return {}
    for each in _formats(runtime, model):
        config: Object = each.get("acceleratorConfig", {})
        if (found := config.get(accelerator["metadata"]["name"])) is not None:
            return dict(found)
    return {}


def _node_selector(
    service: Object,
    runtime: Object,
    engine: Object,
    own: Object,
    model: Object | None,
    accelerator: Object | None,
) -> dict[str, str]:
    discovery = accelerator["spec"].get("discovery", {}) if accelerator is not None else {}
    selector = {
        **engine.get("nodeSelector", {}),
        **runtime["spec"].get("nodeSelector", {}),
        **discovery.get("nodeSelector", {}),
        **own.get("nodeSelector", {}),
    }
    if model is not None and not model["spec"]["storage"]["storageUri"].startswith("pvc://"):
        selector[model_label(model)] = "Ready"
    return selector


def model_label(model: Object) -> str:
    """`Ready` on the nodes that have the model."""
    name = model["metadata"]["name"]
    if model["kind"] == "ClusterBaseModel":
        return f"models.ome.io/clusterbasemodel.{name}"
    return f"models.ome.io/{model['metadata']['namespace']}.basemodel.{name}"


def _model_volume(model: Object) -> Object:
    name, storage = model["metadata"]["name"], model["spec"]["storage"]
    if storage["storageUri"].startswith("pvc://"):
        # pvc://[namespace:]claim/path
        claim = storage["storageUri"].removeprefix("pvc://").partition("/")[0].rpartition(":")[2]
        return {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
    return {"name": name, "hostPath": {"path": storage.get("path", "")}}


def _owned(
    service: Object, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Object:
    return {
        "name": name,
        "namespace": service["metadata"]["namespace"],
        "labels": dict(labels),
        "annotations": dict(annotations),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "InferenceService",
                "name": service["metadata"]["name"],
                "uid": service["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def status_of(
    service: Object,
    workload: Object | None,
    pods: Collection[Object],
    *,
    url: str,
    refused: Refused | None,
    now: str,
) -> Object:
    """Of the InferenceService, while what it had before keeps its times of change."""
    is_available = workload is not None and _is_available(workload, pods)
    failure = _failure(refused, pods)
    waiting = {"reason": "MinimumReplicasUnavailable", "message": "replicas are not available"}
    if refused is not None:
        waiting = {"reason": refused.reason, "message": str(refused)}
    conditions: list[Object] = [
        {"type": "EngineReady", **_claim(is_available, waiting)},
        {"type": "IngressReady", "status": "True", "reason": "IngressDisabled"},
        {"type": "Ready", **_claim(is_available, waiting)},
    ]
    if refused is not None and refused.reason == "RuntimeNotRecognized":
        lost = {"reason": "RuntimeNotFound", "message": str(refused)}
        conditions.append({"type": "RuntimeReady", **_claim(False, lost)})
    before = {each["type"]: each for each in service.get("status", {}).get("conditions", [])}
    for each in conditions:
        old = before.get(each["type"], {})
        changed = old.get("status") != each["status"]
        each["lastTransitionTime"] = now if changed else old["lastTransitionTime"]
    status: Object = {
        "observedGeneration": service["metadata"]["generation"],
        "conditions": conditions,
        "components": {},
    }
    if is_available:
        status |= {"url": url, "address": {"url": url}, "components": {"engine": {"url": url}}}
    if "model" in service["spec"]:
        status["modelStatus"] = _model_status(is_available, failure, refused)
    return status


def _is_available(workload: Object, pods: Collection[Object]) -> bool:
    if workload["kind"] == "LeaderWorkerSet":
        size = workload["spec"]["leaderWorkerTemplate"]["size"]
        return len(pods) == size and all(map(_is_ready, pods))
    status = workload.get("status", {})
    wanted = workload["spec"]["replicas"]
    return bool(
        status.get("observedGeneration") == workload["metadata"]["generation"]
        and status.get("availableReplicas", 0) >= wanted
        and status.get("updatedReplicas", 0) >= wanted
    )


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return {"Ready": "True"}.items() <= {c["type"]: c["status"] for c in conditions}.items()


def _claim(holds: bool, otherwise: Object) -> Object:
    return {"status": "True"} if holds else {"status": "False", **otherwise}


def _model_status(is_available: bool, failure: Object | None, refused: Refused | None) -> Object:
    if is_available:
        return {
            "transitionStatus": "UpToDate",
            "modelRevisionStates": {"activeModelState": "Loaded", "targetModelState": "Loaded"},
            "modelCopies": {"failedCopies": 0, "totalCopies": 1},
        }
    if failure is None:
        return {
            "transitionStatus": "InProgress",
            "modelRevisionStates": {"activeModelState": "", "targetModelState": "Pending"},
            "modelCopies": {"failedCopies": 0},
        }
    return {
        "transitionStatus": "BlockedByFailedLoad" if refused is None else "InvalidSpec",
        "modelRevisionStates": {"activeModelState": "", "targetModelState": "FailedToLoad"},
        "modelCopies": {"failedCopies": 1},
        "lastFailureInfo": failure,
    }


def _failure(refused: Refused | None, pods: Iterable[Object]) -> Object | None:
    if refused is not None:
        known = refused.reason in _FAILURE_REASONS
        return {
            "reason": refused.reason if known else "InvalidPredictorSpec",
            "message": str(refused),
        }
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", []):
            if container["name"] != CONTAINER:
                continue
            waiting = container.get("state", {}).get("waiting", {})
            ended = container.get("lastState", {}).get("terminated") or container.get(
                "state", {}
            ).get("terminated")
            if ended and ended.get("exitCode"):
                return {
                    "location": pod["metadata"]["name"],
                    "reason": "ModelLoadFailed",
                    "message": ended.get("message") or waiting.get("message", ""),
                    "exitCode": ended["exitCode"],
                }
    return None


_FAILURE_REASONS: Final = frozenset(
    {"BaseModelNotFound", "NoSupportingRuntime", "RuntimeDisabled", "RuntimeNotRecognized"}
)

UrlOf = Callable[[Object], str]


def cluster_url(service: Object) -> str:
    """Where clients inside the cluster ask."""
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    return f"http://{name}.{namespace}.svc.cluster.local:{PORT}"
