"""Members of a namespace. For its owners, and admins."""

from uuid import UUID

from litestar import Response
from litestar.params import FromPath, JSONBody

from schemas.gateway import endpoints
from schemas.gateway.sign_in import MemberList, MemberRequest, MemberView
from services.gateway.routes.common import Caller, NamedNamespace, TheGateway, route


@route(endpoints.LIST_MEMBERS)
async def list_members(
    namespace: NamedNamespace, gateway: TheGateway, identity: Caller
) -> MemberList:
    """List the people and groups with a role in a namespace, beside those of the mapping file. For
    its owners.
    """
    identity.require_owner(namespace)
    return MemberList(members=tuple(await gateway.members.list_members(namespace)))


@route(endpoints.SET_MEMBER)
async def set_member(
    namespace: NamedNamespace,
    data: JSONBody[MemberRequest],
    gateway: TheGateway,
    identity: Caller,
) -> Response[MemberView]:
    """Give a person or group a role in a namespace; it counts with their next request. For its
    owners.
    """
    identity.require_owner(namespace)
    member = await gateway.members.set_member(namespace, data, identity.name or "everybody")
    place = endpoints.REMOVE_MEMBER.address(namespace=namespace, member_id=member.member_id)
    return Response(member, status_code=201, headers={"Location": place})


@route(endpoints.REMOVE_MEMBER)
async def remove_member(
    namespace: NamedNamespace,
    member_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
) -> MemberView:
    """Take a member's role in a namespace away. For its owners."""
    identity.require_owner(namespace)
    return await gateway.members.remove(namespace, member_id)
