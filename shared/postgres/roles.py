"""The roles of Postgres: a service logs in as its own, which owns its schema and sees no other."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.postgres.database import Connection


def role_of(schema: str) -> str:
    return f"gpusteward_{schema}"


async def provide_logins(connection: "Connection", passwords: Mapping[str, str]) -> None:
    """Make each schema's role and the schema itself; the role logs in with that password.

    `connection` is a superuser's, to the database of the schemas. Passwords are letters, digits,
    - and _.
    """
    database = await connection.fetchval("SELECT quote_ident(current_database())")
    async with connection.transaction():
        await connection.execute(f"REVOKE ALL ON DATABASE {database} FROM PUBLIC")
        await connection.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        for schema, password in passwords.items():
            role = role_of(schema)
            known = "SELECT true FROM pg_roles WHERE rolname = $1"
            verb = "ALTER" if await connection.fetchval(known, role) else "CREATE"
            await connection.execute(f"{verb} ROLE {role} LOGIN PASSWORD '{password}'")
            await connection.execute(f"GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {role}")
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {role}")
