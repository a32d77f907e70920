"""`secret`: values that engines get as environment, by name."""

import sys
from collections.abc import Sequence
from typing import BinaryIO, Final

import click

from schemas.errors import ErrorCode
from schemas.orchestrator.secrets import MAX_SECRET_BYTES, SecretView
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import age, count_text, print_list, table_options
from services.cli.failures import CommandFailed
from services.cli.options import Target, confirm, reading, with_target

in_namespace: Final = click.option(
    "--namespace", metavar="NAME", help="Namespace of the secret [default: the token's]."
)


@click.group()
def secret() -> None:
    """Secrets of a namespace, which its tasks' engines get as variables by name (`secrets`)."""


@secret.command("set")
@click.argument("name", metavar="NAME")
@click.option(
    "--from-file",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="File with the value [default: standard input].",
)
@in_namespace
@with_target
def set_value(target: Target, name: str, file: BinaryIO | None, namespace: str | None) -> None:
    """Keep a value under NAME, in place of the one before. It is not shown again.

    The value is read from standard input or a file, never from an argument, which others on this
    host see. NAME is the variable that engines get: HF_TOKEN, AWS_SECRET_ACCESS_KEY. One newline at
    the value's end is left out.
    """
    view = target.ask(
        lambda client: client.set_secret(name, _read_value(name, file), namespace=namespace)
    )
    click.echo(f"secret {view.name} of namespace {view.namespace} is set, revision {view.revision}")
    if view.used_by:
        click.echo(f"engines that start from now on get it: tasks {', '.join(view.used_by)}")


@secret.command("list")
@in_namespace
@reading
@table_options
def list_secrets(target: Target, namespace: str | None) -> None:
    """List secrets: who set them, when, and which unfinished tasks name them."""
    secrets = target.ask(lambda client: client.secrets(namespace))
    none = "there is no secret here yet; `gpusteward secret set NAME` sets one"
    print_list({"secrets": secrets}, secrets_table(secrets), none, as_json=target.as_json)


@secret.command()
@click.argument("name", metavar="NAME")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@in_namespace
@with_target
def remove(target: Target, name: str, yes: bool, namespace: str | None) -> None:
    """Forget a secret. Engines that run keep it; tasks that name it start nothing more."""
    if not yes:
        confirm(f"Remove secret {name}?")
    target.ask(lambda client: client.remove_secret(name, namespace=namespace))
    click.echo(f"secret {name} removed")


@secret.command("rotate-key")
@with_target
def rotate_key(target: Target) -> None:
    """Encrypt every secret with a new key of the platform's. For admins.

    Where the key's file is yours (GPUSTEWARD_ORCHESTRATOR_SECRETS_KEY_FILE), put a new key before
    the others first, of `gpusteward secret make-key`; the old ones may go afterwards.
    """
    count = target.ask(lambda client: client.rotate_secret_key())
    click.echo(f"encrypted with the new key: {count_text(count, 'secret')}")


@secret.command("make-key")
def make_key() -> None:
    """Print a new key for the file of keys. Nothing is changed."""
    from shared.local_platform.secrets_key import make_key as new_key

    click.echo(new_key())


def secrets_table(secrets: Sequence[SecretView]) -> Table:
    """Return a table with a row for each secret."""
    headings = ["secret", "namespace", "revision", "set by", "age", "used by"]
    rows = [
        [
            view.name,
            view.namespace,
            str(view.revision),
            view.set_by or UNKNOWN,
            age(view.set_at),
            ", ".join(view.used_by) or UNKNOWN,
        ]
        for view in secrets
    ]
    return Table(
        headings,
        rows,
        numeric=frozenset({"revision", "age"}),
        important=headings[:5],
        wrapped=frozenset({"used by"}),
    )


def _read_value(name: str, file: BinaryIO | None) -> str:
    """Return the value. Raises CommandFailed, without it, for one that no variable can hold."""
    if file is None:
        if sys.stdin.isatty():
            return str(click.prompt(f"value of {name}", hide_input=True, err=True))
        file = sys.stdin.buffer
    content = file.read(MAX_SECRET_BYTES + 2)
    content = content.removesuffix(b"\n").removesuffix(b"\r")
    if not 1 <= len(content) <= MAX_SECRET_BYTES:
        size_text = "none" if not content else "more"
        raise CommandFailed(
            ErrorCode.BAD_REQUEST,
            f"expected a value of 1 to {MAX_SECRET_BYTES} bytes from standard input or --from-file,"
            f" found {size_text}",
        )
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise CommandFailed(
            ErrorCode.BAD_REQUEST,
            "expected a value in UTF-8, found other bytes: encode it, such as by `base64`",
        ) from None
