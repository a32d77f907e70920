"""What may pass between nodes is encrypted, or refused with what to do about it."""

import pytest

from schemas.cluster.nodes import GpuSupply
from schemas.errors import ErrorCode
from schemas.gpus.device_grant import ClusterNodeName, ClusterPlacement
from schemas.task.benchmark import BenchmarkTool
from services.executor.domain.traffic import check_cluster_traffic, check_rank_traffic
from shared.errors import RefusedError
from tests.support.worlds.cluster_executor import cluster_start
from tests.support.worlds.executor import NODE

BUILTIN, GENAI_BENCH = BenchmarkTool.BUILTIN, BenchmarkTool.GENAI_BENCH


def over_nodes() -> ClusterPlacement:
    return ClusterPlacement(
        cluster_id=NODE,
        gpus=1,
        node_name="node-0",
        hostname="node-0",
        supply=GpuSupply.DEVICE_PLUGIN,
        other_nodes=(ClusterNodeName(node_name="node-1", hostname="node-1"),),
    )


@pytest.mark.parametrize("traffic", ["network-encrypted", "plaintext"])
def test_allowed_plain_text_refuses_nothing(traffic: str) -> None:
    check_cluster_traffic(cluster_start(place=over_nodes()), traffic, "pod", GENAI_BENCH)
    check_rank_traffic(traffic, "192.0.2.7")


def test_engine_over_several_nodes_is_refused_by_default() -> None:
    with pytest.raises(RefusedError, match="network-encrypted") as refused:
        check_cluster_traffic(cluster_start(place=over_nodes()), "tls", "service", BUILTIN)

    assert refused.value.code is ErrorCode.UNSUPPORTED


def test_tool_that_verifies_names_is_refused_by_address() -> None:
    command = cluster_start()

    check_cluster_traffic(command, "tls", "service", GENAI_BENCH)
    check_cluster_traffic(command, "tls", "pod", BUILTIN)
    with pytest.raises(RefusedError, match="take tool 'builtin'"):
        check_cluster_traffic(command, "tls", "pod", GENAI_BENCH)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", None])
def test_ranks_on_one_host_may_speak_plain_text(address: str | None) -> None:
    check_rank_traffic("tls", address)


def test_ranks_on_several_hosts_are_refused_by_default() -> None:
    with pytest.raises(RefusedError, match="GPUs of one node"):
        check_rank_traffic("tls", "192.0.2.7")
