"""Engines in a real control plane, with a stand-in for OME and without: what goes wrong there."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from schemas.cluster.kubernetes import KubernetesSpec, VolumeClaim
from schemas.cluster.nodes import GpuSupply
from schemas.executor.attempts import FailureKind, Runtime
from schemas.gpus.device_grant import ClusterPlacement
from services.executor.domain.verdict import AttemptFailed
from services.executor.runtimes.kubernetes.plan import workload_name
from shared.testing import eventually
from tests.support.kubernetes.api import Api, Object, path_to
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import PodEngines, pod_engines
from tests.support.kubernetes.nodes import make_dra_nodes
from tests.support.kubernetes.ome_stand_in import (
    OmeStandIn,
    remove_crds,
)
from tests.support.kubernetes.webhooks import hanging_webhook
from tests.support.worlds.cluster_executor import ClusterRuntimes, cluster_settings, cluster_start
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import labels_of, launch_of

pytestmark = pytest.mark.long

READY_SECONDS = 60.0
PLANTED = "hf_planted_for_a_pod"
OME = "ome.io/v1beta1"
EVERY = ["get", "list", "watch", "create", "patch", "delete"]


def place(node: str | None = None, gpus: int = 1, **rest: Any) -> ClusterPlacement:
    return ClusterPlacement(cluster_id=NODE, gpus=gpus, node_name=node, hostname=node, **rest)


async def pods(api: Api) -> list[Object]:
    return await api.items(path_to("v1", "Pod", "default"), labelSelector="gpusteward.reservation")


async def nothing_is_left(api: Api, kinds: Sequence[tuple[str, str]] = ()) -> None:
    for version, kind in (
        *(("apps/v1", "Deployment"), ("v1", "Pod")),
        ("resource.k8s.io/v1", "ResourceClaimTemplate"),
        *kinds,
    ):
        found = await api.items(path_to(version, kind), labelSelector="gpusteward.reservation")
        assert found == [], f"{kind} left behind"


async def test_engine_serves_logs_and_leaves_chosen_node(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start(place=place("node-1", gpus=4))
    said: list[str] = []
    launch = launch_of(command, settings, report=said.append)

    engine = await runtime.start(launch)
    await engine.until_ready(READY_SECONDS)
    [pod] = await pods(api)
    [workload] = await runtime.workloads()
    await engine.stop(1.0)

    assert pod["spec"]["nodeName"] == "node-1"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert workload.labels == labels_of(command, settings)
    assert workload.container_ids == (pod["metadata"]["name"],)
    assert said[-1].endswith("is ready")
    address = pod["status"]["podIP"]
    assert f"listening on https://{address}:" in launch.log.tail(10)
    assert await runtime.workloads() == ()
    await nothing_is_left(api, [("v1", "Service")])


async def test_secret_is_referred_to_and_goes_with_engine(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start(place=place("node-1"), secrets=("HF_TOKEN",))
    launch = launch_of(command, settings, secrets={"HF_TOKEN": PLANTED})

    engine = await runtime.start(launch)
    await engine.until_ready(READY_SECONDS)
    [pod] = await pods(api)
    [deployment] = await api.items(path_to("apps/v1", "Deployment", "default"))
    secret = await api.get(path_to("v1", "Secret", "default", workload_name(command)))
    [pid] = engines.pids(command.reservation_id)
    variables = psutil.Process(pid).environ()
    await engine.stop(1.0)

    name = workload_name(command)
    [given] = [e for e in pod["spec"]["containers"][0]["env"] if e["name"] == "HF_TOKEN"]
    [owner] = secret["metadata"]["ownerReferences"]
    assert given["valueFrom"] == {"secretKeyRef": {"name": name, "key": "HF_TOKEN"}}
    assert variables["HF_TOKEN"] == PLANTED
    assert PLANTED not in json.dumps([pod, deployment])
    assert PLANTED not in launch.log.tail(100) + repr(launch)
    assert (secret["metadata"]["name"], secret["immutable"]) == (name, True)
    assert owner == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": deployment["metadata"]["name"],
        "uid": deployment["metadata"]["uid"],
    }
    await api.delete(path_to("v1", "Secret", "default", name))


async def test_driver_devices_come_by_claim_of_engine(
    empty_cluster: ControlPlane, api: Api, runtimes: ClusterRuntimes, tmp_path: Path
) -> None:
    await make_dra_nodes(api, ["node-0"])
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start(
        place=place("node-0", gpus=2, resource="gpu.nvidia.com", supply=GpuSupply.DRA)
    )

    async with pod_engines(empty_cluster):
        engine = await runtime.start(launch_of(command, settings))
        await engine.until_ready(READY_SECONDS)
        claims = await api.items(path_to("resource.k8s.io/v1", "ResourceClaim", "default"))
        await engine.stop(1.0)

    [claim] = claims
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 2
    await nothing_is_left(api)


async def test_pod_without_room_says_so_until_timeout(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start(place=place("node-0", gpus=9))
    said: list[str] = []

    engine = await runtime.start(launch_of(command, settings, report=said.append))
    with pytest.raises(AttemptFailed) as failed:
        await engine.until_ready(10.0)
    await engine.stop(0.0)

    assert failed.value.failure.kind is FailureKind.UNSCHEDULABLE
    assert "Insufficient nvidia.com/gpu" in failed.value.failure.message
    assert any("Insufficient nvidia.com/gpu" in message for message in said)
    await nothing_is_left(api)


@pytest.mark.parametrize(
    ("tag", "kind", "says"),
    [
        ("no-such-image", FailureKind.IMAGE_PULL_FAILED, "ImagePullBackOff"),
        ("crashing", FailureKind.ENGINE_EXITED, "ended before it was ready with exit code 1"),
    ],
)
async def test_missing_image_and_crash_fail_attempt(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
    tag: str,
    kind: FailureKind,
    says: str,
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start(image_tag=tag)

    engine = await runtime.start(launch_of(command, settings))
    with pytest.raises(AttemptFailed) as failed:
        await engine.until_ready(10.0)
    await engine.stop(0.0)

    assert failed.value.failure.kind is kind
    assert says in failed.value.failure.message
    await nothing_is_left(api)


async def test_lost_node_ends_attempt_and_leaves_nothing(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    engine = await runtime.start(launch_of(cluster_start(place=place("node-1")), settings))
    await engine.until_ready(READY_SECONDS)

    ended = asyncio.create_task(engine.until_ended())
    await api.delete(path_to("v1", "Node", None, "node-1"))
    [pod] = await pods(api)
    await api.delete(path_to("v1", "Pod", "default", pod["metadata"]["name"]))
    failure = await ended
    await engine.stop(0.0)

    assert failure.kind is FailureKind.NODE_LOST
    await nothing_is_left(api)


async def test_rewritten_pod_fails_measurement(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    ome: OmeStandIn,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    """An accelerator's override of the degree of parallelism, which OME applies in silence."""
    accelerator = await api.create(
        {
            "apiVersion": OME,
            "kind": "AcceleratorClass",
            "metadata": {"name": "h100"},
            "spec": {
                "vendor": "nvidia",
                "family": "hopper",
                "model": "h100",
                "discovery": {},
                "capabilities": {},
            },
        }
    )
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.OME, settings)
    command = cluster_start(Runtime.OME, {"tp-size": 2}, place=place(gpus=2))
    name = workload_name(command)

    with ome.paused():
        engine = await runtime.start(launch_of(command, settings))
        config = {"h100": {"tensorParallelismOverride": {"tensorParallelSize": 4}}}
        serving = await api.merge(
            path_to(OME, "ServingRuntime", "default", name),
            {
                "spec": {
                    "acceleratorRequirements": {"acceleratorClasses": ["h100"]},
                    "supportedModelFormats": [
                        {
                            "modelFormat": {"name": "any"},
                            "modelFramework": {"name": "any"},
                            "acceleratorConfig": config,
                        }
                    ],
                }
            },
        )
        service = await api.merge(
            path_to(OME, "InferenceService", "default", name),
            {"spec": {"acceleratorSelector": {"acceleratorClass": "h100"}}},
        )
        # Else it makes what it knew first and then replaces that, whose pod is just gone.
        changed = (accelerator, serving, service)
        await eventually(lambda: all(map(ome.has_seen, changed)), what="all of it seen")
    with pytest.raises(AttemptFailed) as failed:
        await engine.until_ready(READY_SECONDS)
    await engine.stop(0.0)

    assert failed.value.failure.kind is FailureKind.PARAMETERS_NOT_APPLIED
    assert "args: --tp-size 2 became --tp-size 4" in failed.value.failure.message
    await nothing_is_left(api, [(OME, "InferenceService"), (OME, "ServingRuntime")])


