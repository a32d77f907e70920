"""Out of one installation and into another, over HTTP; the owners behind are scripted."""

import asyncio
import hashlib
import io
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.errors import ErrorCode, Refused
from schemas.executor.attempts import AttemptPhase, Failure, FailureKind
from schemas.executor.engine_samples import EngineReading
from schemas.gateway.archives import MANIFEST, ArchiveKind
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.orchestrator.views import (
    ExperimentList,
    ExperimentView,
    GetExperiment,
    GetTask,
    ListExperiments,
    TaskView,
)
from schemas.results.engine_metrics import EngineSampleList, ListEngineSamples
from schemas.results.measurements import (
    GetSummary,
    ListSamples,
    ListSummaries,
    SampledDevice,
    SampleList,
    SummaryList,
)
from schemas.task.benchmark import BenchmarkMetrics
from shared.archives.tar import ArchiveWriter, pack_tar, read_archive
from shared.client.discovery import Address
from shared.client.errors import ApiError
from shared.client.http import StewardClient
from shared.ids import new_id
from tests.support.worlds.gateway import (
    NODE,
    Api,
    gateway,
    make_experiment_view,
    make_summary,
    make_task_view,
)

SECRET = "hf_s3cret"  # made up
MISSING = Refused(code=ErrorCode.NOT_FOUND, message="unknown")
BENCHMARK = {
    "tool": "builtin",
    "tool_version": "1",
    "simulated": True,
    "levels": [],
    "metrics": {"mean_ttft": 0.2},
    "elapsed_seconds": 5.0,
}


@dataclass
class Elsewhere:
    """A finished task with one success and one failure, at owners that may forget it."""

    api: Api
    client: StewardClient
    task: TaskView = field(
        default_factory=lambda: make_task_view(new_id(), state=TaskState.COMPLETED)
    )
    experiments: tuple[ExperimentView, ...] = ()
    is_known: bool = True

    def __post_init__(self) -> None:
        failure = Failure(kind=FailureKind.INTERNAL, message="m", log_tail=(SECRET,))
        common: dict[str, Any] = {"task_id": self.task.task_id, "task_name": "tune"}
        self.experiments = (
            make_experiment_view(
                parameters={"tp": 2, "hf-token": SECRET},
                metrics=BenchmarkMetrics(mean_ttft=0.2),
                **common,
            ),
            make_experiment_view(
                ordinal=2, state=ExperimentState.FAILED, failure=failure, metrics=None, **common
            ),
        )

    async def answer(self) -> None:
        owners = self.api.owners
        first = self.experiments[0]
        summary = make_summary(first, benchmark=BENCHMARK, driver_versions={NODE: "570.1"})
        await owners.answer(GetTask, lambda _: self.task if self.is_known else MISSING)
        await owners.answer(ListExperiments, lambda _: ExperimentList(experiments=self.experiments))
        await owners.answer(GetExperiment, self._experiment)
        await owners.answer(GetSummary, summary)
        listed = replace(summary, benchmark={}, driver_versions={})
        await owners.answer(ListSummaries, SummaryList(summaries=(listed,)))
        await owners.answer(ListSamples, samples)
        await owners.answer(ListEngineSamples, engine_samples)

    def _experiment(self, query: GetExperiment) -> ExperimentView | Refused:
        known = {each.experiment_id: each for each in self.experiments if self.is_known}
        return known.get(query.experiment_id, MISSING)


def samples(query: ListSamples) -> SampleList:
    """Two pages of 3 and 2."""
    rows = range(3) if query.cursor is None else range(3, 5)
    known: dict[str, Any] = {
        name: tuple(100.0 + row for row in rows)
        for name in ("interval_seconds", "utilization_percent", "temperature_c", "power_limit_w")
    }
    counted = ("memory_total_mb", "memory_used_mb", "energy_mj", "ecc_corrected", "ecc_uncorrected")
    return SampleList(
        attempt_id=new_id(),
        devices=(
            SampledDevice(node_id=NODE, uuid="GPU-0", index=0, name="NVIDIA A100", simulated=True),
        ),
        device=(0,) * len(rows),
        observed_at_us=tuple(1_700_000_000_000_000 + row for row in rows),
        boot_id=tuple(new_id() for _ in rows),
        sequence=tuple(rows),
        power_draw_w=tuple(None if row == 4 else 300.0 for row in rows),
        next_cursor="more" if query.cursor is None else None,
        **known,
        **{name: tuple(rows) for name in counted},
    )


