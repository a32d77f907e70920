"""Logs of engines over HTTP and WebSocket, from executors behind a real nats-server."""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.base import pattern_for
from schemas.errors import Accepted, ErrorCode, Refused
from schemas.executor.attempts import StartExperiment
from schemas.executor.logs import AttemptLogged, LogChunk, ReadLog
from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import AttemptView, ExperimentView, GetExperiment
from services.executor.app import create_service as create_executor
from shared.clock import utcnow
from shared.testing import eventually
from tests.support.worlds.executor import (
    NODE,
    make_cancel,
    make_endless_start,
    make_settings,
    scheduling,
)
from tests.support.worlds.gateway import Api, gateway, make_experiment_view


@pytest.fixture
async def api(nats_url: str, postgres_dsn: str) -> AsyncIterator[Api]:
    async with gateway(nats_url, postgres_dsn) as running:
        yield running


def make_attempt(number: int = 1, **overrides: Any) -> AttemptView:  # any field
    given: dict[str, Any] = {
        "attempt_id": uuid4(),
        "attempt_number": number,
        "reservation_id": uuid4(),
        "executor_id": NODE,
    }
    return AttemptView(**given | overrides)


def make_logged(experiment_id: UUID, offset: int = 0, line: str = "hello") -> AttemptLogged:
    return AttemptLogged(
        observed_at=utcnow(),
        executor_id=NODE,
        experiment_id=experiment_id,
        attempt_id=uuid4(),
        task_id=uuid4(),
        offset=offset,
        next_offset=offset + len(line) + 1,
        lines=(line,),
    )


def make_chunk(query: ReadLog) -> LogChunk:
    return LogChunk(
        attempt_id=query.attempt_id,
        offset=query.offset or 0,
        next_offset=(query.offset or 0) + query.max_lines,
        lines=("a", "b"),
        is_complete=True,
    )


async def test_log_is_read_from_executor_of_attempt(api: Api) -> None:
    attempts = (make_attempt(1, executor_id="node-a"), make_attempt(2, executor_id="node-b"))
    view = make_experiment_view(attempts=attempts)
    path = f"/api/v1/experiments/{view.experiment_id}/logs"
    await api.owners.answer(GetExperiment, view)
    await api.owners.answer(ReadLog, make_chunk)

    status, newest = await api.get(path)
    _, first = await api.get(f"{path}?attempt=1&offset=10&lines=5")
    missing = await api.get(f"{path}?attempt=3")
    wrong = await api.get(f"{path}?lines=0")
    _, openapi = await api.get("/schema/openapi.json")

    asked = [message for message in api.owners.received if isinstance(message, ReadLog)]
    assert asked == [
        ReadLog(executor_id="node-b", attempt_id=attempts[1].attempt_id, max_lines=200),
        ReadLog(executor_id="node-a", attempt_id=attempts[0].attempt_id, offset=10, max_lines=5),
    ]
    assert status == 200
    assert (newest["lines"], newest["is_complete"]) == (["a", "b"], True)
    assert (first["offset"], first["next_offset"]) == (10, 15)
    assert missing[0] == 404
    assert "there are: 1, 2" in missing[1]["detail"]
    assert (wrong[0], wrong[1]["path"]) == (400, "query.lines")
    route = openapi["paths"]["/api/v1/experiments/{experiment_id}/logs"]["get"]
    assert {p["name"] for p in route["parameters"]} >= {"attempt", "offset", "lines"}
    assert "skipped_bytes" in openapi["components"]["schemas"]["LogChunk"]["properties"]


async def test_unavailable_log_is_a_clear_problem(api: Api) -> None:
    waiting = make_experiment_view(state=ExperimentState.WAITING)
    started = make_experiment_view(attempts=(make_attempt(executor_id="node-b"),))
    views = {view.experiment_id: view for view in (waiting, started)}
    await api.owners.answer(GetExperiment, lambda query: views[query.experiment_id])
    path = "/api/v1/experiments/{}/logs"

    not_begun = await api.get(path.format(waiting.experiment_id))
    silent = await api.get(path.format(started.experiment_id))
    gone = Refused(code=ErrorCode.NOT_FOUND, message="nothing is kept")
    await api.owners.answer(ReadLog, gone)
    removed = await api.get(path.format(started.experiment_id))

    assert not_begun[0] == 404
    assert "there are: none; the experiment is waiting" in not_begun[1]["detail"]
    assert silent[0] == 503
    assert silent[1]["detail"] == (
        "the executor of node node-b, which keeps this log, does not answer"
    )
    assert (removed[0], removed[1]["detail"]) == (404, "nothing is kept")


