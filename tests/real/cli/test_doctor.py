"""`gpusteward doctor` as a process: with a container engine that comes and goes, with a driver that
is broken or hangs, and without any rights.

The hardware is missing: nvidia-smi and NVML are stand-ins.
"""

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from docker.errors import DockerException
from docker.types import DeviceRequest, Mount

from schemas.executor.attempts import FailureKind
from services.cli.doctor.check import State
from services.cli.doctor.examination import DEADLINE_SECONDS
from services.cli.doctor.host_facts import HostFacts
from services.cli.doctor.kubernetes import cluster
from services.cli.doctor.nvml_report import ask_nvml
from shared.failures import recognise
from tests.support.docker.images import busybox_image
from tests.support.docker.private_engine import PrivateEngine
from tests.support.fakes.nvml import DRIVER_NOT_LOADED, NOT_SUPPORTED, FakeNvml
from tests.support.http_server import serving
from tests.support.paths import ROOT

DOCTOR = ("doctor", "--json")
# The interpreter may lie where nobody else may look, so it changes its user once all is loaded.
AS_NOBODY = """
import contextlib, io, os, sys
from services.cli.command_line import main
kept = io.TextIOWrapper(io.BytesIO())
with contextlib.redirect_stdout(kept), contextlib.suppress(SystemExit):
    main(sys.argv[1:])
os.setgroups([])
os.setresuid(65534, 65534, 65534)
main(sys.argv[1:])
"""
HANGING = "#!/bin/sh\nexec sleep 600\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the command said."""

    code: int
    checks: dict[str, dict[str, Any]]
    seconds: float

    def state(self, name: str) -> str:
        return str(self.checks[name]["state"])


async def doctor(*arguments: str, environment: Mapping[str, str] | None = None) -> Answer:
    # Others may keep this machine busy, and only what hangs is to be given up on.
    given = arguments if "--timeout" in arguments else ("--timeout", "30", *arguments)
    return await ask(sys.executable, "-m", "services.cli", *DOCTOR, *given, environment=environment)


async def ask(*command: str, environment: Mapping[str, str] | None = None) -> Answer:
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **(environment or {})},
        cwd="/",
    )
    out, err = await process.communicate()
    seconds = time.monotonic() - began
    assert not err, err.decode()
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    return Answer(code=process.returncode or 0, checks=checks, seconds=seconds)


@pytest.mark.long
async def test_container_engine_is_reported_up_and_down(
    docker_engine: PrivateEngine, tmp_path: Path
) -> None:
    # Whether the rest of the host is fit is not asked here, but whether this check counts.
    here = ("--data-dir", str(tmp_path), "--require", "docker")
    up = await doctor(*here, environment=docker_engine.environ())
    docker_engine.stop()
    try:
        down = await doctor(*here, environment=docker_engine.environ())
    finally:
        docker_engine.start()

    version = docker_engine.client.version()["Version"]
    assert up.state("docker") in {"ok", "warn"}
    assert f"Docker {version} (API " in up.checks["docker"]["found"]
    assert docker_engine.base_url in up.checks["docker"]["found"]
    assert "storage overlay2" in up.checks["docker"]["found"]
    assert up.code == 0
    assert down.state("docker") == "error"
    assert "DOCKER_HOST" in down.checks["docker"]["fix"]
    assert down.code == 7


@pytest.mark.long
def test_what_a_real_engine_says_is_recognised(docker_engine: PrivateEngine) -> None:
    containers = docker_engine.client.containers
    image = busybox_image(docker_engine.client)
    gpu = {"device_requests": [DeviceRequest(device_ids=["0"], capabilities=[["gpu"]])]}

    def said(**asked: Any) -> tuple[FailureKind, str] | None:
        made: Any = None
        try:
            made = containers.create(**{"image": image, "command": "true", **asked})
            made.start()
        except DockerException as refusal:
            found = recognise(str(refusal))
            return (found.kind, found.title) if found is not None else None
        finally:
            if made is not None:
                made.remove(force=True)
        pytest.fail(f"a container started with {asked}")

    with docker_engine.hook_missing():
        no_toolkit = said(**gpu)
    with docker_engine.hook_failing("nvml error: driver/library version mismatch"):
        old_driver = said(**gpu)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port_taken = said(ports={"8000/tcp": taken.getsockname()})
    told = {
        "no toolkit": no_toolkit,
        "old driver": old_driver,
        "port": port_taken,
        "program": said(command=["vllm", "serve"]),
        "directory": said(mounts=[Mount("/m", "/no/such/model", type="bind")]),
        "image": said(image="no/such:1"),
        "runtime": said(runtime="nvidia"),
        "cdi": said(device_requests=[DeviceRequest(driver="cdi", device_ids=["a/b=0"])]),
        "driver": said(device_requests=[DeviceRequest(driver="none", capabilities=[["gpu"]])]),
    }

    assert {what: found and found[0].value for what, found in told.items()} == {
        "no toolkit": "gpu_unavailable",
        "old driver": "gpu_unavailable",
        "port": "port_taken",
        "program": "engine_missing",
        "directory": "model_missing",
        "image": "image_missing",
        "runtime": "gpu_unavailable",
        "cdi": "gpu_unavailable",
        "driver": "gpu_unavailable",
    }
    of_the_gpu = [found for what, found in told.items() if found and found[0].value[:3] == "gpu"]
    assert len(set(of_the_gpu)) == len(of_the_gpu), "each has a cause of its own"


