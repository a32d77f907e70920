"""The tools that tests use: installed once, outside the repository and any data directory."""

import os
from pathlib import Path

import psutil
import pytest

from shared.benchmarks.aiconfigurator.installation import AICONFIGURATOR
from shared.benchmarks.aiperf.installation import AIPERF
from shared.benchmarks.genai_bench.installation import GENAI_BENCH
from shared.benchmarks.tools.environment import Environment, Tool
from shared.paths import TOOLS_VARIABLE

# Taken out of the environment: a test that does not ask for the tool gets the same load generator
# on every host, whether it is installed or not.
_CHOSEN = os.environ.pop(TOOLS_VARIABLE, None)
for _tool in (GENAI_BENCH, AIPERF, AICONFIGURATOR):
    os.environ.pop(_tool.variable, None)
TEST_TOOLS = Path(_CHOSEN or Path.home() / ".cache" / "gpusteward-test-tools")


def require_tool(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the platform find it; skip the test, saying what to do, where it is not installed."""
    environment = Environment(tool, TEST_TOOLS)
    if not environment.is_current():
        command = f"{TOOLS_VARIABLE}={TEST_TOOLS} .venv/bin/gpusteward bench install {tool.name}"
        pytest.skip(f"needs {tool.name}: {command}")
    monkeypatch.setenv(TOOLS_VARIABLE, str(TEST_TOOLS))
    return environment.program


def require_genai_bench(monkeypatch: pytest.MonkeyPatch) -> Path:
    return require_tool(GENAI_BENCH, monkeypatch)


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
