"""Parts of devices, as this host divides them between engines."""

from schemas.errors import ErrorCode
from schemas.executor.attempts import StartExperiment
from schemas.gpus.device_grant import DeviceGrant
from services.executor.settings import ExecutorSettings
from shared.errors import RefusedError
from shared.mps import daemon_listens, is_by_mps, pipe_dir_for


def check_shares(command: StartExperiment, settings: ExecutorSettings) -> None:
    """Check that the granted shares can be handed out here. Raises RefusedError."""
    for number, device in enumerate(command.devices):
        reason = _no_share(device, settings.mps_pipe_dir)
        if reason is not None:
            raise RefusedError(ErrorCode.UNSUPPORTED, reason, path=f"$.devices[{number}].share")
    pipe_dirs = {
        pipe_dir_for(settings.mps_pipe_dir, device.uuid)
        for device in command.devices
        if is_by_mps((device,))
    }
    if len(pipe_dirs) > 1:
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            "expected parts of GPUs of one MPS daemon, which is all that a client connects to, got"
            f" parts of {len(pipe_dirs)}, each with its own: ask for at most 1.00 `unfragmented`",
            path="$.devices",
        )


def _no_share(device: DeviceGrant, mps_pipe_dir: str) -> str | None:
    if not is_by_mps((device,)):
        return None
    if device.mig_profile is not None:
        return f"expected a whole MIG instance, got a part of {device.uuid}: MPS has none"
    pipe_dir = pipe_dir_for(mps_pipe_dir, device.uuid)
    if not daemon_listens(pipe_dir):
        return (
            f"no MPS daemon listens at {pipe_dir}, so {device.uuid} cannot be divided; start"
            " one with `nvidia-cuda-mps-control -d`"
        )
    return None
