"""Tokens that people manage, their limits, and the audit log, on a real Postgres."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from schemas.errors import Accepted
from schemas.gateway.endpoints import ENDPOINTS
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import SubmitTask
from schemas.orchestrator.views import GetTask, ListTasks, TaskList
from schemas.scheduler.reservations import CancelReservation, RequestReservation, ReservationState
from schemas.scheduler.views import GetReservation
from services.gateway.ledger import tokens as token_store
from shared.local_platform.tokens import digest_of
from tests.support.worlds.gateway import (
    TASK,
    Api,
    gateway,
    make_reservation_view,
    make_task_view,
)

Call = tuple[int, Any]


class Caller:
    """Somebody with a token at one gateway."""

    def __init__(self, api: Api, secret: str) -> None:
        self.api, self.secret = api, secret
        self.headers = {"Authorization": f"Bearer {secret}"}

    async def get(self, path: str) -> Call:
        return await self.api.get(path, headers=self.headers)

    async def post(self, path: str, body: Any = None) -> Call:
        return await self.api.post(path, body, headers=self.headers)

    async def delete(self, path: str) -> Call:
        return await self.api.call("DELETE", path, headers=self.headers)

    async def make(self, name: str = "ci", role: str = "submitter", **fields: Any) -> Any:
        status, made = await self.post("/api/v1/tokens", {"name": name, "role": role, **fields})
        assert status == 201, made
        return made


@asynccontextmanager
async def admins(
    nats_url: str, dsn: str, tmp_path: Path, gateways: int = 1, **settings: Any
) -> AsyncIterator[list[Caller]]:
    """The same admin, of the file of tokens, at gateways beside each other."""
    secret = f"admin-{uuid4()}"
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps([{"token_sha256": digest_of(secret), "role": "admin"}]))
    async with gateway(nats_url, dsn, tokens_file=str(path), **settings) as first:
        await first.owners.accept(SubmitTask)
        await first.owners.answer(ListTasks, TaskList(tasks=()))
        await first.owners.answer(GetTask, lambda q: make_task_view(q.task_id, namespace="a"))
        if gateways == 1:
            yield [Caller(first, secret)]
            return
        async with gateway(nats_url, dsn, tokens_file=str(path)) as second:
            yield [Caller(first, secret), Caller(second, secret)]


async def test_token_counts_everywhere_until_revoked(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path, gateways=2) as (here, there):
        made = await here.make(namespaces=["a", "b"])
        users = [Caller(admin.api, made["secret"]) for admin in (here, there)]

        submitted = [
            (await users[1].post(f"/api/v1/tasks?namespace={name}", TASK))[0]
            for name in ("a", "b", "c")
        ]
        asked = (await users[1].post("/api/v1/tokens", {"name": "x", "role": "admin"}))[0]
        before = [(await user.get("/api/v1/tasks"))[0] for user in users]
        revoked, view = await there.delete(f"/api/v1/tokens/{made['token']['token_id']}")
        after = [await user.get("/api/v1/tasks") for user in users]
        again, same = await here.delete(f"/api/v1/tokens/{made['token']['token_id']}")
        unknown, _ = await here.delete(f"/api/v1/tokens/{uuid4()}")

    assert submitted == [201, 201, 403]
    assert asked == 403
    assert before == [200, 200]
    assert (revoked, again, unknown) == (200, 200, 404)
    assert view["last_used_at"] is not None
    assert same == view
    assert [(status, problem["detail"]) for status, problem in after] == [
        (401, "expected a token that counts, found one that was revoked")
    ] * 2


async def test_optional_token_is_still_checked(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    """Or everybody whom an admin gave a token to would be an admin."""
    async with admins(nats_url, postgres_dsn, tmp_path) as (of_file,):
        assert (await of_file.get("/api/v1/me"))[0] == 200

    async with gateway(nats_url, postgres_dsn) as api:
        await api.owners.accept(SubmitTask)
        await api.owners.answer(GetTask, lambda q: make_task_view(q.task_id, namespace="a"))
        _, made = await api.post(
            "/api/v1/tokens", {"name": "ci", "role": "submitter", "namespaces": ["a"]}
        )
        user = Caller(api, made["secret"])
        submitted = [
            (await user.post(f"/api/v1/tasks?namespace={name}", TASK))[0] for name in ("a", "b")
        ]
        roles = [
            (await who.get("/api/v1/me"))[1]["role"]
            for who in (api, user, Caller(api, of_file.secret))
        ]
        await api.call("DELETE", f"/api/v1/tokens/{made['token']['token_id']}")
        refused = [(await who.get("/api/v1/me"))[0] for who in (user, Caller(api, "unknown"), api)]

    assert submitted == [201, 403]
    assert roles == ["admin", "submitter", "admin"]
    assert refused == [401, 401, 200]


async def test_stream_ends_with_its_token(
    nats_url: str, postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_store, "POLL_SECONDS", 0.05)
    async with admins(nats_url, postgres_dsn, tmp_path, gateways=2) as (here, there):
        made = await here.make(role="viewer")
        user = Caller(here.api, made["secret"])
        socket = await here.api.session.ws_connect(
            f"{here.api.url}/ws/events", headers=user.headers
        )
        stays = await here.api.session.ws_connect(f"{here.api.url}/ws/events", headers=here.headers)

        await there.delete(f"/api/v1/tokens/{made['token']['token_id']}")
        closed = await socket.receive(timeout=30)

        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1008)
        assert closed.extra == "the token counts no more"
        assert not stays.closed
        await stays.close()


async def test_secrets_are_told_once_and_nowhere_kept(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        made = await admin.make(expires_in_seconds=0.001)
        names = [f"t{number}" for number in range(3)]
        for name in names:
            await admin.make(name)

        status, listed = await admin.get("/api/v1/tokens?limit=2")
        _, rest = await admin.get(f"/api/v1/tokens?limit=1000&cursor={listed['next_cursor']}")
        _, log = await admin.get("/api/v1/audit?limit=1000")
        expired, _ = await Caller(admin.api, made["secret"]).get("/api/v1/tasks")

    said = json.dumps([listed, rest, log])
    assert status == 200
    assert expired == 401
    found = [token["name"] for token in (*listed["tokens"], *rest["tokens"])]
    assert found[:4] == [*reversed(names), "ci"]
    assert rest["next_cursor"] is None
    for secret in (admin.secret, made["secret"], digest_of(made["secret"])):
        assert secret not in said


async def test_file_token_ends_when_revoked_or_removed(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.json"
    secrets = [f"{name}-{uuid4()}" for name in ("kept", "removed", "revoked")]
    entries = [{"token_sha256": digest_of(secret), "role": "admin"} for secret in secrets]
    path.write_text(json.dumps(entries))
    async with gateway(nats_url, postgres_dsn, tokens_file=str(path)) as api:
        kept, _, revoked = (Caller(api, secret) for secret in secrets)
        _, listed = await kept.get("/api/v1/tokens?limit=1000")
        name = f"admin-{entries[2]['token_sha256'][:8]}"
        (own,) = (token for token in listed["tokens"] if token["name"] == name)
        assert own["from_file"]
        await kept.delete(f"/api/v1/tokens/{own['token_id']}")
        assert (await revoked.get("/api/v1/tokens"))[0] == 401
    path.write_text(json.dumps([entries[0], entries[2]]))

    async with gateway(nats_url, postgres_dsn, tokens_file=str(path)) as api:
        found = [(await Caller(api, secret).get("/api/v1/tokens"))[0] for secret in secrets]

    assert found == [200, 401, 401]


async def test_limits_are_those_of_the_token(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        slow = Caller(admin.api, (await admin.make(requests_per_second=0.5))["secret"])
        small = Caller(admin.api, (await admin.make(body_limit_bytes=50))["secret"])

        first, _ = await slow.get("/api/v1/tasks")
        async with admin.api.session.get(
            f"{admin.api.url}/api/v1/tasks", headers=slow.headers
        ) as response:
            second, wait, problem = response.status, response.headers, await response.json()
        others, _ = await admin.get("/api/v1/tasks")
        too_large, _ = await small.post("/api/v1/tasks", TASK)

    assert (first, second, others, too_large) == (200, 429, 200, 413)
    assert (problem["code"], wait["Retry-After"]) == ("too_many_requests", "2")


async def test_audit_log_has_every_change_and_outcome(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        made = await admin.make("nightly", namespaces=["a"])
        user = Caller(admin.api, made["secret"])
        await user.post("/api/v1/tasks", TASK)
        await user.post("/api/v1/tasks?namespace=b", TASK)
        await user.post("/api/v1/nodes/n/cordon", {})
        await user.post("/api/v1/tasks", {"task_name": 7})
        await user.post("/api/v1/checks", {"type": "cuda"})
        await user.get("/api/v1/tasks")

        wanted = f"/api/v1/audit?token_id={made['token']['token_id']}"
        status, log = await admin.get(wanted)
        _, page = await admin.get(f"{wanted}&limit=3")
        _, rest = await admin.get(f"{wanted}&limit=3&cursor={page['next_cursor']}")
        refused, _ = await user.get("/api/v1/audit")

    assert (status, refused) == (200, 403)
    assert [(e["caller"], e["method"], e["path"], e["status"]) for e in log["entries"]] == [
        ("nightly", "POST", "/api/v1/tasks", 400),
        ("nightly", "POST", "/api/v1/nodes/n/cordon", 403),
        ("nightly", "POST", "/api/v1/tasks", 403),
        ("nightly", "POST", "/api/v1/tasks", 201),
    ]
    assert all(entry["address"] == "127.0.0.1" and entry["at"] for entry in log["entries"])
    assert page["entries"] + rest["entries"] == log["entries"]


async def test_audit_entry_names_reservation_and_size(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        await admin.api.owners.accept(RequestReservation)
        await admin.api.owners.answer(
            GetReservation,
            lambda query: replace(
                make_reservation_view(query.reservation_id),
                holder="exec/carol",
                request=GpuRequest(gpus=4),
            ),
        )
        asked = {"holder": "exec/carol", "request": {"gpus": 4}}
        status, view = await admin.post("/api/v1/reservations", asked)
        _, log = await admin.get("/api/v1/audit?path=/api/v1/reservations")

    (entry,) = log["entries"]
    assert (status, entry["status"], entry["before"]) == (201, 201, None)
    made = entry["after"]
    assert (made["reservation_id"], made["holder"]) == (view["reservation_id"], "exec/carol")
    assert made["request"]["gpus"] == 4


async def test_audit_entry_has_state_before_and_after(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        found = make_reservation_view(uuid4())
        states = [ReservationState.QUEUED]

        def cancelled(command: CancelReservation) -> Accepted:
            states.append(ReservationState.CANCELLED)
            return Accepted(command_id=command.command_id, revision=2)

        await admin.api.owners.answer(GetReservation, lambda _: replace(found, state=states[-1]))
        await admin.api.owners.answer(CancelReservation, cancelled)
        made = await admin.make("short-lived")
        token = made["token"]["token_id"]
        await admin.delete(f"/api/v1/reservations/{found.reservation_id}")
        await admin.delete(f"/api/v1/tokens/{token}")
        await admin.delete(f"/api/v1/tokens/{uuid4()}")

        _, ended = await admin.get("/api/v1/audit?path=/api/v1/reservations&limit=1")
        _, of_tokens = await admin.get("/api/v1/audit?path=/api/v1/tokens/&limit=2")
        _, of_nobody = await admin.get("/api/v1/audit?caller=nobody")
        _, of_later = await admin.get("/api/v1/audit?start_at=2100-01-01T00:00:00Z")
        _, everything = await admin.get("/api/v1/audit?limit=1000")

    (cancel,) = ended["entries"]
    missing, revoked = of_tokens["entries"]
    named = {"holder": found.holder, "request": json.loads(msgspec.json.encode(found.request))}
    assert cancel["before"] == {"state": "queued", **named}
    assert cancel["after"] == {"state": "cancelled", **named}
    assert revoked["before"] == {"revoked_at": None}
    assert revoked["after"]["revoked_at"] is not None
    assert (missing["status"], missing["before"], missing["after"]) == (404, None, None)
    assert (of_nobody["entries"], of_later["entries"]) == ([], [])
    assert made["secret"] not in json.dumps(everything)


async def test_a_viewer_changes_nothing_by_any_route(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    changing = [row for row in ENDPOINTS.values() if row.method != "GET" and row.role != "viewer"]
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        viewer = Caller(admin.api, (await admin.make(role="viewer"))["secret"])
        found = {}
        sent = await admin.api.owners.overhear()
        for row in changing:
            address = row.address(**{name: uuid4() for name in row.places} | {"node_id": "n"})
            found[address], _ = await admin.api.call(
                row.method, address, {}, headers=viewer.headers
            )

    assert len(changing) > 20
    assert set(found.values()) == {403}
    assert [subject for subject in sent if subject.startswith("gpusteward.cmd.")] == []
