"""Real servers, one of each per session. Nothing here is imported: helpers live in
shared/testing.py.
"""

import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

# Take the benchmark tool and the host's GPUs out of the environment before anything looks there.
import tests.support.benchmark_tools
import tests.support.host_driver  # noqa: F401  # for that alone
from shared.testing import NatsServer, PostgresServer, database_of, run_apart, short_directory
from tests.support.file_order import spread
from tests.support.forked_workers import ForkedWorkers
from tests.support.idle_clock import Clock, idle_time
from tests.support.interruption import let_children_be_interrupted
from tests.support.paths import ROOT
from tests.support.recent_first import RecentFirst
from tests.support.time_limit import TimeLimit

if TYPE_CHECKING:
    from shared.processes.users import Identity
    from tests.support.docker.private_engine import PrivateEngine
    from tests.support.kept_schema import KeptSchema
    from tests.support.kubernetes.control_plane import ControlPlane

# A few examples, the same in every run; or many new ones, however long a machine takes for one.
# Where CI is set Hypothesis draws the same many: no change is red for what it did not do.
settings.register_profile("quick", settings.get_profile("ci"), max_examples=25)
for name, examples in (("thorough", 300), ("soak", 2_000)):
    settings.register_profile(
        name, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )

# Nothing that tests start speaks to a public server, but each process that imports aiohttp would
# read the certificates of this host, for a third of the time that the import takes.
os.environ.setdefault("SSL_CERT_FILE", os.devnull)


# As structlog is without settings, but for its tracebacks: drawing one blocks a loop for a second.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="run so many files at once")
    parser.addoption(
        "--begin-within", type=float, help="skip what has not begun after so many seconds"
    )
    parser.addoption(
        "--recent-first", action="store_true", help="run first what changed, or has its turn"
    )


