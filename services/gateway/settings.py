"""Settings of the gateway."""

from typing import Annotated

from msgspec import Meta

from services.gateway.domain.access import HoldersVisibleTo
from shared.paths import DEFAULT_HTTP_PORT
from shared.settings import CommonSettings


class GatewaySettings(CommonSettings, frozen=True, kw_only=True):
    """`port` 0 takes any free one. `tokens_file` says who may use the API, as `gpusteward token
    create` writes it; needed where `host` is an address that other machines reach.

    `allowed_hosts` are further host names under which browsers may reach a gateway that is bound to
    them; `event_retention_days` is how far back clients may resume, `audit_retention_days` how long
    it is known who changed what. `requests_per_second` holds for each token that has no rate of its
    own, on each gateway; 0 is without limit.

    `holders_visible_to` says who is told the holders of another namespace, in fleet, map, reasons
    and events: `namespace`, those with a token of that namespace, or `everybody`. An admin is told
    always.

    `largest_import_mb` (MiB) is how large an import may be. While one comes in it is a file in the
    gateway's temporary folder (`TMPDIR`), then in Postgres.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = DEFAULT_HTTP_PORT
    tokens_file: str | None = None
    allowed_hosts: str = ""
    event_retention_days: Annotated[int, Meta(ge=1, le=3650)] = 30
    audit_retention_days: Annotated[int, Meta(ge=1, le=3650)] = 365
    requests_per_second: Annotated[float, Meta(ge=0)] = 200.0
    holders_visible_to: HoldersVisibleTo = HoldersVisibleTo.NAMESPACE
    largest_import_mb: Annotated[int, Meta(ge=1, le=65_536)] = 512
