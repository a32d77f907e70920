"""Which certificates end soon, and what a person does about each."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from schemas.gateway.health import HealthWarning, WarningCode

SOON: Final = timedelta(days=14)


class Certificate(StrEnum):
    """Whose certificate it is."""

    GATEWAY = "gateway"
    GATEWAY_AUTHORITY = "gateway_authority"
    NATS = "nats"
    NATS_AUTHORITY = "nats_authority"


NAMES: Final[Mapping[Certificate, str]] = {
    Certificate.GATEWAY: "the gateway's certificate",
    Certificate.GATEWAY_AUTHORITY: "the authority of the gateway's certificate",
    Certificate.NATS: "the NATS server's certificate",
    Certificate.NATS_AUTHORITY: "the authority of the NATS server's certificate",
}
PAGE: Final = "docs/how-to/operate/encrypt-connections.md"
# `up` renews its own months before; whoever sees this made the files by other means.
RENEW: Final = f"replace its file, which is read by itself ({PAGE})"
REMEDIES: Final[Mapping[Certificate, str]] = {
    Certificate.GATEWAY: RENEW,
    Certificate.GATEWAY_AUTHORITY: f"make a new one and give it to all clients ({PAGE})",
    Certificate.NATS: f"replace its file and have the server reload ({PAGE})",
    Certificate.NATS_AUTHORITY: f"make a new one and new credentials for all nodes ({PAGE})",
}


class CertificateEnd(Struct, frozen=True, kw_only=True):
    certificate: Certificate
    ends_at: datetime


def find_ending(ends: Sequence[CertificateEnd], now: datetime) -> Iterator[HealthWarning]:
    """Yield a warning for each certificate that ends within 14 days, or has ended."""
    for end in ends:
        if end.ends_at - now < SOON:
            verb = "has ended" if end.ends_at <= now else "ends"
            yield HealthWarning(
                code=WarningCode.CERTIFICATE_ENDS,
                message=f"{NAMES[end.certificate]} {verb} on {end.ends_at:%Y-%m-%d %H:%M} UTC: "
                f"{REMEDIES[end.certificate]}",
            )
