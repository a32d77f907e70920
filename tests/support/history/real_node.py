"""A node whose agent and executor are the real ones; its GPUs and engines are simulated.

What runs is looked up in /proc, a few times a second: what was not seen is not claimed, so that
this truth may miss an overlap and never makes one up.
"""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from uuid import UUID

import msgspec
from nats.aio.msg import Msg

from schemas.base import pattern_for
from schemas.errors import Accepted, Refused
from schemas.executor.attempts import FenceReservation
from shared.messaging.bus import Bus
from tests.support.history.processes import Victim
from tests.support.history.records import AnyRecord, Began, Ceased, Confirmed

NODE = "rho"
GPUS = 3
LOOK_SECONDS = 0.1
FLEET = """
slot_name = "cuda"
devices = [{devices}]
[attributes]
[load]
seed = 1
ramp_seconds = 0.5
"""
DEVICE = '{{ mother_uuid = "GPU-rho-{0}", model_name = "Simulated H100", memory_size = "80000M" }}'

_reply = msgspec.msgpack.Decoder(Accepted | Refused)
Work = tuple[UUID, int, str]


def real_node(nats_url: str, directory: Path) -> list[Victim]:
    """Agent and executor, not yet started."""
    fleet = directory / "fleet.toml"
    fleet.write_text(FLEET.format(devices=", ".join(DEVICE.format(i) for i in range(GPUS))))
    common = {
        "GPUSTEWARD_NATS_URL": nats_url,
        "GPUSTEWARD_NODE_ID": NODE,
        "GPUSTEWARD_DATA_DIR": str(directory / NODE),
        "GPUSTEWARD_INSTALLATION_ID": str(directory),
    }
    agent = {
        "GPUSTEWARD_TELEMETRY_SOURCE": "simulated",
        "GPUSTEWARD_TELEMETRY_FLEET": str(fleet),
        "GPUSTEWARD_TELEMETRY_INTERVAL_SECONDS": "0.3",
        "GPUSTEWARD_TELEMETRY_INVENTORY_SECONDS": "3",
    }
    executor = {
        "GPUSTEWARD_EXECUTOR_REPORT_INTERVAL_SECONDS": "2",
        "GPUSTEWARD_EXECUTOR_STOP_GRACE_SECONDS": "0.5",
    }
    return [
        Victim("telemetry-rho", "services.telemetry", (), common | agent, directory),
        Victim("executor-rho", "services.executor", (), common | executor, directory),
    ]


@dataclass(slots=True)
class Sightings:
    """What surely ran: from the end of the first look that saw it to the start of the last."""

    _running: dict[Work, tuple[float, float]] = field(default_factory=dict)
    _ended: list[tuple[Work, tuple[float, float]]] = field(default_factory=list)

    def note(self, found: set[Work], began_at: float, ended_at: float) -> None:
        """What one look found that began and ended then."""
        for work in found:
            first, _ = self._running.get(work, (ended_at, began_at))
            self._running[work] = (first, began_at)
        for work in self._running.keys() - found:
            self._ended.append((work, self._running.pop(work)))

    def records(self) -> Iterator[AnyRecord]:
        """None of what one look alone has found: when in it that ran is not known."""
        for work, (first, last) in (*self._ended, *self._running.items()):
            reservation_id, epoch, device = work
            on = (NODE, device)
            if first < last:
                yield Began(at=first, device=on, reservation_id=reservation_id, epoch=epoch)
                yield Ceased(at=last, device=on, reservation_id=reservation_id, epoch=epoch)


@dataclass(slots=True)
class Watch:
    """Notes what runs on the real node, and what its executor has confirmed."""

    bus: Bus
    directory: Path
    _fences: dict[UUID, UUID] = field(default_factory=dict)
    _sightings: Sightings = field(default_factory=Sightings)

    async def hear(self) -> None:
        """Learn which command is a fence of which reservation."""

        async def on_fence(raw: Msg) -> None:
            fence = msgspec.msgpack.decode(raw.data, type=FenceReservation)
            self._fences[fence.command_id] = fence.reservation_id

        await self.bus.nats.subscribe(pattern_for(FenceReservation, NODE), cb=on_fence)

    async def look(self) -> None:
        """Look until cancelled."""
        while True:
            began_at = time.monotonic()
            found = await asyncio.to_thread(_labelled, str(self.directory))
            self._sightings.note(found, began_at, time.monotonic())
            await asyncio.sleep(LOOK_SECONDS)

    def collect(self) -> list[AnyRecord]:
        """Everything, from here and from the executor's journal."""
        return [*self._sightings.records(), *self._confirmations()]

    def _confirmations(self) -> list[AnyRecord]:
        offset = time.monotonic() - time.time()
        journal = sqlite3.connect(self.directory / NODE / "executor" / "journal.db")
        try:
            finished = journal.execute(
                "SELECT reservation_id, finished_at FROM attempt WHERE finished_at IS NOT NULL"
            ).fetchall()
            answered = journal.execute("SELECT command_id, reply, answered_at FROM command")
            fenced = [
                (self._fences[UUID(bytes=command_id)], at)
                for command_id, reply, at in answered
                if UUID(bytes=command_id) in self._fences
                and isinstance(_reply.decode(reply), Accepted)
            ]
        finally:
            journal.close()
        ends = [(UUID(bytes=i), datetime.fromisoformat(at).timestamp()) for i, at in finished]
        return [
            Confirmed(at=at + offset, node_id=NODE, reservation_id=reservation_id)
            for reservation_id, at in (*ends, *fenced)
        ]


def _labelled(installation_id: str) -> set[Work]:
    """Reservation, epoch and device of every process that this installation has started."""
    found: set[Work] = set()
    mark = f"GPUSTEWARD_INSTALLATION={installation_id}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            entries = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if mark not in entries:
            continue
        values = dict(entry.decode(errors="replace").split("=", 1) for entry in entries if entry)
        for device in values.get("CUDA_VISIBLE_DEVICES", "").split(","):
            found.add(
                (UUID(values["GPUSTEWARD_RESERVATION"]), int(values["GPUSTEWARD_EPOCH"]), device)
            )
    return found
