"""Following a task to its end, shown as it happens."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final
from uuid import UUID

import click

from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.orchestrator.views import ExperimentView, TaskView
from services.cli.display.output import settings_text
from services.cli.display.slow_reader import say, say_printed
from services.cli.display.task_outcome import outcome_lines, spending_text
from services.cli.display.task_progress import TaskProgress, all_succeeded, gpu_line
from services.cli.display.task_results import print_results
from services.cli.interruption import interrupts
from shared.client.errors import ApiError
from shared.client.http import StewardClient
from shared.errors import StewardError
from shared.waiting import cancel_and_wait, wait_for

POSITIONS_SECONDS: Final = 2.0  # they change by what others do, of which no event comes
RECONNECT_SECONDS: Final = 0.5
REDRAW_SECONDS: Final = 0.25
POSITIONS_SHOWN: Final = 4
SUMMARY_TIMEOUT_SECONDS: Final = 15.0
INTERRUPTED_EXIT_CODE: Final = 130


async def follow_to_end(client: StewardClient, task_id: UUID) -> int:
    """Show the task until it is over, then its results; return the exit code.

    SIGINT and SIGTERM cancel the task and wait for its end; a second one leaves at once.
    """
    progress = TaskProgress()
    changed = asyncio.Event()
    async with interrupts() as interrupted, _subscribe(client, task_id, progress, changed):
        canceller = asyncio.create_task(_cancel_when(interrupted, client, task_id))
        try:
            with _display(progress) as show:
                await _until_finished(client, task_id, progress, changed, show)
        finally:
            await cancel_and_wait(canceller)
        experiments = await _with_summaries(client, task_id, changed)
    succeeded = await _print_end(progress, experiments, client.address.url)
    is_cancelled = progress.task is not None and progress.task.state is TaskState.CANCELLED
    if is_cancelled and interrupted.is_set():
        return INTERRUPTED_EXIT_CODE
    return 0 if succeeded else 1


async def watch_to_end(client: StewardClient, task_id: UUID) -> int:
    """Show the task until it is over, then its results; return the exit code. Changes nothing."""
    progress = TaskProgress()
    changed = asyncio.Event()
    async with _subscribe(client, task_id, progress, changed):
        with _display(progress) as show:
            await _until_finished(client, task_id, progress, changed, show)
        experiments = await _with_summaries(client, task_id, changed)
    return 0 if await _print_end(progress, experiments, client.address.url) else 1


async def _print_end(
    progress: TaskProgress, experiments: tuple[ExperimentView, ...], url: str
) -> bool:
    """Print the outcome; return whether everything succeeded."""
    task = progress.task
    if task is None:
        raise RuntimeError("the task was not read")
    await say_printed(lambda: print_outcome(task, experiments, url))
    return task.state is not TaskState.CANCELLED and all_succeeded(experiments)


def print_outcome(task: TaskView, experiments: tuple[ExperimentView, ...], url: str) -> None:
    """Print one sentence about the task, then its tables, its best and what to do next."""
    succeeded = sum(experiment.state is ExperimentState.SUCCEEDED for experiment in experiments)
    click.echo(
        f"task {task.task_name} {task.state.value}: {succeeded} of {len(experiments)}"
        f" experiments succeeded{f' ({task.reason})' if task.reason else ''}\n"
    )
    print_results(experiments, task.objective, task.trust)
    click.echo()
    for line in outcome_lines(task, experiments, url):
        click.echo(line)


async def _until_finished(
    client: StewardClient,
    task_id: UUID,
    progress: TaskProgress,
    changed: asyncio.Event,
    show: Callable[[], Awaitable[None]],
) -> None:
    loop = asyncio.get_running_loop()
    positions_at = 0.0
    while True:
        has_changed = changed.is_set()
        if has_changed:
            changed.clear()
            # The task first: experiments read after its end are then as final as it is.
            progress.task = await client.task(task_id)
            progress.experiments = await client.experiments(task_id, monitoring=False)
        if has_changed or loop.time() >= positions_at:
            progress.positions = await _queue_positions(client, progress.experiments)
            positions_at = loop.time() + POSITIONS_SECONDS
        await show()
        if progress.is_finished:
            return
        await wait_for(changed, REDRAW_SECONDS)


async def _queue_positions(
    client: StewardClient, experiments: Sequence[ExperimentView]
) -> dict[UUID, int]:
    waiting = [e for e in experiments if e.state is ExperimentState.WAITING]
    positions: dict[UUID, int] = {}
    for experiment in waiting[:POSITIONS_SHOWN]:
        if experiment.reservation_id is None:
            continue
        with suppress(ApiError):
            reservation = await client.reservation(experiment.reservation_id)
            if reservation.queue_position is not None:
                positions[experiment.experiment_id] = reservation.queue_position
    return positions


async def _with_summaries(
    client: StewardClient, task_id: UUID, changed: asyncio.Event
) -> tuple[ExperimentView, ...]:
    """The experiments once every success is joined to its GPU samples, a little after its end."""
    deadline = asyncio.get_running_loop().time() + SUMMARY_TIMEOUT_SECONDS
    while True:
        changed.clear()
        views = await client.experiments(task_id)
        is_complete = all(
            view.gpu_monitoring is not None
            for view in views
            if view.state is ExperimentState.SUCCEEDED
        )
        left_seconds = deadline - asyncio.get_running_loop().time()
        if is_complete or not await wait_for(changed, left_seconds):
            return views


@asynccontextmanager
async def _subscribe(
    client: StewardClient, task_id: UUID, progress: TaskProgress, changed: asyncio.Event
) -> AsyncIterator[None]:
    """`changed` is set by each event of the task, and whenever one may have been missed."""

    async def read_events() -> None:
        async with client.events(task_id=task_id) as events:
            changed.set()
            async for _ in events:
                changed.set()

    async def read_metrics() -> None:
        async with client.metrics(task_id=task_id) as frames:
            async for frame in frames:
                progress.note(frame)

    async def repeat(read: Callable[[], Awaitable[None]]) -> None:
        while True:
            with suppress(StewardError):
                await read()
            # Reading the task then shows whether the platform answers at all.
            changed.set()
            await asyncio.sleep(RECONNECT_SECONDS)

    readers = [asyncio.create_task(repeat(read)) for read in (read_events, read_metrics)]
    try:
        yield
    finally:
        await cancel_and_wait(*readers)


async def _cancel_when(interrupted: asyncio.Event, client: StewardClient, task_id: UUID) -> None:
    await interrupted.wait()
    notice = say("cancelling the task; press Ctrl-C again to leave at once", err=True)
    with suppress(StewardError):
        await asyncio.gather(notice, client.cancel_task(task_id, "interrupted by its user"))


@contextmanager
def _display(progress: TaskProgress) -> Iterator[Callable[[], Awaitable[None]]]:
    """Yield a function to call after each change: it redraws a terminal, and prints news
    elsewhere.
    """
    if not sys.stdout.isatty():

        async def print_news() -> None:
            for line in progress.news():
                await say(line)

        yield print_news
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, transient=True) as live:

        async def redraw() -> None:
            live.update(_picture(progress), refresh=True)

        yield redraw


def _picture(progress: TaskProgress) -> Any:
    """A line for each experiment, with a bar and its GPUs while it runs, and one for the task."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for experiment in progress.experiments:
        grid.add_row(
            Text(f"{experiment.ordinal}/{len(progress.experiments)}"),
            Text(settings_text(experiment.parameters)),
            Text(progress.status_of(experiment)),
            ProgressBar(total=1.0, completed=progress.fraction_of(experiment), width=24),
        )
        for gpu in progress.gpus_of(experiment):
            style = "magenta" if gpu.simulated else "cyan"
            grid.add_row(Text(""), Text(gpu_line(gpu), style=style))
    name = progress.task.task_name if progress.task is not None else ""
    spending = progress.spending
    so_far = "" if spending is None else f", {spending_text(spending, is_over=False)}"
    title = Text(f"{name}: {progress.fraction:.0%}{so_far}", style="bold")
    return Group(grid, title)
