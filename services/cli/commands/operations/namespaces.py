"""What namespaces may hold of the GPUs, and what they hold."""

from typing import TYPE_CHECKING

import click
import msgspec
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.gateway.sign_in import MemberKind, MemberRequest
from schemas.gateway.tokens import Role
from schemas.scheduler.namespaces import NamespaceList, NamespaceUse
from services.cli.display.columns import Table
from services.cli.display.output import age, print_json, print_table, wide_option
from services.cli.failures import CommandFailed
from services.cli.option_types import NumberRange
from services.cli.options import ROLE_HELP, Target, reading, with_target

if TYPE_CHECKING:
    from shared.client.http import StewardClient


@click.group()
def namespace() -> None:
    """Set and list what each namespace may hold, and its members."""


@namespace.command("set")
@click.argument("name", metavar="NAMESPACE")
@click.option(
    "--gpu-limit",
    type=NumberRange(min=0),
    metavar="GPUS",
    help="Maximum number of GPUs held at once; shares count by their size.",
)
@click.option("--no-gpu-limit", is_flag=True, help="Remove the limit.")
@click.option(
    "--guaranteed",
    type=NumberRange(min=0),
    metavar="GPUS",
    help="Guaranteed GPUs; more is borrowed, and may be taken back.",
)
@click.option(
    "--weight",
    type=click.IntRange(1, 1_000),
    help="Fair share relative to a namespace of weight 1, while both wait.",
)
@with_target
def set_namespace(
    target: Target,
    name: str,
    gpu_limit: float | None,
    no_gpu_limit: bool,
    guaranteed: float | None,
    weight: int | None,
) -> None:
    """Set what a namespace may hold, and what it is due; what is not named stays as it is.

    What it holds above a new limit stays held.
    """
    if no_gpu_limit and gpu_limit is not None:
        raise click.UsageError("expected --gpu-limit or --no-gpu-limit")
    if not no_gpu_limit and gpu_limit is guaranteed is weight is None:
        raise click.UsageError("expected --gpu-limit or --no-gpu-limit, --guaranteed, or --weight")

    async def ask(client: "StewardClient") -> NamespaceUse:
        namespaces = {use.namespace: use for use in (await client.namespaces()).namespaces}
        present_use = namespaces.get(name, NamespaceUse(namespace=name, gpus=0.0))
        limit = present_use.gpu_limit if gpu_limit is None else gpu_limit
        changed_use = replace(
            present_use,
            gpu_limit=None if no_gpu_limit else limit,
            guaranteed_gpus=present_use.guaranteed_gpus if guaranteed is None else guaranteed,
            weight=present_use.weight if weight is None else weight,
        )
        await client.set_namespace(
            name,
            gpu_limit=changed_use.gpu_limit,
            guaranteed_gpus=changed_use.guaranteed_gpus,
            weight=changed_use.weight,
        )
        return changed_use

    now = target.ask(ask)
    limit = now.gpu_limit
    may = "any number of GPUs" if limit is None else f"at most {limit:g} GPUs at once"
    sure = f", {now.guaranteed_gpus:g} guaranteed" if now.guaranteed_gpus else ""
    due = f", weight {now.weight}" if now.weight != 1 else ""
    click.echo(f"{name} may hold {may}{sure}{due}")


@namespace.command("list")
@reading
@wide_option
def list_namespaces(target: Target) -> None:
    """List namespaces that have rules, hold GPUs or wait for some."""
    namespace_list = target.ask(lambda client: client.namespaces())
    if target.as_json:
        print_json(namespace_list)
    elif namespace_list.namespaces:
        print_table(namespaces_table(namespace_list))
    else:
        click.echo("no namespace has rules, holds a GPU or waits for one")


def namespaces_table(namespace_list: NamespaceList) -> Table:
    """Return a table with a row for each namespace."""
    headings = ["namespace", "GPUs held", "guaranteed", "limit", "weight", "used share", "waiting"]
    rows = [
        [
            use.namespace,
            f"{use.gpus:g}",
            f"{use.guaranteed_gpus:g}",
            "none" if use.gpu_limit is None else f"{use.gpu_limit:g}",
            str(use.weight),
            "" if use.used_share is None else f"{use.used_share:.3f}",
            str(use.queued),
        ]
        for use in namespace_list.namespaces
    ]
    return Table(headings, rows, numeric=frozenset(headings[1:]))


@namespace.command()
@click.argument("name", metavar="NAMESPACE")
@reading
@wide_option
def members(target: Target, name: str) -> None:
    """List the people and groups with a role in a namespace, beside those of the mapping file."""
    member_list = target.ask(lambda client: client.members(name))
    if target.as_json:
        print_json(member_list)
    elif member_list:
        headings = ["name", "kind", "role", "set by", "age"]
        rows = [
            [member.name, member.kind.value, member.role.value, member.set_by, age(member.set_at)]
            for member in member_list
        ]
        print_table(Table(headings, rows, numeric=frozenset({"age"})))
    else:
        click.echo(
            f"{name} has no members; `gpusteward namespace add-member {name} PERSON` adds one"
        )


@namespace.command("add-member")
@click.argument("name", metavar="NAMESPACE")
@click.argument("person", metavar="PERSON|GROUP")
@click.option("--group", "is_group", is_flag=True, help="It is a group at the provider.")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role if role is not Role.ADMIN]),
    default=Role.SUBMITTER.value,
    show_default=True,
    help=ROLE_HELP,
)
@with_target
def add_member(target: Target, name: str, person: str, is_group: bool, role: str) -> None:
    """Give a person or a group a role in a namespace. For its owners.

    PERSON and GROUP are names as the OpenID provider says them. It counts with their next request.
    """
    kind = MemberKind.GROUP if is_group else MemberKind.PERSON
    try:
        request = msgspec.convert({"kind": kind, "name": person, "role": role}, MemberRequest)
    except msgspec.ValidationError as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, str(error)) from error
    view = target.ask(lambda client: client.set_member(name, request))
    click.echo(f"{view.kind} {view.name} is {view.role} of {name}")


@namespace.command("remove-member")
@click.argument("name", metavar="NAMESPACE")
@click.argument("person", metavar="PERSON|GROUP")
@click.option("--group", "is_group", is_flag=True, help="It is a group at the provider.")
@with_target
def remove_member(target: Target, name: str, person: str, is_group: bool) -> None:
    """Take a member's role in a namespace away. For its owners."""
    kind = MemberKind.GROUP if is_group else MemberKind.PERSON

    async def ask(client: "StewardClient") -> None:
        for member in await client.members(name):
            if (member.kind, member.name) == (kind, person):
                await client.remove_member(name, member.member_id)
                return
        raise CommandFailed(
            ErrorCode.NOT_FOUND,
            f"{kind} {person} is no member of {name}; `gpusteward namespace members {name}` lists"
            " them",
        )

    target.ask(ask)
    click.echo(f"{kind} {person} is no member of {name} any more")
