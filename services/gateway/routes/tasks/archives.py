"""Tasks and experiments as files: out of here, and in from elsewhere."""

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from litestar import Request, Response
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath
from litestar.response import Stream

from schemas.base import ListView
from schemas.errors import ErrorCode
from schemas.executor.engine_samples import EngineReading
from schemas.gateway import endpoints
from schemas.gateway.archives import FORMAT, ArchiveKind, ImportedList, ImportedView, Manifest
from schemas.orchestrator.experiments import FINISHED_EXPERIMENT_STATES, ExperimentState
from schemas.orchestrator.views import (
    ExperimentList,
    ExperimentView,
    GetTask,
    ListExperiments,
    TaskView,
)
from schemas.results.engine_metrics import EngineSampleList, ListEngineSamples
from schemas.results.measurements import (
    GetRequests,
    GetSummary,
    ListSamples,
    RequestsView,
    SampleList,
    SummaryView,
)
from services.gateway.context import Gateway
from services.gateway.domain.access import Identity
from services.gateway.domain.experiments import experiment_detail
from services.gateway.ledger.imports import ImportedPlace, on_disk, read_content
from services.gateway.routes.common import (
    PROBLEMS,
    Caller,
    Cursor,
    InNamespace,
    PageSize,
    TheGateway,
    or_none,
    route,
)
from services.gateway.routes.tasks.tasks import MAX_EXPERIMENTS
from shared.archives.parquet import Kind, ParquetFile
from shared.archives.redaction import without_secrets
from shared.archives.tar import EXPERIMENT, TASK, ArchiveWriter, document
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.messaging.paging import page_of, place_at

L = TypeVar("L", bound=ListView)

TAR: Final = "application/x-tar"
EXPORTED: Final = {
    **PROBLEMS,
    200: ResponseSpec(bytes, generate_examples=False, description="A tar file", media_type=TAR),
}
PART_ROWS: Final = 250_000  # of a file of samples: some MB
PAGE_SECONDS: Final = 30.0
SAMPLE_COLUMNS: Final = {
    "observed_at": Kind.MICROSECONDS,
    "node_id": Kind.TEXT,
    "device_uuid": Kind.TEXT,
    "device_index": Kind.INTEGER,
    "name": Kind.TEXT,
    "boot_id": Kind.TEXT,
    "sequence": Kind.INTEGER,
    "interval_seconds": Kind.NUMBER,
    "utilization_percent": Kind.NUMBER,
    "memory_total_mb": Kind.INTEGER,
    "memory_used_mb": Kind.INTEGER,
    "temperature_c": Kind.NUMBER,
    "power_draw_w": Kind.NUMBER,
    "power_limit_w": Kind.NUMBER,
    "energy_mj": Kind.INTEGER,
    "ecc_corrected": Kind.INTEGER,
    "ecc_uncorrected": Kind.INTEGER,
}
ENGINE_COLUMNS: Final = {
    "observed_at": Kind.MICROSECONDS,
    "sequence": Kind.INTEGER,
    "phase": Kind.TEXT,
    **dict.fromkeys(EngineReading.__struct_fields__, Kind.NUMBER),
}


@route(endpoints.EXPORT_TASK, media_type=TAR, responses=EXPORTED)
async def export_task(task_id: FromPath[UUID], gateway: TheGateway, identity: Caller) -> Stream:
    """A finished task with all that was measured, as a tar file that `/imports` takes elsewhere.

    Secrets and engines' logs are left out.
    """
    task = await or_none(gateway.task(task_id, identity))
    if task is None:
        return await _stream_import(gateway, identity, task_id, f"no task {task_id}")
    query = ListExperiments(task_id=task_id, limit=MAX_EXPERIMENTS)
    experiment_list = await gateway.fetch_list(query, ExperimentList, "experiments")
    return _export(gateway, ArchiveKind.TASK, task, experiment_list.experiments)


@route(endpoints.EXPORT_EXPERIMENT, media_type=TAR, responses=EXPORTED)
async def export_experiment(
    experiment_id: FromPath[UUID], gateway: TheGateway, identity: Caller
) -> Stream:
    """Export one experiment with its task's file and its measurements, in the form of a whole
    task.
    """
    view = await or_none(gateway.experiment(experiment_id, identity))
    if view is None:
        return await _stream_import(
            gateway, identity, experiment_id, f"no experiment {experiment_id}"
        )
    task = await gateway.bus.query(GetTask(task_id=view.task_id), TaskView)
    return _export(gateway, ArchiveKind.EXPERIMENT, task, (view,))


@route(
    endpoints.IMPORT_ARCHIVE,
    responses={
        **PROBLEMS,
        201: ResponseSpec(ImportedView, generate_examples=False, description="It is here now"),
    },
    request_max_body_size=None,  # access control applies that of the settings
)
async def import_archive(
    request: Request[Any, Any, Any],
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
) -> Response[ImportedView]:
    """Show what another installation exported; the body is its tar file.

    It counts in no report. The same file again changes nothing.
    """
    async with on_disk(request.stream()) as tar:
        namespace = identity.namespace_for(namespace)
        # On a thread: checksums of so many bytes take a while.
        content = await asyncio.to_thread(read_content, tar)
        own_task = await or_none(gateway.bus.query(GetTask(task_id=content.task.task_id), TaskView))
        if own_task is not None:
            raise RefusedError(
                ErrorCode.CONFLICT,
                f"task {own_task.task_name} ({own_task.task_id}) is this installation's own",
            )
        return Response(await gateway.imports.add(content, tar, namespace), status_code=201)


