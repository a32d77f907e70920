"""Whether a NATS server can be joined, said before anything is started that would fail of it."""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import nats.errors
import nats.js.errors
from msgspec import Struct
from nats.aio.client import Client

from shared.waiting import within

CONNECT_SECONDS: Final = 3
RETRY_SECONDS: Final = 5.0
NATS_PORT: Final = 4222
GREETING: Final = b"INFO"


class Trouble(Struct, frozen=True, kw_only=True):
    """Why a server cannot be joined, a sentence; `is_lasting`: waiting alone does not end it."""

    sentence: str
    is_lasting: bool = False


async def bus_trouble(
    url: str, credentials: Path | None, *, needs_jetstream: bool
) -> Trouble | None:
    """Return why the server cannot be joined with these credentials, None if it can."""
    login = _login(credentials)
    if isinstance(login, Trouble):
        return login
    shown = _without_password(url)
    if trouble := await _unreachable(url, shown):
        return trouble
    client = Client()
    try:
        async with within(CONNECT_SECONDS):
            await client.connect(
                url, **login, allow_reconnect=False, max_reconnect_attempts=1, error_cb=_ignored
            )
        return await _without_jetstream(client, shown) if needs_jetstream else None
    except (nats.errors.Error, OSError, TimeoutError, ValueError) as error:
        return _refused(error, shown, credentials)
    finally:
        await client.close()


async def wait_for_bus(url: str, credentials: Path, say: Callable[[str], None]) -> None:
    """Return once the server can be joined; each new trouble is said once, with what to do."""
    said = None
    while trouble := await bus_trouble(url, credentials, needs_jetstream=False):
        if trouble != said:
            say(f"{trouble.sentence}\ntrying again every {RETRY_SECONDS:g} s; Ctrl-C ends it")
            said = trouble
        await asyncio.sleep(RETRY_SECONDS)
    if said is not None:
        say(f"{_without_password(url)} answers now")


def _without_password(url: str) -> str:
    """Return the address as it may be shown."""
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _login(credentials: Path | None) -> dict[str, Any] | Trouble:
    if credentials is None or credentials.is_dir():
        return {}
    try:
        found = json.loads(credentials.read_text())
        return {"user": found["user"], "password": found["password"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Trouble(sentence=f"{credentials} holds no credentials: {error!r}", is_lasting=True)


async def _without_jetstream(client: Any, url: str) -> Trouble | None:
    try:
        await client.jetstream(timeout=CONNECT_SECONDS).account_info()
    except (nats.js.errors.ServiceUnavailableError, nats.errors.NoRespondersError):
        sentence = (
            f"the NATS server at {url} runs without JetStream, which keeps events until they are "
            "handled: start it with `nats-server -js`, or a `jetstream` block in its configuration"
        )
        return Trouble(sentence=sentence, is_lasting=True)
    except (nats.errors.Error, nats.js.errors.Error, TimeoutError):
        return None  # it may not be asked; the services say what they miss
    return None


async def _unreachable(url: str, shown: str) -> Trouble | None:
    """Return why nothing that greets as NATS does is at the address. NATS speaks first."""
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    try:
        host, port = parts.hostname, parts.port or NATS_PORT
    except ValueError:
        host, port = None, NATS_PORT
    if not host or " " in host:
        return Trouble(
            sentence=f"expected the address of a NATS server, as nats://HOST:4222, got {shown!r}",
            is_lasting=True,
        )
    try:
        async with within(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                greeting = await reader.read(len(GREETING))
            finally:
                writer.close()
                await writer.wait_closed()
    except socket.gaierror:
        return Trouble(sentence=f"no host {host!r} is known: check the spelling of {shown}")
    except TimeoutError:
        return Trouble(
            sentence=f"{shown} does not answer within {CONNECT_SECONDS} s: check the address, and "
            f"that no firewall closes port {port}"
        )
    except OSError as error:
        return Trouble(
            sentence=f"nothing listens at {shown} ({error.strerror or error}): check the port, and "
            "that the platform runs with --nats-listen"
        )
    if greeting == GREETING:
        return None
    return Trouble(sentence=f"what answers at {shown} is no NATS server: check the port")


def _refused(error: Exception, url: str, credentials: Path | None) -> Trouble:
    if "authorization" in str(error).lower():
        whose = f"the credentials in {credentials}" if credentials else "clients without a password"
        return Trouble(
            sentence=f"the NATS server at {url} refuses {whose}: make them anew on the platform's "
            "host with `gpusteward agent-credentials`, and copy the file here",
            is_lasting=True,
        )
    return Trouble(sentence=f"the NATS server at {url} cannot be joined: {error!r}")


async def _ignored(_: Exception) -> None:
    """It is raised as well."""
