"""Twenty ways in which a network divides a platform, one after the other."""

import asyncio
import random
import time
from dataclasses import dataclass

from tests.support.history.arena import Arena
from tests.support.history.links import Direction
from tests.support.history.nemesis import TERM_SECONDS
from tests.support.history.records import Outage

SECONDS = (3.5, 7.0)
REST_SECONDS = 3.0
NODES = ("nodes-0", "nodes-1", "nodes-2")
SCHEDULERS = ("scheduler-a", "scheduler-b")
SERVERS = ("n1", "n2", "n3")


@dataclass(frozen=True, slots=True)
class Partition:
    """What is held up: links by name, in these directions, or in both; and a server of the bus."""

    links: tuple[str, ...] = ()
    directions: tuple[Direction, ...] = ()
    isolated: str | None = None

    def __str__(self) -> str:
        ways = " and ".join(direction.value for direction in self.directions) or "both ways"
        parts = [f"{link}: {ways}" for link in self.links]
        if self.isolated is not None:
            parts.append(f"bus split, {self.isolated} alone")
        return ", ".join(parts)


PARTITIONS = (
    *(Partition((node,), (direction,)) for node in NODES for direction in Direction),
    *(Partition((name,), (direction,)) for name in SCHEDULERS for direction in Direction),
    *(
        Partition((f"postgres of {name}",), directions)
        for name in SCHEDULERS
        for directions in ((), (Direction.SENT,), (Direction.RECEIVED,))
    ),
    *(Partition(isolated=server) for server in SERVERS),
    Partition(("postgres of scheduler-a",), isolated="n2"),
)


async def divide(arena: Arena, dice: random.Random) -> None:
    """Have every partition once, in an order of the dice; all are healed when this returns."""
    for partition in dice.sample(PARTITIONS, len(PARTITIONS)):
        began = time.monotonic()
        arena.fault("partition", str(partition))
        for name in partition.links:
            arena.links[name].hold_up(*partition.directions)
        if partition.isolated is not None and arena.split_bus is not None:
            arena.split_bus.isolate(partition.isolated)
        try:
            await asyncio.sleep(dice.uniform(*SECONDS))
        finally:
            for link in arena.links.values():
                link.let_through()
            if arena.split_bus is not None:
                arena.split_bus.heal()
        if any(name.startswith("postgres") for name in partition.links):
            # A leader may be cut off within a transaction. Its term runs out, and Postgres ends the
            # transaction, which has the leader's row, one term later.
            until = min(time.monotonic(), began + 2 * TERM_SECONDS)
            arena.note(Outage(at=began, until=until, what="leader without Postgres"))
        await asyncio.sleep(REST_SECONDS)
