"""What cordon, uncordon and drain take for a place."""

import pytest
from click.testing import CliRunner

from services.cli.commands.operations.maintenance import cordon, drain, drift, uncordon
from services.cli.commands.operations.nodes import node


@pytest.mark.parametrize("place", ["", "vm/", "a b", "/0"])
def test_incomplete_place_is_never_a_node(place: str) -> None:
    for command in (cordon, uncordon):
        result = CliRunner().invoke(command, [place])

        assert result.exit_code == 2
        assert "expected " in result.output


def test_node_id_is_checked_before_asking() -> None:
    for command, arguments in ((drain, [""]), (drift, ["--node", "no such node"])):
        result = CliRunner().invoke(command, arguments)

        assert result.exit_code == 2
        assert "`gpusteward nodes` lists them" in result.output.replace("\n", " ")


@pytest.mark.parametrize("change", ["zone", "zone=", "=a", "-", "="])
def test_label_is_set_by_value_and_removed_by_dash(change: str) -> None:
    result = CliRunner().invoke(node, ["label", "vm", "rack=7", change])

    assert result.exit_code == 2
    assert "expected KEY=VALUE, or KEY- to take one away" in " ".join(result.output.split())
