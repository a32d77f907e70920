"""The command line: its commands, and how they end."""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Final

import click
from typing_extensions import override

from services.cli.lazy_commands import LazyCommands
from services.cli.options import data_dir_option, token_option, url_option
from shared.errors import StewardError

_COMMANDS: Final = "services.cli.commands"
FUNCTIONS: Final = {
    f"{_COMMANDS}.bench": ("bench",),
    f"{_COMMANDS}.completion": ("completion",),
    f"{_COMMANDS}.gpus.check": ("check",),
    f"{_COMMANDS}.gpus.devices": ("devices",),
    f"{_COMMANDS}.gpus.exec": ("exec_command",),
    f"{_COMMANDS}.gpus.idle": ("idle",),
    f"{_COMMANDS}.gpus.insight": (
        *("availability", "cluster", "estimate", "replay", "select_node", "why"),
    ),
    f"{_COMMANDS}.gpus.pods": ("pods",),
    f"{_COMMANDS}.gpus.reservations": ("release", "renew", "reserve"),
    f"{_COMMANDS}.gpus.top": ("top",),
    f"{_COMMANDS}.gpus.what_if": ("what_if",),
    f"{_COMMANDS}.listing": (
        *("experiments", "gpus", "map_command", "nodes", "reservations", "show", "tasks"),
    ),
    f"{_COMMANDS}.operations.certificate": ("certificate",),
    f"{_COMMANDS}.operations.credentials": ("agent_credentials", "client_credentials"),
    f"{_COMMANDS}.operations.audit": ("audit",),
    f"{_COMMANDS}.operations.maintenance": ("cordon", "drain", "drift", "uncordon"),
    f"{_COMMANDS}.operations.namespaces": ("namespace",),
    f"{_COMMANDS}.operations.nodes": ("monitor", "node", "power"),
    f"{_COMMANDS}.operations.secret": ("secret",),
    f"{_COMMANDS}.operations.sign_in": ("context", "login", "logout"),
    f"{_COMMANDS}.operations.token": ("token",),
    f"{_COMMANDS}.platform.backup": ("backup",),
    f"{_COMMANDS}.platform.chart": ("chart",),
    f"{_COMMANDS}.platform.compose": ("compose",),
    f"{_COMMANDS}.platform.demo": ("demo",),
    f"{_COMMANDS}.platform.join": ("join",),
    f"{_COMMANDS}.platform.mcp": ("mcp",),
    f"{_COMMANDS}.platform.platform": ("agent", "up"),
    f"{_COMMANDS}.platform.service": ("service",),
    f"{_COMMANDS}.platform.upgrade": ("upgrade",),
    f"{_COMMANDS}.report": ("report",),
    f"{_COMMANDS}.tasks.archives": ("export", "import_command"),
    f"{_COMMANDS}.tasks.commands": ("commands",),
    f"{_COMMANDS}.tasks.comparison": ("compare", "leaderboard"),
    f"{_COMMANDS}.tasks.datasets": ("dataset",),
    f"{_COMMANDS}.tasks.logs": ("logs",),
    f"{_COMMANDS}.tasks.new": ("new",),
    f"{_COMMANDS}.tasks.presets": ("preset",),
    f"{_COMMANDS}.tasks.task_life": ("clone", "pause", "rerun", "resume"),
    f"{_COMMANDS}.tasks.tasks": ("cancel", "delete", "run", "submit", "validate"),
    f"{_COMMANDS}.tasks.watch": ("watch",),
    "services.cli.doctor.command": ("doctor",),
}


# What other tools of this trade call it.
OTHER_NAMES: Final = {
    "best": "leaderboard", "create": "new", "init": "new", "jobs": "tasks", "list": "tasks",
    "ls": "tasks", "nvidia-smi": "gpus", "ps": "experiments", "queue": "reservations",
    "sbatch": "submit", "scancel": "cancel", "sinfo": "nodes", "squeue": "reservations",
    "srun": "exec", "start": "up", "stat": "nodes", "status": "nodes", "stop": "cancel",
}  # fmt: skip


# What people come for, in the order in which they do.
GROUPS: Final = {
    "Start": (
        *("demo", "up", "agent", "join", "service", "doctor", "compose", "chart", "completion"),
        "mcp",
    ),
    "Tune": (
        *("new", "validate", "run", "submit", "watch", "tasks", "experiments", "show", "logs"),
        *("pause", "resume", "cancel", "rerun", "clone", "delete", "preset", "dataset", "export"),
        *("import", "leaderboard", "compare", "bench", "commands"),
    ),
    "Use GPUs": ("reserve", "exec", "renew", "release", "reservations", "power"),
    "See what there is": ("gpus", "nodes", "top", "map", "pods", "cluster", "devices", "monitor"),
    "Ask why and what if": (
        *("why", "availability", "check", "estimate", "select-node", "what-if", "replay"),
    ),
    "Run the fleet": ("cordon", "drain", "uncordon", "node", "drift", "idle", "backup", "upgrade"),
    "Share it": (
        *("namespace", "secret", "report", "login", "logout", "context", "token"),
        "agent-credentials",
        *("client-credentials", "certificate", "audit"),
    ),
}
MAX_SENTENCE_CHARACTERS: Final = 300


class Commands(click.Group):
    """The commands by what people do; of another tool's name it says what it is called here."""

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (name, self.commands[name].get_short_help_str(MAX_SENTENCE_CHARACTERS))
                        for name in names
                    ]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        canonical_name = OTHER_NAMES.get(args[0])
        if (
            canonical_name is not None
            and args[0] not in self.commands
            and not ctx.resilient_parsing
        ):
            ctx.fail(f"No such command {args[0]!r}: here it is `gpusteward {canonical_name}`.")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    commands=LazyCommands(FUNCTIONS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@url_option
@token_option
@data_dir_option
@click.version_option(package_name="gpusteward")
def cli(**_: object) -> None:
    """Reserve GPUs for LLM-inference tuning, run the experiments, see what the GPUs did.

    --url, --token and --data-dir may stand before or behind a command.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; expected errors end as a sentence and an exit code, never a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # A click.Exit comes back as its code.
        code = cli.main(words, prog_name="gpusteward", standalone_mode=False)
    except click.ClickException as error:
        from services.cli.failures import in_plain_words

        in_plain_words(error).show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _drop_unwritten()
        code = 130
    except BrokenPipeError:
        _drop_unwritten()
        code = 141
    except ModuleNotFoundError as error:
        from services.cli.extras import extra_missing, extra_of
        from services.cli.failures import report

        extra = extra_of(error)
        if extra is None:
            raise
        code = report(extra_missing(extra), words)
    except (StewardError, OSError) as error:
        from services.cli.failures import report

        code = report(error, words)
    sys.exit(code or 0)


def _drop_unwritten() -> None:
    """Discard what standard output could not write, or the interpreter would try again at its
    end.
    """
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
