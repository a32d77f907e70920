"""Which ratios of a benchmark are refused, and how accepted ones are recorded."""

from pathlib import Path

import pytest
from rich.console import Console

from tests.benchmarks import gates
from tests.benchmarks.gates import Gate, print_verdicts, record

LOW = Gate("snapshot_full_over_bare", "low is better")
HIGH = Gate("ingest_over_copy", "high is better", is_better_high=True)


@pytest.mark.parametrize(
    ("gate", "ratio", "passes"),
    [(LOW, 1.2, True), (LOW, 1.21, False), (HIGH, 0.8, True), (HIGH, 0.79, False)],
)
def test_ratio_may_be_a_fifth_worse(gate: Gate, ratio: float, passes: bool) -> None:
    assert gate.passes(ratio, 1.0) is passes


def test_worse_figures_are_named_and_unrecorded_ones_pass() -> None:
    means = {LOW.figure: 3.0, HIGH.figure: 0.5, "ws_sample_over_bare": 9.0}

    worse = print_verdicts(Console(quiet=True), means, {LOW.figure: 2.0, HIGH.figure: 0.5})

    assert worse == [LOW.figure]


def test_recorded_ratios_replace_those_measured_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = tmp_path / "gates.toml"
    recorded.write_text("# what it is\none = 1.0\ntwo = 2.0\n")
    monkeypatch.setattr(gates, "RECORDED", recorded)

    record({"two": 2.5, "three": 3.0})

    assert recorded.read_text() == "# what it is\none = 1.0\ntwo = 2.5\nthree = 3.0\n"
