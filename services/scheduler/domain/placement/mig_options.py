"""MIG instances that do not exist yet, as devices: what a request has to match."""

from msgspec.structs import replace

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.model.fleet import Device


def to_be_made(device: Device, request: GpuRequest) -> Device | None:
    """The MIG instance that the GPU's agent may make for the request; None if it makes none such.

    Its uuid is not known before, so a request that names one never waits for it.
    """
    layout = device.mig_layout
    if request.mig_profile is None or layout is None:
        return None
    for option in layout.options:
        if option.profile == request.mig_profile:
            return replace(
                device,
                uuid="",
                name=f"{device.name} MIG {option.profile}",
                memory_total_mb=option.memory_mb,
                mig_enabled=None,
                mig_layout=None,
                parent_uuid=device.uuid,
                mig_profile=option.profile,
            )
    return None
