"""What an engine process is told of the parts of devices that it was granted."""

import contextlib
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from schemas.gpus.device_grant import DeviceGrant, DeviceShare, ShareKind
from services.executor.runtimes.device_shares import check_shares
from services.executor.runtimes.engine_process import engine_environment
from services.executor.settings import ExecutorSettings
from shared.errors import RefusedError
from shared.mps import mps_environment
from shared.testing import short_directory
from tests.support.worlds.executor import make_device, make_part, make_start
from tests.support.worlds.runtime_launches import launch_of, runtime_settings

HALF = DeviceShare(kind=ShareKind.MPS, compute_percent=50.0, memory_mb=4096, shares=0.5)


def given(tmp_path: Path, device: DeviceGrant) -> dict[str, str]:
    settings = runtime_settings(tmp_path, mps_pipe_dir="/run/mps")
    launch = launch_of(make_start(devices=(device,)), settings)
    return engine_environment(launch, {}, settings, home=tmp_path)


def test_engine_on_share_is_mps_client(tmp_path: Path) -> None:
    found = given(tmp_path, replace(make_device(), simulated=False, share=HALF))

    assert found["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps"
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"


def test_a_cooperative_part_is_bounded_by_nothing(tmp_path: Path) -> None:
    found = given(tmp_path, make_part((0, 5_000)))

    assert not [name for name in found if name.startswith("CUDA_MPS")]


def test_share_without_mps_daemon_is_refused(tmp_path: Path) -> None:
    settings = ExecutorSettings(mps_pipe_dir=str(tmp_path / "none"))
    start = make_start(devices=(replace(make_device(), simulated=False, share=HALF),))

    with pytest.raises(RefusedError, match="no MPS daemon") as refused:
        check_shares(start, settings)

    assert refused.value.path == "$.devices[0].share"


def test_engine_uses_one_mps_daemon_only() -> None:
    devices = [replace(make_device(), uuid=u, simulated=False, share=HALF) for u in ("GPU-a", "b")]
    with short_directory() as directory, contextlib.ExitStack() as daemons:
        for device in devices:
            path = directory / device.uuid / "control"
            path.parent.mkdir()
            daemon = daemons.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            daemon.bind(str(path))
            daemon.listen()
        settings = ExecutorSettings(mps_pipe_dir=str(directory))

        check_shares(make_start(devices=(devices[0],)), settings)
        found = mps_environment(devices[:1], str(directory))
        with pytest.raises(RefusedError, match="each with its own") as refused:
            check_shares(make_start(devices=tuple(devices)), settings)

    assert found == {"CUDA_MPS_PIPE_DIRECTORY": str(directory / "GPU-a")}
    assert refused.value.path == "$.devices"
