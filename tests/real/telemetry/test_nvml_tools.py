"""nvitop and gpustat on the same fake driver: what they read and what we read is the same.

Each runs in a process of its own: importing gpustat changes nvidia-ml-py for the whole process.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from schemas.telemetry.readings import DeviceFacts, GpuReading
from services.telemetry.sources.nvml.source import NvmlSource
from tests.support.fakes.nvml import MEBIBYTE, FakeNvml

NVITOP = """
import json, nvitop
print(json.dumps([
    {
        "uuid": device.uuid(), "index": device.index, "name": device.name(),
        "bus_id": device.bus_id(), "serial": device.serial(),
        "capability": device.cuda_compute_capability(), "mig": device.mig_mode(),
        "gpu": device.gpu_utilization(), "memory": device.memory_utilization(),
        "encoder": device.encoder_utilization(), "decoder": device.decoder_utilization(),
        "total": device.memory_total(), "used": device.memory_used(), "free": device.memory_free(),
        "celsius": device.temperature(), "fan": device.fan_speed(),
        "draw_mw": device.power_usage(), "limit_mw": device.power_limit(),
        "sm": device.sm_clock(), "memory_clock": device.memory_clock(),
        "state": device.performance_state(),
        "uncorrected": device.total_volatile_uncorrected_ecc_errors(),
        "processes": {
            process.pid: [process.gpu_memory(), process.name()]
            for process in device.processes().values()
        },
    }
    for device in nvitop.Device.all()
]))
"""


@pytest.mark.long
async def test_nvitop_and_gpustat_read_what_we_read(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=2)
    second = fake.device(1)
    second.utilization, second.temperature, second.power_mw = 97, 71, 512_000
    second.used, second.free = 60_000 * MEBIBYTE, 21_059 * MEBIBYTE
    second.performance_state, second.fan, second.uncorrected = 2, 55, 0
    fake.run(1, os.getpid(), 4096)
    source = NvmlSource(deadline_seconds=5, open_deadline_seconds=10, environ=fake.environ)
    await source.open()
    try:
        devices = (await source.inventory()).devices
        readings = (await source.read()).gpus
    finally:
        await source.close()

    nvitop, gpustat = await asyncio.gather(
        printed(fake, "-c", NVITOP), printed(fake, "-m", "gpustat", "--json")
    )

    ours = [as_nvitop(facts, gpu) for facts, gpu in zip(devices, readings, strict=True)]
    assert ours == nvitop
    assert [as_gpustat(gpu) for gpu in readings] == [
        {name: gpu[name] for name in as_gpustat(readings[0])} for gpu in gpustat["gpus"]
    ]
    assert [
        [(process["pid"], process["gpu_memory_usage"]) for process in gpu["processes"]]
        for gpu in gpustat["gpus"]
    ] == [[(found.pid, found.memory_used_mb) for found in gpu.processes or ()] for gpu in readings]


def as_nvitop(facts: DeviceFacts, gpu: GpuReading) -> dict[str, Any]:
    """Our reading in nvitop's names and units."""
    assert gpu.power_draw_w is not None
    assert gpu.power_limit_w is not None
    assert facts.compute_capability is not None
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "name": gpu.name,
        "bus_id": facts.pci_bus_id,
        "serial": facts.serial,
        "capability": [int(part) for part in facts.compute_capability.split(".")],
        "mig": "Enabled" if facts.mig_enabled else "Disabled",
        "gpu": gpu.utilization_percent,
        "memory": gpu.memory_utilization_percent,
        "encoder": gpu.encoder_percent,
        "decoder": gpu.decoder_percent,
        "total": (gpu.memory_total_mb or 0) * MEBIBYTE,
        "used": (gpu.memory_used_mb or 0) * MEBIBYTE,
        "free": (gpu.memory_free_mb or 0) * MEBIBYTE,
        "celsius": gpu.temperature_c,
        "fan": gpu.fan_percent,
        "draw_mw": round(gpu.power_draw_w * 1000),
        "limit_mw": round(gpu.power_limit_w * 1000),
        "sm": gpu.sm_clock_mhz,
        "memory_clock": gpu.memory_clock_mhz,
        "state": f"P{gpu.performance_state}",
        "uncorrected": gpu.ecc_uncorrected,
        "processes": {
            str(found.pid): [(found.memory_used_mb or 0) * MEBIBYTE, found.name]
            for found in gpu.processes or ()
        },
    }


def as_gpustat(gpu: GpuReading) -> dict[str, Any]:
    """Our reading in gpustat's names and units; it rounds watts down."""
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "temperature.gpu": gpu.temperature_c,
        "fan.speed": gpu.fan_percent,
        "utilization.gpu": gpu.utilization_percent,
        "utilization.enc": gpu.encoder_percent,
        "utilization.dec": gpu.decoder_percent,
        "power.draw": int(gpu.power_draw_w or 0),
        "enforced.power.limit": int(gpu.power_limit_w or 0),
        "memory.used": gpu.memory_used_mb,
        "memory.total": gpu.memory_total_mb,
    }


async def printed(fake: FakeNvml, *arguments: str) -> Any:
    """What a Python program prints as JSON on the fake's GPUs."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, env=fake.environ
    )
    output, _ = await program.communicate()
    return json.loads(output)
