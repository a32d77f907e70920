"""What becomes of a request whose command is given up."""

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.gpus.device_grant import DeviceGrant
from schemas.gpus.gpu_request import GpuRequest
from services.cli.commands.gpus.reservations import reserve_and_wait, use_lines
from shared.client.http import StewardClient
from tests.support.worlds.gateway_views import make_reservation


class EndlessQueue:
    """A fake client of a platform on which nothing is ever free."""

    def __init__(self) -> None:
        self.requested: list[UUID] = []
        self.cancelled: list[UUID] = []
        self.waits = asyncio.Event()

    async def request_reservation(self, *_: Any, reservation_id: UUID, **__: Any) -> None:
        self.requested.append(reservation_id)

    async def await_reservation(self, *_: Any, **__: Any) -> None:
        self.waits.set()
        await asyncio.Event().wait()

    async def cancel_reservation(self, reservation_id: UUID) -> None:
        self.cancelled.append(reservation_id)


async def test_abandoned_waiting_request_is_withdrawn() -> None:
    queue = EndlessQueue()
    waiting = asyncio.create_task(reserve_and_wait(cast(StewardClient, queue), GpuRequest(), "me"))
    await queue.waits.wait()

    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(queue.requested) == 1
    assert queue.cancelled == queue.requested


def test_manual_reservation_prints_visible_devices() -> None:
    def device(node_id: str, uuid: str, **facts: Any) -> DeviceGrant:
        given: dict[str, Any] = {"node_id": node_id, "uuid": uuid, "index": 0, "name": "H100"}
        return DeviceGrant(**given | facts)

    view = replace(
        make_reservation(),
        devices=(
            *(device("alpha", "GPU-a"), device("alpha", "GPU-b"), device("beta", "GPU-c")),
            device("beta", "GPU-s", simulated=True),
            device("gamma", "GPU-d", name="AMD Instinct MI300X"),
        ),
    )

    assert use_lines(view) == [
        "on alpha: CUDA_VISIBLE_DEVICES=GPU-a,GPU-b",
        "on beta: CUDA_VISIBLE_DEVICES=GPU-c",
    ]
