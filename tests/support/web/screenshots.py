"""`make screenshots`: every page of the web page, dark and light, on a desk, a tablet and a phone.

The platform is a real one with a made-up fleet of 16 nodes and 128 GPUs, one of whose nodes is
lost, a finished task of 24 experiments, a search for loads, holders, and requests that wait; then
one of 128 GPUs and 5,000 experiments, one of 512 GPUs, and one that has nothing yet. Words as
arguments choose the pages whose names have one of them.
"""

import asyncio
import logging
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp

from schemas.telemetry.readings import GpuPod
from services.telemetry.domain.pods import PodDevices
from shared.logging import configure_logging
from shared.testing import eventually, short_directory
from tests.support.fakes.kubelet import FakeKubelet, encoded, encoded_ids
from tests.support.paths import ROOT
from tests.support.processes.platform import PlatformProcess, quick_task
from tests.support.simulated_fleet import ADMIT, agents, write_fleet
from tests.support.web.browser import chromium, missing
from tests.support.web.gallery import SIZES, Gallery, tell
from tests.support.web.many_experiments import MANY_PLACES, many_places, seed_experiments

FOLDER: Final = ROOT / "build" / "screenshots"
GPUS_PER_NODE: Final = 8
NODES: Final = tuple(f"gpu-{number:02}" for number in range(2, 17))
LOST: Final = "gpu-07"
LARGE_NODES: Final = tuple(f"gpu-{number:02}" for number in range(2, 65))
ENVIRONMENT: Final = {**ADMIT, "GPUSTEWARD_SCHEDULER_NODE_LOST_SECONDS": "20"}
LEASE_SECONDS: Final = 3600
TASK: Final = {
    "task_name": "chat-latency-and-throughput",
    "description": "Which parallelism, slots and step budget serve the chat traffic best",
    "parameters": {
        "tp-size": [1, 2, 4],
        "slots": [4, 16],
        "batch-tokens": [256, 512, 1024, 2048],
        "step-seconds": [0.012],
        "prefill-token-seconds": [0.00004],
        "kv-token-seconds": [0.0000004],
    },
    "slo": {"tpot": {"threshold": 0.012, "weight": 0}, "ttft": {"threshold": 0.15, "weight": 0}},
}
LOADS: Final = {
    "task_name": "greatest-load-per-configuration",
    "parameters": {
        "slots": [4, 16],
        "step-seconds": [0.006, 0.012],
        "kv-token-seconds": [0.0000004],
    },
}
HOLDERS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("pretraining-7b", {"gpus": 8, "nodes": 4}),
    ("nightly-evaluation", {"gpus": 8, "node_ids": [LOST]}),
    ("pretraining-1b", {"gpus": 8, "nodes": 2}),
    ("anna", {"gpus": 4}),
    ("marek", {"gpus": 2}),
    ("embedding-service-production", {"gpus": 2}),
    ("yuki", {"shares": 0.5}),
    ("ben", {"shares": 0.25}),
    ("reranker", {"shares": 0.2}),
)
GPU: Final = "nvidia.com/gpu"
UUID: Final = "GPU-51a7ed00-0000-4000-0000-{:012x}"
# Kubernetes gave them GPUs of the first node, by a stand-in for kubelet; two share one.
PODS: Final = tuple(
    PodDevices(pod=GpuPod(namespace, pod, "main"), device_ids=ids, resources=(GPU,) * len(ids))
    for namespace, pod, ids in (
        ("serving", "llama-3-70b-instruct-6d4cf56db6-x2x7q", (UUID.format(4), UUID.format(5))),
        ("serving", "embeddings-0", (f"{UUID.format(6)}::0",)),
        ("research", "notebook-anna", (f"{UUID.format(6)}::1", f"{UUID.format(6)}::2")),
        ("research", "train-resnet-k8z7d", (UUID.format(7),)),
    )
)
SHARES: Final = tuple((GPU, f"{UUID.format(6)}::{number}") for number in range(4))
# Of the fleet of 512 GPUs, and of a platform without any.
LARGE_PLACES: Final = {
    "large-fleet": "/",
    "large-fleet-tiles": "/?view=tiles",
    "large-fleet-allocation": "/?view=allocation",
    "large-fleet-holders": "/?view=map&metric=holder",
    "large-admin": "/admin",
    "large-monitoring": "/monitoring?range=30m",
    "large-reservations": "/reservations",
    "large-queue": "/queue",
    "large-monitoring-gpus": "/monitoring?range=30m&by=gpu",
}
EMPTY_PLACES: Final = {
    "empty-fleet": "/",
    "empty-reservations": "/reservations",
    "empty-tasks": "/tasks",
    "empty-new-task": "/tasks/new",
    "empty-queue": "/queue",
    "empty-monitoring": "/monitoring",
    "empty-monitoring-pods": "/monitoring?view=pods",
    "empty-reports": "/reports",
    "empty-admin": "/admin",
    "empty-admin-namespaces": "/admin?tab=namespaces",
    "empty-admin-drift": "/admin?tab=drift",
    "empty-admin-tokens": "/admin?tab=tokens",
    "empty-admin-audit": "/admin?tab=audit",
    "empty-admin-decisions": "/admin?tab=decisions",
}
WAITING: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("weihnachtsmarkt-lasttest", {"gpus": 8, "nodes": 12}),
    ("anna", {"gpus": 8, "gpu_models": ["Simulated H100"], "nodes": 5}),
    ("training-run-8", {"gpus": 8, "nodes": 16}),
)


