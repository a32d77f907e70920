"""A cluster as OME's operators have made it ready, and what answers in place of its engines."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from shared.engines.simulated import server as simulated
from tests.support.kubernetes.api import Api
from tests.support.kubernetes.chart import until_no_namespace_ends
from tests.support.kubernetes.nodes import node_object
from tests.support.kubernetes.ome_stand_in import install_crds
from tests.support.paths import ROOT
from tests.support.ports import free_port

CLUSTER: Final = "prod"
NAMESPACE: Final = "autotuner"
MODEL: Final = "llama-3-2-1b-instruct"
OME: Final = "ome.io/v1beta1"


@asynccontextmanager
async def engine_named(*names: str) -> AsyncIterator[dict[str, str]]:
    """A simulated engine for each name that a benchmark asks for; their URLs."""
    urls: dict[str, str] = {}
    processes: list[asyncio.subprocess.Process] = []
    try:
        for name in names:
            port = free_port()
            processes.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", simulated.__name__, "--model", "m", "--alias", name),
                    *("--host", "127.0.0.1", "--port", str(port)),
                    *("--ttft-seconds", "0.002", "--tpot-seconds", "0.0005"),
                    env={"PATH": os.defpath, "PYTHONPATH": str(ROOT)},
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                )
            )
            urls[name] = f"http://127.0.0.1:{port}"
        yield urls
    finally:
        for process in processes:
            process.kill()
            await process.wait()


async def furnish(api: Api) -> None:
    """What OME's operators have installed: a model on every node, and a serving runtime."""
    await install_crds(api)
    await until_no_namespace_ends(api)
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    has_model = {f"models.ome.io/clusterbasemodel.{MODEL}": "Ready"}
    await api.create_all(
        node_object(f"gpu-{n}", gpus=2, labels=has_model, unschedulable=n > 0) for n in range(3)
    )
    await api.create(
        {
            "apiVersion": OME,
            "kind": "ClusterBaseModel",
            "metadata": {"name": MODEL},
            "spec": {
                "modelFormat": {"name": "safetensors", "version": "1.0.0"},
                "modelFramework": {"name": "transformers", "version": "4.45.0"},
                "storage": {"storageUri": f"hf://meta/{MODEL}", "path": f"/raid/models/{MODEL}"},
            },
        }
    )
    await api.create(
        {
            "apiVersion": OME,
            "kind": "ClusterServingRuntime",
            "metadata": {"name": "sglang-llama-small"},
            "spec": {
                "engineConfig": {
                    "runner": {"name": "ome-container", "image": "lmsysorg/sglang:v0.5.3"}
                }
            },
        }
    )
    await api.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "model-storage-pvc",
                "namespace": NAMESPACE,
                # As the controller of volumes says it, which does not run here.
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "",
                "volumeName": "models",
            },
        }
    )
    await api.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "models"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadOnlyMany"],
                "hostPath": {"path": "/raid/models"},
                "claimRef": {"name": "model-storage-pvc", "namespace": NAMESPACE},
            },
        }
    )
