"""What a task names in a cluster: its own namespace's objects, by names that are names."""

from typing import Any

import pytest
from msgspec import structs

from schemas.cluster.kubernetes import (
    ContainerOverrides,
    ContainerResources,
    KubernetesSpec,
    VolumeClaim,
)
from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.gpus.checks import LimitsPolicy, ResourceDefinition, Verdict
from schemas.gpus.gpu_request import ClusterRequest, NodeRanking
from schemas.task.task_file import DeploymentMode, TaskFile
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.installation.offers import Offer
from services.orchestrator.domain.plan.cluster_objects import kubernetes_spec
from shared.errors import RefusedError
from tests.support.worlds.orchestrator_records import make_file, make_offer, make_plan

KNOWN = Installation(
    [
        Offer(
            executor_id="n1",
            runtimes=(RuntimeOffer(runtime=Runtime.DOCKER, engines=("sglang", "vllm")),),
        )
    ]
)
CLUSTER = Offer(
    executor_id="k8s",
    runtimes=(
        RuntimeOffer(
            runtime=Runtime.OME,
            engines=("sglang",),
            serving_runtimes={"sglang-llama-small": "sglang"},
        ),
    ),
    benchmark_tools=("builtin",),
)


def spec_of(mode: DeploymentMode = DeploymentMode.OME, **overrides: Any) -> KubernetesSpec:
    given = {"base_runtime": "sglang", "model": {"id_or_path": "llama-3-1b", "namespace": "team"}}
    return kubernetes_spec(make_file(**{**given, **overrides}), mode, KNOWN)


@pytest.mark.parametrize(
    ("overrides", "want"),
    [
        pytest.param({}, {"base_model": "llama-3-1b"}, id="the model by its own name"),
        pytest.param({"model": {"id_or_path": "org/Model"}}, {"namespace": None}, id="a hub's"),
        pytest.param(
            {"clusterbasemodel_config": {"preset": "other"}}, {"base_model": "other"}, id="a preset"
        ),
        pytest.param(
            {"clusterservingruntime_config": {"preset": "small"}},
            {"base_model": "llama-3-1b", "serving_runtime": "small"},
            id="a serving runtime's preset",
        ),
        pytest.param(
            {"base_runtime": "sglang-llama-small"},
            {"base_model": "llama-3-1b", "serving_runtime": "sglang-llama-small"},
            id="a serving runtime in the engine's place",
        ),
        pytest.param(
            {"storage": {"type": "pvc", "pvc_name": "m", "pvc_subpath": "a/b", "mount_path": "/r"}},
            {"claim": VolumeClaim(name="m", subpath="a/b", mount_path="/r")},
            id="a claim holds the model",
        ),
        pytest.param(
            {
                "clusterservingruntime_config": {
                    "config_overrides": {"resources": {"limits": {"memory": "64Gi"}}}
                }
            },
            {
                "base_model": "llama-3-1b",
                "container": ContainerOverrides(
                    resources=ContainerResources(limits={"memory": "64Gi"})
                ),
            },
            id="what the container gets",
        ),
    ],
)
def test_what_a_task_names_in_a_cluster(overrides: dict[str, Any], want: dict[str, Any]) -> None:
    assert spec_of(**overrides) == KubernetesSpec(**{"namespace": "team", **want})


