"""`gpusteward what-if`: two questions under one name."""

from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from schemas.scheduler.policy import NamespaceOutcome, PolicyOutcome, PolicyTrial, TriedPolicy
from services.cli.commands.gpus.what_if import trial_lines, trial_table, what_if

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def outcome(seconds: float, gpu_hours: float) -> PolicyOutcome:
    return PolicyOutcome(
        requests=9,
        granted=8,
        waiting=1,
        preempted=0,
        used_percent=50.0,
        packed_percent=75.0,
        p50_seconds=seconds,
        p95_seconds=2 * seconds,
        namespaces=(
            NamespaceOutcome(
                namespace="a", requests=9, granted=8, gpu_hours=gpu_hours, p95_seconds=seconds
            ),
        ),
    )


@pytest.mark.parametrize("arguments", [["--gpus", "0", "abc"], ["abc", "--gpus", "0"]])
def test_an_id_needs_no_further_word(arguments: list[str]) -> None:
    """The options of a request are known, so what is wrong is the number."""
    found = CliRunner().invoke(what_if, arguments)

    assert "--gpus" in found.output
    assert "No such command" not in found.output


def test_unknown_policy_is_refused_with_known_ones() -> None:
    assert "density" in CliRunner().invoke(what_if, ["policy", "best"]).output


def test_both_policies_stand_beside_the_past() -> None:
    trial = PolicyTrial(
        policy=TriedPolicy.DENSITY,
        start_at=NOW,
        end_at=NOW + timedelta(hours=1),
        decisions=7,
        recorded_p50_seconds=11.0,
        recorded_p95_seconds=21.0,
        present=outcome(10.0, 3.0),
        tried=outcome(5.0, 4.0),
        left_out=("what else used GPUs",),
    )

    table = trial_table(trial)

    assert table.headings == ["figure", "recorded", "present", "density"]
    assert table.rows[0] == ["wait p50 s", "11.0", "10.0", "5.0"]
    assert ["a: GPU h", "-", "3.0", "4.0"] in table.rows
    assert trial_lines(trial) == [
        "9 requests of 7 decisions, 2026-01-01 00:00 to 2026-01-01 01:00 UTC",
        "left out: what else used GPUs",
    ]
