"""The NVIDIA driver of this host, which tests do not find unless they ask for it here.

They say which GPUs there are, on a host with GPUs as on one without.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

_LIBRARIES: Final = "LD_LIBRARY_PATH"
# An empty file in the place of the library: loading it fails as if there were none.
_NO_DRIVER: Final = str(Path(__file__).parent / "fakes" / "no_driver")
_FOUND: Final = [
    each
    for each in os.environ.get(_LIBRARIES, "").split(os.pathsep)
    if each not in {"", _NO_DRIVER}
]
_ENVIRON: Final = {**os.environ, _LIBRARIES: os.pathsep.join(_FOUND)}
_SMI: Final = shutil.which("nvidia-smi")
ANSWER_TIMEOUT_SECONDS: Final = 60

os.environ[_LIBRARIES] = os.pathsep.join([_NO_DRIVER, *_FOUND])
if _SMI is not None:
    os.environ["GPUSTEWARD_TELEMETRY_SMI_PATH"] = "nvidia-smi-of-no-driver"


@dataclass(frozen=True)
class HostDriver:
    """`environ` has the library where the host has it; `nvidia_smi` is run with that."""

    gpus: int
    nvidia_smi: str
    environ: Mapping[str, str]


@cache
def find_host_driver() -> HostDriver | str:
    """The driver of this host, or why it cannot be used."""
    if _SMI is None:
        return "no nvidia-smi on PATH"
    command = [_SMI, "--list-gpus"]
    try:
        listed = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_TIMEOUT_SECONDS, env=_ENVIRON
        )
    except subprocess.TimeoutExpired:
        return f"{_SMI} did not answer within {ANSWER_TIMEOUT_SECONDS} s"
    if listed.returncode != 0:
        return f"{_SMI} said {listed.stdout.strip()}"
    return HostDriver(listed.stdout.count("(UUID: GPU-"), _SMI, _ENVIRON)


def require_host_driver() -> HostDriver:
    """Skip the test where there is none."""
    driver = find_host_driver()
    if isinstance(driver, str):
        pytest.skip(f"needs an NVIDIA driver: {driver}")
    return driver
