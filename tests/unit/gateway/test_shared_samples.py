"""Clients that see the same of a sample are sent the same bytes, and others never theirs."""

from typing import Any, cast

import msgspec

from schemas.gateway.tokens import Role
from schemas.gateway.views import GpuMetrics
from schemas.telemetry.readings import GpuProcess
from services.gateway.context import Gateway
from services.gateway.domain.access import FULL_ACCESS, Identity
from services.gateway.live_state import ReceivedSample
from services.gateway.streams.sockets import MetricsFilter
from tests.support.worlds.gateway import NODE, make_sample

NO_GATEWAY = cast(Gateway, None)  # asked only for what an experiment, task or namespace holds
SUBMITTER = Identity(role=Role.SUBMITTER, namespace="team-a")


def a_sample() -> ReceivedSample:
    return ReceivedSample(make_sample(7, processes=(GpuProcess(pid=4, name="secret-job"),)), at=0.0)


def sent(wanted: MetricsFilter, received: ReceivedSample, **told: Any) -> GpuMetrics:
    part = wanted.of_sample(received, told.get("age_seconds", 0.0), told.get("skipped", 0))
    assert part is not None
    return msgspec.json.decode(part.data, type=GpuMetrics)


def names(metrics: GpuMetrics) -> list[str | None]:
    return [each.name for gpu in metrics.gpus for each in gpu.processes or ()]


def uuids(metrics: GpuMetrics) -> list[str]:
    return [gpu.uuid for gpu in metrics.gpus]


def test_alike_clients_share_one_encoding() -> None:
    received = a_sample()
    first, second = (MetricsFilter(NO_GATEWAY, FULL_ACCESS) for _ in range(2))

    assert first.of_sample(received, 0.0, 0) is second.of_sample(received, 0.0, 0)


def test_clients_do_not_affect_each_others_samples() -> None:
    received = a_sample()
    everything = MetricsFilter(NO_GATEWAY, FULL_ACCESS)
    namespaces = MetricsFilter(NO_GATEWAY, SUBMITTER)
    one_gpu = MetricsFilter(NO_GATEWAY, FULL_ACCESS, device_uuid="GPU-1")
    elsewhere = MetricsFilter(NO_GATEWAY, FULL_ACCESS, node_id="node-b")
    nothing_held = MetricsFilter(NO_GATEWAY, FULL_ACCESS, namespace="team-a")
    holding = MetricsFilter(
        NO_GATEWAY, FULL_ACCESS, namespace="team-a", devices=frozenset({(NODE, "GPU-0")})
    )

    for _ in range(2):
        assert names(sent(everything, received)) == ["secret-job"] * 2
        assert not any(names(sent(namespaces, received)))
        assert uuids(sent(one_gpu, received)) == ["GPU-1"]
        assert uuids(sent(holding, received)) == ["GPU-0"]
        assert elsewhere.of_sample(received, 0.0, 0) is None
        assert nothing_held.of_sample(received, 0.0, 0) is None


def test_slow_client_gets_its_own_age_and_gap() -> None:
    received = a_sample()
    wanted = MetricsFilter(NO_GATEWAY, FULL_ACCESS)

    told = [
        sent(wanted, received),
        sent(wanted, received, age_seconds=0.5, skipped=3),
        sent(wanted, received),
    ]

    assert [(each.age_seconds, each.skipped) for each in told] == [(0.0, 0), (0.5, 3), (0.0, 0)]
