"""The scheduler's answers over HTTP; the scheduler behind is scripted."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from schemas.base import subject_for
from schemas.cluster.node_selection import (
    ClusterGpu,
    ClusterStatus,
    GetClusterStatus,
    GetNodeSummaries,
    NodeSummaries,
)
from schemas.executor.attempts import EngineSpec, ExecutorReported, Runtime, RuntimeOffer
from schemas.gateway.views import ClusterDeviceList
from schemas.gpus.checks import ResourceDefinition
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.views import PlannedExperiment, ValidateTask
from schemas.results.prices import GetGpuPrices, GpuPrices
from schemas.scheduler.policy import PolicyOutcome, PolicyTrial, TriedPolicy, TryPolicy
from schemas.scheduler.reservations import ReservationGranted
from schemas.scheduler.views import (
    AvailabilityView,
    DecisionList,
    GetAvailability,
    ListDecisions,
    Replay,
    ReplayDecisions,
    WhatIf,
)
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.testing import eventually
from tests.support.worlds.gateway import TASK, Api, gateway, make_sample
from tests.support.worlds.gateway_views import make_plan

IN_VAIN = AvailabilityView(available=False, message="all GPUs are held")
GRANTED = AvailabilityView(available=True, message="1 GPU available on alpha")


@pytest.fixture
async def api(nats_url: str, postgres_dsn: str) -> AsyncIterator[Api]:
    async with gateway(nats_url, postgres_dsn) as running:
        yield running


def make_gpu(node: str) -> ClusterGpu:
    return ClusterGpu(
        node_name=node, gpu_index=0, gpu_uuid=f"GPU-{node}", gpu_model="H100", allocatable=True
    )


async def test_scheduler_queries_keep_their_parameters(api: Api) -> None:
    reservation_id = new_id()
    await api.owners.answer(WhatIf, GRANTED)
    await api.owners.answer(GetNodeSummaries, NodeSummaries(nodes={}))
    await api.owners.answer(ListDecisions, DecisionList(decisions=(), next_after_id=7))
    empty = Replay(decisions=(), keyframe_id=None, checked=0, different=0)
    await api.owners.answer(ReplayDecisions, empty)

    outcome = PolicyOutcome(
        requests=0, granted=0, waiting=0, preempted=0, used_percent=0.0, packed_percent=0.0
    )
    trial = PolicyTrial(
        policy=TriedPolicy.NO_AGING,
        start_at=datetime(2026, 1, 1, tzinfo=UTC),
        end_at=datetime(2026, 1, 2, tzinfo=UTC),
        decisions=0,
        recorded_p50_seconds=None,
        recorded_p95_seconds=None,
        present=outcome,
        tried=outcome,
        left_out=(),
    )
    await api.owners.answer(TryPolicy, trial)

    root = "/api/v1"
    what_if = await api.post(f"{root}/reservations/{reservation_id}/what-if", {"gpus": 2})
    await api.get(f"{root}/cluster/nodes?utilization_threshold=20&memory_threshold=40")
    listed = await api.get(f"{root}/decisions?after_id=6&limit=1&reservation_id={reservation_id}")
    replayed = await api.get(f"{root}/decisions/replay?from_id=3")
    since = "2026-01-01T00:00:00Z"
    tried = await api.get(f"{root}/decisions/what-if-policy?policy=no_aging&since_at={since}")

    assert what_if[0] == 200
    assert msgspec.convert(what_if[1], AvailabilityView) == GRANTED
    assert listed[1]["next_after_id"] == 7
    assert replayed[1]["checked"] == 0
    assert msgspec.convert(tried[1], PolicyTrial) == trial
    assert api.owners.received == [
        WhatIf(reservation_id=reservation_id, request=GpuRequest(gpus=2), names_of=None),
        GetNodeSummaries(utilization_threshold=20.0, memory_threshold=40.0),
        ListDecisions(after_id=6, limit=1, reservation_id=reservation_id),
        ReplayDecisions(from_id=3),
        TryPolicy(policy=TriedPolicy.NO_AGING, since_at=datetime(2026, 1, 1, tzinfo=UTC)),
    ]


def planned(*gpus: int) -> tuple[PlannedExperiment, ...]:
    return tuple(
        PlannedExperiment(
            ordinal=ordinal,
            parameters={},
            engine=EngineSpec(runtime=Runtime.PROCESS, engine="simulated", model="m"),
            request=GpuRequest(gpus=count),
        )
        for ordinal, count in enumerate(gpus, start=1)
    )


async def test_unservable_task_reports_what_is_missing(api: Api) -> None:
    await api.owners.answer(ValidateTask, make_plan(experiments=planned(1, 2, 2, 64)))
    never = AvailabilityView(available=False, message="no node has 64 GPUs", impossible=True)
    await api.owners.answer(
        GetAvailability, lambda query: never if query.request.gpus == 64 else IN_VAIN
    )

    status, plan = await api.post("/api/v1/tasks/validate", TASK)

    assert status == 200
    assert plan["missing"] == ["experiment 4: no node has 64 GPUs"]
    asked = [query for query in api.owners.received if isinstance(query, GetAvailability)]
    assert [query.request.gpus for query in asked] == [1, 2, 64]


@pytest.mark.parametrize(
    ("sizes", "missing"),
    [
        ((64, 128), ["every configuration: no node has so many GPUs"]),
        ((1, 64), []),
    ],
)
async def test_unservable_search_reports_what_is_missing(
    api: Api, sizes: tuple[int, ...], missing: list[str]
) -> None:
    await api.owners.answer(ValidateTask, make_plan(samples=planned(*sizes)))
    never = AvailabilityView(available=False, message="no node has so many GPUs", impossible=True)
    await api.owners.answer(
        GetAvailability, lambda query: never if query.request.gpus > 8 else IN_VAIN
    )

    status, plan = await api.post("/api/v1/tasks/validate", TASK)

    assert (status, plan["missing"]) == (200, missing)


async def test_plan_has_cost_and_expected_start(api: Api) -> None:
    plan = make_plan(experiments=planned(1, 2), gpu_hours_at_most=3.0)
    await api.owners.answer(ValidateTask, plan)
    busy = AvailabilityView(available=False, message="2 GPUs are held")
    free = AvailabilityView(available=True, message="1 GPU on alpha")
    await api.owners.answer(
        GetAvailability, lambda query: busy if query.request.gpus == 2 else free
    )

    _, unpriced = await api.post("/api/v1/tasks/validate", TASK)
    await api.owners.answer(GetGpuPrices, GpuPrices(hourly={"h200": 3.5}, currency="EUR"))
    _, priced = await api.post("/api/v1/tasks/validate", TASK)

    assert unpriced["cost_at_most"] is None
    assert priced["cost_at_most"] == {"least": 10.5, "most": 10.5, "currency": "EUR"}
    assert priced["start"] == {
        "is_now": False,
        "expected_at": None,
        "message": "2 GPUs are held",
    }


async def test_paged_cluster_comes_as_one_answer(api: Api) -> None:
    def page(query: GetClusterStatus) -> ClusterStatus:
        if query.after_node_id is None:
            return ClusterStatus(gpus=(make_gpu("alpha"),), next_after_node_id="alpha")
        return ClusterStatus(gpus=(make_gpu("beta"),))

    await api.owners.answer(GetClusterStatus, page)

    _, body = await api.get("/api/v1/cluster/gpus")

    assert [gpu["node_name"] for gpu in body["gpus"]] == ["alpha", "beta"]
    assert body["next_after_node_id"] is None


async def test_availability_wait_ends_with_ledger_or_reading(api: Api) -> None:
    answers = {"view": IN_VAIN}
    await api.owners.answer(GetAvailability, lambda _: answers["view"])

    async def waits() -> asyncio.Task[tuple[int, Any]]:
        before = len(api.owners.received)
        answers["view"] = IN_VAIN
        task = asyncio.create_task(api.post("/api/v1/availability?wait_seconds=60", {"gpus": 1}))
        await eventually(lambda: len(api.owners.received) > before)
        answers["view"] = GRANTED
        return task

    by_reading = await waits()
    await api.owners.publish(make_sample())
    assert (await asyncio.wait_for(by_reading, 20))[1]["available"]
    by_ledger = await waits()
    asked = len(api.owners.received)
    await api.owners.client.jetstream().publish(*make_granted())

    assert (await asyncio.wait_for(by_ledger, 20))[1]["available"]
    assert len(api.owners.received) == asked + 1


async def test_waiting_in_vain_ends_with_the_reason(api: Api) -> None:
    await api.owners.answer(GetAvailability, IN_VAIN)

    status, body = await api.get("/api/v1/availability?gpus=2&wait_seconds=1")

    assert (status, body["available"], body["message"]) == (200, False, "all GPUs are held")
    assert len(api.owners.received) == 2


async def test_impossible_availability_is_answered_at_once(api: Api) -> None:
    never = msgspec.structs.replace(IN_VAIN, impossible=True)
    await api.owners.answer(GetAvailability, never)

    status, body = await asyncio.wait_for(api.get("/api/v1/availability?wait_seconds=60"), 30)

    assert (status, body["available"], body["impossible"]) == (200, False, True)
    assert len(api.owners.received) == 1


def make_granted() -> tuple[str, bytes]:
    """Subject and body of a fact of the ledger."""
    event = ReservationGranted(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=1,
        reservation_id=new_id(),
        namespace="default",
        holder="test",
        epoch=1,
        node_id="alpha",
        devices=(),
        lease_ttl_seconds=30,
        waited_seconds=0,
    )
    return subject_for(event), encode(event)


async def test_custom_devices_come_from_cluster_executors(api: Api) -> None:
    cores = ResourceDefinition(custom_name="npu", group="npu", key="vendor.example/cores")
    memory = replace(cores, key="vendor.example/memory", description_zh="显存", default_value=8)
    offers = (
        RuntimeOffer(runtime=runtime, engines=(), devices=(memory, cores))
        for runtime in (Runtime.OME, Runtime.KUBERNETES)
    )
    await api.owners.publish(
        ExecutorReported(
            message_id=new_id(),
            occurred_at=utcnow(),
            revision=1,
            executor_id="k8s",
            boot_id=new_id(),
            runtimes=tuple(offers),
            benchmark_tools=(),
            largest_epoch=0,
        )
    )

    async def found(**params: str) -> ClusterDeviceList:
        _, body = await api.get("/api/v1/cluster/devices", params=params)
        return msgspec.convert(body, ClusterDeviceList)

    async def is_known() -> bool:
        return len((await found()).devices) > 0

    await eventually(is_known, what="the devices")
    first = await found(limit="1")
    rest = await found(limit="1", cursor=str(first.next_cursor))

    assert [(each.cluster_id, each.definition) for each in (*first.devices, *rest.devices)] == [
        ("k8s", cores),
        ("k8s", memory),
    ]
    assert rest.next_cursor is None
