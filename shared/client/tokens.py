"""Who may use the API, and who changed what, as typed methods. For admins."""

from collections.abc import AsyncIterator
from datetime import datetime
from uuid import UUID

from schemas.gateway import endpoints
from schemas.gateway.tokens import (
    AuditKind,
    AuditList,
    LoginLink,
    MadeToken,
    Me,
    TokenRequest,
    TokenView,
)
from shared.client.connection import GatewayConnection


class TokenClient(GatewayConnection):
    """The part of `StewardClient` that is about tokens."""

    async def me(self) -> Me:
        """Return who is asking, and what the caller may do."""
        return await self.call(endpoints.SHOW_ME)

    async def login_link(self) -> LoginLink:
        """Make a code that logs a browser in once."""
        return await self.call(endpoints.MAKE_LOGIN_LINK, {})

    async def create_token(self, request: TokenRequest) -> MadeToken:
        """Make a token; its secret is shown this once."""
        return await self.call(endpoints.CREATE_TOKEN, request)

    async def tokens(self) -> tuple[TokenView, ...]:
        """List all tokens, newest first, revoked and expired ones too."""
        return await self.list_all(endpoints.LIST_TOKENS, lambda page: page.tokens)

    async def revoke_token(self, token_id: UUID) -> TokenView:
        """Have a token count no more."""
        return await self.call(endpoints.REVOKE_TOKEN, token_id=token_id)

    async def changes(
        self,
        *,
        token_id: UUID | None = None,
        kind: AuditKind | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> AuditList:
        """Requests that were to change something, and sign-ins, newest first."""
        return await self.call(
            endpoints.LIST_CHANGES, token_id=token_id, kind=kind, limit=limit, cursor=cursor
        )

    def export_changes(
        self, start_at: datetime | None = None, end_at: datetime | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the audit log as JSON lines, oldest first, as it comes."""
        return self.pieces(endpoints.EXPORT_CHANGES, start_at=start_at, end_at=end_at)
