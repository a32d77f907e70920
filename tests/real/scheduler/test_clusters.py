"""GPUs of a Kubernetes cluster: chosen by the leader, held in the ledger, given back when its
executor confirms.
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.cluster.node_selection import (
    ClusterStatus,
    GetClusterStatus,
    GetNodeSummaries,
    NodeSelection,
    NodeSummaries,
    SelectNode,
)
from schemas.cluster.nodes import ClusterGpuReading, HostAmounts, ReadingsSource
from schemas.errors import Accepted, ErrorCode, Refused
from schemas.gpus.device_grant import ClusterPlacement
from schemas.gpus.gpu_request import (
    GpuRequest,
    NodeRanking,
    Preference,
    Selector,
    SelectorKey,
)
from schemas.scheduler.devices import Drain, Uncordon
from schemas.scheduler.drifts import DriftDetected
from schemas.scheduler.nodes import AdmitNode, RemoveNode
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import (
    ReservationCancelled,
    ReservationExpired,
    ReservationGranted,
    ReservationReleased,
    ReservationState,
    ReservationTimedOut,
)
from schemas.scheduler.views import (
    AllocationMap,
    AvailabilityView,
    ExplainReservation,
    Explanation,
    GetAllocationMap,
    GetAvailability,
)
from shared.clock import utcnow
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.testing import eventually
from tests.support.processes.scheduler import scheduler_process
from tests.support.worlds.scheduler import FakeNode, World, accepted, ledger, refused, scheduler
from tests.support.worlds.scheduler import world as make_world
from tests.support.worlds.scheduler_cluster import (
    make_cluster_node,
    of_cluster,
    reporting,
)

LABEL = "gpusteward.io/cluster"


async def place(around: World, request: GpuRequest | None = None) -> ClusterPlacement:
    granted = await around.granted(await around.request(request or of_cluster()))
    assert granted.cluster is not None
    return granted.cluster


async def executor(around: World, cluster_id: str = "k8s") -> FakeNode:
    """The cluster's, which answers fences and what runs."""
    node = FakeNode(bus=around.bus, node_id=cluster_id, gpus=[])
    await node.answer_fences()
    await node.answer_running()
    return node


async def explain(around: World, reservation_id: UUID) -> Explanation:
    return await around.bus.query(ExplainReservation(reservation_id=reservation_id), Explanation)


async def test_cluster_gpus_are_granted_and_released(steward: World) -> None:
    async with reporting(steward) as cluster:
        await cluster.tell(make_cluster_node("gpu.0", requested=3))
        reservation_id = await steward.request(of_cluster(6, lease_ttl_seconds=60.0))
        granted = await steward.granted(reservation_id)
        renewed = accepted(await steward.renew(granted, activate=True))
        active = await steward.view(reservation_id)
        shown = await explain(steward, reservation_id)
        second = await place(steward, of_cluster(6))
        accepted(await steward.release(granted))
        released = await steward.event(ReservationReleased, reservation_id)
        third = await place(steward, of_cluster(6))

    placed = granted.cluster
    assert placed is not None
    assert (granted.node_id, granted.node_ids, granted.devices) == ("k8s", ("k8s",), ())
    assert (placed.cluster_id, placed.node_name, placed.hostname) == ("k8s", "gpu.1", "gpu.1")
    assert (placed.gpus, placed.resource) == (6, "nvidia.com/gpu")
    assert renewed.epoch == granted.epoch
    assert (active.state, active.cluster) == (ReservationState.ACTIVE, placed)
    assert not shown.reasons
    assert shown.summary.startswith("active in cluster k8s: gpu.1: 8 of 8 allocatable GPUs idle")
    assert second.node_name is None
    assert "no node has 6 idle GPUs" in second.message
    assert released.epoch == granted.epoch
    assert third.node_name == "gpu.1"


