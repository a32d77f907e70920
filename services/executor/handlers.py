"""The executor's commands and queries."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from schemas.backlog import Backlog, GetExecutorBacklog
from schemas.base import PLATFORM
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.executor.attempts import CancelExperiment, FenceReservation, StartExperiment
from schemas.executor.logs import LogChunk, ReadLog
from schemas.executor.ranks import GetRank, RankState, RankView, StartRank
from schemas.executor.running import ListRunning, RunningAttempts
from schemas.executor.servers import AskServer, ListServedModels
from schemas.scheduler.views import GetReservation, ReservationView
from services.executor.attempts.benchmark_check import check_benchmark
from services.executor.domain.admission import refuse_misdirected, refuse_start
from services.executor.domain.gang import is_coordinated, is_coordinated_by, nodes_of, rank_of
from services.executor.domain.traffic import check_rank_traffic
from services.executor.engines.engine_table import rank_flags
from services.executor.executor import Executor
from services.executor.host.servers import Servers
from services.executor.journal import kept_rows, store
from services.executor.journal.store import NodeCommand
from services.executor.logs.engine_log import read_log
from shared.clock import utcnow
from shared.engines.variables import read_variables
from shared.errors import RefusedError, UnavailableError
from shared.load_files.preparation import check_files
from shared.messaging.bus import Route, command_route, query_route
from shared.messaging.idempotency import is_final, replay_or_refuse

MAX_START_BYTES: Final = 256 << 10
ASK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Handlers:
    executor: Executor

    async def start_experiment(self, command: StartExperiment) -> Reply:
        """Accepted once it is journaled; the attempt runs from then on.

        A repetition is answered as before, and the attempt's end, if it has ended, published again.
        """
        # In a thread: a model's directory may lie on a disk that is slow to answer.
        refusal = await asyncio.to_thread(self._refuse_unrunnable, command)
        if refusal is None and command.speaker != PLATFORM:
            refusal = await self._refuse_ungranted(command)
        is_admitted = False
        kept = await self.executor.kept.take_for(command) if refusal is None else None

        def admit(connection: sqlite3.Connection) -> Reply:
            nonlocal is_admitted
            reply = refusal or self._answer_repeated(connection, command)
            reply = reply or self._refuse_now(connection, command, has_engine=kept is not None)
            if reply is not None:
                return reply
            store.insert_attempt(connection, command, utcnow())
            kept_rows.hand_over(connection, command)
            is_admitted = True
            return Accepted(command_id=command.command_id)

        try:
            reply = await self._once(command, admit)
        finally:
            if kept is not None and not is_admitted:
                self.executor.kept.end_later(kept, "its next run was refused")
        if is_admitted:
            self.executor.start_attempt(command, kept)
        elif isinstance(reply, Refused) and reply.code is ErrorCode.STILL_RUNNING:
            self.executor.kept.stop_all("another attempt needs its place on the node")
        elif isinstance(reply, Accepted):
            await self.executor.publish_end_again(command.attempt_id)
        return reply

    async def cancel_experiment(self, command: CancelExperiment) -> Reply:
        """Accepted once it is journaled; a running attempt is being stopped."""

        def cancel(connection: sqlite3.Connection) -> Reply:
            present_record = store.attempt(connection, command.attempt_id)
            if present_record is not None and not is_coordinated_by(
                present_record.command, command.speaker
            ):
                return _forbidden(command)
            store.request_cancel(connection, command.attempt_id, command.reason)
            record = store.attempt(connection, command.attempt_id)
            return Accepted(
                command_id=command.command_id, revision=record.revision if record else 0
            )

        reply = await self._once(command, cancel)
        if isinstance(reply, Accepted):
            self.executor.cancel_attempt(command.attempt_id, command.reason)
        return reply

    async def fence_reservation(self, command: FenceReservation) -> Reply:
        """Accepted when nothing runs under the reservation and nothing will."""

        def remember(connection: sqlite3.Connection) -> None:
            store.fence(connection, command.reservation_id)
            store.see_epoch(connection, command.epoch)

        await self.executor.journal.transact(remember)
        if not await self.executor.is_stopped(command.reservation_id):
            return Refused(
                code=ErrorCode.STILL_RUNNING,
                message=f"what runs under reservation {command.reservation_id} is being stopped",
                command_id=command.command_id,
            )
        return await self._once(command, lambda _: Accepted(command_id=command.command_id))

    async def get_rank(self, query: GetRank) -> RankView:
        """This executor's rank of an attempt. Raises RefusedError if it has none."""
        executor = self.executor
        run = executor.run_of(query.attempt_id)
        if run is not None:
            return run.rank_view(executor.address)
        record = await executor.journal.transact(
            lambda connection: store.attempt(connection, query.attempt_id)
        )
        if record is None:
            raise RefusedError(ErrorCode.NOT_FOUND, f"no attempt {query.attempt_id} here")
        return RankView(
            executor_id=executor.settings.node_id,
            attempt_id=query.attempt_id,
            rank=rank_of(record.command),
            state=RankState.ENDING if record.outcome is None else RankState.ENDED,
            failure=record.failure,
            address=executor.address,
        )

    async def start_rank(self, command: StartRank) -> Reply:
        """Accepted once it is journaled; the rank's engine starts then."""
        run = self.executor.run_of(command.attempt_id)
        is_open = run is not None and run.awaits_start

        def accept(_: sqlite3.Connection) -> Reply:
            if run is not None and not is_coordinated_by(run.command, command.speaker):
                return _forbidden(command)
            if is_open:
                return Accepted(command_id=command.command_id)
            return Refused(
                code=ErrorCode.LEASE_LOST,
                message=f"no rank of attempt {command.attempt_id} waits to be started here",
                command_id=command.command_id,
            )

        reply = await self._once(command, accept)
        if isinstance(reply, Accepted) and run is not None:
            run.ranks.start(command)
        return reply

    async def list_running(self, _: ListRunning) -> RunningAttempts:
        return await self.executor.running_attempts()

    async def backlog(self, _: GetExecutorBacklog) -> Backlog:
        return Backlog(outbox_age_seconds=await self.executor.outbox.age_seconds(time.time()))

    async def read_log(self, query: ReadLog) -> LogChunk:
        """Return a part of what an attempt's engine wrote. Raises RefusedError if nothing is
        kept.
        """
        return await read_log(self.executor.settings, self.executor.journal, query)

    async def _once(
        self, command: NodeCommand, apply: Callable[[sqlite3.Connection], Reply]
    ) -> Reply:
        """Apply a command, or repeat its stored reply. Retryable refusals are not stored."""

        def answer(connection: sqlite3.Connection) -> Reply:
            stored = store.find_reply(connection, command.command_id)
            if stored is not None:
                if _is_known(connection, command):
                    return stored[1]
                return replay_or_refuse(command.command_id, store.body_hash(command), *stored)
            reply = apply(connection)
            if is_final(reply):
                store.store_reply(connection, command, reply)
            return reply

        return await self.executor.journal.transact(answer)

    def _refuse_unrunnable(self, command: StartExperiment) -> Refused | None:
        executor = self.executor
        refusal = refuse_misdirected(
            command, executor.settings.node_id, executor.workloads.runtimes
        )
        if refusal is not None:
            return refusal
        if len(msgspec.msgpack.encode(command)) > MAX_START_BYTES:
            return Refused(
                code=ErrorCode.TOO_LARGE,
                message=f"expected a start of at most {MAX_START_BYTES >> 10} KiB, since its "
                "end repeats it",
                command_id=command.command_id,
            )
        try:
            read_variables(command.engine.env, executor.settings.task_variable_patterns)
            if command.gang is not None or is_coordinated(command):
                check_rank_traffic(executor.settings.engine_traffic, executor.address)
            executor.workloads.runtimes[command.engine.runtime].check(command)
            if command.gang is None:  # the coordinator alone measures
                check_benchmark(command.benchmark, executor.settings.model_root_paths)
                check_files(command.benchmark, executor.settings.file_places)
            if len(nodes_of(command.devices)) > 1:
                rank_flags(command.engine.engine)
        except RefusedError as error:
            return error.as_refused(command.command_id)
        return None

    async def _refuse_ungranted(self, command: StartExperiment) -> Refused | None:
        """Unless the scheduler granted what a node says: a made-up epoch would be remembered."""
        bus, query = self.executor.bus, GetReservation(reservation_id=command.reservation_id)
        try:
            view = await bus.query(query, ReservationView, timeout_seconds=ASK_SECONDS)
        except UnavailableError as error:
            return RefusedError(ErrorCode.UNAVAILABLE, str(error)).as_refused(command.command_id)
        except RefusedError as error:
            return error.as_refused(command.command_id)
        if (view.epoch, view.devices) == (command.epoch, command.devices):
            return None
        return Refused(
            code=ErrorCode.FORBIDDEN,
            message=(
                f"reservation {command.reservation_id} was granted with another epoch"
                " or other devices"
            ),
            path="$.reservation_id",
            command_id=command.command_id,
        )

    def _answer_repeated(
        self, connection: sqlite3.Connection, command: StartExperiment
    ) -> Reply | None:
        """The answer if the attempt is known: the same start under another command id is fine."""
        record = store.attempt(connection, command.attempt_id)
        if record is None:
            return None
        if msgspec.structs.replace(record.command, command_id=command.command_id) == command:
            return Accepted(command_id=command.command_id, revision=record.revision)
        return Refused(
            code=ErrorCode.CONFLICT,
            message=f"attempt {command.attempt_id} was started with another body",
            path="$.attempt_id",
            command_id=command.command_id,
        )

    def _refuse_now(
        self, connection: sqlite3.Connection, command: StartExperiment, *, has_engine: bool
    ) -> Refused | None:
        if self.executor.is_stopping:
            return Refused(
                code=ErrorCode.UNAVAILABLE,
                message="this executor is being stopped",
                command_id=command.command_id,
            )
        history = store.recall_start(connection, command)
        return refuse_start(
            command,
            replace(history, is_kept=history.is_kept and has_engine),
            engine_slots=self.executor.settings.engine_slots,
        )


