"""The three ledgers as one look takes them: read together, judged elsewhere."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import NodeId
from schemas.executor import ListRunning, RunningAttempts
from services.scheduler.domain.drift import Limits
from services.scheduler.domain.fleet import ReadingState
from services.scheduler.domain.reconciliation import DeviceUse, Holding, NodeUse, Workload
from services.scheduler.hearing import Hearing
from services.scheduler.readings import FRESH_INTERVALS, Readings
from services.scheduler.store import Row
from shared.bus import Bus
from shared.database import Connection
from shared.errors import RefusedError, UnavailableError

ASK_SECONDS: Final = 2.0
ASKED_AT_ONCE: Final = 32


class Ledgers(Struct, frozen=True, kw_only=True):
    """Holdings, nodes with devices, and the reservations of labels that the ledger knows.

    `stopped` and `lost` nodes are among them; `epochs` are those of the known reservations.
    """

    holdings: tuple[Holding, ...]
    nodes: tuple[NodeUse, ...]
    epochs: Mapping[UUID, int]
    stopped: frozenset[NodeId]
    lost: frozenset[NodeId]


@dataclass(frozen=True, slots=True)
class LedgerReader:
    """Asks executors, looks at readings, reads Postgres; in this order, so that what ends while it
    looks is at worst seen once too often.
    """

    bus: Bus
    readings: Readings
    hearing: Hearing
    limits: Limits

    async def ask_executors(self, node_ids: Iterable[NodeId]) -> dict[NodeId, RunningAttempts]:
        """What runs, by the executors that answer."""
        at_once = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(node_id: NodeId) -> RunningAttempts | None:
            async with at_once:
                try:
                    answer = await self.bus.query(
                        ListRunning(executor_id=node_id),
                        RunningAttempts,
                        timeout_seconds=ASK_SECONDS,
                    )
                except (UnavailableError, RefusedError):
                    return None
            self.hearing.hear_executor(node_id)
            return answer

        asked = list(node_ids)
        answers = await asyncio.gather(*map(ask, asked))
        return {
            node_id: answer
            for node_id, answer in zip(asked, answers, strict=True)
            if answer is not None
        }

    async def read(
        self, connection: Connection, running: Mapping[NodeId, RunningAttempts]
    ) -> Ledgers:
        """All three."""
        nodes = await connection.fetch("SELECT node_id, stopped, lost FROM node ORDER BY node_id")
        devices: defaultdict[NodeId, list[Row]] = defaultdict(list)
        for row in await connection.fetch(
            "SELECT node_id, uuid, name, releases, mig_enabled FROM device"
        ):
            devices[row["node_id"]].append(row)
        uses = tuple(
            self._use(row, devices[row["node_id"]], running.get(row["node_id"]))
            for row in nodes
            if devices[row["node_id"]] or row["node_id"] in running
        )
        return Ledgers(
            holdings=await _holdings(connection),
            nodes=uses,
            epochs=await _epochs(connection, uses),
            stopped=frozenset(row["node_id"] for row in nodes if row["stopped"]),
            lost=frozenset(row["node_id"] for row in nodes if row["lost"]),
        )

    def _use(self, node: Row, devices: list[Row], running: RunningAttempts | None) -> NodeUse:
        node_id = node["node_id"]
        return NodeUse(
            node_id=node_id,
            silent_seconds=0.0 if node["stopped"] or not devices else self._silence(node_id),
            workloads=_workloads(running),
            # A GPU in MIG mode shows the processes of its instances, which are devices themselves.
            devices=tuple(self._device(row) for row in devices if not row["mig_enabled"]),
        )

    def _silence(self, node_id: NodeId) -> float | None:
        seconds, was_heard = self.hearing.agent_silence(node_id)
        if seconds <= FRESH_INTERVALS * self.readings.interval_seconds(node_id):
            return 0.0 if was_heard else None
        is_long = seconds > self.limits.stale_agent_seconds
        return seconds if was_heard or is_long else None

    def _device(self, row: Row) -> DeviceUse:
        node_id, uuid = row["node_id"], row["uuid"]
        state, _ = self.readings.look_up(node_id, uuid, row["releases"])
        return DeviceUse(
            uuid=uuid,
            name=row["name"],
            is_read=state is ReadingState.FRESH,
            processes=self.readings.processes(node_id, uuid),
            utilization_percent=self.readings.take_peak(node_id, uuid),
        )


def _workloads(running: RunningAttempts | None) -> tuple[Workload, ...] | None:
    """None if the executor does not say what is labelled: its own attempts are not everything."""
    if running is None or running.workloads is None:
        return None
    labelled = (
        Workload(
            reservation_id=each.reservation_id,
            epoch=each.epoch,
            pids=each.pids,
            is_ours=each.ours,
            node_id=each.node_id,
        )
        for each in running.workloads
    )
    journaled = (
        Workload(reservation_id=each.reservation_id, epoch=each.epoch, pids=each.pids)
        for each in running.attempts
    )
    return (*labelled, *journaled)


async def _holdings(connection: Connection) -> tuple[Holding, ...]:
    rows = await connection.fetch(
        "SELECT h.reservation_id, d.node_id, d.uuid AS device_uuid, h.epoch, r.lease_ttl_seconds,"
        " h.quarantined_at IS NOT NULL OR r.state NOT IN ('granted', 'active') AS quarantined"
        " FROM holding h JOIN device d USING (device_no) JOIN reservation r USING (reservation_id)"
        " WHERE h.released_at IS NULL ORDER BY h.reservation_id, h.device_no"
    )
    return tuple(Holding(**dict(row)) for row in rows)


async def _epochs(connection: Connection, nodes: Iterable[NodeUse]) -> dict[UUID, int]:
    labels = {w.reservation_id for node in nodes for w in node.workloads or ()}
    labels |= {
        process.reservation_id
        for node in nodes
        for device in node.devices
        for process in device.processes or ()
        if process.reservation_id is not None
    }
    rows = await connection.fetch(
        "SELECT reservation_id, epoch FROM reservation WHERE reservation_id = ANY($1)",
        list(labels),
    )
    return {row["reservation_id"]: row["epoch"] or 1 for row in rows}
