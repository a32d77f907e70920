"""What the container engine of this host says of itself."""

import shutil
from typing import Any, Final

import docker
from msgspec import Struct

_NO_GPUS: Final = (
    "containers may not get GPUs here: Docker knows no runtime `nvidia` and no CDI device of "
    "NVIDIA, and nvidia-container-runtime-hook is not installed; install nvidia-container-toolkit"
)


class HostEngine(Struct, frozen=True, kw_only=True):
    """`gpu_warning`: why containers probably get no GPUs; None if nothing speaks against it."""

    version: str
    gpu_warning: str | None


def look_at(api: docker.APIClient) -> HostEngine:
    """Ask it."""
    info: dict[str, Any] = api.info()
    has_runtime = any("nvidia" in name for name in info.get("Runtimes") or {})
    cdi = info.get("DiscoveredDevices") or ()
    has_cdi = any(str(device.get("ID", "")).startswith("nvidia.com/") for device in cdi)
    # Since 19.03 Docker looks for this program itself, without a runtime of that name.
    has_hook = shutil.which("nvidia-container-runtime-hook") is not None
    return HostEngine(
        version=str(info.get("ServerVersion", "")),
        gpu_warning=None if has_runtime or has_cdi or has_hook else _NO_GPUS,
    )
