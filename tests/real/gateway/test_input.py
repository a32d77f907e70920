"""Bad input at the gateway, over a real nats-server and Postgres."""

import io
import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from schemas.errors import ErrorCode, Refused
from schemas.orchestrator.experiments import SubmitTask
from schemas.orchestrator.views import GetTask
from schemas.scheduler.reservations import RequestReservation
from schemas.scheduler.views import GetAvailability, GetReservation
from tests.support.worlds.gateway import (
    TASK,
    Api,
    gateway,
    make_task_view,
)


@pytest.fixture
async def api(nats_url: str, postgres_dsn: str) -> AsyncIterator[Api]:
    async with gateway(nats_url, postgres_dsn) as running:
        yield running


LONG = "x" * 200_000
BAD_REQUESTS: dict[str, tuple[str, str, Any, int, str | None]] = {
    "malformed JSON": ("POST", "/api/v1/tasks", b'{"task_name": ', 400, None),
    "empty body": ("POST", "/api/v1/tasks", b"", 400, "$.task_name"),
    "no text": ("POST", "/api/v1/tasks", b"\xff\xfe", 400, None),
    "deep nesting": ("POST", "/api/v1/estimate", b'{"a":' * 9999, 400, None),
    "10 MB body": ("POST", "/api/v1/tasks", b" " * 10_000_000, 413, None),
    "type": ("POST", "/api/v1/tasks", {**TASK, "task_name": 7}, 400, "$.task_name"),
    "unknown field": ("POST", "/api/v1/tasks", {**TASK, "tasks": 7}, 400, "$.tasks"),
    "path": ("POST", "/api/v1/tasks", {**TASK, "task_name": "../../etc"}, 400, "$.task_name"),
    "long text": ("POST", "/api/v1/tasks", {**TASK, "description": LONG}, 400, "$.description"),
    "huge number": (
        "POST",
        "/api/v1/tasks",
        {**TASK, "optimization": {"max_iterations": 10**30}},
        400,
        "$.optimization.max_iterations",
    ),
    "unknown strategy": (
        "POST",
        "/api/v1/tasks",
        {**TASK, "optimization": {"strategy": "guess"}},
        400,
        "$.optimization.strategy",
    ),
    "NaN": (
        "POST",
        "/api/v1/tasks",
        b'{"task_name": "a", "base_runtime": "v", "model": {"id_or_path": NaN}}',
        400,
        None,
    ),
    "infinity": (
        "POST",
        "/api/v1/tasks",
        (
            b'{"task_name": "a", "base_runtime": "v", "model": {"id_or_path": "m"},'
            b' "optimization": {"timeout_per_iteration": 1e999}}'
        ),
        400,
        "$.optimization.timeout_per_iteration",
    ),
    "bad task_id": ("POST", "/api/v1/tasks?task_id=7", TASK, 400, "query.task_id"),
    "bad namespace": ("POST", "/api/v1/tasks?namespace=A/B", TASK, 400, "query.namespace"),
    "text": ("POST", "/api/v1/reservations", {"request": {"gpus": "7"}}, 400, "$.request.gpus"),
    "none": ("POST", "/api/v1/reservations", {"request": {"gpus": 0}}, 400, "$.request.gpus"),
    "negative": (
        "POST",
        "/api/v1/reservations",
        {"request": {"wait_timeout_seconds": -1}},
        400,
        "$.request.wait_timeout_seconds",
    ),
    "misspelt": ("POST", "/api/v1/availability", {"gpu": 1}, 400, "$.gpu"),
    "no object": ("POST", "/api/v1/estimate", [1], 400, "$"),
    "bad id in path": ("GET", "/api/v1/tasks/7", None, 400, "path.task_id"),
    "limit too small": ("GET", "/api/v1/tasks?limit=0", None, 400, "query.limit"),
    "limit no number": ("GET", "/api/v1/tasks?limit=x", None, 400, "query.limit"),
    "unknown state": ("GET", "/api/v1/tasks?state=odd", None, 400, "query.state"),
    "path trick": ("GET", "/api/v1/nodes/..%2F..%2Fetc/gpu-alloc-map", None, 404, None),
    "dotted node": ("GET", "/api/v1/nodes/a.b/gpu-alloc-map", None, 400, "path.node_id"),
    "metric": ("GET", "/api/v1/series?metric=mood", None, 400, "query.metric"),
    "range": ("GET", "/api/v1/series?range=9y", None, 400, "query.range"),
    "no such route": ("GET", "/api/v1/nothing", None, 404, None),
    "no such method": ("PUT", "/api/v1/tasks", None, 405, None),
    "huge epoch": (
        "DELETE",
        f"/api/v1/reservations/{UUID(int=1)}?epoch=1{'0' * 30}",
        None,
        400,
        "query.epoch",
    ),
    "huge epoch in a body": (
        "POST",
        f"/api/v1/reservations/{UUID(int=1)}/renew",
        {"epoch": 10**30},
        400,
        "$.epoch",
    ),
    "turned reason": (
        "DELETE",
        f"/api/v1/reservations/{UUID(int=1)}?reason=%E2%80%AEgnp",
        None,
        400,
        "query.reason",
    ),
    "terminal in a name": (
        "POST",
        "/api/v1/reservations",
        {"holder": "a\x1b[2K"},
        400,
        "$.holder",
    ),
    "newline in a node": ("GET", "/api/v1/nodes/a%0A/gpu-alloc-map", None, 400, "path.node_id"),
    "huge cursor": ("GET", f"/api/v1/events?after={2**63}", None, 400, "query.after"),
    "huge offset": (
        "GET",
        f"/api/v1/experiments/{UUID(int=1)}/logs?offset={2**63}",
        None,
        400,
        "query.offset",
    ),
    "huge attempt": (
        "GET",
        f"/api/v1/experiments/{UUID(int=1)}/logs?attempt={2**63}",
        None,
        400,
        "query.attempt",
    ),
    "huge memory": (
        "POST",
        "/api/v1/reservations",
        {"request": {"min_memory_mb": 2**63}},
        400,
        "$.request.min_memory_mb",
    ),
    "huge value": (
        "POST",
        "/api/v1/tasks",
        {**TASK, "parameters": {"p": [2**63]}},
        400,
        "$.parameters.p[0]",
    ),
    "no time at all": (
        "GET",
        f"/api/v1/reservations/{UUID(int=1)}?wait_seconds=nan",
        None,
        400,
        "query.wait_seconds",
    ),
    "before time": (
        "GET",
        "/api/v1/series?end_at=0001-01-01T00:00:00Z",
        None,
        400,
        "query.end_at",
    ),
    "before the epoch": (
        "GET",
        "/api/v1/series?start_at=0001-01-01T00:00:00Z",
        None,
        400,
        "query.start_at",
    ),
    "before the calendar": (
        "GET",
        "/api/v1/reports/usage?start_at=0001-01-01T00:00:00%2B23:59",
        None,
        400,
        "query.start_at",
    ),
    "after the calendar": (
        "GET",
        "/api/v1/audit?end_at=9999-12-31T23:59:59-23:59",
        None,
        400,
        "query.end_at",
    ),
    "zero byte in a filter": ("GET", "/api/v1/series?pod=%00", None, 400, "query.pod"),
    "zero byte": ("GET", "/api/v1/nodes/a%00b", None, 400, "path.node_id"),
    "no yes or no": ("GET", "/api/v1/gpus?use_cache=maybe", None, 400, "query.use_cache"),
    "no time": ("GET", "/api/v1/series?start_at=today", None, 400, "query.start_at"),
    "namespace": ("POST", "/api/v1/reservations", {"namespace": "A B"}, 400, "$.namespace"),
    "parameter name": (
        "POST",
        "/api/v1/tasks",
        {**TASK, "parameters": {"a b": [1]}},
        400,
        "$.parameters",
    ),
    "misspelt parameter": ("GET", "/api/v1/tasks?limits=5", None, 400, "query.limits"),
}