@route(endpoints.LIST_IMPORTS)
async def list_imports(
    gateway: TheGateway, identity: Caller, limit: PageSize = 100, cursor: Cursor = None
) -> ImportedList:
    """List what was imported, newest first."""
    imported_views = await gateway.imports.list_imports(
        place_at(cursor, ImportedPlace), identity, limit + 1
    )
    placed = [
        (imported, ImportedPlace(imported.imported_at, imported.subject_id))
        for imported in imported_views
    ]
    page, more = page_of(placed, limit, over_bus=False)
    return ImportedList(imported=page, next_cursor=more)


async def _stream_import(
    gateway: Gateway, identity: Identity, subject_id: UUID, missing: str
) -> Stream:
    tar = await gateway.imports.archive(subject_id, identity)
    if tar is None:
        raise RefusedError(ErrorCode.NOT_FOUND, missing)
    return _stream(subject_id, tar)


def _stream(subject_id: UUID, parts: Any) -> Stream:
    name = f'attachment; filename="{subject_id}.tar"'
    return Stream(parts, media_type=TAR, headers={"Content-Disposition": name})


def _export(
    gateway: Gateway, kind: ArchiveKind, task: TaskView, experiments: Sequence[ExperimentView]
) -> Stream:
    running = [
        experiment
        for experiment in experiments
        if experiment.state not in FINISHED_EXPERIMENT_STATES
    ]
    if running:
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"expected finished experiments, found one that is {running[0].state.value}",
        )
    subject_id = task.task_id if kind is ArchiveKind.TASK else experiments[0].experiment_id
    manifest = Manifest(
        format=FORMAT,
        kind=kind,
        subject_id=subject_id,
        exported_at=utcnow(),
        exported_by=f"GPU Steward {importlib.metadata.version('gpusteward')}",
        files={},
    )
    return _stream(subject_id, _parts(gateway, manifest, task, experiments))


async def _parts(
    gateway: Gateway, manifest: Manifest, task: TaskView, experiments: Sequence[ExperimentView]
) -> AsyncIterator[bytes]:
    """The tar file. What cannot be asked for any more leaves it without its manifest."""
    writer = ArchiveWriter()
    yield writer.add(TASK, _plain(task))
    for experiment in experiments:
        folder = f"experiments/{experiment.ordinal:04}"
        async for path, content in _files(gateway, experiment):
            yield writer.add(f"{folder}/{path}", content)
    yield writer.end(manifest)


async def _files(gateway: Gateway, view: ExperimentView) -> AsyncIterator[tuple[str, bytes]]:
    query = GetSummary(experiment_id=view.experiment_id)
    measured = view.state is ExperimentState.SUCCEEDED
    summary = await or_none(gateway.bus.query(query, SummaryView)) if measured else None
    yield EXPERIMENT, _plain(experiment_detail(view, summary, None, levels=True))
    if summary is None:
        return
    yield "measured.json", _plain(msgspec.structs.replace(summary, benchmark={}))
    for level in range(len(summary.benchmark.get("levels", ()))):
        of_level = GetRequests(experiment_id=view.experiment_id, level=level)
        requests = await or_none(gateway.bus.query(of_level, RequestsView))
        if requests is not None:
            yield f"requests-{level:03}.json", _plain(requests)
    number = 0
    async for part in _samples(gateway, view.experiment_id):
        number += 1
        yield f"samples/part-{number:03}.parquet", part
    engine = await _engine_samples(gateway, view.experiment_id)
    if engine is not None:
        yield "engine.parquet", engine


async def _samples(gateway: Gateway, experiment_id: UUID) -> AsyncIterator[bytes]:
    file = ParquetFile(SAMPLE_COLUMNS)
    async for page in _pages(gateway, ListSamples(experiment_id=experiment_id), SampleList):
        if page.device:
            file.add(_columns(page))
        if file.rows >= PART_ROWS or page.next_cursor is None:
            yield file.content()
            file = ParquetFile(SAMPLE_COLUMNS)


async def _engine_samples(gateway: Gateway, experiment_id: UUID) -> bytes | None:
    """Return the experiment's engine samples; None if its engine has no metrics."""
    file = ParquetFile(ENGINE_COLUMNS)
    query = ListEngineSamples(experiment_id=experiment_id)
    async for page in _pages(gateway, query, EngineSampleList):
        if page.sequence:
            columns = {name: getattr(page, name) for name in ENGINE_COLUMNS if hasattr(page, name)}
            file.add({**columns, "observed_at": page.observed_at_us})
    return file.content() if file.rows else None


async def _pages(
    gateway: Gateway, query: ListSamples | ListEngineSamples, view: type[L]
) -> AsyncIterator[L]:
    """Yield the pages of samples; at least one."""
    while True:
        page = await gateway.bus.query(query, view, timeout_seconds=PAGE_SECONDS)
        yield page
        if page.next_cursor is None:
            return
        query = msgspec.structs.replace(query, cursor=page.next_cursor)


def _columns(page: SampleList) -> dict[str, Sequence[object]]:
    devices = [page.devices[number] for number in page.device]
    columns = {name: getattr(page, name) for name in SAMPLE_COLUMNS if hasattr(page, name)}
    return {
        **columns,
        "observed_at": page.observed_at_us,
        "node_id": [device.node_id for device in devices],
        "device_uuid": [device.uuid for device in devices],
        "device_index": [device.index for device in devices],
        "name": [device.name for device in devices],
    }


def _plain(view: object) -> bytes:
    return document(without_secrets(msgspec.to_builtins(view, str_keys=True)))