def test_only_ome_names_a_model_of_the_cluster() -> None:
    host_plan = make_plan(make_file(deployment_mode="docker", base_runtime="vllm"), (make_offer(),))
    assert host_plan.experiments[0].engine.kubernetes is None
    assert spec_of(DeploymentMode.KUBERNETES) == KubernetesSpec(namespace="team")


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"model": {"id_or_path": "m", "namespace": 'a"b'}}, "$.model.namespace"),
        ({"model": {"id_or_path": "m", "namespace": "a" * 64}}, "$.model.namespace"),
        ({"model": {"id_or_path": "m", "namespace": "a.b"}}, "$.model.namespace"),
        ({"clusterbasemodel_config": {"preset": "../m"}}, "$.clusterbasemodel_config.preset"),
        ({"clusterbasemodel_config": {"name": "m/x"}}, "$.clusterbasemodel_config.name"),
        (
            {"clusterbasemodel_config": {"preset": "m", "config_overrides": {"vendor": "x"}}},
            "$.clusterbasemodel_config.config_overrides",
        ),
        (
            {"clusterservingruntime_config": {"preset": "r", "config_overrides": {"image": "x"}}},
            "$.clusterservingruntime_config.config_overrides.image",
        ),
        (
            {
                "clusterservingruntime_config": {
                    "config_overrides": {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
                }
            },
            "$.clusterservingruntime_config.config_overrides.resources.limits",
        ),
        ({"storage": {"type": "pvc"}}, "$.storage.pvc_name"),
        ({"storage": {"type": "pvc", "pvc_name": "A b"}}, "$.storage.pvc_name"),
        (
            {"storage": {"type": "pvc", "pvc_name": "m", "pvc_subpath": "../etc"}},
            "$.storage.pvc_subpath",
        ),
        (
            {"storage": {"type": "pvc", "pvc_name": "m", "mount_path": "relative"}},
            "$.storage.mount_path",
        ),
        ({"storage": {"type": "hostpath"}}, "$.storage.type"),
        ({"base_runtime": "Not A Runtime"}, "$.base_runtime"),
    ],
)
def test_what_is_no_name_is_refused_by_its_field(overrides: dict[str, Any], path: str) -> None:
    with pytest.raises(RefusedError) as refused:
        spec_of(**overrides)

    assert refused.value.path == path


def test_cluster_tells_the_runtimes_engine() -> None:
    task = make_file(base_runtime="sglang-llama-small", deployment_mode=None)

    planned = make_plan(task, (CLUSTER, make_offer()))

    assert planned.mode is DeploymentMode.OME
    assert planned.experiments[0].engine.engine == "sglang"
    assert planned.missing == ()


def test_unknown_serving_runtime_lists_known_ones() -> None:
    [missing] = make_plan(
        make_file(base_runtime="sglang-llama-huge", deployment_mode=None), (CLUSTER, make_offer())
    ).missing

    assert missing.path == "$.base_runtime"
    assert "those there are: sglang-llama-small" in missing.sentence


def test_what_a_cluster_lacks_is_told_at_submit() -> None:
    lack = "executor k8s may not create inferenceservices.ome.io: bind the roles"
    unable = Offer(
        executor_id="k8s",
        runtimes=(RuntimeOffer(runtime=Runtime.OME, engines=(), missing={"ome": lack}),),
    )
    task = make_file(base_runtime="llamacpp", deployment_mode="ome")

    [missing] = make_plan(task, (unable, make_offer())).missing

    assert missing.path == "$.deployment_mode"
    assert f"(k8s: {lack})" in missing.sentence


def test_a_task_of_a_cluster_asks_for_gpus_of_it() -> None:
    gpus = {
        "cluster": "k8s",
        "nodes": ["gpu-1"],
        "utilization_threshold_percent": 20,
        "resource": "vendor.example/npu",
    }
    task = make_file(base_runtime="sglang", deployment_mode="ome", gpus=gpus)

    [planned, *_] = make_plan(task, (CLUSTER, make_offer())).experiments

    assert planned.request.node_ids == ("k8s",)
    assert planned.request.cluster == ClusterRequest(
        cluster_id="k8s",
        node_names=("gpu-1",),
        utilization_threshold_percent=20.0,
        resource="vendor.example/npu",
    )


def test_task_may_leave_the_node_to_the_cluster() -> None:
    task = make_file(base_runtime="sglang", deployment_mode="ome", gpus={"select_node": False})

    [planned, *_] = make_plan(task, (CLUSTER, make_offer())).experiments

    assert planned.request.cluster == ClusterRequest(selects_node=False)


def test_other_modes_ask_for_no_cluster() -> None:
    gpus = {"cluster": "k8s", "resource": "vendor.example/npu"}

    plan = make_plan(make_file(gpus=gpus), (CLUSTER, make_offer()))

    assert plan.experiments[0].request.cluster is None
    assert [note.split()[0] for note in plan.notes if "is not used" in note] == [
        "gpus.cluster",
        "gpus.resource",
    ]


