"""Whether a NATS server, or one of a cluster, can be joined: said before anything is started that
would fail of it.
"""

import asyncio
import json
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import nats.errors
import nats.js.errors
from msgspec import Struct
from nats.aio.client import Client

from shared.nats_addresses import NatsAddress, read_nats_addresses, without_logins
from shared.settings import CommonSettings, load_settings, nats_security
from shared.tls.contexts import CertificateUnusable
from shared.tls.nats import NatsSecurity
from shared.waiting import within

CONNECT_SECONDS: Final = 3
RETRY_SECONDS: Final = 5.0
GREETING: Final = b"INFO"


class Trouble(Struct, frozen=True, kw_only=True):
    """Why a server cannot be joined, a sentence; `is_lasting`: waiting alone does not end it."""

    sentence: str
    is_lasting: bool = False


def security_of(credentials: Path | None) -> NatsSecurity:
    """Return how the services will speak with the bus, by our environment. Raises SettingsError."""
    path = credentials if credentials is not None and not credentials.is_dir() else None
    names = [f"GPUSTEWARD_NATS_{name}" for name in ("CA", "CERT", "KEY", "TLS_FIRST")]
    variables = {name: os.environ[name] for name in names if name in os.environ}
    variables["GPUSTEWARD_NATS_CREDENTIALS"] = str(path) if path is not None else ""
    return nats_security(load_settings(CommonSettings, "cli", variables))


async def bus_trouble(
    url: str, credentials: Path | None, *, needs_jetstream: bool
) -> Trouble | None:
    """Return why none of the servers can be joined with these credentials, None if one can.

    A trouble is lasting if it is at every server.
    """
    login = _login(credentials)
    if isinstance(login, Trouble):
        return login
    try:
        servers = read_nats_addresses(url)
        security = security_of(credentials)
        security.make_context(url)
    except (CertificateUnusable, ValueError) as error:
        return Trouble(sentence=str(error), is_lasting=True)
    troubles = await asyncio.gather(
        *(_trouble_at(server, credentials, login, security, needs_jetstream) for server in servers)
    )
    if any(trouble is None for trouble in troubles):
        return None
    sentences = dict.fromkeys(trouble.sentence for trouble in troubles if trouble is not None)
    is_lasting = all(trouble is not None and trouble.is_lasting for trouble in troubles)
    return Trouble(sentence="\n".join(sentences), is_lasting=is_lasting)


async def _trouble_at(
    server: NatsAddress,
    credentials: Path | None,
    login: dict[str, Any],
    security: NatsSecurity,
    needs_jetstream: bool,
) -> Trouble | None:
    if trouble := await _unreachable(server, security):
        return trouble
    client = Client()
    try:
        async with within(CONNECT_SECONDS):
            once: dict[str, Any] = {"allow_reconnect": False, "max_reconnect_attempts": 1}
            tls = security.connect_options(server.url)
            await client.connect(server.url, **login, **once, **tls, error_cb=_ignore)
        return await _without_jetstream(client, server.text) if needs_jetstream else None
    except ssl.SSLCertVerificationError as error:
        return _distrust(server, error)
    except (nats.errors.Error, OSError, TimeoutError, ValueError) as error:
        return _login_trouble(error, server.text, credentials)
    finally:
        await client.close()


async def wait_for_bus(url: str, credentials: Path, say: Callable[[str], None]) -> None:
    """Return once the server can be joined; each new trouble is said once, with what to do."""
    last_trouble = None
    while trouble := await bus_trouble(url, credentials, needs_jetstream=False):
        if trouble != last_trouble:
            say(f"{trouble.sentence}\ntrying again every {RETRY_SECONDS:g} s; Ctrl-C ends it")
            last_trouble = trouble
        await asyncio.sleep(RETRY_SECONDS)
    if last_trouble is not None:
        say(f"{without_logins(url)} answers now")


def _login(credentials: Path | None) -> dict[str, Any] | Trouble:
    if credentials is None or credentials.is_dir():
        return {}
    try:
        login = json.loads(credentials.read_text())
        return {"user": login["user"], "password": login["password"]}
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


async def _unreachable(address: NatsAddress, security: NatsSecurity) -> Trouble | None:
    """Return why nothing that greets as NATS does is at the address. NATS speaks first, behind TLS
    where that comes first.
    """
    host, port, server = address.host, address.port, address.text
    is_connected = False
    context = security.make_context(address.url) if security.is_first(address.url) else None
    try:
        async with within(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            is_connected = True
            try:
                greeting = GREETING
                if not address.is_web_socket:
                    greeting = await reader.read(len(GREETING))
            finally:
                writer.close()
                await writer.wait_closed()
    except socket.gaierror:
        return Trouble(sentence=f"no host {host!r} is known: check the spelling of {server}")
    except ssl.SSLCertVerificationError as error:
        return _distrust(address, error)
    except ssl.SSLError as error:
        return Trouble(
            sentence=f"what answers at {server} does not begin with TLS ({error.reason}): a NATS "
            "server has `handshake_first: true` in its `tls` block for that; with one that has "
            "none, set GPUSTEWARD_NATS_TLS_FIRST=false",
            is_lasting=True,
        )
    except TimeoutError:
        if is_connected:
            return Trouble(
                sentence=f"{server} takes connections and says nothing: if it begins with TLS, "
                "write tls:// for it; credentials that are made on the platform's host now carry "
                "its authority"
            )
        return Trouble(
            sentence=f"{server} does not answer within {CONNECT_SECONDS} s: check the address, and "
            f"that no firewall closes port {port}"
        )
    except OSError as error:
        return Trouble(
            sentence=f"nothing listens at {server} ({error.strerror or error}): check the port,"
            " and that the platform runs with --nats-listen"
        )
    if greeting == GREETING:
        return None
    return Trouble(sentence=f"what answers at {server} is no NATS server: check the port")


def _distrust(server: NatsAddress, error: ssl.SSLCertVerificationError) -> Trouble:
    return Trouble(
        sentence=f"the certificate of the NATS server at {server.text} is not trusted here: "
        f"{error.verify_message}; its authority comes with credentials that are made, or copied "
        "anew, on the platform's host, or with GPUSTEWARD_NATS_CA",
        is_lasting=True,
    )


def _login_trouble(error: Exception, url: str, credentials: Path | None) -> Trouble:
    if "authorization" in str(error).lower():
        whose = f"the credentials in {credentials}" if credentials else "clients without a password"
        return Trouble(
            sentence=f"the NATS server at {url} refuses {whose}: make them anew on the platform's "
            "host with `gpusteward agent-credentials`, and copy the file here",
            is_lasting=True,
        )
    return Trouble(sentence=f"the NATS server at {url} cannot be joined: {error!r}")


async def _ignore(_: Exception) -> None:
    """It is raised as well."""
