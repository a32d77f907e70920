"""What a start costs with its image and its weights at hand, and without.

`make bench NAME=preparation`. It reports and never fails a test; what cannot be measured here is
null. The last line is one JSON object: `grant_to_engine_s` (an attempt from its start command to an
engine that answers, its image pulled from a registry on loopback), `grant_to_engine_prepared_s`
(the same after the executor was told that it waits), medians of runs that alternate;
`weights_gb_s` and `weights_prepared_gb_s` (how fast a file of weights is read then).
"""

import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Final

import docker.errors
from msgspec.structs import replace
from rich.console import Console
from rich.progress import track
from rich.table import Table

from schemas.executor.attempts import AttemptPhaseChanged, EngineSpec, Runtime, StartExperiment
from schemas.orchestrator.experiments import StartsWaiting, WaitingStart
from services.executor.app import create_service
from services.executor.settings import ExecutorSettings
from shared.clock import utcnow
from shared.testing import eventually
from tests.benchmarks.executor import surroundings
from tests.support.disks.page_cache import forget
from tests.support.docker.images import engine_image
from tests.support.docker.private_engine import PrivateEngine, missing, private_engine
from tests.support.docker.registry import TAG, Registry, image_registry
from tests.support.worlds.executor import NODE, Scheduler, make_cancel, make_endless_start

STARTS: Final = 5
WEIGHTS_BYTES: Final = 1 << 30
WEIGHTS: Final = "model.safetensors"
START_SECONDS: Final = 300.0


def start_of_model(model: str) -> StartExperiment:
    """An attempt in a container that measures until it is stopped."""
    endless = make_endless_start(timeout_seconds=600.0)
    engine = EngineSpec(
        runtime=Runtime.DOCKER,
        engine="simulated",
        model=model,
        parameters=endless.engine.parameters,
    )
    return replace(endless, engine=engine)


async def prepared(scheduler: Scheduler, start: StartExperiment) -> None:
    """Tell the executor what waits until it says that it is ready for it."""
    waiting = WaitingStart(
        task_id=start.task_id,
        experiment_id=start.experiment_id,
        attempt_id=start.attempt_id,
        engine=replace(start.engine, parameters={}),
    )
    told = StartsWaiting(observed_at=utcnow(), executor_id=NODE, starts=(waiting,))

    async def is_ready() -> bool:
        await scheduler.bus.publish_live(told)
        return any(each.attempt_id == start.attempt_id for each in scheduler.progress)

    await eventually(is_ready, within_seconds=START_SECONDS, what="a prepared start")
    for _ in range(2):  # it waits no longer
        await scheduler.bus.publish_live(replace(told, starts=()))


async def start_s(scheduler: Scheduler, start: StartExperiment) -> float:
    """From its command to the first phase after loading."""
    seen = asyncio.Event()

    async def note(event: AttemptPhaseChanged) -> None:
        if event.attempt_id == start.attempt_id and event.phase in {"warming_up", "measuring"}:
            seen.set()

    await scheduler.bus.listen(AttemptPhaseChanged, note)
    await scheduler.bus.flush()
    began = time.perf_counter()
    await scheduler.ask(start)
    async with asyncio.timeout(START_SECONDS):
        await seen.wait()
    took = time.perf_counter() - began
    await scheduler.ask(make_cancel(start))
    await scheduler.finished(start, within_seconds=60)
    return took


def read_gb_s(file: Path) -> float:
    """How fast an engine would read it now."""
    began = time.perf_counter()
    with file.open("rb", buffering=0) as opened:
        block = bytearray(1 << 20)
        while opened.readinto(block):
            pass
    return WEIGHTS_BYTES / 1e9 / (time.perf_counter() - began)


def remove_image(engine: PrivateEngine, registry: Registry) -> None:
    try:
        engine.client.images.remove(f"{registry.repository}:{TAG}", force=True)
    except docker.errors.ImageNotFound:
        return


async def runs(
    scheduler: Scheduler, engine: PrivateEngine, registry: Registry, settings: ExecutorSettings
) -> dict[str, list[float]]:
    """By what is measured, alternating."""
    found: dict[str, list[float]] = {name: [] for name in ("start", "ready", "cold", "warm")}
    directory = Path(settings.model_roots) / "m"
    directory.mkdir(parents=True)
    weights = directory / WEIGHTS
    weights.write_bytes(os.urandom(WEIGHTS_BYTES))
    async with create_service(settings).running():
        for _ in track(range(STARTS), "starts", console=Console(stderr=True)):
            for is_prepared in (False, True):
                await asyncio.to_thread(remove_image, engine, registry)
                await asyncio.to_thread(forget, weights)
                start = start_of_model("m")
                if is_prepared:
                    await prepared(scheduler, start)
                found["ready" if is_prepared else "start"].append(await start_s(scheduler, start))
                # The engine is simulated and reads no weights.
                speed = await asyncio.to_thread(read_gb_s, weights)
                found["warm" if is_prepared else "cold"].append(speed)
    return found


async def measured() -> dict[str, float] | None:
    if (reason := missing()) is not None:
        sys.stderr.write(f"no containers are measured: {reason}\n")
        return None
    with private_engine() as engine:
        client = engine.client
        image = engine_image(client)
        size_mb = int(client.images.get(image).attrs["Size"]) >> 20
        async with surroundings(engine) as (scheduler, settings):
            with image_registry(client, image) as registry:
                registry.may_go_on.set()
                client.images.remove(image, force=True)
                engines = Path(settings.data_dir) / "own.toml"
                engines.parent.mkdir(parents=True, exist_ok=True)
                engines.write_text(
                    f'[engines.simulated]\nimage = "{registry.repository}"\ntag = "{TAG}"\n'
                )
                own = replace(
                    settings,
                    engines_file=str(engines),
                    model_roots=str(Path(settings.data_dir) / "models"),
                    prepare_spare_disk_percent=0.0,
                )
                found = await runs(scheduler, engine, registry, own)
    table = Table(title=f"Image of {size_mb} MB, weights of {WEIGHTS_BYTES >> 20} MB")
    for column in ("", "median", "least", "most", "runs"):
        table.add_column(column, justify="left" if not column else "right")
    for title, name in (
        ("start command to answering, s", "start"),
        ("the same, made ready while it waited", "ready"),
        ("weights read, GB/s", "cold"),
        ("the same, made ready while it waited", "warm"),
    ):
        values = found[name]
        shown = (statistics.median(values), min(values), max(values))
        table.add_row(title, *(f"{value:.2f}" for value in shown), str(len(values)))
    Console().print(table)
    return {name: statistics.median(values) for name, values in found.items()}


async def main() -> None:
    found = await measured()
    names = {
        "grant_to_engine_s": "start",
        "grant_to_engine_prepared_s": "ready",
        "weights_gb_s": "cold",
        "weights_prepared_gb_s": "warm",
    }
    print(
        json.dumps(
            {told: None if found is None else round(found[name], 2) for told, name in names.items()}
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
