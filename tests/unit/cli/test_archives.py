"""Exports as files."""

from pathlib import Path

from services.cli.commands.tasks.archives import _pack
from shared.archives.tar import pack_tar


def test_folder_is_sent_as_its_tar_file(tmp_path: Path) -> None:
    files = {"experiments/0001/experiment.json": b"[]", "task.json": b"{}"}
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)

    with _pack(tmp_path) as file:
        sent = file.read_bytes()

    assert sent == b"".join(pack_tar(files.items()))
    assert not file.exists()
