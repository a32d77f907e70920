"""The generator of clients: `python -m tests.support.generated_client.install` installs it."""

from pathlib import Path
from typing import Final

from tests.support.benchmark_tools import TEST_TOOLS
from tests.support.locked_environment import LockedEnvironment

GENERATOR: Final = LockedEnvironment(
    TEST_TOOLS / "openapi-python-client", Path(__file__).with_name("requirements.lock")
)

if __name__ == "__main__":
    GENERATOR.install()
