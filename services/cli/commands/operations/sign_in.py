"""Signing in to platforms, and which of them is meant."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from schemas.errors import ErrorCode
from schemas.gateway.sign_in import DeviceAnswerState, DeviceCode
from schemas.gateway.tokens import Me, Role
from services.cli.display.columns import Table
from services.cli.display.output import print_json, print_list, table_options
from services.cli.failures import CommandFailed
from services.cli.options import Target, with_target
from shared.client.account import account_name
from shared.client.contexts import Context, Contexts
from shared.client.discovery import Address, base_url, find_authority
from shared.clock import utcnow
from shared.errors import StewardError
from shared.paths import config_directory

if TYPE_CHECKING:
    from shared.client.http import StewardClient

MAX_CLIENT_CHARACTERS: Final = 128
ANSWER_SECONDS: Final = 2.0


@click.command()
@click.argument("platform", metavar="[URL]", required=False)
@click.option(
    "--token-file",
    type=click.File(),
    metavar="FILE",
    help="Sign in with a token of the platform, from this file or, with -, standard input.",
)
@click.option("--context", "name", metavar="NAME", help="Name of the context [default: the host].")
@click.option("--no-browser", is_flag=True, help="Open no browser; print the address alone.")
@with_target
def login(
    target: Target,
    platform: str | None,
    token_file: TextIO | None,
    name: str | None,
    no_browser: bool,
) -> None:
    """Sign in to the platform at URL, and have commands mean it from then on.

    Where the platform has an OpenID provider, this prints an address and a code, and waits until
    somebody has confirmed the code there. The token goes into the system's keyring where there is
    one and gpusteward[keyring] is installed, else into a file that its user alone reads.

    Without URL it prints an address that opens the web page logged in, once, for ten minutes, for
    the token that this command shows; who opens it may do what that token may.
    """
    from services.cli import interruption

    if platform is None:
        if token_file is not None or name is not None or no_browser:
            raise click.UsageError("expected the URL of a platform beside these options")
        from services.cli.local_platform.login_address import login_lines

        click.echo(interruption.run(login_lines(target.address()))[0])
        return
    base = base_url(platform)
    token = token_file.read().strip() if token_file is not None else None
    if token == "":
        raise click.UsageError("expected a token in the file, found none")
    is_session = token is None
    if token is None:
        token = interruption.run(_sign_in(base, opens_browser=not no_browser))
    me = interruption.run(_me(Address(base, token)))
    contexts = _contexts()
    authority = find_authority()
    ca = str(Path(authority).resolve()) if authority is not None else None
    context = contexts.store(name, base, token, person=me.name, is_session=is_session, ca=ca)
    place = "the keyring" if context.in_keyring else str(contexts.path)
    click.echo(f"signed in to {base} as {_describe(me)}")
    click.echo(f"context {context.name} is the current one; its token is in {place}", err=True)


async def _me(address: Address) -> Me:
    from shared.client.http import StewardClient

    async with StewardClient(address) as client:
        return await client.me()


async def _sign_in(url: str, *, opens_browser: bool) -> str:
    """Return the session's token, once somebody has confirmed the code. Raises CommandFailed."""
    from shared.client.http import StewardClient

    async with StewardClient(Address(url)) as client:
        offer = await client.sign_in_offer()
        if offer.provider is None or not offer.has_device_flow:
            lack = f"no sign-in by code ({offer.provider})" if offer.provider else "no provider"
            raise CommandFailed(
                ErrorCode.UNSUPPORTED,
                f"{url} has {lack} to sign in at: give a token of the platform,"
                f" `gpusteward login {url} --token-file -`",
            )
        code = await client.start_device_sign_in(_client_name())
        minutes = (code.ends_at - utcnow()).total_seconds() / 60
        click.echo(
            f"Open {code.verification_url} and enter the code {code.user_code}"
            f" within {minutes:.0f} minutes.",
            err=True,
        )
        if code.complete_url:
            click.echo(f"Or open, with the code in it: {code.complete_url}", err=True)
        if opens_browser:
            _open_browser(code.complete_url or code.verification_url)
        return await _wait(client, code)


