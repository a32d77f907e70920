"""Puts a telemetry agent together."""

from services.telemetry.agent import Agent, Cadence
from services.telemetry.announcer import Announcer, read_host_facts
from services.telemetry.choice import choose
from services.telemetry.domain.holdings import Holdings
from services.telemetry.grants import GrantFollower
from services.telemetry.handlers import Handlers, build_routes
from services.telemetry.settings import TelemetrySettings
from shared.bus import Bus
from shared.service import Service
from shared.settings import load_settings


def create_service(settings: TelemetrySettings | None = None) -> Service:
    """The service, closed; `run` or `running` opens it. Raises SettingsError for a bad fleet."""
    settings = settings or load_settings(TelemetrySettings, "telemetry")
    bus = Bus.from_settings("telemetry", settings)
    holdings = Holdings()
    announcer = Announcer(
        bus,
        node_id=settings.node_id,
        interval_seconds=settings.interval_seconds,
        host=read_host_facts(),
    )
    choice = choose(settings, holdings)
    agent = Agent(
        choice,
        announcer,
        bus,
        Cadence(settings.interval_seconds, settings.inventory_seconds),
        release=holdings.end,
    )
    bus.on_new_stream.append(agent.repeat_inventory)
    loops = {"ticks": agent.run, "announcements": announcer.run}
    follower = GrantFollower(bus, settings.node_id, holdings, settings.inventory_seconds)
    if choice.may_simulate:
        loops["grants"] = follower.reconcile

    async def start() -> None:
        if choice.may_simulate:
            await follower.listen()
        await agent.start()

    return Service(
        "telemetry",
        bus=bus,
        routes=build_routes(Handlers(agent), settings.node_id),
        loops=loops,
        start=start,
        ready=agent.settle,
        stop=agent.stop,
    )
