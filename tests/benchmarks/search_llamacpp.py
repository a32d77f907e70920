"""Whether `auto` finds what a grid finds on a real engine, and for less.

`make bench NAME=search_llamacpp`, about seven minutes on a machine that does nothing else: a
platform of its own tunes threads, slots and batch of llama.cpp, first by grid, then by `auto`,
whose own repeats and replays are part of its cost. It reports and never fails a test. The last line
is one JSON object: `grid_best` and `auto_best` (configurations; `auto_best` is the trusted winner),
`behind_percent` (how far the second is behind the first by the grid's own measurements; null: it
failed there), `noise_floor_percent` (of `auto`'s report), `is_within_noise`, `grid_gpu_seconds` and
`auto_gpu_seconds` (of all attempts, from the reports), `gpu_seconds_over_grid`, the experiments of
each, `auto_set_aside` (runs that count for nothing), `seconds`, and `load_mean` of the machine: on
two cores anything beside it disturbs llama.cpp.
"""

import asyncio
import json
import os
import statistics
import time
from collections import Counter
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from schemas.orchestrator.experiments import FINISHED_TASK_STATES
from shared.testing import short_directory
from tests.support.processes.platform import PlatformProcess

PARAMETERS: Final = {
    "threads": [1, 2],
    "parallel": [1, 2, 4, 8],
    "batch-size": [8, 32, 128, 512],
}
OBJECTIVE: Final = "maximize_throughput"
MODEL: Final = "smollm2-135m"
# A few seconds of some 20 requests: of 8 requests equal runs differ by a sixth.
LEVEL_MINUTES: Final = 0.06
TIMEOUT_SECONDS: Final = 1800.0


def make_task(strategy: str) -> dict[str, Any]:
    return {
        "task_name": f"llamacpp-{strategy.replace('_', '-')}",
        "deployment_mode": "process",
        "model": {"id_or_path": MODEL},
        "base_runtime": "llamacpp",
        "parameters": PARAMETERS,
        "optimization": {
            "strategy": strategy,
            "objective": OBJECTIVE,
            "timeout_per_iteration": 120,
            "seed": 1,
        },
        "benchmark": {
            "model_name": MODEL,
            "traffic_scenarios": ["D(48,8)"],
            "num_concurrency": [4],
            "max_requests_per_iteration": 200,
            "max_time_per_iteration": LEVEL_MINUTES,
            "warmup_requests": 0,
            "tool": "builtin",
            "quality": {"prompts": 0},
        },
    }


async def tune(platform: PlatformProcess, strategy: str) -> tuple[dict[str, Any], list[float]]:
    """The report, and the machine's load meanwhile."""
    _, stored = await platform.request("POST", "/api/v1/tasks", make_task(strategy))
    task_id = stored["task_id"]
    loads = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            _, task = await platform.request("GET", f"/api/v1/tasks/{task_id}")
            if task["state"] in FINISHED_TASK_STATES:
                break
            loads.append(os.getloadavg()[0])
            await asyncio.sleep(1)
    _, report = await platform.request("GET", f"/api/v1/reports/tasks/{task_id}")
    return report, loads


async def measure() -> tuple[dict[str, Any], dict[str, Any], list[float]]:
    with short_directory() as directory:
        platform = PlatformProcess(directory / "data")
        await platform.start()
        try:
            grid, loads = await tune(platform, "grid_search")
            auto, more = await tune(platform, "auto")
        finally:
            await platform.stop()
    return grid, auto, loads + more


def figures(grid: dict[str, Any], auto: dict[str, Any]) -> dict[str, Any]:
    """From the two reports."""
    measured = [grid["best"], *grid["others"]]
    best, found = grid["best"]["parameters"], auto["best"]["parameters"]
    same = next((each for each in measured if each["parameters"] == found), None)
    noise = auto["trust"]["noise_floor_percent"]
    behind = None if same is None else same["worse_percent"] or 0.0
    costs = [each["cost"]["gpu_seconds"] for each in (grid, auto)]
    return {
        "grid_best": best,
        "auto_best": found,
        "behind_percent": None if behind is None else round(behind, 2),
        "noise_floor_percent": None if noise is None else round(noise, 2),
        "is_within_noise": noise is not None and behind is not None and behind <= noise,
        "grid_gpu_seconds": round(costs[0], 1),
        "auto_gpu_seconds": round(costs[1], 1),
        "gpu_seconds_over_grid": round(costs[1] / costs[0], 3),
        "grid_experiments": grid["experiments"],
        "auto_experiments": auto["experiments"],
        "auto_set_aside": len(auto["trust"]["set_aside"]),
    }


def main() -> None:
    """Tune twice, print the configurations, print the JSON line."""
    began = time.perf_counter()
    grid, auto, loads = asyncio.run(measure())
    names = list(PARAMETERS)
    table = Table(*names, "grid: tokens/s", "auto: tokens/s", title="configurations, best first")
    scores = {
        tuple(each["parameters"].values()): each["score"]
        for each in reversed([auto["best"], *auto["others"]])
    }
    for each in (grid["best"], *grid["others"]):
        own = scores.get(tuple(each["parameters"].values()))
        table.add_row(
            *(str(each["parameters"][name]) for name in names),
            f"{each['score']:.1f}" if each["score"] is not None else "",
            f"{own:.1f}" if own is not None else "",
        )
    Console().print(table)
    print(auto["verdict"])
    reasons = Counter(each["reason"] for each in auto["trust"]["set_aside"])
    for reason, runs in reasons.most_common():
        print(f"set aside, {runs} runs: {reason}")
    found = figures(grid, auto) | {
        "seconds": round(time.perf_counter() - began),
        "load_mean": round(statistics.fmean(loads), 1),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
