"""Collects what is reserved, what runs and what uses the GPUs, to be compared."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import FRESH_INTERVALS, NodeId
from schemas.executor.running import ListRunning, RunningAttempts
from services.scheduler.domain.drift.detection import DeviceUse, Holding, NodeUse, Workload
from services.scheduler.domain.drift.lifecycle import Limits
from services.scheduler.domain.faults import Loss, is_accounted_for
from services.scheduler.domain.idle import Activity
from services.scheduler.domain.model.fleet import ReadingState
from services.scheduler.ledger.rows import holding_rows, loss_rows, node_rows, reservation_rows
from services.scheduler.ledger.rows.loss_rows import LossRow
from services.scheduler.ledger.rows.node_rows import KnownDevice, NodeStatus
from services.scheduler.observations.cluster_views import ClusterViews
from services.scheduler.observations.engine_activities import EngineActivities
from services.scheduler.observations.latest_readings import LatestReadings
from services.scheduler.observations.node_liveness import NodeLiveness
from shared.errors import RefusedError, UnavailableError
from shared.messaging.bus import Bus
from shared.postgres.database import Connection

QUERY_SECONDS: Final = 2.0
CONCURRENT_QUERIES: Final = 32


class Collected(Struct, frozen=True, kw_only=True):
    """Holdings, nodes with devices, and the reservations of labels that the ledger knows.

    `lost` nodes are among them; `losses` are cordons that lift themselves; `epochs` are those of
    the known reservations; `engines` are by node and reservation.
    """

    holdings: tuple[Holding, ...]
    nodes: tuple[NodeUse, ...]
    epochs: Mapping[UUID, int]
    lost: frozenset[NodeId]
    losses: tuple[Loss, ...]
    engines: Mapping[tuple[NodeId, UUID], Activity]


@dataclass(frozen=True, slots=True)
class Collector:
    """Queries executors, then reads Postgres and the readings; in this order, so that what ends in
    between is at worst found once too often.
    """

    bus: Bus
    readings: LatestReadings
    liveness: NodeLiveness
    limits: Limits
    views: ClusterViews
    engines: EngineActivities

    async def query_executors(self, node_ids: Iterable[NodeId]) -> dict[NodeId, RunningAttempts]:
        """Return the running attempts of the executors that answer."""
        limit = asyncio.Semaphore(CONCURRENT_QUERIES)

        async def query(node_id: NodeId) -> RunningAttempts | None:
            async with limit:
                try:
                    answer = await self.bus.query(
                        ListRunning(executor_id=node_id),
                        RunningAttempts,
                        timeout_seconds=QUERY_SECONDS,
                    )
                except (UnavailableError, RefusedError):
                    return None
            self.liveness.record_executor(node_id)
            return answer

        queried = list(node_ids)
        answers = await asyncio.gather(*map(query, queried))
        return {
            node_id: answer
            for node_id, answer in zip(queried, answers, strict=True)
            if answer is not None
        }

    async def read(
        self, connection: Connection, running: Mapping[NodeId, RunningAttempts]
    ) -> Collected:
        """Read everything, together with what the executors have answered."""
        nodes = await node_rows.statuses(connection)
        devices: defaultdict[NodeId, list[KnownDevice]] = defaultdict(list)
        for device in await node_rows.devices(connection):
            devices[device.node_id].append(device)
        uses = tuple(
            self._use(node, devices[node.node_id], running.get(node.node_id))
            for node in nodes
            if devices[node.node_id] or node.node_id in running
        )
        holdings = await holding_rows.all_open(connection)
        accounted_nodes = {node.node_id for node in nodes if _is_accounted(node, running, holdings)}
        return Collected(
            holdings=holdings,
            nodes=uses,
            epochs=await reservation_rows.epochs(connection, _labels(uses)),
            lost=frozenset(node.node_id for node in nodes if node.lost),
            losses=tuple(
                self._restore_loss(row, accounted_nodes) if row.is_restored else self._loss(row)
                for row in await loss_rows.losses(connection)
            ),
            engines=self.engines.take(),
        )

    def _use(
        self, node: NodeStatus, devices: list[KnownDevice], running: RunningAttempts | None
    ) -> NodeUse:
        return NodeUse(
            node_id=node.node_id,
            silent_seconds=self._silence(node.node_id) if devices else 0.0,
            was_stopped=node.stopped,
            clock_ahead_seconds=self.readings.clock_ahead_seconds(node.node_id),
            in_pods=self.views.in_pods(node.node_id),
            workloads=_workloads(running),
            # A GPU in MIG mode shows the processes of its instances, which are devices themselves.
            # What uses a cluster's GPUs is its pods', and no reservation's of these devices.
            devices=tuple(
                self._device(device)
                for device in devices
                if not device.mig_enabled and not node.is_in_cluster
            ),
        )

    def _silence(self, node_id: NodeId) -> float | None:
        seconds, has_sent = self.liveness.agent_silence(node_id)
        if seconds <= FRESH_INTERVALS * self.readings.interval_seconds(node_id):
            return 0.0 if has_sent else None
        is_long = seconds > self.limits.stale_agent_seconds
        return seconds if has_sent or is_long else None

    def _loss(self, row: LossRow) -> Loss:
        return Loss(
            node_id=row.node_id,
            device_no=row.device_no,
            is_well=row.is_well and self.readings.is_read(row.node_id, row.uuid),
            quiet_since=row.quiet_since,
        )

    def _restore_loss(self, row: LossRow, accounted_nodes: Collection[NodeId]) -> Loss:
        return Loss(
            node_id=row.node_id,
            device_no=row.device_no,
            is_well=row.is_well and row.are_leases_over and row.node_id in accounted_nodes,
            quiet_since=None,
            needs_quiet=False,
        )

    def _device(self, device: KnownDevice) -> DeviceUse:
        node_id, uuid = device.node_id, device.uuid
        state, reading = self.readings.find(node_id, uuid, device.releases)
        peak = self.readings.take_peak(node_id, uuid)
        if peak is None and reading is not None:  # an agent that samples less often than this
            peak = reading.utilization_percent
        return DeviceUse(
            uuid=uuid,
            name=device.name,
            is_read=state is ReadingState.FRESH,
            processes=self.readings.processes(node_id, uuid),
            utilization_percent=peak,
        )


def _is_accounted(
    node: NodeStatus, running: Mapping[NodeId, RunningAttempts], holdings: Iterable[Holding]
) -> bool:
    workloads = _workloads(running.get(node.node_id))
    own_ids = None if workloads is None else [w.reservation_id for w in workloads if w.is_ours]
    held_ids = {holding.reservation_id for holding in holdings if not holding.quarantined}
    return is_accounted_for(own_ids, held_ids, has_executor=node.has_executor)


def _workloads(running: RunningAttempts | None) -> tuple[Workload, ...] | None:
    """Return the workloads; None if the executor does not report labels: its own attempts are not
    everything.
    """
    if running is None or running.workloads is None:
        return None
    labelled = (
        Workload(
            reservation_id=workload.reservation_id,
            epoch=workload.epoch,
            pids=workload.pids,
            is_ours=workload.ours,
            node_id=workload.node_id,
        )
        for workload in running.workloads
    )
    journaled = (
        Workload(reservation_id=attempt.reservation_id, epoch=attempt.epoch, pids=attempt.pids)
        for attempt in running.attempts
    )
    return (*labelled, *journaled)


def _labels(nodes: Iterable[NodeUse]) -> set[UUID]:
    """Return every reservation that a workload or a process names."""
    labels = {w.reservation_id for node in nodes for w in node.workloads or ()}
    return labels | {
        process.reservation_id
        for node in nodes
        for device in node.devices
        for process in device.processes or ()
        if process.reservation_id is not None
    }