def build_routes(handlers: Handlers) -> list[Route]:
    settings = handlers.executor.settings
    key, servers = settings.node_id, Servers(settings.endpoint_host_names)
    return [
        command_route(handlers.start_experiment, StartExperiment, key=key),
        command_route(handlers.cancel_experiment, CancelExperiment, key=key),
        command_route(handlers.fence_reservation, FenceReservation, key=key),
        command_route(handlers.start_rank, StartRank, key=key),
        query_route(handlers.get_rank, GetRank, key=key),
        query_route(handlers.list_running, ListRunning, key=key),
        query_route(handlers.read_log, ReadLog, key=key),
        query_route(handlers.backlog, GetExecutorBacklog, key=key),
        query_route(servers.list_models, ListServedModels, key=key),
        query_route(servers.ask, AskServer, key=key),
    ]


def _forbidden(command: CancelExperiment | StartRank) -> Refused:
    return Refused(
        code=ErrorCode.FORBIDDEN,
        message=f"{command.speaker} does not coordinate attempt {command.attempt_id}",
        path="$.speaker",
        command_id=command.command_id,
    )


def _is_known(connection: sqlite3.Connection, command: NodeCommand) -> bool:
    """Return whether a start is the journaled one, also where an earlier release hashed fewer
    fields.
    """
    if not isinstance(command, StartExperiment):
        return False
    record = store.attempt(connection, command.attempt_id)
    return record is not None and record.command == command
