"""The provider and the mapping that the settings name."""

import ssl
import tomllib
from pathlib import Path

import msgspec

from services.gateway.domain.rights import RoleMapping
from services.gateway.provider.client import OPENID, Provider, ProviderClient
from services.gateway.provider.requests import check_address
from services.gateway.settings import GatewaySettings
from shared.settings import SettingsError, variable_of
from shared.tls.contexts import CertificateUnusable, make_client_context


def create_provider(settings: GatewaySettings) -> Provider | None:
    """Return the provider; None where nobody is to sign in. Raises SettingsError."""
    if not settings.oidc_issuer:
        _refuse_parts(settings)
        return None
    try:
        check_address(settings.oidc_issuer, "the provider's address")
    except ValueError as error:
        raise SettingsError(f"{_variable('oidc_issuer')}: {error}") from error
    if not settings.oidc_client_id:
        raise SettingsError(f"expected {_variable('oidc_client_id')} beside the issuer, found none")
    if OPENID not in settings.oidc_scopes.split():
        raise SettingsError(f"{_variable('oidc_scopes')}: expected `{OPENID}` among them")
    device_client = None
    if settings.oidc_device_client_id:
        device_client = ProviderClient(
            settings.oidc_device_client_id,
            _read_secret(settings.oidc_device_client_secret_file, "oidc_device_client_secret_file"),
        )
    return Provider(
        settings.oidc_issuer,
        ProviderClient(
            settings.oidc_client_id,
            _read_secret(settings.oidc_client_secret_file, "oidc_client_secret_file"),
        ),
        name=settings.oidc_provider_name,
        device_client=device_client,
        audience=settings.oidc_audience,
        scopes=settings.oidc_scopes,
        name_claim=settings.oidc_name_claim,
        groups_claim=settings.oidc_groups_claim,
        tls=_trust_of(settings),
    )


def read_mapping(settings: GatewaySettings) -> RoleMapping:
    """Return the rules of the mapping file. Raises SettingsError for one that cannot be read."""
    path = settings.oidc_mapping_file
    if path is None:
        return RoleMapping()
    try:
        values = tomllib.loads(Path(path).read_text())
        return msgspec.convert(values, RoleMapping)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SettingsError(f"{_variable('oidc_mapping_file')}: {path}: {error}") from error


def _trust_of(settings: GatewaySettings) -> ssl.SSLContext | bool:
    """Return what verifies the provider's certificate; True is the system's authorities."""
    if settings.oidc_ca is None:
        return True
    try:
        return make_client_context(settings.oidc_ca)
    except CertificateUnusable as error:
        raise SettingsError(f"{_variable('oidc_ca')}: {error}") from error


def _refuse_parts(settings: GatewaySettings) -> None:
    """Raises SettingsError for settings that mean nothing without an issuer."""
    for field in ("oidc_client_id", "oidc_mapping_file", "oidc_audience"):
        if getattr(settings, field):
            raise SettingsError(
                f"expected {_variable('oidc_issuer')} beside {_variable(field)}, found none"
            )


def _read_secret(path: str | None, field: str) -> str:
    if path is None:
        return ""
    try:
        secret = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{_variable(field)}: {error}") from error
    if not secret:
        raise SettingsError(f"{_variable(field)}: expected a secret in {path}, found none")
    return secret


def _variable(field: str) -> str:
    return variable_of(field, "gateway")
