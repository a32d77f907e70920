"""Lists on a terminal of 80 columns, as a person types them."""

import asyncio
import os
import pty
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from schemas.scheduler.devices import DeviceState
from tests.support.fakes.gateway import StubGateway, stub_gateway
from tests.support.paths import ROOT
from tests.support.processes.command_line import start_command
from tests.support.worlds.gateway_views import make_gpu

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """Runs the command on a terminal; what it shows comes without colours."""

    def __init__(self, stub: StubGateway, url: str, data_dir: Path) -> None:
        self.stub = stub
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "GPUSTEWARD_URL": url,
            "GPUSTEWARD_DATA_DIR": str(data_dir),
            "TERM": "xterm",
        }

    async def __call__(self, *arguments: str, columns: int = 80) -> list[str]:
        master, slave = pty.openpty()
        try:
            process = await start_command(
                *arguments,
                environment={**self.environment, "COLUMNS": str(columns)},
                stdout=slave,
                stderr=slave,
            )
        finally:
            os.close(slave)
        shown, _ = await asyncio.gather(asyncio.to_thread(_read_all, master), process.wait())
        return COLOUR.sub("", shown.decode()).splitlines()


def _read_all(master: int) -> bytes:
    shown = b""
    with suppress(OSError):  # EIO once the command has ended
        while piece := os.read(master, 65536):
            shown += piece
    os.close(master)
    return shown


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    async with stub_gateway() as (stub, url):
        stub.gpus = [
            make_gpu(
                index,
                node_id="gpu-node-07",
                name="NVIDIA H200 141GB HBM3e",
                memory_used_mb=143_000,
                memory_total_mb=143_771,
                power_draw_w=698.0,
                state=DeviceState.HELD,
                holder="exec/somebody-with-a-long-name",
            )
            for index in range(8)
        ]
        yield Terminal(stub, url, tmp_path)


async def test_gpu_is_one_line_at_80_columns(
    terminal: Terminal,
) -> None:
    shown = await terminal("gpus")

    rows = [line for line in shown if line.startswith("gpu-node-07")]
    assert len(rows) == 8
    assert max(map(len, shown)) <= 80
    assert all("143000/143771" in row for row in rows)
    note = " ".join(shown[9:])
    assert "--wide" in note
    assert "power W" in note


async def test_wide_shows_all_and_columns_the_named_ones(
    terminal: Terminal,
) -> None:
    wide = await terminal("gpus", "--wide")
    chosen = await terminal("gpus", "--columns", "gpu,power,holder")

    assert "NVIDIA H200 141GB HBM3e" in wide[1]
    assert "exec/somebody-with-a-long-name" in wide[1]
    assert chosen[0].split("  ")[0] == "gpu"
    assert chosen[1].split() == ["0", "698/700", "exec/somebody-with-a-long-name"]


async def test_unknown_column_is_refused_with_known_ones(
    terminal: Terminal,
) -> None:
    shown = " ".join(await terminal("gpus", "--columns", "gpu,colour"))

    assert "found 'colour'" in shown
    assert "memory MB" in shown
