"""What the engine of an experiment wrote, asked from the executor that keeps it."""

from typing import Annotated
from uuid import UUID

from litestar.params import FromPath, QueryParameter

from schemas.errors import ErrorCode
from schemas.executor.logs import MAX_LINES, LogChunk, ReadLog
from schemas.gateway import endpoints
from schemas.orchestrator.views import AttemptView, ExperimentView
from services.gateway.routes.common import Caller, TheGateway, route, whole_number
from shared.errors import NodeUnavailableError, RefusedError


@route(endpoints.READ_LOG)
async def read_log(
    experiment_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    attempt: Annotated[
        int | None,
        whole_number(1, "An attempt's number; the newest if not given."),
    ] = None,
    offset: Annotated[
        int | None,
        whole_number(0, "Bytes of the log to pass over; its last lines without."),
    ] = None,
    lines: Annotated[int, QueryParameter(ge=1, le=MAX_LINES)] = 200,
) -> LogChunk:
    """Read what an attempt's engine wrote: the last lines, or those from a byte offset on.

    `next_offset` is where to read on, `skipped_bytes` how much before `offset` is no longer kept,
    `is_complete` says that nothing follows. Very many or long lines come in several answers.
    """
    view = await gateway.experiment(experiment_id, identity)
    source = chosen_attempt(view, attempt)
    if source.executor_id is None:
        raise RefusedError(ErrorCode.NOT_FOUND, "this attempt has not been given to a node yet")
    query = ReadLog(
        executor_id=source.executor_id,
        attempt_id=source.attempt_id,
        offset=offset,
        max_lines=lines,
    )
    try:
        return await gateway.bus.query(query, LogChunk)
    except NodeUnavailableError as error:
        raise NodeUnavailableError(
            f"the executor of node {source.executor_id}, which keeps this log, does not answer"
        ) from error


def chosen_attempt(view: ExperimentView, number: int | None) -> AttemptView:
    """The attempt of that number, the newest without. Raises RefusedError if there is none."""
    if number is None and view.attempts:
        return view.attempts[-1]
    for attempt in view.attempts:
        if attempt.attempt_number == number:
            return attempt
    numbers = ", ".join(str(attempt.attempt_number) for attempt in view.attempts) or "none"
    raise RefusedError(
        ErrorCode.NOT_FOUND,
        f"expected an attempt that was started, of experiment {view.experiment_id} there are:"
        f" {numbers}; the experiment is {view.state.value}",
        path="query.attempt",
    )