async def test_fifty_requests_never_overcommit_a_node(steward: World) -> None:
    async with reporting(steward, nodes=10):
        ids = await asyncio.gather(*(steward.request(of_cluster(1 + n % 3)) for n in range(50)))
        granted = [await steward.granted(each) for each in ids]

    taken: Counter[str | None] = Counter()
    for each in granted:
        assert each.cluster is not None
        taken[each.cluster.node_name] += each.cluster.gpus
    left = taken.pop(None, 0)
    assert max(taken.values()) <= 8
    assert sum(taken.values()) + left == sum(1 + n % 3 for n in range(50))
    assert sum(taken.values()) >= 10 * 6  # but for ends that nothing fits into
    assert len({each.epoch for each in granted}) == 50


async def test_bound_pod_is_counted_once(steward: World) -> None:
    async with reporting(steward, nodes=1) as cluster:
        request = await steward.request(of_cluster(5, lease_ttl_seconds=60.0))
        granted = await steward.granted(request)
        await cluster.bind(request, "gpu.0", 5)
        beside = await place(steward, of_cluster(3, lease_ttl_seconds=60.0))
        await cluster.bind(request, "gpu.0", 0)
        gone = await place(steward, of_cluster(1))
        accepted(await steward.release(granted))
        after = await place(steward, of_cluster(1))

    assert (beside.node_name, gone.node_name, after.node_name) == ("gpu.0", None, "gpu.0")


async def test_a_request_waits_only_for_a_view_and_says_so(steward: World) -> None:
    waiting = await steward.request(of_cluster(cluster_id="k8s", lease_ttl_seconds=60.0))
    never = await steward.request(of_cluster(cluster_id="nowhere", wait_timeout_seconds=1.0))
    view = await steward.waiting(waiting, ReasonCode.AWAITING_CLUSTER)
    explained = await explain(steward, waiting)
    asked = await steward.bus.query(GetAvailability(request=of_cluster()), AvailabilityView)
    out = await steward.event(ReservationTimedOut, never)
    async with reporting(steward) as cluster:
        cluster.is_complete = False
        incomplete = await eventually_waits(steward, waiting, "not complete")
        cluster.is_complete = True
        granted = await steward.granted(waiting)
        could = await steward.bus.query(GetAvailability(request=of_cluster()), AvailabilityView)

    assert "waits for a view of cluster k8s" in view.reasons[0].message
    assert (explained.queue_position, explained.queue_length) == (1, 1)
    assert "waits for a view of cluster k8s" in explained.summary
    assert not asked.available
    assert "none has been heard of" in asked.message
    assert out.reasons[0].code is ReasonCode.AWAITING_CLUSTER
    assert incomplete
    assert granted.cluster is not None
    assert could.available


async def eventually_waits(around: World, reservation_id: UUID, text: str) -> bool:
    async def says() -> bool:
        view = await around.view(reservation_id)
        return any(text in reason.message for reason in view.reasons)

    await eventually(says, what=f"the reservation to say {text!r}")
    return True


async def test_gap_or_new_boot_queries_everything_anew(steward: World) -> None:
    async with reporting(steward, nodes=7) as cluster:
        await place(steward)
        asked = cluster.asked
        cluster.revision += 3
        cluster.nodes = {"gpu.9": make_cluster_node("gpu.9")}
        await eventually(lambda: cluster.asked > asked, what="what was missed to be asked")
        after_gap = await place(steward, of_cluster(8))
        asked_after_gap = cluster.asked
        cluster.boot_id, cluster.revision = new_id(), 0
        cluster.nodes = {"new": make_cluster_node("new")}
        await eventually(lambda: cluster.asked > asked_after_gap, what="the new boot to be asked")
        after_boot = await place(steward, of_cluster(8))

    assert asked >= 3  # in pages
    assert (after_gap.node_name, after_boot.node_name) == ("gpu.9", "new")


