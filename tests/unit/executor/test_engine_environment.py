"""What an engine's environment has beside its settings."""

import pytest

from services.executor.runtimes.engine_process import past_proxies

PROXY = "http://proxy:3128"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "ALL_PROXY"])
def test_loopback_is_excepted_from_a_proxy(name: str) -> None:
    found = past_proxies({name: PROXY, "NO_PROXY": ".corp.example, localhost"})

    excepted = ".corp.example,localhost,127.0.0.1,::1"
    assert found == {name: PROXY, "NO_PROXY": excepted, "no_proxy": excepted}


def test_without_a_proxy_nothing_is_excepted() -> None:
    assert past_proxies({"PATH": "/bin"}) == {"PATH": "/bin"}
