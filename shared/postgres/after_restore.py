"""Runs what a service has to set right in its tables after a database came from a backup.

`python -m services.<schema>.after_restore TIME`, with the address in GPUSTEWARD_POSTGRES_DSN; TIME
is when the backup was taken. Prints what was done as JSON. A restore calls it before any service.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from shared.errors import StewardError
from shared.postgres.database import Connection, Database
from shared.settings import CommonSettings, load_settings

SetRight = Callable[[Connection, datetime], Awaitable[dict[str, int]]]


def run(schema: str, migrations: Sequence[str], set_right: SetRight) -> None:
    """Migrate the schema, and set it right in one transaction."""
    backup_at = msgspec.convert(sys.argv[1], datetime)
    database = Database.from_settings(schema, load_settings(CommonSettings, schema), migrations)

    async def apply() -> dict[str, int]:
        await database.open()
        try:
            async with database.transaction() as connection:
                return await set_right(connection, backup_at)
        finally:
            await database.close()

    try:
        done = asyncio.run(apply())
    except StewardError as error:
        sys.exit(str(error))
    sys.stdout.write(f"{msgspec.json.encode(done).decode()}\n")
