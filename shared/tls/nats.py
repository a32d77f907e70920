"""How a client speaks TLS with a NATS server: what is given for it, what the library is told."""

import json
import ssl
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from shared.nats_addresses import read_nats_addresses
from shared.tls.contexts import make_client_context

ENCRYPTED_SCHEMES: Final = frozenset({"tls", "wss"})


class NatsSecurity(Struct, frozen=True, kw_only=True):
    """Files of the authority, and of a client's certificate and key; `ca_text` is the authority in
    PEM that came with the credentials. With `tls_first` no byte precedes TLS, which a server
    without `handshake_first` does not understand.
    """

    ca: str | None = None
    ca_text: str = ""
    certificate: str | None = None
    key: str | None = None
    tls_first: bool = True

    def is_encrypted(self, url: str) -> bool:
        """Return True if TLS is spoken with all servers of the address. Raises ValueError."""
        if self.ca is not None or self.ca_text:
            return all(not a.url.startswith("ws:") for a in read_nats_addresses(url))
        return all(scheme_of(a.url) in ENCRYPTED_SCHEMES for a in read_nats_addresses(url))

    def make_context(self, url: str) -> ssl.SSLContext | None:
        """Return the context for the address, None where nothing is encrypted.

        Raises CertificateUnusable.
        """
        has_tls_scheme = any(
            scheme_of(a.url) in ENCRYPTED_SCHEMES for a in read_nats_addresses(url)
        )
        if not (has_tls_scheme or self.ca is not None or self.ca_text):
            return None
        return make_client_context(
            self.ca, ca_text=self.ca_text, certificate=self.certificate, key=self.key
        )

    def is_first(self, url: str) -> bool:
        """Return True if TLS precedes what NATS says; a WebSocket has its own."""
        return self.tls_first and not any(a.is_web_socket for a in read_nats_addresses(url))

    def connect_options(self, url: str) -> dict[str, Any]:
        """Return what nats-py's `connect` takes. Raises CertificateUnusable."""
        context = self.make_context(url)
        if context is None:
            return {}
        return {"tls": context, "tls_handshake_first": self.is_first(url)}


def scheme_of(url: str) -> str:
    return url.partition("://")[0].lower()


def read_authority(credentials: str | Path | None) -> str:
    """Return the authority in a file of credentials; empty where it has none, or is none."""
    if credentials is None:
        return ""
    try:
        login = json.loads(Path(credentials).read_text())
        return str(login.get("ca") or "")
    except (OSError, ValueError, AttributeError):
        return ""  # who logs in with it says what is wrong
