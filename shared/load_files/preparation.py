"""A benchmark's files: fetched before its engine starts, made once that can count tokens."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.task.benchmark import BenchmarkSpec
from schemas.task.dataset import DatasetUse
from schemas.task.trace import TraceUse
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.tools.adapter import NO_FILES, LoadFiles, Target
from shared.datasets.bounds import refusing_trace
from shared.load_files.places import FetchedFile, FilePlaces
from shared.load_files.prompts import prepare_prompts
from shared.load_files.traces import prepare_trace, read_trace_file
from shared.paths import make_directory


@dataclass(frozen=True, slots=True)
class FetchedFiles:
    """None: the benchmark has no such file."""

    dataset: FetchedFile | None = None
    trace: FetchedFile | None = None


NOTHING_FETCHED: Final = FetchedFiles()


@dataclass(frozen=True, slots=True)
class PreparedLoad:
    """What the tools send, and what it was taken of."""

    files: LoadFiles = NO_FILES
    dataset: DatasetUse | None = None
    trace: TraceUse | None = None


def check_files(spec: BenchmarkSpec, places: FilePlaces) -> None:
    """Raises DatasetRefused for a file that is not there, or a host that is not allowed."""
    if spec.dataset is not None:
        places.check(spec.dataset)
    if spec.trace is not None:
        with refusing_trace():
            places.check(spec.trace)


async def fetch_files(spec: BenchmarkSpec, places: FilePlaces) -> FetchedFiles:
    """Fetch what the load needs, and read a trace once, so that a bad one costs no start.

    Raises DatasetRefused.
    """
    dataset = trace = None
    if spec.dataset is not None:
        dataset = await places.fetch(spec.dataset)
    if spec.trace is not None:
        with refusing_trace():
            trace = await places.fetch(spec.trace)
            await asyncio.to_thread(read_trace_file, trace, spec.trace, spec)
    return FetchedFiles(dataset, trace)


async def prepare_files(
    spec: BenchmarkSpec, fetched: FetchedFiles, target: Target, directory: Path
) -> PreparedLoad:
    """Make the files of a load in the directory. Raises DatasetRefused."""
    if fetched == NOTHING_FETCHED:
        return PreparedLoad()
    make_directory(directory, 0o700)
    prompts = trace = None
    dataset_use = trace_use = None
    async with ChatServer(
        base_url=target.base_url,
        model_name=target.model_name,
        api_key=target.api_key,
        certificate=target.certificate,
    ) as server:
        if spec.dataset is not None and fetched.dataset is not None:
            prompts, dataset_use = await prepare_prompts(
                fetched.dataset, spec.dataset, server, directory
            )
        if spec.trace is not None and fetched.trace is not None:
            with refusing_trace():
                trace, trace_use = await prepare_trace(
                    fetched.trace, spec.trace, spec, server, directory
                )
    return PreparedLoad(LoadFiles(prompts=prompts, trace=trace), dataset_use, trace_use)
