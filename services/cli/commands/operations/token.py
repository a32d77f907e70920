"""Tokens of the API."""

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click
import msgspec

from schemas.errors import ErrorCode
from schemas.gateway.tokens import Role, TokenRequest, TokenView
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import age, print_list, table_options, until
from services.cli.display.tables import short
from services.cli.failures import CommandFailed
from services.cli.options import ROLE_HELP, Target, TimeSpan, reading, with_target
from shared.client.errors import PlatformUnreachable
from shared.clock import utcnow
from shared.paths import DataDirectory
from shared.settings import SettingsError

if TYPE_CHECKING:
    from shared.client.http import StewardClient

MIN_ID_CHARACTERS: Final = 6  # of an id


@click.group()
def token() -> None:
    """Tokens, which the API asks for where other machines reach it.

    An admin makes and sees all, an owner of a namespace those of it, everybody their own.
    """


@token.command()
@click.option("--name", metavar="NAME", help="Name of the token [default: its role].")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.ADMIN.value,
    show_default=True,
    help=ROLE_HELP,
)
@click.option(
    "--namespace",
    "namespaces",
    metavar="NAME",
    multiple=True,
    help="Namespace in which it may change things; repeatable [default: default].",
)
@click.option(
    "--expires",
    "expires_in",
    metavar="TIME",
    type=TimeSpan(),
    help="Expiry from now: 45m, 12h, 30d [default: never].",
)
@click.option(
    "--rate",
    "requests_per_second",
    type=float,
    metavar="NUMBER",
    help="Maximum requests per second [default: the gateway's setting].",
)
@click.option(
    "--personal",
    is_flag=True,
    help="Have it act as you, who signed in at the provider, and end with you.",
)
@with_target
def create(
    target: Target,
    name: str | None,
    role: str,
    namespaces: tuple[str, ...],
    expires_in: timedelta | None,
    requests_per_second: float | None,
    personal: bool,
) -> None:
    """Make a token and print it, this once.

    It counts from now on. Where no platform runs, or GPUSTEWARD_GATEWAY_TOKENS_FILE is set, its
    hash goes into the file of tokens, tokens.json in the data directory or the one so named, which
    a platform reads at its start.
    """
    if not _has_platform(target):
        if name or expires_in or requests_per_second or personal or len(namespaces) > 1:
            raise click.UsageError(
                "the file of tokens knows a role and one namespace alone: start the platform for"
                " a token with a name, an end or a rate"
            )
        _create_in_file(target.directory, Role(role), namespaces[0] if namespaces else "default")
        return
    fields = {
        "name": name or role,
        "role": role,
        "namespaces": namespaces or ("default",),
        "expires_in_seconds": expires_in.total_seconds() if expires_in else None,
        "requests_per_second": requests_per_second,
        "personal": personal,
    }
    try:
        request = msgspec.convert(fields, TokenRequest)
    except msgspec.ValidationError as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, str(error)) from error
    made = target.ask(lambda client: client.create_token(request))
    click.echo(made.secret)
    click.echo(
        "This token is not shown again. Give it to clients as GPUSTEWARD_TOKEN or --token;"
        f" `gpusteward token revoke {short(made.token.token_id)}` ends it.",
        err=True,
    )


def _has_platform(target: Target) -> bool:
    """Return whether to ask a platform; a named file goes before one that only happens to run
    here.
    """
    from shared.local_platform.tokens import TOKENS_FILE_VARIABLE

    if target.url is None and os.environ.get(TOKENS_FILE_VARIABLE):
        return False
    try:
        target.address()
    except PlatformUnreachable:
        return False
    return True


def _create_in_file(directory: DataDirectory, role: Role, namespace: str) -> None:
    from shared.local_platform.tokens import create_token, tokens_path

    directory.prepare()
    path = tokens_path(directory, os.environ)
    try:
        made = create_token(path, role, namespace)
    except (SettingsError, msgspec.ValidationError) as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, str(error)) from error
    click.echo(made)
    click.echo(
        f"This token is not shown again; {path} has its hash, and a platform reads it at its next"
        " start. Give it to clients as GPUSTEWARD_TOKEN or --token.",
        err=True,
    )


@token.command(name="list")
@click.option("--mine", is_flag=True, help="Only your own.")
@reading
@table_options
def list_tokens(target: Target, mine: bool) -> None:
    """Show tokens, newest first, also those that count no more."""
    tokens = target.ask(lambda client: client.tokens(mine=mine))
    rows = [
        [
            short(token.token_id),
            token.name,
            token.role.value,
            ",".join(token.namespaces),
            _state(token),
            until(token.expires_at) if token.expires_at else UNKNOWN,
            age(token.last_used_at),
            age(token.created_at),
            token.created_by,
        ]
        for token in tokens
    ]
    headings = ["id", "name", "role", "namespaces", "state", "ends in", "used", "age", "made by"]
    table = Table(
        headings,
        rows,
        numeric=frozenset({"ends in", "used", "age"}),
        important=("name", "role", "state", "namespaces", "used"),
        shortened=frozenset({"name", "namespaces"}),
    )
    none = "there is no token yet; `gpusteward token create` makes one"
    print_list(tokens, table, none, as_json=target.as_json)


@token.command()
@click.argument("token_name", metavar="ID")
@with_target
def revoke(target: Target, token_name: str) -> None:
    """Have a token count no more, from now on and for good.

    ID is a token's, its end, or its name.
    """

    async def ask(client: "StewardClient") -> TokenView:
        tokens = await client.tokens()
        matches = [token for token in tokens if token.name == token_name and not token.revoked_at]
        if len(token_name) >= MIN_ID_CHARACTERS:
            matches += [
                token for token in tokens if str(token.token_id).endswith(token_name.lower())
            ]
        if len(matches) != 1:
            how = f"{len(matches)} tokens are" if matches else "no token is"
            code = ErrorCode.CONFLICT if matches else ErrorCode.NOT_FOUND
            raise CommandFailed(
                code, f"{how} called {token_name}; `gpusteward token list` shows them"
            )
        return await client.revoke_token(matches[0].token_id)

    view = target.ask(ask)
    click.echo(f"token {short(view.token_id)} ({view.name}) counts no more")


def _state(view: TokenView) -> str:
    if view.revoked_at is not None:
        return "revoked"
    is_over = view.expires_at is not None and view.expires_at <= utcnow()
    return "expired" if is_over else "ok"