def engine_samples(query: ListEngineSamples) -> EngineSampleList:
    """Two pages of one."""
    row = 0 if query.cursor is None else 1
    none: dict[str, Any] = dict.fromkeys(EngineReading.__struct_fields__, (None,))
    return EngineSampleList(
        attempt_id=new_id(),
        engine="vllm",
        sequence=(row,),
        observed_at_us=(1_700_000_000_000_000 + row,),
        phase=(AttemptPhase.MEASURING,),
        next_cursor="more" if query.cursor is None else None,
        **none | {"running": (2.0 + row,)},
    )


@pytest.fixture
async def elsewhere(nats_url: str, postgres_dsn: str) -> AsyncIterator[Elsewhere]:
    async with gateway(nats_url, postgres_dsn) as api, StewardClient(Address(api.url)) as client:
        found = Elsewhere(api, client)
        await found.answer()
        yield found


async def test_exported_task_is_imported_and_shown_alike(elsewhere: Elsewhere) -> None:
    client, task = elsewhere.client, elsewhere.task
    here = await client.experiments(task.task_id)

    tar = await client.export(ArchiveKind.TASK, task.task_id)
    elsewhere.is_known = False
    view = await client.import_archive(tar, namespace="guests")
    again = await client.import_archive(tar, namespace="guests")

    assert view == again
    assert await client.imports() == (view,)
    assert (view.subject_id, view.namespace, view.experiments) == (task.task_id, "guests", 2)
    shown = await client.task(task.task_id)
    assert shown.imported_at == view.imported_at
    assert replace(shown, imported_at=None, namespace="default") == task
    there = await client.experiments(task.task_id)
    assert [each.gpu_monitoring for each in there] == [each.gpu_monitoring for each in here]
    assert [(e.ordinal, e.state, e.namespace) for e in there] == [
        (e.ordinal, e.state, "guests") for e in here
    ]
    one = await client.experiment_document(there[0].experiment_id)
    assert one["benchmark"]["tool"] == "builtin"
    assert one["imported_at"] is not None
    assert await client.export(ArchiveKind.TASK, task.task_id) == tar
    await client.delete_task(task.task_id)
    assert await client.imports() == ()
    with pytest.raises(ApiError) as gone:
        await client.task(task.task_id)
    assert gone.value.code is ErrorCode.NOT_FOUND


async def test_export_has_measurements_and_no_secret(elsewhere: Elsewhere) -> None:
    import pyarrow.parquet

    tar = await elsewhere.client.export(ArchiveKind.TASK, elsewhere.task.task_id)

    _, files = read_archive(tar)
    assert SECRET.encode() not in tar
    assert set(files) == {
        "task.json",
        "experiments/0001/engine.parquet",
        "experiments/0001/experiment.json",
        "experiments/0001/measured.json",
        "experiments/0001/samples/part-001.parquet",
        "experiments/0002/experiment.json",
    }
    assert b"570.1" in files["experiments/0001/measured.json"]
    table = pyarrow.parquet.read_table(
        io.BytesIO(files["experiments/0001/samples/part-001.parquet"])
    )
    assert table.column("power_draw_w").to_pylist() == [300.0] * 4 + [None]
    assert table.column("device_uuid").to_pylist() == ["GPU-0"] * 5
    assert table.column("sequence").to_pylist() == list(range(5))
    engine = pyarrow.parquet.read_table(io.BytesIO(files["experiments/0001/engine.parquet"]))
    assert engine.column("running").to_pylist() == [2.0, 3.0]
    assert engine.column("waiting").to_pylist() == [None, None]
    assert engine.column("phase").to_pylist() == ["measuring"] * 2


async def test_one_experiment_goes_alone(elsewhere: Elsewhere) -> None:
    first = elsewhere.experiments[0]

    tar = await elsewhere.client.export(ArchiveKind.EXPERIMENT, first.experiment_id)
    elsewhere.is_known = False
    view = await elsewhere.client.import_archive(tar)

    assert (view.kind, view.subject_id) == (ArchiveKind.EXPERIMENT, first.experiment_id)
    assert (await elsewhere.client.task(first.task_id)).imported_at is not None
    [shown] = await elsewhere.client.experiments(first.task_id)
    assert shown.experiment_id == first.experiment_id


async def test_refused_import_leaves_nothing(elsewhere: Elsewhere) -> None:
    client = elsewhere.client
    tar = await client.export(ArchiveKind.TASK, elsewhere.task.task_id)
    _, files = read_archive(tar)
    changed = b"".join(pack_tar({**files, MANIFEST: b"{}"}.items()))

    async def refused(body: bytes) -> ErrorCode:
        with pytest.raises(ApiError) as found:
            await client.import_archive(body)
        return found.value.code

    assert await refused(tar) is ErrorCode.CONFLICT  # it is our own
    elsewhere.is_known = False
    assert await refused(tar[:-2000]) is ErrorCode.BAD_REQUEST
    assert await refused(changed) is ErrorCode.BAD_REQUEST
    assert await refused(b"") is ErrorCode.BAD_REQUEST
    assert await client.imports() == ()


