"""Signing in at a real Keycloak: by its pages, by a code, by its tokens; and what it takes back."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.async_api import expect
from yarl import URL

from schemas.orchestrator.views import ListTasks, TaskList
from services.gateway.domain import claims
from services.gateway.http import access_control
from services.gateway.ledger import sign_ins
from services.gateway.provider import keys
from services.gateway.sign_in import bearer
from shared.testing import eventually
from tests.real.cli.test_sign_in import Shell
from tests.support.keycloak.install import missing
from tests.support.keycloak.server import (
    AUDIENCE,
    CLIENT,
    Keycloak,
    Realm,
    a_browser,
    a_realm,
    running_keycloak,
)
from tests.support.web import browser
from tests.support.worlds.gateway import Api, gateway

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MAPPING = """
[[rule]]
group = "gpu-admins"
role = "admin"

[[rule]]
group = "team-a"
role = "submitter"
namespaces = ["a"]

[[rule]]
group = "leads-a"
role = "owner"
namespaces = ["a", "shared"]
"""
ROLES = {
    "ada": ("submitter", ["a"]),
    "olga": ("owner", ["a", "shared"]),
    "root": ("admin", ["default"]),
}


@dataclass
class World:
    """A gateway beside a realm."""

    api: Api
    realm: Realm
    browsers: list[aiohttp.ClientSession] = field(default_factory=list)

    async def get(self, token: str, path: str = "/me") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        return await self.api.get(f"/api/v1{path}", headers=headers)

    async def sign_in_by_device(self, name: str) -> str:
        """The session's token of who confirmed a code at Keycloak's pages."""
        _, code = await self.api.post("/api/v1/sign-in/device", {"client": "laptop"})
        await self.realm.confirm_device(code["complete_url"], name)
        secret = ""

        async def is_there() -> bool:
            nonlocal secret
            _, answer = await self.api.post("/api/v1/sign-in/device/answer", {"code": code["code"]})
            secret = answer["secret"] or ""
            return bool(secret)

        await eventually(is_there, within_seconds=60, what="a session")
        return secret

    async def sign_in_by_form(self, name: str) -> aiohttp.ClientSession:
        """A browser's session, as far as its cookies go, of who filled Keycloak's form in."""
        session = a_browser(self.realm.server.url)
        self.browsers.append(session)
        async with session.get(f"{self.api.url}/sign-in/start?place=/healthz") as response:
            page = await response.text()
        await self.realm.fill_login_form(session, page, name)
        return session

    async def me(self, session: aiohttp.ClientSession) -> tuple[int, Any]:
        async with session.get(f"{self.api.url}/api/v1/me") as response:
            return response.status, await response.json(content_type=None)


@pytest.fixture(scope="session")
def keycloak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keycloak]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with running_keycloak(tmp_path_factory.mktemp("keycloak")) as server:
        yield server


@asynccontextmanager
async def a_world(
    keycloak: Keycloak, nats_url: str, dsn: str, tmp_path: Path, **settings: Any
) -> AsyncIterator[World]:
    async with a_realm(keycloak) as realm:
        mapping, secret = tmp_path / "mapping.toml", tmp_path / "secret"
        mapping.write_text(MAPPING)
        secret.write_text(realm.secret)
        fields = {
            "oidc_issuer": realm.issuer,
            "oidc_client_id": CLIENT,
            "oidc_client_secret_file": str(secret),
            "oidc_audience": AUDIENCE,
            "oidc_mapping_file": str(mapping),
            "oidc_provider_name": "Keycloak",
            **settings,
        }
        async with gateway(nats_url, dsn, **fields) as api:
            await api.owners.answer(ListTasks, TaskList(tasks=()))
            world = World(api, realm)
            try:
                yield world
            finally:
                for session in world.browsers:
                    await session.close()


@pytest.fixture
async def world(
    keycloak: Keycloak, nats_url: str, postgres_dsn: str, tmp_path: Path
) -> AsyncIterator[World]:
    async with a_world(keycloak, nats_url, postgres_dsn, tmp_path) as running:
        yield running


def ask_again_after(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of four minutes."""
    for module in (sign_ins, bearer):
        monkeypatch.setattr(module, "RECHECK_SECONDS", seconds)
        monkeypatch.setattr(module, "AWAY_SECONDS", 0.0)
    monkeypatch.setattr(access_control, "RIGHTS_SECONDS", 0.1)


async def test_three_groups_are_three_roles_by_every_way_in(world: World) -> None:
    for name, (role, namespaces) in ROLES.items():
        session = await world.sign_in_by_form(name)
        by_device = await world.sign_in_by_device(name)
        by_program = await world.realm.access_token(name)
        answers = [
            await world.me(session),
            await world.get(by_device),
            await world.get(by_program),
        ]

        for status, me in answers:
            assert (status, me["name"], me["role"], me["namespaces"], me["provider"]) == (
                200, name, role, namespaces, "Keycloak",
            )  # fmt: skip


async def test_who_leaves_a_group_or_the_house_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, olga = [await world.sign_in_by_form(name) for name in ("ada", "olga")]
    token, program = await world.sign_in_by_device("olga"), await world.realm.access_token("olga")
    socket = await world.api.session.ws_connect(
        f"{world.api.url}/ws/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    ask_again_after(0.0, monkeypatch)
    before = [await world.me(ada), await world.me(olga), await world.get(program)]

    await world.realm.leave("olga", "leads-a")
    without_group = [await world.me(olga), await world.get(token), await world.get(program)]
    closed = await socket.receive(timeout=60)
    await world.realm.set_enabled("ada", False)
    disabled = await world.me(ada)

    assert [status for status, _ in before] == [200, 200, 200]
    assert [status for status, _ in without_group] == [401, 401, 401]
    assert "none of that has a role here" in without_group[0][1]["detail"]
    assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1008)
    assert disabled[0] == 401
    assert "Keycloak says no" in disabled[1]["detail"]