async def test_expired_cluster_grant_waits_for_executor(nats_url: str, postgres_dsn: str) -> None:
    async with (
        scheduler(nats_url, postgres_dsn),
        make_world(nats_url) as around,
        reporting(around, nodes=1),
    ):
        node = await executor(around)
        node.answer_fence = lambda command: Refused(
            command_id=command.command_id, code=ErrorCode.STILL_RUNNING, message="terminating"
        )
        reservation_id = await around.request(of_cluster(8, lease_ttl_seconds=3.0))
        granted = await around.granted(reservation_id)
        await around.event(ReservationExpired, reservation_id)
        quarantined = await around.view(reservation_id)
        why = await explain(around, reservation_id)
        meanwhile = await place(around)
        await eventually(lambda: bool(node.fences), what="the fence")
        node.answer_fence = lambda command: Accepted(command_id=command.command_id)

        async def is_free() -> bool:
            return not (await around.view(reservation_id)).quarantined

        await eventually(is_free, within_seconds=30.0, what="the confirmed stop")
        after = await place(around)

    assert quarantined.quarantined
    assert why.reasons
    assert meanwhile.node_name is None
    assert node.fences[0].reservation_id == reservation_id
    assert node.fences[0].epoch == granted.epoch
    assert after.node_name == "gpu.0"


async def test_cancel_and_drain_end_cluster_grants(steward: World) -> None:
    async with reporting(steward, nodes=1):
        node = await executor(steward)
        first, second = [
            await steward.granted(await steward.request(of_cluster(2, lease_ttl_seconds=60.0)))
            for _ in range(2)
        ]
        accepted(await steward.cancel(first.reservation_id))
        await steward.event(ReservationCancelled, first.reservation_id)
        accepted(await steward.bus.request(Drain(command_id=new_id(), node_id="k8s")))
        await steward.event(ReservationCancelled, second.reservation_id)
        waiting = await steward.request(of_cluster(8, lease_ttl_seconds=60.0))
        await steward.waiting(waiting, ReasonCode.CORDONED)
        heard = refused(await steward.bus.request(RemoveNode(command_id=new_id(), node_id="k8s")))
        accepted(await steward.bus.request(Uncordon(command_id=new_id(), node_id="k8s")))
        granted = await steward.granted(waiting)

        async def is_free() -> bool:
            views = [await steward.view(each.reservation_id) for each in (first, second)]
            return not any(view.quarantined for view in views)

        await eventually(is_free, what="the confirmed stops")

    assert {fence.reservation_id for fence in node.fences} == {
        first.reservation_id,
        second.reservation_id,
    }
    assert heard.code is ErrorCode.CONFLICT
    assert granted.cluster is not None


async def test_a_new_cluster_has_to_be_admitted(nats_url: str, postgres_dsn: str) -> None:
    async with (
        scheduler(nats_url, postgres_dsn, admit_nodes=""),
        make_world(nats_url) as around,
        reporting(around),
    ):
        waiting = await around.request(of_cluster(lease_ttl_seconds=60.0))
        view = await around.waiting(waiting, ReasonCode.NOT_ADMITTED)
        shown = await around.bus.query(GetAllocationMap(node_id="k8s"), AllocationMap)
        accepted(await around.bus.request(AdmitNode(command_id=new_id(), node_id="k8s")))
        granted = await around.granted(waiting)

    assert "`gpusteward node admit k8s`" in view.reasons[0].message
    assert (shown.nodes[0].source.value, shown.nodes[0].fresh) == ("kubernetes", True)
    assert granted.cluster is not None


async def test_gpus_of_cluster_node_have_one_owner(steward: World) -> None:
    await steward.add_node("gpu-0", 8, labels={LABEL: "k8s"}, executor=False)
    await steward.known("gpu-0", 8)
    waiting = await steward.request(GpuRequest(gpus=1))
    view = await steward.waiting(waiting, ReasonCode.GIVEN_OUT_BY_CLUSTER)
    async with reporting(steward) as cluster:
        granted = await place(steward, of_cluster(8))
        await cluster.tell(make_cluster_node("gpu.0", requested=6))
        status = await steward.bus.query(GetClusterStatus(), ClusterStatus)

    assert "belongs to Kubernetes cluster k8s" in view.reasons[0].message
    assert not steward.seen(ReservationGranted, waiting)
    assert granted.node_name == "gpu.0"
    told = [gpu for gpu in status.gpus if gpu.node_name == "gpu.0"]
    assert {gpu.node_name for gpu in status.gpus} == {"gpu.0", "gpu.1"}
    assert [gpu.gpu_uuid for gpu in told] == [f"GPU-gpu-0-{n}" for n in range(8)]
    assert not any(gpu.allocatable for gpu in told)


