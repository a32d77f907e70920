"""`demo`: the whole way once, on any machine."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from schemas.errors import ErrorCode
from schemas.orchestrator.experiments import FINISHED_TASK_STATES
from services.cli import interruption
from services.cli.display.output import wide_option
from services.cli.failures import CommandFailed, leave
from services.cli.interruption import interrupts
from services.cli.local_platform.options import EXAMPLES
from services.cli.options import Target, data_dir_option
from shared.paths import default_data_dir

if TYPE_CHECKING:
    from shared.client.http import StewardClient

TASK: Final = EXAMPLES / "smollm2-cpu.json"
EXIT_VARIABLE: Final = "DEMO_EXIT"
PATIENCE_SECONDS: Final = 60.0


@click.command()
@data_dir_option
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the API [default: 8470].")
@click.option("--exit", "leaves", is_flag=True, help="Stop the platform after the results.")
@wide_option
def demo(data_dir: Path | None, port: int | None, leaves: bool) -> None:
    """Tune a real language model on this machine's CPU and print the results.

    On a terminal the platform stays up until Ctrl-C, unless `--exit` or DEMO_EXIT=1 is given.
    """
    stays = sys.stdout.isatty() and not leaves and os.environ.get(EXIT_VARIABLE) != "1"
    target = Target(url=None, token=None, data_dir=data_dir or default_data_dir() / "demo")
    leave(interruption.run(_demo(target, port, stays=stays)))


async def _demo(target: Target, port: int | None, *, stays: bool) -> int:
    from services.cli.follow import follow_to_end
    from services.cli.local_platform.background import platform
    from shared.client.http import StewardClient

    document = _read_example()
    async with (
        platform(target, simulate=True, port=port) as running,
        StewardClient(running.address, patience_seconds=PATIENCE_SECONDS) as client,
    ):
        await _clear_earlier(client, str(document["task_name"]))
        await _introduce(client)
        task_id = await client.submit_task(_named_anew(document))
        code = await follow_to_end(client, task_id)
        click.echo(f"\nAPI of the platform: {running.address.url}/api/v1/tasks/{task_id}")
        click.echo(f"its web page: {running.address.url}/")
        if stays and running.is_ours:
            click.echo(f"it stays up until Ctrl-C; `gpusteward gpus --url {running.address.url}`")
            await _until_interrupted()
    return code


def _read_example() -> dict[str, object]:
    try:
        return msgspec.json.decode(TASK.read_bytes(), type=dict[str, object])
    except FileNotFoundError:
        raise CommandFailed(
            ErrorCode.INTERNAL, f"the example {TASK} is missing from this installation"
        ) from None


def _named_anew(document: dict[str, object]) -> bytes:
    """Under a name of its own, so that a demo cut off before does not stand in the way."""
    name = f"{document['task_name']}-{os.getpid()}"
    return msgspec.json.encode({**document, "task_name": name})


async def _clear_earlier(client: "StewardClient", name: str) -> None:
    for task in await client.tasks():
        if task.task_name.startswith(name) and task.state not in FINISHED_TASK_STATES:
            click.echo(f"cancelling {task.task_name}, which an earlier demo left unfinished")
            await client.cancel_task(task.task_id, "left over from an earlier demo")


async def _introduce(client: "StewardClient") -> None:
    click.echo(
        "This tunes SmolLM2-135M, a real but small language model, served by llama.cpp"
        " on this machine's CPU."
    )
    gpus = (await client.gpus()).gpus
    simulated = [gpu for gpu in gpus if gpu.simulated]
    if simulated:
        names = ", ".join(sorted({gpu.name for gpu in simulated}))
        click.echo(
            f"The {len(simulated)} GPUs ({names}) are simulated: their readings are made up, the"
            " reservations, the model and its measurements are real."
        )
    elif gpus:
        click.echo(f"The {len(gpus)} GPUs are this machine's own; the CPU does the computing.")
    click.echo()


async def _until_interrupted() -> None:
    async with interrupts() as interrupted:
        await interrupted.wait()
    click.echo("stopping the platform")