async def test_unknown_cluster_name_has_next_step(
    empty_cluster: ControlPlane,
    ome: OmeStandIn,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.OME, settings)
    for names, kind, says in (
        (KubernetesSpec(base_model="no-model"), FailureKind.MODEL_MISSING, "clusterbasemodels"),
        (
            KubernetesSpec(serving_runtime="no-runtime"),
            FailureKind.ENGINE_MISSING,
            "clusterservingruntimes",
        ),
        (
            KubernetesSpec(claim=VolumeClaim(name="no-claim", mount_path="/m")),
            FailureKind.MODEL_MISSING,
            "kubectl get pvc",
        ),
    ):
        with pytest.raises(AttemptFailed, match=says) as failed:
            await runtime.fetch(cluster_start(Runtime.OME, names=names), lambda _, __: None)
        assert failed.value.failure.kind is kind


async def test_model_and_image_are_found_by_cluster_name(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    ome: OmeStandIn,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    await api.create(cluster_model("llama"))
    await api.create(cluster_runtime("small", "mirror.example/gpusteward/simulated:v9"))
    for node in ("node-0", "node-1"):
        await api.merge(
            path_to("v1", "Node", None, node),
            {"metadata": {"labels": {"models.ome.io/clusterbasemodel.llama": "Ready"}}},
        )
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.OME, settings)
    command = cluster_start(
        Runtime.OME, names=KubernetesSpec(base_model="llama", serving_runtime="small")
    )

    offer = await runtime.offer()
    engine = await runtime.start(launch_of(command, settings))
    await engine.until_ready(READY_SECONDS)
    [pod] = await pods(api)
    await engine.stop(0.0)

    assert offer.serving_runtimes == {"small": "simulated"}
    [container] = pod["spec"]["containers"]
    assert container["image"] == "mirror.example/gpusteward/simulated:v9"
    assert "/raid/models/llama" in container["args"]
    await nothing_is_left(api, [(OME, "InferenceService"), (OME, "ServingRuntime")])


