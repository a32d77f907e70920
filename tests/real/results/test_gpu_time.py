"""Where every GPU-millisecond went, against a count of single milliseconds by other means."""

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.executor.attempts import AttemptOutcome, Failure, FailureKind
from schemas.gpus.device_grant import DeviceGrant, DeviceShare, ShareKind
from schemas.gpus.gpu_request import GpuRequest
from schemas.results.reports import (
    NO_PERSON,
    FailuresView,
    GetFailures,
    GetUsage,
    GetWaits,
    GetWaste,
    UsageBy,
    UsageView,
    WaitsView,
    WasteView,
)
from schemas.scheduler.devices import (
    DeviceCordoned,
    DeviceFreed,
    DeviceQuarantined,
    DeviceUncordoned,
)
from schemas.scheduler.reservations import (
    ReservationExpired,
    ReservationGranted,
    ReservationQueued,
    ReservationReleased,
)
from schemas.telemetry.readings import GpuSampled
from services.results.domain.rollup import HOUR, start_of
from services.results.gpu_time.facts import Facts, LedgerEvent
from services.results.gpu_time.hours import NOBODY, SETTLE_TIME, GpuHours
from services.results.migrations import MIGRATIONS
from services.results.rollups import Rollups
from services.results.samples.partitions import Partitions, Table
from services.results.samples.store import SampleStore
from shared.clock import utcnow
from shared.ids import new_id
from shared.postgres.database import Connection, Database
from shared.testing import eventually
from tests.support.worlds.results import NODE, World, make_finished, make_sample

LONG_AGO = datetime(91, 6, 24, tzinfo=UTC)
KEPT = timedelta(days=7)
HOURS = 2
GPUS = 2
MS = timedelta(milliseconds=1)
NOT_HELD = ("unknown", "free", "cordoned")
Amounts = dict[tuple[datetime, str, UUID], Counter[str]]


async def nothing(_: Connection, __: object) -> None:
    """Is called with what is stored."""


def common(at: datetime) -> dict[str, Any]:
    return {"message_id": new_id(), "occurred_at": at, "revision": 1}


def grant_of(gpu: int, hundredths: int = 100) -> DeviceGrant:
    share = DeviceShare(kind=ShareKind.COOPERATIVE, shares=hundredths / 100)
    return DeviceGrant(
        node_id=NODE,
        uuid=f"GPU-{gpu}",
        index=gpu,
        name="NVIDIA A100",
        memory_total_mb=80_000,
        share=share if hundredths < 100 else None,
    )


def granted(at: datetime, reservation_id: UUID, *devices: DeviceGrant) -> ReservationGranted:
    return ReservationGranted(
        **common(at),
        reservation_id=reservation_id,
        namespace="team-a",
        holder="exec/ada",
        epoch=max(1, at.toordinal() * 86_400_000 + int(at.timestamp() * 1000)),
        node_id=NODE,
        devices=devices,
        lease_ttl_seconds=30,
        waited_seconds=1.5,
    )


def ended(
    kind: type[ReservationReleased | ReservationExpired], at: datetime, of: ReservationGranted
) -> ReservationReleased | ReservationExpired:
    return kind(
        **common(at),
        reservation_id=of.reservation_id,
        namespace=of.namespace,
        holder=of.holder,
        epoch=of.epoch,
        node_id=of.node_id,
        devices=of.devices,
    )


