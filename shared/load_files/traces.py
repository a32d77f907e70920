"""The part of a trace that a benchmark sends, in words of the engine that is measured."""

import asyncio
import random
from pathlib import Path
from typing import Final

from schemas.task.benchmark import BenchmarkSpec
from schemas.task.dataset import LengthUnit
from schemas.task.trace import TraceSpec, TraceUse
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.traced import TRACE_NAME, TraceForm, write_trace
from shared.benchmarks.traffic import make_prompt
from shared.datasets.bounds import DatasetRefused
from shared.datasets.pieces import decode, unpack
from shared.load_files.places import FetchedFile
from shared.traces.lines import read_lines
from shared.traces.sessions import Trace, take_sessions

_SAMPLE_WORDS: Final = 2000


def read_trace_file(fetched: FetchedFile, spec: TraceSpec, benchmark: BenchmarkSpec) -> Trace:
    """Read what a level may send of the trace. Raises DatasetRefused."""
    texts = decode(unpack(fetched.read_chunks()))
    most = benchmark.warmup_requests + benchmark.max_requests_per_level
    # More are sent so that the last measured one meets the load, too.
    most += max(benchmark.num_concurrency, default=1)
    trace = take_sessions(read_lines(texts, spec.block_tokens), spec, most)
    if benchmark.arrivals and not trace.has_times:
        raise DatasetRefused(
            "expected a timestamp in the first line of each session, as requests are to be sent at "
            "their times: leave out benchmark.arrivals, or give the trace its times"
        )
    return trace


async def prepare_trace(
    fetched: FetchedFile,
    spec: TraceSpec,
    benchmark: BenchmarkSpec,
    server: ChatServer,
    directory: Path,
) -> tuple[Path, TraceUse]:
    """Write the trace's sessions into the directory. Raises DatasetRefused."""
    trace = await asyncio.to_thread(read_trace_file, fetched, spec, benchmark)
    words = make_prompt(_SAMPLE_WORDS, random.Random(0))  # noqa: S311  # no secret
    num_tokens = await server.count_tokens(words)
    tokens_per_word = (num_tokens or _SAMPLE_WORDS) / _SAMPLE_WORDS
    path = directory / TRACE_NAME
    form = TraceForm(block_tokens=spec.block_tokens, tokens_per_word=tokens_per_word)
    await asyncio.to_thread(write_trace, path, form, trace.sessions)
    mean_input_tokens, mean_output_tokens = trace.mean_tokens()
    return path, TraceUse(
        sha256=fetched.sha256,
        requests=trace.requests,
        used=sum(len(session.turns) for session in trace.sessions),
        sessions=len(trace.sessions),
        too_long=trace.too_long,
        seconds=trace.seconds,
        prefix_share=trace.prefix_share,
        mean_input_tokens=mean_input_tokens,
        mean_output_tokens=mean_output_tokens,
        tokens_per_word=tokens_per_word,
        length_unit=LengthUnit.WORDS if num_tokens is None else LengthUnit.ENGINE_TOKENS,
    )
