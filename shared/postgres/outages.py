"""Which errors mean that Postgres is away, and which that another server may be the primary."""

from typing import Final

import asyncpg

from shared.errors import UnavailableError

# The outside is down; the same statement may succeed later.
OUTSIDE_DOWN: Final = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # ended, crashed, starting, a statement cancelled
    asyncpg.ReadOnlySQLTransactionError,  # a standby, also one that was the primary until now
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.PostgresSystemError,  # a file or a disk of the server
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.StatementCompletionUnknownError,
    asyncpg.InternalClientError,
    asyncpg.IdleInTransactionSessionTimeoutError,  # this process was paused
    asyncpg.TransactionTimeoutError,
    asyncpg.InvalidCachedStatementError,  # a newer release has migrated
)

# Of these other connections to the same server have the same fate, whether or not they show it yet:
# another server may be the primary by now.
SERVER_GONE: Final = (
    OSError,
    TimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.PostgresConnectionError,
)
# A value that no statement stores: NUL in a text, a number or a time beyond its column, a text too
# long for an index.
UNSTORABLE: Final = (asyncpg.DataError, asyncpg.ProgramLimitExceededError)


def unavailable(error: BaseException) -> UnavailableError:
    if isinstance(error, asyncpg.DiskFullError):
        return UnavailableError(f"the disk of Postgres is full: {error.args[0]}")
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return UnavailableError("postgres takes no writes: a standby, or set to be read-only")
    return UnavailableError(f"postgres: {error!r}")