SAYS = {
    "path": (
        "expected 1 to 128 letters, digits, _, . and -, the first and last a letter or digit,"
        " got '../../etc'"
    ),
    "unknown strategy": (
        "expected one of: grid_search, random, bayesian, auto, successive_halving; found 'guess'"
    ),
    "bad namespace": "expected 1 to 63 small letters, digits and -, the first and last none of -",
    "dotted node": "expected a node's id: 1 to 128 letters, digits, - and _",
    "metric": (
        "expected one of: utilization_percent, memory_used_mb, temperature_c, power_draw_w;"
        " found 'mood'"
    ),
    "range": "expected one of: 30m, 1h, 6h, 12h, 24h, 2d, 7d; found '9y'",
    "bad id in path": "expected a UUID",
    "terminal in a name": (
        "expected one line without control characters or marks of text direction, got 'a\\x1b[2K'"
    ),
    "after the calendar": "expected a time from 1970 to 9000, got 9999-12-31T23:59:59-23:59",
    "no time": "expected a time such as 2026-01-31T12:00:00Z",
    "parameter name": (
        "expected 1 to 64 letters, digits, - and _, the first a letter, as a key, got 'a b'"
    ),
}


async def test_bad_input_is_refused_by_field(api: Api) -> None:
    await api.owners.answer(GetReservation, Refused(code=ErrorCode.NOT_FOUND, message="none"))
    sent = await api.owners.overhear()
    found, said = {}, {}

    for name, (method, path, body, _, _) in BAD_REQUESTS.items():
        options = {"data": io.BytesIO(body)} if isinstance(body, bytes) else {"body": body}
        status, problem = await api.call(method, path, **options)
        found[name] = (status, problem.get("path"))
        assert problem["status"] == status
        said[name] = problem["detail"]
        assert not re.search(r"regex|enum value|gpusteward\.", problem["detail"])
        assert problem["type"].startswith("urn:gpusteward:problem:")

    assert found == {name: (case[3], case[4]) for name, case in BAD_REQUESTS.items()}
    assert {name: said[name] for name in SAYS} == SAYS
    # What a change is about to change is asked for the audit log, before its body is read.
    assert set(sent) <= {"gpusteward.rpc.scheduler.get_reservation"}


