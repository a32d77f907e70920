"""Where a tool that is no part of the platform is installed: in an environment of its own."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from shared.paths import read_lock, tools_directory

PythonVersion = tuple[int, int]


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Written into an environment when everything in it is installed and has run once."""

    version: str
    lock_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What is installed under `name`, which is its program's as well.

    It runs on Pythons from the first of `pythons` on, before the second. `variable` may name
    another program, and `install_hint` says how to install this one. With `version_argument` the
    program says its version.
    """

    name: str
    version: str
    lock_path: Path
    variable: str
    pythons: tuple[PythonVersion, PythonVersion]
    install_hint: str
    version_argument: str = "--version"

    def find_program(self, environ: Mapping[str, str] = os.environ) -> Path | None:
        """The program to run: the one that the variable names, else our own installation."""
        if program := environ.get(self.variable):
            path = Path(program)
            return path if os.access(path, os.X_OK) and path.is_file() else None
        environment = Environment(self, tools_directory(environ))
        return environment.program if environment.is_current() else None

    def what_is_missing(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """Say why there is no program to run, with the next step; None if there is one."""
        if self.find_program(environ) is not None:
            return None
        if path := environ.get(self.variable):
            return f"{self.variable} names {path}, which is no program that can be run"
        environment = Environment(self, tools_directory(environ))
        if environment.receipt() is not None:
            return (
                f"{self.name} in {environment.root} is not the one of this release; "
                f"{self.install_hint} anew"
            )
        return f"{self.name} is not installed in {environment.root}; {self.install_hint}"


@dataclass(frozen=True, slots=True)
class Environment:
    """The virtual environment of a tool inside a directory of tools."""

    tool: Tool
    tools: Path

    @property
    def root(self) -> Path:
        return self.tools / self.tool.name

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def program(self) -> Path:
        return self.root / "bin" / self.tool.name

    @property
    def receipt_path(self) -> Path:
        return self.root / "installed.json"

    def receipt(self) -> Receipt | None:
        """Read the record of the installation; None if there is none, or an unfinished one."""
        try:
            return msgspec.json.decode(self.receipt_path.read_bytes(), type=Receipt)
        except (OSError, msgspec.DecodeError):
            return None

    def is_current(self) -> bool:
        """True if the version that this release requires is installed."""
        receipt = self.receipt()
        return (
            receipt is not None
            and receipt.lock_digest == lock_digest(self.tool.lock_path)
            and os.access(self.program, os.X_OK)
        )


@cache
def lock_digest(lock_path: Path) -> str:
    """The digest of the packages that this release asks for."""
    return hashlib.sha256(read_lock(lock_path)).hexdigest()
