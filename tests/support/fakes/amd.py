"""Programs in place of amd-smi and rocm-smi, with the shapes that their releases write."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final


def value(number: float, unit: str) -> dict[str, Any]:
    """As releases from 6.2 on write a measurement."""
    return {"value": number, "unit": unit}


LIST: Final = [
    {"gpu": 0, "bdf": "0000:05:00.0", "uuid": "7eff74a0-0000-1000-808f-000000000000"},
    {"gpu": 1, "bdf": "0000:26:00.0", "uuid": "7eff74a0-0000-1000-808f-000000000001"},
]
STATIC: Final = [
    {
        "gpu": index,
        "asic": {"market_name": "AMD Instinct MI300X", "asic_serial": f"0x{index}ABC"},
        "bus": {
            "bdf": entry["bdf"],
            "max_pcie_width": 16,
            "max_pcie_speed": value(32, "GT/s"),
        },
        "board": {"product_serial": "N/A"},
        "limit": {
            "max_power": value(750, "W"),
            "min_power": value(0, "W"),
            "socket_power": value(650, "W"),
        },
        "driver": {"name": "amdgpu", "version": "6.10.5"},
        "vram": {"type": "HBM", "size": value(196592, "MB")},
        "numa": {"node": index, "affinity": "0-47"},
    }
    for index, entry in enumerate(LIST)
]
METRIC: Final = [
    {
        "gpu": index,
        "usage": {
            "gfx_activity": value(73, "%"),
            "umc_activity": value(12, "%"),
            "mm_activity": "N/A",
            "vcn_activity": [value(0, "%"), "N/A"],
        },
        "power": {
            "socket_power": value(142, "W"),
            "gfx_voltage": "N/A",
            "throttle_status": "UNTHROTTLED",
        },
        "clock": {
            "gfx_0": {"clk": value(2100, "MHz"), "min_clk": value(500, "MHz")},
            "mem_0": {"clk": value(1300, "MHz")},
        },
        "temperature": {"edge": "N/A", "hotspot": value(61, "C"), "mem": value(58, "C")},
        "pcie": {"width": 16, "speed": value(32, "GT/s"), "replay_count": 0},
        "ecc": {"total_correctable_count": 4, "total_uncorrectable_count": 0},
        "fan": {"speed": "N/A", "max": "N/A", "rpm": "N/A", "usage": "N/A"},
        "energy": {"total_energy_consumption": value(1234.5, "J")},
        "mem_usage": {
            "total_vram": value(196592, "MB"),
            "used_vram": value(49148, "MB"),
            "free_vram": value(147444, "MB"),
        },
    }
    for index in range(2)
]
PROCESS: Final = [
    {
        "gpu": 0,
        "process_list": [
            {
                "process_info": {
                    "name": "serve",
                    "pid": 0,
                    "memory_usage": {"gtt_mem": value(0, "B"), "vram_mem": value(1 << 30, "B")},
                }
            }
        ],
    },
    {"gpu": 1, "process_list": [{"process_info": "No running processes detected"}]},
]
ROCM: Final = {
    "card0": {
        "Unique ID": "0x1234567890abcdef",
        "Card series": "Instinct MI210",
        "PCI Bus": "0000:03:00.0",
        "Serial Number": "PCB01",
        "Temperature (Sensor edge) (C)": "45.0",
        "Average Graphics Package Power (W)": "120.0",
        "Max Graphics Package Power (W)": "300.0",
        "GPU use (%)": "62",
        "GPU Memory Allocated (VRAM%)": "40",
        "VRAM Total Memory (B)": "68702699520",
        "VRAM Total Used Memory (B)": "27481079808",
        "Fan speed (%)": "Unable to detect fan speed",
        "sclk clock speed:": "(1500Mhz)",
        "mclk clock speed:": "(1600Mhz)",
    },
    "system": {"Driver version": "6.7.0"},
}


class FakeAmd:
    """amd-smi, unless only rocm-smi is there; what they print changes with the next run."""

    def __init__(self, directory: Path, *, rocm_only: bool = False) -> None:
        self._directory = directory
        self.amd_smi_path = str(directory / "amd-smi")
        self.rocm_smi_path = str(directory / "rocm-smi")
        if rocm_only:
            self.behave(f"cat <<'END'\n{json.dumps(ROCM)}\nEND", program="rocm-smi")
        else:
            self.answer()

    def answer(self, **documents: Any) -> None:
        """Print these for `list`, `static`, `metric` and `process`."""
        told: Mapping[str, Any] = {
            "list": LIST,
            "static": STATIC,
            "metric": METRIC,
            "process": PROCESS,
            **documents,
        }
        cases = "\n".join(
            f"{name}) cat <<'END'\n{json.dumps(document)}\nEND\n;;"
            for name, document in told.items()
        )
        self.behave(f'echo "WARNING: not in group [render]"\ncase "$1" in\n{cases}\nesac')

    def behave(self, body: str, program: str = "amd-smi") -> None:
        """Be this shell script."""
        temporary = self._directory / f".{program}.new"
        temporary.write_text(f"#!/bin/sh\n{body}\n")
        temporary.chmod(0o755)
        temporary.rename(self._directory / program)
