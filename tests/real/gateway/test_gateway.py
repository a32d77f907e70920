"""HTTP and WebSocket over real nats-server and Postgres; the owners behind are scripted."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import msgspec
import nats
import pytest
from msgspec.structs import replace

from schemas.base import Command, subject_for
from schemas.cluster.node_selection import (
    ClusterStatus,
    GetClusterStatus,
    GetNodeSummaries,
    NodeSummaries,
)
from schemas.errors import Accepted, ErrorCode, Refused
from schemas.executor.attempts import ExecutorReported
from schemas.executor.running import ListRunning, RunningAttempts
from schemas.orchestrator.deletion import DeleteExperiment, DeleteTask
from schemas.orchestrator.experiments import ExperimentState, SubmitTask
from schemas.orchestrator.views import (
    ExperimentList,
    ExperimentView,
    GetExperiment,
    GetTask,
    ListExperiments,
    ListTasks,
    TaskList,
)
from schemas.results.measurements import (
    GetMemoryTrend,
    GetReport,
    GetSummary,
    GpuMemoryTrend,
    ListSummaries,
    MemoryTrendView,
    ReportView,
    SummaryList,
)
from schemas.results.reports import GetWaterfall, WaterfallStep, WaterfallView
from schemas.scheduler.nodes import NodeRemoved
from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.reservations import (
    CancelReservation,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationGranted,
    ReservationState,
)
from schemas.scheduler.views import (
    AllocationMap,
    DriftList,
    ExplainReservation,
    Explanation,
    GetAllocationMap,
    GetReservation,
    ListDrifts,
    ListReservations,
    ReservationList,
)
from schemas.task.benchmark import BenchmarkMetrics
from schemas.task.load_commands import ExperimentCommands
from schemas.task.report import TaskReport
from schemas.task.task_file import TaskFile
from schemas.telemetry.readings import HostFacts, InventoryReported, Source
from services.gateway.domain.task_report.markdown import markdown
from shared.client.discovery import Address
from shared.client.http import StewardClient
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.messaging.streams import EVENTS
from shared.testing import NatsServer, eventually
from tests.support.disks.small_disk import every_disk_full
from tests.support.processes.platform import quick_task
from tests.support.worlds.gateway import (
    BOOT,
    NODE,
    TASK,
    Api,
    gateway,
    logged,
    make_allocation_map,
    make_cluster_gpu,
    make_drift,
    make_experiment_view,
    make_node_summary,
    make_reservation_view,
    make_sample,
    make_summary,
    make_task_started,
    make_task_view,
)
from tests.support.worlds.gateway_views import make_attempt

LISTS = {
    "/api/v1/tasks": "tasks",
    "/api/v1/experiments": "experiments",
    "/api/v1/tasks/{task_id}/experiments": "experiments",
    "/api/v1/tasks/{task_id}/summaries": "summaries",
    "/api/v1/reservations": "reservations",
    "/api/v1/drifts": "drifts",
    "/api/v1/gpus": "gpus",
    "/api/v1/nodes": "nodes",
    "/api/v1/cluster/gpus": "gpus",
    "/api/v1/cluster/nodes": "nodes",
}
BENCHMARK = {
    "tool": "builtin",
    "tool_version": "1",
    "simulated": True,
    "levels": [],
    "metrics": json.loads(msgspec.json.encode(BenchmarkMetrics(mean_ttft=0.2))),
    "elapsed_seconds": 5.0,
    "quality": None,
    "over_tls": False,
    "dataset": None,
    "trace": None,
    "load_host": None,
    "engine": None,
    "canary": None,
}


@pytest.fixture
async def api(nats_url: str, postgres_dsn: str) -> AsyncIterator[Api]:
    async with gateway(nats_url, postgres_dsn) as running:
        yield running


async def test_submitted_task_reaches_owner_and_is_shown(api: Api) -> None:
    await api.owners.accept(SubmitTask)
    await api.owners.answer(GetTask, lambda query: make_task_view(query.task_id))
    task_id = new_id()

    status, body = await api.post(f"/api/v1/tasks?task_id={task_id}&namespace=team-a", TASK)

    assert (status, body["task_id"]) == (201, str(task_id))
    command = next(m for m in api.owners.received if isinstance(m, SubmitTask))
    assert (command.task_id, command.namespace) == (task_id, "team-a")
    assert command.task.task_name == "tune"


async def test_same_idempotency_key_sends_same_command(api: Api) -> None:
    await api.owners.accept(SubmitTask)
    await api.owners.answer(GetTask, lambda query: make_task_view(query.task_id))

    for key in ("once", "once", str(new_id())):
        status, _ = await api.post("/api/v1/tasks", TASK, headers={"Idempotency-Key": key})
        assert status == 201

    first, second, third = (m for m in api.owners.received if isinstance(m, SubmitTask))
    assert first == second
    assert third.command_id != first.command_id
    assert third.task_id != first.task_id


async def test_refusal_of_owner_keeps_code_and_path(api: Api) -> None:
    await api.owners.answer(
        SubmitTask,
        Refused(
            code=ErrorCode.NAME_TAKEN, message="tune is taken", path="$.task_name", details={"a": 1}
        ),
    )
    await api.owners.answer(GetTask, Refused(code=ErrorCode.NOT_FOUND, message="no such task"))

    taken = await api.post("/api/v1/tasks", TASK)
    unknown = await api.get(f"/api/v1/tasks/{uuid4()}")

    assert taken[0] == 409
    assert taken[1]["code"] == "name_taken"
    assert taken[1]["path"] == "$.task_name"
    assert taken[1]["details"] == {"a": 1}
    assert unknown[0] == 404


async def test_silent_owner_is_unavailable(api: Api) -> None:
    async with api.session.get(f"{api.url}/api/v1/tasks") as response:
        assert response.status == 503
        assert response.headers["Retry-After"] == "1"
        problem = await response.json(content_type=None)

    assert problem["code"] == "unavailable"
    assert "the orchestrator service" in problem["detail"]
    assert "gpusteward.rpc" not in problem["detail"]


async def test_experiment_is_merged_with_measurements(api: Api) -> None:
    view = make_experiment_view()
    summary = make_summary(view, benchmark=BENCHMARK, image_digest="vllm@sha256:aa")
    await api.owners.answer(GetExperiment, view)
    await api.owners.answer(GetTask, lambda query: make_task_view(query.task_id))
    await api.owners.answer(ListExperiments, ExperimentList(experiments=(view,)))
    await api.owners.answer(GetSummary, summary)
    await api.owners.answer(ListSummaries, SummaryList(summaries=(replace(summary, benchmark={}),)))

    status, one = await api.get(f"/api/v1/experiments/{view.experiment_id}")
    _, several = await api.get(f"/api/v1/tasks/{view.task_id}/experiments")

    assert status == 200
    assert one["metrics"]["mean_ttft"] == 0.2
    assert one["metrics"]["gpu_monitoring"]["sample_count"] == 5
    assert one["gpu_monitoring"] == one["metrics"]["gpu_monitoring"]
    assert one["benchmark"] == BENCHMARK
    assert one["image_digest"] == "vllm@sha256:aa"
    assert several["experiments"][0]["benchmark"] is None
    assert several["experiments"][0]["gpu_monitoring"]["energy_wh"] == 0.5
    assert msgspec.convert(one, ExperimentView).gpu_monitoring == summary.gpu_monitoring


async def test_task_measurements_take_one_query_per_page(api: Api) -> None:
    task_id = new_id()
    views = [make_experiment_view(task_id=task_id, ordinal=n) for n in range(1, 6)]
    summaries = [make_summary(view) for view in views]

    def page(query: ListSummaries) -> SummaryList:
        if query.after_experiment_id is None:
            return SummaryList(
                summaries=tuple(summaries[:3]), next_after_experiment_id=views[2].experiment_id
            )
        assert query.after_experiment_id == views[2].experiment_id
        return SummaryList(summaries=tuple(summaries[3:]))

    await api.owners.answer(GetTask, make_task_view(task_id))
    await api.owners.answer(ListExperiments, ExperimentList(experiments=tuple(views)))
    await api.owners.answer(ListSummaries, page)

    status, found = await api.get(f"/api/v1/tasks/{task_id}/summaries")
    _, listed = await api.get(f"/api/v1/tasks/{task_id}/experiments")

    assert status == 200
    assert msgspec.convert(found, SummaryList).summaries == tuple(summaries)
    assert all(each["gpu_monitoring"] is not None for each in listed["experiments"])
    assert sum(isinstance(query, ListSummaries) for query in api.owners.received) == 4


async def test_every_list_continues_at_its_cursor(api: Api) -> None:
    task_id = new_id()
    experiments = [make_experiment_view(task_id=task_id, ordinal=n) for n in range(1, 6)]
    tasks = [make_task_view(new_id()) for _ in range(5)]
    whole: dict[str, list[Any]] = {
        "tasks": tasks,
        "experiments": experiments,
        "reservations": [make_reservation_view(new_id()) for _ in range(5)],
        "drifts": [make_drift() for _ in range(5)],
    }

    def part_of(items: str, view: Any) -> Callable[[Any], Any]:
        def answer(query: Any) -> Any:
            """Two at most, however many were asked for."""
            start = int(query.cursor or 0)
            end = start + min(2, query.limit)
            more = str(end) if end < 5 else None
            return view(**{items: tuple(whole[items][start:end])}, next_cursor=more)

        return answer

    await api.owners.answer(ListTasks, part_of("tasks", TaskList))
    await api.owners.answer(ListExperiments, part_of("experiments", ExperimentList))
    await api.owners.answer(ListReservations, part_of("reservations", ReservationList))
    await api.owners.answer(ListDrifts, part_of("drifts", DriftList))
    await api.owners.answer(GetTask, make_task_view(task_id))
    summaries = tuple(make_summary(view) for view in experiments)
    await api.owners.answer(ListSummaries, SummaryList(summaries=summaries))
    await api.owners.answer(GetAllocationMap, make_allocation_map())
    gpus = tuple(make_cluster_gpu(index) for index in range(5))
    await api.owners.answer(GetClusterStatus, ClusterStatus(gpus=gpus))
    nodes = {f"node-{n}": make_node_summary(f"node-{n}") for n in range(5)}
    await api.owners.answer(GetNodeSummaries, NodeSummaries(nodes=nodes))
    found: dict[str, list[Any]] = {}
    sizes: dict[str, list[int]] = {}

    for path, items in LISTS.items():
        route = path.format(task_id=task_id)
        found[path], sizes[path], params = [], [], {"limit": "3"}
        while True:
            status, body = await api.get(route, params=params)
            assert status == 200, body
            found[path] += body[items]
            sizes[path].append(len(body[items]))
            if body["next_cursor"] is None:
                break
            params["cursor"] = body["next_cursor"]
    _, refused = await api.get("/api/v1/gpus", params={"cursor": "anything"})
    async with StewardClient(Address(api.url)) as client:
        every = await client.tasks()
        some = await client.tasks(limit=4)

    assert {path: len(items) for path, items in found.items()} == dict.fromkeys(LISTS, 5) | {
        "/api/v1/gpus": 2,
        "/api/v1/nodes": 1,
    }
    assert all(len({str(each) for each in items}) == len(items) for items in found.values())
    assert sizes["/api/v1/experiments"] == sizes["/api/v1/cluster/nodes"] == [3, 2]
    assert [task.task_id for task in every] == [task.task_id for task in tasks]
    assert len(some) == 4
    assert (refused["path"], refused["code"]) == ("query.cursor", "bad_request")
    assert "expected the next_cursor of an earlier answer" in refused["detail"]


async def test_task_experiments_come_in_one_answer(
    api: Api,
) -> None:
    views = [make_experiment_view(ordinal=n) for n in range(1, 6)]

    def page(query: ListExperiments) -> ExperimentList:
        start = int(query.cursor or 0)
        end = start + min(2, query.limit)
        more = str(end) if end < len(views) else None
        return ExperimentList(experiments=tuple(views[start:end]), next_cursor=more)

    await api.owners.answer(GetTask, make_task_view(views[0].task_id))
    await api.owners.answer(ListExperiments, page)

    _, whole = await api.get(
        f"/api/v1/tasks/{views[0].task_id}/experiments", params={"monitoring": "false"}
    )
    _, limited = await api.get("/api/v1/experiments", params={"limit": 3, "monitoring": "false"})

    assert [each["ordinal"] for each in whole["experiments"]] == [1, 2, 3, 4, 5]
    assert [each["ordinal"] for each in limited["experiments"]] == [1, 2, 3]


async def test_task_report_is_joined_and_rendered(api: Api) -> None:
    view = make_experiment_view()
    waterfall = WaterfallView(
        subject_id=view.task_id,
        attempts=1,
        steps=(WaterfallStep(step="measuring", seconds=4, gpu_seconds=8, cost=0.5),),
        currency="EUR",
    )
    await api.owners.answer(GetTask, make_task_view(view.task_id))
    await api.owners.answer(ListExperiments, ExperimentList(experiments=(view,)))
    await api.owners.answer(GetWaterfall, waterfall)

    _, found = await api.get(f"/api/v1/reports/tasks/{view.task_id}")
    path = f"{api.url}/api/v1/reports/tasks/{view.task_id}/markdown"
    async with api.session.get(path) as response:
        text = await response.text()

    report = msgspec.convert(found, TaskReport)
    assert report.cost is not None
    assert (report.cost.gpu_seconds, report.cost.cost) == (8, 0.5)
    assert response.content_type == "text/markdown"
    assert text == markdown(report)


async def test_commands_repeat_the_loads_of_a_task_or_say_so(api: Api) -> None:
    view = make_experiment_view()
    task = msgspec.convert(quick_task("two-loads", benchmark={"num_concurrency": [1, 8]}), TaskFile)
    await api.owners.answer(GetExperiment, view)
    await api.owners.answer(GetTask, make_task_view(view.task_id, task=task))
    path = f"/api/v1/experiments/{view.experiment_id}/commands"

    _, found = await api.get(path)

    commands = msgspec.convert(found, ExperimentCommands)
    loads = [(level.scenario, level.num_concurrency) for level in commands.levels]
    assert loads == [("D(100,100)", 1), ("D(100,100)", 8)]
    own, genai_bench, aiperf, vllm = commands.levels[1].commands
    assert "--concurrency 8" in str(own.command)
    assert "--num-concurrency 8" in str(genai_bench.command)
    assert "--concurrency 8" in str(aiperf.command)
    assert "--max-concurrency 8" in str(vllm.command)


async def test_filters_of_experiments_are_the_owners(api: Api) -> None:
    view = make_experiment_view()
    await api.owners.answer(GetTask, make_task_view(view.task_id))
    await api.owners.answer(ListExperiments, ExperimentList(experiments=(view,)))
    wanted = {"state": "failed,waiting", "node_id": NODE, "monitoring": "false"}

    await api.get("/api/v1/experiments", params={**wanted, "namespace": "team-a"})
    await api.get(f"/api/v1/tasks/{view.task_id}/experiments", params=wanted)

    asked = [query for query in api.owners.received if isinstance(query, ListExperiments)]
    assert [(query.namespace, query.node_id, query.states) for query in asked] == [
        (namespace, NODE, (ExperimentState.FAILED, ExperimentState.WAITING))
        for namespace in ("team-a", None)
    ]


async def test_waiting_experiment_has_reasons_without_results(api: Api) -> None:
    reservation_id = new_id()
    waiting = make_experiment_view(
        state=ExperimentState.WAITING, reservation_id=reservation_id, metrics=None
    )
    done = make_experiment_view()
    reason = Reason(code=ReasonCode.HELD, message="held by experiment/1", node_id=NODE)
    await api.owners.answer(
        GetExperiment,
        lambda query: waiting if query.experiment_id == waiting.experiment_id else done,
    )
    await api.owners.answer(
        ExplainReservation,
        lambda query: Explanation(
            reservation_id=query.reservation_id,
            state=ReservationState.QUEUED,
            queue_position=1,
            queue_length=1,
            reasons=(reason,),
            summary="waits for GPU-0",
        ),
    )

    _, body = await api.get(f"/api/v1/experiments/{waiting.experiment_id}")
    _, without = await api.get(f"/api/v1/experiments/{done.experiment_id}")

    assert body["explanation"]["summary"] == "waits for GPU-0"
    assert body["waiting_reasons"][0]["code"] == "held"
    assert without["missing"] == ["results"]


async def test_out_of_memory_failure_shows_memory_trend(api: Api) -> None:
    view = make_experiment_view(state=ExperimentState.FAILED, attempts=(make_attempt(),))
    trend = GpuMemoryTrend(
        node_id=NODE,
        index=0,
        name="A100",
        simulated=False,
        is_growing=True,
        start_mb=20_000,
        peak_mb=79_000,
        last_mb=78_000,
        total_mb=80_000,
    )
    await api.owners.answer(GetExperiment, view)
    await api.owners.answer(
        GetMemoryTrend,
        lambda query: MemoryTrendView(
            attempt_id=query.attempt_id, until_at=utcnow(), gpus=(trend,)
        ),
    )

    _, body = await api.get(f"/api/v1/experiments/{view.experiment_id}")

    [asked] = [query for query in api.owners.received if isinstance(query, GetMemoryTrend)]
    assert asked.attempt_id == view.attempts[-1].attempt_id
    assert body["failure_memory"] == [msgspec.to_builtins(trend)]


async def test_gpus_join_readings_and_ledger(api: Api) -> None:
    await api.owners.answer(GetAllocationMap, make_allocation_map())
    _, before = await api.get("/api/v1/gpus")

    await api.owners.publish(make_sample(power_draw_w=None))

    async def is_heard() -> bool:
        _, body = await api.get("/api/v1/gpus")
        return bool(body["gpus"][0]["fresh"])

    await eventually(is_heard, what="the reading")
    _, after = await api.get("/api/v1/gpus")
    _, nodes = await api.get("/api/v1/nodes")
    _, node = await api.get(f"/api/v1/nodes/{NODE}")
    unknown, _ = await api.get("/api/v1/nodes/nowhere")
    _, shares = await api.get(f"/api/v1/nodes/{NODE}/gpu-alloc-map")

    assert [(gpu["fresh"], gpu["observed_at"]) for gpu in before["gpus"]] == [(False, None)] * 2
    first = after["gpus"][0]
    assert (first["state"], first["holder"], first["simulated"]) == ("held", "experiment/1", True)
    assert first["power_draw_w"] is None
    assert first["availability_score"] == pytest.approx(0.6 * 0.75 + 0.4 * 0.75)
    assert first["age_seconds"] < 5
    assert (nodes["nodes"][0]["gpus_total"], nodes["nodes"][0]["gpus_free"]) == (2, 1)
    assert node == nodes["nodes"][0]
    assert unknown == 404
    assert shares["gpu_alloc_map"] == {"0": "1.00", "1": "0.00"}


async def test_readings_are_shown_without_scheduler(api: Api) -> None:
    async def is_heard() -> bool:
        await api.owners.publish(make_sample())
        _, body = await api.get("/api/v1/gpus")
        return len(body["gpus"]) == 2

    await eventually(is_heard, what="the readings")
    _, body = await api.get("/api/v1/gpus")

    assert body["gpus"][0]["state"] is None
    assert body["gpus"][0]["utilization_percent"] == 25.0


@pytest.mark.usefixtures("idle_clock")
async def test_a_long_poll_ends_with_the_grant(api: Api) -> None:
    reservation_id = new_id()
    state = ReservationState.QUEUED
    await api.owners.accept(RequestReservation)
    await api.owners.answer(
        GetReservation, lambda query: make_reservation_view(query.reservation_id, state=state)
    )
    status, created = await api.post(
        "/api/v1/reservations",
        {"reservation_id": str(reservation_id), "holder": "me", "request": {"gpus": 2}},
    )
    polling = asyncio.create_task(api.get(f"/api/v1/reservations/{reservation_id}?wait_seconds=30"))

    await eventually(lambda: sum(isinstance(m, GetReservation) for m in api.owners.received) >= 2)
    state = ReservationState.GRANTED
    await api.owners.publish(
        ReservationGranted(
            message_id=new_id(),
            occurred_at=utcnow(),
            revision=2,
            reservation_id=reservation_id,
            namespace="default",
            holder="me",
            epoch=5,
            node_id=NODE,
            devices=(),
            lease_ttl_seconds=30.0,
            waited_seconds=0.1,
        )
    )
    async with asyncio.timeout(1):
        _, granted = await polling

    assert (status, created["state"]) == (201, "queued")
    assert granted["state"] == "granted"


async def test_deletion_is_repeatable_with_same_answer(api: Api) -> None:
    task_id, experiment_id = new_id(), new_id()
    await api.owners.answer(GetTask, lambda query: make_task_view(query.task_id))
    await api.owners.answer(GetExperiment, _unknown)
    await api.owners.accept(DeleteTask)
    await api.owners.accept(DeleteExperiment)
    key = {"Idempotency-Key": str(new_id())}

    deleted = await api.call("DELETE", f"/api/v1/tasks/{task_id}", headers=key)
    answered_before = await api.call("DELETE", f"/api/v1/experiments/{experiment_id}", headers=key)

    await api.owners.answer(ListTasks, TaskList(tasks=()))
    await api.owners.answer(ListExperiments, ExperimentList(experiments=()))
    await api.get("/api/v1/tasks?archived=true")
    await api.get("/api/v1/experiments?archived=true")

    assert (deleted[0], answered_before[0]) == (200, 200)
    archived = [
        m.archived for m in api.owners.received if isinstance(m, ListTasks | ListExperiments)
    ]
    assert archived == [True, True]
    commands = [m for m in api.owners.received if isinstance(m, Command)]
    command_id = commands[0].command_id
    assert commands == [
        DeleteTask(command_id=command_id, task_id=task_id),
        DeleteExperiment(command_id=command_id, experiment_id=experiment_id),
    ]


def _unknown(query: GetExperiment) -> Refused:
    return Refused(
        command_id=query.experiment_id, code=ErrorCode.NOT_FOUND, message="there is no experiment"
    )


async def test_lease_is_renewed_released_and_cancelled(api: Api) -> None:
    reservation_id = new_id()
    path = f"/api/v1/reservations/{reservation_id}"
    await api.owners.answer(
        GetReservation, lambda query: make_reservation_view(query.reservation_id)
    )
    await api.owners.answer(
        RenewReservation,
        lambda c: Accepted(command_id=c.command_id, epoch=c.epoch, lease_ttl_seconds=30.0),
    )
    await api.owners.accept(ReleaseReservation)
    await api.owners.accept(CancelReservation)

    renewed = await api.post(f"{path}/renew", {"epoch": 5, "activate": True})
    released = await api.call("DELETE", f"{path}?epoch=5&stopped=true")
    cancelled = await api.call("DELETE", path)

    assert (renewed[0], renewed[1]["lease_ttl_seconds"]) == (200, 30.0)
    assert (released[0], cancelled[0]) == (200, 200)
    commands = [m for m in api.owners.received if isinstance(m, Command)]
    assert [type(command) for command in commands] == [
        RenewReservation,
        ReleaseReservation,
        CancelReservation,
    ]


async def test_events_are_logged_once_unknown_as_plain_data(api: Api) -> None:
    event = make_task_started()
    stream = api.owners.client.jetstream()

    for _ in range(2):
        await stream.publish(subject_for(event), encode(event))
    unknown = {"type": "scheduler.moon_phase_changed", "phase": "full", "note": "a\0b"}
    for _ in range(2):
        await stream.publish("gpusteward.evt.scheduler.moon_phase_changed.x", encode(unknown))
    await stream.publish("gpusteward.evt.scheduler.nonsense.x", b"\xc1")
    last = make_task_started()
    await stream.publish(subject_for(last), encode(last))

    events = await logged(api, 3)
    assert [e["type"] for e in events] == [
        "orchestrator.task_started",
        "scheduler.moon_phase_changed",
        "orchestrator.task_started",
    ]
    assert events[1]["event"]["phase"] == "full"
    of_task = await logged(api, 1, f"/api/v1/events?task_id={last.task_id}")
    assert [e["message_id"] for e in of_task] == [str(last.message_id)]


async def test_published_event_returns_with_cursor(api: Api) -> None:
    body = {"name": "deploy", "data": {"version": 3}}
    options = {"headers": {"Idempotency-Key": "deploy-3"}}

    first = await api.post("/api/v1/events", body, **options)
    again = await api.post("/api/v1/events", body, **options)

    assert first == again
    events = await logged(api, 1, "/api/v1/events?type=gateway.custom")
    assert [(e["message_id"], e["event"]["data"]) for e in events] == [
        (first[1]["message_id"], {"version": 3})
    ]


async def test_the_cursor_survives_a_deleted_bus_store(
    postgres_dsn: str, nats_server_factory: Any
) -> None:
    server: NatsServer = await nats_server_factory()
    async with gateway(server.authenticated_url, postgres_dsn) as api:
        before, after = make_task_started(), make_task_started()
        await api.owners.client.jetstream().publish(subject_for(before), encode(before))
        cursor = (await logged(api, 1))[0]["cursor"]

        await server.crash_and_lose_store()
        await server.start()

        async def is_published() -> bool:
            try:
                await api.owners.client.jetstream().publish(subject_for(after), encode(after))
            except nats.errors.Error:
                return False
            return True

        await eventually(is_published, every_seconds=0.2, what="the new stream")
        events = await logged(api, 1, f"/api/v1/events?after={cursor}")
        assert [e["message_id"] for e in events] == [str(after.message_id)]


async def test_readiness_names_what_does_not_answer(api: Api) -> None:
    status, problem = await api.get("/readyz")
    assert status == 503
    assert problem["details"]["missing"] == [
        *("scheduler", "orchestrator", "results", "executor", "telemetry"),
    ]

    await api.owners.answer(ListReservations, ReservationList(reservations=()))
    await api.owners.answer(ListTasks, TaskList(tasks=()))
    await api.owners.answer(GetReport, ReportView(rows=()))
    await api.owners.answer(
        ListRunning,
        lambda query: RunningAttempts(executor_id=query.executor_id, boot_id=BOOT, attempts=()),
    )
    await api.owners.publish(
        make_sample(),
        ExecutorReported(
            message_id=new_id(),
            occurred_at=utcnow(),
            revision=1,
            executor_id=NODE,
            boot_id=BOOT,
            runtimes=(),
            benchmark_tools=(),
            largest_epoch=0,
        ),
    )

    async def is_ready() -> bool:
        return (await api.get("/readyz"))[0] == 200

    await eventually(is_ready, what="readiness")

    with every_disk_full():
        status, problem = await api.get("/readyz")
    assert (status, problem["details"]["missing"]) == (503, ["disk"])
    assert "the disk is full" in problem["detail"]
    assert "MB are free below" in problem["detail"]


async def test_nodes_are_remembered_over_a_restart(nats_url: str, postgres_dsn: str) -> None:
    inventory = InventoryReported(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=1,
        node_id=NODE,
        boot_id=BOOT,
        source=Source.SIMULATED,
        interval_seconds=1.0,
        host=HostFacts(hostname="a", cpu_count=8),
        devices=(),
    )
    async with gateway(nats_url, postgres_dsn) as api:
        await api.owners.client.jetstream().publish(subject_for(inventory), encode(inventory))
        await logged(api, 1)

    async with gateway(nats_url, postgres_dsn) as api:
        await api.owners.answer(GetAllocationMap, AllocationMap(nodes=()))
        _, body = await api.get("/api/v1/nodes")

    assert [(n["node_id"], n["host"]["cpu_count"], n["fresh"]) for n in body["nodes"]] == [
        (NODE, 8, False)
    ]


async def test_removed_node_stays_hidden_after_restart(nats_url: str, postgres_dsn: str) -> None:
    inventory = InventoryReported(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=1,
        node_id=NODE,
        boot_id=BOOT,
        source=Source.SIMULATED,
        interval_seconds=1.0,
        host=HostFacts(hostname="a"),
        devices=(),
    )
    removed = NodeRemoved(message_id=new_id(), occurred_at=utcnow(), revision=9, node_id=NODE)
    shown: list[Any] = []
    async with gateway(nats_url, postgres_dsn) as api:
        await api.owners.answer(GetAllocationMap, AllocationMap(nodes=()))
        for count, event in enumerate((inventory, removed), start=1):
            await api.owners.client.jetstream().publish(subject_for(event), encode(event))
            await logged(api, count)
            shown.append((await api.get("/api/v1/nodes"))[1]["nodes"])

    async with gateway(nats_url, postgres_dsn) as api:
        await api.owners.answer(GetAllocationMap, AllocationMap(nodes=()))
        shown.append((await api.get("/api/v1/nodes"))[1]["nodes"])

    assert [len(nodes) for nodes in shown] == [1, 0, 0]


async def test_api_document_needs_no_network(api: Api) -> None:
    async with api.session.get(f"{api.url}/schema/openapi.json") as response:
        document = json.loads(await response.read())
    async with api.session.get(f"{api.url}/schema") as response:
        page = (await response.text()).lower()
    _, figures = await api.get("/metrics")

    submit = document["paths"]["/api/v1/tasks"]["post"]
    assert submit["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/TaskFile"
    }
    assert "application/problem+json" in submit["responses"]["400"]["content"]
    schemas = document["components"]["schemas"]
    assert set(references(document)) <= set(schemas)
    assert schemas["TaskFile"]["properties"]["task_name"]
    assert "<script" not in page
    assert "gpusteward_bus_connected 1" in figures


def references(value: Any) -> list[str]:
    match value:
        case {"$ref": str(reference)}:
            return [reference.rsplit("/", 1)[-1]]
        case dict():
            return [name for inner in value.values() for name in references(inner)]
        case list():
            return [name for inner in value for name in references(inner)]
    return []


async def test_event_stream_matches_common_declaration(api: Api) -> None:
    info = await api.owners.client.jetstream().stream_info(str(EVENTS.name))

    assert info.config.subjects == EVENTS.subjects
