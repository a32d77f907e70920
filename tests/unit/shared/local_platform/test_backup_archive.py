"""A backup's file: whole or not there, and told in a sentence what is wrong with it."""

import zipfile
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from schemas.errors import ErrorCode
from shared.errors import RefusedError
from shared.local_platform.backup.archive import (
    BACKUP_FORMAT,
    BACKUP_MANIFEST,
    DATABASE,
    BackupWriter,
    Manifest,
    new_file,
    open_backup,
)
from shared.local_platform.backup.restore import check_release

CONTENT = bytes(range(256)) * 4096


def write(path: Path, **changes: object) -> Path:
    """A backup whose database is a megabyte of bytes."""
    with new_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        writer = BackupWriter(archive, lambda _: None)
        with writer.open_part(DATABASE) as append:
            append(CONTENT[:1000])
            append(CONTENT[1000:])
        fields = {
            "format": BACKUP_FORMAT,
            "release": "0.1.0",
            "created_at": datetime(2026, 1, 1, tzinfo=UTC),
            "installation_id": UUID(int=7),
            "schemas": {"scheduler": 1},
            "parts": dict(writer.parts),
            **changes,
        }
        writer.add(BACKUP_MANIFEST, msgspec.json.encode(fields))
    return path


def refusal(path: Path) -> RefusedError:
    """What reading the whole file says of it."""
    with pytest.raises(RefusedError) as raised, open_backup(path) as reader:
        reader.check(lambda _: None)
    assert "\n" not in str(raised.value)
    return raised.value


def test_whole_backup_is_read_as_written(tmp_path: Path) -> None:
    path = write(tmp_path / "b.zip")
    seen: list[int] = []

    with open_backup(path) as reader:
        reader.check(seen.append)
        content = reader.read(DATABASE)

    assert content == CONTENT
    assert sum(seen) == len(CONTENT)
    assert isinstance(reader.manifest, Manifest)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("left_bytes", [0, 10, 5_000, 900_000, -1])
def test_cut_off_backup_is_told(tmp_path: Path, left_bytes: int) -> None:
    path = write(tmp_path / "b.zip")
    path.write_bytes(path.read_bytes()[:left_bytes])

    assert refusal(path).code is ErrorCode.BAD_REQUEST


@pytest.mark.parametrize("place", [35, 1000, 500_000])
def test_changed_byte_is_told(tmp_path: Path, place: int) -> None:
    path = write(tmp_path / "b.zip")
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)

    assert "is no whole backup" in str(refusal(path))


def test_part_that_is_not_the_manifests_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "b.zip", parts={})

    assert f"{DATABASE} is only in one of manifest and archive" in str(refusal(path))


def test_foreign_archive_is_told(tmp_path: Path) -> None:
    path = tmp_path / "holiday.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("beach.txt", "sand")

    assert "no backup of GPU Steward" in str(refusal(path))


def test_format_of_later_release_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "b.zip", format=BACKUP_FORMAT + 1, release="9.9.9", schemas="other")

    error = refusal(path)

    assert error.code is ErrorCode.UNSUPPORTED
    assert "a later release, 9.9.9" in str(error)


def test_schema_of_later_release_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "b.zip", schemas={"scheduler": 99}, release="9.9.9")

    with open_backup(path) as reader, pytest.raises(RefusedError, match=r"later release, 9\.9\.9"):
        check_release(reader)


def test_failed_backup_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with new_file(tmp_path / "b.zip") as file:
            file.write(b"half")
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        fail()

    assert list(tmp_path.iterdir()) == []


def test_file_that_came_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"

    def write_both() -> None:
        with new_file(path) as file:
            file.write(b"late")
            path.write_bytes(b"first")

    with pytest.raises(FileExistsError):
        write_both()

    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("b.zip", b"first")]