def test_unable_cluster_lists_able_ones() -> None:
    task = make_file(base_runtime="sglang", deployment_mode="ome", gpus={"cluster": "other"})

    [missing] = make_plan(task, (CLUSTER, make_offer())).missing

    assert missing.path == "$.gpus.cluster"
    assert missing.sentence.endswith("these do: k8s")


@pytest.mark.parametrize("runtime", [Runtime.KUBERNETES, Runtime.OME])
def test_engine_over_several_nodes_needs_one_executor(runtime: Runtime) -> None:
    gpus = {"count": 4, "num_nodes": 2}
    task = make_file(base_runtime="sglang", deployment_mode=runtime.value, gpus=gpus)

    runtimes = (RuntimeOffer(runtime=runtime, engines=("sglang",)),)

    plan = make_plan(task, (structs.replace(CLUSTER, runtimes=runtimes),))

    assert plan.missing == ()
    request = plan.experiments[0].request
    assert (request.gpus, request.nodes, request.cluster is not None) == (2, 2, True)


@pytest.mark.parametrize(
    ("gpus", "path"),
    [
        ({"count": 2, "num_nodes": 2, "select_node": False}, "$.gpus.num_nodes"),
        ({"select_node": False, "nodes": ["a"]}, "$.gpus.select_node"),
        ({"select_node": False, "models": ["H100"]}, "$.gpus.select_node"),
    ],
)
def test_request_foreign_to_clusters_is_refused(gpus: dict[str, Any], path: str) -> None:
    task = make_file(base_runtime="sglang", deployment_mode="ome", gpus=gpus)

    with pytest.raises(RefusedError) as refused:
        make_plan(task, (CLUSTER,))

    assert refused.value.path == path


NPU = ResourceDefinition(custom_name="npu", group="npus", key="vendor.example/npu", default_value=2)
NPU_MEMORY = structs.replace(NPU, key="vendor.example/npu-memory", default_value=16)


def offering(executor_id: str, *devices: ResourceDefinition) -> Offer:
    (runtime,) = CLUSTER.runtimes
    runtimes = (structs.replace(runtime, devices=devices),)
    return structs.replace(CLUSTER, executor_id=executor_id, runtimes=runtimes)


def npu_task(parameters: dict[str, Any] | None = None, **gpus: Any) -> TaskFile:
    return make_file(
        base_runtime="sglang",
        deployment_mode="ome",
        parameters=parameters or {},
        gpus={"resource": NPU.key} | gpus,
    )


@pytest.mark.parametrize(
    ("task", "limits", "gpus"),
    [
        pytest.param(npu_task(), {NPU.key: 2, NPU_MEMORY.key: 16}, 2, id="by default"),
        pytest.param(npu_task(count=1), {NPU.key: 1, NPU_MEMORY.key: 16}, 1, id="by count"),
        pytest.param(
            npu_task({"tp-size": [4]}, resource_amounts={NPU_MEMORY.key: 32}),
            {NPU.key: 4, NPU_MEMORY.key: 32},
            4,
            id="by its parallel parts",
        ),
    ],
)
def test_custom_device_has_its_definitions_limits(
    task: TaskFile, limits: dict[str, int], gpus: int
) -> None:
    offers = (CLUSTER, offering("npus", NPU, NPU_MEMORY))

    (planned,) = make_plan(task, offers).experiments

    assert planned.engine.kubernetes is not None
    assert planned.engine.kubernetes.devices.limits == limits
    assert (planned.request.gpus, planned.request.node_ids) == (gpus, ("npus",))


CORE, CORE_MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
GIVEN_CORES = ResourceDefinition(custom_name="gpu-manager", group="vgpu", key=CORE)
GIVEN_MEMORY = structs.replace(GIVEN_CORES, key=CORE_MEMORY, default_value=8)


def part_task(**gpus: Any) -> TaskFile:
    return make_file(base_runtime="sglang", deployment_mode="ome", parameters={}, gpus=gpus)


