"""Real servers, two schedulers and some nodes as processes, and the one list that everything goes
into.
"""

import asyncio
import contextlib
import hashlib
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union
from uuid import UUID

import asyncpg
import msgspec
import nats.errors
from nats.aio.msg import Msg

from schemas.base import PREFIX, tag_of
from schemas.catalog import EVENTS
from schemas.scheduler.devices import Uncordon
from schemas.scheduler.reservations import ReservationEvent, ReservationGranted
from schemas.scheduler.views import Replay, ReplayDecisions
from shared.ids import new_id
from shared.messaging.bus import Bus
from shared.messaging.streams import EVENTS as EVENT_STREAM
from shared.testing import NatsServer, PostgresServer, eventually, short_directory
from shared.waiting import cancel_and_wait
from tests.support.bus import connected_bus
from tests.support.history import ledger_audit
from tests.support.history.links import Link, PostgresLink
from tests.support.history.messenger import Messenger
from tests.support.history.node_double import CPU_COUNT, HOST_MEMORY_MB
from tests.support.history.node_journal import read_lines
from tests.support.history.processes import Victim
from tests.support.history.real_node import Watch, real_node
from tests.support.history.records import AnyRecord, Fault, Heard, NodeFacts, Record, Replayed
from tests.support.history.split_bus import SplitBus, split_bus

AGAIN = "X-Again"  # marks what the network repeats, or it would repeat itself
EVENT_AGAIN = 0.04
LATEST_SECONDS = 8.0
SUBJECT = f"{PREFIX}.evt.scheduler.>"

# Drifts and lost nodes within seconds, so that a short run sees what they do.
IMPATIENT = {
    "RECONCILE_INTERVAL_SECONDS": "1",
    "STALE_AGENT_SECONDS": "2",
    "NODE_LOST_SECONDS": "6",
    "GHOST_SECONDS": "4",
    "ORPHAN_SECONDS": "1",
    "SQUATTER_SECONDS": "1",
}

_reservation_events = tuple(
    event for event in EVENTS if issubclass(event, ReservationEvent) and tag_of(event)
)
_decode = msgspec.msgpack.Decoder(Union[_reservation_events]).decode  # noqa: UP007  # computed


@dataclass(slots=True)
class Arena:
    """Everything that a fault can hit, and what was seen of it."""

    directory: Path
    dice: random.Random
    bus: Bus
    nats: NatsServer | None
    postgres: PostgresServer
    dsn: str
    tasks: asyncio.TaskGroup
    schedulers: list[Victim]
    nodes: list[Victim]
    links: dict[str, Link]
    watch: Watch | None
    node_sizes: dict[str, int]
    split_bus: SplitBus | None = None
    history: list[AnyRecord] = field(default_factory=list)
    granted: dict[UUID, ReservationGranted] = field(default_factory=dict)
    told: defaultdict[UUID, asyncio.Event] = field(
        default_factory=lambda: defaultdict(asyncio.Event)
    )
    is_over: bool = False
    late: list[asyncio.Task[Any]] = field(default_factory=list)

    def note(self, record: AnyRecord) -> None:
        self.history.append(record)

    def fault(self, what: str, target: str = "") -> None:
        self.note(Fault(at=time.monotonic(), what=what, target=target))

    @property
    def messenger(self) -> Messenger:
        return Messenger(self.bus, self.note, self.dice, self.tasks, self.late)

    async def hear(self) -> None:
        """Note reservation events as they pass, and have the network repeat some events."""
        await self.bus.nats.subscribe(f"{PREFIX}.evt.>", cb=self._on_event)
        await self.bus.flush()

    async def _on_event(self, raw: Msg) -> None:
        self._take(raw.data)
        is_again = raw.headers is not None and AGAIN in raw.headers
        if not (is_again or self.is_over) and self.dice.random() < EVENT_AGAIN:
            self.late.append(self.tasks.create_task(self._repeat(raw)))

    async def _repeat(self, raw: Msg) -> None:
        await asyncio.sleep(self.dice.uniform(0.0, LATEST_SECONDS))
        with contextlib.suppress(nats.errors.Error, OSError):
            await self.bus.nats.publish(raw.subject, raw.data, headers={AGAIN: "1"})
            self.fault("event again later", raw.subject.split(".")[3])

    def _take(self, data: bytes) -> None:
        try:
            event = _decode(data)
        except msgspec.DecodeError:
            return
        self.note(
            Heard(
                at=time.monotonic(),
                message_id=event.message_id,
                event=tag_of(type(event)),
                reservation_id=event.reservation_id,
                revision=event.revision,
                digest=hashlib.sha256(data).hexdigest()[:16],
                epoch=getattr(event, "epoch", None),
                devices=tuple((d.node_id, d.uuid) for d in getattr(event, "devices", ())),
            )
        )
        if isinstance(event, ReservationGranted):
            self.granted[event.reservation_id] = event
        self.told[event.reservation_id].set()

    async def settle(self, within_seconds: float) -> None:
        """Wait until nothing waits, nothing is held and everything was told."""

        async def is_at_rest() -> bool:
            return not await ledger_audit.unsettled(self.dsn)

        try:
            await eventually(is_at_rest, within_seconds=within_seconds, every_seconds=0.2)
        except AssertionError:
            left = await ledger_audit.unsettled(self.dsn)
            raise AssertionError(
                f"not at rest {within_seconds} s after the last fault: {left}"
            ) from None

    async def collect(self) -> list[AnyRecord]:
        """The whole history: what was noted here, by the nodes, by Postgres and by the stream."""
        await self._read_stream()
        await self._replay()
        records: list[AnyRecord] = [*self.history, *await ledger_audit.read_ledger(self.dsn)]  # type: ignore[list-item]  # its rows are of these kinds
        for node_id in self.node_sizes:
            lines = read_lines(self.directory / f"{node_id}.journal")
            records += [line for line in lines if isinstance(line, Record)]
        if self.watch is not None:
            records += self.watch.collect()
        return records

    async def _replay(self) -> None:
        """Have everything decided again that was recorded."""
        from_id: int | None = 1
        while from_id is not None:
            replay = await self.bus.query(
                ReplayDecisions(from_id=from_id), Replay, timeout_seconds=20.0
            )
            different = tuple(one.decision_id for one in replay.decisions if not one.same)
            self.note(Replayed(at=time.monotonic(), checked=replay.checked, different=different))
            from_id = replay.next_from_id

    async def keep_in_service(self) -> None:
        """An administrator who takes back whatever was taken out, as soon as it is seen."""
        while True:
            await asyncio.sleep(0.5)
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                for node_id in await ledger_audit.cordoned_nodes(self.dsn):
                    await self.messenger.ask(Uncordon(command_id=new_id(), node_id=node_id))

    async def end_late(self) -> None:
        """Nothing is sent or repeated any more."""
        self.is_over = True
        await cancel_and_wait(*self.late)

    async def _read_stream(self) -> None:
        """What a listener missed while the bus was away is in the stream."""
        subscription = await self.bus.jetstream.subscribe(
            SUBJECT, stream=str(EVENT_STREAM.name), ordered_consumer=True
        )
        with contextlib.suppress(nats.errors.TimeoutError):
            while True:
                self._take((await subscription.next_msg(timeout=1.0)).data)
        await subscription.unsubscribe()


