"""How streams and durable consumers stand, asked of the bus every few seconds."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from nats.js.api import ConsumerInfo

from schemas.gateway.health import HealthWarning, WarningCode
from shared.messaging.bus import Bus
from shared.messaging.consumer_progress import IDLE_SILENT_SECONDS, Standstill, state_of
from shared.messaging.permissions import CONSUMERS
from shared.messaging.stream_names import NAMES
from shared.messaging.stream_requests import ANSWER_SECONDS, FAILURES, fetch_stream
from shared.messaging.stream_state import lacking_replicas

LOOK_SECONDS: Final = 3.0
# Others, as of an earlier release, may wait for somebody who never comes.
KNOWN_CONSUMERS: Final = frozenset(
    name for streams in CONSUMERS.values() for names in streams.values() for name in names
)

Consumer = tuple[str, str]  # stream and name


@dataclass(slots=True)
class BusWatch:
    """`stream_silences` and `consumer_silences` are for how long each has been silent, in seconds;
    `lacks` what each stream lacks in replicas.

    An election takes the servers up to 9 s, so that less silence than that is told of nowhere.
    """

    bus: Bus
    stream_silences: dict[str, float] = field(default_factory=dict, init=False)
    consumer_silences: dict[Consumer, float] = field(default_factory=dict, init=False)
    lacks: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)
    _answered_at: dict[str, float] = field(default_factory=dict, init=False)
    _standstills: defaultdict[Consumer, Standstill] = field(
        default_factory=partial(defaultdict, Standstill), init=False
    )

    async def run(self) -> None:
        """Look for ever."""
        while True:
            if self.bus.is_connected:
                await asyncio.gather(*map(self._look_at, NAMES))
            await asyncio.sleep(LOOK_SECONDS)

    @property
    def silent_streams(self) -> list[str]:
        """The streams that do not answer, or have no leader, for longer than elections take."""
        return sorted(n for n, s in self.stream_silences.items() if s >= IDLE_SILENT_SECONDS)

    @property
    def silent_consumers(self) -> list[str]:
        """The consumers that get nothing though something waits for them."""
        silences = self.consumer_silences.items()
        return sorted(
            consumer[1]
            for consumer, seconds in silences
            if seconds >= self._standstills[consumer].limit_seconds
        )

    def warnings(self) -> Iterator[HealthWarning]:
        """Yield what a person should know though everything works."""
        lacks = sorted(self.lacks.items())
        texts = [f"{name} has {', '.join(phrases)}" for name, phrases in lacks if phrases]
        if texts:
            yield HealthWarning(
                code=WarningCode.STREAM_REPLICAS,
                message=f"the loss of a NATS server may stop or empty streams: {'; '.join(texts)}",
            )

    async def _look_at(self, name: str) -> None:
        now = time.monotonic()
        answered_at = self._answered_at.setdefault(name, now)
        try:
            view = await fetch_stream(self.bus, name)
        except FAILURES:
            self.stream_silences[name] = now - answered_at
            return
        if view.cluster is not None and not view.cluster.leader:
            self.stream_silences[name] = now - answered_at
            return
        self._answered_at[name] = now
        self.stream_silences[name] = 0.0
        target = self.bus.replicas.of(name, is_clustered=self.bus.is_clustered)
        self.lacks[name] = tuple(lacking_replicas(view, target))
        await self._look_at_consumers(name)

    async def _look_at_consumers(self, stream: str) -> None:
        jetstream = self.bus.nats.jetstream(timeout=ANSWER_SECONDS)
        try:
            infos: list[ConsumerInfo] = await jetstream.consumers_info(stream)
        except FAILURES:
            return  # of those without a leader nothing is known; their streams are told of
        now = time.monotonic()
        for info in infos:
            if info.name in KNOWN_CONSUMERS:
                consumer = stream, info.name
                seconds = self._standstills[consumer].seconds(state_of(info), now)
                self.consumer_silences[consumer] = seconds