async def fill(platform: PlatformProcess) -> dict[str, str]:
    """Holders, a finished task, one that failed, and a queue; the places to draw, by name."""
    tell("holders and tasks")
    for holder, request in HOLDERS:
        await reserve(platform, holder, {"node_ids": NODES} | request)
    task = quick_task("", **TASK)
    task["optimization"] |= {
        "objective": "maximize_throughput",
        "max_parallel": 4,
        "timeout_per_iteration": 600,
        "constraints": "tpot:p95<=15ms, error_rate<1%",
    }
    task["benchmark"] |= {
        "traffic_scenarios": ["D(400,60)"],
        "num_concurrency": [1, 4, 8, 16],
        "max_requests_per_iteration": 2000,
        "max_time_per_iteration": 0.04,
    }
    broken = quick_task("engine-that-dies", parameters={"die-after-requests": [3]})
    dead = await platform.submit(broken)
    await platform.until_finished(dead, within_seconds=600)
    loads = quick_task("", **LOADS)
    loads["optimization"] |= {
        "objective": "maximize_load",
        "constraints": "ttft:p95<400ms, error_rate<1%",
        "max_parallel": 4,
        "trust": True,
    }
    loads["benchmark"] |= {
        "traffic_scenarios": ["D(100,40)"],
        "load_search": {"max": 64, "max_levels": 6},
        "max_requests_per_iteration": 200,
        "max_time_per_iteration": 0.01,
    }
    del loads["benchmark"]["num_concurrency"]
    tell("a search for loads")
    searched = await platform.until_finished(await platform.submit(loads), within_seconds=1800)
    tell("a task of 24 experiments")
    finished = await platform.until_finished(await platform.submit(task), within_seconds=1800)
    [failed] = await platform.experiments(dead)
    of_it = await platform.request("GET", f"/api/v1/tasks/{finished['task_id']}/experiments")
    picked = ",".join(each["experiment_id"] for each in of_it[1]["experiments"][-3:])
    for holder, request in WAITING:
        await reserve(platform, holder, request)
    _, queue = await platform.request("GET", "/api/v1/reservations?state=queued")
    rows = queue["reservations"]
    task_place = f"/tasks/{finished['task_id']}"
    return {
        "fleet": "/",
        "fleet-tiles": "/?view=tiles",
        "fleet-allocation": "/?view=allocation",
        "fleet-holders": "/?view=map&metric=holder",
        "fleet-teams": "/?view=map&metric=team",
        "gpu": f"/gpus/gpu-01/GPU-51a7ed00-0000-4000-0000-{0:012x}",
        "node": "/nodes/gpu-01",
        "node-topology": "/nodes/gpu-01?tab=topology",
        "node-reservations": "/nodes/gpu-02?tab=reservations",
        "node-events": f"/nodes/{LOST}?tab=events",
        "node-silent": f"/nodes/{LOST}",
        "reservations": "/reservations",
        "tasks": "/tasks",
        "new-task": "/tasks/new",
        "task": task_place,
        "task-compare": f"{task_place}?tab=compare",
        "task-picked": f"{task_place}?tab=compare&picked={picked}",
        "task-timeline": f"{task_place}?tab=timeline",
        "task-report": f"{task_place}?tab=report",
        "task-definition": f"{task_place}?tab=definition",
        "task-loads": f"/tasks/{searched['task_id']}",
        "task-loads-compare": f"/tasks/{searched['task_id']}?tab=compare",
        "experiment-loads": f"/experiments/{searched['best_experiment_id']}",
        "experiment": f"/experiments/{finished['best_experiment_id']}",
        "experiment-gpus": f"/experiments/{finished['best_experiment_id']}?tab=gpus",
        "experiment-log": f"/experiments/{failed['experiment_id']}?tab=log",
        "experiment-failed": f"/experiments/{failed['experiment_id']}",
        "queue": f"/queue?open={rows[0]['reservation_id']}" if rows else "/queue",
        "monitoring": "/monitoring?range=30m",
        "monitoring-nodes": "/monitoring?range=30m&by=node",
        "monitoring-node": "/monitoring?range=30m&by=node&node=gpu-01",
        "monitoring-gpus": "/monitoring?range=30m&node=gpu-01&by=gpu",
        "monitoring-pods": "/monitoring?range=30m&view=pods",
        "reports-by-pod": "/reports?by=pod",
        "reports": "/reports",
        "admin": "/admin",
        "admin-namespaces": "/admin?tab=namespaces",
        "admin-audit": "/admin?tab=audit",
        "admin-health": "/admin?tab=health",
    }