def pytest_configure(config: pytest.Config) -> None:
    if count := config.getoption("--workers"):
        config.pluginmanager.register(ForkedWorkers(count))
    if seconds := config.getoption("--begin-within"):
        config.pluginmanager.register(TimeLimit(seconds))
    if config.getoption("--recent-first"):
        config.pluginmanager.register(RecentFirst())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests and the modules they import stay until the end: looking through them for
    garbage, again and again, was half of what collecting them took. Later what a service is made
    of is looked through less often than by default: that was 8 % of what these take.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, object, object]:
    """The alarm of pytest-timeout waits while a phase is reported: there it would end the whole
    run as an internal error, in place of one test.
    """
    delay, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        return (yield)
    finally:
        if delay:
            signal.setitimer(signal.ITIMER_REAL, delay, interval)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test-kubernetes` runs, and spread what computes among what waits."""
    for item in items:
        if "control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kubernetes)
    files = list(dict.fromkeys(item.path for item in items))
    place = {file: index for index, file in enumerate(spread(files, ROOT / "tests/unit"))}
    items.sort(key=lambda item: place[item.path])


@pytest.fixture(scope="session", autouse=True)
def children_can_be_interrupted() -> None:
    let_children_be_interrupted()


@pytest.fixture(scope="session", autouse=True)
def engine_user_is_probed_once() -> Iterator[None]:
    """Whether engines may run as a user of their own is the same for every data directory of a
    session, and to find out forks a process of the size of this one.
    """
    from services.executor.host import engine_user

    probe = engine_user._problem  # noqa: SLF001  # its cache is per directory
    found: dict[Identity, str | None] = {}

    def problem(identity: "Identity", above_home: Path) -> str | None:
        if identity not in found:
            found[identity] = probe(identity, above_home)
        return found[identity]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_user, "_problem", problem)
        yield


@pytest.fixture
async def idle_clock() -> AsyncIterator[Clock]:
    """The test's loop goes by a clock that stands still while anything of the test computes."""
    with idle_time() as clock:
        yield clock


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """The session's nats-server. A test that kills one uses `nats_server_factory`."""
    with short_directory() as directory:
        server = NatsServer(directory / "nats")
        run_apart(server.start())
        try:
            yield server
        finally:
            run_apart(server.stop())


@pytest.fixture
async def nats_url(nats_server: NatsServer) -> str:
    """The session's nats-server, credentials in the URL, without any stream of an earlier test."""
    await nats_server.clear()
    return nats_server.authenticated_url


@pytest.fixture
async def nats_server_factory(tmp_path: Path) -> AsyncIterator[Callable[[], Awaitable[NatsServer]]]:
    """Starts nats-servers of the test's own, to be killed, restarted and robbed of their store."""
    started: list[NatsServer] = []

    async def start() -> NatsServer:
        server = NatsServer(tmp_path / f"nats-{len(started)}")
        started.append(server)
        await server.start()
        return server

    yield start
    for server in started:
        await server.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The session's Postgres. A test that restarts one uses `postgres_server_factory`."""
    with short_directory() as directory:
        server = PostgresServer(directory / "postgres")
        run_apart(server.start())
        try:
            yield server
        finally:
            run_apart(server.stop())


@pytest.fixture(scope="session")
def kept_schema() -> "KeptSchema | None":
    """A folder with the tests of one service gives that service's."""
    return None


@pytest.fixture
async def postgres_dsn(
    postgres_server: PostgresServer, kept_schema: "KeptSchema | None"
) -> AsyncIterator[str]:
    """An empty database, or one as it is after the service's first start: for one test."""
    made = kept_schema.database() if kept_schema is not None else database_of(postgres_server)
    async with made as dsn:
        yield dsn


@pytest.fixture
async def postgres_server_factory() -> AsyncIterator[Callable[[], Awaitable[PostgresServer]]]:
    """Starts Postgres servers of the test's own, to be killed and restarted. About 0.9 s each."""
    started: list[PostgresServer] = []
    with short_directory() as directory:

        async def start() -> PostgresServer:
            server = PostgresServer(directory / f"postgres-{len(started)}")
            started.append(server)
            await server.start()
            return server

        yield start
        for server in started:
            await server.stop()


@pytest.fixture(scope="session")
def docker_engine() -> Iterator["PrivateEngine"]:
    """The session's container engine; its containers outlive its restarts. A test that needs
    another uses `private_engine`.
    """
    # Its client takes 0.4 s to import, which the tests without containers are spared.
    from tests.support.docker.private_engine import private_engine

    with private_engine() as engine:
        yield engine


@pytest.fixture(scope="session")
def control_plane() -> Iterator["ControlPlane"]:
    """The session's Kubernetes, without nodes at first; what is in it is other tests' as well, see
    `empty_cluster`. About 3 s. Skips where its programs are missing.
    """
    from tests.support.kubernetes import binaries
    from tests.support.kubernetes.control_plane import ControlPlane

    if (reason := binaries.missing()) is not None:
        pytest.skip(reason)
    with short_directory() as directory:
        control_plane = ControlPlane(directory)
        try:
            run_apart(control_plane.start())
            yield control_plane
        finally:
            run_apart(control_plane.stop())


@pytest.fixture
async def empty_cluster(control_plane: "ControlPlane") -> "AsyncIterator[ControlPlane]":
    """The session's Kubernetes, without anything of an earlier test but installed kinds."""
    from tests.support.kubernetes.connections import cut_left_connections

    await control_plane.wipe()
    yield control_plane
    await cut_left_connections()


@pytest.fixture
async def ome_cluster(empty_cluster: "ControlPlane") -> "ControlPlane":
    """`empty_cluster` with OME's kinds installed, of which no controller knows; see
    tests/support/kubernetes/ome_stand_in.py.
    """
    from tests.support.kubernetes.ome_stand_in import install_crds, missing_crds

    if (reason := missing_crds()) is not None:
        pytest.skip(reason)
    async with empty_cluster.api() as api:
        await install_crds(api)
    return empty_cluster
