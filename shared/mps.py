"""NVIDIA's MPS control daemons on this host: where they listen, and whether they do."""

import errno
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from schemas.gpus.device_grant import DeviceGrant, ShareKind

DEFAULT_PIPE_DIR: Final = "/tmp/nvidia-mps"  # noqa: S108  # where NVIDIA's daemon has it by default


def daemon_listens(pipe_dir: str) -> bool:
    """Return True if a daemon listens at its socket in CUDA_MPS_PIPE_DIRECTORY; a dead one leaves a
    file.

    Nothing connects: the kernel finds the listener before it finds that a datagram is not what it
    takes.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as probe:
        try:
            return probe.connect_ex(str(Path(pipe_dir) / "control")) in {0, errno.EPROTOTYPE}
        except OSError:  # a path that no socket can have
            return False


def device_pipe_dir(pipe_dir: str, device_uuid: str) -> str:
    """Return the pipe directory of the daemon that serves this device alone."""
    return str(Path(pipe_dir) / device_uuid)


def pipe_dir_for(pipe_dir: str, device_uuid: str) -> str:
    """The CUDA_MPS_PIPE_DIRECTORY of a client on this device: its own daemon's, else the host's."""
    device_dir = device_pipe_dir(pipe_dir, device_uuid)
    return device_dir if daemon_listens(device_dir) else pipe_dir


def is_by_mps(devices: Iterable[DeviceGrant]) -> bool:
    """True if a workload on these devices is a client of its host's MPS daemon."""
    return any(
        device.share is not None and device.share.kind is ShareKind.MPS and not device.simulated
        for device in devices
    )


def mps_environment(devices: Iterable[DeviceGrant], mps_pipe_dir: str) -> dict[str, str]:
    """Say which daemon a workload is a client of, the first part's; empty if of none."""
    by_mps = [device.uuid for device in devices if is_by_mps((device,))]
    if not by_mps:
        return {}
    return {"CUDA_MPS_PIPE_DIRECTORY": pipe_dir_for(mps_pipe_dir, by_mps[0])}
