"""A pod that is deleted by force leaves its GPUs held; one whose end kubelet reported does not."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from schemas.cluster.nodes import VanishedPod
from services.cluster.domain.cluster_state import ClusterState, GpuNames
from services.cluster.domain.vanished_pods import CONFIRMED_EMPTY
from services.cluster.vanished_file import load_vanished, save_vanished
from shared.ids import node_token
from shared.kubernetes.objects.nodes import Node
from shared.kubernetes.objects.pods import Pod
from shared.labels import RESERVATION_LABEL, parse_id

GPU = "nvidia.com/gpu"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
TERMINATED = {"terminated": {"exitCode": 137}}


def make_state() -> ClusterState:
    return ClusterState(
        GpuNames((GPU,), frozenset()),
        lambda labels: parse_id(labels.get(RESERVATION_LABEL)),
        node_token,
    )


def node(*, boot_id: str = "boot-1", annotations: dict[str, str] | None = None) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": "alpha", "annotations": annotations or {}},
            "status": {
                "capacity": {GPU: "8"},
                "allocatable": {GPU: "8"},
                "nodeInfo": {"bootID": boot_id},
            },
        },
        Node,
    )


def pod(
    *states: dict[str, Any],
    phase: str = "Running",
    gpus: int = 2,
    labels: dict[str, str] | None = None,
) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p", "labels": labels or {}},
            "spec": {
                "nodeName": "alpha",
                "containers": [{"name": "c", "resources": {"limits": {GPU: str(gpus)}}}],
            },
            "status": {
                "phase": phase,
                "containerStatuses": [{"name": "c", "state": state} for state in states],
            },
        },
        Pod,
    )


def vanished_on(state: ClusterState) -> tuple[VanishedPod, ...]:
    state.take_changes()
    return state.nodes["alpha"].vanished


def with_pod(seen: Pod) -> ClusterState:
    state = make_state()
    state.apply_node(node())
    state.apply_pod(seen)
    return state


@pytest.mark.parametrize(
    ("last", "vanishes"),
    [
        pytest.param(pod(RUNNING), True, id="deleted while it runs"),
        pytest.param(pod(), True, id="deleted before kubelet said anything"),
        pytest.param(pod({"waiting": {"reason": "ContainerCreating"}}), True, id="just starting"),
        pytest.param(pod(TERMINATED, RUNNING), True, id="one container of two has ended"),
        pytest.param(pod(TERMINATED), False, id="its containers have ended"),
        pytest.param(pod(RUNNING, phase="Failed"), False, id="it has failed"),
        pytest.param(pod(RUNNING, gpus=0), False, id="it had no GPU"),
    ],
)
def test_pod_vanishes_unless_its_end_was_seen(last: Pod, *, vanishes: bool) -> None:
    state = with_pod(pod(RUNNING, gpus=0 if not last.spec.containers[0].resources.limits else 2))
    state.apply_pod(last)

    state.delete_pod(last, NOW)

    assert [p.units for p in vanished_on(state)] == ([{GPU: 2}] if vanishes else [])


def test_vanished_pod_of_ours_is_told_by_its_reservation() -> None:
    reservation = uuid4()
    running = pod(RUNNING, labels={RESERVATION_LABEL: str(reservation)})
    state = with_pod(running)

    state.delete_pod(running, NOW)

    [vanished] = vanished_on(state)
    assert (vanished.uid, vanished.since_at) == ("uid-p", NOW)
    assert vanished.reservation_id == reservation
    [gpus] = state.nodes["alpha"].gpus
    assert gpus.requested == 0


@pytest.mark.parametrize(
    ("seen", "stays"),
    [
        pytest.param(node(), True, id="as before"),
        pytest.param(node(boot_id="boot-2"), False, id="booted anew"),
        pytest.param(node(boot_id=""), True, id="boot unknown"),
        pytest.param(
            node(annotations={CONFIRMED_EMPTY: (NOW + timedelta(seconds=1)).isoformat()}),
            False,
            id="an operator vouches for it",
        ),
        pytest.param(
            node(annotations={CONFIRMED_EMPTY: "2025-12-31T23:59:59"}),
            True,
            id="an operator vouched before",
        ),
        pytest.param(node(annotations={CONFIRMED_EMPTY: "yes"}), True, id="no time"),
    ],
)
def test_node_ends_what_vanished_on_it(seen: Node, *, stays: bool) -> None:
    state = with_pod(pod(RUNNING))
    state.delete_pod(pod(RUNNING), NOW)

    state.apply_node(seen)

    assert bool(vanished_on(state)) is stays


def test_node_that_left_takes_vanished_pods_along() -> None:
    state = with_pod(pod(RUNNING))
    state.delete_pod(pod(RUNNING), NOW)
    state.remove_node("alpha")

    state.apply_node(node())

    assert vanished_on(state) == ()


@pytest.mark.parametrize("has_agent", [True, False])
def test_pod_missed_in_a_gap_vanishes_under_an_agent(*, has_agent: bool) -> None:
    state = with_pod(pod(RUNNING))

    state.replace_pods([], NOW, {"alpha"} if has_agent else ())

    assert bool(vanished_on(state)) is has_agent


def test_vanished_pods_outlive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "new" / "vanished.json"
    state = with_pod(pod(RUNNING))
    state.delete_pod(pod(RUNNING), NOW)
    save_vanished(path, state.vanished)
    later = make_state()

    load_vanished(path, later.vanished)
    later.apply_node(node())

    assert vanished_on(later) == vanished_on(state)
    path.write_text("broken")
    load_vanished(path, make_state().vanished)
