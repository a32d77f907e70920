"""Everything of this installation that runs on this host, in whichever runtime."""

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.executor.attempts import Runtime
from schemas.executor.running import RunningWorkload
from schemas.scheduler.reservations import OPEN_STATES
from schemas.scheduler.views import GetReservation, ReservationView
from services.executor.domain.reconciliation import KnownReservations, LabelledWorkload, compare
from services.executor.host.local_executors import LocalExecutorRegistry
from services.executor.journal import kept_rows, store
from services.executor.journal.journal import Journal
from services.executor.runtimes.runtime import EngineRuntime, Labels, RuntimeUnavailable, Workload
from shared.errors import RefusedError, UnavailableError
from shared.logging import log
from shared.messaging.bus import Bus

ASK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """`runtimes` in the order in which they end what a reservation left."""

    node_id: str
    local_executors: LocalExecutorRegistry
    runtimes: Mapping[Runtime, EngineRuntime]
    journal: Journal
    bus: Bus

    async def all(self, about: UUID | None = None) -> tuple[list[Workload], str]:
        """Return all labelled workloads, and why a runtime could not be asked; empty if all
        answered.

        One that does not answer counts only if it was used here, or for the reservation asked
        about: a host without a container engine has no containers.
        """
        workloads: list[Workload] = []
        unavailable = ""
        for kind, runtime in self.runtimes.items():
            try:
                workloads += await runtime.workloads()
            except RuntimeUnavailable as error:
                if await self._was_used(kind, about):
                    unavailable = str(error)
        return workloads, unavailable

    async def is_quiet(self, reservation_id: UUID) -> bool:
        """Return whether nothing of the reservation is there; what an absent runtime may have
        counts.
        """
        unfinished = await self.journal.transact(store.find_unfinished_attempts)
        if any(record.command.reservation_id == reservation_id for record in unfinished):
            return False
        workloads, unavailable = await self.all(reservation_id)
        return not unavailable and not self._nodes_of(reservation_id, workloads)

    async def end(self, labels: Labels, *, grace_seconds: float = 0.0) -> None:
        """Return once nothing of the reservation is left in any runtime.

        One that does not answer is waited for only if the reservation was used there.
        """
        for kind, runtime in self.runtimes.items():
            if await self._was_used(kind, labels.reservation_id) or await self._answers(runtime):
                await runtime.end(labels, grace_seconds=grace_seconds)

    async def end_all(self, labels: Labels, *, grace_seconds: float = 0.0) -> None:
        """End the workloads as `end` does, and those that name a node without an executor on this
        host.
        """
        await self.end(labels, grace_seconds=grace_seconds)
        workloads, _ = await self.all(labels.reservation_id)
        for node_id in self._nodes_of(labels.reservation_id, workloads) - {self.node_id}:
            await self.end(replace(labels, node_id=node_id))

    async def find_ungranted(self, ending: Collection[UUID]) -> dict[UUID, str]:
        """Reservations under which something runs that must not, with the reason.

        Those in `ending` are being ended already.
        """
        workloads, unavailable = await self.all()
        if unavailable:
            log.warning("runtime_unavailable", reason=unavailable)
        labelled_workloads = [
            LabelledWorkload(
                reservation_id=workload.labels.reservation_id,
                experiment_id=workload.labels.experiment_id,
                is_ours=workload.is_named and workload.labels.node_id == self.node_id,
            )
            for workload in workloads
        ]
        # Read after the listing: what was started meanwhile is under way by now.
        comparison = compare(labelled_workloads, await self._load_known(ending, labelled_workloads))
        ended = {
            reservation_id: "its reservation has ended"
            for reservation_id in comparison.ask
            if await self._has_ended(reservation_id)
        }
        return comparison.stop | ended

    def _nodes_of(self, reservation_id: UUID, workloads: Iterable[Workload]) -> set[str]:
        """The nodes that its workloads name, without those whose executors share this host."""
        node_ids = {
            w.labels.node_id for w in workloads if w.labels.reservation_id == reservation_id
        }
        return {
            node_id
            for node_id in node_ids
            if node_id == self.node_id or not self.local_executors.is_here(node_id)
        }

    async def _answers(self, runtime: EngineRuntime) -> bool:
        try:
            await runtime.workloads()
        except RuntimeUnavailable:
            return False
        return True

    async def _load_known(
        self, ending: Collection[UUID], workloads: Iterable[LabelledWorkload]
    ) -> KnownReservations:
        reservations = {workload.reservation_id for workload in workloads}

        def read(connection: sqlite3.Connection) -> KnownReservations:
            unfinished = store.find_unfinished_attempts(connection)
            kept = kept_rows.find_all(connection)
            return KnownReservations(
                under_way={record.command.reservation_id for record in (*unfinished, *kept)},
                ending=frozenset(ending),
                fenced={
                    reservation_id
                    for reservation_id in reservations
                    if store.is_fenced(connection, reservation_id)
                },
            )

        return await self.journal.transact(read)

    async def _was_used(self, kind: Runtime, about: UUID | None) -> bool:
        return await self.journal.transact(
            lambda connection: store.was_used(connection, kind, about)
        )

    async def _has_ended(self, reservation_id: UUID) -> bool:
        """Return whether the scheduler says that it has ended; False if it does not answer or know
        of it.
        """
        try:
            view = await self.bus.query(
                GetReservation(reservation_id=reservation_id),
                ReservationView,
                timeout_seconds=ASK_SECONDS,
            )
        except (UnavailableError, RefusedError):
            return False
        return view.state not in OPEN_STATES


def by_reservation(workloads: list[Workload]) -> tuple[RunningWorkload, ...]:
    """Return one entry for each reservation and epoch: a container and its processes are one
    workload.
    """
    groups: dict[tuple[UUID, int | None, bool, str], list[Workload]] = {}
    for workload in workloads:
        labels = workload.labels
        whose = (labels.reservation_id, labels.epoch, workload.is_named, labels.node_id)
        groups.setdefault(whose, []).append(workload)
    return tuple(
        RunningWorkload(
            reservation_id=reservation_id,
            epoch=epoch,
            pids=tuple(sorted({pid for workload in together for pid in workload.pids})),
            ours=is_named,
            container_ids=tuple(
                sorted({i for workload in together for i in workload.container_ids})
            ),
            node_id=node_id,
        )
        for (reservation_id, epoch, is_named, node_id), together in groups.items()
    )