async def test_cluster_nodes_are_requested_like_own(steward: World) -> None:
    await steward.add_node("alpha", 1)
    await steward.known("alpha", 1)
    own = await steward.bus.query(SelectNode(), NodeSelection)
    async with reporting(steward) as cluster:
        reading = ClusterGpuReading(
            index=3, uuid="GPU-3", utilization_percent=60.0, memory_used_mb=1, memory_total_mb=10
        )
        await cluster.tell(
            make_cluster_node(
                "gpu.1",
                requested=1,
                readings=(reading,),
                readings_source=ReadingsSource.DCGM,
                readings_at=utcnow(),
            )
        )
        await place(steward, of_cluster(2, node_names=("gpu.0",), lease_ttl_seconds=60.0))
        found = (await steward.bus.query(GetNodeSummaries(), NodeSummaries)).nodes
        status = await steward.bus.query(GetClusterStatus(), ClusterStatus)
        best = await steward.bus.query(SelectNode(required_gpus=7), NodeSelection)
        strict = await steward.bus.query(
            SelectNode(required_gpus=7, utilization_threshold=70.0), NodeSelection
        )

    assert own.node_id == "alpha"
    assert list(found) == ["alpha", "gpu.0", "gpu.1"]
    assert (found["gpu.0"].total_gpus, found["gpu.0"].allocatable_gpus) == (8, 6)
    assert (found["gpu.1"].allocatable_gpus, found["gpu.1"].idle_gpu_count) == (7, 7)
    assert (found["gpu.1"].avg_utilization_percent, found["gpu.1"].cluster_id) == (60.0, "k8s")
    assert (best.node_id, strict.node_id) == ("gpu.1", "gpu.1")
    busiest = next(gpu for gpu in status.gpus if gpu.gpu_uuid == "GPU-3")
    assert (busiest.node_name, busiest.gpu_index, busiest.allocatable) == ("gpu.1", 3, False)
    assert (busiest.memory_usage_percent, busiest.cluster_id) == (10.0, "k8s")


async def test_select_node_matches_later_reservation(steward: World) -> None:
    """With what both ask of CPUs and labels, each time on what the one before has taken."""
    zone = Selector(key=SelectorKey.LABEL, label="zone", values=("east",))
    requests = [
        of_cluster(1, cpu_count=20.0, lease_ttl_seconds=60.0),
        of_cluster(1, cpu_count=20.0, lease_ttl_seconds=60.0),
        of_cluster(1, prefer=(Preference(selector=zone),), lease_ttl_seconds=60.0),
        of_cluster(2, ranking=NodeRanking.LEAST_FRAGMENTING, lease_ttl_seconds=60.0),
        of_cluster(8, cpu_count=60.0, lease_ttl_seconds=60.0),
    ]
    room = HostAmounts(cpu_milli=64_000, memory_mb=500_000, pods=110)
    asked = HostAmounts(cpu_milli=30_000, memory_mb=1_000, pods=3)
    said, got = [], []
    async with reporting(steward) as cluster:
        await cluster.tell(
            make_cluster_node("gpu.0", allocatable_host=room, requested_host=asked),
            make_cluster_node("gpu.1", requested=3, allocatable_host=room, labels={"zone": "east"}),
        )

        async def is_seen() -> bool:
            nodes = (await steward.bus.query(GetNodeSummaries(), NodeSummaries)).nodes
            return "gpu.1" in nodes and nodes["gpu.1"].allocatable_gpus == 5

        await eventually(is_seen, what="the cluster's nodes")
        for request in requests:
            found = await steward.bus.query(SelectNode(request=request), NodeSelection)
            said.append((found.node_id, found.hostname))
            placed = await place(steward, request)
            got.append((placed.node_name, placed.hostname))

    assert said == got
    assert [name for name, _ in got] == ["gpu.0", "gpu.1", "gpu.1", "gpu.1", None]


