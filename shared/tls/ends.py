"""When certificates end: of a connection, and of a file."""

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shared.tls.contexts import CertificateUnusable


def read_server_end(connection: ssl.SSLObject) -> datetime | None:
    """Return when the certificate ends that the other side showed."""
    return _end_of(connection.getpeercert() or {})


def read_authority_end(connection: ssl.SSLObject) -> datetime | None:
    """Return when the authority ends that made the other side's certificate; None if it is not
    the one that we trust, but below that.
    """
    issuer = (connection.getpeercert() or {}).get("issuer")
    authorities: list[dict[str, Any]] = connection.context.get_ca_certs()
    ends = [_end_of(made_by) for made_by in authorities if made_by.get("subject") == issuer]
    return max((end for end in ends if end is not None), default=None)


def read_file_end(path: Path) -> datetime:
    """Return when the first certificate of a file ends. Raises CertificateUnusable.

    Needs the extra `server`.
    """
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise CertificateUnusable(f"the certificate {path}: {error}") from None


def _end_of(certificate: dict[str, Any]) -> datetime | None:
    text = certificate.get("notAfter")
    return None if text is None else datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)
