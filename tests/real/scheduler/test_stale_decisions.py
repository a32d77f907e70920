"""A grant whose device changed between the decision and its commit is dropped, or came first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.gpus.device_grant import ShareKind
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import Cordon
from schemas.scheduler.reasons import ReasonCode
from schemas.telemetry.readings import InventoryReported
from services.scheduler.domain.model.fleet import Device
from services.scheduler.domain.placement.decisions import Grant
from services.scheduler.domain.placement.device_choice import Scored
from services.scheduler.domain.placement.placement import Placed, PlacedNode
from services.scheduler.ledger import apply_decisions
from services.scheduler.ledger.leader_election import Leadership
from services.scheduler.ledger.migrations import MIGRATIONS
from services.scheduler.ledger.rows import node_rows, reservation_rows
from services.scheduler.ledger.transitions import LedgerChanged
from shared.gpu.shares import MPS_LABEL
from shared.ids import new_id
from shared.postgres.database import Connection, Database
from shared.postgres.writes import Writes
from shared.testing import eventually
from tests.support.worlds.scheduler import FakeGpu, accepted, ledger, scheduler, world

WHOLE = FakeGpu(uuid="GPU-0", index=0, simulated=False)
INSTANCE = FakeGpu(
    uuid="MIG-0", index=1, parent_uuid="GPU-P", mig_profile="1g.10gb", simulated=False
)


class Stale:
    """A decision for a request that waits, made on what the ledger no longer says in a moment."""

    def __init__(self, database: Database, grant: Grant, before: InventoryReported) -> None:
        self.database = database
        self.grant = grant
        self.inventory = before
        self.leadership = Leadership(database, 3600.0)

    def reported(self, *, labels: dict[str, str] | None = None, **device: Any) -> None:
        [facts] = self.inventory.devices
        self.inventory = replace(
            self.inventory,
            revision=self.inventory.revision + 1,
            labels=labels or {},
            devices=(replace(facts, **device),),
        )

    async def report(self, connection: Connection) -> None:
        await node_rows.write_inventory(connection, self.inventory, admits=True)

    async def apply(self) -> None:
        async with self.database.transaction() as connection:
            await self.grant_in(connection)

    async def grant_in(self, connection: Connection) -> None:
        writes, now = Writes(), await reservation_rows.database_now(connection)
        await apply_decisions.apply(connection, writes, self.leadership, (self.grant,), now)
        await writes.send(connection)


@asynccontextmanager
async def decided(
    nats_url: str,
    postgres_dsn: str,
    gpu: FakeGpu,
    request: GpuRequest,
    labels: dict[str, str] | None = None,
) -> AsyncIterator[Stale]:
    """No scheduler runs any more; the request waits, its device is free and nobody decides."""
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as around:
        node = await around.add_node("alpha", [gpu], labels=labels or {})
        await around.known("alpha", 1)
        cordon = Cordon(command_id=new_id(), node_id="alpha", device_uuid=gpu.uuid)
        accepted(await around.bus.request(cordon))
        waiting = await around.request(request)
        await around.waiting(waiting, ReasonCode.CORDONED)
        before = await node.report_inventory()
    async with ledger(postgres_dsn) as connection:
        await connection.execute("UPDATE device SET cordoned = false")
        number = await connection.fetchval("SELECT device_no FROM device")
    database = Database(postgres_dsn, "scheduler", MIGRATIONS)
    await database.open()
    try:
        stale = Stale(database, grant_of(waiting, number, gpu, request, labels or {}), before)
        await stale.leadership.hold(succeeds=True)
        yield stale
    finally:
        await database.close()


def grant_of(
    reservation_id: UUID, number: int, gpu: FakeGpu, request: GpuRequest, labels: dict[str, str]
) -> Grant:
    device = Device(
        number=number,
        node_id="alpha",
        uuid=gpu.uuid,
        index=gpu.index,
        name=gpu.name,
        parent_uuid=gpu.parent_uuid,
        mig_profile=gpu.mig_profile,
    )
    node = PlacedNode(
        node_id="alpha",
        devices=(Scored(device, 1.0),),
        parts=(50,) if request.shares else (),
        share_kind=ShareKind.MPS if labels else ShareKind.COOPERATIVE,
    )
    return Grant(reservation_id=reservation_id, placed=Placed(nodes=(node,)))


@pytest.mark.parametrize(
    ("gpu", "request_", "change"),
    [
        pytest.param(WHOLE, GpuRequest(), {"mig_enabled": True}, id="divided"),
        pytest.param(
            INSTANCE,
            GpuRequest(mig_profile="1g.10gb"),
            {"mig_profile": "2g.20gb"},
            id="an instance made anew with another profile",
        ),
        pytest.param(WHOLE, GpuRequest(), {"uuid": "GPU-9"}, id="gone"),
    ],
)
async def test_changed_device_is_not_granted_as_before(
    nats_url: str,
    postgres_dsn: str,
    gpu: FakeGpu,
    request_: GpuRequest,
    change: dict[str, Any],
) -> None:
    """The inventory is committed after the leader has read the ledger, before it commits."""
    async with decided(nats_url, postgres_dsn, gpu, request_) as stale:
        stale.reported(**change)
        async with stale.database.transaction() as connection:
            await stale.report(connection)

        with pytest.raises(LedgerChanged):
            await stale.apply()


async def test_a_device_that_is_as_it_was_is_granted(nats_url: str, postgres_dsn: str) -> None:
    async with decided(
        nats_url, postgres_dsn, INSTANCE, GpuRequest(mig_profile="1g.10gb")
    ) as stale:
        stale.reported(name="reported again")
        async with stale.database.transaction() as connection:
            await stale.report(connection)

        await stale.apply()

        async with ledger(postgres_dsn) as connection:
            assert await connection.fetchval("SELECT count(*) FROM holding") == 1


@pytest.mark.parametrize("before", [{}, {MPS_LABEL: "true"}], ids=["on", "off"])
async def test_shares_need_their_enforcement(
    nats_url: str, postgres_dsn: str, before: dict[str, str]
) -> None:
    """The grant waits for the inventory, whose transaction is open and has the node's label."""
    half = GpuRequest(shares=0.5)
    async with decided(nats_url, postgres_dsn, WHOLE, half, before) as stale:
        stale.reported(labels={} if before else {MPS_LABEL: "true"})
        async with stale.database.transaction() as connection:
            await stale.report(connection)
            applying = asyncio.create_task(stale.apply())
            async with ledger(postgres_dsn) as observer:
                await eventually(
                    lambda: observer.fetchval("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
                )

        with pytest.raises(LedgerChanged):
            await applying


async def test_enforcement_stays_for_an_earlier_grant(nats_url: str, postgres_dsn: str) -> None:
    """The inventory waits for the grant, and then finds that a share is held."""
    labels = {MPS_LABEL: "true"}
    async with decided(nats_url, postgres_dsn, WHOLE, GpuRequest(shares=0.5), labels) as stale:
        stale.reported()

        async def report() -> None:
            async with stale.database.transaction() as connection:
                await stale.report(connection)

        async with stale.database.transaction() as connection:
            await stale.grant_in(connection)
            reporting = asyncio.create_task(report())
            async with ledger(postgres_dsn) as observer:
                await eventually(
                    lambda: observer.fetchval("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
                )
        await reporting

        async with ledger(postgres_dsn) as observer:
            assert await observer.fetchval("SELECT labels ->> $1 FROM node", MPS_LABEL) == "true"
