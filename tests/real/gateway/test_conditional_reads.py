"""Reads carry an ETag: who has the answer is sent none, who has another changes nothing."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.orchestrator.deletion import DeleteTask
from schemas.orchestrator.experiments import TaskState
from schemas.orchestrator.views import GetTask
from tests.support.worlds.gateway import Api, gateway, make_task_view


@pytest.fixture
async def api(nats_url: str, postgres_dsn: str) -> AsyncIterator[Api]:
    async with gateway(nats_url, postgres_dsn) as running:
        yield running


async def test_what_has_not_changed_is_not_sent_again(api: Api) -> None:
    task = make_task_view(UUID(int=1))
    await api.owners.answer(GetTask, lambda _: task)
    url = f"{api.url}/api/v1/tasks/{task.task_id}"
    async with api.session.get(url) as first:
        tag, body = first.headers["ETag"], await first.read()

    async with api.session.get(url, headers={"If-None-Match": f'"other", W/{tag}'}) as again:
        unchanged = again.status, again.headers["ETag"], await again.read()
    task = replace(task, state=TaskState.CANCELLED)
    async with api.session.get(url, headers={"If-None-Match": tag}) as later:
        changed = later.status, later.headers["ETag"] == tag, (await later.json())["state"]

    assert body
    assert unchanged == (304, tag, b"")
    assert changed == (200, False, "cancelled")


async def test_refusals_and_non_reads_carry_no_tag(api: Api) -> None:
    async with api.session.get(f"{api.url}/api/v1/nodes/none") as missing:
        headers = missing.headers
    async with api.session.get(f"{api.url}/healthz") as health:
        outside = health.headers

    assert missing.status == 404
    assert "ETag" not in headers
    assert "ETag" not in outside


async def test_change_of_stale_read_is_refused(api: Api) -> None:
    task = make_task_view(UUID(int=1))
    await api.owners.answer(GetTask, lambda _: task)
    await api.owners.accept(DeleteTask)
    path = f"/api/v1/tasks/{task.task_id}"
    async with api.session.get(api.url + path) as first:
        tag = first.headers["ETag"]

    async def delete(path: str, known: str) -> tuple[int, Any]:
        return await api.call("DELETE", path, headers={"If-Match": known})

    task = replace(task, state=TaskState.CANCELLED, revision=2)
    stale, problem = await delete(path, tag)
    deleted_of_stale = sum(isinstance(each, DeleteTask) for each in api.owners.received)
    async with api.session.get(api.url + path) as second:
        tag = second.headers["ETag"]
    without_read, _ = await api.post(f"{path}/pause", headers={"If-Match": tag})
    known, _ = await delete(path, f'"other", {tag}')

    assert (stale, problem["code"]) == (412, "changed_since")
    assert deleted_of_stale == 0
    assert (without_read, known) == (412, 200)
    [deleted] = [each for each in api.owners.received if isinstance(each, DeleteTask)]
    assert deleted.expected_revision == 2  # what changes meanwhile is its owner's to refuse


async def test_api_document_names_tags(api: Api) -> None:
    _, document = await api.get("/schema/openapi.json")
    takes = {
        (method, path)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        for parameter in operation.get("parameters", [])
        if parameter["name"] == "If-Match"
    }

    assert {
        ("delete", "/api/v1/tasks/{task_id}"),
        ("delete", "/api/v1/experiments/{experiment_id}"),
        ("delete", "/api/v1/reservations/{reservation_id}"),
        ("delete", "/api/v1/nodes/{node_id}"),
    } <= takes
    for method, path in takes:
        item = document["paths"][path]
        assert "412" in item[method]["responses"]
        assert "ETag" in item["get"]["responses"]["200"]["headers"]
