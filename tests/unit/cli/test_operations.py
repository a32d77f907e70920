"""What cordon, uncordon and drain take for a place."""

import pytest
from click.testing import CliRunner

from services.cli.commands.maintenance import cordon, drain, drift, uncordon


@pytest.mark.parametrize("place", ["", "vm/", "a b", "/0"])
def test_a_place_that_is_not_wholly_named_is_never_taken_for_a_node(place: str) -> None:
    for command in (cordon, uncordon):
        result = CliRunner().invoke(command, [place])

        assert result.exit_code == 2
        assert "expected " in result.output


def test_a_node_s_id_is_checked_before_anybody_is_asked() -> None:
    for command, arguments in ((drain, [""]), (drift, ["--node", "no such node"])):
        result = CliRunner().invoke(command, arguments)

        assert result.exit_code == 2
        assert "`gpusteward nodes` lists them" in result.output.replace("\n", " ")
