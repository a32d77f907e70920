"""A platform on a disk that is full before its start, during a task and at its stop."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from shared.testing import eventually
from tests.support.disks.small_disk import fill
from tests.support.processes.platform import (
    PlatformProcess,
    assert_sound,
    marked_processes,
    quick_task,
)

DISK_MB = 320  # an empty platform takes about 60
SERVING_AGAIN_SECONDS = 60.0


@dataclass
class FullDiskReport:
    """`worst_gap_s`: the longest time from the first free byte until everything answered.

    `violations` are sentences; what holds is not counted.
    """

    operations: int = 0
    faults: int = 0
    violations: list[str] = field(default_factory=list)
    leak_max_s: float = 0.0
    worst_gap_s: float = 0.0
    full_s: float = 0.0
    engine_s: float = 0.0  # how long engines ran on while the disk was full, at most 5 s less
    repeated_attempts: int = 0
    refusals: list[str] = field(default_factory=list)

    def as_json(self) -> str:
        """One line; of the violations their number."""
        return json.dumps({**asdict(self), "violations": len(self.violations)})

    def require(self, holds: bool, what: str) -> None:
        self.operations += 1
        if not holds:
            self.violations.append(what)


async def run_full_disk_story(disk: Path, *, full_seconds: float = 60.0) -> FullDiskReport:
    """Fill `disk`, an empty one of DISK_MB, three times for that long."""
    report = FullDiskReport(full_s=full_seconds)
    await asyncio.to_thread(disk.chmod, 0o711)
    platform = PlatformProcess(disk / "data")
    try:
        async with _full(platform, disk, report, full_seconds):
            platform.launch()
        task_id = await _fill_during_a_task(platform, disk, report, full_seconds)
        await _fill_at_stop(platform, disk, report)
        await platform.start()
        view = await platform.task(task_id)
        report.require(view.get("state") == "completed", f"after all the task is {view}")
    finally:
        await platform.stop()
    return report


@asynccontextmanager
async def _full(
    platform: PlatformProcess, disk: Path, report: FullDiskReport, full_seconds: float
) -> AsyncIterator[None]:
    """Full for that long, the block included; until everything serves again afterwards."""
    began = time.monotonic()
    filler = fill(disk)
    report.faults += 1
    yield
    while time.monotonic() - began < full_seconds:
        fill(disk)
        await asyncio.sleep(0.5)
        report.require(_is_running(platform), "the platform ended on a full disk")
    restarts = _nats_restarts(platform)
    filler.unlink()
    freed = time.monotonic()
    if restarts is not None:
        await eventually(
            lambda: _nats_restarts(platform) != restarts, what="the bus to be started anew"
        )
    await eventually(
        platform.is_ready, within_seconds=SERVING_AGAIN_SECONDS, what="everything to answer again"
    )
    report.worst_gap_s = max(report.worst_gap_s, round(time.monotonic() - freed, 1))


async def _fill_during_a_task(
    platform: PlatformProcess, disk: Path, report: FullDiskReport, full_seconds: float
) -> str:
    installation = str(platform.directory.installation_id())
    task_id = await platform.submit(_slow_task("full-disk"))

    def engines() -> list[psutil.Process]:
        return [each for each in marked_processes(installation) if _is_engine(each)]

    async def both_measure() -> bool:
        return (await _values(platform, "phase")).count("measuring") == 2

    await eventually(both_measure, within_seconds=60, what="two measured engines")
    async with _full(platform, disk, report, full_seconds):
        began = time.monotonic()
        await _require_word_of_it(platform, report)
        with contextlib.suppress(AssertionError):
            longest = max(1.0, full_seconds - 5)
            await eventually(lambda: not engines(), within_seconds=longest, what="their end")
        report.engine_s = round(time.monotonic() - began, 1)
    view = await platform.until_finished(task_id, within_seconds=240)
    report.require(view["state"] == "completed", f"the task ended as {view}")
    await assert_sound(platform, task_id)
    report.operations += 1
    attempts = [len(one["attempts"]) for one in await platform.experiments(task_id)]
    report.repeated_attempts = sum(attempts) - len(attempts)
    await eventually(lambda: _has_events(platform), what="the events of the full disk")
    report.operations += 1
    return task_id


async def _require_word_of_it(platform: PlatformProcess, report: FullDiskReport) -> None:
    async def says_so() -> bool:
        status, problem = await _answer(platform, "GET", "/readyz")
        return status == 503 and "the disk is full" in str(problem)

    await eventually(says_so, what="/readyz to name the full disk")
    status, problem = await _answer(platform, "POST", "/api/v1/tasks", quick_task("refused"))
    report.refusals.append(str((problem or {}).get("detail")))
    report.require(status == 503 and "the disk" in str(problem), f"a task got {status}: {problem}")
    code, out, _ = await platform.command("doctor")
    report.require(code != 0 and "the disk is full" in " ".join(out.split()), f"doctor: {out}")


async def _fill_at_stop(platform: PlatformProcess, disk: Path, report: FullDiskReport) -> None:
    installation = str(platform.directory.installation_id())
    filler = fill(disk)
    report.faults += 1
    began = time.monotonic()
    await platform.stop()
    assert platform.process is not None
    report.require(platform.process.returncode == 0, f"stopped with {platform.process.returncode}")
    left = marked_processes(installation)
    report.require(not left, f"left behind: {left}")
    report.leak_max_s = max(report.leak_max_s, round(time.monotonic() - began, 1) if left else 0.0)
    filler.unlink()


async def _has_events(platform: PlatformProcess) -> bool:
    return {"disk_full", "disk_has_room"} <= set(await _values(platform, "change"))


async def _values(platform: PlatformProcess, name: str) -> list[Any]:
    """What the stored events have under that name."""
    _, page = await _answer(platform, "GET", "/api/v1/events?limit=1000")
    return [event["event"].get(name) for event in (page or {}).get("events", [])]


async def _answer(
    platform: PlatformProcess, method: str, path: str, body: object = None
) -> tuple[int, Any]:
    try:
        return await platform.request(method, path, body)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return 0, {"detail": repr(error)}


def _slow_task(name: str) -> dict[str, Any]:
    """Two experiments at once, each measured for longer than the disk is full."""
    task = quick_task(name)
    task["parameters"] = {"ttft-seconds": [0.005, 0.01], "tpot-seconds": [0.05]}
    task["optimization"]["timeout_per_iteration"] = 180
    task["optimization"]["max_attempts"] = 10
    task["benchmark"] |= {"max_time_per_iteration": 1.25, "max_requests_per_iteration": 100_000}
    return task


def _nats_restarts(platform: PlatformProcess) -> int | None:
    """None before the bus ever was ready."""
    try:
        bus = platform.states()["nats"]
    except (OSError, KeyError):
        return None
    return int(bus["restarts"]) if bus["pid"] is not None else None


def _is_running(platform: PlatformProcess) -> bool:
    return platform.process is not None and platform.process.poll() is None


def _is_engine(process: psutil.Process) -> bool:
    try:
        return any("shared.engines" in word for word in process.cmdline())
    except psutil.Error:
        return False
