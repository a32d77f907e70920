"""Declaring the streams and the durable consumers, again whenever the servers have lost them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from nats.js.api import StreamConfig
from nats.js.errors import APIError, NotFoundError

from schemas.base import NODE_PREFIX
from shared.clock import utcnow
from shared.logging import log
from shared.messaging.bus import Bus
from shared.messaging.senders import has_our_users
from shared.messaging.settlement import RETRY_SECONDS
from shared.messaging.stream_requests import FAILURES, change_stream, fetch_stream
from shared.messaging.stream_state import StreamView, has_lost_all, with_mark
from shared.messaging.streams import EVENTS, STREAMS
from shared.messaging.user_names import Role

StreamSeen = Callable[[str, datetime], Awaitable[None]]

WATCH_SECONDS: Final = 1.0
REPLICAS_SECONDS: Final = 20.0  # a cluster that has grown is noticed after this


@dataclass(frozen=True, slots=True)
class StreamDeclaration:
    """The streams, and the consumers of the bus's durable routes.

    `on_seen` gets when EVENTS was made, or lost all it had, first and whenever that is another
    time; `on_new` is called after the latter, when everything is declared.
    """

    bus: Bus
    on_seen: Sequence[StreamSeen] = ()
    on_new: Callable[[], Awaitable[None]] | None = None
    _made_at: dict[str, datetime] = field(default_factory=dict, init=False)
    _lost_at: dict[str, datetime] = field(default_factory=dict, init=False)
    _views: dict[str, StreamView] = field(default_factory=dict, init=False)
    _replicas_due_at: dict[str, float] = field(default_factory=dict, init=False)

    async def declare(self) -> None:
        """Declare everything, waiting without limit for EVENTS; the others may come later."""
        while EVENTS.name not in self._made_at:
            _, failures = await self._declare()
            if EVENTS.name in failures:
                log.warning("streams_undeclared", errors=failures)
                await asyncio.sleep(RETRY_SECONDS / 4)

    async def watch(self) -> None:
        """Declare everything again when a stream is a new one, until cancelled."""
        unreachable: set[str] = set()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if not self.bus.is_connected:
                continue
            new, failures = await self._declare()
            if unreachable != set(failures):
                if failures:
                    log.warning("streams_unreachable", errors=failures)
                else:
                    log.info("streams_reachable")
                unreachable = set(failures)
            if new:
                log.warning("streams_are_new", streams=new)
                if self.on_new is not None:
                    await self.on_new()

    async def _declare(self) -> tuple[list[str], dict[str, str]]:
        """Return the streams that are other ones than last time, and why some cannot be known."""
        new, failures = [], {}
        for stream in STREAMS:
            name = str(stream.name)
            try:
                if await self._declare_one(name, stream):
                    new.append(name)
            except FAILURES as error:
                failures[name] = repr(error)
        return new, failures

    async def _declare_one(self, name: str, stream: StreamConfig) -> bool:
        """Return True if it is another one than last time."""
        view = await self._keep_replicas(name, await self._find_or_make(name, stream))
        previous, previous_made_at = self._views.get(name), self._made_at.get(name)
        is_same = previous is not None and previous.made_at == view.made_at
        if previous is not None and is_same and has_lost_all(previous.state, view.state):
            await self._note_loss(name, view)
        self._views[name] = view
        made_at = max(view.made_at, self._lost_at.get(name, view.made_at))
        if previous_made_at == made_at:
            return False
        if name == EVENTS.name:
            for route in self.bus.durable_routes:
                await self.bus.jetstream.add_consumer(name, route.consumer())
            for callback in self.on_seen:
                await callback(name, made_at)
        self._made_at[name] = made_at
        return previous_made_at is not None

    async def _find_or_make(self, name: str, stream: StreamConfig) -> StreamView:
        try:
            return await fetch_stream(self.bus, name)
        except NotFoundError:
            if self._is_node:
                raise  # a node may not make streams: the platform's services do
        target = self.bus.replicas.of(name, is_clustered=self.bus.is_clustered)
        for replicas in sorted({target, 1}, reverse=True):
            try:
                await self.bus.jetstream.add_stream(stream, num_replicas=replicas)
                break
            except APIError as error:  # there are fewer servers, or another service was quicker
                log.info("stream_not_made", stream=name, replicas=replicas, error=str(error))
        return await fetch_stream(self.bus, name)

    async def _keep_replicas(self, name: str, view: StreamView) -> StreamView:
        """Bring a stream to the replicas that it is to have, where the servers can."""
        target = self.bus.replicas.of(name, is_clustered=self.bus.is_clustered)
        is_less_enough = view.replicas > target and self.bus.replicas.is_auto(name)
        now = time.monotonic()
        is_due = now >= self._replicas_due_at.get(name, now)
        if not self._may_change or view.replicas == target or is_less_enough or not is_due:
            return view
        self._replicas_due_at[name] = now + REPLICAS_SECONDS
        try:
            await change_stream(self.bus, {**view.config, "num_replicas": target})
        except FAILURES as error:
            log.info("stream_replicas_kept", stream=name, target=target, error=str(error))
            return view
        log.info("stream_replicas_changed", stream=name, replicas=target, before=view.replicas)
        return view

    async def _note_loss(self, name: str, view: StreamView) -> None:
        """Note in the stream that it has lost everything, also for services that start later."""
        if self._is_node:
            return  # a service will
        log.warning("stream_lost_all", stream=name)
        self._lost_at[name] = utcnow()
        if not self._may_change:
            return
        try:
            await change_stream(self.bus, with_mark(view.config, self._lost_at[name]))
        except FAILURES as error:
            log.warning("stream_loss_not_noted", stream=name, error=repr(error))

    @property
    def _may_change(self) -> bool:
        """True of the one service that may, and of all where users are not ours."""
        return not has_our_users(self.bus.user) or self.bus.user == Role.SCHEDULER

    @property
    def _is_node(self) -> bool:
        return (self.bus.user or "").startswith(NODE_PREFIX)
