"""Which genai-bench is driven here."""

from pathlib import Path
from typing import Final

from shared.benchmarks.tools.environment import Tool

GENAI_BENCH: Final = Tool(
    name="genai-bench",
    version="0.0.5",
    lock_path=Path(__file__).with_name("requirements.lock"),
    variable="GPUSTEWARD_GENAI_BENCH",
    pythons=((3, 10), (3, 13)),
    install_hint="`gpusteward bench install` installs it",
)
