"""Files that tasks make their load of: uploaded here, fetched by executors over the bus."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from litestar import Request, Response
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, PathParameter, QueryParameter
from msgspec.structs import replace

from schemas.base import LINE_FORM, LINE_PATTERN, NAME_FORM, NAME_PATTERN
from schemas.errors import Accepted, ErrorCode
from schemas.gateway import endpoints
from schemas.gateway.datasets import DatasetKind, DatasetList, DatasetView
from schemas.orchestrator.uploads import ListUploadUses, UploadUse, UploadUses
from schemas.task.dataset import DatasetFormat, DatasetSpec
from schemas.task.task_file import TaskFile
from schemas.task.trace import TraceSpec
from services.gateway.context import Gateway
from services.gateway.ledger.datasets import DatasetPlace
from services.gateway.ledger.imports import on_disk
from services.gateway.routes.common import (
    CHANGE_PROBLEMS,
    Caller,
    Cursor,
    InNamespace,
    PageSize,
    TheGateway,
    route,
)
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.ids import new_id
from shared.load_files.inspector import inspect_file
from shared.messaging.paging import page_of, place_at

NamedDataset = Annotated[str, PathParameter(pattern=NAME_PATTERN, description=NAME_FORM)]
NewName = Annotated[str, QueryParameter(pattern=NAME_PATTERN, description=NAME_FORM)]
FileName = Annotated[
    str | None, QueryParameter(pattern=LINE_PATTERN, description=LINE_FORM, max_length=255)
]


@route(
    endpoints.ADD_DATASET,
    responses={
        **CHANGE_PROBLEMS,
        201: ResponseSpec(DatasetView, generate_examples=False, description="It is here now"),
    },
    request_max_body_size=None,  # access control applies that of the settings
)
async def add_dataset(
    request: Request[Any, Any, Any],
    gateway: TheGateway,
    identity: Caller,
    name: NewName,
    file_name: FileName = None,
    namespace: InNamespace = None,
) -> Response[DatasetView]:
    """Keep a dataset or a trace under a name; the body is the file as it is.

    The answer says what it holds. A name that is there means the new file from now on; tasks that
    were submitted go on with the one that they were given. `file_name` has the ending that tells
    CSV and plain text.
    """
    namespace = identity.namespace_for(namespace)
    size = request.headers.get("content-length", "")
    await gateway.datasets.require_room(namespace, int(size) if size.isdecimal() else 0)
    digest = hashlib.sha256()
    size_bytes = 0

    async def stream_with_hash() -> AsyncIterator[bytes]:
        nonlocal size_bytes
        async for chunk in request.stream():
            digest.update(chunk)
            size_bytes += len(chunk)
            yield chunk

    async with on_disk(stream_with_hash()) as file:
        await asyncio.to_thread(file.seek, 0)
        view = DatasetView(
            namespace=namespace,
            name=name,
            sha256=digest.hexdigest(),
            size_bytes=size_bytes,
            contents=await inspect_file(file, file_name or name),
            added_by=identity.name or identity.requester,
            added_at=utcnow(),
        )
        used_sha256 = {use.sha256 for use in await _uses(gateway, namespace)}
        view = await gateway.datasets.add(view, file, used_sha256)
    location = endpoints.GET_DATASET.address(dataset_name=name)
    return Response(view, status_code=201, headers={"Location": location})


@route(endpoints.LIST_DATASETS)
async def list_datasets(
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
    limit: PageSize = 100,
    cursor: Cursor = None,
) -> DatasetList:
    """A namespace's uploaded files by name, and how much room it has for more."""
    namespace = identity.namespace_to_read(namespace)
    datasets = gateway.datasets
    views = await datasets.list_datasets(namespace, place_at(cursor, DatasetPlace), limit + 1)
    placed = [(view, DatasetPlace(view.namespace, view.name)) for view in views]
    page, more = page_of(placed, limit, over_bus=False)
    return DatasetList(
        datasets=page,
        next_cursor=more,
        max_bytes=datasets.max_bytes,
        used_bytes=await datasets.count_bytes(namespace),
        quota_bytes=datasets.quota_bytes,
    )


@route(endpoints.GET_DATASET)
async def get_dataset(
    dataset_name: NamedDataset, gateway: TheGateway, identity: Caller, namespace: InNamespace = None
) -> DatasetView:
    """Return what an uploaded file holds, and which unfinished tasks name it."""
    namespace = identity.namespace_to_read(namespace) or identity.namespace
    view = await gateway.datasets.get(namespace, dataset_name)
    return replace(view, used_by=await _tasks_with(gateway, namespace, dataset_name))


@route(endpoints.REMOVE_DATASET)
async def remove_dataset(
    dataset_name: NamedDataset,
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
    force: FromQuery[bool] = False,
) -> Accepted:
    """Forget an uploaded file. One that unfinished tasks name is refused unless with `force`: their
    experiments that have not fetched it yet fail then.
    """
    namespace = identity.namespace_for(namespace)
    await gateway.datasets.get(namespace, dataset_name)
    tasks = () if force else await _tasks_with(gateway, namespace, dataset_name)
    if tasks:
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"unfinished tasks use dataset {dataset_name}: {', '.join(tasks)}; their experiments"
            " would fail without it. Cancel them first, or remove it with force",
        )
    await gateway.datasets.remove(namespace, dataset_name)
    return Accepted(command_id=new_id())


async def resolve_uploads(gateway: Gateway, task: TaskFile, namespace: str) -> TaskFile:
    """Return the task with the SHA-256 of the uploaded files that it names. Raises RefusedError for
    a name that its namespace does not have.
    """
    benchmark = task.benchmark
    dataset, trace = benchmark.dataset, benchmark.trace
    if dataset is not None and dataset.upload is not None:
        view = await _find(gateway, namespace, dataset, DatasetKind.DATASET)
        is_auto = dataset.format is DatasetFormat.AUTO
        # Its name here does not tell the format, as that of a file does.
        read_as = view.contents.format if is_auto else dataset.format
        dataset = replace(dataset, sha256=view.sha256, format=read_as)
    if trace is not None and trace.upload is not None:
        view = await _find(gateway, namespace, trace, DatasetKind.TRACE)
        trace = replace(trace, sha256=view.sha256)
    return replace(task, benchmark=replace(benchmark, dataset=dataset, trace=trace))


async def _find(
    gateway: Gateway, namespace: str, source: DatasetSpec | TraceSpec, kind: DatasetKind
) -> DatasetView:
    path = f"$.benchmark.{kind.value}.upload"
    name = source.upload or ""
    try:
        view = await gateway.datasets.get(namespace, name, source.sha256)
    except RefusedError as error:
        raise RefusedError(ErrorCode.BAD_REQUEST, error.message, path=path) from error
    if view.contents.kind is not kind:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a {kind.value}, {name} is a {view.contents.kind.value}: name it at"
            f" benchmark.{view.contents.kind.value}.upload",
            path=path,
        )
    return view


async def _uses(gateway: Gateway, namespace: str) -> tuple[UploadUse, ...]:
    return (await gateway.bus.query(ListUploadUses(namespace=namespace), UploadUses)).uses


async def _tasks_with(gateway: Gateway, namespace: str, name: str) -> tuple[str, ...]:
    """Return the unfinished tasks that use what a name means, or meant."""
    uses = await _uses(gateway, namespace)
    return tuple(task for use in uses if use.upload == name for task in use.tasks)