async def reserve(platform: PlatformProcess, holder: str, request: dict[str, Any]) -> None:
    times = {"lease_ttl_seconds": LEASE_SECONDS, "wait_timeout_seconds": LEASE_SECONDS}
    body = {"request": request | times, "holder": holder}
    status, answer = await platform.request("POST", "/api/v1/reservations", body)
    assert status == 201, answer


async def is_lost(platform: PlatformProcess) -> bool:
    _, lost = await platform.request("GET", "/api/v1/reservations?state=lost")
    return len(lost["reservations"]) > 0


async def draw_filled(gallery: Gallery, directory: Path) -> None:
    """128 GPUs; all of it is made even for one page."""
    if gallery.words and all(word.startswith(("large", "empty")) for word in gallery.words):
        return
    kubelet = FakeKubelet(directory / "kubelet.sock")
    kubelet.answer, kubelet.allocatable = encoded(PODS), encoded_ids(SHARES)
    platform = with_fleet(directory, pod_resources_socket=str(kubelet.socket))
    with kubelet.serving():
        await draw_platform(gallery, directory, platform)


async def draw_platform(gallery: Gallery, directory: Path, platform: PlatformProcess) -> None:
    try:
        tell("the platform and its fleet")
        await platform.start()
        nodes = dict.fromkeys(NODES, GPUS_PER_NODE)
        async with agents(platform, nodes, directory) as running:
            await eventually(platform.is_ready, within_seconds=120, what="a whole fleet")
            places = await fill(platform)
            tell("a node is lost")
            await running[LOST].aclose()
            await eventually(lambda: is_lost(platform), within_seconds=240, what="a lost node")
            await gallery.draw(platform.url, gallery.choose(places))
    finally:
        await platform.stop()


