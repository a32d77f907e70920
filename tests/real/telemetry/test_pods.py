"""GPUs joined to pods, from a kubelet that comes, hangs, goes and comes back."""

import pytest

from schemas.telemetry.readings import GpuPod
from services.telemetry import pods
from services.telemetry.app import create_service
from services.telemetry.domain.pods import PodDevices
from services.telemetry.kubernetes import pod_resources
from services.telemetry.settings import TelemetrySettings
from shared.testing import eventually, short_directory
from tests.support.fakes.kubelet import GOLDEN, FakeKubelet, encoded
from tests.support.worlds.telemetry_client import NODE, watching

LLAMA = GpuPod("serving", "llama-0", "ome-container")


async def test_pods_are_known_while_kubelet_answers(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods, "LIST_SECONDS", 0.1)
    monkeypatch.setattr(pod_resources, "ANSWER_SECONDS", 0.5)
    with short_directory() as directory:
        kubelet = FakeKubelet(directory / "kubelet.sock")
        settings = TelemetrySettings(
            source="simulated",
            simulate=True,
            nats_url=nats_url,
            node_id=NODE,
            interval_seconds=0.1,
            pod_resources_socket=str(kubelet.socket),
            metrics=False,
        )
        async with watching(nats_url) as watcher, create_service(settings).running():

            def pods_of_first() -> tuple[GpuPod, ...] | None:
                return watcher.samples[-1].gpus[0].pods

            await watcher.samples_beyond(1)
            assert pods_of_first() is None

            uuid = watcher.samples[-1].gpus[0].uuid
            kubelet.answer = encoded([PodDevices(pod=LLAMA, device_ids=(uuid,))])
            with kubelet.serving():
                await eventually(lambda: pods_of_first() == (LLAMA,), what="the pod")
                assert watcher.samples[-1].gpus[1].pods == ()

                kubelet.answer = b""
                await eventually(lambda: pods_of_first() == (), what="the pod's end")

                kubelet.hangs.set()
                await eventually(lambda: pods_of_first() is None, what="a kubelet that hangs")
                kubelet.hangs.clear()
            await eventually(lambda: pods_of_first() is None, what="a kubelet that is gone")

            kubelet.answer = GOLDEN
            with kubelet.serving():
                await eventually(lambda: pods_of_first() == (), what="others' pods")
