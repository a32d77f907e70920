"""Puts a telemetry agent together."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from services.telemetry import thrift
from services.telemetry.agent import Agent
from services.telemetry.announcer import Announcer, read_host_facts
from services.telemetry.choice import choose
from services.telemetry.devices import Devices
from services.telemetry.domain.holdings import Holdings
from services.telemetry.figures import Figures
from services.telemetry.grants import GrantFollower
from services.telemetry.handlers import Handlers, build_routes
from services.telemetry.metrics import AgentMetrics
from services.telemetry.metrics_server import MetricsServer
from services.telemetry.node_clock import NodeClock
from services.telemetry.power import PowerLimits
from services.telemetry.power_journal import PowerJournal
from services.telemetry.settings import TelemetrySettings
from shared.bus import Bus
from shared.lifecycle import give_back_memory
from shared.service import Service
from shared.settings import load_settings


class TelemetryService(Service):
    """The agent's lifecycle; `metrics` tells the port it really has, None if there is no server."""

    metrics: MetricsServer | None


def create_service(settings: TelemetrySettings | None = None) -> TelemetryService:
    """The service, closed; `run` or `running` opens it. Raises SettingsError for a bad fleet."""
    settings = settings or load_settings(TelemetrySettings, "telemetry")
    bus = Bus.from_settings("telemetry", settings)
    holdings, figures = Holdings(), Figures()
    announcer = Announcer(
        bus,
        NodeClock(),
        node_id=settings.node_id,
        interval_seconds=settings.interval_seconds,
        host=read_host_facts(),
    )
    choice = choose(settings, holdings)
    devices = Devices(
        choice,
        announcer,
        figures,
        interval_seconds=settings.interval_seconds,
        inventory_seconds=settings.inventory_seconds,
    )
    follower = GrantFollower(bus, settings.node_id, holdings, settings.inventory_seconds)
    agent = Agent(
        devices,
        announcer,
        bus,
        figures,
        source=lambda: choice.source,
        interval_seconds=settings.interval_seconds,
        release=follower.end,
    )
    power = PowerLimits(
        agent,
        announcer,
        PowerJournal(_journal_path(settings)),
        require_holder=follower.require_holder,
        has_ended=holdings.has_ended,
    )
    follower.on_end.append(power.reservation_ended)
    bus.on_new_stream.append(agent.repeat_inventory)
    loops: dict[str, Callable[[], Awaitable[None]]] = {
        "ticks": agent.run,
        "announcements": announcer.run,
        "grants": follower.reconcile,
        "power_limits": power.run,
        "memory": thrift.collect,
    }
    metrics = None
    if settings.metrics:
        text = AgentMetrics(agent, announcer, choice, holdings, figures).text
        metrics = MetricsServer(settings.metrics_host, settings.metrics_port, text)
        loops["metrics"] = metrics.run

    async def start() -> None:
        await follower.listen()
        await agent.start()

    async def ready() -> None:
        await agent.settle()
        give_back_memory()
        thrift.set_apart()

    async def stop() -> None:
        await power.stop()
        await agent.stop()

    service = TelemetryService(
        "telemetry",
        bus=bus,
        routes=build_routes(Handlers(agent, announcer, choice, power), settings.node_id),
        loops=loops,
        start=start,
        ready=ready,
        stop=stop,
    )
    service.metrics = metrics
    return service


def _journal_path(settings: TelemetrySettings) -> Path:
    return Path(settings.data_dir) / "telemetry" / f"{settings.node_id}.power.json"
