"""Which GPUs a process sees, by the variables and files of their vendor."""

from pathlib import Path
from typing import Any

import pytest

from schemas.gpus.device_grant import DeviceGrant
from shared import visible_devices
from shared.visible_devices import GpuNotUsable, amd_device_files, without_other_gpus

MI300X = "AMD Instinct MI300X"
INHERITED = {"PATH": "/bin", "ROCR_VISIBLE_DEVICES": "3", "GPU_DEVICE_ORDINAL": "3"}


def gpu(index: int, **overrides: Any) -> DeviceGrant:
    facts: dict[str, Any] = {"node_id": "n", "uuid": f"u{index}", "index": index, "name": MI300X}
    return DeviceGrant(**facts | overrides)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host on which HIP numbers the GPU of the higher address first, and one is for display."""
    driver, nodes = tmp_path / "amdgpu", tmp_path / "nodes"
    for address in ("0000:05:00.0", "0000:26:00.0", "0000:c6:00.0"):
        (driver / address).mkdir(parents=True)
    for number, simd, location, minor in [
        (0, 0, 0, 0),
        (1, 1216, 0x2600, 128),
        (2, 64, 0x500, 129),
    ]:
        (nodes / str(number)).mkdir(parents=True)
        (nodes / str(number) / "properties").write_text(
            f"simd_count {simd}\nlocation_id {location}\ndomain 0\ndrm_render_minor {minor}\n"
        )
    monkeypatch.setattr(visible_devices, "AMD_DRIVER", driver)
    monkeypatch.setattr(visible_devices, "KFD_NODES", nodes)
    return nodes


def test_nvidia_gpus_go_by_uuid() -> None:
    seen = without_other_gpus(INHERITED, [gpu(0, uuid="GPU-a", name="NVIDIA H100")])

    assert seen == {
        **INHERITED,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-a",
    }


@pytest.mark.usefixtures("host")
def test_gpus_of_amd_go_by_the_numbers_of_hip() -> None:
    seen = without_other_gpus(INHERITED, [gpu(0), gpu(1)])

    assert seen == {"PATH": "/bin", "HIP_VISIBLE_DEVICES": "1,0", "CUDA_VISIBLE_DEVICES": "1,0"}


@pytest.mark.usefixtures("host")
def test_container_opens_its_gpu_files_alone() -> None:
    assert amd_device_files([gpu(0)]) == ("/dev/kfd", "/dev/dri/renderD129")
    assert amd_device_files([gpu(0, name="NVIDIA H100")]) == ()
    assert amd_device_files([gpu(0, simulated=True)]) == ()


def test_each_partition_of_a_gpu_is_one_of_its_own(host: Path) -> None:
    (host / "3").mkdir()
    (host / "3" / "properties").write_text(
        "simd_count 64\nlocation_id 1281\ndomain 0\ndrm_render_minor 130\n"
    )

    assert amd_device_files([gpu(1)]) == ("/dev/kfd", "/dev/dri/renderD130")
    assert amd_device_files([gpu(2)]) == ("/dev/kfd", "/dev/dri/renderD128")


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("devices", "says"),
    [
        pytest.param([gpu(2)], "unknown to ROCm", id="one that computes nothing"),
        pytest.param([gpu(3)], "not among the 3 GPUs", id="one that the kernel has not"),
        pytest.param([gpu(0), gpu(1, name="NVIDIA H100")], "beside a GPU of AMD", id="two vendors"),
    ],
)
def test_what_cannot_be_named_is_refused(devices: list[DeviceGrant], says: str) -> None:
    with pytest.raises(GpuNotUsable, match=says):
        without_other_gpus(INHERITED, devices)
