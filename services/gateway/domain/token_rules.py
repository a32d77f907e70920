"""Who may make which token, and whose name is behind it."""

from uuid import UUID

from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.gateway.tokens import Role, TokenRequest
from services.gateway.domain.access import Identity, authentication_error
from services.gateway.domain.rights import Rights
from shared.errors import RefusedError


def check_may_make(request: TokenRequest, maker: Identity) -> None:
    """Raises RefusedError for a token with more than its maker has to give."""
    if request.personal:
        _check_personal(request, maker)
        return
    if maker.role is Role.ADMIN:
        return
    if request.role is Role.ADMIN or maker.role is not Role.OWNER:
        maker.require_role(Role.ADMIN)
    for namespace in request.namespaces:
        maker.require_owner(namespace)


def _check_personal(request: TokenRequest, maker: Identity) -> None:
    if maker.sign_in_id is None:
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            "expected somebody who signed in at the provider, found a token of this platform: a"
            " personal token is of a person",
            path="$.personal",
        )
    for namespace in request.namespaces:
        role = maker.role_in(namespace)
        if role is None or role.rank < request.role.rank:
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                f"expected a role that you have in {namespace}, found {request.role}",
                path="$.role",
            )


def person_of_token(request: TokenRequest, maker: Identity) -> str:
    """Return in whose name a token asks; empty: in its own name, as an admin's word.

    An owner cannot have a program pass for a person: its name has the namespace before it.
    """
    if request.personal:
        return maker.person
    return "" if maker.role is Role.ADMIN else f"{request.namespaces[0]}/{request.name}"


def identity_of(
    name: str, rights: Rights, provider: str, base: Identity, *, sign_in_id: UUID | None = None
) -> Identity:
    """Return who somebody is whom the provider says, with these rights.

    Raises RefusedError where nothing is left of them.
    """
    if not rights:
        raise authentication_error(
            "expected a token that counts, found one whose person has no role left where it counts"
        )
    namespace, *further = rights.namespaces
    return replace(
        base,
        role=rights.role,
        roles=rights.other_roles,
        namespace=namespace,
        further_namespaces=tuple(further),
        name=name,
        person=name,
        provider=provider,
        sign_in_id=sign_in_id,
    )
