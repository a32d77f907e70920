"""`up` beyond loopback: TLS by itself, a server that joins over it, and plain text only by name."""

import asyncio
import json
import os
import re
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.testing import eventually, short_directory
from shared.tls.authority import Authority
from tests.real.cli.test_platform import Installation
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.tls_relay import tls_relay

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

EVERYWHERE = "0.0.0.0"  # noqa: S104  # in a test's network
START_SECONDS = 60


@pytest.fixture
async def installation() -> AsyncIterator[Installation]:
    with short_directory() as path:
        made = Installation(path / "data")
        await made.run("token", "create")
        yield made
        assert made.left_behind() == []


@asynccontextmanager
async def running(installation: Installation, *arguments: str) -> AsyncIterator[str]:
    """`up` with these arguments; the first line that says where it answers."""
    process = await installation.start("up", "--simulate", *arguments)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            while b"answers at" not in (line := await process.stdout.readline()):
                assert line, await process.communicate()
        yield line.decode()
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()


async def start_elsewhere(
    data_dir: Path, *arguments: str, **variables: str
) -> asyncio.subprocess.Process:
    """A command of another machine: it has a data directory and an environment of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GPUSTEWARD_")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={
            **environment,
            "PYTHONPATH": str(ROOT),
            "GPUSTEWARD_DATA_DIR": str(data_dir),
            "GPUSTEWARD_TELEMETRY_METRICS": "false",
            **variables,
        },
    )


async def output_elsewhere(data_dir: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    process = await start_elsewhere(data_dir, *arguments, **variables)
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def nodes_of(installation: Installation) -> dict[str, bool]:
    _, out, _ = await installation.run("nodes", "--json")
    return {each["node_id"]: each["fresh"] for each in json.loads(out)["nodes"]}


async def test_a_server_joins_and_nothing_passes_in_plain_text(
    installation: Installation, tmp_path: Path
) -> None:
    http_port, nats_port, there = free_port(), free_port(), tmp_path / "beta"
    listens = ("--host", EVERYWHERE, "--port", str(http_port))
    bus = ("--nats-listen", f"{EVERYWHERE}:{nats_port}")
    async with running(installation, *listens, *bus) as line:
        assert f"answers at https://127.0.0.1:{http_port}" in line
        _, invitation, _ = await installation.run("node", "invite", "beta")
        variables = dict(re.findall(r"(GPUSTEWARD_JOIN_\w+)=(\S+?)[ ;]", invitation))
        assert set(variables) == {"GPUSTEWARD_JOIN_CA", "GPUSTEWARD_JOIN_CODE"}
        async with tls_relay(http_port) as api, tls_relay(nats_port) as messages:
            joining = await start_elsewhere(
                there, "join", f"https://127.0.0.1:{api.port}", "beta", "--simulate", **variables
            )
            credentials = there / "node_beta.json"
            await eventually(
                lambda: credentials.exists() and bool(credentials.read_bytes()),
                within_seconds=30,
                what="credentials",
            )
            joining.send_signal(signal.SIGTERM)
            out, _ = await joining.communicate()
            assert credentials.exists(), out.decode()
            assert json.loads(credentials.read_text())["ca"].startswith("-----BEGIN CERTIFICATE")
            address = f"nats://127.0.0.1:{messages.port}"
            agent = await start_elsewhere(
                there, "agent", "--nats", address, "--credentials", str(credentials), "--simulate"
            )

            async def is_fresh() -> bool:
                return (await nodes_of(installation)).get("beta", False)

            await eventually(is_fresh, within_seconds=60, what="a node that reports over TLS")
            agent.send_signal(signal.SIGTERM)
            await agent.communicate()
        certificate = await shown_at(nats_port, installation.directory.authority_path)

    assert "127.0.0.1" in certificate
    authority = Authority(installation.directory.tls)
    assert authority.key_path.stat().st_mode & 0o077 == 0


async def shown_at(port: int, authority: Path) -> str:
    context = ssl.create_default_context(cafile=authority)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    return str(certificate["subjectAltName"])


async def test_client_elsewhere_needs_the_authority(
    installation: Installation, tmp_path: Path
) -> None:
    port = free_port()
    async with running(installation, "--host", EVERYWHERE, "--port", str(port)):
        url, token = f"https://127.0.0.1:{port}", installation.directory.read_admin_token() or ""
        variables = {"GPUSTEWARD_URL": url, "GPUSTEWARD_TOKEN": token}
        code, distrust = await output_elsewhere(tmp_path, "nodes", **variables)
        authority = str(installation.directory.authority_path)
        trusted, _ = await output_elsewhere(tmp_path, "nodes", **variables, GPUSTEWARD_CA=authority)
        invitation = {"GPUSTEWARD_JOIN_CODE": "any"}
        refused, of_join = await output_elsewhere(tmp_path, "join", url, "beta", **invitation)

    for ended, out in ((code, distrust), (refused, of_join)):
        assert ended != 0
        assert f"the certificate at {url} is not trusted here" in out
        assert "GPUSTEWARD_CA" in out
        assert "Traceback" not in out
    assert trusted == 0


async def test_certificate_of_a_file_is_shown(installation: Installation, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "own")
    authority.create()
    authority.issue("api", ["127.0.0.1"])
    files, port = authority.files_of("api"), free_port()
    given = ("--tls-cert", str(files.certificate), "--tls-key", str(files.key))
    async with running(installation, "--port", str(port), *given) as line:
        assert f"https://127.0.0.1:{port}" in line
        assert await shown_at(port, authority.certificate_path)


async def test_plain_text_takes_a_flag_that_names_it(installation: Installation) -> None:
    port = free_port()
    plain = ("--host", EVERYWHERE, "--port", str(port), "--insecure-plaintext")
    async with running(installation, *plain) as line:
        assert f"http://127.0.0.1:{port}" in line
        assert not installation.directory.authority_path.exists()


async def test_wrong_pair_is_refused_before_anything_starts(
    installation: Installation, tmp_path: Path
) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("nothing")

    code, _, err = await installation.run("up", "--tls-cert", str(path))

    assert code == 2
    assert "--tls-cert: " in err
    assert "expected a certificate and its key in PEM" in err
