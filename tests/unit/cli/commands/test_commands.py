import pytest

from schemas.task.load_commands import ExperimentCommands, LevelCommands, LoadCommand
from schemas.task.report import Deployments
from services.cli.commands.tasks.commands import print_commands
from shared.ids import new_id


def test_commands_print_as_a_script_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    level = LevelCommands(
        scenario="D(8,8)",
        num_concurrency=4,
        commands=(
            LoadCommand(tool="builtin", command="gpusteward bench run URL"),
            LoadCommand(tool="aiperf", reason="it has no option for it"),
        ),
    )
    commands = ExperimentCommands(
        experiment_id=new_id(),
        base_url=None,
        deployments=Deployments(command_line="vllm serve m", notes=("put the path there",)),
        levels=(level,),
    )

    print_commands(commands)

    printed = capsys.readouterr().out
    commands_alone = [line for line in printed.splitlines() if line and not line.startswith("#")]
    assert commands_alone == ["vllm serve m", "gpusteward bench run URL"]
    assert "# aiperf: no command, because it has no option for it" in printed
    assert "# D(8,8), 4 at once" in printed
    assert "# put the path there" in printed
