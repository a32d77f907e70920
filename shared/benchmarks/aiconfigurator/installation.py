"""Which AIConfigurator is asked here."""

from pathlib import Path
from typing import Final

from shared.benchmarks.tools.environment import Tool

AICONFIGURATOR: Final = Tool(
    name="aiconfigurator",
    version="0.12.0",
    lock_path=Path(__file__).with_name("requirements.lock"),
    variable="GPUSTEWARD_AICONFIGURATOR",
    pythons=((3, 11), (3, 14)),
    install_hint="`gpusteward bench install aiconfigurator` installs it",
    version_argument="version",
)
