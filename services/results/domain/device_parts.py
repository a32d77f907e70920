"""How much of a device is granted."""

from typing import Final

from schemas.gpus.device_grant import DeviceGrant

WHOLE: Final = 100  # hundredths of a device


def hundredths_of(device: DeviceGrant) -> int:
    share = device.share
    if share is None:
        return WHOLE
    if share.shares is not None:
        return round(share.shares * WHOLE)
    return round(share.compute_percent or WHOLE)
