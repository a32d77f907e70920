"""What is printed: tables for people, plain text for pipes, JSON for programs."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec

UNKNOWN: Final = "-"
STYLES: Final = {
    "succeeded": "green",
    "completed": "green",
    "free": "green",
    "granted": "green",
    "active": "green",
    "running": "cyan",
    "starting": "cyan",
    "held": "cyan",
    "waiting": "yellow",
    "queued": "yellow",
    "quarantined": "yellow",
    "simulated": "magenta",
    "failed": "red",
    "rejected": "red",
    "lost": "red",
    "expired": "red",
    "timed_out": "red",
    "ok": "green",
    "warn": "yellow",
    "missing": "yellow",
    "error": "red",
    "not applicable": "dim",
}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; `numeric` names the headings aligned to the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    numeric: frozenset[str] = frozenset()


def print_json(value: Any) -> None:
    """The API's shape, indented."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def print_table(table: Table) -> None:
    """With rules and colours on a terminal, aligned text elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False).print(rich_table(table))
    else:
        click.echo(plain_text(table))


def print_answer(answer: object, table: Table, *, as_json: bool) -> None:
    """The API's answer as JSON, or as the table made of it."""
    if as_json:
        print_json(answer)
    else:
        print_table(table)


def plain_text(table: Table) -> str:
    """Columns two spaces apart, nothing but text."""
    lines = [list(table.headings), *(list(row) for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = [heading in table.numeric for heading in table.headings]
    text = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([table.title, *text] if table.title else text)


def rich_table(table: Table) -> Any:
    """The same as a rich renderable."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(title=table.title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in table.headings:
        made.add_column(heading, justify="right" if heading in table.numeric else "left")
    for row in table.rows:
        made.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    return made


def number(value: float | None, digits: int = 0) -> str:
    """`-` for what is unknown."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def span(low: float | None, mean: float | None, high: float | None, digits: int = 0) -> str:
    """`min/mean/max`."""
    return "/".join(number(value, digits) for value in (low, mean, high))


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """How long ago, in the largest unit that fits."""
    if moment is None:
        return UNKNOWN
    return _span_text(((now or datetime.now(UTC)) - moment).total_seconds())


def until(moment: datetime, now: datetime | None = None) -> str:
    """How long still, in the largest unit that fits."""
    return _span_text((moment - (now or datetime.now(UTC))).total_seconds())


def _span_text(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def settings_text(parameters: dict[str, Any], only: Iterable[str] | None = None) -> str:
    """`threads=2 parallel=1`, in the order of the grid."""
    shown = parameters if only is None else {k: parameters[k] for k in only if k in parameters}
    return " ".join(f"{name}={value}" for name, value in shown.items()) or UNKNOWN
