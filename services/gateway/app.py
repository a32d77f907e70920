"""Puts the gateway together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from litestar import Litestar, Router
from litestar.di import Provide

from services.gateway import sockets
from services.gateway.domain.access import Token, host_names, is_loopback
from services.gateway.eventlog import EventLog
from services.gateway.gateway import Gateway
from services.gateway.guard import Guard
from services.gateway.live import Live
from services.gateway.migrations import MIGRATIONS
from services.gateway.openapi import StructSchemas, openapi_config
from services.gateway.problems import EXCEPTION_HANDLERS
from services.gateway.routes import (
    gpus,
    history,
    logs,
    nodes,
    operations,
    reservations,
    scheduler,
    system,
    tasks,
)
from services.gateway.routes.common import provide_identity, refuse_unknown_parameters
from services.gateway.server import HttpServer
from services.gateway.settings import GatewaySettings
from shared.bus import Bus
from shared.database import Database
from shared.service import Service
from shared.settings import SettingsError, load_settings

API: Final = "/api/v1"
EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  # only compared
API_ROUTES: Final = (
    *(tasks.ROUTES, gpus.ROUTES, reservations.ROUTES, history.ROUTES),
    *(nodes.ROUTES, operations.ROUTES, scheduler.ROUTES, logs.ROUTES),
)


class GatewayService(Service):
    """The gateway's lifecycle; `http` tells the port it really has, `live` what it has heard."""

    http: HttpServer
    live: Live


def create_app(gateway: Gateway) -> Litestar:
    """The routes, for whoever the guard has admitted."""
    structs = StructSchemas()
    routes = [route for group in API_ROUTES for route in group]
    dependencies: dict[str, Any] = {
        "gateway": Provide(lambda: gateway, sync_to_thread=False),
        "identity": Provide(provide_identity, sync_to_thread=False),
    }
    return Litestar(
        route_handlers=[
            Router(API, route_handlers=routes, before_request=refuse_unknown_parameters),
            *system.ROUTES,
            *sockets.ROUTES,
        ],
        dependencies=dependencies,
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=openapi_config(structs),
        plugins=[structs],
        logging_config=None,
    )


def create_service(settings: GatewaySettings | None = None) -> GatewayService:
    """The service, closed. Raises SettingsError without Postgres, or without tokens where strangers
    could reach it.
    """
    settings = settings or load_settings(GatewaySettings, "gateway")
    if settings.postgres_dsn is None:
        raise SettingsError("expected GPUSTEWARD_POSTGRES_DSN, found none")
    tokens = _tokens(settings)
    database = Database(settings.postgres_dsn, "gateway", MIGRATIONS)
    bus = Bus.from_settings("gateway", settings)
    log, live = EventLog(database, settings.event_retention_days), Live()
    guard = Guard(
        create_app(Gateway(bus=bus, database=database, log=log, live=live)),
        host_names(settings.host, filter(None, settings.allowed_hosts.split(","))),
        tokens,
        any_host=settings.host in EVERY_ADDRESS,
    )
    server = HttpServer(guard, settings.host, settings.port)

    async def start() -> None:
        await log.open()
        await live.remember(log)
        await live.listen(bus)

    service = GatewayService(
        "gateway",
        bus=bus,
        database=database,
        routes=[log.route()],
        start=start,
        loops={"http": server.run, "follow_events": log.follow, "trim_events": log.trim},
        ready=server.started,
    )
    service.http, service.live = server, live
    return service


def _tokens(settings: GatewaySettings) -> Sequence[Token]:
    if settings.tokens_file is None:
        if not is_loopback(settings.host):
            raise SettingsError(
                f"others can reach {settings.host}: expected GPUSTEWARD_GATEWAY_TOKENS_FILE,"
                " found none"
            )
        return ()
    try:
        content = Path(settings.tokens_file).read_bytes()
        tokens = msgspec.json.decode(content, type=tuple[Token, ...])
    except (OSError, msgspec.DecodeError) as error:
        raise SettingsError(f"GPUSTEWARD_GATEWAY_TOKENS_FILE: {error}") from error
    if not tokens:
        raise SettingsError(f"expected tokens in {settings.tokens_file}, found none")
    return tokens