async def test_gpu_parts_are_held_until_release(nats_url: str, postgres_dsn: str) -> None:
    """Also by a leader that has come since, and once a pod asks for them itself."""
    cores = "tencent.com/vcuda-core"
    counted = {"resource": cores, "units_per_gpu": 100, "allocatable_units": 100}

    def part(units: int) -> GpuRequest:
        return of_cluster(1, resource=cores, units=units, memory_units=10, lease_ttl_seconds=60.0)

    async with make_world(nats_url) as around, reporting(around, nodes=1) as cluster:
        (gpus,) = make_cluster_node("gpu.0", 1).gpus
        node = make_cluster_node("gpu.0", 1)
        vgpu = replace(gpus, **counted, allocatable_memory_units=60)
        await cluster.tell(replace(node, gpus=(vgpu,)))
        async with scheduler(nats_url, postgres_dsn):
            first = await around.granted(await around.request(part(30)))
            second = await place(around, part(40))
            too_much = await place(around, part(40))
        async with scheduler(nats_url, postgres_dsn):
            still = await place(around, part(31))
            bound = replace(
                vgpu,
                requested=1,
                requested_units=30,
                requested_memory_units=10,
                by_reservation={first.reservation_id: 1},
                units_by_reservation={first.reservation_id: 30},
            )
            await cluster.tell(replace(node, gpus=(bound,)))
            beside = await place(around, part(30))
            accepted(await around.release(first))
            await cluster.tell(replace(node, gpus=(vgpu,)))
            again = await place(around, part(30))

    assert first.cluster is not None
    assert (first.cluster.units, first.cluster.memory_units, first.cluster.gpus) == (30, 10, 1)
    names = [each.node_name for each in (first.cluster, second, too_much, still, beside, again)]
    assert names == ["gpu.0", "gpu.0", None, None, "gpu.0", "gpu.0"]


async def test_cluster_workload_is_no_orphan_or_ghost(nats_url: str, postgres_dsn: str) -> None:
    quick = {
        "reconcile_interval_seconds": 0.2,
        "orphan_seconds": 0.5,
        "ghost_seconds": 0.5,
        "squatter_seconds": 0.2,
    }
    async with (
        scheduler(nats_url, postgres_dsn, **quick),
        make_world(nats_url) as around,
        reporting(around, nodes=1) as cluster,
    ):
        node = await executor(around)
        used, by_hand, unused = [
            await around.granted(await around.request(of_cluster(2, lease_ttl_seconds=3.0)))
            for _ in range(3)
        ]
        node.workloads = {used.reservation_id: ()}
        await cluster.bind(by_hand.reservation_id, "gpu.0", 2)  # a pod that somebody labelled

        async def keep() -> None:
            while True:
                for each in (used, by_hand, unused):
                    await around.renew(each)
                await asyncio.sleep(0.5)

        around.running.append(around.tasks.create_task(keep()))
        await around.event(ReservationReleased, unused.reservation_id, within_seconds=30.0)
        drifts = around.seen(DriftDetected)
        still = [await around.view(each.reservation_id) for each in (used, by_hand)]

    assert {drift.reservation_id for drift in drifts} == {unused.reservation_id}
    assert {each.state for each in still} == {ReservationState.GRANTED}


@pytest.mark.parametrize(
    "request_",
    [
        of_cluster(nodes=2, selects_node=False),
        of_cluster(nodes=2, resource="nvidia.com/mps-core", units=50),
        of_cluster(device_uuids=("GPU-1",)),
        of_cluster(selects_node=False, node_names=("a",)),
        of_cluster(selects_node=False, gpu_models=("H100",)),
    ],
)
async def test_impossible_cluster_request_is_refused(steward: World, request_: GpuRequest) -> None:
    view = GetAvailability(request=request_)

    with pytest.raises(Exception, match="expected"):
        await steward.bus.query(view, AvailabilityView)


