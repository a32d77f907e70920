"""How fast datasets are read, how true traces are sent, how alike three tools measure.

`make bench NAME=loads`, about three minutes. It reports and never fails a test. Needs genai-bench
and AIPerf. The last line is one JSON object: `dataset_prompts_per_s` (rows of ShareGPT in gzip that
are unpacked, read, deduplicated and drawn from, by one processor; `dataset_peak_mb` beside it),
`realised_prefix_error_points` (the largest difference between the share of a trace's tokens that
came before in it and that of the prompts which arrived at the engine, of all traces and tools; each
in `traces`), `three_tools_ttft_spread_percent` (the largest less the smallest median time to the
first token of the three tools, of the engine's true one), and `load_mean` of the machine.
`kept_up_gpu_seconds_over_restart` is of made-up studies over the decisions alone, with engines kept
up between runs over without (`kept_engines.py`), beside how often the verdict was equal.
`LOADS_TRACE=FILE` adds the first requests of a trace of yours, `LOADS_REQUESTS` (200) of them.
"""

import asyncio
import gzip
import itertools
import json
import os
import random
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import aiohttp

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool, LevelResult
from schemas.task.dataset import DatasetSpec
from schemas.task.trace import TraceSpec
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.tools.present import ADAPTERS, run_benchmark
from shared.datasets.hosts import AllowedHosts
from shared.datasets.pieces import decode, unpack
from shared.datasets.rows import read_rows
from shared.datasets.selection import draw_candidates
from shared.load_files.places import own_places
from shared.load_files.preparation import fetch_files, prepare_files
from shared.paths import TOOLS_VARIABLE
from shared.words import WORDS
from tests.benchmarks.kept_engines import simulate
from tests.support.benchmark_tools import TEST_TOOLS
from tests.support.prefix_share import count_shared
from tests.support.processes.inference_engine import EngineProcess, running_engine
from tests.support.recording_proxy import Exchange, recording_proxy

ROWS: Final = 200_000
WORDS_OF_PROMPT: Final = 60
CHUNK_BYTES: Final = 2**20
SIMULATED: Final = {"ttft_seconds": 0.05, "tpot_seconds": 0.001, "slots": 256}
LLAMA: Final = {"threads": 1, "parallel": 4, "ctx-size": 16_384}
LLAMA_MODEL: Final = "smollm2-135m"
TRACE_TOOLS: Final = (BenchmarkTool.BUILTIN, BenchmarkTool.AIPERF)
TRUE_TTFT_SECONDS: Final = 0.2
PREFLIGHT_WORDS: Final = 8
KEPT_STUDIES: Final = 2000


def write_rows(path: Path) -> None:
    """Conversations of which every tenth came before."""
    rng = random.Random(1)
    lines: list[str] = []
    for number in range(ROWS):
        if number % 10 or not lines:
            turns = [
                {"from": "human", "value": " ".join(rng.choices(WORDS, k=WORDS_OF_PROMPT))},
                {"from": "gpt", "value": " ".join(rng.choices(WORDS, k=WORDS_OF_PROMPT))},
            ]
            lines.append(json.dumps({"id": number, "conversations": turns}))
        else:
            lines.append(lines[-1])
    path.write_bytes(gzip.compress("\n".join(lines).encode(), compresslevel=1))


def read_dataset(path: Path) -> int:
    """Rows that were read."""
    spec = DatasetSpec(path=path.name, deduplicate=True, sample=1000, max_input_tokens=4096)

    def chunks() -> Iterator[bytes]:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    return draw_candidates(
        read_rows(decode(unpack(chunks())), spec, path.name).rows, spec
    ).rows_read


def measure_dataset(directory: Path) -> dict[str, float]:
    path = directory / "rows.jsonl.gz"
    write_rows(path)
    began = time.process_time()
    rows = read_dataset(path)
    seconds = time.process_time() - began
    tracemalloc.start()
    read_dataset(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"dataset_prompts_per_s": rows / seconds, "dataset_peak_mb": peak / 2**20}


