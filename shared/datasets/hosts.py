"""From which hosts datasets may be fetched, and at which addresses."""

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from shared.datasets.bounds import DatasetRefused

HOSTS_SETTING: Final = "GPUSTEWARD_EXECUTOR_DATASET_HOSTS"
PRIVATE_HOSTS_SETTING: Final = "GPUSTEWARD_EXECUTOR_DATASET_PRIVATE_HOSTS"
PORTS: Final = {"http": 80, "https": 443}
_METADATA: Final = frozenset(map(ip_address, ("fd00:ec2::254", "100.100.100.200")))


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Hosts, each with `:PORT` where it is not the scheme's own; `private` ones may be at private
    addresses too.
    """

    public: frozenset[str] = frozenset()
    private: frozenset[str] = frozenset()

    @classmethod
    def of(cls, public: str, private: str) -> "AllowedHosts":
        """Read lists with commas."""
        return cls(_split(public), _split(private))

    def check_url(self, url: str) -> SplitResult:
        """Return the parts of an address that may be asked. Raises DatasetRefused."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise DatasetRefused(f"expected an address, got {url!r}: {error}", "url") from error
        if parts.scheme not in PORTS or not host:
            raise DatasetRefused(f"expected http:// or https:// and a host, got {url!r}", "url")
        if parts.username is not None or parts.password is not None:
            raise DatasetRefused("expected an address without a name and a password in it", "url")
        place = _place(host, port, parts.scheme)
        if place not in self.public | self.private:
            raise DatasetRefused(
                f"datasets from {place} are not allowed: an operator of this node allows a host by "
                f"{HOSTS_SETTING}={place}",
                "url",
            )
        return parts

    def check_address(self, parts: SplitResult, address: str) -> None:
        """Raises DatasetRefused for an address that is not of the public network, unless the host
        may have one.
        """
        place = _place(parts.hostname or "", parts.port, parts.scheme)
        if place in self.private or is_public(address):
            return
        raise DatasetRefused(
            f"{place} is at {address}, which is private to this host or its network: an operator "
            f"allows that by {PRIVATE_HOSTS_SETTING}={place}",
            "url",
        )


def _split(text: str) -> frozenset[str]:
    return frozenset(part.strip().lower() for part in text.split(",") if part.strip())


def _place(host: str, port: int | None, scheme: str) -> str:
    host_text = f"[{host}]" if ":" in host else host.rstrip(".")
    return host_text if port in {None, PORTS[scheme]} else f"{host_text}:{port}"


def is_metadata(address: str) -> bool:
    """True for an address at which clouds tell their machines' credentials: link-local ones, and
    those of AWS over IPv6 and of Alibaba Cloud.
    """
    ip = ip_address(address.partition("%")[0])
    inner = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return (inner or ip).is_link_local or (inner or ip) in _METADATA


def is_public(address: str) -> bool:
    """True if an IP address is of the public network, also where it wraps another."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is not None and not is_public(str(inner)):
            return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
