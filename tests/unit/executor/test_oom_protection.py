"""An engine is killed before the platform where memory is short."""

from pathlib import Path

import pytest

from services.executor.runtimes import engine_process
from services.executor.runtimes.engine_process import give_up_oom_protection


@pytest.mark.parametrize(("before", "after"), [(-500, 0), (0, 0), (300, 300)])
def test_engine_keeps_no_protection_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    adjustment = tmp_path / "oom_score_adj"
    adjustment.write_text(f"{before}\n")
    monkeypatch.setattr(engine_process, "OOM_ADJUSTMENT", adjustment)

    give_up_oom_protection()

    assert int(adjustment.read_text()) == after


def test_host_without_such_scores_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "OOM_ADJUSTMENT", tmp_path / "none")

    give_up_oom_protection()
