"""`logs`: what the engine of an experiment wrote, and goes on writing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

import click
import msgspec

from schemas.errors import ErrorCode
from schemas.executor.logs import MAX_LINES, AttemptLogged, LogChunk
from schemas.orchestrator.experiments import FINISHED_EXPERIMENT_STATES
from schemas.orchestrator.views import AttemptView, ExperimentView
from services.cli.display.output import print_json
from services.cli.display.slow_reader import say
from services.cli.failures import CommandFailed
from services.cli.lookup import Sort, find
from services.cli.options import Target, reading
from shared.client.errors import ApiError
from shared.errors import StewardError
from shared.waiting import cancel_and_wait, within

if TYPE_CHECKING:
    from shared.client.http import StewardClient

RETRY_SECONDS: Final = 30.0
READ_SECONDS: Final = 10.0  # in case the newest lines were lost on their way
RECONNECT_SECONDS: Final = 1.0
MESSAGES_WAITING: Final = 64

# Lines as they are written; None when the log or the experiment has to be read.
News = asyncio.Queue[AttemptLogged | None]
Show = Callable[[LogChunk], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LogRequest:
    """What of which log is to be shown; no attempt means the newest."""

    attempt: int | None
    lines: int
    from_beginning: bool
    follow: bool


@click.command()
@click.argument("identifier", metavar="EXPERIMENT")
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of the attempt [default: the newest].",
)
@click.option(
    "--lines",
    type=click.IntRange(1, MAX_LINES),
    default=200,
    show_default=True,
    metavar="N",
    help="Number of last lines.",
)
@click.option("--all", "from_beginning", is_flag=True, help="Print the whole log that is kept.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the attempt ends.")
@reading
def logs(
    target: Target,
    identifier: str,
    attempt: int | None,
    lines: int,
    from_beginning: bool,
    follow: bool,
) -> None:
    """Print what the engine of an EXPERIMENT wrote.

    EXPERIMENT is TASK#3 for a task's third one, the task's name if only one of it goes on, a whole
    id, or its beginning or end if only one has it.
    """
    log_request = LogRequest(attempt, lines, from_beginning, follow)
    show = _printing(as_json=target.as_json, as_stream=follow or from_beginning)

    async def ask(client: "StewardClient") -> None:
        view = await find(client, identifier, Sort.EXPERIMENT)
        if isinstance(view, ExperimentView):
            await show_log(client, view, log_request, show)

    target.ask(ask, retry_seconds=RETRY_SECONDS if follow else 0.0)


async def show_log(
    client: "StewardClient", experiment: ExperimentView, log_request: LogRequest, show: Show
) -> None:
    """Show what is wanted, piece by piece; every kept line once and in order.

    Lines received live are checked against what was shown; those that were missed are read.
    """
    if not log_request.follow:
        first = await _first(client, experiment.experiment_id, log_request.attempt, log_request)
        reader = _Reader(client, experiment.experiment_id, log_request.attempt, show)
        await reader.take(first)
        if log_request.from_beginning:
            await reader.catch_up()
        return
    # Subscribed before anything is read, so that nothing falls in between.
    async with _subscribe(client, experiment.experiment_id) as news:
        number, first = await _until_there(client, experiment, log_request, news)
        reader = _Reader(client, experiment.experiment_id, number, show)
        await reader.take(first)
        await reader.follow(news, first.attempt_id)


@dataclass(slots=True)
class _Reader:
    """How far one attempt's log has been shown."""

    client: "StewardClient"
    experiment_id: UUID
    attempt: int | None
    show: Show
    offset: int = 0
    is_complete: bool = False

    async def take(self, chunk: LogChunk) -> None:
        self.offset = chunk.next_offset
        self.is_complete = chunk.is_complete
        await self.show(chunk)

    async def catch_up(self) -> None:
        """Show all that is written by now."""
        while not self.is_complete:
            offset_before = self.offset
            chunk = await self.client.experiment_log(
                self.experiment_id, attempt=self.attempt, offset=offset_before, lines=MAX_LINES
            )
            await self.take(chunk)
            if self.offset == offset_before:
                return

    async def follow(self, news: News, attempt_id: UUID) -> None:
        """Show what is written until the attempt has ended."""
        loop = asyncio.get_running_loop()
        read_at = loop.time() + READ_SECONDS
        while not self.is_complete:
            message = await _next(news, read_at - loop.time())
            if message is None:
                await self.catch_up()
                read_at = loop.time() + READ_SECONDS
            elif message.attempt_id == attempt_id and message.next_offset > self.offset:
                if message.offset == self.offset:
                    await self.take(_chunk_of(message))
                else:
                    await self.catch_up()


