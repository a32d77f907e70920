"""Why a NATS server cannot be joined, said at once and in a sentence, by a real server."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.cli.local_platform.bus_check import CONNECT_SECONDS, bus_trouble, wait_for_bus
from shared.local_platform.embedded.nats_server import find_nats_server
from shared.testing import NatsServer, eventually

TIMEOUT_SECONDS = 5.0


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    path = tmp_path / "node.json"
    write_login(path, "node_alpha", "wrong")
    return path


def write_login(path: Path, user: str, password: str) -> None:
    path.write_text(json.dumps({"user": user, "password": password}))


@pytest.fixture
async def http_port() -> AsyncIterator[int]:
    """A server that speaks first, and not NATS."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_server_that_lets_in_is_no_trouble(nats_server: NatsServer) -> None:
    assert await bus_trouble(nats_server.authenticated_url, None, needs_jetstream=True) is None


async def test_wrong_password_names_file_and_origin(
    nats_server: NatsServer, credentials: Path
) -> None:
    trouble = await bus_trouble(nats_server.url, credentials, needs_jetstream=False)

    assert trouble is not None
    assert trouble.is_lasting
    assert f"refuses the credentials in {credentials}" in trouble.sentence
    assert "gpusteward agent-credentials" in trouble.sentence


async def test_no_password_is_shown(nats_server: NatsServer) -> None:
    url = nats_server.url.replace("nats://", "nats://somebody:secret@")

    trouble = await bus_trouble(url, None, needs_jetstream=False)

    assert trouble is not None
    assert "secret" not in trouble.sentence


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nats://127.0.0.1:{free}", "nothing listens at nats://127.0.0.1:{free}"),
        ("127.0.0.1:{free}", "nothing listens at 127.0.0.1:{free}"),
        ("nats://no-such-host.invalid:4222", "no host 'no-such-host.invalid' is known"),
        ("nats://127.0.0.1:{mail}", "is no NATS server"),
        ("nats://127.0.0.1:notaport", "expected the address of a NATS server"),
        ("", "expected the address of a NATS server"),
    ],
)
async def test_a_wrong_address_says_what_is_there(
    url: str, says: str, credentials: Path, http_port: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    places = {"free": free, "mail": http_port}
    began = asyncio.get_running_loop().time()

    trouble = await bus_trouble(url.format(**places), credentials, needs_jetstream=False)

    assert trouble is not None
    assert says.format(**places) in trouble.sentence
    assert asyncio.get_running_loop().time() - began < TIMEOUT_SECONDS > CONNECT_SECONDS


async def test_server_without_jetstream_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.cli.local_platform.bus_check.RETRY_SECONDS", 0.05)
    no_login = tmp_path
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    program = find_nats_server()
    process = await asyncio.create_subprocess_exec(
        program, "-a", "127.0.0.1", "-p", str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        url = f"nats://127.0.0.1:{port}"
        await wait_for_bus(url, no_login, print)

        trouble = await bus_trouble(url, None, needs_jetstream=True)
    finally:
        process.terminate()
        await process.wait()

    assert trouble is not None
    assert trouble.is_lasting
    assert "runs without JetStream" in trouble.sentence


async def test_recovered_bus_is_joined_troubles_said_once(
    nats_server: NatsServer, credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.cli.local_platform.bus_check.RETRY_SECONDS", 0.05)
    said: list[str] = []
    waiting = asyncio.create_task(wait_for_bus(nats_server.url, credentials, said.append))
    await eventually(lambda: bool(said), what="the trouble")
    await asyncio.sleep(0.2)  # several tries

    user, _, password = nats_server.authenticated_url[7:].rpartition("@")[0].partition(":")
    write_login(credentials, user, password)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await waiting

    assert len(said) == 2
    assert "Ctrl-C ends it" in said[0]
    assert said[1].endswith("answers now")
