"""Why a gateway was not reached, in a sentence with the way out."""

import socket
import ssl
from ipaddress import ip_address
from urllib.parse import urlsplit

import aiohttp

from schemas.errors import ErrorCode
from shared.client.discovery import AUTHORITY_VARIABLE, Address, find_authority
from shared.client.errors import PlatformUnreachable
from shared.errors import RefusedError
from shared.host_header import EVERY_ADDRESS
from shared.tls.contexts import CertificateUnusable, make_client_context


def unreachable(url: str, error: Exception) -> PlatformUnreachable:
    """Return what to raise of a request to `url` that ended with this error."""
    host = urlsplit(url).hostname or url
    is_here = is_this_host(host)
    match error:
        case TimeoutError():
            text = f"{url} did not answer in time"
        case aiohttp.ClientConnectorDNSError():
            text = f"no host is called {host!r}, as far as DNS and /etc/hosts know; check the name"
        case aiohttp.ClientConnectorCertificateError():
            text = _distrust(url, error.certificate_error)
        case aiohttp.ClientSSLError():
            plain = url.replace("https://", "http://", 1)
            text = f"{url} does not speak TLS: expected an https server there; try {plain}"
        case aiohttp.ServerDisconnectedError():
            text = f"{url} closed the connection without an answer; if it expects TLS, try https://"
        case _ if is_here:
            return PlatformUnreachable(f"nothing answers at {url}")
        case _:
            text = (
                f"nothing answers at {url}: expected a platform that runs on {host} and listens"
                " beyond its own 127.0.0.1 (`gpusteward up --host`), with no firewall between"
            )
    is_startable = is_here and isinstance(error, TimeoutError)
    return PlatformUnreachable(text, is_startable=is_startable)


def make_context(address: Address) -> ssl.SSLContext | bool:
    """Return how the server of an address is verified. Raises RefusedError for an unusable file."""
    if not address.url.startswith("https://"):
        return True
    ca = address.ca or find_authority()
    try:
        return make_client_context(ca, ca_text=address.ca_text, trusts_system=True)
    except CertificateUnusable as error:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"{AUTHORITY_VARIABLE}: {error}") from error


def _distrust(url: str, error: Exception) -> str:
    reason = getattr(error, "verify_message", "") or str(error)
    if "match" in reason or "not valid for" in reason:
        return (
            f"the certificate at {url} is for another name: {reason}; use a name that it has, or "
            "have it made for this one too (`gpusteward up --tls-name`)"
        )
    if "expired" in reason or "not yet valid" in reason:
        return f"the certificate at {url}: {reason}; have it renewed, and check this host's clock"
    return (
        f"the certificate at {url} is not trusted here: {reason}; if an authority of your own made "
        f"it, set {AUTHORITY_VARIABLE} to its file: of `gpusteward up` tls/ca.pem in the data "
        "directory, of `compose init` tls/ca.pem in its"
    )


def is_this_host(host: str) -> bool:
    """Return whether a name or an address is one of this machine's own, without asking DNS."""
    try:
        return ip_address(host).is_loopback or host in EVERY_ADDRESS
    except ValueError:
        return host in {"localhost", socket.gethostname().lower()}
