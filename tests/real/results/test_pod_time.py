"""Where the time of GPUs went that Kubernetes gave to pods, against a count by other means."""

import random
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.gpus.device_grant import DeviceGrant, DeviceShare, ShareKind
from schemas.results.reports import GetUsage, GetWaste, UsageBy, UsageView, WasteView
from schemas.scheduler.reservations import ReservationGranted, ReservationReleased
from schemas.telemetry.readings import GpuPod, GpuSampled, PodUse
from services.results.domain.rollup import HOUR, start_of
from services.results.gpu_time.facts import Facts
from services.results.gpu_time.hours import NOBODY, SETTLE_TIME, GpuHours
from services.results.migrations import MIGRATIONS
from services.results.rollups import Rollups
from services.results.samples.partitions import Partitions, Table
from services.results.samples.store import SampleStore
from shared.clock import utcnow
from shared.ids import new_id
from shared.postgres.database import Connection, Database
from shared.testing import eventually
from tests.support.worlds.results import NODE, World, make_sample

KEPT = timedelta(days=7)
MINUTE = timedelta(minutes=1)
MS = timedelta(milliseconds=1)
GPUS = 2
OURS = UUID(int=77)
PERCENTS = {1: 25, 2: 50, 3: None, 4: 100, 5: 40}
Amounts = dict[tuple[str, UUID], Counter[str]]


async def nothing(_: Connection, __: object) -> None:
    """Is called with what is stored."""


def pod(number: int, **fields: Any) -> GpuPod:
    values = {
        "kind": "time_slice",
        "percent": PERCENTS[number],
        "uid": str(UUID(int=number)),
        "reservation_id": str(OURS) if number == 5 else "",
        "owner": "Deployment/llama",
    }
    return GpuPod("serving", f"llama-{number}", "main", **{**values, **fields})


def grant_of(at: datetime, gpu: int, part: int) -> ReservationGranted:
    share = DeviceShare(kind=ShareKind.COOPERATIVE, shares=part / 100)
    return ReservationGranted(
        message_id=new_id(),
        occurred_at=at,
        revision=1,
        reservation_id=new_id(),
        namespace="team-a",
        holder="exec/ada",
        epoch=1,
        node_id=NODE,
        devices=(
            DeviceGrant(node_id=NODE, uuid=f"GPU-{gpu}", index=gpu, name="A100", share=share),
        ),
        lease_ttl_seconds=30,
        waited_seconds=0.0,
    )


def release_of(at: datetime, grant: ReservationGranted) -> ReservationReleased:
    return ReservationReleased(
        message_id=new_id(),
        occurred_at=at,
        revision=2,
        reservation_id=grant.reservation_id,
        namespace=grant.namespace,
        holder=grant.holder,
        epoch=grant.epoch,
        node_id=NODE,
        devices=grant.devices,
    )


class Stretch(NamedTuple):
    """What a sample covers of a GPU, in milliseconds of the hour."""

    since: int
    until: int
    pods: tuple[GpuPod, ...] | None
    busy: float | None


