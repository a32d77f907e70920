"""A service as a process: what its exit status tells."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.lifecycle import READY_FILE_VARIABLE
from shared.testing import eventually
from tests.support.paths import ROOT


async def start(nats_url: str, directory: Path, **environment: str) -> Process:
    """Start the service that fails when the file `fail` of this directory is there."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.processes.failing_service"),
        cwd=ROOT,
        stderr=PIPE,
        env={
            **os.environ,
            "GPUSTEWARD_NATS_URL": nats_url,
            "FAIL_WHEN": str(directory / "fail"),
            **environment,
        },
    )


@asynccontextmanager
async def service_process(nats_url: str, directory: Path) -> AsyncIterator[Process]:
    """The failing service, ready, its end guaranteed."""
    ready = directory / "ready"
    process = await start(nats_url, directory, **{READY_FILE_VARIABLE: str(ready)})
    try:
        await eventually(ready.exists, what="a ready service")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_failed_loop_ends_process_with_status_1(nats_url: str, tmp_path: Path) -> None:
    async with service_process(nats_url, tmp_path) as process:
        (tmp_path / "fail").touch()

        _, log = await asyncio.wait_for(process.communicate(), 40)

    assert process.returncode == 1
    assert b"ZeroDivisionError" in log
    assert b'"loop": "fail_when_told"' in log


async def test_failed_loop_ends_a_start_that_waits_for_it(nats_url: str, tmp_path: Path) -> None:
    process = await start(nats_url, tmp_path, FAIL_WHILE_STARTING="yes")
    try:
        _, log = await asyncio.wait_for(process.communicate(), 40)
    finally:
        if process.returncode is None:
            process.kill()

    assert process.returncode == 1
    assert b"ZeroDivisionError" in log


@pytest.mark.long
async def test_stopped_service_ends_with_status_0(nats_url: str, tmp_path: Path) -> None:
    async with service_process(nats_url, tmp_path) as process:
        process.send_signal(signal.SIGTERM)

        _, log = await asyncio.wait_for(process.communicate(), 40)

    assert process.returncode == 0, log.decode()


async def test_service_waiting_for_its_bus_is_stopped(tmp_path: Path) -> None:
    process = await start("nats://127.0.0.1:1", tmp_path)
    assert process.stderr is not None
    while b"nats_error" not in await asyncio.wait_for(process.stderr.readline(), 40):
        assert process.returncode is None

    process.send_signal(signal.SIGTERM)
    _, log = await asyncio.wait_for(process.communicate(), 40)

    assert process.returncode == 0, log.decode()


async def test_wrong_bus_address_is_a_sentence_and_status_78() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.results"),
        cwd=ROOT,
        stderr=PIPE,
        env={**os.environ, "GPUSTEWARD_NATS_URL": "nats://a:4222;nats://b:4222"},
    )
    _, said = await asyncio.wait_for(process.communicate(), 40)

    assert process.returncode == os.EX_CONFIG
    (sentence,) = said.decode().splitlines()
    assert sentence.startswith("GPUSTEWARD_NATS_URL: expected the address of a NATS server")
    assert sentence.endswith("got 'nats://a:4222;nats://b:4222'")


async def test_services_of_one_process_are_ready_and_end_together(
    nats_url: str, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    variables = {READY_FILE_VARIABLE: str(ready), "BESIDE": str(tmp_path)}
    process = await start(nats_url, tmp_path, **variables)
    assert process.stderr is not None
    log = b""
    try:
        while log.count(b"service_ready") + log.count(b"beside_starts") < 2:
            log += await asyncio.wait_for(process.stderr.readline(), 40)
        was_ready = ready.is_symlink()
        (tmp_path / "go").touch()
        await eventually(ready.is_symlink, what="ready services")
        (tmp_path / "fail").touch()
        log += (await asyncio.wait_for(process.communicate(), 40))[1]
    finally:
        if process.returncode is None:
            process.kill()

    assert not was_ready
    assert (tmp_path / "stopped").exists()
    assert process.returncode == 1
    lines = [json.loads(line) for line in log.splitlines() if line.startswith(b"{")]
    who = {line["event"]: line["service"] for line in lines}
    assert (who["beside_starts"], who["service_failed"]) == ("beside", "failing")
