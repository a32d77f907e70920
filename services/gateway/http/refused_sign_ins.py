"""Every refused sign-in is counted for the audit log, wherever it is refused."""

from collections.abc import Mapping
from typing import Any

from services.gateway.domain.access import SignInRefused
from services.gateway.ledger.audit import AuditLog
from shared.clock import utcnow


def count_refused(audit: AuditLog, scope: Mapping[str, Any], error: Exception) -> None:
    """Count an error if it is one: what was shown counts not, or no more."""
    if isinstance(error, SignInRefused):
        method = scope.get("method", "WEBSOCKET")
        audit.count_refused(error, address_of(scope), method, scope["path"], utcnow())


def address_of(scope: Mapping[str, Any]) -> str:
    """Return the address that a request came from; of a trusted proxy's what it says."""
    client = scope.get("client")
    return str(client[0]) if client else ""
