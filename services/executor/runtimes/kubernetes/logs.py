"""What an engine's container writes, followed into its attempt's log through breaks."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from services.executor.runtimes.kubernetes.cluster import Cluster
from services.executor.runtimes.log_position import LogPosition
from services.executor.runtimes.runtime import LogSink
from shared.kubernetes.errors import NOT_FOUND, KubernetesError
from shared.kubernetes.kinds import PODS
from shared.kubernetes.objects.pods import PodDetails
from shared.kubernetes.ome import ENGINE_CONTAINER
from shared.logging import log as diagnostics

RETRY_SECONDS: Final = 0.5
TAIL_LINES: Final = 4000
TAIL_SECONDS: Final = 3.0
MAX_LINE_BYTES: Final = 64 << 10


@dataclass(slots=True, kw_only=True)
class PodLogFollower:
    """Follows the engine's container of one pod until it has ended, or the pod is gone.

    A stream that ends says nothing: it does so when the container ends, and when the kubelet or the
    API is started again.
    """

    cluster: Cluster
    pod: PodDetails
    log: LogSink
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    _position: LogPosition = field(default_factory=LogPosition)

    async def follow(self) -> None:
        while True:
            # Read before the stream, so that what comes after an end is read once more.
            was_over = self.is_over.is_set()
            try:
                await self._read(follow=not was_over)
            except KubernetesError as error:
                if error.code == NOT_FOUND:
                    return
                diagnostics.debug("pod_log_broken_off", error=str(error))
            if was_over:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _read(self, *, follow: bool) -> None:
        parameters = {
            "container": ENGINE_CONTAINER,
            "timestamps": "true",
            "follow": str(follow).lower(),
        }
        if (since := self._position.begin()) is not None:
            parameters["sinceTime"] = f"{datetime.fromtimestamp(since, UTC):%Y-%m-%dT%H:%M:%SZ}"
        path = PODS.path(self.pod.metadata.namespace, self.pod.metadata.name, subresource="log")
        # Without a deadline where it follows: a container may be silent as long as it likes.
        timeout = None if follow else TAIL_SECONDS
        async with self.cluster.client.stream(
            path, params=parameters, timeout_seconds=timeout
        ) as pieces:
            async for line in _lines(pieces):
                if new := self._position.admit(line):
                    self.log.append(new)


async def tail_of(cluster: Cluster, pod: PodDetails, *, previous: bool) -> str:
    """The end of what its engine wrote; of the container before, if it was started again."""
    path = PODS.path(pod.metadata.namespace, pod.metadata.name, subresource="log")
    parameters = {
        "container": ENGINE_CONTAINER,
        "tailLines": str(TAIL_LINES),
        "previous": str(previous).lower(),
    }
    body = await cluster.client.call("GET", path, params=parameters, timeout_seconds=TAIL_SECONDS)
    return body.decode(errors="replace")


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines with their ends, long ones in parts.

    A line that is cut off is left out, and comes again.
    """
    tail = b""
    async for piece in pieces:
        *lines, tail = (tail + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(tail) > MAX_LINE_BYTES:
            yield tail
            tail = b""