@pytest.mark.parametrize(
    ("gpus", "limits", "units"),
    [
        pytest.param({"vgpu_cores": 30}, {CORE: 30}, (CORE, 30, None), id="vGPU cores"),
        pytest.param(
            {"vgpu_cores": 30, "vgpu_memory_mb": 8_000},
            {CORE: 30, CORE_MEMORY: 32},
            (CORE, 30, 32),
            id="with memory, in units of 256 MiB",
        ),
        pytest.param({"vgpu_cores": 100}, {CORE: 100}, (CORE, None, None), id="a whole card"),
        pytest.param(
            {"mps_cores": 50},
            {"nvidia.com/mps-core": 50},
            ("nvidia.com/mps-core", 50, None),
            id="MPS",
        ),
        pytest.param(
            {"time_slices": 1},
            {"nvidia.com/gpu.shared": 1},
            ("nvidia.com/gpu.shared", 1, None),
            id="a time slice",
        ),
        pytest.param(
            {"time_slices": 2, "resource": "nvidia.com/gpu"},
            {"nvidia.com/gpu": 2},
            ("nvidia.com/gpu", 2, None),
            id="slices under the GPU's own name",
        ),
        pytest.param(
            {"mig_profile": "1g.10gb"},
            {"nvidia.com/mig-1g.10gb": 1},
            ("nvidia.com/mig-1g.10gb", None, None),
            id="a MIG instance",
        ),
    ],
)
def test_task_asks_a_cluster_for_part_of_a_gpu(
    gpus: dict[str, Any], limits: dict[str, int], units: tuple[str, int | None, int | None]
) -> None:
    (planned,) = make_plan(part_task(**gpus), (CLUSTER,)).experiments

    request = planned.request
    assert request.cluster is not None
    assert (
        request.cluster.resource,
        request.cluster.units,
        request.cluster.memory_units,
    ) == units
    assert (request.gpus, request.shares, request.mig_profile) == (1, None, None)
    assert planned.engine.kubernetes is not None
    assert planned.engine.kubernetes.devices.limits == limits


def test_gpu_part_gets_the_clusters_additions() -> None:
    offers = (offering("vgpus", GIVEN_CORES, GIVEN_MEMORY),)

    (planned,) = make_plan(part_task(vgpu_cores=30), offers).experiments
    (by_name,) = make_plan(
        part_task(resource=CORE, resource_amounts={CORE: 30}), offers
    ).experiments

    for each in (planned, by_name):
        assert each.request.cluster is not None
        assert (each.request.cluster.units, each.request.cluster.memory_units) == (30, 8)
        assert each.engine.kubernetes is not None
        assert each.engine.kubernetes.devices.limits == {CORE: 30, CORE_MEMORY: 8}


