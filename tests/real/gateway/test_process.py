"""The gateway as a process of its own: how it starts and ends."""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from services.gateway.http.server import listening_socket
from shared.paths import is_process_alive
from shared.testing import eventually
from shared.waiting import within
from tests.support.ports import free_port

pytestmark = pytest.mark.long


async def start(
    nats_url: str, dsn: str, directory: Path, port: int, *, open_files: int | None = None
) -> asyncio.subprocess.Process:
    environment = {
        **os.environ,
        "GPUSTEWARD_NATS_URL": nats_url,
        "GPUSTEWARD_POSTGRES_DSN": dsn,
        "GPUSTEWARD_DATA_DIR": str(directory),
        "GPUSTEWARD_READY_FILE": str(directory / "ready"),
        "GPUSTEWARD_GATEWAY_PORT": str(port),
    }
    limited = () if open_files is None else ("prlimit", f"--nofile={open_files}:")
    return await asyncio.create_subprocess_exec(
        *(*limited, sys.executable, "-m", "services.gateway"),
        env=environment,
        stderr=asyncio.subprocess.DEVNULL,
    )


def kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()


async def test_many_clients_are_served_and_sigterm_is_clean(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    port = free_port()
    process = await start(nats_url, postgres_dsn, tmp_path, port, open_files=64)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(process.wait)
        stack.callback(kill, process)
        await eventually((tmp_path / "ready").exists, within_seconds=60, what="readiness")
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        url = f"http://127.0.0.1:{port}/ws/events"
        async with within(60):
            sockets = [await stack.enter_async_context(session.ws_connect(url)) for _ in range(100)]
        open_at_once = sum(not socket.closed for socket in sockets)
        process.send_signal(signal.SIGTERM)
        message = await sockets[0].receive(timeout=30)
        async with within(30):
            status = await process.wait()

    assert open_at_once == 100
    assert message.type in {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED}
    assert status == 0
    assert not is_process_alive(process.pid)


async def test_a_taken_address_ends_it_with_a_failure(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    with listening_socket("127.0.0.1", 0) as taken:
        process = await start(nats_url, postgres_dsn, tmp_path, taken.getsockname()[1])
        async with asyncio.timeout(30):
            status = await process.wait()

    assert status == 1
    assert not (tmp_path / "ready").exists()
