"""What makes several simulated engines one: they meet at the leader's port, and end together.

No tensor goes over it. As with real engines, none can serve without all of the others, and who
loses the leader, or a rank, ends.
"""

import asyncio
import sys
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from shared.errors import StewardError

RETRY_SECONDS: Final = 0.05
LOST_STATUS: Final = 3


class Place(Struct, frozen=True, kw_only=True):
    """One rank of `size`, and where rank 0 is met."""

    rank: int
    size: int
    leader_address: str
    leader_port: int

    @classmethod
    def parse(cls, rank: int, size: int, met_at: str) -> "Place":
        """Raises ValueError."""
        host, _, port = met_at.rpartition(":")
        if not 0 <= rank < size or not host:
            raise ValueError(f"expected a rank of {size} and HOST:PORT, got {rank} and {met_at!r}")
        return cls(rank=rank, size=size, leader_address=host.strip("[]"), leader_port=int(port))


class RankLost(StewardError):
    """A rank that all need has gone; the text says which."""


@dataclass(slots=True, eq=False)
class Leader:
    """Rank 0's side. `complete` is set once every other rank has come."""

    place: Place
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    _present: set[int] = field(default_factory=set)
    _lost: asyncio.Event = field(default_factory=asyncio.Event)
    _lost_rank: str = ""

    async def lead(self) -> None:
        """Wait for the others, then for the first that goes. Raises RankLost and OSError."""
        place = self.place
        server = await asyncio.start_server(self._meet, place.leader_address, place.leader_port)
        say(f"rank 0 waits for {place.size - 1} more at port {place.leader_port} (simulated)")
        async with server:
            await self._lost.wait()
        raise RankLost(f"rank 0 has lost rank {self._lost_rank} (simulated)")

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = (await reader.readline()).decode(errors="replace").strip()
            if not answer.isdigit() or not 0 < int(answer) < self.place.size:
                return
            self._present.add(int(answer))
            if len(self._present) == self.place.size - 1:
                self.complete.set()
            await reader.read()
            self._lost_rank = answer
            self._lost.set()
        finally:
            writer.close()


async def follow(place: Place) -> None:
    """Find the leader, however long that takes, and stay until it goes. Raises RankLost."""
    reader, writer = await _met(place)
    say(f"rank {place.rank} has met its leader (simulated)")
    try:
        writer.write(f"{place.rank}\n".encode())
        await reader.read()
    except OSError:
        pass
    finally:
        writer.close()
    raise RankLost(f"rank {place.rank} has lost its leader (simulated)")


async def _met(place: Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection(place.leader_address, place.leader_port)
        except OSError:
            await asyncio.sleep(RETRY_SECONDS)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
