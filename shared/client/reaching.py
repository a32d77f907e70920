"""Why a gateway was not reached, in a sentence with the way out."""

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

import aiohttp

from shared.client.errors import PlatformUnreachable
from shared.host_header import EVERY_ADDRESS


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
            text = f"the certificate of {url} is not trusted here: {error.certificate_error}"
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


def is_this_host(host: str) -> bool:
    """Return whether a name or an address is one of this machine's own, without asking DNS."""
    try:
        return ip_address(host).is_loopback or host in EVERY_ADDRESS
    except ValueError:
        return host in {"localhost", socket.gethostname().lower()}
