"""What a shell offers behind a command: ids and names that the platform knows now."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from shared.client.discovery import Address, find_address
from shared.errors import StewardError

if TYPE_CHECKING:
    from shared.client.http import StewardClient

DEADLINE_SECONDS: Final = 2.0
MAX_COMPLETIONS: Final = 50
Offer = tuple[str, str]  # what is typed, and what it is


def complete_ids(
    context: click.Context, _parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Names of tasks, and ids of reservations that are not over; ids of tasks once typed."""

    async def ask(client: "StewardClient") -> list[Offer]:
        from schemas.scheduler.reservations import OPEN_STATES

        tasks = await client.tasks(limit=MAX_COMPLETIONS)
        reservations = await client.reservations(states=sorted(OPEN_STATES), limit=MAX_COMPLETIONS)
        return [
            *((task.task_name, f"task, {task.state.value}") for task in tasks),
            *(
                (str(view.reservation_id), f"{view.holder}, {view.state.value}")
                for view in reservations
            ),
            *((str(task.task_id), f"task {task.task_name}") for task in tasks if typed),
        ]

    return _offer_completions(context, typed, ask)


def complete_nodes(
    context: click.Context, _parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Ids of nodes."""

    async def ask(client: "StewardClient") -> list[Offer]:
        nodes = (await client.nodes()).nodes
        return [(node.node_id, f"{node.gpus_free} of {node.gpus_total} free") for node in nodes]

    return _offer_completions(context, typed, ask)


def _offer_completions(
    context: click.Context, typed: str, ask: Callable[["StewardClient"], Awaitable[list[Offer]]]
) -> list[CompletionItem]:
    """Return the completions; none if no platform answers, as a shell shows no errors here."""
    options = {name: context.params.get(name) for name in ("url", "token", "data_dir")}

    async def answer(address: Address) -> list[Offer]:
        from shared.client.http import StewardClient

        async with StewardClient(address, timeout_seconds=DEADLINE_SECONDS) as client:
            return await ask(client)

    try:
        address = find_address(options["url"], token=options["token"], data_dir=options["data_dir"])
        from services.cli import interruption

        offers = interruption.run(answer(address))
    except (StewardError, OSError):
        return []
    return [
        CompletionItem(value, help=what)
        for value, what in dict(offers).items()
        if value.startswith(typed)
    ]