class Truth:
    """An hour of samples with pods that come, go, share and are not told, and of reservations."""

    def __init__(self, chance: random.Random, start: datetime) -> None:
        self.chance, self.start = chance, start
        self.samples: list[GpuSampled] = []
        self.held: list[tuple[int, UUID, int, int, int]] = []
        self.events: list[ReservationGranted | ReservationReleased] = []
        self._draw_samples()
        for gpu in range(GPUS):
            self._draw_holdings(gpu)
        self.told = {
            (gpu.index, use.uid, (sample.observed_at - start) // MINUTE)
            for sample in self.samples
            for gpu in sample.gpus
            for use in gpu.pod_uses or ()
        }

    def _draw_pods(self) -> tuple[GpuPod, ...] | None:
        drawn = self.chance.random()
        if drawn < 0.15:
            return None
        numbers = self.chance.sample(sorted(PERCENTS), self.chance.choice([0, 1, 2, 3]))
        return tuple(sorted(pod(number) for number in numbers))

    def _draw_samples(self) -> None:
        at, sequence = self.start + timedelta(seconds=2.5), 0
        pods: list[tuple[GpuPod, ...] | None] = [(pod(1),), (pod(2),)]
        while at < self.start + HOUR:
            sample = replace(make_sample(at, sequence, gpus=GPUS), interval_seconds=5.0)
            gpus = []
            for index, gpu in enumerate(sample.gpus):
                if self.chance.random() < 0.05:
                    pods[index] = self._draw_pods()
                own = pods[index] or ()
                # The third tells of no process.
                uses = tuple(
                    PodUse(each.uid, 1000, self.chance.choice([0.0, 40.0])) for each in own
                )
                is_told = len(own) > 1 and own[-1].pod != "llama-3"
                gpus.append(
                    replace(
                        gpu,
                        utilization_percent=self.chance.choice([0.0, 97.0, None]),
                        pods=pods[index],
                        pod_uses=uses if is_told else None,
                    )
                )
            self.samples.append(replace(sample, gpus=tuple(gpus)))
            sequence += 1
            at += timedelta(seconds=self.chance.uniform(4.5, 5.5))
            if self.chance.random() < 0.01:
                at += timedelta(seconds=self.chance.uniform(5, 200))

    def _draw_holdings(self, gpu: int) -> None:
        moments = sorted(self.chance.randrange(3_600_000) for _ in range(12))
        for begin, finish in [*pairwise(moments)][::2]:
            part = self.chance.choice([30, 55, 100])
            grant = grant_of(self.start + begin * MS, gpu, part)
            self.held.append((gpu, grant.reservation_id, part, begin, finish))
            self.events += (grant, release_of(self.start + finish * MS, grant))

    def stretches(self, gpu: int) -> list[Stretch]:
        of_minute: dict[datetime, list[GpuSampled]] = defaultdict(list)
        for sample in self.samples:
            of_minute[start_of(sample.observed_at, MINUTE)].append(sample)
        found = []
        for minute, samples in of_minute.items():
            known_until = minute
            for sample in samples:
                reading = sample.gpus[gpu]
                reach = 2 * timedelta(seconds=sample.interval_seconds)
                since = max(known_until, sample.observed_at - reach)
                until = sample.observed_at
                if sample is samples[-1]:
                    until = min(minute + MINUTE, sample.observed_at + reach)
                known_until = sample.observed_at
                busy = reading.utilization_percent
                found.append(Stretch(self._ms(since), self._ms(until), reading.pods, busy))
        return found

    def _ms(self, at: datetime) -> int:
        return (at - self.start) // MS

    def counted(self) -> Amounts:
        """Of each GPU and holder; what pods used of their own is left out, for it is rounded."""
        found: Amounts = defaultdict(Counter)
        for gpu in range(GPUS):
            stretches = self.stretches(gpu)
            starts = [each.since for each in stretches]
            cuts = {point for each in stretches for point in (each.since, each.until)}
            cuts |= {point for of, _, _, *span in self.held if of == gpu for point in span}
            first = min(cuts | {min(self._ms(sample.observed_at) for sample in self.samples)})
            ends = sorted({first, 3_600_000, *(point for point in cuts if point < 3_600_000)})
            first = self.first(gpu)
            for begin, finish in pairwise(ends):
                if begin < first:
                    begin = min(first, finish)
                place = bisect_right(starts, begin) - 1
                seen = stretches[place] if place >= 0 and begin < stretches[place].until else None
                for holder, state, part in self._shares(gpu, begin, seen):
                    found[f"GPU-{gpu}", holder][state] += part * (finish - begin)
        return {key: +amounts for key, amounts in found.items() if +amounts}

    def first(self, gpu: int) -> int:
        grants = (begin for of, _, _, begin, _ in self.held if of == gpu)
        return min(self._ms(self.samples[0].observed_at), *grants)

    def _shares(self, gpu: int, at: int, seen: Stretch | None) -> Iterator[tuple[UUID, str, int]]:
        state, state_is_seen = "unknown", seen is not None
        if seen is not None and seen.busy is not None:
            state = "used" if seen.busy >= 1 else "idle"
        room = 100
        for of, reservation_id, part, begin, finish in self.held:
            if of == gpu and begin <= at < finish:
                room -= part
                yield reservation_id, state, part
        pods = sorted(seen.pods or (), key=lambda each: UUID(each.uid)) if seen else []
        weights = [100 if each.percent is None else each.percent for each in pods]
        whole, sofar = max(sum(weights), room, 1), 0
        for each, weight in zip(pods, weights, strict=True):
            part = (sofar + weight) * room // whole - sofar * room // whole
            sofar += weight
            holder = OURS if each.reservation_id else UUID(each.uid)
            # Its own use counts by whole minutes.
            is_alone = len(pods) == 1 and room == 100
            is_own = not is_alone and (gpu, each.uid, at // 60_000) in self.told
            yield holder, "held" if is_own and state_is_seen else state, part
        room -= sofar * room // whole
        is_free = seen is not None and seen.pods is not None
        yield NOBODY, "free" if is_free else "unknown", room


async def hours_of(database: Database) -> Amounts:
    async with database.transaction() as connection:
        rows = await connection.fetch("SELECT * FROM ledger_hour JOIN device USING (device_no)")
    found: Amounts = defaultdict(Counter)
    for row in rows:
        for name in ("used", "idle", "free", "cordoned", "unknown"):
            assert row[f"{name}_us"] % 10 == 0
            found[row["device_uuid"], row["reservation_id"]][name] += row[f"{name}_us"] // 10
    return {key: +amounts for key, amounts in found.items() if +amounts}


@pytest.mark.parametrize("seed", range(3))
async def test_reservations_and_pods_sum_to_the_gpus(postgres_dsn: str, seed: int) -> None:
    start = start_of(utcnow(), HOUR) - HOUR
    truth = Truth(random.Random(seed), start)
    database = Database(postgres_dsn, "results", MIGRATIONS)
    await database.open()
    async with database.transaction() as connection:
        await connection.execute("UPDATE ledger_progress SET closed_until = $1", start)
    samples = SampleStore(database, Partitions(database, Table.RAW, 7), nothing)
    minutes, hours = (
        Partitions(database, Table.MINUTE, 90),
        Partitions(database, Table.HOUR, 730),
    )
    rollups = Rollups(database, minutes, hours, KEPT)
    ledger = GpuHours(database, KEPT, timedelta(days=730))
    for event in truth.events:
        await Facts(database, KEPT).record(event)

    # The middle comes last, and some of it twice.
    third = len(truth.samples) // 3
    for batch in (truth.samples[:third], truth.samples[third * 2 :], truth.samples[third - 20 :]):
        await samples.store(batch)
        await rollups.roll_up_ready(utcnow())
        await ledger.close_hours(utcnow())
        await ledger.compute_due(utcnow() + SETTLE_TIME)

    found, expected = await hours_of(database), truth.counted()
    for gpu in range(GPUS):
        whole = sum(
            (amounts for (device, _), amounts in found.items() if device == f"GPU-{gpu}"), Counter()
        )
        assert whole.total() == 100 * (3_600_000 - truth.first(gpu))
    assert found.keys() == expected.keys()
    for key, amounts in found.items():
        assert amounts.total() == expected[key].total(), key
        own = expected[key].pop("held", 0)
        for state, count in expected[key].items():
            assert 0 <= amounts[state] - count <= own, (key, state)
        if not own:
            assert amounts == expected[key]
    await database.close()


async def test_reports_tell_pods_beside_reservations(world: World) -> None:
    """A reservation's own pod is the reservation's; a GPU that two pods have is each one's half."""
    start = start_of(utcnow(), MINUTE) - timedelta(minutes=5)
    held = replace(grant_of(start, 0, 40), reservation_id=OURS, devices=())
    own, busy, idle = pod(5, percent=100), pod(1, percent=50), pod(2, percent=50, owner="")
    samples = []
    for second in range(240):
        sample = make_sample(start + timedelta(seconds=second), second, memory_used_mb=70_000)
        first, second_gpu = sample.gpus
        uses = (PodUse(busy.uid, 60_000, 80.0), PodUse(idle.uid, 5_000, 0.0))
        gpus = (
            replace(first, pods=(own,)),
            replace(second_gpu, pods=(busy, idle), pod_uses=uses),
        )
        samples.append(replace(sample, gpus=gpus))
    asked: dict[str, Any] = {"start_at": start, "end_at": utcnow() + HOUR}

    async with world.results(gpu_hour_prices="a100=6"):
        await world.publish(held, *samples)
        await world.stored(480)

        async def usage_by(by: UsageBy) -> UsageView:
            view: UsageView = await world.ask(GetUsage(by=by, **asked), UsageView)
            return view

        async def are_told() -> bool:
            lines = (await usage_by(UsageBy.POD)).lines
            return sum(line.gpu_hours for line in lines) * 3600 >= 475

        await eventually(are_told, within_seconds=60, what="the hours of four minutes")
        views = [await usage_by(by) for by in UsageBy]
        waste = await world.ask(GetWaste(**asked), WasteView)
        theirs = await world.ask(GetUsage(namespace="serving", **asked), UsageView)

    usage = {
        view.by.value: {line.name: round(line.gpu_hours * 360) * 10 for line in view.lines}
        for view in views
    }
    assert usage["namespace"] == {"team-a": 240, "serving": 240}
    assert usage["requester"] == {"exec/ada": 240, "Deployment/llama": 120, "Pod/llama-2": 120}
    assert usage["pod"] == {"(no pod)": 240, "serving/llama-1": 120, "serving/llama-2": 120}
    assert usage["owner"] == {
        "(no pod)": 240,
        "serving/Deployment/llama": 120,
        "serving/Pod/llama-2": 120,
    }
    assert usage["kind"] == {"time_slice": 480}
    [line] = theirs.lines
    assert line.used_hours == pytest.approx(line.idle_hours, rel=0.05)
    assert line.cost == pytest.approx(6 * 240 / 3600, rel=0.05)
    booked, total = views[-1].booked, views[-1].total
    parts = (total.used_us, total.idle_us, total.free_us, total.cordoned_us, total.unknown_us)
    assert booked.reservations_us + booked.pods_us + booked.nobody_us == sum(parts)
    [wasted] = waste.lines
    assert (wasted.pod, wasted.owner, wasted.kind) == ("llama-2", "", "time_slice")
    assert wasted.reservation_id == UUID(idle.uid)
    assert wasted.memory_percent == pytest.approx(100 * 5_000 / 40_000)
    assert wasted.because == ("idle", "memory")