def _printing(*, as_json: bool, as_stream: bool) -> Show:
    """Lines to stdout, with what is missing on stderr; or the API's answers, one a line."""

    async def show(chunk: LogChunk) -> None:
        if as_json and not as_stream:
            print_json(chunk)
        elif as_json:
            if chunk.lines or chunk.skipped_bytes or chunk.is_complete:
                await say(msgspec.json.encode(chunk).decode())
        else:
            if chunk.skipped_bytes:
                await say(f"({chunk.skipped_bytes} bytes are not kept)", err=True)
            if chunk.lines:
                await say("\n".join(chunk.lines))

    return show


async def _until_there(
    client: "StewardClient", experiment: ExperimentView, log_request: LogRequest, news: News
) -> tuple[int, LogChunk]:
    """The number of the attempt that is meant and what it wrote, once there is something."""
    is_announced = False
    while True:
        attempt = _chosen(experiment, log_request.attempt)
        is_over = experiment.state in FINISHED_EXPERIMENT_STATES
        if attempt is not None:
            number = attempt.attempt_number
            try:
                return number, await _first(client, experiment.experiment_id, number, log_request)
            except ApiError as error:
                # Granted, and its executor does not know of it yet.
                is_over = is_over or attempt.outcome is not None
                if is_over or error.code is not ErrorCode.NOT_FOUND:
                    raise
        elif is_over:
            which = (
                "no attempt" if log_request.attempt is None else f"no attempt {log_request.attempt}"
            )
            raise CommandFailed(
                ErrorCode.NOT_FOUND,
                f"experiment {experiment.experiment_id} {experiment.state.value} with {which}",
            )
        if not is_announced:
            await say(f"the experiment is {experiment.state.value}; nothing runs yet", err=True)
            is_announced = True
        await _next(news, READ_SECONDS)
        experiment = await client.experiment(experiment.experiment_id)


def _chosen(experiment: ExperimentView, number: int | None) -> AttemptView | None:
    numbered = [
        attempt for attempt in experiment.attempts if number in {None, attempt.attempt_number}
    ]
    return numbered[-1] if numbered else None


async def _first(
    client: "StewardClient", experiment_id: UUID, attempt: int | None, log_request: LogRequest
) -> LogChunk:
    if log_request.from_beginning:
        return await client.experiment_log(
            experiment_id, attempt=attempt, offset=0, lines=MAX_LINES
        )
    return await client.experiment_log(experiment_id, attempt=attempt, lines=log_request.lines)


@asynccontextmanager
async def _subscribe(client: "StewardClient", experiment_id: UUID) -> AsyncIterator[News]:
    """Lines and events of the experiment; None also where a lost connection is there again."""
    news: News = asyncio.Queue(MESSAGES_WAITING)
    first_tries = (asyncio.Event(), asyncio.Event())

    async def read_lines(was_tried: asyncio.Event) -> None:
        async with client.log_lines(experiment_id) as messages:
            await on_connected(was_tried)
            async for message in messages:
                await news.put(message)

    async def read_events(was_tried: asyncio.Event) -> None:
        async with client.events(experiment_id=experiment_id) as events:
            await on_connected(was_tried)
            async for _ in events:
                await news.put(None)

    async def on_connected(was_tried: asyncio.Event) -> None:
        if was_tried.is_set():
            await news.put(None)
        was_tried.set()

    async def repeat(
        read: Callable[[asyncio.Event], Awaitable[None]], was_tried: asyncio.Event
    ) -> None:
        while True:
            with suppress(StewardError):
                await read(was_tried)
            was_tried.set()
            await asyncio.sleep(RECONNECT_SECONDS)

    readers = [
        asyncio.create_task(repeat(read, was_tried))
        for read, was_tried in zip((read_lines, read_events), first_tries, strict=True)
    ]
    try:
        for was_tried in first_tries:
            await was_tried.wait()
        yield news
    finally:
        await cancel_and_wait(*readers)


async def _next(news: News, within_seconds: float) -> AttemptLogged | None:
    """Return the next lines of the log; None also if none come in time."""
    try:
        async with within(within_seconds):
            return await news.get()
    except TimeoutError:
        return None


def _chunk_of(message: AttemptLogged) -> LogChunk:
    return LogChunk(
        attempt_id=message.attempt_id,
        offset=message.offset,
        next_offset=message.next_offset,
        lines=message.lines,
    )
