"""`gpusteward login`, `logout` and `context`, at real gateways beside a small provider."""

import asyncio
import json
import os
import re
import stat
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from shared.testing import eventually
from tests.real.gateway.test_sign_in import World, a_world
from tests.support.processes.command_line import CommandProcess, Ended, start_command
from tests.support.worlds.gateway import gateway


class Shell:
    """A user's terminal, in a home of its own, with no keyring."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_DATA_HOME": str(home / "data"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
            "COLUMNS": "200",
        }
        self.contexts = home / "config" / "gpusteward" / "contexts.json"

    async def start(self, *arguments: str, **variables: str) -> CommandProcess:
        environment = {**self.environment, **variables}
        return await start_command(*arguments, environment=environment, stdin=PIPE)

    async def run(self, *arguments: str, text: str = "", **variables: str) -> Ended:
        process = await self.start(*arguments, **variables)
        out, err = await process.communicate(text.encode())
        return Ended(await process.wait(), out.decode(), err.decode())

    async def sign_in(self, world: World, name: str, *further: str) -> Ended:
        process = await self.start("login", world.api.url, "--no-browser", *further)
        await eventually(
            lambda: world.provider.requests.count("/device") > 0, what="a code", within_seconds=60
        )
        confirming = asyncio.create_task(self._confirm(world, name))
        out, err = await process.communicate(b"")
        confirming.cancel()
        return Ended(await process.wait(), out.decode(), err.decode())

    async def _confirm(self, world: World, name: str) -> None:
        while True:
            world.provider.confirm_device(name)
            await asyncio.sleep(0.1)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    home = tmp_path / "home"
    home.mkdir()
    return Shell(home)


async def test_login_stores_the_context_that_commands_mean(
    nats_url: str, postgres_dsn: str, tmp_path: Path, shell: Shell
) -> None:
    async with a_world(nats_url, postgres_dsn, tmp_path) as world:
        signed_in = await shell.sign_in(world, "ada")
        tasks = await shell.run("tasks")
        listed = await shell.run("context", "list")
        as_json = await shell.run("context", "list", "--json")
        mine = await shell.run("token", "list", "--mine")
        mode = stat.S_IMODE(shell.contexts.stat().st_mode)
        token = json.loads(shell.contexts.read_bytes())["contexts"][0]["token"]
        out = await shell.run("logout")
        again = await shell.run("logout")
        after = await shell.run("tasks")
        status, _ = await world.get(token)

    assert signed_in.code == 0, signed_in.err
    assert signed_in.out == f"signed in to {world.api.url} as ada, submitter of a\n"
    assert re.search(
        r"Open \S+/device and enter the code ABCD-EFGH within 10 minutes", signed_in.err
    )
    assert (tasks.code, listed.code, mode) == (0, 0, 0o600)
    (context,) = json.loads(as_json.out)
    assert (context["name"], context["is_current"], context["token"]) == ("127.0.0.1", True, "file")
    assert token not in listed.out + as_json.out + signed_in.out + signed_in.err
    assert len(mine.out.splitlines()) == 2
    assert (out.code, again.code, after.code, status) == (0, 0, 4, 401)
    assert "gpusteward login URL" in after.err
    assert token not in shell.contexts.read_text()


async def test_several_platforms_stand_side_by_side(
    nats_url: str, postgres_dsn: str, tmp_path: Path, shell: Shell
) -> None:
    async with (
        a_world(nats_url, postgres_dsn, tmp_path) as one,
        gateway(nats_url, postgres_dsn) as two,
    ):
        _, made = await two.post(
            "/api/v1/tokens", {"name": "bob", "role": "viewer", "namespaces": ["b"]}
        )
        await shell.sign_in(one, "root", "--context", "one")
        by_token = await shell.run(
            "login", two.url, "--token-file", "-", "--context", "two", text=made["secret"]
        )
        second = await shell.run("token", "list", "--mine")
        used = await shell.run("context", "use", "one")
        first = await shell.run("token", "list", "--mine")
        elsewhere = await shell.run("token", "list", "--mine", GPUSTEWARD_URL=two.url)
        wrong = await shell.run("tasks", GPUSTEWARD_TOKEN="wrong")
        removed = await shell.run("context", "remove", "two")
        left = await shell.run("context", "list", "--json")
        unknown = await shell.run("context", "use", "two")

    assert by_token.out == f"signed in to {two.url} as bob, viewer of b\n"
    assert " bob " in second.out
    assert used.out == f"commands mean {one.api.url} from now on\n"
    assert " bob " not in first.out
    assert " bob " in elsewhere.out
    assert (wrong.code, removed.code, unknown.code) == (4, 0, 5)
    assert [each["name"] for each in json.loads(left.out)] == ["one"]


async def test_owner_sets_members_of_its_namespace(
    nats_url: str, postgres_dsn: str, tmp_path: Path, shell: Shell
) -> None:
    async with a_world(nats_url, postgres_dsn, tmp_path) as world:
        await shell.sign_in(world, "olga")
        none = await shell.run("namespace", "members", "a")
        added = await shell.run(
            "namespace", "add-member", "a", "else", "--group", "--role", "viewer"
        )
        foreign = await shell.run("namespace", "add-member", "b", "eve")
        listed = await shell.run("namespace", "members", "a", "--json")
        other_kind = await shell.run("namespace", "remove-member", "a", "else")
        removed = await shell.run("namespace", "remove-member", "a", "else", "--group")

    assert "add-member a PERSON" in none.out
    assert added.out == "group else is viewer of a\n"
    assert [(each["name"], each["set_by"]) for each in json.loads(listed.out)] == [("else", "olga")]
    assert (foreign.code, other_kind.code, removed.code) == (4, 5, 0)


@pytest.mark.long
async def test_login_says_why_it_does_not_sign_in(
    nats_url: str, postgres_dsn: str, tmp_path: Path, shell: Shell
) -> None:
    async with (
        a_world(nats_url, postgres_dsn, tmp_path) as world,
        gateway(nats_url, postgres_dsn) as open_gateway,
    ):
        no_provider = await shell.run("login", open_gateway.url)
        no_role = await shell.sign_in(world, "eve")
        wrong_token = await shell.run("login", world.api.url, "--token-file", "-", text="wrong")
        empty = await shell.run("login", world.api.url, "--token-file", "-", text="\n")
        world.provider.is_away = True
        away = await shell.run("login", world.api.url)
    nothing = await shell.run("login", "http://127.0.0.1:1")
    no_address = await shell.run("login", "ftp://host")

    assert [each.code for each in (no_provider, no_role, wrong_token, empty, away)] == [
        7, 4, 4, 2, 8,
    ]  # fmt: skip
    assert (nothing.code, no_address.code) == (8, 2)
    assert "--token-file -" in no_provider.err
    assert "none of that has a role here" in no_role.err
    assert "the provider answers 503" in away.err
    assert not shell.contexts.exists()


async def test_a_code_that_nobody_confirms_has_an_end(
    nats_url: str, postgres_dsn: str, tmp_path: Path, shell: Shell
) -> None:
    async with a_world(nats_url, postgres_dsn, tmp_path) as world:
        world.provider.code_seconds = 4
        late = await shell.run("login", world.api.url, "--no-browser")

    assert late.code == 8
    assert "nobody confirmed the code ABCD-EFGH in time" in late.err
