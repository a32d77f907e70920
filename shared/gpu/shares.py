"""Parts of devices, as settings of the CUDA Multi-Process Service."""

from collections.abc import Sequence
from typing import Final

from schemas.gpus.device_grant import DeviceGrant

MPS_LABEL: Final = "gpusteward.io/mps"  # of a node on which an MPS daemon runs
MPS_OF_HOST: Final = "true"  # one daemon for all of its GPUs
MPS_OF_EACH_GPU: Final = "gpu"  # one for each, and a client connects to one


def share_environment(devices: Sequence[DeviceGrant]) -> dict[str, str]:
    """The environment that limits an MPS client to its shares; empty for whole devices.

    `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` holds for all of a client's devices, so the smallest share
    counts. `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` is by device, in the order in which it sees them.
    Both are documented by NVIDIA under "Multi-Process Service".
    """
    mps = [(number, d.share) for number, d in enumerate(devices) if d.share is not None]
    percents = [share.compute_percent for _, share in mps if share.compute_percent is not None]
    limits = [f"{number}={share.memory_mb}M" for number, share in mps if share.memory_mb]
    environment: dict[str, str] = {}
    if percents:
        environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{min(percents):g}"
    if limits:
        environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    return environment
