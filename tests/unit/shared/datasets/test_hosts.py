import pytest

from shared.datasets.bounds import DatasetRefused
from shared.datasets.hosts import HOSTS_SETTING, AllowedHosts, is_public

HOSTS = AllowedHosts.of("data.example, files.example:8443", "intern.example,[::1]:8000")


@pytest.mark.parametrize(
    "url",
    [
        "https://data.example/a.json",
        "http://DATA.example./a.json",
        "https://data.example:443/a",
        "https://files.example:8443/a",
        "http://intern.example/a",
        "http://[::1]:8000/a",
    ],
)
def test_address_of_an_allowed_host_may_be_asked(url: str) -> None:
    assert HOSTS.check_url(url).scheme in {"http", "https"}


@pytest.mark.parametrize(
    "url",
    [
        "https://other.example/a",
        "https://data.example:8443/a",
        "https://files.example/a",
        "https://data.example.evil.example/a",
        "https://user:secret@data.example/a",
        "https://data.example@evil.example/a",
        "file:///etc/passwd",
        "ftp://data.example/a",
        "https:///a",
        "http://[::1/a",
        "http://data.example:port/a",
        "data.example/a",
        "http://169.254.169.254/latest",
    ],
)
def test_any_other_address_is_refused(url: str) -> None:
    with pytest.raises(DatasetRefused) as refusal:
        HOSTS.check_url(url)

    assert refusal.value.path == "$.benchmark.dataset.url"


def test_refusal_says_what_an_operator_sets() -> None:
    with pytest.raises(DatasetRefused, match=f"{HOSTS_SETTING}=data.example"):
        AllowedHosts().check_url("https://data.example/a")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),  # noqa: S104  # not bound
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00:ec2::254", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("no address", False),
    ],
)
def test_private_addresses_are_told_from_public_ones(address: str, expected: bool) -> None:
    assert is_public(address) is expected


def test_private_address_is_only_for_a_host_that_may() -> None:
    HOSTS.check_address(HOSTS.check_url("http://intern.example/a"), "10.0.0.7")
    HOSTS.check_address(HOSTS.check_url("https://data.example/a"), "8.8.8.8")
    with pytest.raises(DatasetRefused, match="private to this host"):
        HOSTS.check_address(HOSTS.check_url("https://data.example/a"), "10.0.0.7")
