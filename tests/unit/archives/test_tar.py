"""Archives that are damaged, unsafe, or of a later release are refused before anything is used."""

import io
import tarfile
from typing import Any

import msgspec
import pytest

from schemas.errors import ErrorCode
from schemas.gateway.archives import FORMAT, MANIFEST, ArchiveKind, Manifest
from shared.archives.tar import ArchiveWriter, pack_tar, read_archive
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.ids import new_id

FILES = {"task.json": b"{}", "experiments/0001/samples/part-001.parquet": bytes(range(256)) * 3}


def make_manifest(**overrides: Any) -> Manifest:
    fields: dict[str, Any] = {
        "format": FORMAT,
        "kind": ArchiveKind.TASK,
        "subject_id": new_id(),
        "exported_at": utcnow(),
        "exported_by": "1.0",
        "files": {},
    }
    return Manifest(**{**fields, **overrides})


def written(**overrides: Any) -> bytes:
    writer = ArchiveWriter()
    parts = [writer.add(path, content) for path, content in FILES.items()]
    return b"".join((*parts, writer.end(make_manifest(**overrides))))


def pack(files: dict[str, bytes]) -> bytes:
    return b"".join(pack_tar(files.items()))


def members(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {each.name: opened.extractfile(each).read() for each in opened}  # type: ignore[union-attr]  # files


def with_member(name: str, **fields: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as opened:
        member = tarfile.TarInfo(name)
        for field, value in fields.items():
            setattr(member, field, value)
        opened.addfile(member)
    return buffer.getvalue()


def test_tar_is_read_by_any_program() -> None:
    archive = written()

    manifest, files = read_archive(archive)

    assert files == FILES
    assert members(archive).keys() == {*FILES, MANIFEST}
    assert read_archive(pack(members(archive))) == (manifest, FILES)


@pytest.mark.parametrize("size", [0, 100, 512, 1024, 2000, 2600])
def test_one_that_was_cut_off_is_refused(size: int) -> None:
    with pytest.raises(RefusedError) as refused:
        read_archive(written()[:size])

    assert refused.value.code is ErrorCode.BAD_REQUEST


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"task.json": b"[]"}, id="another content"),
        pytest.param({"more.json": b"[]"}, id="one file too many"),
        pytest.param({"task.json": None}, id="one file too few"),
        pytest.param({MANIFEST: b"{"}, id="a broken manifest"),
        pytest.param({MANIFEST: None}, id="no manifest"),
    ],
)
def test_one_that_was_changed_is_refused(change: dict[str, bytes | None]) -> None:
    changed = {**members(written()), **change}

    with pytest.raises(RefusedError, match="no whole export"):
        read_archive(
            pack({path: content for path, content in changed.items() if content is not None})
        )


@pytest.mark.parametrize(
    "unsafe",
    [
        pytest.param(with_member("../passwd"), id="above the folder"),
        pytest.param(with_member("/etc/passwd"), id="absolute"),
        pytest.param(with_member("a/../../b"), id="up again"),
        pytest.param(with_member("a\\..\\b"), id="as Windows has it"),
        pytest.param(with_member("a", type=tarfile.SYMTYPE, linkname="/etc/passwd"), id="a link"),
        pytest.param(with_member("a", type=tarfile.LNKTYPE, linkname="b"), id="a hard link"),
        pytest.param(with_member("a", type=tarfile.FIFOTYPE), id="a pipe"),
        pytest.param(
            with_member(
                "a",
                pax_headers={
                    "GNU.sparse.major": "0",
                    "GNU.sparse.minor": "1",
                    "GNU.sparse.size": str(2**50),
                    "GNU.sparse.map": f"{2**50},0",
                },
            ),
            id="more than its bytes",
        ),
    ],
)
def test_path_out_of_the_folder_is_refused(unsafe: bytes) -> None:
    with pytest.raises(RefusedError, match="cannot be part of an export"):
        read_archive(unsafe)


def test_one_of_a_later_release_says_so() -> None:
    manifest = {**msgspec.to_builtins(make_manifest()), "format": FORMAT + 1, "kind": "cluster"}

    with pytest.raises(RefusedError, match="a later release") as refused:
        read_archive(pack({MANIFEST: msgspec.json.encode(manifest)}))

    assert refused.value.code is ErrorCode.UNSUPPORTED


def test_only_wanted_files_are_held() -> None:
    archive = written()

    _, held = read_archive(archive, is_wanted=lambda path: path.endswith(".json"))

    assert held == {"task.json": FILES["task.json"]}
    with pytest.raises(RefusedError, match=r"part-001.parquet is not what it was"):
        read_archive(archive.replace(bytes(range(256)), bytes(256)), is_wanted=lambda _: False)


def test_more_than_may_be_held_is_refused() -> None:
    with pytest.raises(RefusedError) as refused:
        read_archive(written(), largest_held_bytes=100)

    assert refused.value.code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_oversized_header_is_not_read(kind: bytes) -> None:
    header = tarfile.TarInfo("header")
    header.type, header.size = kind, 1 << 30

    with pytest.raises(RefusedError, match="a header of 1073741824 bytes"):
        read_archive(header.tobuf() + bytes(4096))


def test_folders_count_as_files_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.archives.tar.MAX_FILES", 100)
    folder = tarfile.TarInfo("folder")
    folder.type = tarfile.DIRTYPE

    with pytest.raises(RefusedError, match="at most 100 files"):
        read_archive(folder.tobuf() * 101 + bytes(1024))
