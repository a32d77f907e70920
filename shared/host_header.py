"""Under which names a server answers, and which are this machine's alone.

A web page whose name was rebound to this machine sends that name as its Host.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

LOOPBACK: Final = "127.0.0.1"
LOOPBACK_NAMES: Final = frozenset({"localhost", LOOPBACK, "::1"})
# By what a server on every address is reached from its own host.
LOOPBACK_OF_WILDCARD: Final = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104  # only compared
EVERY_ADDRESS: Final = frozenset(LOOPBACK_OF_WILDCARD)


def is_loopback(host: str) -> bool:
    """True if only this machine reaches what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_names(bound_host: str, further: Iterable[str] = ()) -> frozenset[str] | None:
    """The names that a Host header may carry; None of a server on every address: any."""
    if bound_host in EVERY_ADDRESS:
        return None
    return LOOPBACK_NAMES | {name.strip("[] ").lower() for name in (bound_host, *further) if name}


def is_known_host(header: str | None, names: frozenset[str] | None) -> bool:
    if names is None:
        return True
    try:
        return urlsplit(f"//{header or ''}").hostname in names
    except ValueError:
        return False
