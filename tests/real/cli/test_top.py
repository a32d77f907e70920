"""`gpusteward top`, driven by Textual's pilot against a stand-in for the gateway."""

import asyncio
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from schemas.errors import ErrorCode
from schemas.gateway.views import GpuMetrics
from schemas.scheduler.devices import DeviceState
from services.cli.top.fleet_feed import FleetFeed
from services.cli.top.fleet_rows import FleetState
from shared.client.discovery import Address
from shared.client.http import StewardClient
from shared.testing import eventually
from tests.support.fakes.gateway import StubGateway, stub_gateway
from tests.support.processes.command_line import run_command, start_command
from tests.support.worlds.gateway_views import NODE, NOW, make_gpu

if TYPE_CHECKING:
    # Takes a quarter of a second to import, in every process that collects tests.
    from textual.pilot import Pilot

    from services.cli.top.terminal_view import TopApp

pytestmark = pytest.mark.timeout(180)  # processes that start, on whatever machine
Running = tuple["TopApp", "Pilot[None]", StubGateway]


@pytest.fixture
async def top() -> AsyncIterator[Running]:
    from services.cli.top.terminal_view import TopApp

    async with stub_gateway() as (stub, url), StewardClient(Address(url)) as client:
        feed = FleetFeed(client, FleetState())
        await feed.read_ledger()
        app = TopApp(feed)
        async with app.run_test(size=(80, 24)) as pilot:
            await eventually(lambda: len(shown(app)) == 2)
            await eventually(lambda: len(stub.sockets) == 2)
            yield app, pilot, stub
            app.exit()  # as its keys do: without it the next redraw may find no widget


def shown(app: "TopApp") -> list[str]:
    from services.cli.top.terminal_view import GpuLines

    return list(app.query_one(GpuLines).lines)


def text_of(app: "TopApp", name: str) -> str:
    from textual.widgets import Static

    widget = app.query_one(name, Static)
    return str(widget.render()) if widget.display else ""


async def test_top_shows_simulated_gpus_in_80_columns(
    top: Running,
) -> None:
    app, _, _ = top

    assert [line.split()[:2] for line in shown(app)] == [[NODE, "0"], [NODE, "1"]]
    assert text_of(app, "#headings").split()[:5] == ["node", "gpu", "model", "util", "memory"]
    assert "simulated" in text_of(app, "#summary")
    assert all(len(line) <= 80 for line in shown(app))


async def test_top_shows_readings_and_ledger_changes_live(top: Running) -> None:
    app, _, stub = top
    busy = make_gpu(1, state=None, utilization_percent=83.0)
    metrics = GpuMetrics(node_id=NODE, sequence=1, observed_at=NOW, simulated=True, gpus=(busy,))

    await stub.send(metrics)
    await eventually(lambda: "83%" in shown(app)[1])
    stub.gpus[0] = make_gpu(0, state=DeviceState.HELD, holder="notebook")
    await stub.tell("scheduler.reservation_granted")

    await eventually(lambda: "notebook" in shown(app)[0])
    assert "1 held" in text_of(app, "#summary")


async def test_keys_sort_and_filter(top: Running) -> None:
    from textual.widgets import Input

    app, pilot, stub = top
    stub.gpus[1] = make_gpu(1, utilization_percent=70.0, holder="train", state=DeviceState.HELD)
    await eventually(lambda: "train" in shown(app)[1])

    await pilot.press("u")
    await eventually(lambda: "train" in shown(app)[0])
    await pilot.press("slash", *"train")
    await eventually(lambda: len(shown(app)) == 1)
    filtered = text_of(app, "#summary")
    await pilot.press("enter")
    kept = len(shown(app))
    await pilot.press("escape")
    await eventually(lambda: len(shown(app)) == 2)

    assert "by utilization" in filtered
    assert "with 'train'" in filtered
    assert kept == 1
    assert not app.query_one(Input).display


async def test_top_reports_and_restores_lost_connection(top: Running) -> None:
    app, _, stub = top

    stub.refusal = ErrorCode.UNAVAILABLE
    for socket in stub.sockets:
        await socket.close()
    await eventually(lambda: "connection lost" in text_of(app, "#lost"))
    stub.gpus.append(make_gpu(2))
    stub.refusal = None

    await eventually(lambda: len(shown(app)) == 3)
    await eventually(lambda: not text_of(app, "#lost"))
    await eventually(lambda: sum(not socket.closed for socket in stub.sockets) == 2)


async def test_q_leaves(top: Running) -> None:
    app, pilot, _ = top

    await pilot.press("q")

    await eventually(lambda: not app.is_running)
    assert app.return_code == 0


@pytest.mark.parametrize(
    ("key", "signal_number", "code"),
    [
        pytest.param(b"q", None, 0, id="q"),
        pytest.param(b"\x03", None, 0, id="Ctrl-C"),
        pytest.param(b"", signal.SIGTERM, 143, id="SIGTERM"),
    ],
)
async def test_the_terminal_is_afterwards_as_it_was(
    tmp_path: Path, key: bytes, signal_number: int | None, code: int
) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    seen = bytearray()
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, lambda: seen.extend(os.read(ours, 65_536)))
    async with stub_gateway() as (_, url):
        environment = {**os.environ, "TERM": "xterm", "GPUSTEWARD_URL": url}
        environment["GPUSTEWARD_DATA_DIR"] = str(tmp_path)
        process = await start_command(
            "top", environment=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
        try:
            await eventually(lambda: NODE.encode() in seen, within_seconds=60, what="a row")
            os.write(ours, key)
            if signal_number is not None:
                process.send_signal(signal_number)
            async with asyncio.timeout(60):
                ended = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            loop.remove_reader(ours)
    after = termios.tcgetattr(theirs)
    os.close(ours)
    os.close(theirs)

    assert ended == code
    assert after == before


async def test_top_without_terminal_names_alternative(tmp_path: Path) -> None:
    ended = await run_command("top", "--data-dir", str(tmp_path), environment=os.environ)

    assert ended.code == 2
    assert "gpusteward gpus" in ended.err
