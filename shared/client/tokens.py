"""Who may use the API, and who changed what, as typed methods."""

from collections.abc import AsyncIterator
from datetime import datetime
from uuid import UUID

from schemas.gateway import endpoints
from schemas.gateway.sign_in import (
    DeviceAnswer,
    DeviceAnswerRequest,
    DeviceCode,
    DeviceRequest,
    MemberRequest,
    MemberView,
    SignedOut,
    SignInOffer,
)
from schemas.gateway.tokens import (
    AuditKind,
    AuditList,
    AuditResult,
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

    async def sign_in_offer(self) -> SignInOffer:
        """Return how people sign in at this platform."""
        return await self.call(endpoints.SHOW_SIGN_IN)

    async def start_device_sign_in(self, client: str) -> DeviceCode:
        """Ask for a code that a person confirms at the provider."""
        return await self.call(endpoints.START_DEVICE_SIGN_IN, DeviceRequest(client=client))

    async def device_answer(self, code: str) -> DeviceAnswer:
        """Return whether the person has confirmed a code, and then the session's token."""
        return await self.call(endpoints.FINISH_DEVICE_SIGN_IN, DeviceAnswerRequest(code=code))

    async def sign_out(self) -> SignedOut:
        """End the sign-in that this client shows the token of."""
        return await self.call(endpoints.SIGN_OUT, {})

    async def members(self, namespace: str) -> tuple[MemberView, ...]:
        """List the members of a namespace."""
        return (await self.call(endpoints.LIST_MEMBERS, namespace=namespace)).members

    async def set_member(self, namespace: str, request: MemberRequest) -> MemberView:
        """Give somebody a role in a namespace."""
        return await self.call(endpoints.SET_MEMBER, request, namespace=namespace)

    async def remove_member(self, namespace: str, member_id: UUID) -> MemberView:
        """Take somebody's role in a namespace away."""
        return await self.call(endpoints.REMOVE_MEMBER, namespace=namespace, member_id=member_id)

    async def create_token(self, request: TokenRequest) -> MadeToken:
        """Make a token; its secret is shown this once."""
        return await self.call(endpoints.CREATE_TOKEN, request)

    async def tokens(self, *, mine: bool = False) -> tuple[TokenView, ...]:
        """List the tokens that the caller may see, or only those of their own, newest first,
        revoked and expired ones too.
        """
        return await self.list_all(endpoints.LIST_TOKENS, lambda page: page.tokens, mine=mine)

    async def revoke_token(self, token_id: UUID) -> TokenView:
        """Have a token count no more."""
        return await self.call(endpoints.REVOKE_TOKEN, token_id=token_id)

    async def changes(
        self,
        *,
        token_id: UUID | None = None,
        kind: AuditKind | None = None,
        action: str | None = None,
        result: AuditResult | None = None,
        about: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> AuditList:
        """Requests that were to change something, and sign-ins, newest first; `action` names an
        operation, `about` is a part of what was changed.
        """
        return await self.call(
            endpoints.LIST_CHANGES,
            token_id=token_id,
            kind=kind,
            action=action,
            result=result,
            about=about,
            limit=limit,
            cursor=cursor,
        )

    def export_changes(
        self, start_at: datetime | None = None, end_at: datetime | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the audit log as JSON lines, oldest first, as it comes."""
        return self.pieces(endpoints.EXPORT_CHANGES, start_at=start_at, end_at=end_at)