class Truth:
    """What was done, and every millisecond of it counted one by one."""

    def __init__(self, chance: random.Random, start: datetime) -> None:
        self.chance, self.start = chance, start
        self.end = start + HOURS * HOUR
        self.length = HOURS * HOUR // MS
        self.events: list[LedgerEvent] = []
        self.samples: list[GpuSampled] = []
        self.held: list[tuple[int, UUID, int, datetime, datetime]] = []
        self.cordoned: list[tuple[int, datetime, datetime]] = []
        self._draw_samples()
        for gpu in range(GPUS):
            self._draw_holdings(gpu)
        self._draw_cordons()

    def _moments(self, count: int) -> list[datetime]:
        length = self.end - self.start
        return sorted(self.start + self.chance.random() * length for _ in range(count))

    def _draw_samples(self) -> None:
        at, sequence, boot = self.start + timedelta(seconds=3.3217), 0, UUID(int=1)
        while at < self.end:
            sample = replace(
                make_sample(at, sequence, gpus=GPUS), interval_seconds=5.0, boot_id=boot
            )
            draw = [self.chance.choice([0.0, 0.4, 1.0, 97.0, None]) for _ in range(GPUS)]
            gpus = tuple(
                replace(gpu, utilization_percent=busy)
                for gpu, busy in zip(sample.gpus, draw, strict=True)
            )
            self.samples.append(replace(sample, gpus=gpus))
            sequence += 1
            at += timedelta(seconds=self.chance.uniform(4.5, 5.5))
            if self.chance.random() < 0.01:
                at += timedelta(seconds=self.chance.uniform(5, 400))
            if self.chance.random() < 0.005:  # another agent, whose clock is behind
                sequence, boot = 0, UUID(int=boot.int + 1)
                at -= timedelta(seconds=self.chance.uniform(0, 20))

    def _draw_holdings(self, gpu: int) -> None:
        moments = self._moments(40)
        for begin, finish in pairwise(moments):
            match self.chance.random():
                case draw if draw < 0.3:
                    continue
                case draw if draw < 0.6:
                    parts = [100]
                case _:
                    parts = [37, 25, 38][: self.chance.randint(1, 3)]
            for part in parts:
                grant = granted(begin, new_id(), grant_of(gpu, part))
                until = begin + (finish - begin) * self.chance.uniform(0.2, 1)
                self.held.append((gpu, grant.reservation_id, part, begin, until))
                self.events.append(grant)
                if self.chance.random() < 0.5:
                    self.events.append(ended(ReservationReleased, until, grant))
                    continue
                lost = begin + (until - begin) * self.chance.random()
                about: dict[str, Any] = {
                    "node_id": NODE,
                    "device_uuid": f"GPU-{gpu}",
                    "reservation_id": grant.reservation_id,
                }
                self.events += (
                    ended(ReservationExpired, lost, grant),
                    DeviceQuarantined(**common(lost), **about),
                    DeviceFreed(**common(until), **about),
                )

    def _draw_cordons(self) -> None:
        revision = 0
        for begin, finish in [*pairwise(self._moments(8))][::2]:
            gpu = self.chance.randrange(GPUS)
            self.cordoned.append((gpu, begin, finish))
            for kind, at in (
                (DeviceCordoned, begin),
                (DeviceCordoned, begin + (finish - begin) / 2),  # for another reason
                (DeviceUncordoned, finish),
            ):
                revision += 1
                self.events.append(
                    replace(
                        kind(**common(at), node_id=NODE, device_uuid=f"GPU-{gpu}"),
                        revision=revision,
                    )
                )

    def first(self, gpu: int) -> int:
        """When it was first heard of, or held."""
        grants = (begin for of, _, _, begin, _ in self.held if of == gpu)
        return self._ms(min(min(s.observed_at for s in self.samples), *grants))

    def counted(self) -> Amounts:
        """Millisecond by millisecond, in hundredths of a device."""
        found: Amounts = defaultdict(Counter)
        for gpu in range(GPUS):
            told = self._told(gpu)
            state = told.translate(bytes([0] + [1] * 255))  # an index of NOT_HELD
            for of, begin, finish in self.cordoned:
                if of == gpu:
                    first, last = self._ms(begin), self._ms(finish)
                    state[first:last] = b"\2" * (last - first)
            free = bytearray([100]) * self.length
            for of, reservation_id, part, begin, finish in self.held:
                if of != gpu:
                    continue
                first, last = self._ms(begin), self._ms(finish)
                less = bytes((left - part) % 256 for left in range(256))
                free[first:last] = free[first:last].translate(less)
                for hour, a, b in self._hours(first, last):
                    amounts = found[hour, f"GPU-{gpu}", reservation_id]
                    used, idle = told.count(b"b", a, b), told.count(b"i", a, b)
                    amounts.update(used=used * part, idle=idle * part)
                    amounts["unknown"] += (b - a - used - idle) * part
            # A byte of each millisecond: which of the amounts left, and in what state.
            numbers = {left: number for number, left in enumerate(sorted(set(free)))}
            coded = free.translate(bytes(4 * numbers.get(left, 0) for left in range(256)))
            both = int.from_bytes(coded, "big") | int.from_bytes(state, "big")
            each = both.to_bytes(self.length, "big")
            for hour, a, b in self._hours(self.first(gpu), self.length):
                for left, number in numbers.items():
                    for index, name in enumerate(NOT_HELD):
                        count = each.count(4 * number + index, a, b)
                        found[hour, f"GPU-{gpu}", NOBODY][name] += left * count
        return {key: +amounts for key, amounts in found.items() if +amounts}

    def _hours(self, first: int, last: int) -> Iterator[tuple[datetime, int, int]]:
        for hour in range(HOURS):
            begin, finish = hour * 3_600_000, (hour + 1) * 3_600_000
            if begin < last and first < finish:
                yield self.start + hour * HOUR, max(first, begin), min(last, finish)

    def _told(self, gpu: int) -> bytearray:
        """Of each millisecond: b or i for busy or idle, s for seen only, 0 for nothing."""
        told = bytearray(self.length)
        for minute, samples in self._minutes():
            ordered = sorted(samples, key=lambda s: (s.observed_at, s.boot_id, s.sequence))
            known_until = minute
            for sample in ordered:
                at = sample.observed_at
                busy = sample.gpus[gpu].utilization_percent
                state = b"s" if busy is None else b"b" if busy >= 1 else b"i"
                reach = 2 * timedelta(seconds=sample.interval_seconds)
                since = max(known_until, at - reach)
                until = at
                if sample is ordered[-1]:
                    until = min(minute + timedelta(minutes=1), at + reach)
                begin, finish = self._ms(since), self._ms(until)
                told[begin:finish] = state * (finish - begin)
                known_until = at
        return told

    def _minutes(self) -> Iterator[tuple[datetime, list[GpuSampled]]]:
        of: dict[datetime, list[GpuSampled]] = defaultdict(list)
        for sample in self.samples:
            of[start_of(sample.observed_at, timedelta(minutes=1))].append(sample)
        yield from of.items()

    def _ms(self, at: datetime) -> int:
        return (at - self.start) // MS


