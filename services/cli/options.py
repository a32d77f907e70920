"""Options that commands share, and how a command asks the platform."""

import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from schemas.base import TOKEN_PATTERN
from schemas.gateway.tokens import Role
from services.cli.completion import complete_nodes
from shared.client.discovery import TOKEN_VARIABLE, URL_VARIABLE, Address, find_address, is_named
from shared.paths import DataDirectory, default_data_dir

if TYPE_CHECKING:
    from shared.client.http import StewardClient

SPAN_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
MAX_SPAN: Final = timedelta(days=36_500)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """Which platform is meant, and whether answers are printed as JSON."""

    url: str | None
    token: str | None
    data_dir: Path | None
    as_json: bool = False

    def address(self) -> Address:
        """Raises PlatformUnreachable if no platform is known."""
        return find_address(self.url, token=self.token, data_dir=self.data_dir)

    @property
    def is_explicit(self) -> bool:
        """True if --url or GPUSTEWARD_URL names a platform, so that no other is meant."""
        return is_named(self.url, self.data_dir)

    def at(self, api_url: str) -> Address:
        """The platform of our data directory, with the token that it left there for us."""
        token = self.token or self.directory.read_admin_token()
        return Address(api_url, token, ca=self.directory.find_authority())

    @property
    def directory(self) -> DataDirectory:
        return DataDirectory((self.data_dir or default_data_dir()).resolve())

    def ask(
        self,
        question: Callable[["StewardClient"], Awaitable[T]],
        *,
        retry_seconds: float = 0.0,
    ) -> T:
        """Run `question` with a client of the platform."""
        address = self.address()
        from services.cli import interruption
        from shared.client.http import StewardClient

        async def run() -> T:
            async with StewardClient(address, retry_seconds=retry_seconds) as client:
                return await question(client)

        return interruption.run(run())


def confirm(question: str) -> None:
    """Ask on the terminal; any answer but yes ends the command here.

    Raises UsageError without a terminal.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on: add --yes.")
    click.confirm(question, abort=True)


def _or_before(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Return the option's value from behind the command, else from before it."""
    key = f"gpusteward.before.{option.name}"
    if context.parent is None:
        context.meta[key] = value
    return context.meta.get(key) if value is None else value


url_option = click.option(
    "--url",
    metavar="URL",
    callback=_or_before,
    help=f"API of the platform [env: {URL_VARIABLE}].",
)
token_option = click.option(
    "--token",
    metavar="TOKEN",
    callback=_or_before,
    help=f"Token to show it [env: {TOKEN_VARIABLE}].",
)
data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    callback=_or_before,
    help="Data directory of the platform [env: GPUSTEWARD_DATA_DIR].",
)


insecure_option = click.option(
    "--insecure-plaintext",
    "is_insecure",
    is_flag=True,
    envvar="GPUSTEWARD_INSECURE_PLAINTEXT",
    show_envvar=True,
    help="Speak without TLS beyond this machine: everybody on the way reads passwords and data.",
)


def with_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--url`, `--token` and `--data-dir`; the command gets `target`."""

    @url_option
    @token_option
    @data_dir_option
    @wraps(command)
    def run(
        *args: Any,
        url: str | None,
        token: str | None,
        data_dir: Path | None,
        as_json: bool = False,
        **options: Any,
    ) -> Any:
        target = Target(url=url, token=token, data_dir=data_dir, as_json=as_json)
        return command(*args, target=target, **options)

    return run


def reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """`with_target`, and `--json`."""
    option = click.option("--json", "as_json", is_flag=True, help="Print the API's answer.")
    return option(with_target(command))


class Choices(click.ParamType[tuple[StrEnum, ...]]):
    """Some values of an enumeration, with commas between them."""

    name = "choices"

    def __init__(self, choices: type[StrEnum]) -> None:
        self.choices = choices

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[StrEnum, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(self.choices(part.strip()) for part in value.split(","))
        except ValueError:
            self.fail(f"expected some of {', '.join(self.choices)}; found {value!r}", param, ctx)


class TimeSpan(click.ParamType[timedelta]):
    """So many minutes, hours, days or weeks, a century at most."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"([1-9]\d{0,7})([mhdw])", value, re.ASCII)
        span = timedelta(**{SPAN_UNITS[match[2]]: int(match[1])}) if match else None
        if span is None or span > MAX_SPAN:
            self.fail(f"expected 45m, 24h, 7d or 4w for example; found {value!r}", param, ctx)
        return span


def node_name(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
    """Node ids as they were typed. Raises BadParameter for what can be none."""
    for name in value if isinstance(value, tuple) else (value,):
        if name is not None and not re.fullmatch(TOKEN_PATTERN, name):
            raise click.BadParameter(
                f"expected a node's id, of letters, digits, - and _, got {name!r};"
                " `gpusteward nodes` lists them"
            )
    return value


def nats_addresses(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
    """Check an option that says where NATS servers are; raises click.BadParameter."""
    from shared.nats_addresses import read_nats_addresses

    try:
        if value is not None:
            read_nats_addresses(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


def state_option(choices: type[StrEnum]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--state`; the command gets `states`, empty for all."""
    return click.option(
        "--state",
        "states",
        type=Choices(choices),
        default=(),
        metavar="A,B",
        help=f"Only those in these states: {', '.join(choices)}.",
    )


SUBMITTER_HELP: Final = "viewer reads, submitter also changes what is of its namespace"
ROLE_HELP: Final = f"{SUBMITTER_HELP}, owner also sets who may there, and how much."
# What an owner has more than a submitter is the gateway's.
BUS_ROLES: Final = (Role.VIEWER, Role.SUBMITTER, Role.ADMIN)


def role_options(role: Role) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--role` of the bus, this one by default, and the `--namespace` in which it holds."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        roles = click.option(
            "--role",
            type=click.Choice([role.value for role in BUS_ROLES]),
            default=role.value,
            show_default=True,
            help=f"{SUBMITTER_HELP}.",
        )
        place = click.option("--namespace", metavar="NAME", default="default", show_default=True)
        return roles(place(command))

    return add


namespace_option = click.option("--namespace", metavar="NAME", help="Only those of this namespace.")
node_option = click.option(
    "--node",
    "node_id",
    metavar="ID",
    callback=node_name,
    shell_complete=complete_nodes,
    help="Limit to this node.",
)
kubeconfig_option = click.option(
    "--kubeconfig",
    envvar="GPUSTEWARD_KUBECONFIG",
    help="Kubeconfig of the cluster and the login [default: as kubectl].",
)
context_option = click.option(
    "--context", help="Context of the kubeconfig [default: the current one]."
)
