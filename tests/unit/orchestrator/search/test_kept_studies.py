"""Simulated studies with and without engines that stay up: what it costs, and what is found."""

import pytest

from tests.benchmarks.kept_engines import make_study, run_study, simulate


@pytest.mark.long
def test_kept_engines_cost_less_at_an_equal_verdict() -> None:
    found = simulate(range(300))

    assert found["kept_up_gpu_seconds_over_restart"] < 0.9
    assert found["kept_up_equal_verdict_share"] >= 0.9


def test_no_study_takes_more_starts_with_kept_engines() -> None:
    for seed in range(60):
        study = make_study(seed)
        kept, _ = run_study(study, keeps=True)
        shared = [run for run in kept.past if run.run.kept_from is not None]

        assert kept.starts == len(kept.past) - len(shared)
        assert shared, "replays at least go on with a running engine"
