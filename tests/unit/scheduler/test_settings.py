"""Which new nodes are admitted by themselves."""

import pytest

from services.scheduler.settings import SchedulerSettings

LAN = "nats://10.0.0.1:4222"


@pytest.mark.parametrize(
    ("nats_url", "named", "want"),
    [
        pytest.param("nats://user:secret@127.0.0.1:4222", None, True, id="loopback"),
        pytest.param("nats://[::1]:4222", None, True, id="loopback, IPv6"),
        pytest.param(LAN, None, False, id="a bus that others reach"),
        pytest.param("nats://[::1]:1,nats://127.0.0.1:2", None, True, id="all on loopback"),
        pytest.param(f"nats://127.0.0.1:4222,{LAN}", None, False, id="others reach the second"),
        pytest.param(LAN, "beta, alpha", True, id="named"),
        pytest.param(LAN, "alpha-2", False, id="another is named"),
        pytest.param(LAN, "*", True, id="every node"),
        pytest.param("nats://127.0.0.1:4222", "", False, id="none, though on loopback"),
    ],
)
def test_new_node_is_admitted_on_loopback_or_by_name(
    nats_url: str, named: str | None, want: bool
) -> None:
    assert SchedulerSettings(nats_url=nats_url, admit_nodes=named).admits("alpha") is want