def services(database: Database) -> tuple[SampleStore, Rollups, Facts, GpuHours]:
    return (
        SampleStore(database, Partitions(database, Table.RAW, 7), nothing),
        Rollups(
            database,
            Partitions(database, Table.MINUTE, 90),
            Partitions(database, Table.HOUR, 730),
            KEPT,
        ),
        Facts(database, KEPT),
        GpuHours(database, KEPT, timedelta(days=730)),
    )


async def hours_of(database: Database) -> Amounts:
    async with database.transaction() as connection:
        rows = await connection.fetch(
            "SELECT * FROM ledger_hour JOIN device USING (device_no) ORDER BY hour"
        )
    found: Amounts = defaultdict(Counter)
    for row in rows:
        for name in ("used", "idle", "free", "cordoned", "unknown"):
            assert row[f"{name}_us"] % 10 == 0
            if row[f"{name}_us"]:
                key = row["hour"], row["device_uuid"], row["reservation_id"]
                found[key][name] = row[f"{name}_us"] // 10
    return found


async def test_gpu_milliseconds_add_up_despite_crashes(
    postgres_dsn: str,
) -> None:
    chance = random.Random(7)
    start = start_of(utcnow(), HOUR) - (HOURS + 1) * HOUR
    truth = Truth(chance, start)
    database = Database(postgres_dsn, "results", MIGRATIONS)
    await database.open()
    async with database.transaction() as connection:
        await connection.execute("UPDATE ledger_progress SET closed_until = $1", start)
    samples, rollups, facts, ledger = services(database)

    async def crash(step: Any) -> None:
        """Run a step, or a part of it."""
        running = asyncio.ensure_future(step)
        await asyncio.wait([running], timeout=chance.choice([0.002, 0.01, 30]))
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    events: list[LedgerEvent] = [*truth.events, *chance.sample(truth.events, 30)]
    chance.shuffle(events)
    third = len(truth.samples) // 3
    batches = [truth.samples[third * 2 :], truth.samples[: third + 20], truth.samples[third:]]
    for batch in batches:
        await samples.store(batch)
        for event in events[: len(events) // 3]:
            await facts.record(event)
        events = events[len(events) // 3 :] + events[: len(events) // 9]
        samples, rollups, facts, ledger = services(database)
        for step in (rollups.roll_up_ready(utcnow()), ledger.close_hours(utcnow())):
            await crash(step)
        await crash(ledger.compute_due(utcnow() + SETTLE_TIME))
    for event in truth.events:
        await facts.record(event)
    await asyncio.gather(ledger.close_hours(utcnow()), services(database)[3].close_hours(utcnow()))
    await rollups.roll_up_ready(utcnow())
    await asyncio.gather(
        ledger.compute_due(utcnow() + SETTLE_TIME),
        services(database)[3].compute_due(utcnow() + SETTLE_TIME),
    )

    found = await hours_of(database)
    whole: Counter[tuple[datetime, str]] = Counter()
    for (hour, device, _), amounts in found.items():
        whole[hour, device] += amounts.total()
    expected = {
        (start + hour * HOUR, f"GPU-{gpu}"): 360_000_000 - (0 if hour else 100 * truth.first(gpu))
        for hour in range(HOURS + 1)
        for gpu in range(GPUS)
    }
    assert dict(whole) == expected
    during = {key: amounts for key, amounts in found.items() if key[0] < truth.end}
    assert during == truth.counted()
    async with database.transaction() as connection:
        assert not await connection.fetchval(
            "SELECT count(*) FROM ledger_due WHERE hour < $1", truth.end
        )
    await database.close()


async def test_reports_tell_use_cost_waits_and_failures(world: World) -> None:
    start = utcnow() - timedelta(seconds=150)
    held = granted(start + timedelta(seconds=5), new_id(), grant_of(0))
    half = granted(start + timedelta(seconds=5), new_id(), grant_of(1, 50))
    held = replace(held, forecast_start_at=held.occurred_at + timedelta(seconds=30))
    half = replace(half, namespace="team-b", holder=f"experiment/{new_id()}/tune#2", epoch=1)
    queued = ReservationQueued(
        **common(start),
        reservation_id=held.reservation_id,
        namespace=held.namespace,
        holder=held.holder,
        requester="ada",
        request=GpuRequest(expected_duration_seconds=100.0),
        position=1,
        wait_deadline_at=start + HOUR,
    )
    until = start + timedelta(seconds=65)
    samples = [
        replace(sample, gpus=(sample.gpus[0], replace(sample.gpus[1], utilization_percent=0.0)))
        for sample in (make_sample(start + timedelta(seconds=s), s) for s in range(120))
    ]
    failed = make_finished(
        [(start, until)],
        outcome=AttemptOutcome.FAILED,
        benchmark=None,
        failure=Failure(kind=FailureKind.GPU_OUT_OF_MEMORY, message="out of memory"),
    )
    asked: dict[str, Any] = {"start_at": start, "end_at": utcnow() + HOUR}

    async with world.results(gpu_hour_prices="a100=6, H200=9"):
        await world.publish(*samples, queued, held, half, failed)
        await world.publish(
            ended(ReservationReleased, until, held), ended(ReservationExpired, until, half)
        )
        await world.stored(240)
        usage: list[UsageView] = []

        async def is_told() -> bool:
            usage[:] = [await world.ask(GetUsage(**asked), UsageView)]
            lines = {line.name: line for line in usage[0].lines}
            return set(lines) == {"team-a", "team-b"} and all(
                line.gpu_hours < 61 / 3600 for line in lines.values()
            )

        await eventually(is_told, what="the hours of both")
        waste = await world.ask(GetWaste(**asked), WasteView)
        by_requester = await world.ask(GetUsage(by=UsageBy.REQUESTER, **asked), UsageView)
        by_person = await world.ask(GetUsage(by=UsageBy("user"), **asked), UsageView)
        mine = await world.ask(GetUsage(namespace="team-b", **asked), UsageView)
        daily = await world.ask(GetUsage(daily=True, **asked), UsageView)
        # As long before that lies outside of the calendar.
        ever = await world.ask(GetUsage(**{**asked, "start_at": LONG_AGO}), UsageView)
        waits = await world.ask(GetWaits(**asked), WaitsView)

        failures: list[FailuresView] = []

        async def has_failures() -> bool:
            failures[:] = [await world.ask(GetFailures(**asked), FailuresView)]
            return len(failures[0].lines) == 2

        await eventually(has_failures, what="both failures")
        since_first = (utcnow() - start).total_seconds()

    assert [line.name for line in by_person.lines] == ["ada", NO_PERSON]
    assert by_person.by is UsageBy.PERSON
    first, second = usage[0].lines
    assert (first.name, first.used_hours, first.idle_hours) == ("team-a", 60 / 3600, 0)
    assert (second.name, second.used_hours, second.idle_hours) == ("team-b", 0, 30 / 3600)
    assert first.cost == pytest.approx(0.1)
    assert second.cost == pytest.approx(0.05)
    assert first.energy_wh == pytest.approx(360 / 60)
    total = usage[0].total
    whole = (
        total.used_us + total.idle_us + total.free_us + total.cordoned_us + total.unknown_us
    ) / 1e6
    # Before their first sample the GPUs do not count.
    assert 2 * 65 <= whole <= 2 * since_first
    assert (total.used_us, total.idle_us) == (60_000_000, 30_000_000)
    assert [line.name for line in by_requester.lines] == ["exec/ada", "tune"]
    assert [line.name for line in mine.lines] == ["team-b"]
    assert mine.days == ()
    by_day = [hours for day in daily.days for hours in day.gpu_hours.items()]
    assert sum(hours for _, hours in by_day) == pytest.approx(90 / 3600)
    assert {name for name, _ in by_day} == {"team-a", "team-b"}
    assert {line.name for line in ever.lines} == {"team-a", "team-b"}
    assert {line.reservation_id: line.because for line in waste.lines} == {
        half.reservation_id: ("idle",),
        held.reservation_id: ("memory",),
    }
    [wait] = waits.lines
    assert (wait.namespace, wait.requests, wait.granted, wait.p95_seconds) == ("team-a", 1, 1, 1.5)
    # It held for 60 of the 100 seconds.
    assert (wait.expected, wait.expected_off_p50_seconds) == (1, 40.0)
    assert (wait.forecast, wait.start_off_p50_seconds, wait.start_off_p90_seconds) == (
        1,
        30.0,
        30.0,
    )
    assert {(line.of, line.reason, line.count) for line in failures[0].lines} == {
        ("attempt", "gpu_out_of_memory", 1),
        ("reservation", "expired", 1),
    }
