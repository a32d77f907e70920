"""Tokens of the API, and the log of what was changed with them. For admins."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from schemas.gateway.tokens import AuditList, MadeToken, TokenList, TokenRequest, TokenView
from services.gateway.ledger.audit import AuditFilter, AuditPlace
from services.gateway.ledger.tokens import TokenPlace
from services.gateway.request_bodies import StrictBody
from services.gateway.routes.common import Caller, Cursor, PageSize, TheGateway, delete, get, post
from shared.messaging.paging import page_of, place_at


@post("/tokens", dto=StrictBody[TokenRequest])
async def create_token(
    data: JSONBody[TokenRequest], gateway: TheGateway, identity: Caller
) -> MadeToken:
    """Make a token; its secret is shown this once. For admins."""
    identity.require_admin()
    return await gateway.tokens.create(data, identity.name or "everybody")


@get("/tokens")
async def list_tokens(
    gateway: TheGateway, identity: Caller, limit: PageSize = 100, cursor: Cursor = None
) -> TokenList:
    """Tokens, newest first, also those that count no more. For admins."""
    identity.require_admin()
    found = await gateway.tokens.listed(place_at(cursor, TokenPlace), limit + 1)
    placed = [(each, TokenPlace(each.created_at, each.token_id)) for each in found]
    page, more = page_of(placed, limit, over_bus=False)
    return TokenList(tokens=page, next_cursor=more)


@delete("/tokens/{token_id:uuid}", status_code=200)
async def revoke_token(
    token_id: FromPath[UUID], gateway: TheGateway, identity: Caller
) -> TokenView:
    """Have a token count no more, from this answer on; its open streams end within a second. For
    admins.
    """
    identity.require_admin()
    return await gateway.tokens.revoke(token_id)


@get("/audit")
async def list_changes(
    gateway: TheGateway,
    identity: Caller,
    token_id: FromQuery[UUID | None] = None,
    caller: Annotated[str | None, QueryParameter(max_length=200)] = None,
    path: Annotated[
        str | None, QueryParameter(max_length=1000, description="How the paths begin.")
    ] = None,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    limit: PageSize = 100,
    cursor: Cursor = None,
) -> AuditList:
    """Every request that was to change something, and what it changed, newest first. For admins."""
    identity.require_admin()
    wanted = AuditFilter(
        token_id=token_id, caller=caller, path=path, start_at=start_at, end_at=end_at
    )
    found = await gateway.audit.listed(place_at(cursor, AuditPlace), wanted, limit + 1)
    placed = [(each, AuditPlace(each.audit_id)) for each in found]
    page, more = page_of(placed, limit, over_bus=False)
    return AuditList(entries=page, next_cursor=more)
