"""Which files of this host an engine reads a model's weights from."""

from pathlib import Path

import pytest

from services.executor.engines.weight_files import weight_files
from shared.errors import RefusedError


def write(directory: Path, *names: str) -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_bytes(b"weights")
    return [directory / name for name in names]


def test_weights_are_read_without_second_copy(tmp_path: Path) -> None:
    model = tmp_path / "m"
    wanted = write(model, "model-1-of-2.safetensors", "model-2-of-2.safetensors")
    write(model, "consolidated.safetensors", "pytorch_model.bin", "config.json")

    assert weight_files("m", (tmp_path,), ()) == tuple(wanted)


def test_what_is_there_in_one_form_alone_is_read(tmp_path: Path) -> None:
    (only,) = write(tmp_path / "m", "consolidated.00.pth")

    assert weight_files("m", (tmp_path,), ()) == (only,)


def test_all_parts_of_a_file_are_read(tmp_path: Path) -> None:
    parts = write(tmp_path, "m-00001-of-00002.gguf", "m-00002-of-00002.gguf")
    write(tmp_path, "other-00001-of-00002.gguf")

    assert weight_files("m-00001-of-00002.gguf", (tmp_path,), ()) == tuple(parts)


def test_hub_model_is_read_from_newest_snapshot(tmp_path: Path) -> None:
    cached = tmp_path / "models--a--model"
    write(cached / "snapshots" / "old", "model.safetensors")
    (blob,) = write(cached / "blobs", "0123")
    newest = cached / "snapshots" / "new"
    newest.mkdir()
    (newest / "model.safetensors").symlink_to(blob)
    write(cached / "refs")
    (cached / "refs" / "main").write_text("new")

    assert weight_files("a/model", (), (tmp_path / "absent", tmp_path)) == (
        newest / "model.safetensors",
    )


@pytest.mark.parametrize("revision", ["../../../else", "", "gone"])
def test_a_reference_that_leads_elsewhere_is_none(tmp_path: Path, revision: str) -> None:
    write(tmp_path / "else", "model.safetensors")
    refs = tmp_path / "hub" / "models--a--model" / "refs"
    write(refs)
    (refs.parent / "snapshots").mkdir()
    (refs / "main").write_text(revision)

    assert weight_files("a/model", (), (tmp_path / "hub",)) == ()


def test_absent_model_has_no_weight_files(
    tmp_path: Path,
) -> None:
    assert weight_files("a/model", (tmp_path,), (tmp_path,)) == ()
    with pytest.raises(RefusedError):
        weight_files("/etc", (tmp_path,), ())
