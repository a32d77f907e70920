"""Which certificates are warned of, when, and with what to do."""

from datetime import UTC, datetime, timedelta

import pytest

from schemas.gateway.health import WarningCode
from services.gateway.domain.certificate_ends import Certificate, CertificateEnd, find_ending

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def end_in(days: float, certificate: Certificate = Certificate.NATS) -> CertificateEnd:
    return CertificateEnd(certificate=certificate, ends_at=NOW + timedelta(days=days))


@pytest.mark.parametrize("certificate", Certificate)
def test_end_within_14_days_is_told_with_what_to_do(certificate: Certificate) -> None:
    (warning,) = find_ending([end_in(13.9, certificate)], NOW)

    assert warning.code is WarningCode.CERTIFICATE_ENDS
    assert "ends on 2026-03-15 09:36 UTC: " in warning.message
    assert "encrypt-connections.md" in warning.message


def test_end_that_is_past_is_told_as_past() -> None:
    (warning,) = find_ending([end_in(-1)], NOW)

    assert warning.message.startswith("the NATS server's certificate has ended on 2026-02-28")


def test_later_ends_are_not_told() -> None:
    assert list(find_ending([end_in(14), end_in(300)], NOW)) == []
