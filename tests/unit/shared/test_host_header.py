"""Under which names a server answers."""

import pytest

from shared.host_header import host_names, is_known_host


@pytest.mark.parametrize(
    ("header", "known"),
    [
        ("localhost", True),
        ("LOCALHOST:8080", True),
        ("127.0.0.1:1", True),
        ("[::1]:8080", True),
        ("gpu.example", True),
        ("gpu.example.evil.example", False),
        ("evil.example", False),
        ("", False),
        (None, False),
        ("[::1", False),
        ("localhost@evil.example", False),
    ],
)
def test_a_name_that_was_rebound_is_not_known(header: str | None, known: bool) -> None:
    assert is_known_host(header, host_names("127.0.0.1", [" GPU.example ", ""])) is known


@pytest.mark.parametrize("bound", ["0.0.0.0", "::"])  # noqa: S104  # only compared
def test_server_on_all_addresses_has_no_names(bound: str) -> None:
    assert host_names(bound) is None
    assert is_known_host("anything.example", host_names(bound))
    assert is_known_host(None, host_names(bound))


def test_bracketed_address_is_known_without_them() -> None:
    assert is_known_host("[2001:db8::1]:8080", host_names("[2001:db8::1]"))
