"""Messages that an agent answers."""

from dataclasses import dataclass

from schemas.telemetry import GetSnapshot, GpuSampled
from services.telemetry.agent import Agent
from shared.bus import Route, query_route


@dataclass(frozen=True, slots=True)
class Handlers:
    """What the agent does for others."""

    agent: Agent

    async def snapshot(self, query: GetSnapshot) -> GpuSampled:
        """Read now, or from the cache where the asker allows it."""
        return await self.agent.snapshot(
            use_cache=query.use_cache, released=query.released_reservation_id
        )


def build_routes(handlers: Handlers, node_id: str) -> list[Route]:
    """The table of routes."""
    return [query_route(handlers.snapshot, GetSnapshot, key=node_id)]