def conversation_like(requests: int, block: int, seed: int) -> list[dict[str, Any]]:
    """Users come back with what they said before and something new, as in Mooncake's traces."""
    rng = random.Random(seed)
    new_ids = itertools.count()
    first = [next(new_ids)]  # of all
    users: list[list[int]] = []
    lines: list[dict[str, Any]] = []
    for number in range(requests):
        if users and rng.random() < 0.55:
            history = users[rng.randrange(len(users))]
        else:
            history = list(first)
            users.append(history)
        history += [next(new_ids) for _ in range(rng.randint(1, 4))]
        tail = rng.randint(1, block)
        lines.append(
            {
                "timestamp": 40 * number,
                "input_length": block * (len(history) - 1) + tail,
                "output_length": rng.randint(2, 24),
                "hash_ids": list(history),
            }
        )
        if tail < block:  # it was not filled, and is another one the next time
            history.pop()
    return lines


def agents(sessions: int, block: int) -> list[dict[str, Any]]:
    """Sessions with the same instructions, whose tools take a while."""
    lines: list[dict[str, Any]] = []
    for number in range(sessions):
        name = {"session_id": f"agent-{number}"}
        first = {"timestamp": 150 * number, "input_length": 4 * block, "hash_ids": [0, 1, 2, 3]}
        lines.append(name | first | {"output_length": 12})
        lines += [
            name | {"delay": 100 + 20 * turn, "input_length": block + turn, "output_length": 10}
            for turn in range(4)
        ]
    return lines


async def share_that_arrived(exchanges: Sequence[Exchange], engine: EngineProcess) -> float:
    """Count tokens that began an earlier prompt and its answer, by the engine's own tokens."""
    async with aiohttp.ClientSession() as session:

        async def split(text: str) -> list[Any]:
            async with session.post(
                f"{engine.base_url}/tokenize", json={"content": text, "prompt": text}
            ) as response:
                if response.status != 200:
                    return text.split()
                tokens: list[Any] = (await response.json())["tokens"]
                return tokens

        prompts = [await split(exchange.prompt) for exchange in exchanges]
        # As what follows them has it before it: words are split with the space before them.
        heard = [
            await split(f"{exchange.prompt} {''.join(exchange.answer)}") for exchange in exchanges
        ]
    answers = [tokens[len(prompt) :] for prompt, tokens in zip(prompts, heard, strict=True)]
    return count_shared(prompts, answers) / sum(map(len, prompts))


async def measure_trace(
    name: str,
    tool: BenchmarkTool,
    trace: TraceSpec,
    engine: EngineProcess,
    directory: Path,
    requests: int,
) -> dict[str, Any]:
    spec = BenchmarkSpec(
        tool=tool,
        traffic_scenarios=("trace",),
        arrivals=("trace",),
        max_requests_per_level=requests,
        max_time_per_level_seconds=120,
        trace=trace,
    )
    fetched = await fetch_files(spec, own_places(directory / "files", AllowedHosts()))
    async with recording_proxy(engine.base_url) as (url, exchanges):
        target = Target(base_url=url, model_name=engine.model)
        load = await prepare_files(spec, fetched, target, directory / f"{name}-{tool.value}-files")
        result = await run_benchmark(
            spec, target, directory=directory / f"{name}-{tool.value}", files=load.files
        )
    [level] = result.levels
    # What showed before the load that the server answers is no part of it.
    of_load = [each for each in exchanges if len(each.prompt.split()) > PREFLIGHT_WORDS]
    arrived = await share_that_arrived(of_load, engine)
    use = level.prefix_cache
    if load.trace is None or use is None or use.trace_share is None or use.asked_share is None:
        raise RuntimeError(f"nothing was measured: {level.error_codes_frequency}")
    return {
        "trace": name,
        "tool": tool.value,
        "engine": engine.model,
        "requests": level.num_completed_requests,
        "failed": level.num_error_requests,
        "trace_share": round(100 * use.trace_share, 2),
        "said_by_result": round(100 * use.asked_share, 2),
        "arrived": round(100 * arrived, 2),
        "tokens_per_word": round(load.trace.tokens_per_word, 3),
        "mean_prompt_tokens": round(level.stats.num_input_tokens.mean)
        if level.stats.num_input_tokens
        else 0,
    }


