"""Installs the generator once, outside the repository: `python -m
tests.support.generated_client.install`. One that is there from the same lock file stays.
"""

import subprocess
import sys
from pathlib import Path

from tests.support.benchmark_tools import TEST_TOOLS

LOCK = Path(__file__).with_name("requirements.lock")
ENVIRONMENT = TEST_TOOLS / "openapi-python-client"
PYTHON = ENVIRONMENT / "bin" / "python"
GENERATOR = ENVIRONMENT / "bin" / "openapi-python-client"
_INSTALLED = ENVIRONMENT / "requirements.lock"


def is_current() -> bool:
    return _INSTALLED.is_file() and _INSTALLED.read_bytes() == LOCK.read_bytes()


def main() -> None:
    """Raises CalledProcessError."""
    if is_current():
        return
    uv = [str(Path(sys.executable).with_name("uv"))]
    subprocess.run([*uv, "venv", "--quiet", "--clear", ENVIRONMENT], check=True)
    install = ["pip", "install", "--quiet", "--python", str(PYTHON), "--require-hashes"]
    subprocess.run([*uv, *install, "-r", str(LOCK)], check=True)
    _INSTALLED.write_bytes(LOCK.read_bytes())


if __name__ == "__main__":
    main()
