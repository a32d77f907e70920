"""`make screenshots`: every page of the web page, dark and light, on a desk, a tablet and a phone.

The platform is a real one with a made-up fleet of 16 nodes and 128 GPUs, one of whose nodes is
lost, a finished task of 24 experiments, a search for loads, holders, and requests that wait; then
one that has nothing yet, and one of 512 GPUs. Words as arguments choose the pages whose names have
one of them.
"""

import asyncio
import logging
import sys
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
from playwright.async_api import Browser, Page
from playwright.async_api import TimeoutError as NotInTime

from schemas.telemetry.readings import GpuPod
from services.telemetry.domain.pods import PodDevices
from shared.clock import utcnow
from shared.logging import configure_logging
from shared.testing import eventually, short_directory
from tests.support.fakes.kubelet import FakeKubelet, encoded, encoded_ids
from tests.support.paths import ROOT
from tests.support.processes.platform import PlatformProcess, quick_task
from tests.support.simulated_fleet import ADMIT, agents, write_fleet
from tests.support.web.browser import PATIENCE_MS, chromium, missing

FOLDER: Final = ROOT / "build" / "screenshots"
SIZES: Final = {"desktop": (1440, 900), "tablet": (1024, 768), "phone": (390, 844)}
SCHEMES: Final = ("light", "dark")
GPUS_PER_NODE: Final = 8
NODES: Final = tuple(f"gpu-{number:02}" for number in range(2, 17))
LOST: Final = "gpu-07"
LARGE_NODES: Final = tuple(f"gpu-{number:02}" for number in range(2, 65))
ENVIRONMENT: Final = {**ADMIT, "GPUSTEWARD_SCHEDULER_NODE_LOST_SECONDS": "20"}
TALLEST_PX: Final = 4000
LEASE_SECONDS: Final = 3600
SETTLE_MS: Final = 1500  # charts are drawn, and what was typed is checked
MAX_MS: Final = 300_000  # a tall page of many charts, drawn without a GPU beside others
# All that a page would show if its window were tall enough.
NEEDED_PX: Final = """() => {
  const main = document.querySelector("main");
  return innerHeight - main.clientHeight + main.scrollHeight;
}"""
IS_WHOLE: Final = """() =>
  !document.querySelector("[aria-label^=loading]") &&
  !document.body.innerText.includes("not responding")
"""
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


def tell(text: str) -> None:
    """At once: into a file a line would come with the last of them."""
    sys.stdout.write(f"{utcnow():%H:%M:%S} {text}\n")
    sys.stdout.flush()


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
        "gpu": f"/gpus/gpu-01/GPU-51a7ed00-0000-4000-0000-{0:012x}",
        "reservations": "/reservations",
        "tasks": "/tasks",
        "new-task": "/tasks/new",
        "task": task_place,
        "task-compare": f"{task_place}?tab=compare",
        "task-picked": f"{task_place}?tab=compare&picked={picked}",
        "task-timeline": f"{task_place}?tab=timeline",
        "task-definition": f"{task_place}?tab=definition",
        "task-loads": f"/tasks/{searched['task_id']}",
        "task-loads-compare": f"/tasks/{searched['task_id']}?tab=compare",
        "experiment-loads": f"/experiments/{searched['best_experiment_id']}",
        "experiment": f"/experiments/{finished['best_experiment_id']}",
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


async def until_whole(page: Page) -> None:
    """As far as a busy machine gets: a picture that lacks something shows what people see then."""
    try:
        await page.wait_for_function(IS_WHOLE, timeout=PATIENCE_MS)
    except NotInTime:
        tell(f"not whole: {page.url}")


async def draw(browser: Browser, url: str, places: dict[str, str]) -> list[Path]:
    """The sizes beside each other: most of the time passes until charts are drawn."""
    drawn: list[Path] = []

    async def draw_size(size: str) -> None:
        width, height = SIZES[size]
        context = await browser.new_context(
            viewport={"width": width, "height": height}, locale="en-US", reduced_motion="reduce"
        )
        page = await context.new_page()
        page.set_default_timeout(MAX_MS)
        for name, place in places.items():
            await page.set_viewport_size({"width": width, "height": height})
            await page.goto(url + place)
            await page.locator("main").locator("h1").wait_for()
            await until_whole(page)
            needed = min(TALLEST_PX, await page.evaluate(NEEDED_PX))
            await page.set_viewport_size({"width": width, "height": max(height, needed)})
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme=scheme)
                await until_whole(page)
                await page.wait_for_timeout(SETTLE_MS)
                path = FOLDER / f"{name}-{size}-{scheme}.png"
                await page.screenshot(path=path, timeout=MAX_MS)
                drawn.append(path)
            tell(f"{name} {size}: {len(drawn)} of {len(places) * len(SIZES) * len(SCHEMES)}")
        await context.close()

    await asyncio.gather(*map(draw_size, SIZES))
    return sorted(drawn)


async def draw_filled(browser: Browser, words: list[str], directory: Path) -> list[Path]:
    """128 GPUs; all of it is made even for one page."""
    if words and all(word.startswith(("large", "empty")) for word in words):
        return []
    kubelet = FakeKubelet(directory / "kubelet.sock")
    kubelet.answer, kubelet.allocatable = encoded(PODS), encoded_ids(SHARES)
    platform = with_fleet(directory, pod_resources_socket=str(kubelet.socket))
    with kubelet.serving():
        return await draw_platform(browser, words, directory, platform)


async def draw_platform(
    browser: Browser, words: list[str], directory: Path, platform: PlatformProcess
) -> list[Path]:
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
            return await draw(browser, platform.url, chosen(places, words))
    finally:
        await platform.stop()


async def draw_large(browser: Browser, words: list[str], directory: Path) -> list[Path]:
    if not (places := chosen(LARGE_PLACES, words)):
        return []
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
            return await draw(browser, platform.url, places)
    finally:
        await platform.stop()


async def draw_empty(browser: Browser, words: list[str], directory: Path) -> list[Path]:
    if not (places := chosen(EMPTY_PLACES, words)):
        return []
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
        return await draw(browser, platform.url, places)
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


def chosen(places: Mapping[str, str], words: Iterable[str]) -> dict[str, str]:
    return {k: v for k, v in places.items() if not words or any(w in k for w in words)}


async def main(words: list[str]) -> None:
    if (reason := missing()) is not None:
        sys.exit(f"make screenshots {reason}")
    configure_logging("screenshots", level=logging.ERROR)
    FOLDER.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    async with chromium() as browser:
        for scene in (draw_filled, draw_large, draw_empty):
            with short_directory() as directory:
                drawn += await scene(browser, words, directory)
    sys.stdout.writelines(f"{path.relative_to(ROOT)}\n" for path in drawn)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
