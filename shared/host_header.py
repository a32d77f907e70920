"""Under which names a server answers.

A web page whose name was rebound to this machine sends that name as its Host.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  # only compared


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
