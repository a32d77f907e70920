"""What happens, as it happens, as typed streams."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from schemas.executor.attempts import AttemptProgressed
from schemas.executor.logs import AttemptLogged
from schemas.gateway import endpoints
from schemas.gateway.views import GpuMetrics, StoredEvent
from shared.client.connection import GatewayConnection, decode_frames


class StreamClient(GatewayConnection):
    """The part of `StewardClient` that is about sockets."""

    @asynccontextmanager
    async def events(
        self,
        after: int | None = None,
        *,
        task_id: UUID | None = None,
        experiment_id: UUID | None = None,
        reservation_id: UUID | None = None,
    ) -> AsyncIterator[AsyncIterator[StoredEvent]]:
        """Events as they happen, from the cursor on if one is given. Ends when the gateway does.

        Those of a task or experiment include its reservations'.
        """
        async with self.socket(
            endpoints.WATCH_EVENTS,
            after=after,
            task_id=task_id,
            experiment_id=experiment_id,
            reservation_id=reservation_id,
        ) as socket:
            yield decode_frames(socket, StoredEvent)

    @asynccontextmanager
    async def metrics(
        self,
        *,
        task_id: UUID | None = None,
        node_id: str | None = None,
        rate: float | None = None,
    ) -> AsyncIterator[AsyncIterator[GpuMetrics | AttemptProgressed]]:
        """Readings and benchmark progress as they happen, only the newest if we are slow, or more
        often than `rate` per second of a node.

        A task's are its benchmarks and the GPUs of its experiments under way.
        """
        async with self.socket(
            endpoints.WATCH_METRICS, task_id=task_id, node_id=node_id, rate=rate
        ) as socket:
            yield decode_frames(socket, GpuMetrics | AttemptProgressed)

    @asynccontextmanager
    async def log_lines(self, experiment_id: UUID) -> AsyncIterator[AsyncIterator[AttemptLogged]]:
        """Lines of an experiment's engine as they are written; offsets show what we were too slow
        for. Ends when the gateway does.
        """
        async with self.socket(endpoints.WATCH_LOGS, experiment_id=experiment_id) as socket:
            yield decode_frames(socket, AttemptLogged)
