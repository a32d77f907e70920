"""What somebody may do whom an OpenID provider says: groups and names to roles and namespaces."""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct

from schemas.base import Namespace
from schemas.gateway.tokens import Role
from services.gateway.domain.access import DEFAULT_NAMESPACE

EVERYBODY: Final = "*"


class RoleRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule of the mapping file: whoever is in `group`, or is `user`, has `role` in `namespaces`.

    The group `*` is everybody whom the provider signs in. An admin needs no namespaces.
    """

    role: Role
    group: Annotated[str, Meta(min_length=1)] | None = None
    user: Annotated[str, Meta(min_length=1)] | None = None
    namespaces: tuple[Namespace, ...] = ()

    def __post_init__(self) -> None:
        if (self.group is None) is (self.user is None):
            raise ValueError("expected either a group or a user in each rule")
        if self.role is not Role.ADMIN and not self.namespaces:
            raise ValueError(f"expected namespaces for the role {self.role}, found none")

    def applies_to(self, name: str, groups: Collection[str]) -> bool:
        """Return whether somebody of this name and these groups is meant."""
        if self.group is not None:
            return self.group == EVERYBODY or self.group in groups
        return self.user == name


class RoleMapping(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mapping file: all of its rules that apply count, and the highest role of each
    namespace.
    """

    rule: tuple[RoleRule, ...] = ()


class Membership(Struct, frozen=True, array_like=True):
    """A row of a namespace's members that applies to somebody."""

    namespace: str
    role: Role


class Rights(Struct, frozen=True, kw_only=True):
    """What somebody may do: a role in each namespace, in the order of the rules; or all."""

    roles: Mapping[str, Role] = {}
    is_admin: bool = False

    def __bool__(self) -> bool:
        return self.is_admin or bool(self.roles)

    @property
    def role(self) -> Role:
        """Return the highest role. Raises ValueError for no rights at all."""
        if self.is_admin:
            return Role.ADMIN
        return max(self.roles.values(), key=lambda role: role.rank)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces, the one that is meant where none is named first."""
        return tuple(self.roles) or (DEFAULT_NAMESPACE,)

    @property
    def other_roles(self) -> dict[str, Role]:
        """Return the namespaces in which the role is not the highest."""
        highest = self.role
        return {name: role for name, role in self.roles.items() if role is not highest}

    def cap_by(self, role: Role, namespaces: Iterable[str]) -> "Rights":
        """Return what of these rights a token has that was made for a role and namespaces."""
        if self.is_admin and role is Role.ADMIN:
            return Rights(roles=dict.fromkeys(namespaces, Role.ADMIN), is_admin=True)
        roles = {}
        for name in namespaces:
            present = Role.ADMIN if self.is_admin else self.roles.get(name)
            if present is not None:
                roles[name] = min(present, role, key=lambda kind: kind.rank)
        return Rights(roles=roles)


def rights_of(
    name: str, groups: Collection[str], mapping: RoleMapping, memberships: Iterable[Membership]
) -> Rights:
    """Return what somebody may do by the mapping file and as a member of namespaces."""
    roles: dict[str, Role] = {}
    is_admin = False
    for rule in mapping.rule:
        if not rule.applies_to(name, groups):
            continue
        is_admin |= rule.role is Role.ADMIN
        for namespace in rule.namespaces:
            _raise_role(roles, namespace, rule.role)
    for membership in memberships:
        _raise_role(roles, membership.namespace, membership.role)
    return Rights(roles=roles, is_admin=is_admin)


def describe_no_rights(name: str, groups: Collection[str], provider: str) -> str:
    """Return the sentence for somebody whom the provider says and nobody here gave a role."""
    of_groups = f"groups {', '.join(sorted(groups))}" if groups else "no groups"
    return (
        f"{provider} says that you are {name} of {of_groups}, and none of that has a role here; an"
        " admin of this platform gives one by the mapping file, an owner as a member of a namespace"
    )


def _raise_role(roles: dict[str, Role], namespace: str, role: Role) -> None:
    if role.rank > roles.get(namespace, Role.VIEWER).rank or namespace not in roles:
        roles[namespace] = role
