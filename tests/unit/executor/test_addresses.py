"""Where engines of this host are reached from other nodes."""

import socket
from pathlib import Path

import pytest

from services.executor.host import addresses
from services.executor.host.addresses import engine_address, free_port_at, own_address
from tests.support.worlds.executor import make_settings


def test_on_a_bus_of_this_host_it_is_loopback() -> None:
    assert own_address("nats://user:password@127.0.0.1:4222") == "127.0.0.1"
    assert own_address("nats://127.0.0.1") == "127.0.0.1"


def test_other_nodes_reach_us_beside_a_server_here(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {"here": "127.0.0.1", "cut-off": None, "there": "10.0.0.7"}
    monkeypatch.setattr(addresses, "_address_towards", lambda server: ways[server.host])

    assert own_address("nats://here,nats://cut-off,nats://there") == "10.0.0.7"
    assert own_address("nats://cut-off,nats://here") == "127.0.0.1"
    assert own_address("nats://cut-off") is None


def test_without_a_way_to_the_bus_nobody_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror("unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    assert own_address("nats://nowhere.example:4222") is None


async def test_an_operator_knows_better(tmp_path: Path) -> None:
    settings = make_settings("nats://127.0.0.1:4222", tmp_path, address="gpu-7.example.org")

    assert await engine_address(settings) == "gpu-7.example.org"


@pytest.mark.parametrize("address", ["127.0.0.1", "192.0.2.1"], ids=["ours", "translated"])
def test_free_port_can_be_listened_on(address: str) -> None:
    port = free_port_at(address)

    with socket.create_server(("127.0.0.1", port)) as server:
        assert server.getsockname()[1] == port
