"""Clients that reserve, hold and release GPUs without pause, and what each of them was told."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final
from uuid import UUID

import asyncpg
import msgspec
from nats.aio.msg import Msg

from schemas.base import PREFIX, Command, DeviceUuid
from schemas.errors import Accepted, Refused, Reply
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reservations import (
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationGranted,
)
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.messaging.bus import Bus

LEASE_SECONDS: Final = 300.0  # longer than anything is away
WAIT_SECONDS: Final = 600.0
ASK_SECONDS: Final = 3.0
AGAIN_SECONDS: Final = 0.1

_decode = msgspec.msgpack.Decoder(ReservationGranted).decode


@dataclass(slots=True)
class Holders:
    """`grants` are in the order in which they were told, with when; `lost` are those that were told
    and that the ledger knows nothing of, `doubles` devices that two held at once.
    """

    bus: Bus
    dice: random.Random
    grants: dict[UUID, tuple[float, ReservationGranted]] = field(default_factory=dict)
    accepted: set[UUID] = field(default_factory=set)
    lost: set[UUID] = field(default_factory=set)
    doubles: list[str] = field(default_factory=list)
    lives: int = 0
    _told: defaultdict[UUID, asyncio.Event] = field(
        default_factory=lambda: defaultdict(asyncio.Event)
    )
    _holders: dict[DeviceUuid, UUID] = field(default_factory=dict)

    async def listen(self) -> None:
        subject = f"{PREFIX}.evt.scheduler.reservation_granted.>"
        await self.bus.nats.subscribe(subject, cb=self._on_granted)
        await self.bus.flush()

    async def run(self, is_over: asyncio.Event) -> None:
        """One client, until it is over and what it holds is given back."""
        while not is_over.is_set():
            await self._live()

    def first_grant_after(self, moment: float) -> float | None:
        """Seconds from a moment to the next grant that was told."""
        times = [at for at, _ in self.grants.values() if at > moment]
        return min(times) - moment if times else None

    def worst_gap_seconds(self) -> float:
        """The longest time without a grant."""
        times = [at for at, _ in self.grants.values()]
        return max((later - at for at, later in pairwise(times)), default=0.0)

    async def _on_granted(self, raw: Msg) -> None:
        event = _decode(raw.data)
        self.grants.setdefault(event.reservation_id, (time.monotonic(), event))
        self._told[event.reservation_id].set()

    async def _live(self) -> None:
        reservation_id = new_id()
        request = GpuRequest(lease_ttl_seconds=LEASE_SECONDS, wait_timeout_seconds=WAIT_SECONDS)
        reply = await self._ask(
            RequestReservation(command_id=new_id(), reservation_id=reservation_id, request=request)
        )
        if not isinstance(reply, Accepted):
            raise AssertionError(f"refused for good: {reply}")  # noqa: TRY004  # a failed claim
        self.accepted.add(reservation_id)
        try:
            async with asyncio.timeout(WAIT_SECONDS / 10):
                await self._told[reservation_id].wait()
        except TimeoutError:  # accepted and never granted: the ledger's audit says which
            return
        _, granted = self.grants[reservation_id]
        self._hold(granted)
        try:
            renewed = await self._ask(
                RenewReservation(
                    command_id=new_id(),
                    reservation_id=reservation_id,
                    epoch=granted.epoch,
                    activate=True,
                )
            )
            if isinstance(renewed, Refused):
                self.lost.add(reservation_id)
                return
            await asyncio.sleep(self.dice.uniform(0.1, 1.0))
        finally:
            self._give_back(granted)
        await self._ask(
            ReleaseReservation(
                command_id=new_id(),
                reservation_id=reservation_id,
                epoch=granted.epoch,
                stopped=True,
            )
        )
        self.lives += 1

    def _hold(self, granted: ReservationGranted) -> None:
        for device in granted.devices:
            other = self._holders.setdefault(device.uuid, granted.reservation_id)
            if other != granted.reservation_id:
                self.doubles.append(f"{device.uuid}: {other} and {granted.reservation_id}")

    def _give_back(self, granted: ReservationGranted) -> None:
        for device in granted.devices:
            if self._holders.get(device.uuid) == granted.reservation_id:
                del self._holders[device.uuid]

    async def _ask(self, command: Command) -> Reply:
        """Send one command until it is answered for good."""
        while True:
            try:
                reply = await self.bus.request(command, timeout_seconds=ASK_SECONDS)
            except UnavailableError:
                reply = None
            if reply is not None and not (isinstance(reply, Refused) and reply.retryable):
                return reply
            await asyncio.sleep(AGAIN_SECONDS)


async def audit(dsn: str, holders: Holders) -> None:
    """Add to what was lost what the ledger does not know, or knows with another epoch."""
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        rows = await connection.fetch("SELECT reservation_id, epoch FROM scheduler.reservation")
    finally:
        await connection.close()
    epochs = {row["reservation_id"]: row["epoch"] for row in rows}
    holders.lost |= holders.accepted - epochs.keys()
    holders.lost |= {
        reservation_id
        for reservation_id, (_, granted) in holders.grants.items()
        if epochs.get(reservation_id) != granted.epoch
    }


def find_repeated_epochs(holders: Holders) -> list[int]:
    """Return the epochs that two grants were told with."""
    counts = Counter(granted.epoch for _, granted in holders.grants.values())
    return [epoch for epoch, count in counts.items() if count > 1]
