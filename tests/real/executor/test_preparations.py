"""What waits for GPUs is made ready on a node, over a real bus and in the kernel's own memory."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from msgspec.structs import replace

from schemas.executor.attempts import AttemptPhase, EngineSpec, Runtime
from schemas.orchestrator.experiments import StartsWaiting, WaitingStart
from services.executor.app import create_service
from services.executor.preparations import Preparations
from services.executor.runtimes.runtime import EngineRuntime
from services.executor.settings import ExecutorSettings
from shared.clock import utcnow
from shared.messaging.bus import Bus
from shared.testing import eventually
from shared.waiting import cancel_and_wait
from tests.support.disks.page_cache import forget, resident_bytes
from tests.support.worlds.executor import NODE, Scheduler, make_settings, scheduling

MODEL_BYTES = 3 << 20


def waiting(model: str, **engine: Any) -> WaitingStart:  # any field
    given: dict[str, Any] = {"runtime": Runtime.PROCESS, "engine": "simulated", "model": model}
    return WaitingStart(
        task_id=uuid4(),
        experiment_id=uuid4(),
        attempt_id=uuid4(),
        engine=EngineSpec(**given | engine),
    )


async def tell(bus: Bus, *starts: WaitingStart) -> None:
    """As the orchestrator does, time and again: what nobody hears is lost."""
    await bus.publish_live(StartsWaiting(observed_at=utcnow(), executor_id=NODE, starts=starts))


def messages_of(scheduler: Scheduler, start: WaitingStart) -> list[str]:
    return [one.message for one in scheduler.progress if one.attempt_id == start.attempt_id]


async def until_told_of(
    scheduler: Scheduler, start: WaitingStart, starts: Sequence[WaitingStart]
) -> None:
    async def is_told() -> bool:
        await tell(scheduler.bus, *starts)
        return bool(messages_of(scheduler, start))

    await eventually(is_told, within_seconds=60, what="what was made ready")


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """Two models of which the kernel has nothing in memory."""
    for name in ("one", "two"):
        directory = tmp_path / "models" / name
        directory.mkdir(parents=True)
        for part in (1, 2):
            path = directory / f"model-{part}-of-2.safetensors"
            path.write_bytes(os.urandom(MODEL_BYTES // 2))
            if not forget(path):
                pytest.skip("this file system is in memory")
    return tmp_path / "models"


@pytest.fixture
def settings(nats_url: str, tmp_path: Path, roots: Path) -> ExecutorSettings:
    return make_settings(
        nats_url, tmp_path / "data", model_roots=str(roots), prepare_memory_percent=100.0
    )


def resident(roots: Path, model: str) -> int:
    return sum(map(resident_bytes, (roots / model).iterdir()))


def is_resident(roots: Path, model: str) -> bool:
    """But for a few pages, which a kernel short of memory may have taken back by now."""
    return resident(roots, model) >= 0.9 * MODEL_BYTES


async def test_weights_are_in_memory_before_start(settings: ExecutorSettings, roots: Path) -> None:
    starts = first, second = waiting("one"), waiting(str(roots / "two"))
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await until_told_of(scheduler, second, starts)
        await tell(scheduler.bus, *starts)
        running = await scheduler.running()

    told = [f"while it waited, on {NODE}: 3 MB of weights were read into memory"]
    assert all(is_resident(roots, model) for model in ("one", "two"))
    assert (messages_of(scheduler, first), messages_of(scheduler, second)) == (told, told)
    assert {one.phase for one in scheduler.progress} == {AttemptPhase.PULLING}
    assert running.attempts == ()


async def test_failed_preparation_is_logged_once(settings: ExecutorSettings, roots: Path) -> None:
    starts = outside, inside = waiting("/etc"), waiting("one")
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await until_told_of(scheduler, inside, starts)
        await tell(scheduler.bus, *starts)
        await scheduler.running()

    (message,) = messages_of(scheduler, outside)
    assert "not all could be made ready: expected a model inside" in message
    assert is_resident(roots, "one")


async def test_weights_larger_than_memory_are_not_read(
    settings: ExecutorSettings, roots: Path
) -> None:
    settings = replace(settings, prepare_memory_percent=0.0)
    starts = first, failing = waiting("one"), waiting("/etc")
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await until_told_of(scheduler, failing, starts)

    assert messages_of(scheduler, first) == []
    assert resident(roots, "one") == 0


@dataclass
class SlowRuntime:
    """A runtime whose images are there when `may_end` is set. What is measured is in `phases`."""

    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str | None] = field(default_factory=list)
    broken_off: list[str | None] = field(default_factory=list)
    phases: list[AttemptPhase] = field(default_factory=list)
    times_seen: int = 0

    async def prepare(self, engine: EngineSpec) -> str:
        self.asked.append(engine.image_tag)
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.broken_off.append(engine.image_tag)
            raise
        return "pulled"

    def phases_now(self) -> list[AttemptPhase]:
        self.times_seen += 1
        return self.phases


@asynccontextmanager
async def preparing(
    settings: ExecutorSettings, runtime: SlowRuntime
) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """What tells it what waits, by the tags of images."""
    bus = Bus("executor", settings.nats_url)
    await bus.open()
    preparations = Preparations(
        settings=settings,
        bus=bus,
        runtimes={Runtime.DOCKER: cast("EngineRuntime", runtime)},
        phases=runtime.phases_now,
    )

    async def tell_of(*tags: str) -> None:
        starts = tuple(waiting("m", runtime=Runtime.DOCKER, image_tag=tag) for tag in tags)
        told = StartsWaiting(observed_at=utcnow(), executor_id=NODE, starts=starts)
        await preparations.receive(told)

    loop = asyncio.create_task(preparations.run())
    try:
        yield tell_of
    finally:
        await cancel_and_wait(loop)
        await bus.close()


async def test_preparations_run_one_by_one_and_once(settings: ExecutorSettings) -> None:
    runtime = SlowRuntime()
    async with preparing(settings, runtime) as tell_of:
        await tell_of("a", "b", "a")
        await eventually(lambda: runtime.asked == ["a"], what="the first")
        await tell_of("a", "b")
        runtime.may_end.set()
        await eventually(lambda: runtime.asked == ["a", "b"], what="the second")
        await tell_of("a", "b", "c")
        await eventually(lambda: runtime.asked == ["a", "b", "c"], what="a new one alone")
        for tags in ((), (), ("a",)):
            await tell_of(*tags)
        await eventually(lambda: runtime.asked[3:] == ["a"], what="one that waits anew")


async def test_preparation_of_gone_request_is_aborted(
    settings: ExecutorSettings,
) -> None:
    runtime = SlowRuntime()
    async with preparing(settings, runtime) as tell_of:
        await tell_of("a")
        await eventually(lambda: runtime.asked == ["a"], what="the first")
        await tell_of("b")
        was_broken_off = list(runtime.broken_off)
        await tell_of("b")
        await eventually(lambda: runtime.asked == ["a", "b"], what="the next")

    assert was_broken_off == []
    assert runtime.broken_off == ["a", "b"], "the second by the end of the executor"


@pytest.mark.parametrize("phase", [AttemptPhase.WARMING_UP, AttemptPhase.MEASURING])
async def test_nothing_is_begun_beside_a_measurement(
    phase: AttemptPhase, settings: ExecutorSettings
) -> None:
    runtime = SlowRuntime(phases=[phase])
    async with preparing(settings, runtime) as tell_of:
        await tell_of("a")
        await eventually(lambda: runtime.times_seen > 1, within_seconds=60, what="a second look")
        asked_beside = list(runtime.asked)
        runtime.phases = [AttemptPhase.TEARING_DOWN]
        await eventually(lambda: runtime.asked == ["a"], within_seconds=60, what="its turn")

    assert asked_beside == []


async def test_operator_may_allow_preparing_while_measuring(
    settings: ExecutorSettings,
) -> None:
    runtime = SlowRuntime(phases=[AttemptPhase.MEASURING])
    async with preparing(replace(settings, prepare_waiting="always"), runtime) as tell_of:
        await tell_of("a")
        await eventually(lambda: runtime.asked == ["a"], what="its turn")
