"""What a DSN of Postgres says of its servers, read before anything connects.

asyncpg reads it again when it connects; what is refused here would end there in a traceback, or be
tried for ever.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from shared.host_header import is_loopback

SCHEMES: Final = ("postgresql", "postgres")
DEFAULT_PORT: Final = 5432
SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
ENCRYPTED_MODES: Final = frozenset({"require", "verify-ca", "verify-full"})
WRITABLE: Final = frozenset({"any", "primary", "read-write"})
NOT_WRITABLE: Final = frozenset({"standby", "prefer-standby", "read-only"})
# What libpq understands and asyncpg would hand on to the server, which refuses the connection.
LIBPQ_ONLY: Final = frozenset(
    {
        "channel_binding",
        "connect_timeout",
        "fallback_application_name",
        "gssdelegation",
        "gssencmode",
        "hostaddr",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "load_balance_hosts",
        "replication",
        "require_auth",
        "requirepeer",
        "sslcertmode",
        "sslcompression",
        "sslsni",
        "tcp_user_timeout",
    }
)
TLS_FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_HOST: Final = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<name>[^:\[\]]*))(?::(?P<port>.*))?")


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """One server of an address; its host is a name, an IP address or a socket's directory."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        if self.host.startswith("/"):
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_servers(dsn: str) -> tuple[PostgresServer, ...]:
    """Return the servers that a DSN names, in its order; none where it leaves them to the
    environment.

    Raises ValueError with a sentence that says which part is wrong, without what the DSN keeps
    secret: a part at the wrong place may be its password.
    """
    scheme, separator, body = dsn.partition("://")
    if not separator or scheme not in SCHEMES:
        raise ValueError("expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    authority = re.split(r"[/?#]", body, maxsplit=1)[0]
    before_query = body.partition("?")[0]
    if before_query.count("@") > 1 or (authority and "@" in body and "@" not in authority):
        raise ValueError(
            "an @ has no place there: in a password write @ as %40, / as %2F, ? as %3F, # as %23"
        )
    try:
        query = urlsplit(dsn).query
    except ValueError:
        raise ValueError("[ and ] stand around an IPv6 address; write them as %5B, %5D") from None
    parameters = _read_parameters(query)
    hosts = authority.rpartition("@")[2]
    if hosts and "host" in parameters:
        raise ValueError("hosts stand both after the @ and in the parameter host; keep one")
    ports = _read_ports(parameters.get("port"))
    specs = (hosts or parameters.get("host", "")).split(",")
    if specs == [""]:
        return ()
    if len(ports) not in (0, 1, len(specs)):
        raise ValueError(
            f"the parameter port has {len(ports)} ports for {len(specs)} hosts; "
            "give one for all or one for each"
        )
    if len(ports) == 1:
        ports *= len(specs)
    servers = (
        _read_server(unquote(spec), place, len(specs), ports[place] if ports else None)
        for place, spec in enumerate(specs)
    )
    return tuple(servers)


def servers_in_plaintext(dsn: str, environ: Mapping[str, str]) -> tuple[PostgresServer, ...]:
    """Return the servers beyond this machine with which TLS is not required. Raises ValueError."""
    servers = read_servers(dsn)
    mode = _read_parameters(urlsplit(dsn).query).get("sslmode") or environ.get("PGSSLMODE")
    if mode in ENCRYPTED_MODES:
        return ()
    return tuple(s for s in servers if not s.host.startswith("/") and not is_loopback(s.host))


def tls_files(dsn: str) -> dict[str, str]:
    """Return the files of TLS that a DSN names, by its parameters. Raises ValueError."""
    parameters = _read_parameters(urlsplit(dsn).query)
    return {name: parameters[name] for name in TLS_FILES if parameters.get(name)}


def _read_server(spec: str, place: int, count: int, given_port: int | None) -> PostgresServer:
    where = f"host {place + 1} of {count}" if count > 1 else "the host"
    if spec.startswith("/"):
        return PostgresServer(spec, given_port or DEFAULT_PORT)
    match = _HOST.fullmatch(spec)
    if match is None:
        raise ValueError(f"{where} is none: expected HOST, HOST:PORT or [IPV6]:PORT")
    host = match["address"] or match["name"]
    if not host:
        raise ValueError(f"{where} is empty: expected HOST1:PORT,HOST2:PORT")
    if match["port"] is None:
        return PostgresServer(host, given_port or DEFAULT_PORT)
    if given_port is not None:
        raise ValueError(f"{where} has a port, and so has the parameter port; keep one")
    return PostgresServer(host, _read_port(match["port"], where))


def _read_port(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 65536:
        raise ValueError(f"the port of {where} is no number from 1 to 65535")
    return int(text)


def _read_ports(text: str | None) -> list[int]:
    if not text:
        return []
    return [
        _read_port(part, f"place {place} of the parameter port")
        for place, part in enumerate(text.split(","), start=1)
    ]


def _read_parameters(query: str) -> Mapping[str, str]:
    try:
        parameters = {
            name: values[-1] for name, values in parse_qs(query, strict_parsing=bool(query)).items()
        }
    except ValueError:
        raise ValueError("after the ? expected NAME=VALUE, more of them behind &") from None
    target = parameters.get("target_session_attrs")
    if target in NOT_WRITABLE:
        raise ValueError(
            f"target_session_attrs={target} asks for a server that takes no writes; "
            "expected read-write, or leave it out"
        )
    if target is not None and target not in WRITABLE:
        raise ValueError(f"target_session_attrs is {target!r}: expected read-write")
    _check_ssl(parameters)
    if strangers := sorted(LIBPQ_ONLY & parameters.keys()):
        raise ValueError(f"the parameter {strangers[0]} is not understood here; leave it out")
    return parameters


def _check_ssl(parameters: Mapping[str, str]) -> None:
    mode = parameters.get("sslmode")
    if mode is not None and mode not in SSL_MODES:
        raise ValueError(f"sslmode is {mode!r}: expected one of {', '.join(SSL_MODES)}")
    if parameters.get("sslkey") and not parameters.get("sslcert"):
        raise ValueError("the parameter sslkey needs sslcert beside it")
    if mode in {"verify-ca", "verify-full"} and parameters.get("sslrootcert") == "system":
        raise ValueError(
            "sslrootcert=system is not understood here: expected the path of the system's file, "
            "such as /etc/ssl/certs/ca-certificates.crt"
        )
