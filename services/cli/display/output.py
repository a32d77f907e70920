"""What is printed: tables for people, plain text for pipes, JSON for programs."""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any, Final

import click
import msgspec

from services.cli.display.columns import (
    GAP,
    UNKNOWN,
    Table,
    cell_lines,
    fit,
    heading_lines,
    list_hidden_headings,
    needs_notes,
)
from shared.clock import utcnow

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
    "cordoned": "yellow",
    "unavailable": "yellow",
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
    "not applicable": "bright_black",
}
WIDE: Final = "gpusteward.wide"
COLUMNS: Final = "gpusteward.columns"

Style = Callable[[str, str | None], str]


def _remember(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def remember(context: click.Context, _option: click.Parameter, value: Any) -> None:
        context.meta[key] = value

    return remember


wide_option = click.option(
    "--wide",
    is_flag=True,
    expose_value=False,
    callback=_remember(WIDE),
    help="Every column in full, as in a pipe.",
)
_columns_option = click.option(
    "--columns",
    metavar="A,B,C",
    expose_value=False,
    callback=_remember(COLUMNS),
    help="These columns, by the beginnings of their headings.",
)


def print_json(value: Any) -> None:
    """The API's shape, indented."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--wide` and `--columns` to a command that prints one table."""
    return wide_option(_columns_option(command))


def print_table(table: Table) -> None:
    """Aligned text; on a terminal with colours, and the columns that it has room for."""
    context = click.get_current_context(silent=True)
    options = context.meta if context is not None else {}
    if names := options.get(COLUMNS):
        table = _only(table, names)
    if not sys.stdout.isatty():
        click.echo(plain_text(table))
        return
    is_full = names or options.get(WIDE)
    width = None if is_full else shutil.get_terminal_size().columns
    click.echo(plain_text(table, width, style=_style))
    columns = fit(table, width)
    if needs_notes(table, columns):
        for line in table.notes:
            click.echo(textwrap.fill(line, width or len(line), subsequent_indent="  "))
    if hidden := list_hidden_headings(table, columns):
        how = "; --wide shows everything" if WIDE in options else ""
        note = f"no room for {', '.join(hidden)} in {width} columns{how}"
        click.echo(textwrap.fill(note, width or len(note)))


def _only(table: Table, names: str) -> Table:
    try:
        return table.only(names.split(","))
    except KeyError as error:
        raise click.BadParameter(
            f"expected some of {', '.join(table.headings)}, or the beginning of one, found"
            f" {error.args[0]!r}",
            param_hint="'--columns'",
        ) from error


def _style(text: str, cell: str | None) -> str:
    """Padded text in the colour of the cell that it shows; None for a heading."""
    if "NO_COLOR" in os.environ:
        return text
    return (
        click.style(text, fg=STYLES.get(cell)) if cell is not None else click.style(text, bold=True)
    )


def print_answer(answer: object, table: Table, *, as_json: bool) -> None:
    """The API's answer as JSON, or as the table made of it."""
    if as_json:
        print_json(answer)
    else:
        print_table(table)


def print_list(answer: object, table: Table, if_empty: str, *, as_json: bool) -> None:
    """The API's answer as JSON, else the table made of it, or this sentence where it has no row."""
    if as_json or table.rows:
        print_answer(answer, table, as_json=as_json)
    else:
        click.echo(if_empty)


def _leave_plain(text: str, _cell: str | None) -> str:
    return text


def plain_text(table: Table, width: int | None = None, style: Style = _leave_plain) -> str:
    """Columns two spaces apart; with a width those that `fit` into it."""
    columns = fit(table, width)
    headings = [table.headings[column.number] for column in columns]

    def lines(cells: Iterable[list[str]], texts: Sequence[str | None]) -> Iterator[str]:
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [
                part.rjust(column.width) if heading in table.numeric else part.ljust(column.width)
                for part, column, heading in zip(parts, columns, headings, strict=True)
            ]
            while len(padded) > 1 and not padded[-1].strip():
                padded.pop()
            padded[-1] = padded[-1].rstrip()
            yield (" " * GAP).join(map(style, padded, texts))

    text = [table.title] if table.title else []
    text += lines(
        (heading_lines(h, column.width) for h, column in zip(headings, columns, strict=True)),
        [None] * len(columns),
    )
    for row in table.rows:
        texts = [row[column.number] for column in columns]
        text += lines(
            (
                cell_lines(table, heading, cell, column.width)
                for heading, cell, column in zip(headings, texts, columns, strict=True)
            ),
            texts,
        )
    return "\n".join(text)


def number(value: float | None, digits: int = 0) -> str:
    """`-` for what is unknown."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def count_text(count: int, noun: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def first_of(texts: Sequence[str], most: int) -> str:
    """Return that many of them, and how many more there are: `a, b and 3 more`."""
    rest_count = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest_count} more" if rest_count > 0 else "")


def span(low: float | None, mean: float | None, high: float | None, digits: int = 0) -> str:
    """`min/mean/max`."""
    return "/".join(number(value, digits) for value in (low, mean, high))


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """Say how long ago a moment was, in the largest unit that fits."""
    if moment is None:
        return UNKNOWN
    return _span_text(((now or utcnow()) - moment).total_seconds())


def until(moment: datetime, now: datetime | None = None) -> str:
    """Say how long it is until a moment, in the largest unit that fits."""
    return _span_text((moment - (now or utcnow())).total_seconds())


def _span_text(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def settings_text(parameters: dict[str, Any], only: Iterable[str] | None = None) -> str:
    """`threads=2 parallel=1`, in the order of the grid."""
    shown_parameters = (
        parameters if only is None else {k: parameters[k] for k in only if k in parameters}
    )
    return " ".join(f"{name}={value}" for name, value in shown_parameters.items()) or UNKNOWN
