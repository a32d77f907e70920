"""`backup` says in a sentence what it cannot work on."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from schemas.errors import ErrorCode
from services.cli.command_line import cli
from services.cli.failures import CommandFailed

TIME = "2026-11-28T09:30:00"


@pytest.mark.parametrize(
    ("dsn", "code", "sentence"),
    [
        ("postgresql://a@127.0.0.1:1/x", ErrorCode.UNAVAILABLE, "the database cannot be read"),
        ("nonsense", ErrorCode.BAD_REQUEST, "--postgres: expected postgresql://"),
    ],
)
def test_fence_names_a_database_it_cannot_read(dsn: str, code: ErrorCode, sentence: str) -> None:
    result = CliRunner().invoke(cli, ["backup", "fence", "--postgres", dsn, "--restored-to", TIME])

    assert isinstance(result.exception, CommandFailed)
    assert result.exception.code is code
    assert str(result.exception).startswith(sentence)


def test_backups_of_an_empty_directory_are_none(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["backup", "list", "--directory", str(tmp_path)])

    assert (result.exit_code, result.output) == (0, f"no backups in {tmp_path}\n")


def test_unreadable_backup_is_listed_with_its_problem(tmp_path: Path) -> None:
    (tmp_path / "cut.zip").write_bytes(b"PK")

    result = CliRunner().invoke(cli, ["backup", "list", "--directory", str(tmp_path)])

    assert result.exit_code == 0
    assert "is no whole backup" in result.output
