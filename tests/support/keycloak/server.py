"""A Keycloak that runs, and a realm in it: what an administrator of it does, and a person."""

import html
import os
import re
import secrets
import signal
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import aiohttp

from tests.support.keycloak.install import home
from tests.support.ports import free_port

ADMIN: Final = "admin"
CLIENT: Final = "gpusteward"
AUDIENCE: Final = "gpusteward-api"
START_SECONDS: Final = 300
FORM: Final = re.compile(r'<form[^>]*action="([^"]+)"')
KEY_PROVIDER: Final = "org.keycloak.keys.KeyProvider"
GROUPS: Final = {"ada": "team-a", "olga": "leads-a", "root": "gpu-admins"}


@dataclass
class Keycloak:
    """A server of one run of the tests; its database is in memory."""

    url: str
    process: subprocess.Popen[bytes]

    @contextmanager
    def away(self) -> Iterator[None]:
        """It answers nothing, as one that hangs."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)


@contextmanager
def running_keycloak(directory: Path) -> Iterator[Keycloak]:
    port = free_port()
    log = directory / "keycloak.log"
    environment = {
        **os.environ,
        "KC_BOOTSTRAP_ADMIN_USERNAME": ADMIN,
        "KC_BOOTSTRAP_ADMIN_PASSWORD": ADMIN,
        "JAVA_OPTS_APPEND": "-XX:TieredStopAtLevel=1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                str(home() / "bin" / "kc.sh"),
                *("start", "--optimized", "--http-enabled=true", "--hostname-strict=false"),
                *("--http-host=127.0.0.1", f"--http-port={port}"),
            ],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    server = Keycloak(f"http://127.0.0.1:{port}", process)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(server.url):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.5)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGCONT)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/realms/master", timeout=5) as answer:  # noqa: S310
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


@dataclass
class Realm:
    """A realm with three people in three groups, and a client for the platform."""

    server: Keycloak
    session: aiohttp.ClientSession
    name: str = field(default_factory=lambda: f"realm-{secrets.token_hex(4)}")
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(16))

    @property
    def issuer(self) -> str:
        return f"{self.server.url}/realms/{self.name}"

    async def administer(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the Admin API."""
        login = {
            "grant_type": "password",
            "client_id": "admin-cli",
            "username": ADMIN,
            "password": ADMIN,
        }
        tokens = f"{self.server.url}/realms/master/protocol/openid-connect/token"
        async with self.session.post(tokens, data=login) as response:
            token = (await response.json())["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self.server.url}/admin/realms{path}"
        async with self.session.request(method, url, json=body, headers=headers) as response:
            text = await response.text()
            assert response.status < 300, (path, response.status, text)
            return await response.json() if text else None

    async def create(self) -> None:
        people = [
            {
                "username": name,
                "enabled": True,
                "email": f"{name}@example.org",
                "emailVerified": True,
                "firstName": name,
                "lastName": "Example",
                "credentials": [{"type": "password", "value": name, "temporary": False}],
                "groups": [f"/{group}"],
            }
            for name, group in GROUPS.items()
        ]
        await self.administer(
            "POST",
            "",
            {
                "realm": self.name,
                "enabled": True,
                "sslRequired": "none",
                "groups": [{"name": group} for group in GROUPS.values()],
                "users": people,
                "clients": [
                    self._client(CLIENT, audience=AUDIENCE),
                    self._client("another-program", audience="somewhere-else"),
                ],
            },
        )

    def _client(self, client_id: str, *, audience: str) -> dict[str, Any]:
        everywhere = {
            "id.token.claim": "true",
            "access.token.claim": "true",
            "userinfo.token.claim": "true",
            "introspection.token.claim": "true",
        }
        return {
            "clientId": client_id,
            "secret": self.secret,
            "redirectUris": ["http://127.0.0.1/*", "*"],
            "directAccessGrantsEnabled": True,
            "attributes": {
                "oauth2.device.authorization.grant.enabled": "true",
                "oauth2.device.polling.interval": "1",
                "post.logout.redirect.uris": "+",
            },
            "protocolMappers": [
                {
                    "name": "groups",
                    "protocol": "openid-connect",
                    "protocolMapper": "oidc-group-membership-mapper",
                    "config": {"claim.name": "groups", "full.path": "false", **everywhere},
                },
                {
                    "name": "audience",
                    "protocol": "openid-connect",
                    "protocolMapper": "oidc-audience-mapper",
                    "config": {"included.custom.audience": audience, "access.token.claim": "true"},
                },
            ],
        }

    async def person(self, name: str) -> str:
        """The id of somebody."""
        (found,) = await self.administer("GET", f"/{self.name}/users?username={name}&exact=true")
        return str(found["id"])

    async def leave(self, name: str, group: str) -> None:
        groups = await self.administer("GET", f"/{self.name}/groups")
        (group_id,) = [each["id"] for each in groups if each["name"] == group]
        await self.administer(
            "DELETE", f"/{self.name}/users/{await self.person(name)}/groups/{group_id}"
        )

    async def join(self, name: str, group: str) -> None:
        groups = await self.administer("GET", f"/{self.name}/groups")
        (group_id,) = [each["id"] for each in groups if each["name"] == group]
        await self.administer(
            "PUT", f"/{self.name}/users/{await self.person(name)}/groups/{group_id}", {}
        )

    async def set_enabled(self, name: str, is_enabled: bool) -> None:
        path = f"/{self.name}/users/{await self.person(name)}"
        await self.administer("PUT", path, {"enabled": is_enabled})

    async def rotate_keys(self) -> None:
        """A new key signs, and what the old one signed counts no more."""
        realm_id = (await self.administer("GET", f"/{self.name}"))["id"]
        path = f"/{self.name}/components?type={KEY_PROVIDER}"
        old = await self.administer("GET", path)
        new = {
            "name": f"rsa-{secrets.token_hex(4)}",
            "providerId": "rsa-generated",
            "providerType": KEY_PROVIDER,
            "parentId": realm_id,
            "config": {"priority": ["200"], "algorithm": ["RS256"]},
        }
        await self.administer("POST", f"/{self.name}/components", new)
        for each in old:
            if each["providerId"] == "rsa-generated":
                await self.administer("DELETE", f"/{self.name}/components/{each['id']}")

    async def access_token(self, name: str, client: str = CLIENT, scope: str = "openid") -> str:
        """A token as a program of somebody gets it."""
        form = {
            "grant_type": "password",
            "client_id": client,
            "client_secret": self.secret,
            "username": name,
            "password": name,
            "scope": scope,
        }
        url = f"{self.issuer}/protocol/openid-connect/token"
        async with self.session.post(url, data=form) as response:
            answer = await response.json()
        assert response.status == 200, answer
        return str(answer["access_token"])

    async def fill_login_form(self, session: aiohttp.ClientSession, page: str, name: str) -> str:
        """Answer the login page as somebody does; return the page that follows."""
        form = {"username": name, "password": name}
        async with session.post(self._action_in(page), data=form) as response:
            return await response.text()

    async def confirm_device(self, url: str, name: str) -> None:
        """Open the address with the code in it, log in, and say yes."""
        async with a_browser(self.server.url) as session:
            async with session.get(url) as response:
                page = await response.text()
            page = await self.fill_login_form(session, page, name)
            async with session.post(self._action_in(page), data={"accept": "Yes"}) as response:
                assert "Device Login Successful" in await response.text()

    def _action_in(self, page: str) -> str:
        """Where the page's form is sent."""
        match = FORM.search(page)
        assert match is not None, page[:2000]
        return urljoin(self.server.url, html.unescape(match[1]))


def a_browser(url: str) -> aiohttp.ClientSession:
    """A session with cookies, which takes this machine's own address for safe as browsers do."""
    jar = aiohttp.CookieJar(unsafe=True, treat_as_secure_origin=url)
    return aiohttp.ClientSession(cookie_jar=jar)


@asynccontextmanager
async def a_realm(server: Keycloak) -> AsyncIterator[Realm]:
    async with aiohttp.ClientSession() as session:
        realm = Realm(server, session)
        await realm.create()
        yield realm
