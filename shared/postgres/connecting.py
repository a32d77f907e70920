"""A connection to the server that takes writes, of the several that a DSN may name.

asyncpg tries the servers one after another within one timeout: a first one that swallows packets
leaves nothing for the second. Here each has its own time, and the next need not wait for it.
"""

import asyncio
import ssl
from typing import Any, Final

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from shared.postgres_address import PostgresServer, read_servers, tls_files
from shared.tls.contexts import CertificateUnusable, make_client_context
from shared.waiting import cancel_and_wait, within

CONNECT_SECONDS: Final = 10.0  # all servers together
ATTEMPT_SECONDS: Final = 5.0  # one of several
HEAD_START_SECONDS: Final = 0.5

# What no waiting mends: the address names a login or a database that the server does not have.
LASTING: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ClientConfigurationError,
)


class TlsRefused(asyncpg.ClientConfigurationError):
    """TLS with a server does not come about, and will not by waiting."""


class NoServerTakesWrites(ConnectionError):
    """None of the servers of a DSN answered as one that takes writes; the text has each answer."""


async def connect(dsn: str, **options: Any) -> "asyncpg.Connection[Any]":
    """Connect to the server of the DSN that takes writes; of one server, whether it does or not.

    Takes the options of asyncpg.connect but for the servers and the timeout. Raises what that
    raises, NoServerTakesWrites where there are several.
    """
    servers = read_servers(dsn)
    if len(servers) < 2:
        return await _open(dsn, timeout=CONNECT_SECONDS, **options)
    async with within(CONNECT_SECONDS):
        return await _connect_first(dsn, servers, options)


async def _connect_first(
    dsn: str, servers: tuple[PostgresServer, ...], options: dict[str, Any]
) -> "asyncpg.Connection[Any]":
    """Try the servers in order, the next where one refuses or is late; the first writable wins."""
    waiting = list(servers)
    attempts: dict[asyncio.Task[asyncpg.Connection[Any]], PostgresServer] = {}
    errors: dict[PostgresServer, BaseException] = {}
    try:
        while waiting or attempts:
            if waiting:
                server = waiting.pop(0)
                attempts[asyncio.create_task(_connect_to(dsn, server, options))] = server
            done, _ = await asyncio.wait(
                attempts,
                timeout=HEAD_START_SECONDS if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                if (error := task.exception()) is None:
                    del attempts[task]
                    return task.result()
                errors[attempts.pop(task)] = error
    finally:
        await _drop(attempts)
    if all(isinstance(error, LASTING) for error in errors.values()):
        raise errors[servers[0]]
    answers = "; ".join(f"{server}: {_answer_of(error)}" for server, error in errors.items())
    raise NoServerTakesWrites(f"no server takes writes ({answers})")


async def _connect_to(
    dsn: str, server: PostgresServer, options: dict[str, Any]
) -> "asyncpg.Connection[Any]":
    return await _open(
        dsn,
        host=server.host,
        port=server.port,
        target_session_attrs=SessionAttribute.read_write,
        timeout=ATTEMPT_SECONDS,
        **options,
    )


async def _open(dsn: str, **options: Any) -> "asyncpg.Connection[Any]":
    """Connect as asyncpg does. Raises TlsRefused, a sentence, where TLS fails for good."""
    try:
        check_tls_files(dsn)
        connection: asyncpg.Connection[Any] = await asyncpg.connect(dsn, **options)
    except CertificateUnusable as error:
        raise TlsRefused(str(error)) from error
    except ssl.SSLCertVerificationError as error:
        raise TlsRefused(
            f"its certificate is not trusted: {error.verify_message}; sslrootcert in the DSN names "
            "the file of the authority that made it, and the host has to be one of its names"
        ) from error
    except ConnectionError as error:
        if "rejected SSL upgrade" not in str(error):
            raise
        raise TlsRefused(
            "it speaks no TLS, which sslmode in the DSN asks for: set `ssl = on` there"
        ) from error
    return connection


def check_tls_files(dsn: str) -> None:
    """Raise CertificateUnusable for a file of the DSN that asyncpg could not load."""
    files = tls_files(dsn)
    if files:
        make_client_context(
            files.get("sslrootcert"), certificate=files.get("sslcert"), key=files.get("sslkey")
        )


async def _drop(attempts: "dict[asyncio.Task[asyncpg.Connection[Any]], PostgresServer]") -> None:
    """End the attempts that another one was faster than, with what they have connected to."""
    await cancel_and_wait(*attempts)
    for task in attempts:
        if not task.cancelled() and task.exception() is None:
            task.result().terminate()


def _answer_of(error: BaseException) -> str:
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "takes no writes"
    if isinstance(error, TimeoutError):
        return "no answer"
    return str(error) or type(error).__name__


def describe_lasting(dsn: str, error: BaseException) -> str:
    """Return the sentence for one of LASTING, without what the DSN keeps secret."""
    servers = ", ".join(map(str, read_servers(dsn))) or "the server of the environment"
    if isinstance(error, TlsRefused):
        return f"Postgres at {servers}: {error}"
    return f"Postgres at {servers} refuses the login or the database of its DSN: {error}"
