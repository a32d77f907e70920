"""What an InferenceService is made of, and whose choice its node is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from schemas.cluster.node_selection import NodeGpuSummary, NodeSelection
from shared import client
from shared.accelerator_rules.node_labels import undivided_expressions
from shared.client import aio_deployments
from shared.client.aio_deployments import InferenceServicePlan, gpus_of, inference_service
from shared.client.errors import PlatformUnreachable
from shared.errors import RefusedError


def plan(hostname: str | None = None, **parameters: Any) -> InferenceServicePlan:
    return InferenceServicePlan(
        name="my-task-exp1",
        namespace="autotuner",
        model_name="llama-3-2-1b-instruct",
        model_kind="ClusterBaseModel",
        runtime_name="sglang-llama-small",
        runtime_kind="ClusterServingRuntime",
        parameters=parameters,
        gpus=gpus_of(parameters),
        hostname=hostname,
    )


def test_chosen_node_is_a_required_affinity() -> None:
    made = inference_service(plan("host-10-97-65-155", tp_size=2))

    assert made["metadata"] == {"name": "my-task-exp1", "namespace": "autotuner"}
    engine = made["spec"]["engine"]
    affinity = engine["affinity"]["nodeAffinity"]
    assert affinity["requiredDuringSchedulingIgnoredDuringExecution"] == {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {
                        "key": "kubernetes.io/hostname",
                        "operator": "In",
                        "values": ["host-10-97-65-155"],
                    }
                ]
            }
        ]
    }
    assert engine["runner"]["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert engine["runner"]["args"] == ["--tp-size=2"]
    assert "affinity" not in inference_service(plan())["spec"]["engine"]


def test_unbound_pod_avoids_divided_gpus() -> None:
    made = inference_service(replace(plan(), avoided_hostnames=("h2",)))

    affinity = made["spec"]["engine"]["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    by_name = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["h2"]}
    assert term == {"matchExpressions": [*undivided_expressions(), by_name]}


def test_flags_are_literal_and_switches_bare() -> None:
    made = inference_service(plan(enable_metrics=True, log=False, seed=None, name="$(HOME)"))

    assert made["spec"]["engine"]["runner"]["args"] == ["--enable-metrics", "--name=$$(HOME)"]


@pytest.mark.parametrize(
    ("parameters", "gpus"),
    [
        ({}, 1),
        ({"tp-size": 1}, 1),
        ({"tp_size": 2, "pp": "2"}, 4),
        ({"tpsize": 4, "dp-size": 2, "dcp": 3}, 12),
        ({"mem-fraction-static": 0.8}, 1),
    ],
)
def test_gpus_are_the_product_of_degrees(parameters: Mapping[str, Any], gpus: int) -> None:
    assert gpus_of(parameters) == gpus


def test_invalid_degree_is_refused_by_name() -> None:
    with pytest.raises(RefusedError) as refused:
        gpus_of({"tp-size": "two"})

    assert refused.value.path == "$.parameters.tp-size"


NODE = NodeGpuSummary(node_name="a", total_gpus=8, allocatable_gpus=8, idle_gpu_count=8)
OF_CLUSTER = NodeGpuSummary(
    node_name="a", total_gpus=8, allocatable_gpus=8, idle_gpu_count=8, cluster_id="prod"
)


@pytest.mark.parametrize(
    ("found", "is_taken"),
    [
        pytest.param(NodeSelection(node_id="a", summary=OF_CLUSTER), True, id="a cluster's"),
        pytest.param(NodeSelection(node_id="a", summary=NODE), False, id="no cluster's"),
        pytest.param(NodeSelection(node_id=None, message="none"), False, id="none"),
        pytest.param(PlatformUnreachable("nothing answers"), False, id="no platform"),
    ],
)
async def test_only_cluster_node_is_bound(
    found: NodeSelection | PlatformUnreachable,
    is_taken: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(_question: object) -> NodeSelection:
        if isinstance(found, PlatformUnreachable):
            raise found
        return found

    monkeypatch.setattr(aio_deployments, "query_platform", answer)

    assert ((await aio_deployments.select_for(2)).node_id is not None) is is_taken


def test_the_names_of_tuning_scripts_are_there() -> None:
    assert client.get_gpu_monitor() is client.get_gpu_monitor()
    assert isinstance(client.get_gpu_monitor(), client.GPUMonitor)
    assert all(getattr(client, name) is not None for name in client.__all__)
