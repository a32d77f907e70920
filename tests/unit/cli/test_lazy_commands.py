"""A group's commands are imported when they are looked up."""

import sys

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from services.cli.command_line import FUNCTIONS, GROUPS, OTHER_NAMES, cli
from services.cli.commands.gpus.check import check
from services.cli.lazy_commands import LazyCommands


@pytest.mark.parametrize("group", [cli, check], ids=["cli", "check"])
def test_every_command_is_found_under_its_name(group: click.Group) -> None:
    assert {name: command.name for name, command in group.commands.items()} == {
        name: name for name in group.commands
    }


def test_a_function_is_named_once() -> None:
    named = [each for functions in FUNCTIONS.values() for each in functions]

    assert len(named) == len(set(named)) == len(cli.commands)


def test_group_lists_commands_without_importing() -> None:
    lazy = LazyCommands({"no.such.module": ("map_command", "what_if")})
    group = click.Group(commands=lazy)

    @group.command()
    def added() -> None: ...

    context = click.Context(group)
    assert group.list_commands(context) == ["added", "map", "what-if"]
    assert group.get_command(context, "added") is added
    assert group.get_command(context, "absent") is None
    assert "no.such.module" not in sys.modules


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_another_tools_word_for_it_names_ours(name: str) -> None:
    result = CliRunner().invoke(cli, [name])

    assert result.exit_code == 2
    assert name not in cli.commands
    assert f"here it is `gpusteward {OTHER_NAMES[name]}`" in result.output
    assert OTHER_NAMES[name] in cli.commands


def test_foreign_word_is_completed_like_unknown() -> None:
    shell = ShellComplete(cli, {}, "gpusteward", "_GPUSTEWARD_COMPLETE")

    found, unknown = (
        [each.value for each in shell.get_completions([word], "res")] for word in ("ps", "x")
    )

    assert found == unknown


def test_help_has_every_command_once() -> None:
    grouped = [name for names in GROUPS.values() for name in names]

    shown = CliRunner().invoke(cli, ["--help"], terminal_width=80).output

    assert sorted(grouped) == sorted(cli.commands)
    assert all(f"\n{heading}:\n" in shown for heading in GROUPS)
    assert "..." not in shown.partition("Start:")[2]
