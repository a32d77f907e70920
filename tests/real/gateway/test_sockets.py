"""WebSockets over a real nats-server and Postgres."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import nats
import pytest

from schemas.base import subject_for
from schemas.executor.attempts import AttemptPhase, AttemptProgressed
from schemas.gateway.views import StoredEvent
from schemas.gpus.device_grant import DeviceGrant
from schemas.gpus.gpu_info import GpuInfo, GpuInfoDetail
from schemas.orchestrator.views import ExperimentList, GetExperiment, ListExperiments
from schemas.scheduler.reservations import LIVE_STATES, ReservationState
from schemas.scheduler.views import ListReservations, ReservationList
from services.gateway.app import create_service
from services.gateway.ledger import event_writer
from services.gateway.routes.common import query_names
from services.gateway.routes.history import get_series, list_events
from services.gateway.routes.tasks.tasks import list_experiments
from services.gateway.settings import GatewaySettings
from services.gateway.streams.sockets import watch_events, watch_logs, watch_metrics
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.testing import eventually
from tests.support.worlds.gateway import (
    NODE,
    Api,
    Owners,
    gateway,
    logged,
    make_experiment_view,
    make_queued,
    make_released,
    make_reservation_view,
    make_sample,
    make_task_started,
    make_waiting,
)


@pytest.fixture
async def api(nats_url: str, postgres_dsn: str) -> AsyncIterator[Api]:
    async with gateway(nats_url, postgres_dsn) as running:
        yield running


async def receive(socket: aiohttp.ClientWebSocketResponse, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(30):
        return [json.loads(await socket.receive_str()) for _ in range(count)]


async def test_resumed_client_misses_nothing(nats_url: str, postgres_dsn: str) -> None:
    events = [make_task_started() for _ in range(30)]
    async with gateway(nats_url, postgres_dsn) as api:
        stream = api.owners.client.jetstream()
        async with api.session.ws_connect(f"{api.url}/ws/events?after=0") as socket:
            for event in events[:10]:
                await stream.publish(subject_for(event), encode(event))
            seen = await receive(socket, 4)
        for event in events[10:20]:
            await stream.publish(subject_for(event), encode(event))
        await logged(api, 20)

    async with gateway(nats_url, postgres_dsn) as api:
        stream = api.owners.client.jetstream()
        async with api.session.ws_connect(
            f"{api.url}/ws/events?after={seen[-1]['cursor']}"
        ) as socket:
            seen += await receive(socket, 8)
            for event in events[20:]:
                await stream.publish(subject_for(event), encode(event))
            seen += await receive(socket, 18)

    assert [e["message_id"] for e in seen] == [str(event.message_id) for event in events]
    assert all(msgspec.convert(e, StoredEvent).cursor for e in seen)


async def test_event_filters_and_progress_need_no_cursor(api: Api) -> None:
    wanted, other = make_task_started(), make_task_started()
    progress = AttemptProgressed(
        observed_at=utcnow(),
        executor_id="n1",
        experiment_id=new_id(),
        attempt_id=new_id(),
        task_id=wanted.task_id,
        phase=AttemptPhase.MEASURING,
        fraction=0.5,
    )
    stream = api.owners.client.jetstream()

    async with api.session.ws_connect(f"{api.url}/ws/events?task_id={wanted.task_id}") as socket:
        await stream.publish(subject_for(other), encode(other))
        await stream.publish(subject_for(wanted), encode(wanted))
        first = await receive(socket, 1)
        await api.owners.publish(progress)
        second = await receive(socket, 1)

    assert first[0]["message_id"] == str(wanted.message_id)
    assert (second[0]["cursor"], second[0]["event"]["fraction"]) == (None, 0.5)


async def test_task_events_include_its_reservations(api: Api) -> None:
    task_id, experiment_id, reservation_id = new_id(), new_id(), new_id()
    mine: dict[str, Any] = {
        "reservation_id": reservation_id,
        "holder": f"experiment/{experiment_id}",
    }
    waiting = make_waiting(task_id, experiment_id, reservation_id)
    queued, released = make_queued(**mine), make_released(**mine)
    others = [
        make_waiting(new_id(), new_id(), new_id()),
        make_queued(holder="exec/ada"),
        make_task_started(),
    ]
    stream = api.owners.client.jetstream()
    seen = {}
    filters = (
        f"task_id={task_id}",
        f"experiment_id={experiment_id}",
        f"reservation_id={reservation_id}",
    )

    async with contextlib.AsyncExitStack() as sockets:
        live = {
            each: await sockets.enter_async_context(
                api.session.ws_connect(f"{api.url}/ws/events?{each}")
            )
            for each in filters
        }
        for event in (others[0], waiting, others[1], queued, others[2], released):
            await stream.publish(subject_for(event), encode(event))
        for each, socket in live.items():
            seen[each] = await receive(socket, 3)
    for each in filters:
        async with api.session.ws_connect(f"{api.url}/ws/events?after=0&{each}") as socket:
            seen[f"again {each}"] = await receive(socket, 3)

    expected = [str(event.message_id) for event in (waiting, queued, released)]
    assert all([e["message_id"] for e in events] == expected for events in seen.values()), seen


async def test_reservation_event_before_experiment_is_kept(api: Api) -> None:
    task_id, experiment_id, reservation_id = new_id(), new_id(), new_id()
    queued = make_queued(reservation_id=reservation_id, holder=f"experiment/{experiment_id}")
    waiting = make_waiting(task_id, experiment_id, reservation_id)
    stream = api.owners.client.jetstream()

    async with api.session.ws_connect(f"{api.url}/ws/events?task_id={task_id}") as socket:
        for event in (queued, waiting):
            await stream.publish(subject_for(event), encode(event))
        seen = await receive(socket, 2)

    assert [e["message_id"] for e in seen] == [str(waiting.message_id), str(queued.message_id)]


async def test_event_of_unannounced_experiment_is_logged(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_writer, "TASK_UNKNOWN_TRIES", 2)
    queued = make_queued(holder=f"experiment/{new_id()}")

    await api.owners.client.jetstream().publish(subject_for(queued), encode(queued))
    [event] = await logged(api, 1)

    assert event["message_id"] == str(queued.message_id)


async def test_wrong_filter_is_refused_with_expectation(api: Api) -> None:
    expected = {
        "/ws/events?task_id=tune": ("query.task_id", "UUID"),
        "/ws/events?reservation_id=1": ("query.reservation_id", "UUID"),
        "/ws/events?after=-1": ("query.after", "0"),
        "/ws/events?type=task_started": ("query.type", "orchestrator.task_started"),
        "/ws/events?tsak=1": ("query.tsak", "no such parameter"),
        "/ws/metrics?experiment_id=first": ("query.experiment_id", "UUID"),
        "/ws/metrics?nod=x": (
            "query.nod",
            "known: device_uuid, experiment_id, namespace, node_id, rate, task_id",
        ),
        "/ws/metrics?gateway=x": ("query.gateway", "no such parameter"),
        f"/ws/events?after={2**63}": ("query.after", str(2**63 - 1)),
        "/ws/logs?experiment_id=7": ("query.experiment_id", "UUID"),
        "/ws/logs": ("query.experiment_id", "expected the parameter experiment_id, found none"),
    }
    opening = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }

    found = {route: await api.get(route, headers=opening) for route in expected}

    for route, (path, text) in expected.items():
        status, problem = found[route]
        assert (status, problem["code"], problem.get("path")) == (400, "bad_request", path)
        assert text in problem["detail"]


async def test_metrics_are_filtered_by_place_and_task(api: Api) -> None:
    view = make_experiment_view(
        gpu_info=GpuInfo(
            model="NVIDIA A100",
            count=1,
            device_ids=("GPU-1",),
            indices=(1,),
            allocation_method="pack",
            simulated=True,
            details=(GpuInfoDetail(index=1, name="NVIDIA A100", uuid="GPU-1", node_id=NODE),),
        )
    )
    await api.owners.answer(GetExperiment, view)
    await api.owners.answer(ListExperiments, ExperimentList(experiments=(view,)))
    await api.owners.publish(make_sample(1))
    seen = {}

    holders = (f"experiment_id={view.experiment_id}", f"task_id={view.task_id}")
    for query in ("node_id=node-a", "device_uuid=GPU-0", *holders):
        async with api.session.ws_connect(f"{api.url}/ws/metrics?{query}") as socket:
            seen[query] = (await receive(socket, 1))[0]
    async with api.session.ws_connect(f"{api.url}/ws/metrics?node_id=other") as socket:
        await api.owners.publish(make_sample(2))
        with pytest.raises(TimeoutError):
            await socket.receive_str(timeout=0.3)

    found = [[gpu["uuid"] for gpu in metrics["gpus"]] for metrics in seen.values()]
    assert found == [["GPU-0", "GPU-1"], ["GPU-0"], ["GPU-1"], ["GPU-1"]]
    assert all(metrics["simulated"] for metrics in seen.values())


async def test_namespace_metrics_are_of_its_reservations(api: Api) -> None:
    experiment_id = new_id()
    held = make_reservation_view(
        new_id(),
        namespace="team-a",
        state=ReservationState.ACTIVE,
        holder=f"experiment/{experiment_id}",
        devices=(DeviceGrant(node_id=NODE, uuid="GPU-1", index=1, name="A100"),),
    )
    await api.owners.answer(ListReservations, ReservationList(reservations=(held,)))
    await api.owners.publish(make_sample(1))
    fields: dict[str, Any] = {
        "observed_at": utcnow(),
        "executor_id": "n1",
        "attempt_id": new_id(),
        "task_id": new_id(),
        "phase": AttemptPhase.MEASURING,
        "fraction": 0.5,
    }

    async with api.session.ws_connect(f"{api.url}/ws/metrics?namespace=team-a") as socket:
        metrics = await receive(socket, 1)
        for each in (new_id(), experiment_id):
            await api.owners.publish(AttemptProgressed(experiment_id=each, **fields))
        progress = await receive(socket, 1)

    (asked,) = {
        (query.namespace, frozenset(query.states))
        for query in api.owners.received
        if isinstance(query, ListReservations)
    }
    assert asked == ("team-a", LIVE_STATES)
    assert [gpu["uuid"] for gpu in metrics[0]["gpus"]] == ["GPU-1"]
    assert progress[0]["experiment_id"] == str(experiment_id)


async def test_rate_drops_readings_and_reports_gap_and_age(api: Api) -> None:
    await api.owners.publish(make_sample(1))
    async with api.session.ws_connect(f"{api.url}/ws/metrics?rate=2") as socket:
        first = await receive(socket, 1)
        for sequence in range(2, 8):
            await api.owners.publish(make_sample(sequence))
        second = await receive(socket, 1)
    refused, _ = await api.get("/sse/metrics?rate=0")

    assert (first[0]["sequence"], first[0]["skipped"]) == (1, 0)
    assert (second[0]["sequence"], second[0]["skipped"]) == (7, 5)
    assert 0 < second[0]["age_seconds"] < 5
    assert refused == 400


async def test_slow_client_gets_newest_reading(nats_url: str, postgres_dsn: str) -> None:
    service = create_service(GatewaySettings(nats_url=nats_url, postgres_dsn=postgres_dsn, port=0))
    client = await nats.connect(nats_url)
    owners = Owners(client)
    async with service.running():
        reader, writer = await asyncio.open_connection("127.0.0.1", service.http.port, limit=1024)
        writer.write(
            b"GET /ws/metrics HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert b"101" in await reader.readline()
        live = service.live
        await eventually(lambda: len(live.watchers) == 1, what="the watcher")
        watcher = next(iter(live.watchers))

        bulk = "n" * 50_000
        for sequence in range(1, 401):
            await owners.publish(make_sample(sequence, name=bulk))
        await eventually(lambda: live.samples_received == 400, what="every sample")

        assert len(watcher.samples) == 1
        newest, skipped = watcher.samples[NODE]
        assert newest.sample.sequence == 400
        assert skipped > 300
        writer.close()
        await eventually(lambda: not live.watchers, what="the watcher's end")
    await client.close()


def test_sockets_and_routes_share_filter_names() -> None:
    names = {
        name
        for handler in (watch_metrics, watch_events, watch_logs)
        for name in query_names(handler)
    }

    assert names - {"rate"} <= query_names(list_events) | query_names(get_series) | query_names(
        list_experiments
    )
