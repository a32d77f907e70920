"""What happens, as it happens, as typed streams."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode
from uuid import UUID

from schemas.executor.attempts import AttemptProgressed
from schemas.executor.logs import AttemptLogged
from schemas.gateway.views import GpuMetrics, StoredEvent
from shared.client.connection import GatewayConnection, decoded_frames


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
        wanted = {
            "after": after,
            "task_id": task_id,
            "experiment_id": experiment_id,
            "reservation_id": reservation_id,
        }
        async with self.socket(_path("/ws/events", wanted)) as socket:
            yield decoded_frames(socket, StoredEvent)

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
        wanted = {"task_id": task_id, "node_id": node_id, "rate": rate}
        async with self.socket(_path("/ws/metrics", wanted)) as socket:
            yield decoded_frames(socket, GpuMetrics | AttemptProgressed)

    @asynccontextmanager
    async def log_lines(self, experiment_id: UUID) -> AsyncIterator[AsyncIterator[AttemptLogged]]:
        """Lines of an experiment's engine as they are written; offsets show what we were too slow
        for. Ends when the gateway does.
        """
        async with self.socket(f"/ws/logs?experiment_id={experiment_id}") as socket:
            yield decoded_frames(socket, AttemptLogged)


def _path(path: str, wanted: Mapping[str, object]) -> str:
    query = urlencode({name: value for name, value in wanted.items() if value is not None})
    return f"{path}?{query}" if query else path
