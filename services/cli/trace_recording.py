"""`bench record-trace`: a trace out of an engine's log."""

import sys
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from schemas.errors import ErrorCode
from services.cli.failures import CommandFailed
from shared.datasets.bounds import DatasetRefused
from shared.datasets.pieces import decode, split_lines, unpack
from shared.engines.table import PROFILES
from shared.load_files.places import FetchedFile
from shared.traces.recording import list_log_engines, record, trace_lines


def record_log(log: Path, engine: str | None, block_tokens: int, output: Path | None) -> None:
    """Write the trace of a log, and say what it has."""
    if engine is not None and engine not in list_log_engines():
        names = ", ".join(list_log_engines())
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"expected one of {names}, got {engine!r}")
    file = FetchedFile(log, log.name, "")
    try:
        lines = split_lines(decode(unpack(file.read_chunks())))
        recording = record(lines, block_tokens, engine)
    except DatasetRefused as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, error.message) from error
    try:
        with nullcontext(sys.stdout.buffer) if output is None else output.open("wb") as target:
            _write(target, trace_lines(recording))
    except OSError as error:
        raise CommandFailed(
            ErrorCode.BAD_REQUEST, f"expected a file to write, {output}: {error.strerror}"
        ) from error
    requests = recording.requests
    seconds = requests[-1].at_seconds - requests[0].at_seconds
    click.echo(
        f"{len(requests)} requests of {PROFILES[recording.engine].title} in {seconds:.1f} s",
        err=True,
    )
    if recording.estimated_answers:
        click.echo(
            f"of {recording.estimated_answers} the log says no length of the answer: it is the "
            "most that was asked for",
            err=True,
        )
    for reason, count in recording.skipped.items():
        if count:
            click.echo(f"left out: {count} {reason}", err=True)


def _write(target: BinaryIO, lines: Iterable[Mapping[str, Any]]) -> None:
    target.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
    target.flush()