async def draw_many(gallery: Gallery, directory: Path) -> None:
    """Draw a fleet of 128 GPUs and 5,000 experiments, that were stored and never ran."""
    if not gallery.choose(MANY_PLACES):
        return
    platform = with_fleet(directory)
    nodes = dict.fromkeys(NODES, GPUS_PER_NODE)
    try:
        tell("a fleet of 128 GPUs")
        await platform.start()
        async with agents(platform, nodes, directory):
            tell("5,000 experiments")
            ids = await seed_experiments(platform)
            await eventually(platform.is_ready, within_seconds=120, what="a whole fleet")
            for holder, request in HOLDERS:
                await reserve(platform, holder, {"node_ids": NODES} | request)
            await gallery.draw(platform.url, gallery.choose(many_places(ids)))
    finally:
        await platform.stop()


async def draw_large(gallery: Gallery, directory: Path) -> None:
    """Draw a fleet of 512 GPUs."""
    if not (places := gallery.choose(LARGE_PLACES)):
        return
    platform = with_fleet(directory)
    nodes = dict.fromkeys(LARGE_NODES, GPUS_PER_NODE)

    async def is_whole() -> bool:
        _, found = await platform.request("GET", "/api/v1/gpus?limit=1000")
        return len(found["gpus"]) == GPUS_PER_NODE * (1 + len(LARGE_NODES))

    try:
        tell("a fleet of 512 GPUs")
        await platform.start()
        async with agents(platform, nodes, directory):
            await eventually(is_whole, within_seconds=240, what="the whole fleet")
            for holder, request in HOLDERS:
                if "node_ids" not in request:
                    await reserve(platform, holder, {"node_ids": LARGE_NODES} | request)
            await gallery.draw(platform.url, places)
    finally:
        await platform.stop()


async def draw_empty(gallery: Gallery, directory: Path) -> None:
    """Draw a platform without a GPU."""
    if not (places := gallery.choose(EMPTY_PLACES)):
        return
    platform = PlatformProcess(directory / "data", arguments=())

    async def answers() -> bool:
        """Its one node is known; it is never ready, as no GPU is read."""
        try:
            status, found = await platform.request("GET", "/api/v1/nodes")
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
        return status == HTTPStatus.OK and len(found["nodes"]) > 0

    try:
        tell("a platform that has nothing")
        platform.launch()
        await eventually(answers, within_seconds=240, what="a platform that answers")
        await gallery.draw(platform.url, places)
    finally:
        await platform.stop()


def with_fleet(directory: Path, pod_resources_socket: str = "") -> PlatformProcess:
    fleet = write_fleet(directory / "gpu-01.toml", 0, GPUS_PER_NODE)
    return PlatformProcess(
        directory / "data",
        arguments=("--fleet", str(fleet), "--node-id", "gpu-01"),
        environment={
            **ENVIRONMENT,
            "GPUSTEWARD_TELEMETRY_POD_RESOURCES_SOCKET": pod_resources_socket,
        },
    )


async def main(words: list[str]) -> None:
    if (reason := missing()) is not None:
        sys.exit(f"make screenshots {reason}")
    configure_logging("screenshots", level=logging.ERROR)
    FOLDER.mkdir(parents=True, exist_ok=True)
    async with chromium() as browser:
        gallery = Gallery(browser, SIZES, words, FOLDER)
        for scene in (draw_filled, draw_many, draw_large, draw_empty):
            with short_directory() as directory:
                await scene(gallery, directory)
    sys.stdout.writelines(f"{path.relative_to(ROOT)}\n" for path in sorted(gallery.pictures))
    if gallery.findings:
        sys.exit("\n".join(["a layout lacks something:", *gallery.findings]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
