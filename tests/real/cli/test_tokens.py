"""`gpusteward token` and `audit`, at a real gateway and without one."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from services.cli.command_line import cli
from shared.local_platform.tokens import digest_of, read_tokens
from tests.support.processes.command_line import Ended, run_command
from tests.support.worlds.gateway import gateway

SECRET = "an-admins"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GPUSTEWARD_URL", "GPUSTEWARD_TOKEN", "GPUSTEWARD_GATEWAY_TOKENS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPUSTEWARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "80")


def typed(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


async def test_a_token_is_made_shown_used_and_revoked(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps([{"token_sha256": digest_of(SECRET), "role": "admin"}]))
    async with gateway(nats_url, postgres_dsn, tokens_file=str(path)) as api:

        async def ask(*arguments: str, token: str = SECRET) -> Ended:
            known = {"GPUSTEWARD_URL": api.url, "GPUSTEWARD_TOKEN": token}
            return await run_command(*arguments, environment={**os.environ, **known})

        named = ("--name", "cli-ci", "--namespace", "a", "--namespace", "b", "--expires", "30d")
        made = await ask("token", "create", "--role", "submitter", *named)
        secret = made.out.strip()
        own = await ask("token", "list", token=secret)
        refused = await ask("token", "create", "--role", "viewer", token=secret)
        listed = await ask("token", "list")
        revoked = await ask("token", "revoke", "cli-ci")
        unknown = await ask("audit", token=secret)
        log = await ask("audit", "--limit", "1")

    assert [line.split()[1] for line in own.out.splitlines()[1:]] == ["cli-ci"]
    (line,) = (line.split() for line in listed.out.splitlines() if "cli-ci" in line)
    assert line[1:6] == ["cli-ci", "submitter", "a,b", "ok", "30d"]
    assert secret not in listed.out
    assert (made.code, refused.code, unknown.code) == (0, 4, 4)
    assert "expected an admin's token" in refused.err
    assert revoked.out == f"token {line[0]} (cli-ci) counts no more\n"
    assert "was revoked" in unknown.err
    assert "DELETE /tokens/" in log.out


def test_without_platform_token_goes_into_file(tmp_path: Path) -> None:
    made = typed("token", "create", "--role", "viewer", "--namespace", "a")
    named = typed("token", "create", "--name", "ci")

    (entry,) = read_tokens(tmp_path / "data" / "tokens.json")
    assert (entry.token_sha256, entry.namespace) == (digest_of(made.stdout.strip()), "a")
    assert (named.exit_code, "start the platform" in named.stderr) == (2, True)


def test_named_token_file_beats_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "named.json"
    monkeypatch.setenv("GPUSTEWARD_GATEWAY_TOKENS_FILE", str(path))
    monkeypatch.setenv("GPUSTEWARD_URL", "http://127.0.0.1:1")

    made = typed("token", "create")

    assert [each.token_sha256 for each in read_tokens(path)] == [digest_of(made.stdout.strip())]
