"""Patroni: `python -m tests.support.patroni.install` installs it."""

from pathlib import Path
from typing import Final

from tests.support.benchmark_tools import TEST_TOOLS
from tests.support.locked_environment import LockedEnvironment

PATRONI: Final = LockedEnvironment(
    TEST_TOOLS / "patroni", Path(__file__).with_name("requirements.lock")
)

if __name__ == "__main__":
    PATRONI.install()
