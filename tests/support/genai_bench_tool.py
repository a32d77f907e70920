"""The genai-bench that tests use: installed once, outside the repository and any data directory."""

import os
from pathlib import Path

import psutil
import pytest

from shared.benchmarks.genai_bench.installation import (
    PROGRAM_VARIABLE,
    TOOLS_VARIABLE,
    Environment,
)

# Taken out of the environment: a test that does not ask for the tool gets the same load generator
# on every host, whether it is installed or not.
_CHOSEN = os.environ.pop(TOOLS_VARIABLE, None)
os.environ.pop(PROGRAM_VARIABLE, None)
TEST_TOOLS = Path(_CHOSEN or Path.home() / ".cache" / "gpusteward-test-tools")


def require_genai_bench(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the platform find it; skip the test, saying what to do, where it is not installed."""
    if not Environment(TEST_TOOLS).is_current():
        pytest.skip(
            f"needs genai-bench: {TOOLS_VARIABLE}={TEST_TOOLS} .venv/bin/gpusteward bench install"
        )
    monkeypatch.setenv(TOOLS_VARIABLE, str(TEST_TOOLS))
    return Environment(TEST_TOOLS).program


def processes_of(directory: Path) -> list[psutil.Process]:
    """Processes that were started with this directory in their arguments."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and str(directory) in " ".join(process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found
