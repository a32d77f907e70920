"""How a process is given its GPUs and no others: by the variables of their vendor's runtime."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from schemas.gpus.device_grant import DeviceGrant
from shared.accelerator_rules.compute_capability import is_amd
from shared.errors import StewardError

AMD_DRIVER: Final = Path("/sys/bus/pci/drivers/amdgpu")
KFD_NODES: Final = Path("/sys/class/kfd/kfd/topology/nodes")
# Each of them hides GPUs or numbers them anew, whatever the others say.
ROCM_VARIABLES: Final = (
    *("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES"),
)


class GpuNotUsable(StewardError):
    """A granted GPU cannot be named to the process that it is for; the text says what to do."""


class AmdGpu(NamedTuple):
    """A GPU as ROCm's kernel driver has it.

    `ordinal` is its number in HIP, None where ROCm does not know it; `render_minor` the number of
    its device below /dev/dri.
    """

    ordinal: int | None
    render_minor: int | None


class _KfdNode(NamedTuple):
    place: tuple[int, int, int]  # PCI domain, bus and device
    render_minor: int


def without_other_gpus(
    inherited: Mapping[str, str], devices: Sequence[DeviceGrant]
) -> dict[str, str]:
    """Return the environment with these GPUs visible in it, and no others.

    NVIDIA's GPUs go by uuid. AMD's go by HIP's numbers, in the variable of HIP and, alike, in that
    of CUDA, which ROCm's programs read too (vLLM refuses two that differ). ROCR_VISIBLE_DEVICES
    is taken out: Ray refuses it, and HIP's numbers would begin anew behind it. Raises GpuNotUsable.
    """
    if not is_any_amd(devices):
        uuids = ",".join(device.uuid for device in devices)
        return {**inherited, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": uuids}
    ordinals = ",".join(str(_ordinal(device, gpu)) for device, gpu in amd_gpus(devices))
    other_variables = {
        name: value for name, value in inherited.items() if name not in ROCM_VARIABLES
    }
    return {**other_variables, "HIP_VISIBLE_DEVICES": ordinals, "CUDA_VISIBLE_DEVICES": ordinals}


def is_any_amd(devices: Sequence[DeviceGrant]) -> bool:
    """Return whether a real GPU of AMD is among them."""
    return any(not device.simulated and is_amd(device.name) for device in devices)


def amd_gpus(devices: Sequence[DeviceGrant]) -> list[tuple[DeviceGrant, AmdGpu]]:
    """Return what this host's kernel has for each of these GPUs of AMD. Raises GpuNotUsable."""
    gpus = _amd_gpus_of_host(AMD_DRIVER, KFD_NODES)
    pairs = []
    for device in devices:
        if device.simulated or not is_amd(device.name):
            raise GpuNotUsable(f"{device.name} ({device.uuid}) cannot be used beside a GPU of AMD")
        if device.index >= len(gpus):
            raise GpuNotUsable(
                f"GPU {device.index} ({device.name}) is not among the {len(gpus)} GPUs of "
                f"{AMD_DRIVER}; is the driver amdgpu loaded on this host?"
            )
        pairs.append((device, gpus[device.index]))
    return pairs


def amd_device_files(devices: Sequence[DeviceGrant]) -> tuple[str, ...]:
    """Return what a container opens to compute on these GPUs; nothing unless they are AMD's.

    ROCm numbers what it can open from 0, so that no variable is needed beside. Raises GpuNotUsable.
    """
    if not is_any_amd(devices):
        return ()
    files = ["/dev/kfd"]
    for device, gpu in amd_gpus(devices):
        _ordinal(device, gpu)
        files.append(f"/dev/dri/renderD{gpu.render_minor}")
    return tuple(files)


def _ordinal(device: DeviceGrant, gpu: AmdGpu) -> int:
    if gpu.ordinal is None:
        raise GpuNotUsable(
            f"GPU {device.index} ({device.name}) is unknown to ROCm ({KFD_NODES}): it computes "
            "nothing for HIP; `rocminfo` lists what does"
        )
    return gpu.ordinal


def _amd_gpus_of_host(driver: Path, kfd_nodes: Path) -> list[AmdGpu]:
    """Return the GPUs in the order of amd-smi, by PCI address, which is not always that of HIP.

    A partitioned GPU is as many as it has nodes in the kernel's topology.
    """
    nodes = _kfd_nodes(kfd_nodes)
    gpus: list[AmdGpu] = []
    for place in sorted({_place(path.name) for path in driver.glob("*:*:*.*")}):
        own_nodes = [(n, node) for n, node in enumerate(nodes) if node.place == place]
        gpus += [AmdGpu(n, node.render_minor) for n, node in own_nodes] or [AmdGpu(None, None)]
    return gpus


def _kfd_nodes(directory: Path) -> list[_KfdNode]:
    """Return the nodes that compute, in the order in which HIP numbers them."""
    nodes = []
    for path in sorted(directory.glob("*/properties"), key=lambda path: int(path.parent.name)):
        try:
            text = path.read_text()
        except OSError:
            continue  # one that this process may not use, which HIP leaves out as well
        values = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
        if int(values.get("simd_count", "0")) > 0:
            location = int(values["location_id"])  # bus, device and function, as PCI packs them
            place = (int(values.get("domain", "0")), location >> 8 & 0xFF, location >> 3 & 0x1F)
            nodes.append(_KfdNode(place, int(values["drm_render_minor"])))
    return nodes


def _place(address: str) -> tuple[int, int, int]:
    domain, bus, device = address.partition(".")[0].split(":")
    return int(domain, 16), int(bus, 16), int(device, 16)
