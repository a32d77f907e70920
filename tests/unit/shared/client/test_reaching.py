"""Which sentence an unreachable platform gets."""

import socket

import pytest

from shared.client.connection import _problem
from shared.client.reaching import is_this_host, unreachable


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("127.0.0.1", True),
        ("127.0.1.1", True),
        ("localhost", True),
        ("::1", True),
        (socket.gethostname().lower(), True),
        ("10.0.0.1", False),
        ("gpu-01.example.com", False),
        ("127.example.com", False),
    ],
)
def test_own_host_is_loopback_or_its_name(host: str, is_here: bool) -> None:
    assert is_this_host(host) is is_here


def test_remote_platform_is_not_told_to_start_here() -> None:
    refused = unreachable("http://10.0.0.1:8470", ConnectionRefusedError())
    late = unreachable("http://10.0.0.1:8470", TimeoutError())

    assert "runs on 10.0.0.1 and listens beyond its own 127.0.0.1" in str(refused)
    assert str(late) == "http://10.0.0.1:8470 did not answer in time"
    assert not refused.is_startable
    assert not late.is_startable


def test_an_empty_answer_is_told_as_another_servers() -> None:
    assert _problem(404, b"").detail == "an empty answer, not a GPU Steward gateway's"
    assert _problem(502, b"Bad Gateway").detail == "Bad Gateway"
