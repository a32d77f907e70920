"""The scheduler of a made-up fleet takes the step of shares that the fleet's file says."""

from pathlib import Path

import pytest

from shared.local_platform.fleet_quantum import QUANTUM_VARIABLE, quantum_environment


@pytest.mark.parametrize(
    ("text", "quantum"),
    [
        pytest.param("quantum_size = 0.1", "0.1", id="a tenth"),
        pytest.param("quantum_size = 1", "1", id="whole ones"),
        pytest.param("", None, id="none"),
        pytest.param("quantum_size = 0.3", None, id="of which 1 is none"),
        pytest.param('quantum_size = 0.1\nunit_mem = "1G"', None, id="of other shares"),
        pytest.param("quantum_size = ", None, id="no TOML"),
    ],
)
def test_a_files_quantum_is_the_schedulers(text: str, quantum: str | None, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(text)

    assert quantum_environment(fleet, {}).get(QUANTUM_VARIABLE) == quantum
    assert quantum_environment(None, {}) == {}


def test_an_operators_quantum_goes_before_a_files(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text("quantum_size = 0.1")

    assert quantum_environment(fleet, {QUANTUM_VARIABLE: "0.25"}) == {}
