"""The word that a process is ready."""

import os
from pathlib import Path

import pytest

from shared.lifecycle import READY_FILE_VARIABLE, announced_pid, forget_ready, notify_ready


def test_a_container_that_is_started_again_is_not_ready_by_its_earlier_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    monkeypatch.setenv(READY_FILE_VARIABLE, str(ready))
    notify_ready()
    assert announced_pid(ready) == os.getpid()

    forget_ready()
    forget_ready()

    assert announced_pid(ready) is None
