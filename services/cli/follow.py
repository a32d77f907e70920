"""Following a task to its end, shown as it happens."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final
from uuid import UUID

import click

from schemas.orchestrator import ExperimentState, ExperimentView, TaskState, TaskView
from services.cli.output import settings_text
from services.cli.progress import TaskProgress, all_succeeded, gpu_line
from services.cli.results import print_results
from shared.client.errors import ApiError
from shared.client.http import StewardClient
from shared.errors import StewardError

REFRESH_SECONDS: Final = 2.0  # in case an event was missed
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
    with _interrupts() as interrupted:
        async with _listening(client, task_id, progress, changed):
            canceller = asyncio.create_task(_cancel_when(interrupted, client, task_id))
            try:
                with _display(progress) as show:
                    await _until_finished(client, task_id, progress, changed, show)
            finally:
                canceller.cancel()
                await asyncio.gather(canceller, return_exceptions=True)
        experiments = await _with_summaries(client, task_id)
    task = progress.task
    if task is None:
        raise RuntimeError("the task was not read")
    print_outcome(task, experiments)
    if task.state is TaskState.CANCELLED:
        return INTERRUPTED_EXIT_CODE if interrupted.is_set() else 1
    return 0 if all_succeeded(experiments) else 1


def print_outcome(task: TaskView, experiments: tuple[ExperimentView, ...]) -> None:
    """One sentence about the task, then its tables."""
    succeeded = sum(each.state is ExperimentState.SUCCEEDED for each in experiments)
    click.echo(
        f"task {task.task_name} {task.state.value}: {succeeded} of {len(experiments)}"
        f" experiments succeeded{f' ({task.reason})' if task.reason else ''}\n"
    )
    print_results(experiments, task.objective)
    best = [each for each in experiments if each.experiment_id == task.best_experiment_id]
    for each in best:
        click.echo(f"\nbest: experiment {each.ordinal}, {settings_text(each.parameters)}")


async def _until_finished(
    client: StewardClient,
    task_id: UUID,
    progress: TaskProgress,
    changed: asyncio.Event,
    show: Callable[[], None],
) -> None:
    loop = asyncio.get_running_loop()
    refresh_at = 0.0
    while True:
        if changed.is_set() or loop.time() >= refresh_at:
            changed.clear()
            await _refresh(client, task_id, progress)
            refresh_at = loop.time() + REFRESH_SECONDS
        show()
        if progress.is_finished:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(REDRAW_SECONDS):
                await changed.wait()


async def _refresh(client: StewardClient, task_id: UUID, progress: TaskProgress) -> None:
    # The task first: experiments read after its end are then as final as it is.
    progress.task = await client.task(task_id)
    progress.experiments = await client.experiments(task_id, monitoring=False)
    waiting = [e for e in progress.experiments if e.state is ExperimentState.WAITING]
    positions: dict[UUID, int] = {}
    for each in waiting[:POSITIONS_SHOWN]:
        if each.reservation_id is None:
            continue
        with suppress(ApiError):
            reservation = await client.reservation(each.reservation_id)
            if reservation.queue_position is not None:
                positions[each.experiment_id] = reservation.queue_position
    progress.positions = positions


async def _with_summaries(client: StewardClient, task_id: UUID) -> tuple[ExperimentView, ...]:
    """The experiments once every success is joined to its GPU samples, a little after its end."""
    deadline = asyncio.get_running_loop().time() + SUMMARY_TIMEOUT_SECONDS
    while True:
        views = await client.experiments(task_id)
        missing = [
            each
            for each in views
            if each.state is ExperimentState.SUCCEEDED and each.gpu_monitoring is None
        ]
        if not missing or asyncio.get_running_loop().time() >= deadline:
            return views
        await asyncio.sleep(RECONNECT_SECONDS)


@asynccontextmanager
async def _listening(
    client: StewardClient, task_id: UUID, progress: TaskProgress, changed: asyncio.Event
) -> AsyncIterator[None]:
    async def read_events() -> None:
        async with client.events() as events:
            changed.set()
            async for event in events:
                if str(task_id) in str(event.event) or "reservation" in event.type:
                    changed.set()

    async def read_metrics() -> None:
        async with client.metrics() as frames:
            async for frame in frames:
                progress.note(frame)

    listeners = [
        asyncio.create_task(_again_and_again(read)) for read in (read_events, read_metrics)
    ]
    try:
        yield
    finally:
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)


async def _again_and_again(read: Callable[[], Awaitable[None]]) -> None:
    while True:
        with suppress(StewardError):
            await read()
        await asyncio.sleep(RECONNECT_SECONDS)


@contextmanager
def _interrupts() -> Iterator[asyncio.Event]:
    """Set by the first SIGINT or SIGTERM; the second one ends this command as ever."""
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    handled = (signal.SIGINT, signal.SIGTERM)
    task = asyncio.current_task()

    def on_signal() -> None:
        if interrupted.is_set() and task is not None:
            task.cancel()
        interrupted.set()

    for each in handled:
        loop.add_signal_handler(each, on_signal)
    try:
        yield interrupted
    finally:
        for each in handled:
            loop.remove_signal_handler(each)


async def _cancel_when(interrupted: asyncio.Event, client: StewardClient, task_id: UUID) -> None:
    await interrupted.wait()
    click.echo("cancelling the task; press Ctrl-C again to leave at once", err=True)
    with suppress(StewardError):
        await client.cancel_task(task_id, "interrupted by its user")


@contextmanager
def _display(progress: TaskProgress) -> Iterator[Callable[[], None]]:
    """What to call after each change: redraws on a terminal, prints news elsewhere."""
    if not sys.stdout.isatty():

        def print_news() -> None:
            for line in progress.news():
                click.echo(line)

        yield print_news
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda: live.update(_picture(progress), refresh=True)


def _picture(progress: TaskProgress) -> Any:
    """A line for each experiment, with a bar and its GPUs while it runs, and one for the task."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for each in progress.experiments:
        grid.add_row(
            Text(f"{each.ordinal}/{len(progress.experiments)}"),
            Text(settings_text(each.parameters)),
            Text(progress.status_of(each)),
            ProgressBar(total=1.0, completed=progress.fraction_of(each), width=24),
        )
        for gpu in progress.gpus_of(each):
            style = "magenta" if gpu.simulated else "cyan"
            grid.add_row(Text(""), Text(gpu_line(gpu), style=style))
    name = progress.task.task_name if progress.task is not None else ""
    whole = Text(f"{name}: {progress.fraction:.0%}", style="bold")
    return Group(grid, whole)
