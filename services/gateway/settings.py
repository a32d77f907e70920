"""Settings of the gateway."""

from typing import Annotated

from msgspec import Meta

from services.gateway.domain.access import HoldersVisibleTo
from shared.paths import DEFAULT_HTTP_PORT
from shared.settings import CommonSettings, SettingsError, check_listener, check_nats_addresses


class GatewaySettings(CommonSettings, frozen=True, kw_only=True):
    """`port` 0 takes any free one. With `shares_port` several gateways of one user listen at the
    same address, and the kernel gives each connection to one of them. `tokens_file` says who may
    use the API, as `gpusteward token create` writes it; needed where `host` is an address that
    other machines reach.

    `tls_cert` is a certificate in PEM, with those between it and its authority, and `tls_key` its
    key: with them the API is https, and both are read again when they change. `tls_ca` is the
    authority of such a certificate where it is no public one: invited servers are given it.

    `allowed_hosts` are further host names under which browsers may reach a gateway that is bound to
    them; `event_retention_days` is how far back clients may resume, `audit_retention_days` how long
    it is known who changed what. `requests_per_second` holds for each token that has no rate of its
    own, on each gateway; 0 is without limit.

    `trusted_proxies` are addresses and networks of proxies before it, separated by commas, such as
    `127.0.0.1` or `10.0.0.0/8`: from them alone X-Forwarded-For and X-Forwarded-Proto count, as who
    asks in the audit log, and as whether cookies are for TLS alone.

    `holders_visible_to` says who is told the holders of another namespace, in fleet, map, reasons
    and events: `namespace`, those with a token of that namespace, or `everybody`. An admin is told
    always.

    `nats_home` is the directory of the NATS server that `up` runs beside this gateway, and
    `node_nats_url` where other hosts reach that server, or the servers of its cluster: with them
    invited nodes get credentials.

    `oidc_issuer` has people sign in at an OpenID provider, whose address that is; `oidc_ca` is the
    file with the authority of its certificate, by default one of the system's. `oidc_client_id` and
    the file `oidc_client_secret_file` are what it knows this platform by, the latter not for a
    public client. `oidc_mapping_file` is a TOML file of rules from groups and names to roles.
    `oidc_groups_claim` and `oidc_name_claim` are the claims with groups and name (by default
    `preferred_username`, else `email`, else `sub`); a dot leads into a claim. `oidc_audience` has
    access tokens of the provider count as well, those that are for this audience.
    `oidc_scopes` are asked for; `offline_access` among them has people's own tokens outlive their
    session at the provider. `oidc_provider_name` is what the page calls it. A client of its own
    for the device flow, where the provider wants one, is `oidc_device_client_id` with
    `oidc_device_client_secret_file`. Where the provider is away, who is signed in goes on for
    `oidc_grace_minutes`. `public_url` is where browsers reach this gateway, by default as they say.

    `largest_import_mb` (MiB) is how large an import may be, `largest_dataset_mb` an uploaded
    dataset, and `datasets_quota_mb` all of a namespace together. While one comes in it is a file in
    the gateway's temporary folder (`TMPDIR`), then in Postgres.
    """

    host: str = "127.0.0.1"
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    port: Annotated[int, Meta(ge=0, le=65535)] = DEFAULT_HTTP_PORT
    shares_port: bool = False
    tokens_file: str | None = None
    allowed_hosts: str = ""
    event_retention_days: Annotated[int, Meta(ge=1, le=3650)] = 30
    audit_retention_days: Annotated[int, Meta(ge=1, le=3650)] = 365
    trusted_proxies: str = ""
    requests_per_second: Annotated[float, Meta(ge=0)] = 200.0
    holders_visible_to: HoldersVisibleTo = HoldersVisibleTo.NAMESPACE
    nats_home: str | None = None
    node_nats_url: str = ""
    largest_import_mb: Annotated[int, Meta(ge=1, le=65_536)] = 512
    largest_dataset_mb: Annotated[int, Meta(ge=1, le=65_536)] = 1024
    datasets_quota_mb: Annotated[int, Meta(ge=1, le=1_048_576)] = 10_240
    public_url: str = ""
    oidc_issuer: str = ""
    oidc_provider_name: str = ""
    oidc_ca: str | None = None
    oidc_client_id: str = ""
    oidc_client_secret_file: str | None = None
    oidc_device_client_id: str = ""
    oidc_device_client_secret_file: str | None = None
    oidc_audience: str = ""
    oidc_scopes: str = "openid profile email"
    oidc_name_claim: str = ""
    oidc_groups_claim: str = "groups"
    oidc_mapping_file: str | None = None
    oidc_grace_minutes: Annotated[int, Meta(ge=0, le=1440)] = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        check_listener(
            self.host,
            "GPUSTEWARD_GATEWAY_TLS_CERT",
            is_encrypted=self.tls_cert is not None,
            is_allowed=self.insecure_plaintext,
        )
        if self.tls_key is not None and self.tls_cert is None:
            raise SettingsError("GPUSTEWARD_GATEWAY_TLS_KEY: expected its certificate as well")
        if self.node_nats_url:
            check_nats_addresses("node_nats_url", self.node_nats_url, "gateway")
