"""Where genai-bench is installed: in an environment of its own, never in ours."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from shared.paths import default_data_dir

VERSION: Final = "0.0.5"
PROGRAM_VARIABLE: Final = "GPUSTEWARD_GENAI_BENCH"
TOOLS_VARIABLE: Final = "GPUSTEWARD_TOOLS_DIR"
LOCK_PATH: Final = Path(__file__).with_name("requirements.lock")
INSTALL_HINT: Final = "`gpusteward bench install` installs it"


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Written into an environment when everything in it is installed and has run once."""

    version: str
    lock_digest: str


@dataclass(frozen=True, slots=True)
class Environment:
    """The virtual environment inside a directory of tools."""

    tools: Path

    @property
    def root(self) -> Path:
        return self.tools / "genai-bench"

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def program(self) -> Path:
        return self.root / "bin" / "genai-bench"

    @property
    def receipt_path(self) -> Path:
        return self.root / "installed.json"

    def receipt(self) -> Receipt | None:
        """None if nothing is installed, or not to its end."""
        try:
            return msgspec.json.decode(self.receipt_path.read_bytes(), type=Receipt)
        except (OSError, msgspec.DecodeError):
            return None

    def is_current(self) -> bool:
        """Whether what this release asks for is installed."""
        receipt = self.receipt()
        return (
            receipt is not None
            and receipt.lock_digest == lock_digest()
            and os.access(self.program, os.X_OK)
        )


@cache
def lock_digest() -> str:
    """The digest of the packages that this release asks for."""
    return hashlib.sha256(LOCK_PATH.read_bytes()).hexdigest()


def tools_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """GPUSTEWARD_TOOLS_DIR, else `tools` in the data directory."""
    chosen = environ.get(TOOLS_VARIABLE)
    return Path(chosen).absolute() if chosen else default_data_dir(environ) / "tools"


def installed_program(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The program to run: the one that GPUSTEWARD_GENAI_BENCH names, else our own installation."""
    if chosen := environ.get(PROGRAM_VARIABLE):
        path = Path(chosen)
        return path if os.access(path, os.X_OK) and path.is_file() else None
    environment = Environment(tools_directory(environ))
    return environment.program if environment.is_current() else None


def what_is_missing(environ: Mapping[str, str] = os.environ) -> str | None:
    """Why there is no program to run, with the next step; None if there is one."""
    if installed_program(environ) is not None:
        return None
    if chosen := environ.get(PROGRAM_VARIABLE):
        return f"{PROGRAM_VARIABLE} names {chosen}, which is no program that can be run"
    environment = Environment(tools_directory(environ))
    if environment.receipt() is not None:
        return (
            f"genai-bench in {environment.root} is not the one of this release; {INSTALL_HINT} anew"
        )
    return f"genai-bench is not installed in {environment.root}; {INSTALL_HINT}"
