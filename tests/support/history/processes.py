"""A process under test that is killed, stopped and started again."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from shared.lifecycle import READY_FILE_VARIABLE, dying_with_parent
from shared.testing import eventually
from tests.support.paths import ROOT


@dataclass(slots=True)
class Victim:
    """`python -m <module>`; dies with the test that started it."""

    name: str
    module: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    directory: Path
    is_stopped: bool = False
    _process: "subprocess.Popen[bytes] | None" = None

    async def start(self, *, within_seconds: float = 60.0) -> None:
        """Start it, again where it ends by itself as a supervisor does, until it answers."""

        def is_ready() -> bool:
            if self._process is None or self._process.poll() is not None:
                self.launch()
            return self.is_ready()

        try:
            await eventually(is_ready, within_seconds=within_seconds, what=f"{self.name} ready")
        except AssertionError as error:
            error.add_note(self.log_tail())
            raise

    def launch(self) -> None:
        """Start it."""
        self._ready_file.unlink(missing_ok=True)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("GPUSTEWARD_")}
        with (self.directory / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module, *self.arguments],
                cwd=ROOT,
                env={
                    **inherited,
                    **self.environment,
                    READY_FILE_VARIABLE: str(self._ready_file),
                },
                stdout=log,
                stderr=log,
                preexec_fn=dying_with_parent(),
            )

    def is_ready(self) -> bool:
        return self.is_running and self._ready_file.exists()

    @property
    def is_running(self) -> bool:
        """Alive and not stopped."""
        alive = self._process is not None and self._process.poll() is None
        return alive and not self.is_stopped

    def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.is_stopped = False

    def pause(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            self.is_stopped = True

    def resume(self) -> None:
        if self._process is not None and self.is_stopped:
            self._process.send_signal(signal.SIGCONT)
            self.is_stopped = False

    def log_tail(self) -> str:
        path = self.directory / f"{self.name}.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    @property
    def _ready_file(self) -> Path:
        return self.directory / f"{self.name}.ready"
