"""The roles of Postgres: a service logs in as its own, which owns its schema and sees no other."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shared.postgres.database import Connection

_OWN: Final = """
REVOKE ALL ON SCHEMA public FROM PUBLIC;
DO $$ BEGIN
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
END $$;
"""
_LOGIN: Final = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN CREATE ROLE {role}; END IF;
    EXECUTE format('GRANT CONNECT, TEMPORARY ON DATABASE %I TO {role}', current_database());
END $$;
ALTER ROLE {role} LOGIN PASSWORD '{password}';
CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {role};
"""


def role_of(schema: str) -> str:
    return f"gpusteward_{schema}"


def logins_sql(passwords: Mapping[str, str]) -> str:
    """Makes each schema's role and the schema itself; the role logs in with that password.

    For a superuser, in the database of the schemas, in one transaction; again it changes nothing.
    Passwords are letters, digits, - and _.
    """
    made = (
        _LOGIN.format(role=role_of(schema), schema=schema, password=password)
        for schema, password in passwords.items()
    )
    return "".join([_OWN, *made])


async def provide_logins(connection: "Connection", passwords: Mapping[str, str]) -> None:
    async with connection.transaction():
        await connection.execute(logins_sql(passwords))
