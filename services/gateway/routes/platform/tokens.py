"""Tokens of the API, and the log of what was changed with them."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from litestar import Response
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.response import Stream

from schemas.errors import ErrorCode
from schemas.gateway import endpoints
from schemas.gateway.endpoint import Endpoint
from schemas.gateway.tokens import (
    AuditKind,
    AuditList,
    AuditResult,
    MadeToken,
    TokenList,
    TokenRequest,
    TokenView,
)
from services.gateway.domain.audited import pattern_of
from services.gateway.ledger.audit import AuditFilter, AuditPlace
from services.gateway.ledger.tokens import TokenPlace
from services.gateway.routes.common import (
    PROBLEMS,
    Caller,
    Cursor,
    PageSize,
    TheGateway,
    route,
)
from shared.errors import RefusedError
from shared.messaging.paging import page_of, place_at

JSON_LINES: Final = "application/jsonl"
EXPORTED: Final = {
    **PROBLEMS,
    200: ResponseSpec(
        bytes, generate_examples=False, description="An entry a line", media_type=JSON_LINES
    ),
}


@route(endpoints.CREATE_TOKEN)
async def create_token(
    data: JSONBody[TokenRequest], gateway: TheGateway, identity: Caller
) -> Response[MadeToken]:
    """Make a token; its secret is shown this once. For admins, for owners in namespaces of theirs,
    and `personal` ones for whoever signed in at the provider.
    """
    made = await gateway.tokens.create(data, identity)
    place = endpoints.REVOKE_TOKEN.address(token_id=made.token.token_id)
    return Response(made, status_code=201, headers={"Location": place})


@route(endpoints.LIST_TOKENS)
async def list_tokens(
    gateway: TheGateway,
    identity: Caller,
    mine: FromQuery[bool] = False,
    limit: PageSize = 100,
    cursor: Cursor = None,
) -> TokenList:
    """List tokens, newest first, also those that count no more: the caller's own, for an owner also
    those of its namespaces, for admins all unless they ask for theirs alone.
    """
    tokens = await gateway.tokens.list_tokens(
        place_at(cursor, TokenPlace), limit + 1, identity, mine=mine
    )
    placed = [(token, TokenPlace(token.created_at, token.token_id)) for token in tokens]
    page, more = page_of(placed, limit, over_bus=False)
    return TokenList(tokens=page, next_cursor=more)


@route(endpoints.REVOKE_TOKEN)
async def revoke_token(
    token_id: FromPath[UUID], gateway: TheGateway, identity: Caller
) -> TokenView:
    """Have a token count no more, from this answer on; its open streams end within a second. Of
    those that the caller may list.
    """
    return await gateway.tokens.revoke(token_id, identity)


@route(endpoints.LIST_CHANGES)
async def list_changes(
    gateway: TheGateway,
    token_id: FromQuery[UUID | None] = None,
    caller: Annotated[str | None, QueryParameter(max_length=200)] = None,
    path: Annotated[
        str | None, QueryParameter(max_length=1000, description="How the paths begin.")
    ] = None,
    kind: FromQuery[AuditKind | None] = None,
    action: Annotated[
        str | None, QueryParameter(description="The name of an operation, such as cordon.")
    ] = None,
    result: FromQuery[AuditResult | None] = None,
    about: Annotated[
        str | None,
        QueryParameter(max_length=200, description="A part of what was changed, or of its path."),
    ] = None,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    limit: PageSize = 100,
    cursor: Cursor = None,
) -> AuditList:
    """List all requests that were to change something, and what they changed, sign-ins and refused
    ones, newest first. For admins.
    """
    operation = _operation(action) if action else None
    criteria = AuditFilter(
        token_id=token_id,
        caller=caller,
        path=path,
        kind=kind,
        method=operation.method if operation else None,
        path_pattern=pattern_of(operation) if operation else None,
        result=result,
        about=about,
        start_at=start_at,
        end_at=end_at,
    )
    entries = await gateway.audit.list_entries(place_at(cursor, AuditPlace), criteria, limit + 1)
    placed = [(entry, AuditPlace(entry.audit_id)) for entry in entries]
    page, more = page_of(placed, limit, over_bus=False)
    return AuditList(entries=page, next_cursor=more)


@route(endpoints.EXPORT_CHANGES, media_type=JSON_LINES, responses=EXPORTED)
async def export_changes(
    gateway: TheGateway,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
) -> Stream:
    """Write the audit log as JSON, an entry a line, oldest first. For admins."""

    async def lines() -> AsyncIterator[bytes]:
        async for entries in gateway.audit.read(start_at, end_at):
            yield msgspec.json.Encoder().encode_lines(entries)

    return Stream(lines(), media_type=JSON_LINES)


def _operation(name: str) -> Endpoint[Any]:
    """Raises RefusedError for what is no operation that changes something."""
    changing = {key: row for key, row in endpoints.ENDPOINTS.items() if row.is_audited}
    if name not in changing:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected one of {', '.join(sorted(changing))}, got {name}",
            path="query.action",
        )
    return changing[name]
