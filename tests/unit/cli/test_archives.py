"""Exports as files."""

from pathlib import Path

from click.testing import CliRunner

from services.cli.commands.archives import import_command
from shared.archives.tar import LARGEST_BYTES


def test_an_export_that_is_too_large_to_import_says_what_to_do(tmp_path: Path) -> None:
    large = tmp_path / "task.tar"
    with large.open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)

    result = CliRunner().invoke(import_command, [str(large)])

    told = f"{result.output} {result.exception}"
    assert result.exit_code != 0
    assert "at most 64 MiB; `gpusteward export experiment`" in told
