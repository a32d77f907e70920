"""On a host with other people a loopback address asks for a token; its user's clients find it."""

import os
import pwd
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from schemas.gateway.tokens import Role
from services.cli.commands.platform import platform
from services.cli.commands.platform.platform import up
from services.cli.failures import CommandFailed
from services.cli.local_platform import other_users
from services.cli.local_platform.options import tokens_file
from shared.client.discovery import Address, find_address
from shared.lifecycle import DataDirectoryLock
from shared.local_platform.platform import PlatformOptions
from shared.local_platform.tokens import OIDC_ISSUER_VARIABLE, digest_of, read_tokens
from shared.paths import DataDirectory, Endpoint
from tests.support.ports import free_port

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104  # an address to ask about


def account(name: str, uid: int, shell: str = "/bin/bash") -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, "", f"/home/{name}", shell))


def test_other_users_have_login_and_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed = [
        account("root", 0),
        account("postgres", 105),
        account("me", 1000),
        account("sudoer", 1001),
        account("bob", 1002),
        account("service", 1003, "/usr/sbin/nologin"),
        account("ftp", 1004, "/bin/false"),
        account("nobody", 65_534),
    ]
    of_directory_service = account("carol", 70_001)
    monkeypatch.setattr(pwd, "getpwall", lambda: listed)
    monkeypatch.setattr(pwd, "getpwuid", {70_001: of_directory_service}.__getitem__)
    monkeypatch.setattr(other_users, "_owners", lambda: {0, 1000, 70_001, 70_002})
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setenv("SUDO_UID", "1001")

    assert other_users.other_users() == ["bob", "carol"]
    monkeypatch.delenv("SUDO_UID")
    assert other_users.other_users() == ["bob", "carol", "sudoer"]


def test_root_only_host_has_no_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwall", lambda: [account("root", 0), account("nobody", 65_534)])
    monkeypatch.setattr(other_users, "_owners", lambda: {0})
    monkeypatch.setattr(os, "getuid", lambda: 0)

    assert other_users.other_users() == []


def test_no_token_is_made_where_none_is_wanted(tmp_path: Path) -> None:
    assert tokens_file(LOOPBACK, tmp_path, {}, on_loopback=False) is None
    assert list(tmp_path.iterdir()) == []


def test_admin_token_is_made_beside_a_provider(tmp_path: Path) -> None:
    environ = {OIDC_ISSUER_VARIABLE: "https://id.example"}

    assert tokens_file(LOOPBACK, tmp_path / "data", environ, on_loopback=False) is not None
    assert DataDirectory(tmp_path / "data").read_admin_token() is not None


def test_admin_token_is_private_and_stable(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")

    path = tokens_file(LOOPBACK, directory.root, {}, on_loopback=True)
    first = directory.read_admin_token()
    tokens_file(LOOPBACK, directory.root, {}, on_loopback=True)

    assert path is not None
    assert first is not None
    assert directory.read_admin_token() == first
    assert [(t.token_sha256, t.role) for t in read_tokens(path)] == [(digest_of(first), Role.ADMIN)]
    assert first not in path.read_text()
    for secret in (path, directory.admin_token_path):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_token_is_made_at_every_address_if_told_so(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="other machines reach"):
        tokens_file(EVERYWHERE, tmp_path, {}, on_loopback=True)

    path = tokens_file(EVERYWHERE, tmp_path, {}, anywhere=True)

    assert path is not None
    assert [token.role for token in read_tokens(path)] == [Role.ADMIN]
    assert DataDirectory(tmp_path).read_admin_token() is not None


def test_token_missing_in_file_is_made_anew(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    path = tokens_file(LOOPBACK, tmp_path, {}, on_loopback=True)
    assert path is not None
    before = directory.read_admin_token()
    path.unlink()

    tokens_file(LOOPBACK, tmp_path, {}, on_loopback=True)

    after = directory.read_admin_token()
    assert after != before
    assert after is not None
    assert [(t.token_sha256, t.role) for t in read_tokens(path)] == [(digest_of(after), Role.ADMIN)]


def test_unstorable_token_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shared.local_platform.tokens.write_atomically", full)

    with pytest.raises(CommandFailed, match="No space left on device"):
        tokens_file(LOOPBACK, tmp_path, {}, on_loopback=True)


def test_no_token_is_made_beside_foreign_platform(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.prepare()

    with DataDirectoryLock(directory), pytest.raises(CommandFailed, match="is held by process"):
        tokens_file(LOOPBACK, tmp_path, {}, on_loopback=True)

    assert directory.read_admin_token() is None


def test_token_is_sent_only_to_own_platform(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    tokens_file(LOOPBACK, tmp_path, {}, on_loopback=True)
    token = directory.read_admin_token()
    directory.write_endpoint(Endpoint(pid=os.getpid(), api_url="http://ours"))
    environ = {"GPUSTEWARD_DATA_DIR": str(tmp_path)}

    assert find_address(environ=environ) == Address("http://ours", token, is_supervised=True)
    assert find_address("http://other", environ=environ) == Address("http://other", None)
    assert find_address(environ={**environ, "GPUSTEWARD_URL": "http://env"}).token is None
    assert find_address(token="given", environ=environ).token == "given"


@pytest.mark.parametrize(
    ("others", "chosen", "says"),
    [
        (
            ["ann", "bob", "cy", "di"],
            [],
            "people have accounts on this host: ann, bob and 2 more\n",
        ),
        ([], ["--local-token", "always"], "the API asks for a token\n"),
        (["ann"], ["--local-token", "never"], ""),
        ([], [], ""),
    ],
)
def test_up_names_token_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[str], chosen: list[str], says: str
) -> None:
    monkeypatch.delenv("GPUSTEWARD_LOCAL_TOKEN", raising=False)
    monkeypatch.setattr(platform, "other_users", lambda: others)
    started: list[PlatformOptions] = []
    monkeypatch.setattr(platform, "run_until_stopped", started.append)

    result = CliRunner().invoke(
        up, ["--data-dir", str(tmp_path), "--port", str(free_port()), *chosen]
    )

    assert (result.exit_code, says in result.output) == (0, True)
    assert (f"finds yours by itself in {tmp_path}/admin_token" in result.output) is bool(says)
    assert [bool(options.tokens_file) for options in started] == [bool(says)]
