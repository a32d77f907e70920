"""How much of a device is granted, and how."""

from typing import Final

from schemas.gpus.device_grant import DeviceGrant, ShareKind
from schemas.gpus.gpu_request import WHOLE
from schemas.gpus.kinds import GpuKind

MIG: Final = "MIG-"  # how drivers begin the uuid of an instance


def hundredths_of(device: DeviceGrant) -> int:
    share = device.share
    if share is None:
        return WHOLE
    if share.shares is not None:
        return round(share.shares * WHOLE)
    return round(share.compute_percent or WHOLE)


def kind_of(device: DeviceGrant) -> GpuKind:
    """Tell how a reservation holds it."""
    if device.share is not None:
        return GpuKind.MPS if device.share.kind is ShareKind.MPS else GpuKind.SHARED
    return GpuKind.PGPU if device.mig_profile is None else GpuKind.MIG
