"""What a platform is started with when nobody says."""

import socket
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from schemas.errors import ErrorCode
from schemas.gateway.tokens import Role, Token
from services.cli.commands.platform.platform import agent, up
from services.cli.failures import CommandFailed
from services.cli.local_platform.options import (
    cause_of,
    check_port,
    claim_port,
    has_gpu_devices,
    host_and_port,
    tokens_file,
)
from shared.local_platform.tokens import create_token, digest_of, read_tokens


@pytest.mark.parametrize(
    ("command", "further"),
    [(up, []), (agent, ["--credentials", __file__])],
    ids=["up", "agent"],
)
def test_wrong_nats_address_is_a_usage_error(command: click.Command, further: list[str]) -> None:
    given = ["--nats", "nats://a:4222,nats://b:port", *further]

    result = CliRunner().invoke(command, given)

    assert result.exit_code == 2
    assert "nats://b:port" in result.output
    assert "in place 2 of 2" in " ".join(result.output.split())


def test_busy_port_is_replaced_by_free_one() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]

        other, claim = claim_port(port)

    assert claim is not None
    with claim:
        assert other != port


def test_busy_requested_port_is_refused() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]

        with pytest.raises(CommandFailed, match=f"port {port} of 127.0.0.1 is taken"):
            check_port(port, "127.0.0.1")

    check_port(port, "127.0.0.1")


def test_concurrent_platforms_get_two_ports() -> None:
    """Neither listens yet when the other asks."""
    first_port, first = claim_port(0)
    assert first is not None

    with first:
        second_port, second = claim_port(first_port)
    assert second is not None
    with second:
        assert first_port != second_port
        third_port, third = claim_port(first_port)
        assert third is not None
        third.close()

    assert third_port == first_port


EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  # not listened on


def test_public_address_needs_token_and_says_how(
    tmp_path: Path,
) -> None:
    with pytest.raises(CommandFailed) as refused:
        tokens_file(EVERY_ADDRESS, tmp_path, {})

    assert str(refused.value) == (
        "other machines reach 0.0.0.0, so that the API needs tokens: make one with"
        f" `gpusteward token create --data-dir {tmp_path}`"
    )


def test_made_token_is_known_to_gateway(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"

    first = create_token(path, Role.ADMIN, "default")
    second = create_token(path, Role.VIEWER, "team-a")

    assert read_tokens(path) == (
        Token(token_sha256=digest_of(first), role=Role.ADMIN),
        Token(token_sha256=digest_of(second), role=Role.VIEWER, namespace="team-a"),
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert tokens_file(EVERY_ADDRESS, tmp_path, {}) == path
    assert tokens_file("127.0.0.1", tmp_path, {}) is None


@pytest.mark.parametrize("content", ["[]", "{", '[{"role": "admin"}]'])
def test_unusable_token_file_is_refused_before_start(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(content)

    with pytest.raises(CommandFailed, match=str(path)):
        tokens_file("localhost", tmp_path, {"GPUSTEWARD_GATEWAY_TOKENS_FILE": str(path)})


def test_foreign_address_is_refused_before_start(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"192\.0\.2\.1 is no address of this machine"):
        tokens_file("192.0.2.1", tmp_path, {})


@pytest.mark.parametrize(
    ("content", "want"),
    [
        pytest.param(
            '{"event": "x"}\n{"exception": "Trace\\nOSError: in use"}\n', "OSError: in use"
        ),
        pytest.param('{"event": "loop_failed"}\n', "loop_failed"),
        pytest.param("FATAL: no space left\n", "FATAL: no space left"),
        pytest.param("", ""),
    ],
)
def test_cause_is_last_log_message(tmp_path: Path, content: str, want: str) -> None:
    (tmp_path / "log").write_text(content)

    assert cause_of(tmp_path / "log") == want
    assert cause_of(None) == ""


@pytest.mark.parametrize(
    ("names", "want"),
    [
        pytest.param(["nvidia0", "nvidiactl"], True, id="a device node of a GPU"),
        pytest.param(["nvidiactl", "nvidia-uvm", "null"], False, id="the driver without a GPU"),
        pytest.param([], False, id="nothing"),
    ],
)
def test_gpus_are_found_by_their_device_nodes(tmp_path: Path, names: list[str], want: bool) -> None:
    for name in names:
        (tmp_path / name).touch()

    assert has_gpu_devices(tmp_path) is want


@pytest.mark.parametrize(
    ("text", "want"),
    [("10.0.0.1:4222", ("10.0.0.1", 4222)), ("[::1]:4222", ("::1", 4222))],
)
def test_host_and_port_are_parted(text: str, want: tuple[str, int]) -> None:
    assert host_and_port(text) == want


@pytest.mark.parametrize("text", ["4222", "host:", ":4222", "host:0", "host:x", "host:70000"])
def test_address_without_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed) as seen:
        host_and_port(text)

    assert seen.value.code is ErrorCode.BAD_REQUEST
