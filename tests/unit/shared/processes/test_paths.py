"""Where children are told to import this installation from, and files that outlive a power cut."""

import os
from pathlib import Path

import pytest

from shared.paths import SOURCE_ROOT, python_path, write_atomically
from tests.support.paths import ROOT


def test_child_imports_from_our_packages() -> None:
    assert ROOT.resolve() == SOURCE_ROOT
    assert python_path({}) == str(SOURCE_ROOT)


def test_a_childs_own_import_path_comes_after_ours() -> None:
    assert python_path({"PYTHONPATH": "/theirs"}) == f"{SOURCE_ROOT}{os.pathsep}/theirs"


def test_durable_file_is_on_disk_before_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut may leave an empty file under its name, and neither content."""
    path = tmp_path / "journal.json"
    path.write_bytes(b"old")
    fsync, synced = os.fsync, list[tuple[bytes | None, bytes]]()

    def note(descriptor: int) -> None:
        fsync(descriptor)
        found = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((found.read_bytes() if found.is_file() else None, path.read_bytes()))

    monkeypatch.setattr(os, "fsync", note)
    write_atomically(path, b"new", is_durable=True)

    assert synced == [(b"new", b"old"), (None, b"new")]  # the file, then its directory
