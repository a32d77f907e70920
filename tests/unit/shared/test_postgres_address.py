"""What a DSN says of its servers, and which part of a wrong one is wrong."""

import re

import pytest

from shared.postgres_address import PostgresServer, read_servers


@pytest.mark.parametrize(
    ("dsn", "servers"),
    [
        pytest.param("postgresql:///gpusteward", [], id="left to the environment"),
        pytest.param("postgresql://me:pw@db/x", ["db:5432"], id="one"),
        pytest.param("postgres://db:6000", ["db:6000"], id="no database"),
        pytest.param(
            "postgresql://me@a:5501,b:5502,c/x?target_session_attrs=read-write",
            ["a:5501", "b:5502", "c:5432"],
            id="several",
        ),
        pytest.param("postgresql://me@a,b/x?port=7000", ["a:7000", "b:7000"], id="one port"),
        pytest.param(
            "postgresql:///x?host=a,b&port=7000,7001", ["a:7000", "b:7001"], id="in parameters"
        ),
        pytest.param("postgresql://[::1]:5501,[fe80::2]/x", ["[::1]:5501", "[fe80::2]:5432"]),
        pytest.param(
            "postgresql://me@/x?host=/run/a%20b,/run/c", ["/run/a b", "/run/c"], id="sockets"
        ),
        pytest.param("postgresql://me@%2Frun%2Fpg/x", ["/run/pg"], id="socket in place of a host"),
    ],
)
def test_servers_come_in_the_order_of_the_address(dsn: str, servers: list[str]) -> None:
    assert [str(server) for server in read_servers(dsn)] == servers


@pytest.mark.parametrize(
    ("dsn", "sentence"),
    [
        ("mysql://db/x", "expected postgresql://"),
        ("host=db user=secret", "expected postgresql://"),
        ("postgresql://me:sec@ret@db/x", "write @ as %40"),
        ("postgresql://me:sec/ret@db/x", "/ as %2F"),
        ("postgresql://me:sec?ret@db/x", "? as %3F"),
        ("postgresql://me:sec#ret@db/x", "# as %23"),
        ("postgresql://me:sec[ret@db/x", "write them as %5B"),
        ("postgresql://me:secret/x", "the port of the host is no number"),
        ("postgresql://me@a,,c/x", "host 2 of 3 is empty"),
        ("postgresql://me@a,/x", "host 2 of 2 is empty"),
        ("postgresql://me@:5432/x", "the host is empty"),
        ("postgresql://me@a:port,b/x", "the port of host 1 of 2 is no number"),
        ("postgresql://me@a,b:99999/x", "the port of host 2 of 2 is no number"),
        ("postgresql://me@a:/x", "the port of the host is no number"),
        ("postgresql://me@::1/x", "the host is empty"),
        ("postgresql://me@a/x?port=1,2", "2 ports for 1 hosts"),
        ("postgresql://me@a:1/x?port=2", "keep one"),
        ("postgresql://me@a/x?host=b", "keep one"),
        ("postgresql://me@a/x?sslmode", "expected NAME=VALUE"),
        ("postgresql://me@a,b/x?target_session_attrs=standby", "takes no writes"),
        ("postgresql://me@a,b/x?target_session_attrs=master", "expected read-write"),
        ("postgresql://me@a/x?sslmode=verify_full", "expected one of disable, allow, prefer"),
        ("postgresql://me@a/x?sslkey=a.key", "sslkey needs sslcert"),
        ("postgresql://me@a/x?sslmode=verify-full&sslrootcert=system", "the system's file"),
        ("postgresql://me@a/x?connect_timeout=3", "connect_timeout is not understood"),
    ],
)
def test_a_wrong_part_is_named_without_the_password(dsn: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as refused:
        read_servers(dsn)

    assert "sec" not in str(refused.value)


def test_a_socket_has_a_port_of_its_own() -> None:
    assert read_servers("postgresql:///x?host=/run/pg&port=6000") == (
        PostgresServer("/run/pg", 6000),
    )
