"""What is made in a cluster for an engine, as objects."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from schemas.cluster.kubernetes import (
    ContainerOverrides,
    ContainerResources,
    KubernetesSpec,
    VolumeClaim,
)
from schemas.cluster.nodes import GpuSupply
from schemas.executor.attempts import Runtime
from schemas.gpus.device_grant import ClusterNodeName, ClusterPlacement
from services.executor.domain.pod_cache import CacheVolume, PodCache
from services.executor.engines.compile_cache import VARIABLES
from services.executor.engines.engine_table import IMAGES
from services.executor.engines.image import container_command
from services.executor.runtimes.kubernetes.effective import differences
from services.executor.runtimes.kubernetes.kinds import BaseModelSpec, ModelFormat, Object, Storage
from services.executor.runtimes.kubernetes.leader_worker import LEADER_ADDRESS, WORKER_INDEX
from services.executor.runtimes.kubernetes.objects import engine_container, objects_of
from services.executor.runtimes.kubernetes.plan import NamedModel, Plan
from services.executor.runtimes.kubernetes.ranks import places_of
from services.executor.settings import ExecutorSettings
from shared.accelerator_rules.node_labels import undivided_expressions
from shared.kubernetes.objects.pods import PodDetails
from tests.support.worlds.executor import NODE, make_start
from tests.support.worlds.runtime_launches import launch_of

ATTEMPT = UUID("019b8e50-7000-7000-8000-00000000000a")
RESERVATION = UUID("019b8e50-7000-7000-8000-00000000000b")
EXPERIMENT = UUID("019b8e50-7000-7000-8000-00000000000c")
NAME = f"gpusteward-{ATTEMPT.hex}"
LABELS = {
    "gpusteward.installation": "ours",
    "gpusteward.node": NODE,
    "gpusteward.reservation": str(RESERVATION),
    "gpusteward.attempt": str(ATTEMPT),
    "gpusteward.epoch": "7",
    "gpusteward.experiment": str(EXPERIMENT),
}
OTHER_NODES = (
    ClusterNodeName(node_name="n2", hostname="h2"),
    ClusterNodeName(node_name="n3", hostname="h3"),
)
MODEL = NamedModel(
    name="llama",
    kind="ClusterBaseModel",
    spec=BaseModelSpec(
        model_format=ModelFormat("safetensors", "1.0.0"),
        model_framework=ModelFormat("transformers", "4.36.0"),
        model_architecture="LlamaForCausalLM",
        storage=Storage(path="/raid/models/llama"),
    ),
)


def made(
    tmp_path: Path,
    kind: Runtime = Runtime.KUBERNETES,
    *,
    parameters: dict[str, Any] | None = None,
    served_as: str = "llama",
    names: KubernetesSpec | None = None,
    place: dict[str, Any] | None = None,
    model: NamedModel | None = None,
    reference: str = "lmsysorg/sglang:v1",
    env: dict[str, str] | None = None,
    cache: PodCache | None = None,
    rank_parameters: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[list[Object], Object]:
    """The objects, and the container that is intended of the last rank."""
    chosen = ExecutorSettings(
        data_dir=str(tmp_path), node_id=NODE, installation_id="ours", **settings
    )
    image = IMAGES["sglang"]
    launch = launch_of(
        make_start(
            attempt_id=ATTEMPT, reservation_id=RESERVATION, experiment_id=EXPERIMENT, devices=()
        ),
        chosen,
    )
    command = container_command(
        image,
        "/raid/models/llama",
        parameters or {"tp-size": 2},
        served_model_name=served_as,
        rank_parameters=rank_parameters,
    )
    places = places_of(
        ClusterPlacement(
            **{"cluster_id": NODE, "gpus": 2, "node_name": "n1", "hostname": "h1", **(place or {})}
        )
    )
    plan = Plan(
        kind=kind,
        namespace="team",
        image=image,
        reference=reference,
        command=replace(command, env={**command.env, **(env or {})}),
        names=names or KubernetesSpec(),
        placement=places[0],
        model=model,
        cache=cache,
        size=len(places),
        worker_nodes=(place or {}).get("other_nodes", ()) if kind is Runtime.OME else (),
    )
    plans = [
        msgspec.structs.replace(plan, placement=own_place, rank=rank)
        for rank, own_place in enumerate(places)
    ]
    return list(objects_of(launch, plans, chosen)), engine_container(launch, plans[-1], chosen)


CONTAINER: Object = {
    "name": "ome-container",
    "image": "lmsysorg/sglang:v1",
    "args": [
        *("python3", "-m", "sglang.launch_server", "--enable-metrics"),
        *("--model-path", "/raid/models/llama"),
        *("--served-model-name", "llama", "--tp-size", "2"),
        *("--host", "0.0.0.0", "--port", "30000"),  # noqa: S104
    ],
    "env": [
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
        {"name": "DO_NOT_TRACK", "value": "1"},
        {"name": "GPUSTEWARD_RESERVATION", "value": str(RESERVATION)},
        {"name": "GPUSTEWARD_INSTALLATION", "value": "ours"},
        {"name": "GPUSTEWARD_NODE", "value": NODE},
        {"name": "GPUSTEWARD_EPOCH", "value": "7"},
        {"name": "GPUSTEWARD_EXPERIMENT", "value": str(EXPERIMENT)},
        {"name": "GPUSTEWARD_ATTEMPT", "value": str(ATTEMPT)},
    ],
    "ports": [{"name": "http", "containerPort": 30000, "protocol": "TCP"}],
    "resources": {"requests": {"nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}},
    "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],  # noqa: S108
    "readinessProbe": {
        "httpGet": {"path": "/health", "port": 30000},
        "periodSeconds": 5,
        "timeoutSeconds": 5,
        "failureThreshold": 3,
    },
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]},
    },
}
POD_PARTS: Object = {
    "enableServiceLinks": False,
    "automountServiceAccountToken": False,
    "terminationGracePeriodSeconds": 2,
    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    "volumes": [{"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8192Mi"}}],
}
PLACEMENT: Object = {
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["h1"]}
                        ]
                    }
                ]
            }
        }
    },
}
EPOCH = {"gpusteward.epoch": "7"}


def test_without_ome_service_and_deployment_of_one_pod(tmp_path: Path) -> None:
    labels = {**LABELS, "gpusteward.runtime": "kubernetes"}
    metadata = {"name": NAME, "namespace": "team", "labels": labels, "annotations": EPOCH}

    service, deployment = made(tmp_path)[0]

    assert service == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "selector": labels,
            "ports": [{"name": "http", "port": 30000, "targetPort": 30000}],
        },
    }
    assert deployment == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "progressDeadlineSeconds": 3600,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": EPOCH},
                "spec": {"containers": [CONTAINER], **POD_PARTS, **PLACEMENT},
            },
        },
    }


def test_ome_runtime_has_whole_command_and_one_replica(
    tmp_path: Path,
) -> None:
    labels = {**LABELS, "gpusteward.runtime": "ome"}
    metadata = {"name": NAME, "namespace": "team", "labels": labels, "annotations": EPOCH}
    replicas = {"minReplicas": 1, "maxReplicas": 1, "labels": labels, "annotations": EPOCH}

    runtime, service = made(tmp_path, Runtime.OME, model=MODEL)[0]

    assert runtime == {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ServingRuntime",
        "metadata": metadata,
        "spec": {
            "engineConfig": {**replicas, "runner": CONTAINER, **POD_PARTS},
            "supportedModelFormats": [
                {
                    "modelFormat": {"name": "safetensors", "version": "1.0.0"},
                    "modelFramework": {"name": "transformers", "version": "4.36.0"},
                    "modelArchitecture": "LlamaForCausalLM",
                    "autoSelect": False,
                }
            ],
        },
    }
    assert service == {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            **metadata,
            "annotations": {
                **EPOCH,
                "ome.io/deploymentMode": "RawDeployment",
                "ome.io/autoscalerClass": "external",
            },
        },
        "spec": {
            "runtime": {"name": NAME, "kind": "ServingRuntime", "apiGroup": "ome.io"},
            "model": {"name": "llama", "kind": "ClusterBaseModel", "apiGroup": "ome.io"},
            "engine": {**replicas, **PLACEMENT},
        },
    }


@pytest.mark.parametrize(
    ("setting", "source"),
    [
        (
            "hostPath:/var/lib/compiled",
            {"hostPath": {"path": "/var/lib/compiled", "type": "DirectoryOrCreate"}},
        ),
        (
            "persistentVolumeClaim:compiled",
            {"persistentVolumeClaim": {"claimName": "compiled"}},
        ),
    ],
)
@pytest.mark.parametrize("kind", [Runtime.KUBERNETES, Runtime.OME])
def test_compile_cache_goes_to_own_volume_directory(
    tmp_path: Path, kind: Runtime, setting: str, source: Object
) -> None:
    volume = CacheVolume.of(setting)
    assert volume is not None
    cache = PodCache(volume=volume, key="k", directory="team-a/team/k/a1", begun_at=0.0)

    objects, container = made(tmp_path, kind, cache=cache)

    (without, *_), _ = made(tmp_path, kind)
    pod = (
        objects[0]["spec"]["engineConfig"]
        if kind is Runtime.OME
        else objects[-1]["spec"]["template"]["spec"]
    )
    assert pod["volumes"][-1] == {"name": "compiled", **source}
    assert container["volumeMounts"][-1] == {
        "name": "compiled",
        "mountPath": "/var/cache/compiled",
        "subPath": "team-a/team/k/a1",
    }
    env = {each["name"]: each["value"] for each in container["env"]}
    assert {name: env[name] for name in VARIABLES} == {
        name: f"/var/cache/compiled/{folder}" for name, folder in VARIABLES.items()
    }
    assert "/var/cache/compiled" not in str(without)


def node_terms(directory: Path, **place: Any) -> Any:
    """Return the terms of which a node has to match one, where none was chosen; None: any may."""
    deployment = made(directory, place={"node_name": None, "hostname": None, **place})[0][-1]
    affinity = deployment["spec"]["template"]["spec"].get("affinity")
    if affinity is None:
        return None
    (required,) = affinity["nodeAffinity"].values()
    return required["nodeSelectorTerms"]


def test_whole_gpus_are_kept_off_divided_ones(tmp_path: Path) -> None:
    by_name = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["h2"]}
    mig = "nvidia.com/mig-1g.10gb"

    assert node_terms(tmp_path, resource="nvidia.com/gpu") == [
        {"matchExpressions": undivided_expressions()}
    ]
    assert node_terms(tmp_path, avoided_hostnames=("h2",)) == [
        {"matchExpressions": [*undivided_expressions(), by_name]}
    ]
    assert node_terms(tmp_path, resource=mig, avoided_hostnames=("h2",)) == [
        {"matchExpressions": [by_name]}
    ]
    assert node_terms(tmp_path, resource=mig) is None
    assert node_terms(tmp_path, resource="nvidia.com/gpu", units=1) is None


def test_devices_of_a_driver_come_by_a_claim(tmp_path: Path) -> None:
    template, _, deployment = made(
        tmp_path, place={"supply": GpuSupply.DRA, "resource": "gpu.nvidia.com"}
    )[0]

    assert template["spec"]["spec"]["devices"]["requests"] == [
        {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}
    ]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": NAME}]
    assert pod["containers"][0]["resources"] == {"claims": [{"name": "gpus"}]}


def test_claim_is_mounted_read_only_beside_resources(
    tmp_path: Path,
) -> None:
    names = KubernetesSpec(
        claim=VolumeClaim(name="models", mount_path="/raid/m", subpath="meta/m"),
        container=ContainerOverrides(
            resources=ContainerResources(requests={"cpu": "4"}, limits={"memory": "64Gi"})
        ),
    )

    deployment = made(
        tmp_path, names=names, place={"resource": "nvidia.com/mig-1g.10gb"}, engine_cpus=2.0
    )[0][-1]

    pod = deployment["spec"]["template"]["spec"]
    assert pod["volumes"][-1] == {
        "name": "model",
        "persistentVolumeClaim": {"claimName": "models", "readOnly": True},
    }
    [container] = pod["containers"]
    assert container["volumeMounts"][-1] == {
        "name": "model",
        "mountPath": "/raid/m",
        "readOnly": True,
        "subPath": "meta/m",
    }
    assert container["resources"] == {
        "requests": {"cpu": "4", "nvidia.com/mig-1g.10gb": "2"},
        "limits": {"cpu": "2000m", "memory": "64Gi", "nvidia.com/mig-1g.10gb": "2"},
    }


@pytest.mark.parametrize(
    ("resource", "count"),
    [("nvidia.com/gpu", "2"), ("tencent.com/vcuda-core", "200"), ("nvidia.com/mps-core", "200")],
)
def test_whole_gpus_are_requested_in_resource_units(
    tmp_path: Path, resource: str, count: str
) -> None:
    container = made(tmp_path, place={"resource": resource})[1]

    assert container["resources"] == {
        "requests": {resource: count},
        "limits": {resource: count},
    }


def test_image_with_known_cuda_is_bound_by_labels(
    tmp_path: Path,
) -> None:
    def affinity(hostname: str | None, reference: str, *, labels: bool) -> Any:
        deployment = made(
            tmp_path,
            place={"hostname": hostname},
            reference=reference,
            cluster_cuda_labels=labels,
        )[0][-1]
        return deployment["spec"]["template"]["spec"].get("affinity")

    def terms(affinity: Any) -> Any:
        [required] = affinity["nodeAffinity"].values()
        return required["nodeSelectorTerms"]

    whole = undivided_expressions()
    assert terms(affinity(None, "vllm/vllm-openai:v1-cu124", labels=True)) == [
        {
            "matchExpressions": [
                {"key": "cuda-major-version", "operator": "In", "values": ["12"]},
                {"key": "cuda-minor-version", "operator": "Gt", "values": ["3"]},
                *whole,
            ]
        },
        {
            "matchExpressions": [
                {"key": "cuda-major-version", "operator": "Gt", "values": ["12"]},
                *whole,
            ]
        },
    ]
    for reference, labels in (("v1-cu124", False), ("v1", True)):
        told = affinity(None, f"vllm/vllm-openai:{reference}", labels=labels)
        assert terms(told) == [{"matchExpressions": whole}]
    assert affinity("h1", "vllm/vllm-openai:v1-cu124", labels=True) == PLACEMENT["affinity"]


def test_conflicting_program_gets_workaround(
    tmp_path: Path,
) -> None:
    on_cores = {"resource": "tencent.com/vcuda-core"}
    reference = "paddlepaddle/fastdeploy:1"

    def strategy(**changes: Any) -> str | None:
        container = made(tmp_path, reference=reference, **changes)[1]
        variables = {each["name"]: each["value"] for each in container["env"]}
        return variables.get("FLAGS_allocator_strategy")

    assert strategy(place=on_cores) == "naive_best_fit"
    assert strategy(place=on_cores, env={"FLAGS_allocator_strategy": "auto_growth"}) == (
        "auto_growth"
    )
    assert strategy() is None


def test_replaceable_defaults_are_written_explicitly(tmp_path: Path) -> None:
    container = made(tmp_path, served_as="$(HF_TOKEN) '\"\n")[1]

    assert "$$(HF_TOKEN) '\"\n" in container["args"]


def test_admission_queue_is_named_on_admitted_object(tmp_path: Path) -> None:
    service, deployment = made(tmp_path, cluster_queue="team-queue")[0]

    assert deployment["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-queue"
    assert "kueue.x-k8s.io/queue-name" not in service["metadata"]["labels"]


def pod_of(container: Object, **spec: Any) -> PodDetails:
    given = {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "containers": [{"name": "istio"}, container], **spec},
    }
    return msgspec.convert(given, PodDetails)


def changed(container: Object, **changes: Any) -> Object:
    return {**container, **changes}


def replaced(words: list[str], word: str, *by: str) -> list[str]:
    place = words.index(word)
    return [*words[:place], *by, *words[place + 1 :]]


ARGS: list[str] = CONTAINER["args"]


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, [], id="as intended"),
        pytest.param({"image": "mirror.example/lmsysorg/sglang:v1"}, [], id="a mirror's"),
        pytest.param(
            {"env": [*CONTAINER["env"], {"name": "MODEL_PATH", "value": "/m"}]},
            [],
            id="a variable of OME that engines do not read",
        ),
        pytest.param(
            {"args": replaced(ARGS, "2", "8")},
            ["args: --tp-size 2 became --tp-size 8"],
            id="a rewritten degree of parallelism",
        ),
        pytest.param(
            {"args": [*ARGS, "--enable-x", "1"]}, ["args: --enable-x 1 was added"], id="added flags"
        ),
        pytest.param({"args": ARGS[:-2]}, ["args: --port 30000 was left out"], id="left out"),
        pytest.param({"command": ["sh", "-c"]}, ["command: sh -c was added"], id="another program"),
        pytest.param(
            {"env": [*CONTAINER["env"], {"name": "VLLM_X", "value": "1"}]},
            ["env: VLLM_X was added"],
            id="an added variable",
        ),
        pytest.param(
            {"env": [{"name": "PYTHONUNBUFFERED", "value": "0"}, *CONTAINER["env"][1:]]},
            ["env: PYTHONUNBUFFERED=1 became 0"],
            id="a changed variable",
        ),
        pytest.param({"env": CONTAINER["env"][1:]}, ["env: PYTHONUNBUFFERED was left out"], id="x"),
        pytest.param(
            {"envFrom": [{"secretRef": {"name": "s"}}]},
            ["env: variables from a ConfigMap or Secret were added"],
            id="variables from elsewhere",
        ),
        pytest.param(
            {"image": "lmsysorg/sglang:v2"},
            ["image: lmsysorg/sglang:v1 became lmsysorg/sglang:v2"],
            id="another image",
        ),
        pytest.param(
            {"resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "4"}}},
            ["limits: nvidia.com/gpu 2 became 8"],
            id="other GPUs",
        ),
    ],
)
def test_every_change_of_the_bound_pod_is_told(changes: dict[str, Any], want: list[str]) -> None:
    assert list(differences(pod_of(changed(CONTAINER, **changes)), CONTAINER, {"n1"})) == want


def test_other_node_or_container_is_reported() -> None:
    assert differences(pod_of(CONTAINER), CONTAINER, {"n3", "n2"}) == (
        "it runs on node n1, chosen was n2 or n3",
    )
    assert differences(pod_of(CONTAINER), CONTAINER, ()) == ()
    [sentence] = differences(pod_of(changed(CONTAINER, name="main")), CONTAINER, ())
    assert sentence == "the pod has no container 'ome-container', but istio, main"


def test_each_rank_is_a_pod_of_its_own_on_its_node(tmp_path: Path) -> None:
    objects, intended = made(tmp_path, place={"other_nodes": OTHER_NODES[:1]})

    assert [(o["kind"], o["metadata"]["name"]) for o in objects] == [
        ("Service", NAME),
        ("Service", f"{NAME}-ranks"),
        ("Deployment", NAME),
        ("Deployment", f"{NAME}-1"),
    ]
    serving, meeting, leader, member = objects
    # Who calls the engine, and who looks for rank 0, reaches its pod alone, ready or not.
    labels = {**LABELS, "gpusteward.runtime": "kubernetes"}
    ranked = {**labels, "gpusteward.rank": "0"}
    assert serving["spec"]["selector"] == meeting["spec"]["selector"] == ranked
    assert (meeting["spec"]["clusterIP"], meeting["spec"]["publishNotReadyAddresses"]) == (
        "None",
        True,
    )
    assert leader["spec"]["selector"]["matchLabels"] == ranked
    assert member["spec"]["selector"]["matchLabels"] == {**labels, "gpusteward.rank": "1"}
    assert "readinessProbe" not in intended
    pods = [each["spec"]["template"]["spec"] for each in (leader, member)]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    hosts = [
        pod["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"][0]["matchExpressions"][0]
        for pod in pods
    ]
    assert [host["values"] for host in hosts] == [["h1"], ["h2"]]


def test_ome_makes_leader_and_workers_on_granted_nodes(tmp_path: Path) -> None:
    place = {"other_nodes": OTHER_NODES}
    flags = {"dist-init-addr": f"{LEADER_ADDRESS}:1", "node-rank": WORKER_INDEX}

    objects, worker_container = made(
        tmp_path, Runtime.OME, place=place, rank_parameters=flags, served_as="$(HOME)"
    )

    runtime, service = objects
    config, engine = runtime["spec"]["engineConfig"], service["spec"]["engine"]
    assert service["metadata"]["annotations"]["ome.io/deploymentMode"] == "MultiNode"
    assert config["worker"]["size"] == engine["worker"]["size"] == 2
    assert config["leader"]["runner"]["readinessProbe"]
    assert config["worker"]["runner"] == worker_container
    assert "readinessProbe" not in worker_container
    # The cluster fills in these variables, and no others that a task may name.
    arguments = worker_container["args"]
    assert {*flags.values(), "$$(HOME)"} <= set(arguments)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    leader, worker = engine["leader"]["affinity"], engine["worker"]["affinity"]
    assert "podAntiAffinity" not in leader
    [apart] = worker["podAntiAffinity"][required]
    assert apart["labelSelector"]["matchLabels"] == {"gpusteward.attempt": str(ATTEMPT)}
    hosts = [
        affinity["nodeAffinity"][required]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"]
        for affinity in (leader, worker)
    ]
    assert hosts == [["h1"], ["h2", "h3"]]
    # Pods of all ranks get these: a rank of one would be said of all.
    assert "gpusteward.rank" not in config["labels"]
