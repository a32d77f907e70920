"""The node for an inference service, by the requirements' ranking."""

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.telemetry.readings import HealthState
from services.scheduler.domain.model.fleet import Device, Fleet, Host, Node, ReadingState
from services.scheduler.domain.node_selection import (
    cluster_gpu_status,
    find_best_node,
    is_idle,
    node_gpu_summaries,
)
from tests.unit.scheduler.builders import make_device


def node(node_id: str, *gpus: dict[str, Any]) -> list[Device]:
    return [
        make_device(i, node_id=node_id, uuid=f"{node_id}-{i}", **gpu) for i, gpu in enumerate(gpus)
    ]


@pytest.mark.parametrize(
    ("gpu", "want"),
    [
        pytest.param({"used": 29.9, "free_mb": 40_001}, True, id="below both thresholds"),
        pytest.param({"used": 30.0}, False, id="at the utilization threshold"),
        pytest.param({"free_mb": 40_000}, False, id="at the memory threshold"),
        pytest.param({"reading": None}, True, id="no metrics"),
        pytest.param({"used": None, "free_mb": 0}, False, id="only memory is known"),
        pytest.param(
            {"used": 99.0, "reading_state": ReadingState.STALE}, False, id="stale metrics"
        ),
        pytest.param({"holder": UUID(int=1)}, False, id="held"),
        pytest.param({"cordoned": True}, False, id="cordoned"),
        pytest.param({"health": HealthState.LOST}, False, id="lost"),
        pytest.param({"mig_enabled": True}, False, id="divided into instances"),
        pytest.param({"mig_enabled": True, "parent_uuid": "GPU-0"}, True, id="an instance"),
    ],
)
def test_idle_is_below_both_thresholds(gpu: dict[str, Any], want: bool) -> None:
    (seen,) = cluster_gpu_status(Fleet.of([make_device(**gpu)]))

    assert is_idle(seen) is want


def test_lost_node_has_nothing_allocatable() -> None:
    hosts = {"alpha": Host(node=Node(node_id="alpha", lost=True))}

    (seen,) = cluster_gpu_status(replace(Fleet.of([make_device()]), hosts=hosts))

    assert not seen.allocatable


@pytest.mark.parametrize(("used", "want"), [(19.9, True), (20.0, False)])
def test_the_thresholds_are_the_callers(used: float, want: bool) -> None:
    (seen,) = cluster_gpu_status(Fleet.of([make_device(used=used, free_mb=48_001)]))

    assert is_idle(seen, utilization_threshold=20.0, memory_threshold=40.0) is want


def test_gpu_without_metrics_is_unknown() -> None:
    fleet = Fleet.of(
        node("a", {"used": 25.0, "free_mb": 60_000}, {"reading_state": ReadingState.STALE})
    )

    known, stale = cluster_gpu_status(fleet, {("a", "a-0"): 41.0, ("a", "a-1"): 80.0})

    assert (known.node_name, known.gpu_index, known.has_metrics) == ("a", 0, True)
    assert (known.memory_used_mb, known.memory_usage_percent) == (20_000, 25.0)
    assert (known.utilization_percent, known.temperature_c) == (25.0, 41.0)
    assert stale.allocatable
    assert not stale.has_metrics
    assert (stale.memory_used_mb, stale.utilization_percent, stale.temperature_c) == (None,) * 3


def test_summary_averages_only_gpus_with_metrics() -> None:
    gpus = cluster_gpu_status(
        Fleet.of(
            node("a", {"used": 20.0}, {"used": 60.0, "free_mb": 40_000}, {"reading": None})
            + node("b", {"reading": None}, {"holder": UUID(int=1), "reading": None})
        )
    )

    found = node_gpu_summaries(gpus)

    assert list(found) == ["a", "b"]
    assert (found["a"].total_gpus, found["a"].allocatable_gpus, found["a"].idle_gpu_count) == (
        *(3, 3),
        2,
    )
    assert (found["a"].avg_utilization_percent, found["a"].avg_memory_usage_percent) == (40.0, 25.0)
    assert found["a"].has_metrics
    assert (found["b"].total_gpus, found["b"].allocatable_gpus, found["b"].idle_gpu_count) == (
        *(2, 1),
        1,
    )
    assert found["b"].avg_utilization_percent is None
    assert not found["b"].has_metrics


BUSY = {"used": 80.0}


@pytest.mark.parametrize(
    ("nodes", "required_gpus", "want"),
    [
        pytest.param(node("a", {}) + node("b", {}, {}), 1, "b", id="more idle GPUs"),
        pytest.param(node("a", {}, BUSY, BUSY) + node("b", {}, {}), 2, "b", id="enough idle GPUs"),
        pytest.param(
            node("a", {}, {"used": 29.0}) + node("b", {}, {"used": 9.0}), 1, "b", id="less used"
        ),
        pytest.param(
            node("a", {"used": 90.0}, BUSY) + node("b", BUSY, BUSY), 2, "b", id="none is idle"
        ),
        pytest.param(
            node("a", {"reading": None}) + node("b", BUSY), 1, "a", id="no metrics count as idle"
        ),
        pytest.param(node("b", {}) + node("a", {}), 1, "a", id="equal ones by name"),
        pytest.param(node("a", {}, {"holder": UUID(int=1)}), 2, None, id="held ones do not count"),
        pytest.param([], 1, None, id="no node at all"),
    ],
)
def test_nodes_rank_by_idle_gpus_then_use(
    nodes: list[Device], required_gpus: int, want: str | None
) -> None:
    summaries = node_gpu_summaries(cluster_gpu_status(Fleet.of(nodes)))

    chosen = find_best_node(summaries, required_gpus)

    assert chosen.node_id == want
    assert chosen.message


def test_shortage_tells_how_many_the_best_has() -> None:
    nodes = node("a", {}) + node("b", {}, {}, {}) + node("c", {}, {})

    chosen = find_best_node(node_gpu_summaries(cluster_gpu_status(Fleet.of(nodes))), 4)

    assert chosen.node_id is None
    assert chosen.message.endswith("the most that one has is 3")
