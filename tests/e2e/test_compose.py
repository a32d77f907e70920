"""The platform in containers: tasks run to their end whatever is killed, and all goes away."""

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
import yaml
from docker.models.containers import Container

from shared.testing import eventually, short_directory
from tests.faults.test_docker_platform import IMAGE, TAG, docker_task, until_phase
from tests.support.docker.compose_platform import (
    COMPOSE,
    ComposePlatform,
    compose_service,
    set_variables,
)
from tests.support.docker.images import engine_image
from tests.support.docker.platform_images import platform_images
from tests.support.docker.private_engine import PrivateEngine, private_engine
from tests.support.processes.platform import assert_sound, quick_task

# One of them has ended, the other is a shell that stands for it.
NOT_KILLED = {"volumes", "prometheus"}
SIMULATED = """\
services:
  telemetry:
    environment:
      GPUSTEWARD_TELEMETRY_SOURCE: simulated
      GPUSTEWARD_TELEMETRY_SIMULATE: "true"
      GPUSTEWARD_TELEMETRY_METRICS: "false"
"""
pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


@dataclass
class Ground:
    engine: PrivateEngine
    images: dict[str, str]


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """An engine of its own, with all images."""
    if shutil.which(COMPOSE) is None:
        pytest.skip("bringing compose.yaml up needs docker-compose (Debian: docker-compose)")
    with private_engine() as engine:
        yield Ground(engine, platform_images(engine.client))


@asynccontextmanager
async def platform(ground: Ground, *profiles: str) -> AsyncIterator[ComposePlatform]:
    """Brought up, and down again: nothing but images may be left."""
    with short_directory() as directory:
        made = ComposePlatform(ground.engine, directory / "steward", ground.images, profiles)
        try:
            await made.start()
            yield made
        except BaseException:
            print(made.logs())  # noqa: T201  # all that is known of it
            raise
        finally:
            await made.stop()
    assert made.left_over() == {"containers": [], "volumes": [], "networks": []}


@asynccontextmanager
async def joined(made: ComposePlatform, name: str) -> AsyncIterator[None]:
    """A directory of `add-node`, edited as its next steps say, up and down."""
    bus = f"nats://127.0.0.1:{made.nats_port}"
    await made.gpusteward(
        "compose", "add-node", name, "--nats", bus, "--directory", str(made.data_dir)
    )
    directory = made.data_dir / "nodes" / name
    set_variables(directory / ".env", made.variables)
    (directory / "compose.override.yaml").write_text(SIMULATED)
    await made.docker_compose("exec", "-T", "nats", "nats-server", "--signal", "reload=1")
    await made.docker_compose("up", "-d", directory=directory)

    async def is_listed() -> bool:
        _, body = await made.request("GET", "/api/v1/nodes")
        return any(each["node_id"] == name and each["fresh"] for each in body["nodes"])

    try:
        await eventually(is_listed, within_seconds=60, what=f"{name} listed")
        yield
    finally:
        await made.docker_compose("down", "--volumes", "-t", "5", directory=directory)


async def until_started_again(made: ComposePlatform, killed: Container) -> None:
    before = killed.attrs["State"]["Pid"]

    def again() -> bool:
        killed.reload()
        return killed.attrs["State"]["Pid"] not in {0, before}

    await eventually(again, within_seconds=30, what=f"{killed.name} started again")


def scraped(made: ComposePlatform) -> str:
    """What Prometheus would be answered, asked from where it is."""
    content = yaml.safe_load((made.data_dir / "prometheus.yml").read_text())
    token = '--header "Authorization: Bearer $(cat /run/secrets/prometheus_token)"'
    targets = [
        target
        for job in content["scrape_configs"]
        for group in job.get("static_configs", ())
        for target in group["targets"]
    ]
    asked = " && ".join(f"wget -q -O - {token} http://{each}/metrics" for each in targets)
    code, output = made.container("prometheus").exec_run(["sh", "-c", asked])
    assert code == 0, output
    assert isinstance(output, bytes)
    return output.decode()


async def test_a_task_runs_to_its_end_whichever_container_is_killed(ground: Ground) -> None:
    async with platform(ground, "simulated") as made:
        metrics = scraped(made)
        async with (
            aiohttp.ClientSession(headers={"Accept": "text/html"}) as session,
            session.get(made.url) as response,
        ):
            page = await response.text()
        names = {compose_service(each) for each in made.containers()} - NOT_KILLED
        for name in sorted(names):
            # Slow to start, so that it is there to be seen before it is over.
            parameters = {"start-delay-seconds": [1.0], "tpot-seconds": [0.001, 0.002]}
            task_id = await made.submit(quick_task(f"killed-{name}", parameters=parameters))
            await until_phase(made, task_id, {"loading", "warming_up", "measuring"})
            killed = made.container(name)
            made.kill(name)
            await until_started_again(made, killed)
            view = await made.until_finished(task_id, within_seconds=150)
            assert view["state"] == "completed", json.dumps(view)
            await assert_sound(made, task_id)

    assert names == {
        *("nats", "postgres", "scheduler", "scheduler-2", "orchestrator", "results", "gateway"),
        *("telemetry-simulated", "executor-simulated"),
    }
    assert '<div id="root">' in page
    assert "gpusteward_bus_connected 1.0" in metrics
    assert "DCGM_FI_DEV_GPU_UTIL" in metrics


async def test_another_machine_joins_and_runs_engines_in_containers(ground: Ground) -> None:
    """The same engine serves as that machine's. Its executor is killed while one is measured."""
    engine_image(ground.engine.client, f"{IMAGE}:{TAG}", entrypoint=["vllm", "serve"])
    async with platform(ground) as made, joined(made, "beta"):
        waits = await made.gpusteward("nodes")
        await made.gpusteward("node", "admit", "beta")
        task = docker_task("on-beta", parameters={"max-num-seqs": [4]})
        task_id = await made.submit(task)
        await until_phase(made, task_id, {"measuring"})
        killed = made.container("executor")
        made.kill("executor")
        await until_started_again(made, killed)
        view = await made.until_finished(task_id, within_seconds=150)
        [experiment] = await made.experiments(task_id)
        telemetry = made.container("telemetry")

    assert "new, type `gpusteward node admit beta`" in waits
    assert view["state"] == "completed", json.dumps(view)
    assert [each["outcome"] for each in experiment["attempts"]] == ["interrupted", "succeeded"]
    devices = ground.engine.devices_of(str(telemetry.id))
    assert devices is not None
    assert devices["NVIDIA_VISIBLE_DEVICES"] == "all"
