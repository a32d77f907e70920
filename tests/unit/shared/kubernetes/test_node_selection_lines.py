"""The block that tells which node was chosen, as operators know it."""

from schemas.cluster.node_selection import NodeGpuSummary, NodeSelection
from shared.gpu.node_selection import selection_lines


def test_a_chosen_node_is_told_with_its_room() -> None:
    summary = NodeGpuSummary(
        node_name="host-1",
        total_gpus=8,
        allocatable_gpus=8,
        idle_gpu_count=7,
        avg_utilization_percent=0.0,
    )

    lines = selection_lines(1, NodeSelection(node_id="host-1", summary=summary))

    assert list(lines) == [
        "=== GPU Node Selection ===",
        "Looking for node with 1 idle GPU(s)...",
        "Selected node 'host-1' for deployment:",
        "  - Allocatable GPUs: 8/8",
        "  - Idle GPUs: 7",
        "  - Avg Utilization: 0.0%",
        "  - Avg Memory Usage: unknown",
        "✓ Selected node: host-1",
        "==========================",
    ]


def test_unsuitable_nodes_leave_it_to_kubernetes() -> None:
    lines = list(selection_lines(9, NodeSelection(node_id=None, message="the most is 8")))

    assert lines[2] == "No node selected, left to Kubernetes: the most is 8"
    assert len(lines) == 4
