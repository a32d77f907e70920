"""What people are told when a machine joins a platform."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from services.cli.commands.platform.join import reachable
from services.cli.local_platform.joining import (
    NO_GPU,
    discovery_sentence,
    next_steps,
)

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def entry(seconds: float, **fields: Any) -> str:
    return json.dumps({"timestamp": (BEGAN + timedelta(seconds=seconds)).isoformat(), **fields})


def found(seconds: float, count: int, models: str = "") -> str:
    return entry(seconds, event="gpus_found", count=count, models=models, source="nvml")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        pytest.param(
            [found(1, 8, "8 x NVIDIA H100"), entry(2, event="service_ready"), "no JSON"],
            "8 GPUs found: 8 x NVIDIA H100 (source nvml)",
            id="some",
        ),
        pytest.param([found(1, 1, "1 x A")], "1 GPU found: 1 x A (source nvml)", id="one"),
        pytest.param([found(1, 0)], NO_GPU, id="none"),
        pytest.param([found(-9, 8), entry(1, event="x")], "not known yet", id="of an earlier run"),
    ],
)
def test_what_an_agent_has_found_is_told(tmp_path: Path, lines: list[str], says: str) -> None:
    log = tmp_path / "telemetry.log"
    log.write_text("\n".join(lines))

    assert says in discovery_sentence(log, BEGAN)


def test_without_a_log_the_gpus_are_unknown(tmp_path: Path) -> None:
    assert "not known yet" in discovery_sentence(tmp_path / "none.log", BEGAN)


@pytest.mark.parametrize(
    ("nats_url", "address", "has_warning"),
    [
        ("nats://10.0.0.1:4222", "nats://10.0.0.1:4222", False),
        ("nats://127.0.0.1:40001", "nats://HOST:4222", True),
        ("nats://127.0.0.1:4222,nats://10.0.0.2:4222", "nats://10.0.0.2:4222", False),
        ("nats://127.0.0.1:4222,nats://[::1]:4222", "nats://HOST:4222", True),
        (None, "nats://HOST:4222", False),
    ],
)
def test_steps_name_a_reachable_address(
    nats_url: str | None, address: str, has_warning: bool
) -> None:
    text = "\n".join(next_steps("alpha", Path("/data/node_alpha.json"), nats_url))

    assert f"gpusteward agent --nats {address} --credentials node_alpha.json" in text
    assert "gpusteward node admit alpha" in text
    assert ("listens on loopback alone" in text) is has_warning


@pytest.mark.parametrize(
    ("nats_url", "address"),
    [
        ("nats://10.0.0.1:4222", "nats://10.0.0.1:4222"),
        ("nats://0.0.0.0:4222", "nats://steward.lan:4222"),
        ("nats://[::]:4222", "nats://steward.lan:4222"),
        (
            "nats://0.0.0.0:4222,nats://10.0.0.2:4223",
            "nats://steward.lan:4222,nats://10.0.0.2:4223",
        ),
    ],
)
def test_bus_on_every_address_is_reached_where_the_api_is(nats_url: str, address: str) -> None:
    assert reachable(nats_url, "https://steward.lan/") == address
