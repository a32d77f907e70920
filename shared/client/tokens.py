"""Who may use the API, and who changed what, as typed methods. For admins."""

from uuid import UUID

from schemas.gateway.tokens import (
    AuditList,
    LoginLink,
    MadeToken,
    Me,
    TokenList,
    TokenRequest,
    TokenView,
)
from shared.client.connection import GatewayConnection


class TokenClient(GatewayConnection):
    """The part of `StewardClient` that is about tokens."""

    async def me(self) -> Me:
        """Who is asking, and what it may do."""
        return await self.get("/me", Me)

    async def login_link(self) -> LoginLink:
        """Make a code that logs a browser in once."""
        return await self.post("/login/links", {}, LoginLink)

    async def create_token(self, request: TokenRequest) -> MadeToken:
        """Make a token; its secret is shown this once."""
        return await self.post("/tokens", request, MadeToken)

    async def tokens(self) -> tuple[TokenView, ...]:
        """All tokens, newest first, also those that count no more."""
        return await self.listed("/tokens", TokenList, lambda page: page.tokens, {})

    async def revoke_token(self, token_id: UUID) -> TokenView:
        """Have a token count no more."""
        return self.decoded(await self.send("DELETE", f"/tokens/{token_id}"), TokenView)

    async def changes(
        self, *, token_id: UUID | None = None, limit: int = 100, cursor: str | None = None
    ) -> AuditList:
        """Requests that were to change something, newest first."""
        wanted = {"token_id": token_id, "limit": limit, "cursor": cursor}
        return await self.get("/audit", AuditList, wanted)