async def test_rotated_realm_keys_sign_in_the_old_ones_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "REFETCH_SECONDS", 0.0)
    used, unused = [await world.realm.access_token("ada") for _ in range(2)]
    before, _ = await world.get(used)

    await world.realm.rotate_keys()
    new = [
        (await world.get(await world.realm.access_token("ada")))[0],
        (await world.get(await world.sign_in_by_device("ada")))[0],
    ]
    old, problem = await world.get(unused)

    assert (before, new, old) == (200, [200, 200], 401)
    assert "expected a token that the provider has signed" in problem["detail"]


async def test_keycloak_away_keeps_who_is_in_and_others_out(
    world: World, keycloak: Keycloak, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, token = await world.sign_in_by_form("ada"), await world.sign_in_by_device("ada")
    program = await world.realm.access_token("ada")
    assert (await world.get(program))[0] == 200
    ask_again_after(0.0, monkeypatch)
    monkeypatch.setattr(sign_ins, "AWAY_SECONDS", 60.0)
    monkeypatch.setattr(bearer, "AWAY_SECONDS", 60.0)

    with keycloak.away():
        inside = [
            (await world.me(session))[0],
            (await world.get(token))[0],
            (await world.get(program))[0],
        ]
        nobody_new, problem = await world.api.post("/api/v1/sign-in/device", {})
        ask_again_after(-1e9, monkeypatch)  # as if the bounded time were over
        too_long = [(await world.me(session))[0], (await world.get(token))[0]]
    ask_again_after(0.0, monkeypatch)
    monkeypatch.setattr(sign_ins, "AWAY_SECONDS", 0.0)
    back = 0

    async def is_back() -> bool:
        nonlocal back
        back = (await world.me(session))[0]
        return back == 200

    await eventually(is_back, within_seconds=120, what="the session again")

    assert inside == [200, 200, 200]
    assert nobody_new == 503
    assert "the provider does not answer" in problem["detail"]
    assert too_long == [401, 401]


async def test_tokens_for_others_forged_and_expired_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (claims, bearer):
        monkeypatch.setattr(module, "LEEWAY_SECONDS", 1.0)
    good = await world.realm.access_token("ada")
    foreign = await world.realm.access_token("ada", client="another-program")
    await world.realm.administer("PUT", f"/{world.realm.name}", {"accessTokenLifespan": 1})
    short, issued_at = await world.realm.access_token("ada"), time.monotonic()
    header, body, signature = good.split(".")
    unsigned = re.sub(r"^[^.]+", "eyJhbGciOiJub25lIn0", good).rpartition(".")[0] + "."
    refused = {
        "found one for somewhere-else": foreign,
        "found none": unsigned,
        "that the provider has signed": f"{header}.{body}.{signature[:-8]}AAAAAAAA",
    }

    assert (await world.get(good))[0] == 200
    for sentence, token in refused.items():
        status, problem = await world.get(token)
        assert status == 401, sentence
        assert sentence in problem["detail"]
    await asyncio.sleep(max(0.0, issued_at + 3 - time.monotonic()))
    status, problem = await world.get(short)
    assert (status, "expired" in problem["detail"]) == (401, True)


async def test_answer_to_another_nonce_signs_nobody_in(world: World) -> None:
    session = a_browser(world.realm.server.url)
    world.browsers.append(session)
    start = f"{world.api.url}/sign-in/start?place=/healthz"
    async with session.get(start, allow_redirects=False) as response:
        address = response.headers["Location"]
    altered, count = re.subn(r"nonce=[^&]+", "nonce=of-somebody-else", address)
    async with session.get(URL(altered, encoded=True)) as response:
        page = await response.text()

    answer = await world.realm.fill_login_form(session, page, "ada")

    assert count == 1
    assert "found one with another nonce" in answer
    assert (await world.me(session))[0] == 401


async def test_command_line_signs_in_at_keycloak(world: World, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    process = await shell.start("login", world.api.url, "--no-browser")
    assert process.stderr is not None
    address = ""
    while "user_code=" not in address:
        address = (await process.stderr.readline()).decode()
    await world.realm.confirm_device(address.split()[-1], "olga")
    out, err = await process.communicate(b"")
    listed = await shell.run("tasks")
    left = await shell.run("logout")

    assert await process.wait() == 0, err
    assert out.decode().endswith("as olga, owner of a, owner of shared\n")
    assert (listed.code, left.code) == (0, 0)


async def test_browser_signs_in_and_out_at_keycloak(world: World) -> None:
    if (reason := browser.missing()) is not None:
        pytest.skip(reason)
    async with browser.chromium() as running:
        page = await (await running.new_context(locale="en-US")).new_page()
        page.set_default_timeout(browser.PATIENCE_MS)
        await page.goto(world.api.url)
        await page.get_by_role("link", name="Sign in with Keycloak").click()
        await page.get_by_label("Username or email").fill("olga")
        await page.locator("#password").fill("olga")
        await page.locator("#kc-login").click()
        await page.wait_for_url(f"{world.api.url}/**")
        await page.goto(f"{world.api.url}/account")
        await expect(page.get_by_role("main")).to_contain_text("olga")
        await expect(page.get_by_role("main")).to_contain_text("Keycloak")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("link", name="Sign in with Keycloak")).to_be_visible()
        # The session at Keycloak has ended as well: it asks for the password again.
        await page.get_by_role("link", name="Sign in with Keycloak").click()
        await expect(page.locator("#kc-login")).to_be_visible()
