"""A request that comes while nothing waits is decided on in the transaction that stores it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from schemas.gpus.gpu_request import GpuRequest, Selector, SelectorKey
from schemas.scheduler.nodes import LabelNode
from schemas.scheduler.reservations import (
    ReservationGranted,
    ReservationQueued,
    ReservationRejected,
)
from services.scheduler import app
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.leader.decision_loop import DecisionLoop
from services.scheduler.leader.live_engine import LiveEngine
from services.scheduler.ledger import apply_decisions
from services.scheduler.ledger.transitions import LedgerChanged
from shared.ids import new_id
from shared.testing import eventually
from tests.support.worlds.scheduler import World, accepted, ledger, scheduler, world

REQUESTS = 20
LATE_SECONDS = 0.1
# Of a row that nobody has changed since, the transaction that made it.
_GRANTED_IN = "SELECT xmin::text FROM holding WHERE reservation_id = $1"
_STORED_IN = "SELECT xmin::text FROM command"


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[DecisionLoop]:
    """Loops of the schedulers that are started."""
    made: list[DecisionLoop] = []

    def make(*args: Any) -> DecisionLoop:
        made.append(DecisionLoop(*args))
        return made[-1]

    monkeypatch.setattr(app, "DecisionLoop", make)
    return made


@pytest.fixture
def late_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Postgres' notifications come late, as on a busy machine."""

    def wake(loop: DecisionLoop) -> None:
        asyncio.get_running_loop().call_later(LATE_SECONDS, loop._woken.set)  # noqa: SLF001

    monkeypatch.setattr(DecisionLoop, "wake", wake)


@pytest.fixture
async def around(
    loops: list[DecisionLoop], nats_url: str, postgres_dsn: str
) -> AsyncIterator[World]:
    """A fleet of two GPUs."""
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as around:
        await around.add_node("alpha", 2)
        await around.known("alpha", 2)
        yield around


async def grants_with_their_requests(around: World, postgres_dsn: str) -> int:
    """Request and release one after another; return how many were granted as they were stored.

    The others came while the loop was at work, and were granted by it.
    """
    count = 0
    async with ledger(postgres_dsn) as connection:
        for _ in range(REQUESTS):
            granted = await around.granted(await around.request(GpuRequest()))
            granted_in = await connection.fetchval(_GRANTED_IN, granted.reservation_id)
            stored_in = {row["xmin"] for row in await connection.fetch(_STORED_IN)}
            count += granted_in in stored_in
            accepted(await around.release(granted))
    return count


def events_of(around: World, reservation_id: UUID) -> list[str]:
    seen = [*around.seen(ReservationQueued), *around.seen(ReservationGranted)]
    of_it = sorted(
        (e.revision, type(e).__name__) for e in seen if e.reservation_id == reservation_id
    )
    return [name for _, name in of_it]


async def test_request_and_grant_are_one_transaction(around: World, postgres_dsn: str) -> None:
    assert await grants_with_their_requests(around, postgres_dsn) > 0


async def test_engine_that_decided_at_once_equals_a_loaded_one(
    around: World, loops: list[DecisionLoop], postgres_dsn: str
) -> None:
    [loop] = loops
    assert await grants_with_their_requests(around, postgres_dsn) > 0
    await around.granted(await around.request(GpuRequest()))
    await around.request(GpuRequest(gpus=2))
    live = loop._live  # noqa: SLF001

    async def equals_a_loaded_one() -> bool:
        loaded = LiveEngine(loop.database, loop.reader, Policy())
        await loaded.catch_up()
        loaded.apply_readings(())
        return live.is_loaded and live.engine.state() == loaded.engine.state()

    await eventually(equals_a_loaded_one, what="the same state")


@pytest.mark.usefixtures("late_notices")
async def test_request_finds_what_was_accepted_before_it(around: World) -> None:
    for number in range(REQUESTS):
        zone = Selector(key=SelectorKey.LABEL, label="zone", values=(str(number),))
        command = LabelNode(command_id=new_id(), node_id="alpha", labels={"zone": str(number)})
        accepted(await around.bus.request(command))
        reservation_id = await around.request(GpuRequest(require=(zone,)))
        accepted(await around.release(await around.granted(reservation_id)))
    assert not around.seen(ReservationRejected)


async def test_failed_decision_leaves_its_request_queued(
    around: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = apply_decisions.apply
    failures: list[tuple[Any, ...]] = []

    async def fail_once(*args: Any) -> str:
        if not failures:
            failures.append(args)
            raise LedgerChanged("a test's")
        return await apply(*args)

    monkeypatch.setattr(apply_decisions, "apply", fail_once)
    granted = await around.granted(await around.request(GpuRequest()))
    assert failures
    assert events_of(around, granted.reservation_id) == ["ReservationQueued", "ReservationGranted"]


async def test_scheduler_that_lost_its_term_grants_nothing(
    around: World, loops: list[DecisionLoop], postgres_dsn: str
) -> None:
    [loop] = loops
    term = loop.leadership.term
    assert term is not None
    async with ledger(postgres_dsn) as connection:
        await connection.execute(
            "UPDATE leader SET holder = gen_random_uuid(), term = term + 1,"
            " expires_at = clock_timestamp() + interval '1 hour'"
        )
        reservation_id = await around.request(GpuRequest())
        state = await connection.fetchval(
            "SELECT state FROM reservation WHERE reservation_id = $1", reservation_id
        )
    assert state == "queued"
    assert not around.seen(ReservationGranted)
