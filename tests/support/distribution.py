"""Wheel and source archive of this checkout, and environments with what a user installs of them."""

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.benchmarks.tools.install import find_uv
from tests.support.paths import ROOT

BUILD_SECONDS: Final = 120
INSTALL_SECONDS: Final = 600
COMMAND_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Distribution:
    wheel: Path
    source_archive: Path


def missing() -> str | None:
    """Return what a build would need; None where all is there."""
    if not (ROOT / "services/gateway/web/dist/index.html.gz").is_file():
        return "needs the built page: make web"
    return None


def build_distribution(directory: Path, source: Path = ROOT) -> Distribution:
    """Build both as `make dist` does, of a built page that is there already."""
    _build(directory, source)
    (source_archive,) = directory.glob("*.tar.gz")
    return Distribution(_wheel_in(directory), source_archive)


def build_wheel(directory: Path, source: Path = ROOT) -> Path:
    """Build the wheel alone, as `make image` does, for half of the time."""
    _build(directory, source, "--target", "wheel")
    return _wheel_in(directory)


def _build(directory: Path, source: Path, *options: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(directory), *options],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=BUILD_SECONDS,
    )


def _wheel_in(directory: Path) -> Path:
    (wheel,) = directory.glob("*.whl")
    return wheel


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment that holds the wheel and nothing of the checkout."""

    root: Path

    @property
    def program(self) -> Path:
        return self.root / "bin" / "gpusteward"

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        (path,) = self.root.glob("lib/python*/site-packages")
        return path

    def size_bytes(self) -> int:
        """Return the size of all files that were installed."""
        paths = self.site_packages.rglob("*")
        return sum(path.lstat().st_size for path in paths if not path.is_dir())

    def packages(self) -> set[str]:
        return {
            path.name.partition("-")[0].lower() for path in self.site_packages.glob("*.dist-info")
        }

    def run(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        seconds: float = COMMAND_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, in a directory that holds nothing of ours."""
        return subprocess.run(
            [self.root / "bin" / arguments[0], *arguments[1:]],
            cwd=self.root,
            env={**plain_environment(), **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


def install(wheel: Path, extra: str | None, root: Path) -> Installed:
    """Install the wheel with the pinned packages into a new environment."""
    uv = find_uv()
    assert uv is not None, "make install brings uv"
    venv.create(root, with_pip=False, symlinks=True)
    environment = Installed(root)
    requirement = f"gpusteward[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    locks = ("requirements.lock", "requirements-demo.lock")
    constraints = [word for lock in locks for word in ("--constraint", str(ROOT / lock))]
    subprocess.run(
        [
            uv,
            "pip",
            "install",
            "--quiet",
            "--python",
            environment.python,
            *constraints,
            requirement,
        ],
        cwd=root,
        check=True,
        timeout=INSTALL_SECONDS,
    )
    return environment


def plain_environment() -> dict[str, str]:
    """Return the variables of this process without those that lead to a platform or to code."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GPUSTEWARD_") and name not in {"PYTHONPATH", "VIRTUAL_ENV"}
    }
