"""`commands`: how to start an experiment's engine elsewhere, and send it the same loads."""

from typing import TYPE_CHECKING, Final

import click

from schemas.task.load_commands import ExperimentCommands
from services.cli.display.output import print_json
from services.cli.lookup import find_experiment
from services.cli.options import Target, reading

if TYPE_CHECKING:
    from shared.client.http import StewardClient

EXAMPLE: Final = "http://localhost:8000"


@click.command()
@click.argument("identifier", metavar="EXPERIMENT")
@reading
def commands(target: Target, identifier: str) -> None:
    """Print commands that repeat an EXPERIMENT on another machine.

    The first starts its engine. For each level, the others send the same load with genai-bench,
    AIPerf, `vllm bench serve` and GPU Steward's own generator.
    """
    repeated = target.ask(lambda client: _read(client, identifier))
    if target.as_json:
        print_json(repeated)
        return
    print_commands(repeated)


async def _read(client: "StewardClient", identifier: str) -> ExperimentCommands:
    experiment = await find_experiment(client, identifier)
    return await client.experiment_commands(experiment.experiment_id)


def print_commands(commands: ExperimentCommands) -> None:
    forms = commands.deployments
    if forms.command_line:
        click.echo(f"# Start the engine\n{forms.command_line}\n")
    for note in forms.notes:
        click.echo(f"# {note}")
    if commands.base_url is None:
        click.echo(f"# Put your server's address in place of {EXAMPLE}")
    if not commands.levels:
        click.echo("# No level was measured, so there is no load to send")
    for level in commands.levels:
        load = level.arrivals or f"{level.num_concurrency} at once"
        click.echo(f"\n# {level.scenario}, {load}")
        for command in level.commands:
            if command.command is None:
                click.echo(f"# {command.tool}: no command, because {command.reason}")
            else:
                click.echo(command.command)
