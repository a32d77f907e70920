"""Where GPU time went, and what was in the way."""

import csv
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
import msgspec

from schemas.base import HOUR_US
from schemas.orchestrator.views import ExperimentView, TaskView
from schemas.results.reports import (
    USAGE_ALIASES,
    FailureLine,
    FailuresView,
    GpuTime,
    UsageBy,
    UsageLine,
    UsageView,
    WaitsLine,
    WaitsView,
    WasteView,
    WaterfallView,
)
from schemas.scheduler.reservations import holder_name
from schemas.task.report import TaskReport
from services.cli.completion import complete_ids
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import age, number, print_answer, print_json, table_options
from services.cli.display.tables import memory_text, short
from services.cli.lookup import Sort, find, find_task
from services.cli.options import Target, TimeSpan, namespace_option, reading
from shared.clock import utcnow

if TYPE_CHECKING:
    from shared.client.http import StewardClient


def _add_range_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--last`, `--namespace`, `--csv`, `--json` and the target."""

    @click.option(
        "--last",
        type=TimeSpan(),
        default="7d",
        show_default=True,
        help="Length of the past that counts.",
    )
    @click.option("--csv", "as_csv", is_flag=True, help="Print lines of comma-separated values.")
    @namespace_option
    @reading
    @table_options
    @wraps(command)
    def run(*, last: timedelta, namespace: str | None, as_csv: bool, **options: Any) -> Any:
        end = utcnow()
        query = {"start_at": end - last, "end_at": end, "namespace": namespace}
        return command(query=query, as_csv=as_csv, **options)

    return run


@click.group()
def report() -> None:
    """Report where GPU time went: who held it, what was wasted, who waited, what failed."""


@report.command()
@click.option(
    "--by",
    type=click.Choice([*(by.value for by in UsageBy), *USAGE_ALIASES]),
    default=UsageBy.NAMESPACE.value,
    show_default=True,
    help="Group of each line; user is person, team is namespace.",
)
@_add_range_options
def usage(target: Target, query: dict[str, Any], as_csv: bool, by: str) -> None:
    """GPU hours, energy and cost, against as long a time before."""
    view = target.ask(lambda client: client.usage_report(UsageBy(by), **query))
    _print(target, view, usage_table(view), as_csv=as_csv)
    if not (as_csv or target.as_json):
        click.echo(time_text(view.total, view.gpus))


@report.command()
@_add_range_options
def waste(target: Target, query: dict[str, Any], as_csv: bool) -> None:
    """Reservations and pods that were held and hardly used."""
    view = target.ask(lambda client: client.waste_report(**query))
    _print(target, view, waste_table(view), as_csv=as_csv)


@report.command()
@_add_range_options
def waits(target: Target, query: dict[str, Any], as_csv: bool) -> None:
    """Report how long requests waited for GPUs."""
    view = target.ask(lambda client: client.waits_report(**query))
    _print(target, view, waits_table(view), as_csv=as_csv)
    if not (as_csv or target.as_json):
        for text in chain.from_iterable(map(forecast_lines, view.lines)):
            click.echo(text)


@report.command()
@_add_range_options
def failures(target: Target, query: dict[str, Any], as_csv: bool) -> None:
    """Report why attempts and reservations ended otherwise than planned."""
    view = target.ask(lambda client: client.failures_report(**query))
    _print(target, view, failures_table(view), as_csv=as_csv)


@report.command()
@click.argument("identifier", metavar="TASK", shell_complete=complete_ids)
@reading
def task(target: Target, identifier: str) -> None:
    """Report what a task found out, as Markdown: the best configuration, ready to be used, and
    why.
    """

    async def ask(client: "StewardClient") -> TaskReport | str:
        task = await find_task(client, identifier)
        if target.as_json:
            return await client.task_report(task.task_id)
        return await client.task_report_markdown(task.task_id)

    answer = target.ask(ask)
    if isinstance(answer, str):
        click.echo(answer, nl=False)
    else:
        print_json(answer)


@report.command()
@click.argument("subject", metavar="TASK|EXPERIMENT")
@reading
@table_options
def waterfall(target: Target, subject: str) -> None:
    """Show where the GPU time of a task or an experiment went, step by step."""

    async def ask(client: "StewardClient") -> WaterfallView:
        view = await find(client, subject, Sort.TASK, Sort.EXPERIMENT)
        match view:
            case TaskView():
                return await client.waterfall(view.task_id)
            case ExperimentView():
                return await client.waterfall(view.experiment_id)
        raise TypeError(f"expected a task or an experiment, found {view}")

    view = target.ask(ask)
    print_answer(view, waterfall_table(view), as_json=target.as_json)


def waterfall_table(view: WaterfallView) -> Table:
    cost = f"cost {view.currency}"
    return Table(
        headings=["step", "seconds", "GPU s", cost],
        rows=[
            [step.step, number(step.seconds, 1), number(step.gpu_seconds, 1), number(step.cost, 4)]
            for step in view.steps
        ],
        numeric=frozenset({"seconds", "GPU s", cost}),
    )


def _limit(line: UsageLine) -> str:
    return UNKNOWN if line.gpu_limit is None else f"{line.gpu_limit:g}"


def usage_table(view: UsageView) -> Table:
    """Return a table of usage, with limits only where a namespace has one."""
    limited = any(line.gpu_limit is not None for line in view.lines)
    headings = [
        *(view.by.value, "GPU h", "before", "used h", "idle h", "unknown h"),
        *("energy kWh", f"cost {view.currency}", *(("limit", "of limit %") if limited else ())),
    ]
    return Table(
        headings=headings,
        rows=[
            [
                line.name or UNKNOWN,
                number(line.gpu_hours, 3),
                number(line.previous_gpu_hours, 3),
                number(line.used_hours, 3),
                number(line.idle_hours, 3),
                number(line.unknown_hours, 3),
                number(line.energy_wh / 1000, 3),
                number(line.cost, 2),
                *((_limit(line), number(line.limit_percent, 1)) if limited else ()),
            ]
            for line in view.lines
        ],
        numeric=frozenset(headings[1:]),
        shortened=frozenset({view.by.value}),
    )


def time_text(total: GpuTime, gpus: int) -> str:
    """Return one line on what became of the time of all GPUs."""
    amounts = {
        "used": total.used_us,
        "idle": total.idle_us,
        "free": total.free_us,
        "cordoned": total.cordoned_us,
        "unknown": total.unknown_us,
    }
    fleet_seconds = sum(amounts.values())
    if not fleet_seconds:
        return "nothing is known of any GPU in this time"
    shares = ", ".join(
        f"{100 * part / fleet_seconds:.1f} % {name}" for name, part in amounts.items()
    )
    return f"{fleet_seconds / HOUR_US:.2f} GPU hours of {gpus} GPUs: {shares}"


def waste_table(view: WasteView) -> Table:
    cost = f"idle {view.currency}"
    return Table(
        headings=[
            *("id", "holder", "owner", "GPU h", "idle h", "idle %", "memory %", cost),
            *("because", "namespace"),
        ],
        rows=[
            [
                short(line.reservation_id),
                f"pod {line.pod}" if line.pod else holder_name(line.holder) or UNKNOWN,
                line.owner or UNKNOWN,
                number(line.gpu_hours, 3),
                number(line.idle_hours, 3),
                number(line.idle_percent),
                number(line.memory_percent),
                number(line.cost, 2),
                ", ".join(line.because),
                line.namespace,
            ]
            for line in view.lines
        ],
        numeric=frozenset({"GPU h", "idle h", "idle %", "memory %", cost}),
        shortened=frozenset({"holder", "owner"}),
    )


def waits_table(view: WaitsView) -> Table:
    headings = [
        *("namespace", "requests", "granted", "waiting", "ended"),
        *("p50 s", "p95 s", "longest s"),
    ]
    return Table(
        headings=headings,
        rows=[
            [
                line.namespace,
                str(line.requests),
                str(line.granted),
                str(line.waiting),
                str(line.ended),
                number(line.p50_seconds, 1),
                number(line.p95_seconds, 1),
                number(line.longest_seconds, 1),
            ]
            for line in view.lines
        ],
        numeric=frozenset(headings[1:]),
    )


def forecast_lines(line: WaitsLine) -> list[str]:
    """Return how wrong expected starts and durations were; empty if there were none."""
    forecasts = (
        (line.forecast, "starts", line.start_off_p50_seconds, line.start_off_p90_seconds, 90),
        (
            line.expected,
            "durations",
            line.expected_off_p50_seconds,
            line.expected_off_p95_seconds,
            95,
        ),
    )
    return [
        f"{line.namespace}: expected {what} were off by {number(p50, 1)} s (p50),"
        f" {number(high, 1)} s (p{rank}), of {count}"
        for count, what, p50, high, rank in forecasts
        if count
    ]


def failures_table(view: FailuresView) -> Table:
    def message(line: FailureLine) -> str:
        return "; ".join((line.message, *map(memory_text, line.memory)))

    return Table(
        headings=["of", "reason", "count", "last", "message"],
        rows=[
            [line.of, line.reason, str(line.count), age(line.last_at), message(line)]
            for line in view.lines
        ],
        numeric=frozenset({"count"}),
        wrapped=frozenset({"message"}),
    )


def _print(
    target: Target,
    view: UsageView | WasteView | WaitsView | FailuresView,
    table: Table,
    *,
    as_csv: bool,
) -> None:
    if as_csv and target.as_json:
        raise click.UsageError("--csv and --json exclude each other")
    if as_csv:
        print_csv(view.lines)
    elif view.lines or target.as_json:
        print_answer(view, table, as_json=target.as_json)
    else:
        click.echo("nothing to report in this time")


def print_csv(lines: Sequence[msgspec.Struct]) -> None:
    """The fields of the API's lines; what is unknown is empty."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for number_of, line in enumerate(lines):
        fields = msgspec.to_builtins(line)
        if number_of == 0:
            writer.writerow(fields)
        writer.writerow(
            ";".join(map(_part, value)) if isinstance(value, list | tuple) else _plain(value)
            for value in fields.values()
        )


def _part(value: str | dict[str, Any]) -> str:
    if isinstance(value, str):
        return value
    return " ".join(f"{name}={item}" for name, item in value.items())


def _plain(value: Any) -> Any:
    """A spreadsheet takes a text that begins so for a formula."""
    return (
        f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value
    )
