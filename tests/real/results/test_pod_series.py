"""What pods used over time: their own where it is known, else said to be the GPU's."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.gpus.device_grant import DeviceGrant
from schemas.gpus.kinds import GpuKind
from schemas.results.series import (
    GetSeries,
    ListPods,
    SeriesBy,
    SeriesMetric,
    SeriesView,
    WhoseReading,
)
from schemas.scheduler.reservations import ReservationGranted
from schemas.telemetry.readings import GpuPod, GpuSampled, PodUse
from services.results import history, pod_history
from services.results.domain.rollup import Level, start_of
from services.results.gpu_time.facts import Facts
from services.results.migrations import MIGRATIONS
from services.results.rollups import Rollups
from services.results.samples.partitions import Partitions, Table
from services.results.samples.store import SampleStore
from shared.clock import utcnow
from shared.ids import new_id
from shared.postgres.database import Connection, Database
from tests.support.worlds.results import NODE, make_sample

MINUTE = timedelta(minutes=1)
MINUTES = 10
OURS = new_id()


async def nothing(_: Connection, __: object) -> None:
    """Is called with what is stored."""


def pod(namespace: str, number: int, **fields: Any) -> GpuPod:
    values = {"kind": "time_slice", "percent": 50, "uid": f"{number:032x}", "owner": "Job/x"}
    return GpuPod(namespace, f"pod-{number}", "main", **{**values, **fields})


ALONE = pod("serving", 1, kind="pgpu", percent=100)
TOLD, ALSO_TOLD = pod("serving", 2), pod("team-b", 3)
UNTOLD, OUR_OWN = pod("team-b", 4), pod("engines", 5, reservation_id=str(OURS))


def sample_of(at: datetime, second: int) -> GpuSampled:
    """GPU 0: alone. GPU 1: two whose processes tell. GPU 2: two of which nothing tells."""
    sample = make_sample(at, second, gpus=3, utilization_percent=90.0, memory_used_mb=60_000)
    uses = (PodUse(TOLD.uid, 10_000, 70.0), PodUse(ALSO_TOLD.uid, 50_000, 20.0))
    alone, told, untold = sample.gpus
    gpus = (
        replace(alone, pods=(ALONE,)),
        replace(told, pods=(TOLD, ALSO_TOLD), pod_uses=uses),
        replace(untold, pods=(OUR_OWN, UNTOLD)),
    )
    return replace(sample, gpus=gpus)


@pytest.fixture
async def filled(postgres_dsn: str) -> AsyncIterator[tuple[Database, datetime]]:
    start = start_of(utcnow(), MINUTE) - (MINUTES + 2) * MINUTE
    database = Database(postgres_dsn, "results", MIGRATIONS)
    await database.open()
    store = SampleStore(database, Partitions(database, Table.RAW, 7), nothing)
    minutes, hours = Partitions(database, Table.MINUTE, 90), Partitions(database, Table.HOUR, 730)
    rollups = Rollups(database, minutes, hours, timedelta(days=7))
    facts = Facts(database, timedelta(days=7))
    for reservation_id, gpu, at in ((OURS, None, 0), (new_id(), 0, MINUTES // 2)):
        grant = DeviceGrant(node_id=NODE, uuid=f"GPU-{gpu}", index=0, name="A100")
        await facts.record(
            ReservationGranted(
                message_id=new_id(),
                occurred_at=start + at * MINUTE,
                revision=1,
                reservation_id=reservation_id,
                namespace="team-a",
                holder="exec/ada",
                epoch=1,
                node_id=NODE,
                devices=() if gpu is None else (grant,),
                lease_ttl_seconds=30,
                waited_seconds=0.0,
            )
        )
    await store.store(
        [sample_of(start + timedelta(seconds=s), s) for s in range(0, MINUTES * 60, 5)]
    )
    await rollups.roll_up_ready(utcnow())
    yield database, start
    await database.close()


async def series(of: tuple[Database, datetime], metric: SeriesMetric, **query: Any) -> SeriesView:
    database, start = of
    asked = GetSeries(metric=metric, start_at=start, end_at=start + MINUTES * MINUTE, **query)
    async with database.transaction() as connection:
        if asked.by is SeriesBy.POD:
            return await pod_history.pod_series(connection, asked)
        return await history.series(connection, asked, dict.fromkeys(Level, start - MINUTE))


async def test_pod_shows_its_own_use_or_the_gpus(
    filled: tuple[Database, datetime],
) -> None:
    views = {
        metric: (await series(filled, metric, by=SeriesBy.POD, points=5)).pods
        for metric in (
            SeriesMetric.UTILIZATION_PERCENT,
            SeriesMetric.MEMORY_USED_MB,
            SeriesMetric.POWER_DRAW_W,
        )
    }

    busy, memory, power = (
        {each.pod: (each.reading, each.points[0].mean) for each in pods} for pods in views.values()
    )
    own, gpu = WhoseReading.OWN, WhoseReading.GPU
    assert busy == {
        "pod-1": (own, 90.0),
        "pod-2": (own, 70.0),
        "pod-3": (own, 20.0),
        "pod-4": (gpu, 90.0),
        "pod-5": (gpu, 90.0),
    }
    assert {name: mean for name, (reading, mean) in memory.items() if reading is own} == {
        "pod-1": 60_000,
        "pod-2": 10_000,
        "pod-3": 50_000,
    }
    whose = {name: reading for name, (reading, _) in power.items()}
    assert whose == {"pod-1": own, **dict.fromkeys(("pod-2", "pod-3", "pod-4", "pod-5"), gpu)}
    first = views[SeriesMetric.MEMORY_USED_MB][0]
    assert (first.owner, first.kind, first.memory_given_mb) == ("Job/x", "time_slice", 40_000)
    assert {len(each.points) for each in views[SeriesMetric.POWER_DRAW_W]} == {5}


@pytest.mark.parametrize(
    ("query", "want"),
    [
        pytest.param({}, {1, 2, 3, 4, 5}, id="all"),
        pytest.param({"kind_of_gpu": GpuKind.PGPU}, {1}, id="a kind"),
        pytest.param({"kind_of_gpu": GpuKind.SHARED}, {2, 3, 4, 5}, id="parts"),
        pytest.param({"pod_namespace": "team-b"}, {3, 4}, id="a namespace of pods"),
        pytest.param({"pod": "pod-2"}, {2}, id="a pod"),
        pytest.param({"namespace": "team-a"}, {5}, id="a reservation's is of its namespace"),
        pytest.param({"namespace": "serving"}, {1, 2}, id="a namespace of ours"),
        pytest.param({"readable": ("team-a", "serving")}, {1, 2, 5}, id="what may be seen"),
        pytest.param({"device_uuid": "GPU-1"}, {2, 3}, id="a device"),
        pytest.param({"node_id": "elsewhere"}, set(), id="another node"),
    ],
)
async def test_pods_are_chosen_by_each_filter(
    filled: tuple[Database, datetime], query: dict[str, Any], want: set[int]
) -> None:
    view = await series(filled, SeriesMetric.UTILIZATION_PERCENT, by=SeriesBy.POD, **query)

    assert {each.pod for each in view.pods} == {f"pod-{number}" for number in want}


async def test_pods_are_listed_with_whose_they_are(filled: tuple[Database, datetime]) -> None:
    database, start = filled
    query = ListPods(start_at=start, end_at=utcnow(), readable=("team-a", "team-b"))
    async with database.transaction() as connection:
        listed = await pod_history.list_pods(connection, query)

    assert [(each.namespace, each.pod, each.reservation_id) for each in listed.pods] == [
        ("engines", "pod-5", OURS),
        ("team-b", "pod-3", None),
        ("team-b", "pod-4", None),
    ]
    assert {each.devices for each in listed.pods} == {1}


async def test_long_pod_list_tells_how_many_are_missing(
    filled: tuple[Database, datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_history, "MAX_PODS", 2)
    database, start = filled
    async with database.transaction() as connection:
        listed = await pod_history.list_pods(connection, ListPods(start_at=start, end_at=utcnow()))
        none = await pod_history.list_pods(
            connection, ListPods(start_at=start, end_at=utcnow(), node_id="elsewhere")
        )

    assert (len(listed.pods), listed.left_out) == (2, 3)
    assert (none.pods, none.left_out) == ((), 0)


async def test_namespace_gpus_are_of_its_minutes(
    filled: tuple[Database, datetime],
) -> None:
    """team-a has GPU-0 by a reservation from the middle on, and GPU-2 by its own pod."""
    metric = SeriesMetric.MEMORY_USED_MB
    by_gpu = await series(filled, metric, namespace="team-a", points=MINUTES)
    by_node = await series(filled, metric, namespace="team-a", by=SeriesBy.NODE, points=MINUTES)

    assert [(each.device_uuid, len(each.points)) for each in by_gpu.devices] == [
        ("GPU-0", MINUTES // 2),
        ("GPU-2", MINUTES),
    ]
    [node] = by_node.nodes
    assert (node.gpus, node.memory_total_mb) == (2, 160_000)
    assert [point.mean for point in node.points] == [60_000] * 5 + [120_000] * 5
