"""Which platform an address names, and whose token it is shown."""

import os
from pathlib import Path

import pytest

from shared.client.discovery import Address, base_url, find_address
from shared.errors import RefusedError
from shared.paths import DataDirectory, Endpoint


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("127.0.0.1:8701", "http://127.0.0.1:8701"),
        ("gpu-01/", "http://gpu-01"),
        ("[::1]:8701", "http://[::1]:8701"),
        ("https://steward.example.com/", "https://steward.example.com"),
    ],
)
def test_an_address_without_a_scheme_is_http(typed: str, url: str) -> None:
    assert base_url(typed) == url


@pytest.mark.parametrize("typed", ["ftp://host", "http://", "host:99999", "host:port", "http://[x"])
def test_invalid_address_is_refused_with_example(typed: str) -> None:
    with pytest.raises(RefusedError, match=r"such as http://127\.0\.0\.1:8470, got"):
        base_url(typed)


@pytest.mark.parametrize(
    ("typed", "is_ours"),
    [
        ("http://127.0.0.1:8701", True),
        ("127.0.0.1:8701/", True),
        ("localhost:8701", True),
        ("127.0.0.1:8702", False),
        ("https://127.0.0.1:8701", False),
        ("10.0.0.1:8701", False),
    ],
)
def test_directory_token_goes_to_its_endpoint_only(
    tmp_path: Path, typed: str, is_ours: bool
) -> None:
    directory = DataDirectory(tmp_path)
    directory.prepare()
    directory.admin_token_path.write_text("ours")
    directory.write_endpoint(Endpoint(pid=os.getpid(), api_url="http://127.0.0.1:8701"))

    found = find_address(typed, data_dir=tmp_path, environ={})

    assert found == Address(base_url(typed), "ours" if is_ours else None, is_supervised=is_ours)
