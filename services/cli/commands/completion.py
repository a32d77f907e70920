"""The command that teaches shells ours."""

from typing import Final

import click
from click.shell_completion import get_completion_class

PROGRAM: Final = "gpusteward"
VARIABLE: Final = "_GPUSTEWARD_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what completes commands, options, ids and nodes in a shell.

    bash: `eval "$(gpusteward completion bash)"` in ~/.bashrc; zsh the same in ~/.zshrc; fish:
    `gpusteward completion fish > ~/.config/fish/completions/gpusteward.fish`.
    """
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.UsageError(f"{shell} cannot be completed")
    click.echo(completion_class(context.find_root().command, {}, PROGRAM, VARIABLE).source())
