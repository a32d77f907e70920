"""Addresses of NATS servers, several with commas between them: read and checked here alone."""

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from shared.host_header import EVERY_ADDRESS, is_loopback
from shared.paths import DEFAULT_NATS_PORT

WEB_SOCKET_PORTS: Final = {"ws": 80, "wss": 443}
SCHEMES: Final = ("nats", "tls", *WEB_SOCKET_PORTS)
HOST: Final = re.compile(r"[\w.:%-]+")  # a name, also one beyond ASCII, or an address
EXPECTED: Final = (
    "expected the address of a NATS server, as nats://HOST:4222, or several of one cluster with "
    "commas between them"
)


class NatsAddress(Struct, frozen=True, kw_only=True):
    """Where one server is. `text` is as it was typed, for people: without user and password."""

    url: str
    text: str
    host: str
    port: int
    user: str | None = None
    password: str | None = None

    @property
    def is_on_loopback(self) -> bool:
        """True if only this machine reaches the server."""
        return is_loopback(self.host)

    @property
    def is_web_socket(self) -> bool:
        """True if NATS is spoken inside a WebSocket there."""
        return urlsplit(self.url).scheme in WEB_SOCKET_PORTS

    @property
    def bare_url(self) -> str:
        """The URL without user and password."""
        return self.text if "://" in self.text else f"nats://{self.text}"

    @property
    def login(self) -> tuple[str, str] | None:
        """User and password, where the address has both."""
        return None if not self.user or self.password is None else (self.user, self.password)


def read_nats_addresses(text: str) -> tuple[NatsAddress, ...]:
    """Return the servers in their order, at least one.

    Raises ValueError, a sentence without passwords, for an address that no client takes, and for
    WebSockets beside plain connections, of which a client takes one kind.
    """
    members = [member.strip() for member in text.split(",")]
    addresses = tuple(_read(members, index) for index in range(len(members)))
    if len({address.is_web_socket for address in addresses}) > 1:
        raise ValueError(
            "expected addresses of NATS servers that are all of WebSockets (ws, wss) or none, got "
            + ",".join(address.text for address in addresses)
        )
    return addresses


def are_on_loopback(text: str) -> bool:
    """Return True if only this machine reaches any of these servers. Raises ValueError."""
    return all(address.is_on_loopback for address in read_nats_addresses(text))


def without_logins(text: str) -> str:
    """Return the addresses as they may be shown. Raises ValueError."""
    return ",".join(address.text for address in read_nats_addresses(text))


def beyond_loopback(text: str) -> str | None:
    """Return the addresses that other machines reach, None without any. Raises ValueError."""
    texts = [a.text for a in read_nats_addresses(text) if not a.is_on_loopback]
    return ",".join(texts) or None


def with_host_for_wildcards(text: str, host: str) -> str:
    """Return the addresses with `host` where they name every address of the platform's host.

    Raises ValueError.
    """
    return ",".join(
        address.url if address.host not in EVERY_ADDRESS else _at_host(address, host)
        for address in read_nats_addresses(text)
    )


def _read(members: list[str], index: int) -> NatsAddress:
    member = members[index]
    url = member if "://" in member else f"nats://{member}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # a port that is no number, a bracket too few
        parts, host, port = SplitResult("", "", "", "", ""), None, None
    is_whole = parts.scheme in SCHEMES and host is not None and HOST.fullmatch(host) and port != 0
    if not is_whole or (parts.path.strip("/") and parts.scheme not in WEB_SOCKET_PORTS):
        raise ValueError(_complaint(members, index))
    default_port = WEB_SOCKET_PORTS.get(parts.scheme, DEFAULT_NATS_PORT)
    return NatsAddress(
        url=url,
        text=_without_login(member),
        host=str(host),
        port=port or default_port,
        user=parts.username,
        password=parts.password,
    )


def _without_login(member: str) -> str:
    scheme, mark, address = member.rpartition("://")
    return f"{scheme}{mark}{address.rpartition('@')[2]}"


def _complaint(members: list[str], index: int) -> str:
    # A comma in a password parts it: then nothing before an @ may be shown.
    is_shown = "@" in members[index] or not any("@" in member for member in members)
    got = repr(_without_login(members[index])) if is_shown else "one that is not shown"
    place = f" in place {index + 1} of {len(members)}" if len(members) > 1 else ""
    return f"{EXPECTED}; got {got}{place}"


def _at_host(address: NatsAddress, host: str) -> str:
    parts = urlsplit(address.url)
    login = "".join(parts.netloc.rpartition("@")[:2])
    authority = f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
    return parts._replace(netloc=login + authority).geturl()