async def test_offer_names_missing_ome_and_rights(
    empty_cluster: ControlPlane, api: Api, runtimes: ClusterRuntimes, tmp_path: Path
) -> None:
    await remove_crds(api)
    settings = cluster_settings(empty_cluster, tmp_path, user="denied")
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": EVERY}
    await empty_cluster.allow("denied", [rule])

    without_ome = await runtimes.make(Runtime.OME, settings).offer()
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    denied = await runtime.offer()

    assert without_ome.engines == ()
    assert "install OME" in without_ome.missing["ome"]
    assert denied.engines == ()
    assert (
        "get/list/create/patch/delete services in namespace default" in denied.missing["kubernetes"]
    )
    assert "deployments" not in denied.missing["kubernetes"]

    command = cluster_start()
    with pytest.raises(AttemptFailed) as failed:
        await runtime.start(launch_of(command, settings))
    assert failed.value.failure.kind is FailureKind.RUNTIME_UNAVAILABLE
    assert "Forbidden" in failed.value.failure.message
    assert "gpusteward chart" in failed.value.failure.hint


async def test_silent_webhook_is_named_and_leaves_nothing(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.executor.runtimes.kubernetes.cluster.TIMEOUT_SECONDS", 2.0)
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)

    async with hanging_webhook(empty_cluster, resources={"apps": ["deployments"]}):
        with pytest.raises(AttemptFailed) as failed:
            await runtime.start(launch_of(cluster_start(), settings))

    assert failed.value.failure.kind is FailureKind.RUNTIME_UNAVAILABLE
    assert "webhook" in failed.value.failure.message
    await nothing_is_left(api, [("v1", "Service")])


@pytest.mark.timeout(150)
async def test_api_outage_neither_fails_nor_ends_engine(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start()

    await empty_cluster.stop_apiserver()
    starting = asyncio.create_task(runtime.start(launch_of(command, settings)))
    await empty_cluster.start_apiserver()
    engine = await starting
    await engine.until_ready(READY_SECONDS)
    ended = asyncio.create_task(engine.until_ended())
    await empty_cluster.restart_apiserver()
    stopping = asyncio.create_task(engine.stop(1.0))
    await stopping

    assert (await ended).kind is FailureKind.RUNTIME_UNAVAILABLE  # by its own stop
    await eventually(lambda: not engines.pids(command.reservation_id), within_seconds=60)
    await nothing_is_left(api)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"annotations": {"gpusteward.epoch": "8"}, "labels": {"gpusteward.epoch": "8"}},
            "has epoch 8, this attempt 7",
        ),
        ({"labels": {"gpusteward.installation": "another"}}, "is not this attempt's"),
    ],
)
async def test_only_the_present_holder_may_apply(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
    change: Object,
    says: str,
) -> None:
    # An attempt's certificate is made once: its second start is this test's alone.
    settings = cluster_settings(empty_cluster, tmp_path, engine_traffic="plaintext")
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start(epoch=7)
    path = path_to("v1", "Service", "default", workload_name(command))
    await runtime.start(launch_of(command, settings))
    again = await runtime.start(launch_of(command, settings))
    await again.until_ready(READY_SECONDS)

    taken = await api.merge(path, {"metadata": change})
    with pytest.raises(AttemptFailed, match=says):
        await runtime.start(launch_of(command, settings))

    left = await api.get(path)
    assert left["metadata"]["resourceVersion"] == taken["metadata"]["resourceVersion"]
    await nothing_is_left(api)


def cluster_model(name: str) -> Object:
    return {
        "apiVersion": OME,
        "kind": "ClusterBaseModel",
        "metadata": {"name": name},
        "spec": {
            "modelFormat": {"name": "safetensors", "version": "1.0.0"},
            "modelFramework": {"name": "transformers", "version": "4.36.0"},
            "storage": {"storageUri": f"hf://meta/{name}", "path": f"/raid/models/{name}"},
        },
    }


def cluster_runtime(name: str, image: str) -> Object:
    return {
        "apiVersion": OME,
        "kind": "ClusterServingRuntime",
        "metadata": {"name": name},
        "spec": {"engineConfig": {"runner": {"name": "ome-container", "image": image}}},
    }
