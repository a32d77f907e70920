"""Sign-ins and refused ones in the audit log, by which login and from where; its export."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from schemas.errors import Accepted
from schemas.orchestrator.secrets import (
    ListSecrets,
    RemoveSecret,
    SecretList,
    SecretView,
    SetSecret,
)
from services.gateway.ledger import audit
from shared.clock import utcnow
from shared.local_platform.tokens import digest_of
from shared.testing import eventually
from tests.support.worlds.gateway import Api, gateway

VALUE = "planted-value-of-a-secret"


@asynccontextmanager
async def admin_gateway(
    nats_url: str, dsn: str, tmp_path: Path, **settings: Any
) -> AsyncIterator[tuple[Api, dict[str, str]]]:
    secret = f"admin-{uuid4()}"
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps([{"token_sha256": digest_of(secret), "role": "admin"}]))
    async with gateway(nats_url, dsn, tokens_file=str(path), **settings) as api:
        yield api, {"Authorization": f"Bearer {secret}"}


async def entries(api: Api, headers: dict[str, str], query: str = "") -> list[dict[str, Any]]:
    status, log = await api.get(f"/api/v1/audit?limit=1000{query}", headers=headers)
    assert status == 200, log
    return list(log["entries"])


async def text_of(api: Api, path: str, headers: dict[str, str]) -> tuple[int, str]:
    async with api.session.get(f"{api.url}{path}", headers=headers) as response:
        return response.status, await response.text()


@pytest.fixture
def quick_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "COUNT_SECONDS", 0.1)


async def test_sign_in_is_recorded_with_its_login(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admin_gateway(nats_url, postgres_dsn, tmp_path) as (api, admin):
        _, made = await api.post("/api/v1/tokens", {"name": "ann", "role": "admin"}, headers=admin)
        async with api.session.post(
            f"{api.url}/api/v1/login", data=json.dumps({"token": made["secret"]})
        ) as response:
            status, me = response.status, await response.json()
            [cookie] = response.cookies.values()
        browser = {"X-CSRF-Token": me["csrf_token"], "Cookie": f"{cookie.key}={cookie.value}"}
        ended, _ = await api.call("DELETE", f"/api/v1/tokens/{uuid4()}", headers=browser)
        log = await entries(api, admin)
        signed_in = await entries(api, admin, "&kind=sign_in")

    assert (status, ended) == (200, 404)
    assert [(e["kind"], e["login"], e["caller"], e["path"]) for e in log[:2]] == [
        ("change", "browser", "ann", log[0]["path"]),
        ("sign_in", "token", "ann", "/api/v1/login"),
    ]
    assert signed_in == [log[1]]
    assert (log[2]["kind"], log[2]["login"]) == ("change", "token")
    assert made["secret"] not in json.dumps(log)


async def test_changes_are_found_by_action_result_and_object(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admin_gateway(nats_url, postgres_dsn, tmp_path) as (api, admin):
        for name in ("ann", "bob"):
            await api.post("/api/v1/tokens", {"name": name, "role": "admin"}, headers=admin)
        await api.call("DELETE", f"/api/v1/tokens/{uuid4()}", headers=admin)
        created = await entries(api, admin, "&action=create_token")
        of_bob = await entries(api, admin, "&about=BOB")
        refused = await entries(api, admin, "&result=refused")
        answer = await api.get("/api/v1/audit?action=list_gpus", headers=admin)

    assert [entry["after"]["name"] for entry in created] == ["bob", "ann"]
    assert of_bob == created[:1]
    assert [(entry["method"], entry["status"]) for entry in refused] == [("DELETE", 404)]
    assert (answer[0], answer[1]["path"]) == (400, "query.action")


@pytest.mark.usefixtures("quick_counts")
async def test_refused_sign_ins_are_counted_not_listed(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    wrong = {"Authorization": "Bearer wrong-and-guessed"}
    async with admin_gateway(nats_url, postgres_dsn, tmp_path) as (api, admin):
        _, made = await api.post("/api/v1/tokens", {"name": "old", "role": "viewer"}, headers=admin)
        token_id = made["token"]["token_id"]
        await api.call("DELETE", f"/api/v1/tokens/{token_id}", headers=admin)
        codes = [(await api.get("/api/v1/tasks", headers=wrong))[0] for _ in range(40)]
        revoked = {"Authorization": f"Bearer {made['secret']}"}
        codes += [(await api.get("/api/v1/gpus", headers=revoked))[0]]
        codes += [(await api.post("/api/v1/login", {"code": "guessed"}))[0]]
        codes += [(await api.get("/api/v1/gpus"))[0]]  # shows nothing: not a sign-in

        async def counted() -> int:
            return sum(e["count"] for e in await entries(api, admin, "&kind=refused"))

        await eventually(lambda: _is(counted, 42), what="42 refused sign-ins")
        log = await entries(api, admin, "&kind=refused")

    by_reason = {e["reason"].partition(" ")[2]: e for e in log}
    assert set(codes) == {401}
    assert len(log) <= 5  # a minute may have ended in between
    assert all((e["address"], e["status"]) == ("127.0.0.1", 401) for e in log)
    [of_revoked] = [e for e in log if e["caller"]]
    assert (of_revoked["caller"], of_revoked["token_id"]) == ("old", token_id)
    assert "revoked" in of_revoked["reason"]
    assert any("login link" in reason for reason in by_reason)
    assert "guessed" not in json.dumps(log)


@pytest.mark.parametrize(("trusted", "address"), [("", "127.0.0.1"), ("127.0.0.1", "203.0.113.7")])
async def test_proxy_is_believed_only_where_trusted(
    nats_url: str, postgres_dsn: str, tmp_path: Path, trusted: str, address: str
) -> None:
    settings = {"trusted_proxies": trusted}
    async with admin_gateway(nats_url, postgres_dsn, tmp_path, **settings) as (api, admin):
        headers = {**admin, "X-Forwarded-For": "198.51.100.9, 203.0.113.7"}
        await api.post("/api/v1/tokens", {"name": "far", "role": "viewer"}, headers=headers)
        [entry] = await entries(api, admin)

    assert entry["address"] == address


async def test_export_streams_whole_log_in_order(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admin_gateway(nats_url, postgres_dsn, tmp_path) as (api, admin):
        connection = await asyncpg.connect(postgres_dsn)
        await connection.execute(
            "INSERT INTO gateway.audit (at, caller, address, method, path)"
            " SELECT now() - n % 500 * interval '1 minute', 'ann', '::1', 'POST', '/' || n"
            " FROM generate_series(1, 2300) AS n"
        )
        await connection.close()
        status, text = await text_of(api, "/api/v1/audit/export", admin)
        middle = json.loads(text.splitlines()[1000])["at"]
        _, later = await text_of(api, f"/api/v1/audit/export?start_at={middle}", admin)
        _, earlier = await text_of(api, f"/api/v1/audit/export?end_at={middle}", admin)
        viewer_status, _ = await text_of(api, "/api/v1/audit/export", {})

    lines = [json.loads(line) for line in text.splitlines()]
    places = [(line["at"], line["audit_id"]) for line in lines]
    assert (status, viewer_status) == (200, 401)
    assert len({line["audit_id"] for line in lines}) == len(lines) == 2300
    assert places == sorted(places)
    assert earlier + later == text
    assert json.loads(later.splitlines()[0])["at"] == middle


async def test_change_of_a_secret_is_audited_without_it(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    secrets: list[SecretView] = []

    def set_secret(command: SetSecret) -> Accepted:
        of, name = command.namespace, command.name
        secrets[:] = [SecretView(namespace=of, name=name, revision=1, set_at=utcnow())]
        return Accepted(command_id=command.command_id, revision=1)

    async with admin_gateway(nats_url, postgres_dsn, tmp_path) as (api, admin):
        await api.owners.answer(ListSecrets, lambda _: SecretList(secrets=tuple(secrets)))
        await api.owners.answer(SetSecret, set_secret)
        await api.owners.accept(RemoveSecret)
        path = "/api/v1/secrets/HF_TOKEN"
        status, view = await api.post(f"{path}?namespace=a", {"value": VALUE}, headers=admin)
        bad = await api.post(path, {"value": 47114711}, headers=admin)
        wrong = await api.post("/api/v1/secrets/LD_PRELOAD", {"value": "x"}, headers=admin)
        removed, _ = await api.call("DELETE", f"{path}?namespace=a", headers=admin)
        log = await entries(api, admin, f"&path={path}")

    assert (status, removed, view["name"]) == (200, 200, "HF_TOKEN")
    assert (bad[0], "4711" in json.dumps(bad)) == (400, False)
    assert (wrong[0], "such as HF_TOKEN" in wrong[1]["detail"]) == (400, True)
    assert log[2]["after"]["of_namespace"] == "a"
    assert VALUE not in json.dumps(log)


async def _is(count: Any, expected: int) -> bool:
    return bool(await count() == expected)
