"""When the certificates end that this gateway shows, and is shown."""

import asyncio
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from services.gateway.context import Gateway
from services.gateway.domain.certificate_ends import Certificate, CertificateEnd
from shared.logging import log
from shared.tls.contexts import CertificateUnusable
from shared.tls.ends import read_authority_end, read_file_end, read_server_end


async def read_ends(gateway: Gateway) -> tuple[CertificateEnd, ...]:
    """Return the end of each certificate that there is."""
    of_files = await asyncio.to_thread(lambda: list(_of_files(gateway)))
    return tuple(
        CertificateEnd(certificate=certificate, ends_at=ends_at)
        for certificate, ends_at in [*of_files, *_of_bus(gateway)]
        if ends_at is not None
    )


def _of_files(gateway: Gateway) -> Iterator[tuple[Certificate, datetime | None]]:
    yield Certificate.GATEWAY, _end_of(gateway.certificate_path)
    yield Certificate.GATEWAY_AUTHORITY, _end_of(gateway.authority_path)


def _of_bus(gateway: Gateway) -> Iterator[tuple[Certificate, datetime | None]]:
    if (connection := gateway.bus.encryption) is not None:
        yield Certificate.NATS, read_server_end(connection)
        yield Certificate.NATS_AUTHORITY, read_authority_end(connection)


def _end_of(path: Path | None) -> datetime | None:
    if path is None:
        return None
    try:
        return read_file_end(path)
    except CertificateUnusable as error:
        log.warning("certificate_unreadable", error=str(error))
        return None
