"""Runs a program of the host for one check."""

import asyncio
from collections.abc import Mapping, Sequence

from shared.processes.command import CommandOutput, run_command


def run_program(
    arguments: Sequence[str], timeout_seconds: float, environment: Mapping[str, str] | None = None
) -> CommandOutput:
    """Return both streams in the order of writing. Never raises."""
    return asyncio.run(
        run_command(
            arguments,
            deadline_seconds=timeout_seconds,
            environment=environment,
            merge_streams=True,
        )
    )
