"""Exports as files."""

from pathlib import Path

from services.cli.commands.tasks.archives import _packed
from shared.archives.tar import packed


def test_a_folder_is_sent_as_the_tar_file_that_it_was(tmp_path: Path) -> None:
    files = {"experiments/0001/experiment.json": b"[]", "task.json": b"{}"}
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)

    with _packed(tmp_path) as file:
        sent = file.read_bytes()

    assert sent == b"".join(packed(files.items()))
    assert not file.exists()
