"""A browser's login, on a real Postgres: its token never comes near the page's scripts again."""

from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from services.gateway.ledger import logins
from tests.real.gateway.test_tokens import Caller, admins
from tests.support.worlds.gateway import TASK, Api, gateway


class Browser:
    """Holds cookies, and shows a CSRF token only where its page does."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.cookie = ""
        self.set_cookie = SimpleCookie()

    async def call(
        self, method: str, path: str, body: Any = None, csrf: str | None = None
    ) -> tuple[int, Any]:
        headers = {"Cookie": self.cookie} if self.cookie else {}
        if csrf is not None:
            headers["X-CSRF-Token"] = csrf
        return await self.api.call(method, path, body, headers=headers)

    async def log_in(self, token: str) -> Any:
        return await self.log_in_by(token=token)

    async def log_in_by(self, **body: str) -> Any:
        async with self.api.session.post(f"{self.api.url}/api/v1/login", json=body) as response:
            body = await response.json()
            assert response.status == 200, body
            self.set_cookie.load(response.headers["Set-Cookie"])
        ((name, morsel),) = self.set_cookie.items()
        self.cookie = f"{name}={morsel.value}"
        return body


async def test_login_cookie_counts_at_every_gateway(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path, gateways=2) as (here, there):
        made = await here.make("ada", namespaces=["a", "b"])
        browser = Browser(here.api)

        me = await browser.log_in(made["secret"])
        status, same = await browser.call("GET", "/api/v1/me")
        elsewhere = Browser(there.api)
        port = here.api.url.rpartition(":")[2]
        elsewhere.cookie = browser.cookie.replace(port, there.api.url.rpartition(":")[2])
        other_status, other = await elsewhere.call("GET", "/api/v1/me")
        changed, _ = await elsewhere.call("POST", "/api/v1/tasks", TASK, csrf=me["csrf_token"])

    (morsel,) = browser.set_cookie.values()
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "strict", "/")
    assert made["secret"] not in morsel.value
    assert (status, same) == (200, me)
    assert (other_status, other["csrf_token"]) == (200, me["csrf_token"])
    assert changed == 201
    assert (me["role"], me["namespaces"], me["name"]) == ("submitter", ["a", "b"], "ada")
    assert me["asks_for_tokens"]
    assert me["csrf_token"] not in morsel.value


async def test_change_by_cookie_needs_csrf_token(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        made = await admin.make(namespaces=["a"])
        browser = Browser(admin.api)
        me = await browser.log_in(made["secret"])

        read, _ = await browser.call("GET", "/api/v1/tasks")
        without, problem = await browser.call("POST", "/api/v1/tasks", TASK)
        wrong, _ = await browser.call("POST", "/api/v1/tasks", TASK, csrf="0" * 64)
        right, _ = await browser.call("POST", "/api/v1/tasks", TASK, csrf=me["csrf_token"])
        by_token, _ = await admin.post("/api/v1/tasks", TASK)

    assert (read, without, wrong, right, by_token) == (200, 403, 403, 201, 201)
    assert "X-CSRF-Token" in problem["detail"]


async def test_login_opens_streams_and_ends_with_token(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        made = await admin.make(role="viewer")
        browser = Browser(admin.api)
        await browser.log_in(made["secret"])

        socket = await admin.api.session.ws_connect(
            f"{admin.api.url}/ws/events", headers={"Cookie": browser.cookie}
        )
        await admin.delete(f"/api/v1/tokens/{made['token']['token_id']}")
        closed = await socket.receive(timeout=60)
        after, _ = await browser.call("GET", "/api/v1/me")

    assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1008)
    assert after == 401


async def test_a_logout_ends_the_session_and_no_other(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        made = await admin.make(role="viewer")
        browser, other = Browser(admin.api), Browser(admin.api)
        me = await browser.log_in(made["secret"])
        await other.log_in(made["secret"])

        unsaid, _ = await browser.call("POST", "/api/v1/logout")
        out, _ = await browser.call("POST", "/api/v1/logout", csrf=me["csrf_token"])
        found = [(await each.call("GET", "/api/v1/me"))[0] for each in (browser, other)]

    assert (unsaid, out) == (403, 204)
    assert found == [401, 200]


async def test_login_expires_and_wrong_token_makes_none(
    nats_url: str, postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "LOGIN_SECONDS", 0)
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        made = await admin.make(role="viewer")
        browser = Browser(admin.api)
        await browser.log_in(made["secret"])

        ended, _ = await browser.call("GET", "/api/v1/me")
        wrong, _ = await browser.call("POST", "/api/v1/login", {"token": "none"})
        nobody, _ = await Browser(admin.api).call("GET", "/api/v1/me")
        _, log = await admin.get(f"/api/v1/audit?token_id={made['token']['token_id']}")

    assert (ended, wrong, nobody) == (401, 401, 401)
    assert [(entry["path"], entry["status"]) for entry in log["entries"]] == [
        ("/api/v1/login", 200)
    ]


async def test_without_tokens_everybody_is_admin(nats_url: str, postgres_dsn: str) -> None:
    async with gateway(nats_url, postgres_dsn) as api:
        status, me = await api.get("/api/v1/me")
        login, _ = await api.post("/api/v1/login", {"token": "any"})
        logout, _ = await api.post("/api/v1/logout")

    assert (status, me["role"], me["asks_for_tokens"], me["csrf_token"]) == (
        200, "admin", False, None,
    )  # fmt: skip
    assert (login, logout) == (409, 204)


async def test_every_answer_has_security_headers(nats_url: str, postgres_dsn: str) -> None:
    async with gateway(nats_url, postgres_dsn) as api:
        for path in ("/healthz", "/api/v1/me", "/nowhere", "/docs"):
            async with api.session.get(
                api.url + path, headers={"Origin": "https://evil.example"}
            ) as response:
                headers = response.headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert not [name for name in headers if name.startswith("Access-Control")]


async def test_unknown_cookie_does_not_affect_token(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        browser = Browser(admin.api)
        port = admin.api.url.rpartition(":")[2]
        browser.cookie = f'other=1; gpusteward_{port}={uuid4().hex}; x="'

        unknown, _ = await browser.call("GET", "/api/v1/tasks")
        own = Caller(admin.api, admin.secret)
        with_token, _ = await admin.api.get(
            "/api/v1/me", headers={**own.headers, "Cookie": browser.cookie}
        )

    assert (unknown, with_token) == (401, 200)


async def test_a_login_link_logs_one_browser_in_once(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path, gateways=2) as (here, there):
        admin = Caller(here.api, here.secret)
        admin.headers["X-GPU-Steward-Account"] = "ada"
        made, link = await admin.post("/api/v1/login/links")
        browser, second = Browser(there.api), Browser(here.api)

        me = await browser.log_in_by(code=link["code"])
        again, problem = await second.call("POST", "/api/v1/login", {"code": link["code"]})
        by_cookie, _ = await browser.call("POST", "/api/v1/login/links", csrf=me["csrf_token"])
        _, log = await here.get("/api/v1/audit")

    assert (made, me["role"], me["person"]) == (201, "admin", "ada")
    assert (again, by_cookie) == (401, 403)
    assert problem["detail"] == (
        "this login link was used already, or is older than 10 minutes;"
        " `gpusteward login` prints a new one"
    )
    assert link["code"] not in str(log)
    assert {"/api/v1/login/links", "/api/v1/login"} <= {each["path"] for each in log["entries"]}


async def test_login_link_expires_with_its_token(
    nats_url: str, postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (admin,):
        made = await admin.make("ada")
        ada = Caller(admin.api, made["secret"])
        _, revoked = await ada.post("/api/v1/login/links")
        monkeypatch.setattr(logins, "LINK_SECONDS", 0)
        _, late = await admin.post("/api/v1/login/links")
        await admin.delete(f"/api/v1/tokens/{made['token']['token_id']}")

        answers = [
            await Browser(admin.api).call("POST", "/api/v1/login", body)
            for body in (
                {"code": revoked["code"]},
                {"code": late["code"]},
                {"code": "none"},
                {},
                {"token": admin.secret, "code": "none"},
            )
        ]

    assert [status for status, _ in answers] == [401, 401, 401, 400, 400]
    assert answers[0][1]["detail"] == "expected a token that counts, found one that was revoked"
    assert answers[3][1]["detail"] == "expected either a token or the code of a login link"


async def test_without_tokens_there_is_no_login_link(nats_url: str, postgres_dsn: str) -> None:
    async with gateway(nats_url, postgres_dsn) as api:
        status, problem = await api.post("/api/v1/login/links")

    assert (status, problem["detail"]) == (
        409,
        "this gateway asks for no tokens: its page opens without a login",
    )
