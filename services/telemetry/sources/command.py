"""Runs a vendor's program for one answer."""

import shutil

from services.telemetry.sources.source import ProbeHungError, SourceFailedError
from shared.processes.command import CommandOutput, run_command


class AdaptiveDeadline:
    """How long a run may take: the deadline, or twice the fastest run so far if that is more.

    On a host that loads its driver for every run, each one is slow, which is not a hang. During the
    warm-up, when a driver may be loaded for good, it is `warm_up_seconds`.
    """

    def __init__(self, deadline_seconds: float, *, warm_up_seconds: float) -> None:
        self._deadline_seconds = deadline_seconds
        self._fastest_seconds = warm_up_seconds
        self.seconds = warm_up_seconds

    def record_run(self, seconds: float) -> None:
        """The duration of a run that read the devices."""
        self._fastest_seconds = min(self._fastest_seconds, seconds)

    def end_warm_up(self) -> None:
        """End the warm-up: from now on the deadline follows from the recorded runs."""
        self.seconds = max(self._deadline_seconds, 2 * self._fastest_seconds)


def is_installed(path: str) -> bool:
    """Return True if there is such a program, on PATH or at this place."""
    return shutil.which(path) is not None


async def run_program(path: str, *arguments: str, deadline_seconds: float) -> CommandOutput:
    """A run that ended by itself, with any exit code.

    Raises SourceFailedError if it does not start or writes without end, ProbeHungError after the
    deadline.
    """
    output = await run_command((path, *arguments), deadline_seconds=deadline_seconds)
    if output.timed_out:
        raise ProbeHungError(f"expected {path} to end within {deadline_seconds:g} s, it did not")
    if output.failure:
        raise SourceFailedError(f"{path}: {output.failure}")
    return output
