"""Which AIPerf is driven here."""

from pathlib import Path
from typing import Final

from shared.benchmarks.tools.environment import Tool

AIPERF: Final = Tool(
    name="aiperf",
    version="0.13.0",
    lock_path=Path(__file__).with_name("requirements.lock"),
    variable="GPUSTEWARD_AIPERF",
    pythons=((3, 11), (3, 14)),
    install_hint="`gpusteward bench install aiperf` installs it",
)