@asynccontextmanager
async def arena(
    seed: int,
    node_groups: list[dict[str, int]],
    *,
    with_real_node: bool = False,
    with_split_bus: bool = False,
) -> AsyncIterator[Arena]:
    """Two schedulers, a process for every group of node doubles (id: GPUs) and, if wanted, a node
    with the real agent and executor; all of it ready. `with_split_bus`: the bus is a cluster, each
    of its clients at another server, and schedulers reach Postgres by links.
    """
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(short_directory())
        nats_server, split = None, None
        if with_split_bus:
            split = await stack.enter_async_context(split_bus(directory / "nats"))
            url = split.cluster.authenticated_url
        else:
            nats_server = NatsServer(directory / "nats")
            await nats_server.start()
            stack.push_async_callback(nats_server.stop)
            url = nats_server.authenticated_url
        postgres = PostgresServer(directory / "postgres")
        await postgres.start()
        stack.push_async_callback(postgres.stop)
        dsn = await postgres.take_database()
        await ledger_audit.execute(dsn, ledger_audit.CLOCK)
        links: dict[str, Link] = {}
        servers = url.split(",")

        async def linked(name: str) -> str:
            links[name] = Link(servers[len(links) % len(servers)])
            stack.push_async_callback(links[name].stop)
            return await links[name].start()

        async def linked_postgres(name: str) -> str:
            if split is None:
                return dsn
            link = PostgresLink(dsn, directory=directory / f"postgres-of-{name}")
            links[f"postgres of {name}"] = link
            stack.push_async_callback(link.stop)
            return await link.start()

        schedulers = [
            Victim(
                name,
                "services.scheduler",
                (),
                {
                    "GPUSTEWARD_NATS_URL": await linked(name),
                    "GPUSTEWARD_POSTGRES_DSN": await linked_postgres(name),
                    **{f"GPUSTEWARD_SCHEDULER_{key}": value for key, value in IMPATIENT.items()},
                },
                directory,
            )
            for name in ("scheduler-a", "scheduler-b")
        ]
        nodes = [
            Victim(
                f"nodes-{number}",
                "tests.support.history.node_process",
                (
                    str(seed * 10 + number),
                    str(directory),
                    *(f"{node_id}:{gpus}" for node_id, gpus in group.items()),
                ),
                {"GPUSTEWARD_NATS_URL": await linked(f"nodes-{number}")},
                directory,
            )
            for number, group in enumerate(node_groups)
        ]
        if with_real_node:
            nodes += real_node(await linked("rho"), directory)
        for victim in (*schedulers, *nodes):
            stack.callback(victim.kill)
        await asyncio.gather(*(scheduler.start() for scheduler in schedulers))
        await ledger_audit.execute(dsn, ledger_audit.AUDIT)
        bus = await stack.enter_async_context(connected_bus(url, "history"))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        sizes = {node_id: gpus for group in node_groups for node_id, gpus in group.items()}
        made = Arena(
            directory=directory,
            dice=random.Random(seed),
            bus=bus,
            nats=nats_server,
            postgres=postgres,
            dsn=dsn,
            tasks=tasks,
            schedulers=schedulers,
            nodes=nodes,
            links=links,
            watch=Watch(bus, directory) if with_real_node else None,
            node_sizes=sizes,
            split_bus=split,
        )
        for node_id in sizes:
            made.note(
                NodeFacts(
                    at=time.monotonic(),
                    node_id=node_id,
                    cpu_count=CPU_COUNT,
                    memory_total_mb=HOST_MEMORY_MB,
                )
            )
        await made.hear()
        if made.watch is not None:
            await made.watch.hear()
            made.late.append(tasks.create_task(made.watch.look()))
        await asyncio.gather(*(victim.start() for victim in nodes))
        try:
            yield made
        finally:
            for victim in (*schedulers, *nodes):
                victim.kill()
            await made.end_late()
