"""Who may ask the gateway, over a real nats-server and Postgres."""

import hashlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from schemas.orchestrator.experiments import SubmitTask
from schemas.orchestrator.views import GetTask, ListTasks, TaskList
from services.gateway.app import create_service
from services.gateway.settings import GatewaySettings
from shared.settings import SettingsError
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


async def test_the_host_header_has_to_name_this_gateway(api: Api) -> None:
    expected = {
        "evil.example": 403,
        "evil.example:8470": 403,
        "127.0.0.1.evil.example": 403,
        "localhost:1": 200,
        "[::1]:8470": 200,
    }

    found = {host: (await api.get("/healthz", headers={"Host": host}))[0] for host in expected}

    assert found == expected


async def test_foreign_pages_can_neither_change_nor_watch(api: Api) -> None:
    sent = await api.owners.overhear()
    foreign = {"Origin": "https://evil.example"}

    status, problem = await api.post("/api/v1/tasks", TASK, headers=foreign)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await api.session.ws_connect(f"{api.url}/ws/events", headers=foreign)

    assert (status, problem["code"]) == (403, "forbidden")
    assert refused.value.status == 403
    assert sent == []


async def test_api_page_opens_without_token_or_foreign_files(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps([{"token_sha256": "0" * 64, "role": "viewer", "namespace": "a"}]))

    async with gateway(nats_url, postgres_dsn, tokens_file=str(path)) as api:
        async with api.session.get(f"{api.url}/docs") as response:
            page, policy = await response.text(), response.headers["Content-Security-Policy"]
        loaded = re.findall(r'(?:src|href)="([^"]*)"', page)
        files = {route: await api.get(route) for route in loaded if not route.startswith("data:")}
        documents = re.findall(r'url: "([^"]*)"', files["/docs/start.js"][1])
        found = [await api.get(route) for route in documents]
        refused, _ = await api.get("/api/v1/tasks")
        unknown, _ = await api.get("/docs/plugin.py", headers={"Authorization": "Bearer none"})

    assert {status for status, _ in files.values()} == {200}
    assert len(files) == 3
    assert [(status, body["info"]["title"]) for status, body in found] == [(200, "GPU Steward")]
    assert re.findall(r"https?:|unsafe", policy) == []
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert (refused, unknown) == (401, 401)


async def test_tokens_decide_who_may_do_what(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    roles = {"v": ("viewer", "a"), "s": ("submitter", "a"), "t": ("submitter", "b")}
    tokens = [token_of(token, *known) for token, known in roles.items()]
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps(tokens))

    async with gateway(nats_url, postgres_dsn, tokens_file=str(path)) as api:
        await api.owners.accept(SubmitTask)
        await api.owners.answer(ListTasks, TaskList(tasks=()))
        await api.owners.answer(GetTask, lambda query: make_task_view(query.task_id, namespace="a"))

        async def status(method: str, route: str, token: str | None, body: Any = None) -> int:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return (await api.call(method, route, body, headers=headers))[0]

        assert await status("GET", "/api/v1/tasks", None) == 401
        assert await status("GET", "/api/v1/tasks", "wrong") == 401
        assert await status("GET", "/api/v1/tasks", "v") == 200
        assert await status("POST", "/api/v1/tasks", "v", TASK) == 403
        assert await status("POST", "/api/v1/tasks", "s", TASK) == 201
        assert await status("POST", "/api/v1/tasks?namespace=b", "s", TASK) == 403
        assert await status("POST", f"/api/v1/tasks/{uuid4()}/cancel", "t", {}) == 403
        assert await status("DELETE", f"/api/v1/tasks/{uuid4()}", "v") == 403
        assert await status("DELETE", f"/api/v1/tasks/{uuid4()}", "t") == 403
        assert await status("GET", "/healthz", None) == 200
        submitted = next(m for m in api.owners.received if isinstance(m, SubmitTask))
        assert submitted.namespace == "a"


async def test_idempotency_key_is_per_namespace_and_caller(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    callers = {"first": ("admin", "a"), "second": ("admin", "a")}
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps([token_of(name, *known) for name, known in callers.items()]))

    for key in ("nightly", str(uuid4())):
        async with gateway(nats_url, postgres_dsn, tokens_file=str(path)) as api:
            await api.owners.accept(SubmitTask)
            await api.owners.answer(GetTask, lambda query: make_task_view(query.task_id))
            for caller in (*callers, "first"):
                for namespace in ("a", "b"):
                    route = f"/api/v1/tasks?namespace={namespace}"
                    headers = {"Authorization": f"Bearer {caller}", "Idempotency-Key": key}
                    assert (await api.post(route, TASK, headers=headers))[0] == 201
            sent = [m for m in api.owners.received if isinstance(m, SubmitTask)]

        assert sent[4:] == sent[:2]
        assert len({(m.command_id, m.task_id) for m in sent}) == 4
        assert key not in {str(m.command_id) for m in sent}


def token_of(token: str, role: str, namespace: str) -> dict[str, str]:
    digest = hashlib.sha256(token.encode()).hexdigest()
    return {"token_sha256": digest, "role": role, "namespace": namespace}


def test_public_address_needs_tokens(tmp_path: Path) -> None:
    empty = tmp_path / "tokens.json"
    empty.write_text("[]")
    settings: dict[str, Any] = {"postgres_dsn": "postgresql:///none", "host": "192.0.2.1"}

    for further in ({}, {"tokens_file": str(empty)}, {"tokens_file": "/nonexistent"}):
        with pytest.raises(SettingsError):
            create_service(GatewaySettings(**{**settings, **further}))
