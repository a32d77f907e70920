"""With which servers a connection is made, as whom, how it is encrypted: FastStream's options."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from faststream.nats.security import NatsSecurity as FaststreamSecurity
from faststream.nats.security import NatsUserPassword
from nats.aio.client import DEFAULT_INBOX_PREFIX
from nats.js.api import INBOX_PREFIX

from shared.nats_addresses import read_nats_addresses
from shared.settings import SettingsError
from shared.tls.contexts import CertificateUnusable
from shared.tls.nats import NatsSecurity, read_authority


@dataclass(frozen=True, slots=True)
class BusLogin:
    """What the broker is told; `user` is None without a file of credentials."""

    broker_options: dict[str, Any]
    user: str | None = None
    pull_inbox: bytes = INBOX_PREFIX

    @classmethod
    def of(cls, url: str, credentials: str | None, security: NatsSecurity | None) -> "BusLogin":
        """Read the login. All URLs have it beside them: what is learnt of further servers has none.

        Raises SettingsError for files of TLS that are unusable.
        """
        addresses = read_nats_addresses(url)
        bare_urls = [address.bare_url for address in addresses]
        tls = _tls_of(url, security or NatsSecurity(ca_text=read_authority(credentials)))
        if credentials is not None:
            return cls._of_file(bare_urls, credentials, tls)
        logins = {address.login for address in addresses}
        login = logins.pop()
        if login is None or logins:
            whole_urls = [address.url for address in addresses]
            return cls({"servers": whole_urls, "security": FaststreamSecurity(**tls)})
        user, password = login
        return cls({"servers": bare_urls, "security": NatsUserPassword(user, password, **tls)})

    @classmethod
    def _of_file(cls, urls: list[str], credentials: str, tls: dict[str, Any]) -> "BusLogin":
        login = _read_login(credentials)
        inbox = login.get("inbox_prefix", DEFAULT_INBOX_PREFIX.decode())
        security = NatsUserPassword(
            username=login["user"],
            # nats-py calls it for every connection.
            password=partial(_read_password, credentials),  # type: ignore[arg-type]  # as it allows
            **tls,
        )
        options = {"servers": urls, "security": security, "inbox_prefix": inbox}
        return cls(options, login["user"], f"{inbox}.".encode())


def _tls_of(url: str, security: NatsSecurity) -> dict[str, Any]:
    try:
        context = security.make_context(url)
    except CertificateUnusable as error:
        raise SettingsError(f"the bus: {error}") from error
    if context is None:
        return {}
    return {"ssl_context": context, "tls_handshake_first": security.is_first(url)}


def _read_login(path: str) -> dict[str, str]:
    login: dict[str, str] = json.loads(Path(path).read_text())
    return login


def _read_password(path: str) -> str:
    return _read_login(path)["password"]
