"""GPUs joined to pods, from a kubelet that comes, hangs, goes and comes back."""

from functools import partial
from pathlib import Path
from typing import Any

import certifi
import pytest
from aiohttp import web

from schemas.telemetry.readings import GpuPod
from services.telemetry import pods
from services.telemetry.app import create_service
from services.telemetry.domain.pods import PodDevices
from services.telemetry.kubernetes import pod_resources
from services.telemetry.kubernetes.resource_slices import ClusterApi
from services.telemetry.settings import TelemetrySettings
from shared.testing import eventually, short_directory
from tests.support.fakes.kubelet import GOLDEN, FakeKubelet, encoded, encoded_ids
from tests.support.http_server import serving
from tests.support.worlds.telemetry_client import NODE, watching

LLAMA = GpuPod("serving", "llama-0", "ome-container")


async def test_pods_are_known_while_kubelet_answers(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods, "LIST_SECONDS", 0.1)
    monkeypatch.setattr(pod_resources, "ANSWER_TIMEOUT_SECONDS", 0.5)
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
                found = watcher.samples[-1].gpus[0].pods
                return found and tuple(
                    GpuPod(each.namespace, each.pod, each.container) for each in found
                )

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


def listed(*names: str) -> dict[str, Any]:
    return {
        "items": [
            {
                "metadata": {
                    "name": name,
                    "namespace": "serving",
                    "uid": f"00000000-0000-0000-0000-00000000000{number}",
                    "labels": {"pod-template-hash": "abc"},
                    "ownerReferences": [
                        {"kind": "ReplicaSet", "name": "llama-abc", "controller": True}
                    ],
                }
            }
            for number, name in enumerate(names, 1)
        ]
    }


async def test_a_share_is_told_with_its_part_and_its_owner(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The apiserver is a stand-in that tells metadata alone."""
    monkeypatch.setattr(pods, "LIST_SECONDS", 0.1)
    asked: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.path_qs, request.headers["Accept"].split(";")[1]))
        if request.path == "/api/v1/nodes/worker-1":
            labels = {"nvidia.com/gpu.sharing-strategy": "mps"}
            return web.json_response({"metadata": {"name": "worker-1", "labels": labels}})
        return web.json_response(listed("llama-0", "llama-1"))

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with serving(app) as address:
        with short_directory() as directory:
            (directory / "token").write_text("secret")
            monkeypatch.setattr(
                "services.telemetry.app.ClusterApi",
                partial(
                    ClusterApi,
                    address=address,
                    token_file=directory / "token",
                    authority_file=Path(certifi.where()),
                ),
            )
            kubelet = FakeKubelet(directory / "kubelet.sock")
            settings = TelemetrySettings(
                source="simulated",
                simulate=True,
                nats_url=nats_url,
                node_id=NODE,
                interval_seconds=0.1,
                pod_resources_socket=str(kubelet.socket),
                kubernetes_node="worker-1",
                kubernetes_cuda_labels=False,
                metrics=False,
            )
            async with watching(nats_url) as watcher, create_service(settings).running():
                await watcher.samples_beyond(1)
                uuid = watcher.samples[-1].gpus[0].uuid
                shares = [("nvidia.com/gpu", f"{uuid}::{number}") for number in range(4)]
                kubelet.allocatable = encoded_ids(shares)
                kubelet.answer = encoded(
                    [
                        PodDevices(pod=GpuPod("serving", name, "main"), device_ids=ids)
                        for name, ids in (
                            ("llama-0", (f"{uuid}::0", f"{uuid}::1")),
                            ("llama-1", (f"{uuid}::3",)),
                        )
                    ]
                )
                with kubelet.serving():
                    await eventually(
                        lambda: bool(watcher.samples[-1].gpus[0].pods), what="the pods"
                    )
                    reading = watcher.samples[-1].gpus[0]

    assert reading.pods is not None
    assert [(each.pod, each.kind, each.percent, each.owner) for each in reading.pods] == [
        ("llama-0", "mps", 50, "Deployment/llama"),
        ("llama-1", "mps", 25, "Deployment/llama"),
    ]
    # Metadata, of this node's pods, once.
    assert sorted(asked) == [
        ("/api/v1/nodes/worker-1", "as=PartialObjectMetadata"),
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Dworker-1", "as=PartialObjectMetadataList"),
    ]
