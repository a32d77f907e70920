"""Signing in at an OpenID provider, on a real Postgres: by a browser, by a code, by access tokens.

The provider is a small one of these tests, with real keys; `test_keycloak.py` has Keycloak.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from schemas.orchestrator.experiments import SubmitTask
from schemas.orchestrator.views import GetTask, ListTasks, TaskList
from services.gateway.http import access_control
from services.gateway.ledger import sign_ins
from services.gateway.sign_in import bearer
from shared.testing import eventually
from tests.real.gateway.test_tokens import admins
from tests.support.fakes import openid_provider
from tests.support.fakes.openid_provider import AUDIENCE, CLIENT, LocalProvider, local_provider
from tests.support.worlds.gateway import TASK, Api, gateway, make_task_view

MAPPING = """
[[rule]]
group = "admins"
role = "admin"

[[rule]]
group = "team-a"
role = "submitter"
namespaces = ["a"]

[[rule]]
group = "leads-a"
role = "owner"
namespaces = ["a"]

[[rule]]
group = "team-b"
role = "viewer"
namespaces = ["b"]
"""
Call = tuple[int, Any]


@dataclass
class World:
    """A gateway beside a provider."""

    api: Api
    provider: LocalProvider

    async def call(self, token: str, method: str, path: str, body: Any = None) -> Call:
        headers = {"Authorization": f"Bearer {token}"}
        return await self.api.call(method, f"/api/v1{path}", body, headers=headers)

    async def get(self, token: str, path: str = "/me") -> Call:
        return await self.call(token, "GET", path)

    async def sign_in_by_device(self, name: str) -> str:
        """The session's token of who confirmed a code."""
        status, code = await self.api.post("/api/v1/sign-in/device", {"client": "laptop"})
        assert status == 200, code
        self.provider.confirm_device(name)

        async def answered() -> Any:
            _, answer = await self.api.post("/api/v1/sign-in/device/answer", {"code": code["code"]})
            return answer.get("secret")

        secret: list[str] = []

        async def is_there() -> bool:
            secret[:] = [value] if (value := await answered()) else []
            return bool(secret)

        await eventually(is_there, what="a session")
        return secret[0]


@dataclass
class PageVisitor:
    """A browser, as far as its cookies go."""

    world: World
    session: aiohttp.ClientSession = field(
        default_factory=lambda: aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
    )

    async def go(self, url: str) -> aiohttp.ClientResponse:
        url = self.world.api.url + url if url.startswith("/") else url
        response = await self.session.get(url, allow_redirects=False)
        await response.read()  # which gives its connection back
        return response

    async def come_back(self, place: str = "/tasks") -> str:
        """The address at which the provider sends the browser back."""
        started = await self.go(f"/sign-in/start?place={place}")
        assert started.status == 302, await started.text()
        allowed = await self.go(started.headers["Location"])
        return allowed.headers["Location"]

    async def sign_in(self, name: str) -> aiohttp.ClientResponse:
        self.world.provider.signs_in = name
        return await self.go(await self.come_back())

    async def call(self, method: str, path: str, csrf: str | None = None) -> Call:
        headers = {"X-CSRF-Token": csrf} if csrf else {}
        url = f"{self.world.api.url}/api/v1{path}"
        async with self.session.request(method, url, headers=headers) as response:
            return response.status, await response.json(content_type=None)


@asynccontextmanager
async def a_world(nats_url: str, dsn: str, tmp_path: Path, **settings: Any) -> AsyncIterator[World]:
    mapping, secret = tmp_path / "mapping.toml", tmp_path / "secret"
    mapping.write_text(MAPPING)
    secret.write_text(openid_provider.SECRET)
    async with local_provider() as provider:
        provider.add("ada", "team-a")
        provider.add("olga", "leads-a", "team-b")
        provider.add("root", "admins")
        provider.add("eve", "else")
        fields = {
            "oidc_issuer": provider.issuer,
            "oidc_client_id": CLIENT,
            "oidc_client_secret_file": str(secret),
            "oidc_audience": AUDIENCE,
            "oidc_mapping_file": str(mapping),
            "oidc_provider_name": "Example ID",
            **settings,
        }
        async with gateway(nats_url, dsn, **fields) as api:
            await api.owners.accept(SubmitTask)
            await api.owners.answer(ListTasks, TaskList(tasks=()))
            await api.owners.answer(GetTask, lambda q: make_task_view(q.task_id, namespace="a"))
            yield World(api, provider)