@pytest.mark.parametrize(
    ("gpus", "says"),
    [
        ({"vgpu_cores": 30, "mps_cores": 30}, "one of vgpu_cores, mps_cores"),
        ({"mps_cores": 30, "mig_profile": "1g.10gb"}, "MPS serves no MIG instances"),
        ({"vgpu_cores": 130}, "1 to 100, or a multiple of 100, got 130"),
        ({"vgpu_memory_mb": 100}, "vgpu_cores with vgpu_memory_mb"),
        ({"time_slices": 1, "resource": "amd.com/gpu"}, "got amd.com/gpu"),
        ({"vgpu_cores": 30, "resource": "x.com/y"}, "no resource with vgpu_cores"),
    ],
)
def test_a_part_that_no_plugin_serves_is_refused(gpus: dict[str, Any], says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        make_plan(part_task(**gpus), (CLUSTER,))


def test_container_resources_count_for_the_node() -> None:
    resources = {
        "requests": {"cpu": "1500m", "memory": "2Gi"},
        "limits": {"ephemeral-storage": "1G"},
    }
    task = make_file(
        base_runtime="sglang",
        deployment_mode="ome",
        parameters={},
        gpus={"cpu_count": 64, "node_ranking": "least_fragmenting"},
        clusterservingruntime_config={
            "preset": "sglang-llama-small",
            "config_overrides": {"resources": resources},
        },
    )

    (planned,) = make_plan(task, (CLUSTER,)).experiments

    cluster = planned.request.cluster
    assert cluster is not None
    assert cluster.ranking is NodeRanking.LEAST_FRAGMENTING
    assert (cluster.pod_cpu_count, cluster.pod_memory_mb) == (1.5, 2048)
    assert cluster.pod_ephemeral_storage_mb == 954


OTHER_NPU = structs.replace(NPU, default_value=4)


@pytest.mark.parametrize(
    ("task", "offers", "limits", "clusters"),
    [
        pytest.param(
            npu_task(),
            (offering("a", NPU, NPU_MEMORY), offering("b", NPU_MEMORY, NPU), CLUSTER),
            {NPU.key: 2, NPU_MEMORY.key: 16},
            ("a", "b"),
            id="all that define it alike, in whatever order",
        ),
        pytest.param(
            npu_task(cluster="b"),
            (offering("a", NPU), offering("b", OTHER_NPU)),
            {NPU.key: 4},
            ("b",),
            id="the one that was asked for",
        ),
        pytest.param(
            npu_task(),
            (offering("a", NPU, structs.replace(NPU_MEMORY, group="others")),),
            {NPU.key: 2},
            ("a",),
            id="without what is of another group",
        ),
        pytest.param(npu_task(), (CLUSTER,), {}, ("k8s",), id="where none defines it"),
        pytest.param(
            npu_task(),
            (offering("a", structs.replace(NPU, default_value=4096)),),
            {NPU.key: 4096},
            ("a",),
            id="as many as may be",
        ),
    ],
)
def test_devices_go_to_clusters_that_define_them(
    task: TaskFile, offers: tuple[Offer, ...], limits: dict[str, int], clusters: tuple[str, ...]
) -> None:
    (planned,) = make_plan(task, offers).experiments

    assert planned.engine.kubernetes is not None
    assert planned.engine.kubernetes.devices.limits == limits
    assert planned.request.node_ids == clusters


@pytest.mark.parametrize(
    ("task", "offers", "path", "says"),
    [
        pytest.param(
            npu_task(),
            (offering("a", NPU), offering("b", structs.replace(NPU, default_value=1))),
            "$.gpus.resource",
            "clusters a, b define vendor.example/npu differently",
            id="two clusters differ",
        ),
        pytest.param(
            npu_task(count=1),
            (offering("a", structs.replace(NPU, limits=LimitsPolicy.DISABLED)),),
            "$.gpus.resource",
            "(rule limits_disabled)",
            id="a policy",
        ),
        pytest.param(
            npu_task(resource=None, resource_amounts={NPU.key: 1}),
            (offering("a", NPU),),
            "$.gpus.resource",
            "expected gpus.resource beside its amounts",
            id="amounts of nothing",
        ),
        pytest.param(
            npu_task(),
            (offering("a", structs.replace(NPU, default_value=5000)),),
            "$.gpus.resource",
            "expected at most 4096 devices, got 5000",
            id="too many",
        ),
    ],
)
def test_broken_device_rule_is_named(
    task: TaskFile, offers: tuple[Offer, ...], path: str, says: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        make_plan(task, offers)

    assert refused.value.path == path
    assert says in refused.value.message


@pytest.mark.parametrize(
    ("tag", "offered", "least"),
    [
        pytest.param("v1-cu124", {}, "12.4", id="the task's tag tells"),
        pytest.param(None, {"sglang": "12.8"}, "12.8", id="the executor's tag tells"),
        pytest.param("v1", {"sglang": "12.8"}, None, id="nothing tells"),
    ],
)
def test_cluster_image_needs_nodes_with_its_cuda(
    tag: str | None, offered: dict[str, str], least: str | None
) -> None:
    (runtime,) = CLUSTER.runtimes
    cluster = structs.replace(CLUSTER, runtimes=(structs.replace(runtime, image_cuda=offered),))
    task = make_file(base_runtime="sglang", deployment_mode="ome", runtime_image_tag=tag)

    (planned,) = make_plan(task, (cluster,)).experiments

    assert [each.values for each in planned.request.require] == [(least,)] * (least is not None)
    (found,) = planned.preflight
    assert (found.subject, found.verdict is Verdict.SUPPORTED) == ("cuda", least is not None)
    assert "docker pull" not in found.action


def test_serving_runtime_image_has_unknown_cuda() -> None:
    task = make_file(
        base_runtime="sglang-llama-small", runtime_image_tag=None, deployment_mode="ome"
    )

    (planned,) = make_plan(task, (CLUSTER,)).experiments

    (found,) = planned.preflight
    assert (planned.request.require, found.rule) == ((), "runtime_unknown")
    assert "image sglang-llama-small" in found.message
