"""Which lists of NATS servers are taken, and what the others are told."""

import pytest

from services.gateway.settings import GatewaySettings
from shared.nats_addresses import (
    are_on_loopback,
    beyond_loopback,
    read_nats_addresses,
    with_host_for_wildcards,
    without_logins,
)
from shared.settings import CommonSettings, SettingsError, load_settings


def places(text: str) -> list[tuple[str, int]]:
    return [(address.host, address.port) for address in read_nats_addresses(text)]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("nats://a", [("a", 4222)]),
        ("a:4223", [("a", 4223)]),
        ("nats://a:1,nats://b:2, nats://c", [("a", 1), ("b", 2), ("c", 4222)]),
        ("tls://A.example.org:1,nats://[::1]:2", [("a.example.org", 1), ("::1", 2)]),
        ("ws://a,wss://b/nats", [("a", 80), ("b", 443)]),
        ("nats://u:p@a:1,nats://token@b", [("a", 1), ("b", 4222)]),
        ("nats://nats_1:4222,nats://0.0.0.0:4222", [("nats_1", 4222), ("0.0.0.0", 4222)]),  # noqa: S104
    ],
)
def test_list_is_read_in_order(text: str, want: list[tuple[str, int]]) -> None:
    assert places(text) == want


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "got ''"),
        ("nats://", "got 'nats://'"),
        ("nats://a,", "got '' in place 2 of 2"),
        ("nats://a,,nats://b", "got '' in place 2 of 3"),
        ("nats://a nats://b", "got 'nats://a nats://b'"),
        ("nats://a;nats://b", "got 'nats://a;nats://b'"),
        ("nats://a:4222/x", "got 'nats://a:4222/x'"),
        ("nats://a:port,nats://b", "got 'nats://a:port' in place 1 of 2"),
        ("nats://a:70000", "got 'nats://a:70000'"),
        ("nats://a:0", "got 'nats://a:0'"),
        ("nats://[::1,nats://b", "got 'nats://[::1' in place 1 of 2"),
        ("nats://a,http://b:4222", "got 'http://b:4222' in place 2 of 2"),
    ],
)
def test_wrong_member_is_named_with_its_place(text: str, got: str) -> None:
    with pytest.raises(ValueError, match="expected the address of a NATS server") as refusal:
        read_nats_addresses(text)

    assert str(refusal.value).endswith(got)


def test_websockets_beside_plain_ones_are_refused() -> None:
    with pytest.raises(ValueError, match="all of WebSockets") as refusal:
        read_nats_addresses("nats://u:secret@a,ws://b")

    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    ["nats://u:sec,ret@a:4222", "nats://u:secret@a:port", "nats://u:secret@a,nats://secret:x"],
)
def test_refusal_shows_no_password(text: str) -> None:
    with pytest.raises(ValueError, match="expected the address") as refusal:
        read_nats_addresses(text)

    assert "sec" not in str(refusal.value).replace("several", "")
    assert "ret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "all_here", "beyond"),
    [
        ("nats://127.0.0.1:1", True, None),
        ("nats://u:p@127.0.0.1:1,nats://[::1]:2,localhost:3", True, None),
        ("nats://127.0.0.1:1,nats://10.0.0.2:1", False, "nats://10.0.0.2:1"),
        ("nats://10.0.0.1:1,nats://u:p@b:1", False, "nats://10.0.0.1:1,nats://b:1"),
    ],
)
def test_one_member_beyond_loopback_is_enough(
    text: str, all_here: bool, beyond: str | None
) -> None:
    assert are_on_loopback(text) is all_here
    assert beyond_loopback(text) == beyond


def test_each_wildcard_gets_the_host() -> None:
    text = "nats://0.0.0.0:1,nats://b:2,nats://u:p@[::]:3,nats://0.0.0.0"

    moved = with_host_for_wildcards(text, "fd00::1")

    assert moved == "nats://[fd00::1]:1,nats://b:2,nats://u:p@[fd00::1]:3,nats://[fd00::1]:4222"


def test_shown_list_has_no_logins() -> None:
    assert without_logins("nats://u:p@a:1, b:2") == "nats://a:1,b:2"


@pytest.mark.parametrize(
    ("kind", "service", "variable"),
    [
        (CommonSettings, "results", "GPUSTEWARD_NATS_URL"),
        (GatewaySettings, "gateway", "GPUSTEWARD_GATEWAY_NODE_NATS_URL"),
    ],
)
def test_setting_that_no_client_takes_is_named(
    kind: type[CommonSettings], service: str, variable: str
) -> None:
    with pytest.raises(SettingsError) as refusal:
        load_settings(kind, service, {variable: "nats://a:4222;nats://b:4222"})

    assert str(refusal.value).startswith(f"{variable}: expected the address of a NATS server")


def test_setting_takes_a_list() -> None:
    urls = "tls://a:4222,tls://b:4222"

    settings = load_settings(CommonSettings, "results", {"GPUSTEWARD_NATS_URL": urls})

    assert settings.nats_url == urls
