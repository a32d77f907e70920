"""What a pod that was deleted by force may still use is granted to nobody until none is seen."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from msgspec.structs import replace

from schemas.cluster.nodes import GpuSharing, VanishedPod
from schemas.telemetry.readings import GpuPod, GpuProcess, GpuReading, GpuSampled, Source
from services.scheduler.domain.clusters.vanished import describe_vanished, hold_vanished
from services.scheduler.observations.latest_readings import LatestReadings
from tests.support.worlds.scheduler_cluster import make_cluster_node

GPU = "nvidia.com/gpu"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POD = VanishedPod(uid="gone", namespace="serving", name="llama-0", since_at=NOW, units={GPU: 2})


@pytest.mark.parametrize(
    ("pod_uids", "requested"),
    [
        pytest.param(None, 5, id="nobody sees the node"),
        pytest.param(frozenset({"gone", "other"}), 5, id="a process of it is seen"),
        pytest.param(frozenset({"other"}), 3, id="only others are seen"),
        pytest.param(frozenset(), 3, id="nobody is seen"),
    ],
)
def test_vanished_pod_counts_until_nobody_is_seen(
    pod_uids: frozenset[str] | None, requested: int
) -> None:
    node = hold_vanished(make_cluster_node("alpha", requested=3, vanished=(POD,)), pod_uids)

    assert node.gpus[0].requested == requested
    assert ("serving/llama-0" in describe_vanished(node)) == (requested == 5)


def test_vanished_pod_of_ours_counts_to_its_reservation() -> None:
    reservation = uuid4()
    pod = VanishedPod(
        uid="gone",
        namespace="ns",
        name="p",
        since_at=NOW,
        units={GPU: 2},
        reservation_id=reservation,
    )

    node = hold_vanished(make_cluster_node("alpha", vanished=(pod,)), None)

    assert node.gpus[0].by_reservation == {reservation: 2}


def test_vanished_slices_count_as_units() -> None:
    node = make_cluster_node("alpha", vanished=(POD,))
    [gpus] = node.gpus
    shared = replace(node, gpus=(replace(gpus, sharing=GpuSharing.TIME_SLICING),))

    [held] = hold_vanished(shared, None).gpus

    assert (held.requested, held.requested_units) == (2, 2)


@pytest.mark.parametrize(
    ("processes", "pods", "pod_uids"),
    [
        pytest.param((), (), frozenset(), id="nobody"),
        pytest.param(
            (GpuProcess(pid=1, pod_uid="a"),),
            (GpuPod("ns", "p", "c", uid="b"),),
            frozenset("ab"),
            id="a process's pod, and kubelet's",
        ),
        pytest.param((GpuProcess(pid=1),), (), None, id="a process of an unknown pod"),
        pytest.param(None, (), None, id="processes unknown"),
    ],
)
def test_agent_tells_which_pods_are_on_its_gpus(
    processes: tuple[GpuProcess, ...] | None,
    pods: tuple[GpuPod, ...],
    pod_uids: frozenset[str] | None,
) -> None:
    readings = LatestReadings()
    sample = GpuSampled(
        node_id="alpha",
        boot_id=uuid4(),
        sequence=1,
        observed_at=NOW,
        interval_seconds=1.0,
        source=Source.SIMULATED,
        gpus=(GpuReading("GPU-1", 0, processes=processes, pods=pods),),
    )

    readings.observe(sample)

    newest = readings.newest("alpha")
    assert newest is not None
    assert newest.pod_uids == pod_uids
