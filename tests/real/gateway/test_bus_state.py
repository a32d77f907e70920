"""What readiness and metrics say of a NATS cluster that has lost a server."""

from pathlib import Path

import pytest
from nats.js.api import ConsumerConfig

from schemas.base import subject_for
from shared.messaging.codec import encode
from shared.messaging.stream_names import EVENTS, SAMPLES
from shared.testing import eventually
from tests.support.nats_cluster import nats_cluster
from tests.support.worlds.gateway import gateway, make_task_started

SETTINGS = {"stream_replicas": "1", "sample_stream_replicas": "5"}

# nats-py leaves the socket to a server that dies while it logs in to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")


async def test_streams_that_do_not_answer_are_missing(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOOK_SECONDS", "ANSWER_SECONDS", "IDLE_SILENT_SECONDS"):
        monkeypatch.setattr(f"services.gateway.bus_watch.{name}", 0.3)
    monkeypatch.setattr("shared.messaging.stream_requests.ANSWER_SECONDS", 0.3)
    async with nats_cluster(tmp_path / "nats") as cluster, cluster.client() as client:
        url = cluster.authenticated_url
        async with gateway(url, postgres_dsn, **SETTINGS) as api:
            leader = await cluster.leader_of(client, EVENTS)
            _, well = await api.get("/readyz")

            await leader.crash()

            async def is_told() -> bool:
                _, problem = await api.get("/readyz")
                return EVENTS in problem["detail"]

            await eventually(is_told, what="the silent stream")
            _, problem = await api.get("/readyz")
            _, metrics = await api.get("/metrics")

    assert "streams" not in well["details"]["missing"]
    assert "streams" in problem["details"]["missing"]
    assert f'gpusteward_stream_silent_seconds{{stream="{EVENTS}"}}' in metrics
    assert f'gpusteward_stream_lacks_replicas{{stream="{EVENTS}"}} 0.0' in metrics
    assert f'gpusteward_stream_lacks_replicas{{stream="{SAMPLES}"}} 1.0' in metrics


async def test_consumer_that_stands_still_is_missing(
    nats_url: str, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.bus_watch.LOOK_SECONDS", 0.1)
    monkeypatch.setattr("shared.messaging.consumer_progress.IDLE_SILENT_SECONDS", 0.3)
    silent = ConsumerConfig(durable_name="results_record_finished")
    unknown = ConsumerConfig(durable_name="of_an_earlier_release")
    async with gateway(nats_url, postgres_dsn) as api:
        jetstream = api.owners.client.jetstream()
        for consumer in (silent, unknown):
            await jetstream.add_consumer(EVENTS, consumer)
        _, well = await api.get("/readyz")
        for event in (make_task_started(), make_task_started()):
            await jetstream.publish(subject_for(event), encode(event))

        async def is_told() -> bool:
            _, problem = await api.get("/readyz")
            return "consumers" in problem["details"]["missing"]

        await eventually(is_told, what="the silent consumer")
        _, problem = await api.get("/readyz")

    assert "consumers" not in well["details"]["missing"]
    assert f"though events wait: {silent.durable_name}" in problem["detail"]
