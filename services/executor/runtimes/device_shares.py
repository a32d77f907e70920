"""Parts of devices, as this host divides them between engines."""

from collections.abc import Iterable

from schemas.errors import ErrorCode
from schemas.executor import StartExperiment
from schemas.gpu_request import DeviceGrant, ShareKind
from services.executor.settings import ExecutorSettings
from shared.errors import RefusedError
from shared.mps import daemon_listens


def is_by_mps(devices: Iterable[DeviceGrant]) -> bool:
    """Whether an engine on these devices is a client of this host's MPS daemon."""
    return any(
        device.share is not None and device.share.kind is ShareKind.MPS and not device.simulated
        for device in devices
    )


def check_shares(command: StartExperiment, settings: ExecutorSettings) -> None:
    """That the granted parts can be handed out here. Raises RefusedError."""
    for number, device in enumerate(command.devices):
        reason = _no_share(device, settings.mps_pipe_dir)
        if reason is not None:
            raise RefusedError(ErrorCode.UNSUPPORTED, reason, path=f"$.devices[{number}].share")


def _no_share(device: DeviceGrant, mps_pipe_dir: str) -> str | None:
    if not is_by_mps((device,)):
        return None
    if device.mig_profile is not None:
        return f"expected a whole MIG instance, got a part of {device.uuid}: MPS has none"
    if not daemon_listens(mps_pipe_dir):
        return (
            f"no MPS daemon listens at {mps_pipe_dir}, so {device.uuid} cannot be divided; start"
            " one with `nvidia-cuda-mps-control -d`"
        )
    return None