async def test_new_leader_counts_former_grants(nats_url: str, postgres_dsn: str) -> None:
    async with make_world(nats_url) as around, reporting(around, nodes=1):
        async with scheduler(nats_url, postgres_dsn):
            first = await place(around, of_cluster(5, lease_ttl_seconds=60.0))
        waiting = new_id()
        async with scheduler(nats_url, postgres_dsn):
            await around.request(of_cluster(4, lease_ttl_seconds=60.0), reservation_id=waiting)
            second = (await around.granted(waiting)).cluster
            fits = await place(around, of_cluster(3, lease_ttl_seconds=60.0))
        async with ledger(postgres_dsn) as rows:
            held = await rows.fetch("SELECT node_name, gpus FROM cluster_holding ORDER BY epoch")

    assert second is not None
    assert (first.node_name, second.node_name, fits.node_name) == ("gpu.0", None, "gpu.0")
    assert [tuple(row) for row in held] == [("gpu.0", 5), (None, 4), ("gpu.0", 3)]


async def test_started_scheduler_queries_all_clusters(nats_url: str, postgres_dsn: str) -> None:
    async with make_world(nats_url) as around:
        async with scheduler(nats_url, postgres_dsn), reporting(around):
            await place(around)
        # From here on it answers and tells nothing by itself.
        async with scheduler(nats_url, postgres_dsn):
            placed = await place(around, of_cluster(8))

    assert placed.node_name == "gpu.1"


@pytest.mark.long
async def test_killed_leader_never_overcommits_nodes(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    ids = [new_id() for _ in range(40)]

    async def request(around: World, reservation_id: UUID) -> None:
        with suppress(UnavailableError):  # it was on its way to the one that is killed
            await around.request(of_cluster(2), reservation_id=reservation_id)

    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        leader = await start(
            scheduler_process(nats_url, postgres_dsn, tmp_path, leader_ttl_seconds=60)
        )
        around = await start(make_world(nats_url))
        await start(reporting(around, nodes=9))
        await place(around)
        await start(scheduler(nats_url, postgres_dsn, leader_ttl_seconds=60))
        asking = asyncio.gather(*(request(around, each) for each in ids))
        await eventually(lambda: len(around.seen(ReservationGranted)) > 1, every_seconds=0.001)
        leader.kill()
        await leader.process.wait()
        await asking
        await asyncio.gather(*(request(around, each) for each in ids))
        granted = [await around.granted(each) for each in ids]
        async with ledger(postgres_dsn) as rows:
            held = await rows.fetch("SELECT node_name, gpus FROM cluster_holding")

    taken: Counter[str | None] = Counter()
    for row in held:
        taken[row["node_name"]] += row["gpus"]
    assert len(held) == 41
    assert len({each.epoch for each in granted}) == 40
    assert max(count for name, count in taken.items() if name is not None) <= 8
    assert taken[None] <= 81 - 9 * 7


async def test_gang_holds_every_node_until_all_is_given_back(steward: World) -> None:
    async with reporting(steward, nodes=2):
        gang = await steward.granted(await steward.request(of_cluster(8, nodes=2)))
        alone = await place(steward, of_cluster(8))
        assert gang.cluster is not None
        held = {gang.cluster.node_name, *(n.node_name for n in gang.cluster.other_nodes)}
        waiting = await steward.request(of_cluster(8, nodes=2))
        await steward.waiting(waiting, ReasonCode.TOO_FEW_NODES)
        accepted(await steward.release(gang))
        second = await steward.granted(waiting)

    assert len(held) == 2
    assert (gang.cluster.gpus, gang.cluster.total_gpus) == (8, 16)
    assert alone.node_name is None  # nothing is idle
    assert second.epoch > gang.epoch
