"""Samples and measurements over a real nats-server and Postgres."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.errors import ErrorCode, Refused
from schemas.executor.attempts import AttemptFinished, AttemptOutcome
from schemas.gpus.device_grant import DeviceGrant
from schemas.orchestrator.deletion import ExperimentDeleted, TaskDeleted
from schemas.results.measurements import (
    GetReport,
    GetRequests,
    ListSummaries,
    ReportView,
    RequestsView,
    SummaryList,
)
from schemas.results.series import GetSeries, SeriesBy, SeriesMetric, SeriesView
from services.results import handlers
from services.results.migrations import MIGRATIONS
from services.results.samples.partitions import Partitions, Table
from shared.benchmarks.metrics import FailedRequest, RequestSample, level_result
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.streams import EVENTS, SAMPLES
from shared.postgres.database import Database
from shared.testing import NatsServer, eventually
from tests.support.worlds.results import NODE, World, every_second, make_finished, make_sample


async def test_attempt_is_joined_to_its_samples(world: World) -> None:
    start = utcnow() - timedelta(seconds=30)
    event = make_finished([(start + timedelta(seconds=2.5), start + timedelta(seconds=7.5))])

    async with world.results():
        await world.publish(*every_second(start, 12), event)
        view = await world.complete(event, ticks=5)
        told = await world.told(view)

    assert view.gpu_monitoring.sample_count == 5
    assert view.gpu_monitoring.coverage_percent == pytest.approx(100.0)
    assert view.gpu_monitoring.energy_wh == pytest.approx(360 * 5 / 3600)
    assert view.gpu_monitoring.simulated
    assert set(view.gpu_monitoring.gpu_stats) == {"0"}
    assert view.metrics.mean_ttft == 0.25
    assert view.benchmark["tool_version"] == "1"
    assert (told.attempt_id, told.task_id) == (event.attempt_id, event.task_id)
    assert told.gpu_monitoring == view.gpu_monitoring
    assert told.metrics == view.metrics


async def test_duplicates_and_disorder_change_nothing(world: World) -> None:
    start = utcnow() - timedelta(seconds=30)
    samples = every_second(start, 12)
    event = make_finished([(start + timedelta(seconds=2), start + timedelta(seconds=8))])

    async with world.results():
        await world.publish(event, *reversed(samples), *samples, event)
        await world.stored(24)
        await world.summarized(event)
        await world.publish(*samples, event)
        await world.complete(event, ticks=7)
        assert await world.count("stored_sample") == 24
        assert await world.count("attempt") == 1
        await eventually(world.all_acknowledged, what="samples that the stream gives up")
    versions = [told.version for told in await world.told_summaries()]
    assert versions == sorted(set(versions))


async def test_late_samples_make_a_new_summary(world: World) -> None:
    start = utcnow() - timedelta(seconds=30)
    samples = every_second(start, 12)
    event = make_finished([(start + timedelta(seconds=2), start + timedelta(seconds=8))])

    async with world.results():
        await world.publish(*samples[:4], *samples[8:], event)
        first = await world.summarized(event)
        await world.publish(*samples[4:8])
        second = await world.complete(event, ticks=7)

    assert first.gpu_monitoring.sample_count == 3
    assert first.gpu_monitoring.coverage_percent < 60
    assert second.version > first.version
    assert second.gpu_monitoring.coverage_percent == pytest.approx(100.0)


async def test_crash_before_summary_is_made_good(
    world: World,
) -> None:
    start = utcnow() - timedelta(seconds=3)
    event = make_finished([(start, start + timedelta(seconds=2))])
    async with world.results(summary_grace_seconds=600):
        await world.publish(event, make_sample(start + timedelta(seconds=0.5), 1))

        async def is_stored() -> bool:
            return await world.count("attempt") == 1

        await eventually(is_stored, what="the stored attempt")
        await world.stored(2)
        assert await world.count("summary WHERE pending") == 1

    await world.publish(make_sample(start + timedelta(seconds=2.5), 3))
    async with world.results():
        view = await world.summarized(event)

    assert view.gpu_monitoring.sample_count == 1


async def test_window_without_samples_is_summarized(world: World) -> None:
    start = utcnow() - timedelta(seconds=3)
    event = make_finished([(start, start + timedelta(seconds=2))])

    async with world.results(summary_grace_seconds=0.2):
        await world.publish(event)
        view = await world.summarized(event)

    assert view.gpu_monitoring.sample_count == 0
    assert view.gpu_monitoring.coverage_percent == 0
    assert view.gpu_monitoring.energy_wh is None
    assert view.gpu_monitoring.gpu_stats["0"].utilization.mean is None


async def test_summaries_are_paged_by_experiment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "MAX_SUMMARIES", 3)
    start = utcnow() - timedelta(seconds=30)
    window = [(start + timedelta(seconds=2), start + timedelta(seconds=8))]
    task_id = new_id()
    events = [make_finished(window, task_id=task_id) for _ in range(7)]
    another = make_finished(window)

    async with world.results():
        await world.publish(*every_second(start, 12), *events, another)
        views = {event.experiment_id: await world.complete(event, ticks=7) for event in events}
        await world.complete(another, ticks=7)
        pages: list[SummaryList] = []
        after: UUID | None = None
        while not pages or after is not None:
            query = ListSummaries(task_id=task_id, after_experiment_id=after)
            pages.append(await world.ask(query, SummaryList))
            after = pages[-1].next_after_experiment_id

    assert [len(page.summaries) for page in pages] == [3, 3, 1]
    found = [summary for page in pages for summary in page.summaries]
    assert [summary.experiment_id for summary in found] == sorted(views)
    assert all(s == replace(views[s.experiment_id], benchmark={}) for s in found)


async def test_unknown_stays_unknown_in_the_database(world: World) -> None:
    start = utcnow() - timedelta(seconds=30)
    samples = every_second(start, 12, power_draw_w=None, temperature_c=math.nan)
    event = make_finished([(start + timedelta(seconds=2), start + timedelta(seconds=8))])

    async with world.results():
        await world.publish(*samples, event)
        view = await world.complete(event, ticks=7)

    stats = view.gpu_monitoring.gpu_stats["0"]
    assert stats.power_draw_w.mean is None
    assert stats.power_limit_w.mean == 400.0
    assert stats.temperature_c.min is None
    assert stats.utilization.mean == 80.0


async def test_two_instances_store_everything_once(world: World) -> None:
    start = utcnow() - timedelta(seconds=60)
    samples = every_second(start, 40)
    events = [
        make_finished([(start + timedelta(seconds=second), start + timedelta(seconds=second + 5))])
        for second in range(20)
    ]

    async with world.results(), world.results():
        await world.publish(*samples, *samples, *events)
        for event in events:
            await world.told(await world.summarized(event))

        async def all_complete() -> bool:
            return await world.count("summary WHERE NOT pending") == 20

        await eventually(all_complete, what="every summary")
        assert await world.count("stored_sample") == 80
    told = await world.told_summaries()
    assert {t.experiment_id for t in told} == {e.experiment_id for e in events}
    assert len({(t.experiment_id, t.version) for t in told}) == len(told)


async def test_failed_attempts_are_kept_unsummarized(world: World) -> None:
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    failed = make_finished(
        [(start, start + timedelta(hours=2))],
        outcome=AttemptOutcome.FAILED,
        benchmark=None,
        namespace="team-b",
    )
    async with world.results():
        await world.publish(failed)

        async def is_stored() -> bool:
            return await world.count("attempt") == 1

        await eventually(is_stored, what="the stored attempt")
        report = await world.ask(
            GetReport(start_at=start + timedelta(hours=1), end_at=start + timedelta(days=1)),
            ReportView,
        )
        summary = await world.summary(failed)

    assert isinstance(summary, Refused)
    assert summary.code is ErrorCode.NOT_FOUND
    assert [(row.namespace, row.experiments, row.gpu_hours) for row in report.rows] == [
        ("team-b", 1, pytest.approx(1.0))
    ]
    assert report.rows[0].energy_wh is None


async def test_a_series_has_at_most_the_points_asked_for(world: World) -> None:
    start = (utcnow() - timedelta(seconds=200)).replace(microsecond=0)
    samples = [
        make_sample(start + timedelta(seconds=s), s, utilization_percent=float(s))
        for s in range(100)
    ]
    event = make_finished([(start + timedelta(seconds=40), start + timedelta(seconds=50))])

    async with world.results():
        await world.publish(*samples, event)
        await world.stored(200)
        await world.summarized(event)
        whole = await world.ask(
            GetSeries(
                metric=SeriesMetric.UTILIZATION_PERCENT,
                start_at=start,
                end_at=start + timedelta(seconds=100),
                points=7,
            ),
            SeriesView,
        )
        experiment = await world.ask(
            GetSeries(
                metric=SeriesMetric.UTILIZATION_PERCENT,
                start_at=start,
                end_at=utcnow(),
                experiment_id=event.experiment_id,
                points=100,
            ),
            SeriesView,
        )
        nonsense = await world.ask(
            GetSeries(metric=SeriesMetric.POWER_DRAW_W, start_at=start, end_at=start), Refused
        )

    assert [(d.node_id, d.device_uuid, len(d.points)) for d in whole.devices] == [
        (NODE, "GPU-0", 7),
        (NODE, "GPU-1", 7),
    ]
    points = whole.devices[0].points
    assert (points[0].at, points[0].min, points[-1].max) == (start, 0.0, 99.0)
    assert [d.device_uuid for d in experiment.devices] == ["GPU-0"]
    values = [point.mean for point in experiment.devices[0].points]
    assert min(values) <= 40 < 50 <= max(values)
    assert nonsense.path == "$.end_at"


@pytest.mark.parametrize(
    ("beside", "path"),
    [
        pytest.param({"by": SeriesBy.POD}, "$.experiment_id", id="by pod"),
        pytest.param({"namespace": "team-a"}, "$.namespace", id="namespace"),
    ],
)
async def test_query_of_ignored_fields_is_refused(
    world: World, beside: dict[str, Any], path: str
) -> None:
    asked: dict[str, Any] = {
        "metric": SeriesMetric.UTILIZATION_PERCENT,
        "start_at": utcnow() - timedelta(hours=1),
        "end_at": utcnow(),
    }

    async with world.results():
        refused = await world.ask(GetSeries(**asked, experiment_id=new_id(), **beside), Refused)
        alone = await world.ask(GetSeries(**asked, **beside), SeriesView)

    assert (refused.code, refused.path) == (ErrorCode.BAD_REQUEST, path)
    assert "expected no" in refused.message
    assert alone.devices == alone.pods == ()


async def test_partitions_are_made_ahead_and_dropped(world: World) -> None:
    today = utcnow().date()
    days = [today - timedelta(days=ago) for ago in (10, 8, 7, 1)]
    database = Database(world.dsn, "results", MIGRATIONS)
    await database.open()
    partitions = Partitions(database, Table.RAW, retention_days=7)

    await partitions.make(days)
    await partitions.make_ahead()
    await partitions.drop_old()
    await Partitions(database, Table.RAW, 7).make(days)  # one that does not know what exists

    kept = set(days[2:]) | {today + timedelta(days=ahead) for ahead in range(3)}
    assert partitions.known_days == kept
    for day in [*kept, *days]:
        assert await world.count(Table.RAW.name_of(day)) == 0
    await database.close()


async def test_unstorable_samples_are_left_out(
    world: World,
) -> None:
    now = utcnow()
    async with world.results():
        await world.publish(
            make_sample(datetime(1, 1, 1, tzinfo=UTC), 1),
            make_sample(now, 2**64 - 1),
            make_sample(now, 3, name="a\0b", energy_mj=2**64 - 1),
            make_sample(now, 4, gpus=0),
        )
        await world.client.publish(f"gpusteward.evt.telemetry.gpu_sampled.{NODE}", b"\x00nonsense")
        await world.stored(2)

        assert await world.count("stored_sample WHERE energy_mj IS NULL AND sequence = 3") == 2
        assert await world.count("stored_sample") == 2


async def test_a_deleted_bus_store_loses_no_stored_result(
    postgres_dsn: str, nats_server_factory: Any
) -> None:
    server: NatsServer = await nats_server_factory()
    client = await server.connect()
    world = World(server.authenticated_url, postgres_dsn, client)
    start = utcnow() - timedelta(seconds=30)
    event = make_finished([(start + timedelta(seconds=2), start + timedelta(seconds=8))])
    later = make_finished([(start + timedelta(seconds=3), start + timedelta(seconds=9))])

    async with world.results():
        await world.publish(*every_second(start, 12), event)
        before = await world.complete(event, ticks=7)
        await server.crash_and_lose_store()
        await server.start()
        await eventually(lambda: client.is_connected, what="the client's reconnection")

        async def streams_are_back() -> bool:
            names = [i.config.name for i in await client.jetstream().streams_info()]
            return {str(EVENTS.name), str(SAMPLES.name)} <= set(names)

        await eventually(streams_are_back, what="the streams")
        assert await world.summary(event) == before
        await eventually_published(world, later)
        await world.complete(later, ticks=7)
        await eventually(lambda: told_again(world, event), what="the event in the new stream")
    await client.close()


async def eventually_published(world: World, event: AttemptFinished) -> None:
    async def stored() -> bool:
        await world.publish(event)
        return await world.count("attempt") == 2

    await eventually(stored, every_seconds=0.2, what="the second attempt")


async def told_again(world: World, event: AttemptFinished) -> bool:
    return event.experiment_id in {t.experiment_id for t in await world.told_summaries()}


async def test_unsummarizable_attempt_delays_no_other(world: World) -> None:
    start = utcnow() - timedelta(minutes=1)
    window = (start, start + timedelta(seconds=2))
    device = DeviceGrant(node_id=NODE, uuid="GPU-\0", index=0, name="no name Postgres stores")
    poison, sound = make_finished([window], devices=(device,)), make_finished([window])

    async with world.results(summary_grace_seconds=0.1):
        await world.publish(poison, *every_second(start, 5), sound)

        view = await world.summarized(sound)
        assert view.attempt_id == sound.attempt_id
        assert isinstance(await world.summary(poison), Refused)


def make_deleted(event: AttemptFinished) -> ExperimentDeleted:
    return ExperimentDeleted(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=6,
        experiment_id=event.experiment_id,
        task_id=event.task_id,
        namespace=event.namespace,
        ordinal=1,
    )


async def test_deleted_data_leaves_its_gpu_hours(
    world: World,
) -> None:
    """Also where the attempt's end, or samples of it, come after the deletion."""
    start = utcnow() - timedelta(seconds=40)
    window = (start + timedelta(seconds=2.5), start + timedelta(seconds=7.5))
    task_id = new_id()
    gone, late, kept = (make_finished([window], task_id=task_id) for _ in range(3))
    usage = GetReport(start_at=start - timedelta(hours=1), end_at=utcnow() + timedelta(hours=1))

    async def is_gone() -> bool:
        return isinstance(await world.summary(gone), Refused)

    async with world.results():
        await world.publish(*every_second(start, 9), gone, kept)
        await world.complete(gone, ticks=5)
        await world.complete(kept, ticks=5)
        before = await world.ask(usage, ReportView)
        await world.publish(make_deleted(gone), make_deleted(gone), make_deleted(late))
        await eventually(is_gone, what="the end of the summary")
        after = await world.ask(usage, ReportView)
        samples = await world.count("experiment_sample")
        await world.publish(late, *every_second(start, 12))
        view = await world.complete(kept, ticks=5)
        in_list = await world.ask(ListSummaries(task_id=task_id), SummaryList)
        is_late_gone = isinstance(await world.summary(late), Refused)

    assert after == before
    assert samples == 9
    assert [summary.experiment_id for summary in in_list.summaries] == [view.experiment_id]
    assert is_late_gone


