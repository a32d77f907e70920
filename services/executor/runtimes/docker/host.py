"""What the container engine of this host says of itself."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import docker
from msgspec import Struct

from services.executor.settings import ExecutorSettings
from shared.disk import DiskRoom, room_at

_NO_GPUS: Final = (
    "containers may not get GPUs here: Docker knows no runtime `nvidia` and no CDI device of "
    "NVIDIA, and nvidia-container-runtime-hook is not installed; install nvidia-container-toolkit"
)
_CDI_VENDOR: Final = "nvidia.com/"
_CDI_SUFFIXES: Final = frozenset({".json", ".yaml"})


class EngineInfo(Struct, frozen=True, kw_only=True):
    """`gpu_warning`: why containers probably get no GPUs; None if nothing speaks against it."""

    version: str
    gpu_warning: str | None


def engine_info(api: docker.APIClient) -> EngineInfo:
    info: dict[str, Any] = api.info()
    has_runtime = any("nvidia" in name for name in info.get("Runtimes") or {})
    # Since 19.03 Docker finds this program itself, without a runtime of that name.
    has_hook = shutil.which("nvidia-container-runtime-hook") is not None
    return EngineInfo(
        version=str(info.get("ServerVersion", "")),
        gpu_warning=None if has_runtime or has_hook or _has_cdi(info) else _NO_GPUS,
    )


def images_directory(api: docker.APIClient) -> Path:
    """Return the directory in which Docker keeps its images."""
    return Path(str(api.info()["DockerRootDir"]))


def images_room(directory: Path, settings: ExecutorSettings) -> DiskRoom:
    """The room of its images' disk. An executor in a container does not see it, but its own data,
    which are a volume of the same engine.
    """
    return room_at(directory if directory.exists() else Path(settings.data_dir))


def _has_cdi(info: dict[str, Any]) -> bool:
    """Return whether a device of NVIDIA has a CDI name; Docker 25 to 27 name only the
    directories.
    """
    devices = info.get("DiscoveredDevices") or ()
    if any(str(device.get("ID", "")).startswith(_CDI_VENDOR) for device in devices):
        return True
    directories = [Path(directory) for directory in info.get("CDISpecDirs") or ()]
    return any(_is_of_nvidia(path) for directory in directories for path in directory.glob("*"))


def _is_of_nvidia(specification: Path) -> bool:
    with suppress(OSError, ValueError):
        return specification.suffix in _CDI_SUFFIXES and _CDI_VENDOR in specification.read_text()
    return False