async def test_refused_field_is_named_as_client_gave_it(api: Api) -> None:
    task_id = UUID(int=5)
    refusal = Refused(code=ErrorCode.NOT_FOUND, message="there is none", path="$.task_id")
    await api.owners.answer(GetTask, refusal)

    _, problem = await api.get(f"/api/v1/tasks/{task_id}")

    assert problem["path"] == "path.task_id"


async def test_request_field_is_named_where_client_gave_it(api: Api) -> None:
    refusal = Refused(code=ErrorCode.BAD_REQUEST, message="too many", path="$.request.gpus")
    await api.owners.answer(GetAvailability, refusal)
    await api.owners.answer(RequestReservation, refusal)

    found = [
        await api.get("/api/v1/availability?gpus=9"),
        await api.post("/api/v1/availability", {"gpus": 9}),
        await api.post("/api/v1/reservations", {"request": {"gpus": 9}}),
    ]

    assert [problem["path"] for _, problem in found] == ["query.gpus", "$.gpus", "$.request.gpus"]


async def test_yaml_task_is_as_strict_as_json(api: Api) -> None:
    await api.owners.accept(SubmitTask)
    await api.owners.answer(GetTask, lambda query: make_task_view(query.task_id))
    headers = {"Content-Type": "application/yaml; charset=utf-8"}
    good = b"task_name: tune\nbase_runtime: llama.cpp\nmodel: {id_or_path: smollm2}  # small\n"
    wrong = {
        good + b"tasks: 7\n": "$.tasks",
        good.replace(b"tune", b"7"): "$.task_name",
        good + b"model: {}\n": None,
        good + b"parameters: [1\n": None,
    }

    status, _ = await api.post("/api/v1/tasks", data=good, headers=headers)
    as_json, _ = await api.post("/api/v1/tasks", TASK)
    refused = [await api.post("/api/v1/tasks", data=bad, headers=headers) for bad in wrong]

    first, second = (each for each in api.owners.received if isinstance(each, SubmitTask))
    assert (status, as_json, first.task) == (201, 201, second.task)
    assert [(code, told.get("path")) for code, told in refused] == [
        (400, path) for path in wrong.values()
    ]
    assert "line 4, column 1: the key model is there twice" in refused[2][1]["detail"]
