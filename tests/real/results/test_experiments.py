"""What results do for an experiment while it runs, and what they say of all of it."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from schemas.errors import Accepted
from schemas.executor.attempts import AttemptPhase, AttemptPhaseChanged, AttemptStarted
from schemas.results.measurements import CoTenant, ListSamples, SampleList
from schemas.task.dataset import DatasetFormat, DatasetUse
from schemas.telemetry.readings import (
    GpuProcess,
    HealthChanged,
    HealthKind,
    HostFacts,
    InventoryReported,
    SetBurst,
    Source,
)
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.testing import eventually
from tests.support.worlds.results import (
    BOOT,
    NODE,
    World,
    every_second,
    make_finished,
    make_sample,
)

BURSTS = f"gpusteward.cmd.telemetry.burst.{NODE}"


async def test_whole_run_is_told_beside_measured_part(world: World) -> None:
    start = utcnow() - timedelta(seconds=40)
    window = (start + timedelta(seconds=10.5), start + timedelta(seconds=20.5))
    event = make_finished(
        [window],
        started_at=start + timedelta(seconds=2.5),
        finished_at=start + timedelta(seconds=28.5),
    )
    other = new_id()
    samples = [
        make_sample(
            start + timedelta(seconds=s),
            s,
            power_draw_w=100.0 + s,
            throttle_reasons=("sw_power_cap",) if 15 <= s < 18 else ("gpu_idle",),
            ecc_corrected=s,
            processes=tuple(
                GpuProcess(pid=n, reservation_id=reservation)
                for n, reservation in enumerate([event.reservation_id, other][: 1 + (s < 8)])
            ),
        )
        for s in range(32)
    ]
    xid = HealthChanged(
        message_id=new_id(),
        occurred_at=start + timedelta(seconds=12),
        revision=1,
        node_id=NODE,
        boot_id=BOOT,
        change=HealthKind.XID,
        device_uuid="GPU-0",
        xid=31,
    )

    async def is_complete() -> bool:
        view = await world.summarized(event)
        told = view.gpu_monitoring.gpu_details["0"].xids == (31,)
        return told and view.whole_run is not None and view.whole_run.sample_count == 26

    async with world.results():
        await world.publish(*samples, event)
        await world.summarized(event)
        await world.publish(xid)  # comes late
        await eventually(is_complete, what="a summary of all of it")
        view = await world.summarized(event)

    assert view.whole_run is not None
    measured, whole = view.gpu_monitoring, view.whole_run
    assert (measured.phase, measured.sample_count) == ("measuring", 10)
    assert whole.phase == "whole_run"
    assert whole.monitoring_duration_seconds == pytest.approx(26.0)
    assert (measured.trusted, whole.trusted) == (True, True)
    details, of_whole = measured.gpu_details["0"], whole.gpu_details["0"]
    assert (details.power_draw_w.p50, of_whole.power_draw_w.p50) == (115.5, 115.5)
    assert details.throttled_seconds == pytest.approx(3.0)
    assert (details.ecc_corrected, of_whole.ecc_corrected) == (10, 26)
    assert details.co_tenants == ()
    assert of_whole.co_tenants == (
        CoTenant(seconds=pytest.approx(5.0), reservation_id=other),  # type: ignore[arg-type]
    )


async def test_nodes_sample_faster_during_the_load(world: World) -> None:
    bursts: list[SetBurst] = []

    async def agent(message: Any) -> None:
        bursts.append(msgspec.msgpack.decode(message.data, type=SetBurst))
        await message.respond(encode(Accepted(command_id=bursts[-1].command_id)))

    await world.client.subscribe(BURSTS, cb=agent)
    finished = make_finished([(utcnow(), utcnow())])
    common = {
        name: getattr(finished, name)
        for name in (
            *("experiment_id", "attempt_id", "attempt_number", "task_id", "executor_id"),
            *("reservation_id", "epoch"),
        )
    }

    def phase(name: AttemptPhase, **overrides: Any) -> AttemptPhaseChanged:
        fields = {"message_id": new_id(), "occurred_at": utcnow(), "revision": 1, **common}
        return AttemptPhaseChanged(**{**fields, "phase": name, **overrides})

    started = AttemptStarted(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=1,
        devices=finished.devices,
        **common,
    )

    async with world.results(burst_seconds=30.0):
        await world.publish(
            started,
            phase(AttemptPhase.PULLING),
            phase(AttemptPhase.LOADING, occurred_at=utcnow() - timedelta(minutes=1)),
            phase(AttemptPhase.LOADING),
            phase(AttemptPhase.MEASURING),
        )
        await eventually(lambda: len(bursts) == 2, what="two bursts")
        assert await world.count("running_attempt") == 1
        await world.publish(finished)

        async def is_forgotten() -> bool:
            return await world.count("running_attempt") == 0

        await eventually(is_forgotten, what="the end of the attempt")

    assert {(b.interval_seconds, b.duration_seconds) for b in bursts} == {(0.1, 30.0)}
    assert {b.experiment_id for b in bursts} == {finished.experiment_id}


async def test_samples_are_paged_each_once(world: World) -> None:
    start = utcnow() - timedelta(seconds=40)
    event = make_finished([(start + timedelta(seconds=10.5), start + timedelta(seconds=20.5))])
    samples = every_second(start, 32, energy_mj=None)

    async with world.results():
        await world.publish(*samples)
        await world.stored(64)
        await world.publish(event)
        await world.complete(event, ticks=10)
        whole = await world.ask(ListSamples(experiment_id=event.experiment_id), SampleList)
        query: ListSamples | None = ListSamples(experiment_id=event.experiment_id, limit=7)
        pages = []
        while query is not None:
            pages.append(await world.ask(query, SampleList))
            cursor = pages[-1].next_cursor
            query = replace(query, cursor=cursor) if cursor is not None else None

    assert whole.next_cursor is None
    assert [device.uuid for device in whole.devices] == ["GPU-0"]
    ticks = [tick for page in pages for tick in page.sequence]
    assert ticks == list(whole.sequence) == list(range(len(ticks)))
    assert len(ticks) > 20
    assert [
        tuple(value for page in pages for value in getattr(page, name))
        for name in ("observed_at_us", "power_draw_w", "energy_mj")
    ] == [
        tuple(round(sample.observed_at.timestamp() * 1e6) for sample in samples[: len(ticks)]),
        (360.0,) * len(ticks),
        (None,) * len(ticks),
    ]


async def test_driver_image_and_dataset_are_those_measured_with(world: World) -> None:
    start = utcnow() - timedelta(minutes=5)
    window = (start, start + timedelta(seconds=5))
    use = DatasetUse(sha256="ab", format=DatasetFormat.TEXT, rows=2, used=1)
    event = make_finished([window], image_digest="vllm/vllm-openai@sha256:aa")
    if event.benchmark is not None:
        event = replace(event, benchmark=replace(event.benchmark, dataset=use))

    def inventory(version: str, at: float) -> InventoryReported:
        return InventoryReported(
            message_id=new_id(),
            occurred_at=start + timedelta(seconds=at),
            revision=1,
            node_id=NODE,
            boot_id=BOOT,
            source=Source.NVML,
            interval_seconds=1.0,
            host=HostFacts(hostname=NODE, driver_version=version),
            devices=(),
        )

    async def is_there() -> bool:
        return await world.count("driver_version") == 3

    async with world.results():
        await world.publish(*[inventory("570.1", -90 + 30 * n) for n in range(3)])
        await world.publish(inventory("565.9", -3600), inventory("580.2", 60))
        await eventually(is_there, what="the drivers")
        await world.publish(*every_second(start - timedelta(seconds=5), 12), event)
        view = await world.summarized(event)

    assert view.driver_versions == {NODE: "570.1"}
    assert view.image_digest == "vllm/vllm-openai@sha256:aa"
    assert view.dataset == use
