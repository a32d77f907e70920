"""What the engine of an experiment wrote, asked from the executor that keeps it."""

from typing import Annotated, Final
from uuid import UUID

from litestar.params import FromPath, QueryParameter

from schemas.errors import ErrorCode
from schemas.executor.logs import LogChunk, ReadLog
from schemas.orchestrator.views import AttemptView, ExperimentView
from services.gateway.routes.common import Caller, TheGateway, get, whole_number
from shared.errors import NodeUnavailableError, RefusedError

MOST_LINES: Final = 10_000


@get("/experiments/{experiment_id:str}/logs")
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
    lines: Annotated[int, QueryParameter(ge=1, le=MOST_LINES)] = 200,
) -> LogChunk:
    """What an attempt's engine wrote: the last lines, or those from a byte offset on.

    `next_offset` is where to read on, `skipped_bytes` how much before `offset` is not kept any
    more, `is_complete` says that nothing follows. Very many or long lines come in several answers.
    """
    view = await gateway.experiment(experiment_id, identity)
    wanted = chosen_attempt(view, attempt)
    if wanted.executor_id is None:
        raise RefusedError(ErrorCode.NOT_FOUND, "this attempt has not been given to a node yet")
    query = ReadLog(
        executor_id=wanted.executor_id, attempt_id=wanted.attempt_id, offset=offset, max_lines=lines
    )
    try:
        return await gateway.bus.query(query, LogChunk)
    except NodeUnavailableError as error:
        raise NodeUnavailableError(
            f"the executor of node {wanted.executor_id}, which keeps this log, does not answer"
        ) from error


def chosen_attempt(view: ExperimentView, number: int | None) -> AttemptView:
    """The attempt of that number, the newest without. Raises RefusedError if there is none."""
    if number is None and view.attempts:
        return view.attempts[-1]
    for attempt in view.attempts:
        if attempt.attempt_number == number:
            return attempt
    known = ", ".join(str(attempt.attempt_number) for attempt in view.attempts) or "none"
    raise RefusedError(
        ErrorCode.NOT_FOUND,
        f"expected an attempt that was started, of experiment {view.experiment_id} there are:"
        f" {known}; the experiment is {view.state.value}",
        path="query.attempt",
    )
