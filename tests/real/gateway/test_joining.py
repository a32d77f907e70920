"""Invitations of new servers, on a real Postgres: once, for one node, for an hour."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.gateway.ledger import invitations
from shared.local_platform.bus_users import BusUsers
from tests.real.gateway.test_tokens import Caller, admins

NODE = "alpha"
ASKED_AT = {"api_url": "http://10.0.0.1:8470"}


@asynccontextmanager
async def platform(nats_url: str, dsn: str, tmp_path: Path) -> AsyncIterator[Caller]:
    """An admin at a gateway that keeps the users of its NATS server."""
    settings: dict[str, Any] = {
        "nats_home": str(tmp_path / "nats"),
        "node_nats_url": "nats://10.0.0.1:4222",
    }
    async with admins(nats_url, dsn, tmp_path, **settings) as (admin,):
        yield admin


async def invite(admin: Caller, node_id: str = NODE) -> str:
    status, invitation = await admin.post(f"/api/v1/nodes/{node_id}/invite", ASKED_AT)
    assert status == 201, invitation
    assert f"join http://10.0.0.1:8470 {node_id};" in invitation["command"]
    return str(invitation["code"])


async def join(admin: Caller, code: str, node_id: str = NODE) -> tuple[int, Any]:
    """Join as a server does, without a token."""
    return await admin.api.post("/api/v1/join", {"node_id": node_id, "code": code})


async def test_invited_server_gets_its_credentials_once(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with platform(nats_url, postgres_dsn, tmp_path) as admin:
        code = await invite(admin)

        first = await join(admin, code)
        second, _ = await join(admin, code)
        invited_again, problem = await admin.post(f"/api/v1/nodes/{NODE}/invite", ASKED_AT)
        _, audit = await admin.get("/api/v1/audit")

    users = BusUsers(tmp_path / "nats" / "users")
    status, credentials = first
    assert (status, second, invited_again) == (200, 401, 409)
    assert credentials["nats_url"] == "nats://10.0.0.1:4222"
    assert credentials["password"] == users.read("node_alpha").password
    assert credentials["user"] == "node_alpha"
    assert "agent-credentials alpha --revoke" in problem["detail"]
    recorded = [(entry["path"], entry["caller"]) for entry in audit["entries"]]
    assert ("/api/v1/join", "invited alpha") in recorded
    assert "/api/v1/nodes/alpha/invite" in [path for path, _ in recorded]
    assert code not in str(audit)
    assert credentials["password"] not in str(audit)


async def test_two_servers_with_one_code_get_in_once(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with platform(nats_url, postgres_dsn, tmp_path) as admin:
        code = await invite(admin)

        answers = await asyncio.gather(*(join(admin, code) for _ in range(8)))

    assert sorted(status for status, _ in answers) == [200, *[401] * 7]


async def test_code_of_another_node_lets_nobody_in_and_stays(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with platform(nats_url, postgres_dsn, tmp_path) as admin:
        code = await invite(admin)

        other, _ = await join(admin, code, "beta")
        guessed, _ = await join(admin, "guessed")
        own, _ = await join(admin, code)

    assert (other, guessed, own) == (401, 401, 200)
    assert not BusUsers(tmp_path / "nats" / "users").path_of("node_beta").exists()


async def test_newer_invitation_replaces_the_older(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with platform(nats_url, postgres_dsn, tmp_path) as admin:
        older, newer = await invite(admin), await invite(admin)

        answers = [(await join(admin, code))[0] for code in (older, newer)]

    assert answers == [401, 200]


async def test_code_counts_no_more_after_its_time(
    nats_url: str, postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invitations, "INVITATION_SECONDS", 0)
    async with platform(nats_url, postgres_dsn, tmp_path) as admin:
        status, _ = await join(admin, await invite(admin))

    assert status == 401


async def test_credentials_made_meanwhile_are_not_given_away(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with platform(nats_url, postgres_dsn, tmp_path) as admin:
        code = await invite(admin)
        BusUsers(tmp_path / "nats" / "users").create(["node_alpha"])

        status, problem = await join(admin, code)

    assert status == 409
    assert "has credentials already" in problem["detail"]


async def test_gateway_without_the_users_says_what_to_do(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        status, problem = await admin.post(f"/api/v1/nodes/{NODE}/invite", ASKED_AT)

    assert status == 422
    assert "agent-credentials alpha --directory" in problem["detail"]