def test_hanging_nvml_runs_in_own_process(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=3)
    fake.device(2).mig = 1
    working = ask_nvml(30.0, fake.environ)
    fake.rule("nvmlDeviceGetMemoryInfo", device=1, error=NOT_SUPPORTED)
    fake.rule("nvmlDeviceGetName", latency_seconds=60)
    hung = ask_nvml(0.5, fake.environ)
    fake.clear_rules()
    fake.state.init_error = DRIVER_NOT_LOADED
    broken = ask_nvml(30.0, fake.environ)

    assert [gpu.name for gpu in working.gpus] == ["Fake H100"] * 3
    assert {gpu.memory_mb for gpu in working.gpus} == {81_559}
    assert working.gpus[2].mig == 1
    assert working.driver
    assert hung.is_hung
    assert broken.error == "Driver Not Loaded"
    assert not broken.is_hung


@pytest.mark.long
async def test_it_ends_in_time_whatever_hangs(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("nvidia-smi", "nvidia-ctk", "amd-smi", "rocm-smi"):
        (programs / name).write_text(HANGING)
        (programs / name).chmod(0o755)
    fake = FakeNvml(tmp_path)
    fake.rule("nvmlDeviceGetName", latency_seconds=60)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        config = tmp_path / "kubeconfig"
        config.write_text(f"clusters:\n- cluster:\n    server: https://{address}\n  name: a\n")
        undisturbed = await doctor("--data-dir", str(tmp_path))
        hung = await doctor(
            *("--data-dir", str(tmp_path), "--timeout", str(DEADLINE_SECONDS)),
            environment={
                **fake.environ,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "DOCKER_HOST": f"tcp://{address}",
                "KUBECONFIG": str(config),
            },
        )

    # Five on a machine that has nothing else to do.
    assert hung.seconds < max(5.0, DEADLINE_SECONDS + 2 * undisturbed.seconds)
    assert hung.code == 7
    for name in ("nvml", "nvidia-smi", "docker", "kubernetes"):
        assert hung.state(name) == "error", hung.checks[name]
    assert "hangs" in hung.checks["nvml"]["fix"]
    assert hung.state("python") == "ok"


async def test_answering_cluster_is_shown_with_version(tmp_path: Path) -> None:
    async def version(_: web.Request) -> web.Response:
        return web.json_response({"gitVersion": "v1.31.2"})

    async def old_version(_: web.Request) -> web.Response:
        return web.json_response({"gitVersion": "v1.24.17"})

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=HTTPStatus.UNAUTHORIZED)

    config = tmp_path / "kubeconfig"
    facts = HostFacts(data_dir=tmp_path, environment={"KUBECONFIG": str(config)})
    seen = []
    for answer in (version, refuse, old_version):
        app = web.Application()
        app.router.add_get("/version", answer)
        async with serving(app) as address:
            config.write_text(f"clusters:\n- cluster:\n    server: {address}\n  name: a\n")
            seen.append(await asyncio.to_thread(cluster, facts))

    assert [each.state for each in seen] == [State.OK, State.OK, State.ERROR]
    assert "Kubernetes v1.31.2" in seen[0].found
    assert "HTTP 401" in seen[1].found
    assert "expected 1.25 or later" in seen[2].found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_doctor_needs_no_rights_and_names_missing_ones(tmp_path: Path) -> None:
    told = await ask(
        *(sys.executable, "-c", AS_NOBODY, *DOCTOR),
        *("--timeout", "30", "--data-dir", str(tmp_path / "of-root")),
    )

    assert told.state("python") == "ok"
    assert told.state("data-directory") == "error"
    assert "not writable" in told.checks["data-directory"]["found"]
    assert "chown" in told.checks["data-directory"]["fix"]
    assert told.code == 7
    assert not any("the check itself failed" in each["found"] for each in told.checks.values())
