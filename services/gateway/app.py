"""Puts the gateway together."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from litestar import Litestar, Request, Router
from litestar.datastructures import State
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Tag

from schemas.base import API
from schemas.gateway import endpoints
from schemas.gateway.datasets import GetDatasetPiece
from schemas.gateway.tokens import Token
from services.gateway.bus_watch import BusWatch
from services.gateway.context import Gateway
from services.gateway.http.access_control import AccessControl
from services.gateway.http.conditional_reads import ConditionalReads
from services.gateway.http.openapi import StructSchemas, openapi_config
from services.gateway.http.problems import EXCEPTION_HANDLERS, remember_refusal
from services.gateway.http.refused_sign_ins import count_refused
from services.gateway.http.server import HttpServer
from services.gateway.ledger.audit import AuditLog
from services.gateway.ledger.datasets import Datasets
from services.gateway.ledger.eventlog import EventLog
from services.gateway.ledger.imports import Imports
from services.gateway.ledger.invitations import Invitations
from services.gateway.ledger.logins import Logins
from services.gateway.ledger.members import Members
from services.gateway.ledger.migrations import MIGRATIONS
from services.gateway.ledger.sign_in_attempts import SignInAttempts
from services.gateway.ledger.sign_ins import SignIns
from services.gateway.ledger.tokens import TokenStore
from services.gateway.live_state import LiveState
from services.gateway.measurements import Measurements
from services.gateway.provider.setup import create_provider, read_mapping
from services.gateway.routes import history, reports
from services.gateway.routes.common import (
    GATEWAY,
    provide_identity,
    record_change,
    refuse_bad_parameters,
    require_role,
)
from services.gateway.routes.conditional_changes import heed_if_match, provide_expected_revision
from services.gateway.routes.gpus import (
    checks,
    gpus,
    nodes,
    operations,
    reservations,
    scheduler,
    servers,
)
from services.gateway.routes.platform import (
    documentation,
    joining,
    login,
    members,
    secrets,
    sign_in,
    sign_in_pages,
    system,
    tokens,
    web_page,
)
from services.gateway.routes.tasks import (
    archives,
    comparison,
    datasets,
    engines,
    logs,
    presets,
    tasks,
    validation,
)
from services.gateway.settings import GatewaySettings
from services.gateway.sign_in.bearer import BearerTokens
from services.gateway.sign_in.flows import SignInFlows
from services.gateway.streams import server_sent, sockets
from shared.host_header import host_names, is_loopback
from shared.local_platform.tokens import read_tokens
from shared.messaging.bus import Bus, query_route
from shared.optional_imports import missing
from shared.postgres.database import Database
from shared.service import Service
from shared.settings import SettingsError, load_settings
from shared.tls.contexts import CertificateUnusable
from shared.tls.reloading import ReloadingCertificate, load_certificate


def _tag_routes(module: ModuleType, section: Tag | None = None) -> list[HTTPRouteHandler]:
    """Tag every route that the module declares with its section of the API's document.

    A router for each section would not do: two routers cannot have methods of the same path.
    """
    handlers = [member for member in vars(module).values() if isinstance(member, HTTPRouteHandler)]
    for route in handlers:
        route.tags = [section.name] if section is not None else None
    return handlers


# Sections of the API's document. A generated client has a module for each, named by its tag.
TASKS: Final = Tag("tasks", "Tasks and experiments.")
PIECES_AT_ONCE: Final = 4
PLATFORM: Final = Tag("platform", "Whether the platform works.")
TOKENS: Final = Tag("tokens", "Who may use the API, and who changed what.")
SECTIONS: Final = {
    tasks: TASKS,
    validation: TASKS,
    presets: TASKS,
    engines: TASKS,
    archives: TASKS,
    datasets: TASKS,
    comparison: TASKS,
    logs: TASKS,
    reservations: Tag("reservations", "Reservations, and what would be granted."),
    gpus: Tag("gpus", "GPUs and nodes, and who holds them."),
    nodes: Tag("agents", "What a node's telemetry agent answers and does."),
    operations: Tag("operations", "Out of service and back, and what disagrees with the ledger."),
    servers: Tag("servers", "Servers that run already, tried before they are measured."),
    scheduler: Tag("scheduling", "The cluster as node selection sees it, and what was decided."),
    checks: Tag("checks", "What fits on which GPU, by rule, before anything runs."),
    history: Tag("history", "Events, series and reports."),
    secrets: Tag("secrets", "Secrets of namespaces, which engines get by name."),
    reports: Tag("reports", "Where GPU time went, and what was in the way."),
    tokens: TOKENS,
    login: TOKENS,
    sign_in: TOKENS,
    members: TOKENS,
    joining: TOKENS,
}
API_ROUTES: Final = [
    route for module, section in SECTIONS.items() for route in _tag_routes(module, section)
]


class GatewayService(Service):
    """The gateway's lifecycle. `http.port` is the port in use once the server listens."""

    def __init__(self, gateway: Gateway, http: HttpServer) -> None:
        self.http, self.live, self._log = http, gateway.live, gateway.log
        self._tokens, self._measurements = gateway.tokens, gateway.measurements
        super().__init__(
            "gateway",
            bus=gateway.bus,
            database=gateway.database,
            routes=[
                self._log.writer.route(),
                query_route(gateway.datasets.piece, GetDatasetPiece, workers=PIECES_AT_ONCE),
            ],
            start=self._open,
            loops={
                "http": http.run,
                **({"certificate": http.certificate.run} if http.certificate is not None else {}),
                "watch_bus": gateway.bus_watch.run,
                "follow_events": self._log.follow,
                "trim_events": self._log.trim,
                "trim_audit": gateway.audit.trim,
                "record_refused_sign_ins": gateway.audit.record_refused,
                "end_streams": gateway.tokens.end_streams,
            },
            ready=http.wait_until_started,
        )

    async def _open(self) -> None:
        await self._tokens.open()
        await self._log.open()
        await self.live.restore(self._log)
        self._log.followers.append(self._measurements.on_event)
        await self.live.subscribe(self.bus)


