"""What several checks want to know, found out once, by whichever asks first."""

import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from services.cli.doctor.docker_report import DockerReport, ask_docker
from services.cli.doctor.nvml_report import NvmlReport, ask_nvml

if TYPE_CHECKING:
    from services.cli.doctor.cluster_report import ClusterReport

T = TypeVar("T")

NVIDIA_VENDOR: Final = "0x10de"
AMD_VENDOR: Final = "0x1002"
SYSTEM_DIRECTORIES: Final = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_DISPLAY: Final = "0x03"
_ACCELERATOR: Final = "0x12"


class LazyValue(Generic[T]):
    """A value that is made by the first thread that wants it; the others wait for it."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: list[T] = []

    def get(self) -> T:
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]


@dataclass(slots=True, kw_only=True)
class HostFacts:
    """The host as the checks see it. `root` is where its `/proc`, `/sys`, `/dev` and `/etc` lie;
    `program_seconds` is how long a program or a server may take for one answer.
    """

    data_dir: Path
    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    program_seconds: float = 2.5
    system_directories: str = SYSTEM_DIRECTORIES
    nvml: LazyValue[NvmlReport] = field(init=False)
    docker: LazyValue[DockerReport] = field(init=False)
    cluster: "LazyValue[ClusterReport]" = field(init=False)

    def __post_init__(self) -> None:
        self.nvml = LazyValue(lambda: ask_nvml(self.program_seconds, self.environment))
        self.docker = LazyValue(lambda: ask_docker(self.program_seconds, self.environment))
        self.cluster = LazyValue(self._ask_cluster)

    def _ask_cluster(self) -> "ClusterReport":
        from services.cli.doctor.cluster_report import ask_cluster

        kubeconfig = self.environment.get("GPUSTEWARD_KUBECONFIG") or self.environment.get(
            "KUBECONFIG"
        )
        namespace = self.environment.get("GPUSTEWARD_EXECUTOR_CLUSTER_NAMESPACE") or "default"
        return ask_cluster(kubeconfig, namespace, self.program_seconds)

    def path(self, place: str) -> Path:
        """Return where an absolute path of the host lies here."""
        return self.root / place.lstrip("/")

    def program(self, name: str) -> str | None:
        """Return the path of a program; those of the system are found whatever PATH says."""
        path = f"{self.environment.get('PATH', '')}:{self.system_directories}"
        return shutil.which(name, path=path.strip(":"))

    def text(self, place: str) -> str | None:
        """A small file's content, None if there is none to read."""
        try:
            with self.path(place).open("rb") as file:
                return file.read(1 << 20).decode(errors="replace")
        except OSError:
            return None

    def gpu_boards(self, vendor: str) -> int:
        """Display controllers and accelerators of a vendor on the PCI bus."""
        count = 0
        for device in self.path("/sys/bus/pci/devices").glob("*"):
            place = f"/sys/bus/pci/devices/{device.name}"
            if (self.text(f"{place}/vendor") or "").strip() != vendor:
                continue
            kind = (self.text(f"{place}/class") or "").strip()
            # A processor's own graphics unit computes nothing here; boards of AMD that do have 0x12
            # or are known to ROCm's driver.
            computes = vendor == NVIDIA_VENDOR or self.path("/dev/kfd").exists()
            count += kind.startswith(_ACCELERATOR) or (computes and kind.startswith(_DISPLAY))
        return count

    def nvidia_device_files(self) -> list[str]:
        """`nvidia0`, `nvidia1`, ...; under WSL the one that stands for all of them."""
        names = [path.name for path in self.path("/dev").glob("nvidia[0-9]*")]
        device_names = sorted(name for name in names if re.fullmatch(r"nvidia\d+", name))
        return device_names or (["dxg"] if self.path("/dev/dxg").exists() else [])

    def has_nvidia(self) -> bool:
        return bool(self.nvidia_device_files() or self.gpu_boards(NVIDIA_VENDOR))