async def _wait(client: "StewardClient", code: DeviceCode) -> str:
    """Ask until the code was confirmed or has ended. Raises CommandFailed."""
    import asyncio

    from rich.console import Console

    with Console(stderr=True).status("waiting") as status:
        interval_seconds = code.interval_seconds
        # The last question is answered while the code still counts.
        while (seconds := (code.ends_at - utcnow()).total_seconds()) > max(
            interval_seconds, ANSWER_SECONDS
        ):
            status.update(f"waiting for the code to be confirmed, {seconds:.0f} s left")
            await asyncio.sleep(interval_seconds)
            answer = await client.device_answer(code.code)
            interval_seconds = answer.interval_seconds
            if answer.state is DeviceAnswerState.SIGNED_IN and answer.secret is not None:
                return answer.secret
    raise CommandFailed(
        ErrorCode.TIMEOUT,
        f"nobody confirmed the code {code.user_code} in time; `gpusteward login URL` asks for a"
        " new one",
    )


def _open_browser(url: str) -> None:
    """Open a browser where one has a screen; one in the terminal would be in the way."""
    has_screen = sys.platform == "darwin" or any(
        os.environ.get(variable) for variable in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if has_screen:
        webbrowser.open(url)


def _client_name() -> str:
    """Return what the session is called among the person's tokens."""
    import socket

    text = f"{account_name()}.{socket.gethostname()}"
    kept = "".join(entry if entry.isascii() and entry.isalnum() else "-" for entry in text)
    return kept[:MAX_CLIENT_CHARACTERS].strip("-") or "command-line"


def _describe(me: Me) -> str:
    name = me.name or "a token"
    if me.role is Role.ADMIN:
        return f"{name}, admin"
    roles = ", ".join(f"{me.roles.get(entry, me.role)} of {entry}" for entry in me.namespaces)
    return f"{name}, {roles}"


@click.command()
@click.option("--context", "name", metavar="NAME", help="Context [default: the current one].")
def logout(name: str | None) -> None:
    """Sign out of a platform: end the session there, and forget its token here."""
    contexts = _contexts()
    context = contexts.find(name) if name else contexts.current()
    if context is None:
        raise CommandFailed(
            ErrorCode.NOT_FOUND, "no context is the current one; `gpusteward context list`"
        )
    if not context.is_signed_in:
        click.echo(f"nobody is signed in to {context.url}")
        return
    trouble = _end_session(contexts, context) if context.is_session else None
    contexts.forget_token(context.name)
    click.echo(f"signed out of {context.url}; context {context.name} stays without a token")
    if trouble is not None:
        click.echo(f"the session there ends by itself, it was not told: {trouble}", err=True)


def _end_session(contexts: Contexts, context: Context) -> StewardError | None:
    """Have the platform end the session; return why it did not."""
    from services.cli import interruption
    from shared.client.http import StewardClient

    async def end() -> None:
        address = Address(context.url, contexts.token_of(context), ca=context.ca)
        async with StewardClient(address) as client:
            await client.sign_out()

    try:
        interruption.run(end())
    except StewardError as error:
        return error
    return None


@click.group()
def context() -> None:
    """The platforms that you have signed in to.

    --url and --token, or GPUSTEWARD_URL and GPUSTEWARD_TOKEN, go before the current context, and so
    does a data directory that is named.
    """


@context.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, without the tokens.")
@table_options
def list_contexts(as_json: bool) -> None:
    """List the platforms, and which one commands mean."""
    contexts = _contexts()
    current = contexts.current()
    rows: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "url": entry.url,
            "person": entry.person,
            "is_current": current is not None and entry.name == current.name,
            "token": ("keyring" if entry.in_keyring else "file") if entry.is_signed_in else None,
        }
        for entry in contexts.list_contexts()
    ]
    if as_json:
        print_json(rows)
        return
    headings = ["current", "name", "url", "signed in as", "token"]
    table = Table(
        headings,
        [
            [
                "*" if row["is_current"] else "",
                row["name"],
                row["url"],
                row["person"] if row["token"] else "",
                row["token"] or "none",
            ]
            for row in rows
        ],
    )
    print_list(rows, table, "there is none yet; `gpusteward login URL` makes one", as_json=False)


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Have commands mean this platform."""
    click.echo(f"commands mean {_contexts().use(name).url} from now on")


@context.command()
@click.argument("name")
def remove(name: str) -> None:
    """Forget a platform and its token. The session there stays: `gpusteward logout` ends it."""
    _contexts().remove(name)
    click.echo(f"context {name} is removed")


def _contexts() -> Contexts:
    return Contexts(config_directory())
