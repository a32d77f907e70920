"""Programs that tests start in an environment of their own, outside the repository."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LockedEnvironment:
    """An environment below `root` with the packages of `lock`; one from the same file stays."""

    root: Path
    lock: Path

    @property
    def python(self) -> Path:
        return self.program("python")

    def program(self, name: str) -> Path:
        return self.root / "bin" / name

    def is_current(self) -> bool:
        installed = self._installed_lock
        return installed.is_file() and installed.read_bytes() == self.lock.read_bytes()

    def install(self) -> None:
        """Install it unless it is current. Raises CalledProcessError."""
        if self.is_current():
            return
        uv = [str(Path(sys.executable).with_name("uv"))]
        subprocess.run([*uv, "venv", "--quiet", "--clear", self.root], check=True)
        options = ["pip", "install", "--quiet", "--python", str(self.python), "--require-hashes"]
        subprocess.run([*uv, *options, "-r", str(self.lock)], check=True)
        self._installed_lock.write_bytes(self.lock.read_bytes())

    @property
    def _installed_lock(self) -> Path:
        return self.root / "requirements.lock"
