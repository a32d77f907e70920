"""Watching a node's GPUs for a while, with one question to the platform at each end."""

from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import UUID

import msgspec

from shared.client.devices import node_of_indices
from shared.client.http import StewardClient
from shared.client.platform_query import query_platform
from shared.ids import new_id

SEEN: Final = ("monitoring_duration_seconds", "sample_count", "missed_count", "gpu_stats")


@dataclass(frozen=True, slots=True)
class Watch:
    """A monitoring that runs; a program may have several at once."""

    node_id: str
    monitoring_id: UUID

    @classmethod
    async def start(
        cls, node_id: str | None, *, max_seconds: float, interval_seconds: float = 1.0
    ) -> Self:
        """Start on `node_id`, else on the node that indices mean. Raises ValueError if there is
        none.
        """

        async def ask(client: StewardClient) -> Self:
            node = node_id or node_of_indices([n.node_id for n in (await client.nodes()).nodes])
            if node is None:
                raise ValueError("expected a node to monitor, found none")
            watch = cls(node, new_id())
            await client.start_monitoring(
                node,
                interval_seconds=interval_seconds,
                max_seconds=max_seconds,
                monitoring_id=watch.monitoring_id,
            )
            return watch

        return await query_platform(ask)

    async def stop(self) -> dict[str, Any]:
        """Stop and return the summary: duration, number of samples, and per GPU minimum, maximum
        and mean.
        """
        view = await query_platform(
            lambda client: client.stop_monitoring(self.node_id, self.monitoring_id)
        )
        document = msgspec.to_builtins(view)
        return {name: document[name] for name in SEEN}
