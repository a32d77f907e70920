"""Whatever one client or node says, everybody else is still served."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from schemas.base import subject_for
from schemas.errors import Refused
from schemas.executor.attempts import ExecutorReported
from schemas.gpus.gpu_request import GpuRequest, Selector, SelectorKey, SelectorOperator
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import RequestReservation, ReservationGranted
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.codec import encode
from tests.support.worlds.scheduler import World, scheduler, world

pytestmark = pytest.mark.long

YEARS_SECONDS = 1e18
UNREADABLE = "1" * 5_000  # more digits than Python reads as a number


def selecting(*values: str, **changes: Any) -> GpuRequest:
    plain: dict[str, Any] = {
        "key": SelectorKey.NODE,
        "operator": SelectorOperator.AT_LEAST,
        "values": values,
    }
    return GpuRequest(require=(Selector(**plain | changes),))


REQUESTS = {
    "lasts longer than the calendar": GpuRequest(expected_duration_seconds=YEARS_SECONDS),
    "lasts until the calendar's end": GpuRequest(expected_duration_seconds=2.6e11),
    "wants a version of 5000 digits": selecting(UNREADABLE),
    "lists such a version": selecting("9.0", UNREADABLE, operator=SelectorOperator.IN),
    "wants a version and tells none": selecting(),
    "has NUL in a selector": selecting("\x00"),
    "has NUL in a label": selecting(
        "a", key=SelectorKey.LABEL, operator=SelectorOperator.IN, label="\x00"
    ),
    "wants more GPUs than there are": GpuRequest(gpus=4096, nodes=512),
    "wants more memory than a number holds": GpuRequest(host_memory_mb=2**63, min_memory_mb=2**63),
    "wants more CPUs than there are": GpuRequest(cpu_count=1e308),
    "never ends": GpuRequest(expected_duration_seconds=float("inf")),
    "wants a count that is no number": GpuRequest(cpu_count=float("nan")),
}


@asynccontextmanager
async def served(nats_url: str, postgres_dsn: str) -> AsyncIterator[World]:
    """A scheduler with a node of 2 GPUs, one of which is left for whoever behaves."""
    async with (
        scheduler(nats_url, postgres_dsn, inventory_grace_seconds=0.1),
        world(nats_url) as around,
    ):
        await around.add_node("alpha", 2, interval_seconds=0.2)
        await around.known("alpha", 2)
        yield around


async def is_served(around: World) -> None:
    """Somebody who behaves gets a GPU and gives it back."""
    reservation_id = await around.request(GpuRequest(priority=1000))
    granted = await around.event(ReservationGranted, reservation_id, within_seconds=5.0)
    await around.release(granted)


async def test_no_request_keeps_others_from_being_served(nats_url: str, postgres_dsn: str) -> None:
    async with served(nats_url, postgres_dsn) as around:
        for name, request in REQUESTS.items():
            reply = await around.bus.request(
                RequestReservation(command_id=new_id(), reservation_id=new_id(), request=request)
            )
            assert not isinstance(reply, Refused) or not reply.retryable, (name, reply)
            try:
                await is_served(around)
            except AssertionError:
                raise AssertionError(f"nobody is served after a request that {name}") from None


async def test_no_bytes_keep_others_from_being_served(nats_url: str, postgres_dsn: str) -> None:
    request = RequestReservation(command_id=new_id(), reservation_id=new_id())
    whole = encode(request)
    async with served(nats_url, postgres_dsn) as around:
        subject = subject_for(request)
        for body in (b"", b"\xc1", b"\x00" * 100_000, whole[:-1], whole + b"\x00", b"{}"):
            reply = await around.bus.nats.request(subject, body, timeout=5)
            assert b"bad_request" in reply.data
        await is_served(around)


async def test_node_epoch_blocks_no_other_node(nats_url: str, postgres_dsn: str) -> None:
    """An executor whose journal is broken tells an epoch behind which there is no other."""
    async with served(nats_url, postgres_dsn) as around:
        for revision, epoch in enumerate((2**62, 2**63 - 1, 2**64 - 1), start=1):
            event = ExecutorReported(
                message_id=new_id(),
                occurred_at=utcnow(),
                revision=revision,
                executor_id="alpha",
                boot_id=new_id(),
                runtimes=(),
                benchmark_tools=(),
                largest_epoch=epoch,
            )
            await around.bus.publish_event(event)
            await is_served(around)
            await is_served(around)


async def test_a_reading_that_is_no_number_is_unknown(nats_url: str, postgres_dsn: str) -> None:
    async with (
        scheduler(nats_url, postgres_dsn, inventory_grace_seconds=0.1),
        world(nats_url) as around,
    ):
        node = await around.add_node("alpha", 1, interval_seconds=0.1)
        node.gpus[0].utilization_percent = float("nan")
        await around.known("alpha", 1)
        reservation_id = await around.request()

        await around.waiting(reservation_id, ReasonCode.UTILIZATION_UNKNOWN)

        assert around.seen(ReservationGranted, reservation_id) == []