async def test_measured_requests_are_kept_once(world: World) -> None:
    start = utcnow() - timedelta(seconds=40)
    window = (start + timedelta(seconds=2.5), start + timedelta(seconds=7.5))
    levels = tuple(
        level_result(
            scenario="D(100,20)",
            num_concurrency=concurrency,
            started_at=window[0],
            run_duration=5.0,
            samples=[
                RequestSample(
                    ttft=0.25, e2e_latency=1.5 + n, num_input_tokens=100, num_output_tokens=20
                )
                for n in range(concurrency)
            ],
            error_codes={"503": 1},
            failed=[FailedRequest(code="503", seconds=0.125)],
        )
        for concurrency in (1, 3)
    )
    event = make_finished([window])
    assert event.benchmark is not None
    event = replace(event, benchmark=replace(event.benchmark, levels=levels))
    asked = GetRequests(experiment_id=event.experiment_id, level=1)

    async def is_gone() -> bool:
        return await world.count("level_requests") == 0

    async with world.results():
        await world.publish(*every_second(start, 9), event, event)
        view = await world.summarized(event)
        found = await world.ask(asked, RequestsView)
        none = await world.ask(replace(asked, level=2), Refused)
        stored = await world.count("level_requests")
        await world.publish(make_deleted(event))
        await eventually(is_gone, what="the end of the requests")

    assert [level["requests"] for level in view.benchmark["levels"]] == [None, None]
    assert (found.attempt_id, found.scenario, found.num_concurrency) == (
        event.attempt_id,
        "D(100,20)",
        3,
    )
    assert found.e2e_latency == (1.5, 2.5, 3.5, 0.125)
    assert found.ttft == (0.25, 0.25, 0.25, None)
    assert found.num_output_tokens == (20, 20, 20, None)
    assert found.error == (None, None, None, "503")
    assert (none.code, stored) == (ErrorCode.NOT_FOUND, 2)


async def test_all_of_a_deleted_tasks_measurements_go(world: World) -> None:
    start = utcnow() - timedelta(seconds=30)
    window = (start + timedelta(seconds=2.5), start + timedelta(seconds=7.5))
    event = make_finished([window])
    deleted = TaskDeleted(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=6,
        task_id=event.task_id,
        namespace=event.namespace,
        task_name="quick",
        experiments=1,
    )

    async def is_gone() -> bool:
        return isinstance(await world.summary(event), Refused)

    async with world.results():
        await world.publish(*every_second(start, 12), event)
        await world.complete(event, ticks=5)
        await world.publish(deleted)

        await eventually(is_gone, what="the end of the summary")
        assert await world.count("experiment_sample") == 0