@pytest.fixture
async def world(nats_url: str, postgres_dsn: str, tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(nats_url, postgres_dsn, tmp_path) as running:
        yield running


@pytest.fixture
async def visitor(world: World) -> AsyncIterator[PageVisitor]:
    visiting = PageVisitor(world)
    yield visiting
    await visiting.session.close()


@pytest.fixture
def due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider is asked with every request, and streams look at their rights at once."""
    for module in (sign_ins, bearer):
        monkeypatch.setattr(module, "RECHECK_SECONDS", 0.0)
        monkeypatch.setattr(module, "AWAY_SECONDS", 0.0)
    monkeypatch.setattr(access_control, "RIGHTS_SECONDS", 0.05)


async def test_browser_signs_in_and_out(world: World, visitor: PageVisitor) -> None:
    signed_in = await visitor.sign_in("olga")
    _, me = await visitor.call("GET", "/me")
    without, _ = await visitor.call("POST", "/sign-out")
    out, answer = await visitor.call("POST", "/sign-out", me["csrf_token"])
    after, _ = await visitor.call("GET", "/me")

    assert (signed_in.status, signed_in.headers["Location"]) == (302, "/tasks")
    assert (me["name"], me["person"], me["role"], me["provider"]) == (
        "olga", "olga", "owner", "Example ID",
    )  # fmt: skip
    assert (me["namespaces"], me["roles"]) == (["a", "b"], {"b": "viewer"})
    assert me["ends_at"] is not None
    assert (without, out, after) == (403, 200, 401)
    query = parse_qs(urlsplit(answer["provider_url"]).query)
    assert query["post_logout_redirect_uri"] == [world.api.url]
    assert query["id_token_hint"][0].count(".") == 2
    assert len(world.provider.revoked) == 1


async def test_offer_is_open_and_names_the_provider(world: World) -> None:
    status, offer = await world.api.get("/api/v1/sign-in")

    assert status == 200
    assert (offer["provider"], offer["has_device_flow"]) == ("Example ID", True)


async def test_callback_counts_once_and_for_its_browser(world: World, visitor: PageVisitor) -> None:
    address = await visitor.come_back()
    stranger = PageVisitor(world)
    foreign = await stranger.go(address)
    own = await visitor.go(address)
    again = await visitor.go(address)
    page = await again.text()
    await stranger.session.close()

    assert (foreign.status, own.status, again.status) == (401, 302, 401)
    assert "was not begun by this browser" in page
    assert "default-src 'none'" in again.headers["Content-Security-Policy"]


async def test_token_with_another_nonce_signs_nobody_in(world: World, visitor: PageVisitor) -> None:
    world.provider.nonce = "of another sign-in"

    refused = await visitor.sign_in("ada")

    assert refused.status == 401
    assert "another nonce" in await refused.text()


async def test_what_the_provider_says_is_escaped(world: World, visitor: PageVisitor) -> None:
    back = urlsplit(await visitor.come_back())
    state = parse_qs(back.query)["state"][0]

    refused = await visitor.go(f"{back.path}?state={state}&error=<script>alert(1)</script>")
    page = await refused.text()

    assert refused.status == 401
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("place", ["https://evil.example", "//evil.example", "/\\evil.example"])
async def test_sign_in_leads_to_no_other_site(visitor: PageVisitor, place: str) -> None:
    back = await visitor.go(await visitor.come_back(place))

    assert back.headers["Location"] == "/"


async def test_who_has_no_role_does_not_come_in(world: World, visitor: PageVisitor) -> None:
    refused = await visitor.sign_in("eve")
    page = await refused.text()
    token = world.provider.access_token("eve")
    by_token, problem = await world.get(token)

    assert (refused.status, by_token) == (401, 401)
    assert "you are eve of groups else" in page
    assert "none of that has a role here" in problem["detail"]


async def test_code_signs_a_command_line_in(world: World) -> None:
    _, code = await world.api.post("/api/v1/sign-in/device", {"client": "laptop"})
    early, pending = await world.api.post("/api/v1/sign-in/device/answer", {"code": code["code"]})
    secret = await world.sign_in_by_device("ada")
    _, me = await world.get(secret)
    made, _ = await world.call(secret, "POST", "/tasks", TASK)
    foreign, _ = await world.call(secret, "POST", "/tasks?namespace=b", TASK)
    unknown, _ = await world.api.post("/api/v1/sign-in/device/answer", {"code": "none"})
    out, _ = await world.call(secret, "POST", "/sign-out")
    after, _ = await world.get(secret)

    assert code["user_code"] == "ABCD-EFGH"
    assert (early, pending["state"], pending["secret"]) == (200, "pending", None)
    assert (me["name"], me["role"], me["namespaces"]) == ("ada", "submitter", ["a"])
    assert (made, foreign, unknown, out, after) == (201, 403, 401, 200, 401)


@pytest.mark.usefixtures("due_at_once")
async def test_taken_away_groups_and_people_count_no_more(
    world: World, visitor: PageVisitor
) -> None:
    secret = await world.sign_in_by_device("olga")
    await visitor.sign_in("ada")
    olga = world.provider.accounts["olga"]

    _, before = await world.get(secret)
    olga.groups = ["team-b"]
    _, less = await world.get(secret)
    olga.is_enabled = False
    gone, problem = await world.get(secret)
    olga.is_enabled = True
    still_gone, _ = await world.get(secret)
    _, other = await visitor.call("GET", "/me")

    assert (before["role"], before["namespaces"]) == ("owner", ["a", "b"])
    assert (less["role"], less["namespaces"]) == ("viewer", ["b"])
    assert (gone, still_gone) == (401, 401)
    assert problem["detail"] == "Example ID says no: User disabled; sign in again"
    assert other["name"] == "ada"


@pytest.mark.usefixtures("due_at_once")
async def test_without_refresh_tokens_user_info_is_asked(world: World) -> None:
    world.provider.gives_refresh_tokens = False
    secret = await world.sign_in_by_device("ada")

    before, _ = await world.get(secret)
    world.provider.accounts["ada"].is_enabled = False
    after, _ = await world.get(secret)

    assert (before, after) == (200, 401)


@pytest.mark.usefixtures("due_at_once")
async def test_stream_ends_with_the_rights_it_began_with(world: World) -> None:
    secret = await world.sign_in_by_device("olga")
    headers = {"Authorization": f"Bearer {secret}"}

    for path in ("/ws/events", "/ws/metrics"):
        socket = await world.api.session.ws_connect(f"{world.api.url}{path}", headers=headers)
        groups = world.provider.accounts["olga"].groups
        world.provider.accounts["olga"].groups = groups[:-1]
        closed = await socket.receive(timeout=30)
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1008)


async def test_provider_away_lets_nobody_new_in(
    world: World, visitor: PageVisitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, token = await world.sign_in_by_device("ada"), world.provider.access_token("ada")
    await visitor.sign_in("ada")
    assert (await world.get(token))[0] == 200
    new = world.provider.access_token("olga", iat=int(time.time()) - 1000)
    for module in (sign_ins, bearer):
        monkeypatch.setattr(module, "RECHECK_SECONDS", 0.0)
    world.provider.is_away = True

    inside = [
        (await world.get(secret))[0],
        (await world.get(token))[0],
        (await visitor.call("GET", "/me"))[0],
    ]
    stranger = PageVisitor(world)
    outside = [
        (await stranger.go("/sign-in/start")).status,
        (await world.api.post("/api/v1/sign-in/device", {}))[0],
        (await world.get(new))[0],
    ]
    await stranger.session.close()

    assert inside == [200, 200, 200]
    assert outside == [302, 503, 503]  # where to sign in is known from before; nobody does there


async def test_provider_away_for_too_long_ends_sign_ins(
    nats_url: str, postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recheck_seconds = 1.0
    for module in (sign_ins, bearer):
        monkeypatch.setattr(module, "RECHECK_SECONDS", recheck_seconds)
        monkeypatch.setattr(module, "AWAY_SECONDS", 0.0)
    async with a_world(nats_url, postgres_dsn, tmp_path, oidc_grace_minutes=0) as world:
        secret, token = await world.sign_in_by_device("ada"), world.provider.access_token("ada")
        before = [(await world.get(each))[0] for each in (secret, token)]
        world.provider.is_away = True
        await asyncio.sleep(recheck_seconds)
        away = [await world.get(each) for each in (secret, token)]
        world.provider.is_away = False
        back = [(await world.get(each))[0] for each in (secret, token)]

    assert (before, [status for status, _ in away], back) == ([200, 200], [401, 401], [200, 200])
    assert "try again once it answers" in away[0][1]["detail"]
    assert "try again once it answers" in away[1][1]["detail"]


async def test_access_token_counts_as_its_person(world: World) -> None:
    token = world.provider.access_token("ada")

    _, me = await world.get(token)
    made, _ = await world.call(token, "POST", "/tasks", TASK)
    again, _ = await world.get(token)

    assert (me["name"], me["role"], me["provider"], me["token_id"]) == (
        "ada", "submitter", "Example ID", None,
    )  # fmt: skip
    assert (made, again) == (201, 200)
    # A fresh token is the provider's word: it was asked for its keys alone.
    assert world.provider.requests.count("/userinfo") == 0


@pytest.mark.usefixtures("due_at_once")
async def test_access_token_is_asked_about_again(world: World) -> None:
    by_user_info = world.provider.access_token("ada")
    by_introspection = world.provider.access_token("olga", scope="")

    before = [(await world.get(each))[0] for each in (by_user_info, by_introspection)]
    world.provider.accounts["ada"].groups = []
    world.provider.accounts["olga"].is_enabled = False
    after = [await world.get(each) for each in (by_user_info, by_introspection)]

    assert before == [200, 200]
    assert [status for status, _ in after] == [401, 401]
    assert "of no groups" in after[0][1]["detail"]
    assert after[1][1]["detail"] == "Example ID says that this token counts no more"
    assert {"/userinfo", "/introspect"} <= set(world.provider.requests)


async def test_forged_and_foreign_tokens_are_refused(world: World) -> None:
    provider = world.provider
    good = provider.claims_of("ada", AUDIENCE, scope="openid")
    stranger = openid_provider.LocalProvider(issuer=provider.issuer)
    header, body, signature = provider.sign(good).split(".")
    nobody = openid_provider.unsigned(good)
    now = int(time.time())
    tokens = {
        "expected a token that the provider has signed": f"{header}.{body}.{signature[:-6]}AAAAAA",
        "found another (": stranger.sign(good, kid=provider.key.kid),
        "found none": nobody,
        "found HS256": openid_provider.signed_with_secret(good, provider.key),
        "found one for them": provider.sign({**good, "aud": "them"}),
        "found one of https://evil": provider.sign({**good, "iss": "https://evil.example"}),
        "expired": provider.sign({**good, "exp": now - 100}),
        "does so in": provider.sign({**good, "nbf": now + 1000}),
        "found one of the type ID": provider.sign({**good, "typ": "ID"}),
    }

    for sentence, token in tokens.items():
        status, problem = await world.get(token)
        assert status == 401, sentence
        assert sentence in problem["detail"]
    assert (await world.get(provider.sign(good)))[0] == 200


async def test_rotated_keys_are_read_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from services.gateway.provider import keys

    monkeypatch.setattr(keys, "REFETCH_SECONDS", 0.0)
    old = world.provider.access_token("ada")
    before, _ = await world.get(old)
    unused = world.provider.access_token("ada")
    world.provider.rotate()
    new, _ = await world.get(world.provider.access_token("ada"))
    with_old_key, _ = await world.get(unused)
    fetched = world.provider.requests.count("/keys")
    monkeypatch.setattr(keys, "REFETCH_SECONDS", 60.0)
    for _ in range(3):
        await world.get(world.provider.sign({}, kid="made up"))

    assert (before, new, with_old_key) == (200, 200, 401)
    assert world.provider.requests.count("/keys") == fetched


async def test_personal_token_goes_with_its_person(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, other = [await world.sign_in_by_device(name) for name in ("ada", "olga")]
    body = {"name": "nightly", "role": "submitter", "namespaces": ["a"], "personal": True}
    status, made = await world.call(secret, "POST", "/tokens", body)
    more, _ = await world.call(secret, "POST", "/tokens", {**body, "role": "owner"})
    _, mine = await world.get(secret, "/tokens?mine=true")
    _, others = await world.get(other, "/tokens")
    foreign, _ = await world.call(other, "DELETE", f"/tokens/{made['token']['token_id']}")
    _, me = await world.get(made["secret"])
    monkeypatch.setattr(sign_ins, "RECHECK_SECONDS", 0.0)
    world.provider.accounts["ada"].is_enabled = False
    gone, _ = await world.get(made["secret"])

    assert (status, more, foreign, gone) == (201, 403, 404, 401)
    assert [(token["name"], token["is_session"]) for token in mine["tokens"]] == [
        ("nightly", False),
        ("laptop", True),
    ]
    assert [token["name"] for token in others["tokens"]] == ["laptop"]
    assert (me["person"], me["role"], me["namespaces"]) == ("ada", "submitter", ["a"])


async def test_service_tokens_outlive_who_made_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = await world.sign_in_by_device("olga")
    body = {"name": "ci", "role": "submitter", "namespaces": ["a"]}
    status, made = await world.call(secret, "POST", "/tokens", body)
    outside, _ = await world.call(secret, "POST", "/tokens", {**body, "namespaces": ["a", "b"]})
    monkeypatch.setattr(sign_ins, "RECHECK_SECONDS", 0.0)
    world.provider.accounts["olga"].is_enabled = False
    gone, _ = await world.get(secret)
    _, me = await world.get(made["secret"])

    assert (status, outside, gone) == (201, 403, 401)
    assert (me["person"], me["role"], me["provider"]) == ("a/ci", "submitter", None)


async def test_members_count_at_once(world: World) -> None:
    olga, ada = [await world.sign_in_by_device(name) for name in ("olga", "ada")]

    status, member = await world.call(
        olga, "POST", "/namespaces/a/members", {"name": "eve", "role": "viewer"}
    )
    eve = await world.sign_in_by_device("eve")
    _, seen = await world.get(eve)
    again, changed = await world.call(
        olga, "POST", "/namespaces/a/members", {"name": "eve", "role": "submitter"}
    )
    _, more = await world.get(eve)
    listed = [await world.get(each, "/namespaces/a/members") for each in (olga, ada)]
    elsewhere = [
        (await world.get(olga, "/namespaces/b/members"))[0],
        (await world.call(olga, "POST", "/namespaces/b/members", {"name": "eve"}))[0],
        (await world.call(olga, "DELETE", f"/namespaces/b/members/{member['member_id']}"))[0],
        (await world.call(olga, "POST", "/namespaces/a/members", {"name": "e", "role": "admin"}))[
            0
        ],
    ]
    removed, _ = await world.call(olga, "DELETE", f"/namespaces/a/members/{member['member_id']}")
    after, _ = await world.get(eve)

    assert (status, again, removed, after) == (201, 201, 200, 401)
    assert (seen["role"], seen["namespaces"]) == ("viewer", ["a"])
    assert (changed["member_id"], more["role"]) == (member["member_id"], "submitter")
    assert [(code, len(body.get("members", ()))) for code, body in listed] == [(200, 1), (403, 0)]
    assert elsewhere == [403, 403, 403, 400]


async def test_tokens_of_a_file_that_is_gone_count_not(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with admins(nats_url, postgres_dsn, tmp_path) as (of_file,):
        assert (await of_file.get("/api/v1/me"))[0] == 200

    async with a_world(nats_url, postgres_dsn, tmp_path) as world:
        status, _ = await world.get(of_file.secret)

    assert status == 401


async def test_sign_ins_are_in_the_audit_log(world: World, visitor: PageVisitor) -> None:
    root = await world.sign_in_by_device("root")
    await visitor.sign_in("eve")
    await visitor.sign_in("ada")
    _, log = await world.get(root, "/audit")

    entries = [(each["path"], each["caller"], each["status"]) for each in log["entries"]]
    assert entries[:2] == [("/sign-in/callback", "ada", 302), ("/sign-in/callback", "eve", 401)]
    assert ("/api/v1/sign-in/device/answer", "root", 200) in entries
    assert "code=" not in str(log)
