"""The node for an inference service, by the requirements' ranking."""

from typing import Any
from uuid import UUID

import pytest

from schemas.scheduler_views import SelectNode
from services.scheduler.domain.fleet import Device, Fleet, ReadingState
from services.scheduler.domain.node_selection import is_idle, select_node
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
        pytest.param({"used": 99.0, "reading_state": ReadingState.STALE}, True, id="stale metrics"),
    ],
)
def test_idle_is_below_both_thresholds_or_without_metrics(gpu: dict[str, Any], want: bool) -> None:
    assert is_idle(make_device(**gpu), SelectNode()) is want


BUSY = {"used": 80.0}


@pytest.mark.parametrize(
    ("nodes", "required_gpus", "want"),
    [
        pytest.param(node("a", {}) + node("b", {}, {}), 1, "b", id="more idle GPUs"),
        pytest.param(node("a", {}, BUSY, BUSY) + node("b", {}, {}), 2, "b", id="enough idle GPUs"),
        pytest.param(
            node("a", {"used": 90.0}, BUSY) + node("b", BUSY, BUSY), 2, "b", id="least utilized"
        ),
        pytest.param(node("a", {}, {"holder": UUID(int=1)}), 2, None, id="held ones do not count"),
        pytest.param([], 1, None, id="no node at all"),
    ],
)
def test_nodes_are_ranked_by_idle_gpus_then_by_utilization(
    nodes: list[Device], required_gpus: int, want: str | None
) -> None:
    chosen = select_node(Fleet.of(nodes), SelectNode(required_gpus=required_gpus))

    assert chosen.node_id == want
    assert chosen.message