def measure_traces(directory: Path) -> list[dict[str, Any]]:
    files = {
        "conversation": (conversation_like(200, 64, 1), TraceSpec(path="x", block_tokens=64)),
        "agents": (agents(20, 48), TraceSpec(path="x", block_tokens=48)),
    }
    measured: list[dict[str, Any]] = []
    with ExitStack() as stack:
        simulated = stack.enter_context(running_engine("simulated", SIMULATED, model="simulated"))
        llama = stack.enter_context(running_engine("llamacpp", LLAMA, model=LLAMA_MODEL))
        runs: list[tuple[str, TraceSpec, EngineProcess, BenchmarkTool, int]] = []
        for name, (lines, spec) in files.items():
            path = directory / f"{name}.jsonl"
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            own = TraceSpec(path=str(path), block_tokens=spec.block_tokens)
            runs += [(name, own, simulated, tool, 1000) for tool in TRACE_TOOLS]
            runs.append((f"{name}-llamacpp", own, llama, BenchmarkTool.BUILTIN, 30))
        if "LOADS_TRACE" in os.environ:
            requests = int(os.environ.get("LOADS_REQUESTS", "200"))
            own = TraceSpec(path=str(Path(os.environ["LOADS_TRACE"]).resolve()))
            runs += [("own", own, simulated, tool, requests) for tool in TRACE_TOOLS]
        for name, spec, engine, tool, requests in runs:
            row = asyncio.run(measure_trace(name, tool, spec, engine, directory, requests))
            print(row, flush=True)
            measured.append(row)
    return measured


def median_ttft(level: LevelResult) -> float:
    if level.stats.ttft is None:
        raise RuntimeError(f"no request was measured: {level.error_codes_frequency}")
    return level.stats.ttft.p50


def measure_tools(directory: Path) -> dict[str, float]:
    """Medians of the time to the first token, in ms."""
    times = {"ttft_seconds": TRUE_TTFT_SECONDS, "tpot_seconds": 0.02, "slots": 8}
    medians = {}
    with running_engine("simulated", times, model="simulated") as engine:
        target = Target(base_url=engine.base_url, model_name=engine.model)
        for tool in ADAPTERS:
            spec = BenchmarkSpec(
                tool=tool,
                traffic_scenarios=("D(100,25)",),
                num_concurrency=(4,),
                max_requests_per_level=60,
                max_time_per_level_seconds=120,
            )
            result = asyncio.run(
                run_benchmark(spec, target, directory=directory / f"tool-{tool.value}")
            )
            medians[tool.value] = 1000 * median_ttft(result.levels[0])
            print(tool.value, f"{medians[tool.value]:.1f} ms", result.levels[0].marks, flush=True)
    return medians


def main() -> None:
    """Measure and print; exit code 1 where a tool is not installed."""
    os.environ[TOOLS_VARIABLE] = str(TEST_TOOLS)
    missing = [reason for adapter in ADAPTERS.values() if (reason := adapter.missing())]
    if missing:
        print("\n".join(missing), file=sys.stderr)
        sys.exit(1)
    began, loads = time.monotonic(), [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        figures: dict[str, Any] = measure_dataset(directory)
        loads.append(os.getloadavg()[0])
        traces = measure_traces(directory)
        loads.append(os.getloadavg()[0])
        medians = measure_tools(directory)
        loads.append(os.getloadavg()[0])
    spread = (max(medians.values()) - min(medians.values())) / (1000 * TRUE_TTFT_SECONDS)
    figures |= simulate(range(KEPT_STUDIES))
    figures |= {
        "realised_prefix_error_points": max(
            abs(row["arrived"] - row["trace_share"]) for row in traces
        ),
        "three_tools_ttft_spread_percent": 100 * spread,
        "ttft_p50_ms": medians,
        "traces": traces,
        "load_mean": sum(loads) / len(loads),
        "seconds": time.monotonic() - began,
    }
    print(
        json.dumps(
            {
                key: round(value, 2) if isinstance(value, float) else value
                for key, value in figures.items()
            }
        )
    )


if __name__ == "__main__":
    main()
