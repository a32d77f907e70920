"""An HTTP server in place of a dcgm-exporter, with the exporter's format and field names."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from shared.waiting import cancel_and_wait

PAGE_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BLANK: Final = 9223372036854775794

VALUES: Final[Mapping[str, float]] = {
    "DCGM_FI_DEV_SM_CLOCK": 1980,
    "DCGM_FI_DEV_MEM_CLOCK": 2619,
    "DCGM_FI_DEV_MEMORY_TEMP": 58,
    "DCGM_FI_DEV_GPU_TEMP": 61,
    "DCGM_FI_DEV_POWER_USAGE": 412.375,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 15347724978,
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0,
    "DCGM_FI_DEV_GPU_UTIL": 37,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 21,
    "DCGM_FI_DEV_ENC_UTIL": 0,
    "DCGM_FI_DEV_DEC_UTIL": 3,
    "DCGM_FI_DEV_XID_ERRORS": 0,
    "DCGM_FI_DEV_FB_FREE": 80035,
    "DCGM_FI_DEV_FB_USED": 1024,
    "DCGM_FI_DEV_FB_RESERVED": 500,
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 1,
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 0,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": 0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.412345,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.25,
}


def make_lines(index: int, uuid: str, *, instance: str = "", **values: float | None) -> str:
    """The lines of one GPU, or of an instance `2g.20gb/3`; None leaves a field out.

    Of an instance the exporter has no `DCGM_FI_DEV_*_UTIL`.
    """
    profile, _, number = instance.partition("/")
    labels = {
        "gpu": str(index),
        "UUID": uuid,
        "pci_bus_id": f"00000000:{24 + index:02X}:00.0",
        "device": f"nvidia{index}",
        "modelName": "NVIDIA H100 80GB HBM3",
        **({"GPU_I_PROFILE": profile, "GPU_I_ID": number} if instance else {}),
        "Hostname": "node-a",
        "DCGM_FI_DRIVER_VERSION": "550.54.15",
        "container": "",
        "namespace": "",
        "pod": "",
    }
    own = {name: value for name, value in VALUES.items() if not (instance and "_UTIL" in name)}
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    lines = []
    for name, value in {**own, **values}.items():
        kind = "counter" if "TOTAL" in name else "gauge"
        if value is not None:
            lines += [
                f"# HELP {name} {name}.",
                f"# TYPE {name} {kind}",
                f"{name}{{{text}}} {value}",
            ]
    return "\n".join(lines) + "\n"


class FakeDcgm:
    """What it serves, and how; changes show with the next request."""

    def __init__(self) -> None:
        self.page = make_lines(0, "GPU-aaaa") + make_lines(1, "GPU-bbbb")
        self.status = "200 OK"
        self.delay_seconds = 0.0
        self.cut_at: int | None = None
        self.endless = False
        self.port = 0
        self._answering: set[asyncio.Task[object]] = set()

    @property
    def url(self) -> str:
        """Where its page is."""
        return f"http://127.0.0.1:{self.port}/metrics"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FakeDcgm"]:
        """Listen on a free port, or on the one it had."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()
            await cancel_and_wait(*self._answering)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(self.delay_seconds)
            body = self.page.encode() if request.startswith(b"GET /metrics ") else b""
            status = self.status if body or self.status[:3] != "200" else "404 Not Found"
            head = f"HTTP/1.0 {status}\r\nContent-Type: {PAGE_TYPE}\r\n"
            if not self.endless:
                head += f"Content-Length: {len(body)}\r\n"
            writer.write(f"{head}\r\n".encode() + body[: self.cut_at])
            while self.endless:
                writer.write(b"# more\n" * 10_000)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()