async def test_live_lines_arrive_as_written(api: Api) -> None:
    mine, other = uuid4(), uuid4()

    async with api.session.ws_connect(f"{api.url}/ws/logs?experiment_id={mine}") as socket:
        await api.owners.publish(make_logged(other, line="not mine"), make_logged(mine))
        await api.owners.publish(make_logged(mine, 6, "again"))
        heard = [json.loads(await socket.receive_str(timeout=30)) for _ in range(2)]

    assert [(h["offset"], h["next_offset"], h["lines"]) for h in heard] == [
        (0, 6, ["hello"]),
        (6, 12, ["again"]),
    ]

    async def is_forgotten() -> bool:
        return await _listeners(api, mine) == 0

    await eventually(is_forgotten, what="the end of the subscription")


async def _listeners(api: Api, experiment_id: UUID) -> int:
    """Whether anybody is subscribed to an experiment's lines: a request would have a responder."""
    subject = pattern_for(AttemptLogged, str(experiment_id))
    try:
        await api.owners.client.request(subject, b"", timeout=0.2)
    except Exception as error:  # noqa: BLE001  # told apart by its name
        return 0 if type(error).__name__ == "NoRespondersError" else 1
    return 1


async def test_slow_client_gets_newest_lines_and_gap(
    api: Api,
) -> None:
    mine, line = uuid4(), "x" * 60_000
    socket_url = f"{api.url}/ws/logs?experiment_id={mine}"
    async with api.session.ws_connect(socket_url) as socket:
        for number in range(600):
            await api.owners.publish(make_logged(mine, number * 60_001, line))
        heard: list[dict[str, Any]] = []
        while not heard or heard[-1]["next_offset"] < 600 * 60_001:
            heard.append(json.loads(await socket.receive_str(timeout=30)))

    jumps = [after["offset"] > before["next_offset"] for before, after in pairwise(heard)]
    assert len(heard) < 600
    assert any(jumps)


async def test_real_engine_log_is_streamed_and_kept(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    settings = make_settings(nats_url, tmp_path)
    start = make_endless_start()
    async with (
        gateway(nats_url, postgres_dsn) as api,
        scheduling(settings) as scheduler,
        create_executor(settings).running(),
    ):
        await api.owners.answer(GetExperiment, view_of(start))
        socket_url = f"{api.url}/ws/logs?experiment_id={start.experiment_id}"
        path = f"/api/v1/experiments/{start.experiment_id}/logs"
        async with api.session.ws_connect(socket_url) as socket:
            reply = await scheduler.ask(start)
            first = json.loads(await socket.receive_str(timeout=30))
            _, running = await api.get(f"{path}?offset=0")
            await scheduler.ask(make_cancel(start))
            await scheduler.finished(start)
            _, ended = await api.get(f"{path}?offset=0")
            told = [first]
            while told[-1]["next_offset"] < ended["next_offset"]:
                told.append(json.loads(await socket.receive_str(timeout=30)))

    written = (settings.attempt_dir(start.attempt_id) / "engine.log").read_text()
    assert isinstance(reply, Accepted)
    assert first["offset"] == 0
    assert not running["is_complete"]
    assert running["lines"][: len(first["lines"])] == first["lines"]
    assert ended["is_complete"]
    assert ended["lines"] == written.splitlines()
    assert [line for message in told for line in message["lines"]] == ended["lines"]


def view_of(start: StartExperiment) -> ExperimentView:
    attempt = make_attempt(attempt_id=start.attempt_id, reservation_id=start.reservation_id)
    return make_experiment_view(
        experiment_id=start.experiment_id, state=ExperimentState.RUNNING, attempts=(attempt,)
    )