async def _check(request: Request[Any, Any, Any]) -> None:
    """Run all checks before the request is read, and not as guards: Litestar copies a route's
    handler for each of those.
    """
    handler = request.scope["route_handler"]
    await refuse_bad_parameters(request, handler)
    await heed_if_match(request, handler)
    await record_change(request, handler)
    await require_role(request, handler)


def _count_refused(error: Exception, scope: Any) -> None:
    gateway: Gateway = scope["litestar_app"].state[GATEWAY]
    count_refused(gateway.audit, scope, error)


def create_app(gateway: Gateway) -> Litestar:
    """Build the Litestar app; `create_service` puts access control around it."""
    structs = StructSchemas()
    # Chained on purpose: Litestar would resolve independent dependencies in a task each.
    dependencies: dict[str, Any] = {
        "gateway": Provide(lambda: gateway, sync_to_thread=False),
        "identity": Provide(provide_identity, sync_to_thread=False),
        "expected_revision": Provide(provide_expected_revision, sync_to_thread=False),
    }
    # It makes plugins for both where it can import them: 57 modules, the whole of pydantic.v1.
    with missing("pydantic", "attrs"):
        return Litestar(
            route_handlers=[
                Router(
                    API,
                    route_handlers=API_ROUTES,
                    before_request=_check,
                ),
                *_tag_routes(system, PLATFORM),
                *_tag_routes(documentation),
                *_tag_routes(sign_in_pages),
                *_tag_routes(web_page),
                *sockets.ROUTES,
                *server_sent.ROUTES,
            ],
            dependencies=dependencies,
            state=State({GATEWAY: gateway}),
            exception_handlers=EXCEPTION_HANDLERS,
            after_exception=[remember_refusal, _count_refused],
            openapi_config=openapi_config(structs, (*SECTIONS.values(), PLATFORM)),
            plugins=[structs],
            logging_config=None,
        )


def create_service(settings: GatewaySettings | None = None) -> GatewayService:
    """Build the service without opening it.

    Raises SettingsError without Postgres, or without tokens on an address that others reach.
    """
    settings = settings or load_settings(GatewaySettings, "gateway")
    provider, mapping = create_provider(settings), read_mapping(settings)
    file_tokens = _tokens_of_file(settings, is_open=provider is None)
    certificate = _certificate_of(settings)
    database = Database.from_settings("gateway", settings, MIGRATIONS)
    bus = Bus.from_settings("gateway", settings, awaits_services=True)
    member_table = Members(database)
    sign_ins = SignIns(
        database, member_table, provider, mapping, timedelta(minutes=settings.oidc_grace_minutes)
    )
    token_store = TokenStore(database, file_tokens, sign_ins)
    logins = Logins(database)
    gateway = Gateway(
        bus=bus,
        bus_watch=BusWatch(bus),
        database=database,
        log=EventLog(database, settings.event_retention_days),
        live=LiveState(),
        tokens=token_store,
        logins=logins,
        members=member_table,
        sign_in=SignInFlows(sign_ins, SignInAttempts(database), token_store, logins),
        public_url=settings.public_url.rstrip("/"),
        audit=AuditLog(database, settings.audit_retention_days),
        imports=Imports(database),
        datasets=Datasets(
            database, settings.largest_dataset_mb << 20, settings.datasets_quota_mb << 20
        ),
        measurements=Measurements(),
        data_dir=Path(settings.data_dir),
        invitations=Invitations(database),
        nats_home=Path(settings.nats_home) if settings.nats_home else None,
        node_nats_url=settings.node_nats_url,
        authority_path=Path(settings.tls_ca) if settings.tls_ca else None,
        certificate_path=Path(settings.tls_cert) if settings.tls_cert else None,
    )
    access_control = AccessControl(
        ConditionalReads(create_app(gateway)),
        host_names(settings.host, settings.allowed_hosts.split(",")),
        gateway.tokens,
        BearerTokens(sign_ins),
        gateway.audit,
        gateway.measurements,
        requests_per_second=settings.requests_per_second,
        stream_limits={
            endpoints.IMPORT_ARCHIVE.address(): settings.largest_import_mb << 20,
            endpoints.ADD_DATASET.address(): settings.largest_dataset_mb << 20,
        },
        holders_visible_to=settings.holders_visible_to,
    )
    http = HttpServer(
        access_control,
        settings.host,
        settings.port,
        settings.shares_port,
        certificate,
        settings.trusted_proxies,
    )
    return GatewayService(gateway, http)


def _certificate_of(settings: GatewaySettings) -> ReloadingCertificate | None:
    if settings.tls_cert is None:
        return None
    try:
        return load_certificate(settings.tls_cert, settings.tls_key)
    except CertificateUnusable as error:
        raise SettingsError(f"GPUSTEWARD_GATEWAY_TLS_CERT: {error}") from error


def _tokens_of_file(settings: GatewaySettings, *, is_open: bool) -> Sequence[Token]:
    """Read the file of tokens. Raises SettingsError where an open gateway needs one."""
    if settings.tokens_file is not None:
        return read_tokens(Path(settings.tokens_file))
    if is_open and not is_loopback(settings.host):
        raise SettingsError(
            f"other machines reach {settings.host}: expected GPUSTEWARD_GATEWAY_TOKENS_FILE,"
            " found none; `gpusteward token create` makes it"
        )
    return ()
