"""What is written beside the work itself may find a full disk, and ends nothing then."""

import errno
import io
import os
from pathlib import Path

import pytest

from shared.disk import FULL_BELOW_BYTES, DiskRoom, room_at
from shared.lifecycle import READY_FILE_VARIABLE, notify_ready, read_ready_pid
from shared.logging import LossyStream
from shared.paths import write_atomically
from shared.processes.child_process import rotate_log
from tests.support.disks.small_disk import fill, small_disk


class FullFile(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_log_line_without_room_is_dropped() -> None:
    stream = LossyStream(FullFile())

    stream.write("a line")
    stream.flush()


@pytest.mark.parametrize(
    ("room", "full"),
    [
        (DiskRoom(Path("/"), FULL_BELOW_BYTES, 1 << 40), False),
        (DiskRoom(Path("/"), FULL_BELOW_BYTES - 1, 1 << 40), True),
        (DiskRoom(Path("/"), 1 << 40, 1 << 40, has_free_files=False), True),
    ],
)
def test_disk_is_full_without_a_new_segment(room: DiskRoom, full: bool) -> None:
    assert room.is_full is full


def test_missing_directory_has_its_parents_room(tmp_path: Path) -> None:
    assert room_at(tmp_path / "absent" / "too").total_bytes == room_at(tmp_path).total_bytes


def test_full_disk_keeps_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        (disk / "state").write_text("before")
        (disk / "long.log").write_bytes(b"x" * 100)
        monkeypatch.setenv(READY_FILE_VARIABLE, str(disk / "one.ready"))
        fill(disk)

        with pytest.raises(OSError, match="No space left"):
            write_atomically(disk / "state", b"x" * 100_000)
        rotate_log(disk / "long.log", limit_bytes=99)
        notify_ready()

        assert room_at(disk).free_bytes == 0
        assert (disk / "state").read_text() == "before"
        assert (disk / "long.log").stat().st_size == 100
        assert read_ready_pid(disk / "one.ready") == os.getpid()
        assert {each.name for each in disk.iterdir()} == {
            *("state", "long.log", "one.ready", "filler")
        }
