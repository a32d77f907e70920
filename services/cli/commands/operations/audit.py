"""`audit`: who changed what, who signed in, and who was refused."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click
from typing_extensions import override

from schemas.base import MAX_PAGE
from schemas.gateway.tokens import AuditKind
from services.cli.display.audit_table import audit_table
from services.cli.display.output import print_list, table_options
from services.cli.options import Target, TimeSpan, reading, with_target
from shared.clock import utcnow

if TYPE_CHECKING:
    from shared.client.http import StewardClient


class Moment(click.ParamType[datetime]):
    """A time in UTC, or so long before now."""

    name = "time"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return utcnow() - TimeSpan().convert(value, param, ctx)
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


MOMENT: Final = Moment()


@click.group(invoke_without_command=True)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=100,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in AuditKind]),
    help="Only changes, sign-ins, or refused sign-ins.",
)
@reading
@table_options
@click.pass_context
def audit(context: click.Context, target: Target, limit: int, kind: str | None) -> None:
    """Show who changed what over the API, who signed in and who was refused, newest first.

    For admins.
    """
    if context.invoked_subcommand is not None:
        return
    chosen_kind = AuditKind(kind) if kind is not None else None
    log = target.ask(lambda client: client.changes(limit=limit, kind=chosen_kind))
    print_list(log, audit_table(log.entries), "nothing was changed yet", as_json=target.as_json)


@audit.command("export")
@click.option(
    "--since", "start_at", type=MOMENT, help="From when: 2026-11-01, 30d [default: the beginning]."
)
@click.option("--until", "end_at", type=MOMENT, help="Before when [default: now].")
@click.option(
    "--to",
    "file",
    type=click.File("wb", lazy=True),
    metavar="FILE",
    help="Where to [default: standard output].",
)
@with_target
def export_log(
    target: Target, start_at: datetime | None, end_at: datetime | None, file: BinaryIO | None
) -> None:
    """Write the log as JSON, an entry a line, oldest first; as much as there is. For admins."""
    write: Callable[[bytes], object] = (file or sys.stdout.buffer).write

    async def ask(client: "StewardClient") -> None:
        async for piece in client.export_changes(start_at, end_at):
            write(piece)

    target.ask(ask)
