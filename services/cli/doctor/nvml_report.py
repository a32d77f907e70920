"""What NVML says, asked by a process that may hang."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from services.cli.doctor.program import run_program

_PROBE: Final = Path(__file__).with_name("nvml_probe.py")


class NvmlGpu(Struct, frozen=True, kw_only=True):
    """None is what the driver does not report; `error` that this GPU does not answer."""

    index: int
    name: str | None = None
    memory_mb: int | None = None
    persistence: int | None = None
    mig: int | None = None
    error: str | None = None


class NvmlReport(Struct, frozen=True, kw_only=True):
    """`cuda` is the newest CUDA that the driver serves, as 12040 for 12.4."""

    error: str | None = None
    driver: str | None = None
    cuda: int | None = None
    gpus: tuple[NvmlGpu, ...] = ()
    is_hung: bool = False

    @property
    def cuda_text(self) -> str:
        return f"{self.cuda // 1000}.{self.cuda % 1000 // 10}" if self.cuda else "unknown"


def ask_nvml(timeout_seconds: float, environment: Mapping[str, str]) -> NvmlReport:
    """Never raises; what could not be asked is an `error`."""
    # Without -P the directory of the program would come first where it looks for modules.
    output = run_program([sys.executable, "-P", str(_PROBE)], timeout_seconds, environment)
    if output.exit_code != 0:
        return NvmlReport(error=output.summary, is_hung=output.exit_code is None)
    try:
        return msgspec.json.decode(output.stdout, type=NvmlReport)
    except msgspec.DecodeError:
        return NvmlReport(error=f"expected JSON of our NVML process, got {output.summary}")
