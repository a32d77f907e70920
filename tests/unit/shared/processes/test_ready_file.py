"""The word that a process is ready."""

import os
from pathlib import Path

import pytest

from shared.lifecycle import READY_FILE_VARIABLE, forget_ready, notify_ready, read_ready_pid


def test_restarted_container_is_not_ready_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    monkeypatch.setenv(READY_FILE_VARIABLE, str(ready))
    notify_ready()
    assert read_ready_pid(ready) == os.getpid()

    forget_ready()
    forget_ready()

    assert read_ready_pid(ready) is None