def with_samples(tar: bytes, size_bytes: int) -> bytes:
    """The same export with another file of samples."""
    manifest, files = read_archive(tar)
    writer = ArchiveWriter()
    parts = [writer.add(path, content) for path, content in files.items()]
    parts.append(writer.add("experiments/0001/samples/part-002.parquet", bytes(size_bytes)))
    return b"".join((*parts, writer.end(manifest)))


def with_document(tar: bytes, path: str, before: bytes, after: bytes) -> bytes:
    """The same export with a document that says something else, and a manifest that says so."""
    manifest, files = read_archive(tar)
    assert before in files[path]
    files[path] = files[path].replace(before, after, 1)
    writer = ArchiveWriter()
    parts = [writer.add(name, content) for name, content in files.items()]
    return b"".join((*parts, writer.end(manifest)))


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        pytest.param(
            "experiments/0001/experiment.json",
            b'"parameters": {',
            b'"parameters": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b", ",
            id="deeper than anything is read",
        ),
        pytest.param("task.json", b'"task_name": "', b'"task_name": "\\u0000', id="with a 0"),
        pytest.param("task.json", b'"task_name": "', b'"task_name": "\xff', id="not UTF-8"),
    ],
)
async def test_unstorable_documents_are_refused(
    elsewhere: Elsewhere, path: str, before: bytes, after: bytes
) -> None:
    tar = await elsewhere.client.export(ArchiveKind.TASK, elsewhere.task.task_id)
    elsewhere.is_known = False

    with pytest.raises(ApiError) as found:
        await elsewhere.client.import_archive(with_document(tar, path, before, after))

    assert found.value.code is ErrorCode.BAD_REQUEST
    assert await elsewhere.client.imports() == ()


@pytest.mark.long
async def test_large_archive_is_streamed_both_ways(elsewhere: Elsewhere, tmp_path: Path) -> None:
    client, task_id = elsewhere.client, elsewhere.task.task_id
    file = tmp_path / "task.tar"
    file.write_bytes(with_samples(await client.export(ArchiveKind.TASK, task_id), 66 << 20))
    elsewhere.is_known = False

    tracemalloc.start(1)
    try:
        view = await client.import_archive(file)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert await client.imports() == (view,)
    assert most_bytes < 24 << 20
    out = await client.export(ArchiveKind.TASK, task_id)
    assert hashlib.sha256(out).digest() == hashlib.sha256(file.read_bytes()).digest()


async def test_archive_over_limit_is_refused(
    elsewhere: Elsewhere, nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    tar = await elsewhere.client.export(ArchiveKind.TASK, elsewhere.task.task_id)
    elsewhere.is_known = False
    file = tmp_path / "task.tar"
    file.write_bytes(with_samples(tar, 1 << 20))

    async with (
        gateway(nats_url, postgres_dsn, largest_import_mb=1) as small,
        StewardClient(Address(small.url)) as client,
    ):
        with pytest.raises(ApiError, match="expected a file of at most 1048576") as refused:
            await client.import_archive(file)

    assert refused.value.code is ErrorCode.TOO_LARGE
    assert await elsewhere.client.imports() == ()


async def test_interrupted_import_leaves_nothing(
    elsewhere: Elsewhere,
) -> None:
    client, task_id = elsewhere.client, elsewhere.task.task_id
    tar = with_samples(await client.export(ArchiveKind.TASK, task_id), 3 << 20)
    elsewhere.is_known = False
    host, port = elsewhere.api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /api/v1/imports HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(tar)}\r\n\r\n"

    writer.write(head.encode() + tar[:-1])
    await writer.drain()
    writer.write_eof()
    await reader.read()  # until the gateway has closed it as well
    writer.close()

    assert await client.imports() == ()
    view = await client.import_archive(tar)
    assert await client.imports() == (view,)


async def test_an_unfinished_task_is_not_exported(elsewhere: Elsewhere) -> None:
    running = replace(elsewhere.experiments[0], state=ExperimentState.RUNNING)
    elsewhere.experiments = (running,)

    with pytest.raises(ApiError) as refused:
        await elsewhere.client.export(ArchiveKind.TASK, elsewhere.task.task_id)

    assert refused.value.code is ErrorCode.CONFLICT
