"""A process that makes its part of a level's load, by `python -m` and its name.

On stdin: the task, in one line; `go ORIGIN` when all parts are ready; anything once all have
measured. On stdout: `ready`, `at COMPLETED FAILED` now and then, `over`, and the outcome.
"""

import asyncio
import base64
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from schemas.task.benchmark import BenchmarkSpec
from shared.benchmarks.arrivals import Load
from shared.benchmarks.builtin.level_load import LevelLoad, Part
from shared.benchmarks.chat_server import ChatServer, LoadLimits
from shared.benchmarks.levels.measured_level import LevelOutcome
from shared.benchmarks.prompts import read_prompts, requests_of
from shared.benchmarks.traffic import with_shared_prefix
from shared.lifecycle import die_with_parent

PROGRESS_SECONDS: Final = 0.25


class PartTask(msgspec.Struct, frozen=True, kw_only=True):
    """`spec` and `load` are this part's own: with its share of requests and of concurrency."""

    base_url: str
    model_name: str
    api_key: str | None
    certificate: str | None
    parameters: dict[str, Any]
    limits: LoadLimits
    scenario: str
    load: Load
    spec: BenchmarkSpec
    seed: int
    number: int
    of: int
    prompts: str | None = None
    adapters: tuple[str, ...] = ()


def encode(sent: PartTask | LevelOutcome) -> bytes:
    """Encode as one line."""
    return base64.b64encode(msgspec.msgpack.encode(sent)) + b"\n"


def decode(line: bytes) -> LevelOutcome:
    return msgspec.msgpack.decode(base64.b64decode(line), type=LevelOutcome)


async def _run(task: PartTask) -> LevelOutcome:
    texts = read_prompts(None if task.prompts is None else Path(task.prompts))
    requests = requests_of(
        task.scenario,
        texts,
        task.seed,
        number=task.number,
        of=task.of,
        batch_size=task.spec.batch_size,
    )
    async with ChatServer(
        base_url=task.base_url,
        model_name=task.model_name,
        api_key=task.api_key,
        certificate=None if task.certificate is None else Path(task.certificate),
        parameters=task.parameters,
        adapters=task.adapters,
        limits=task.limits,
    ) as server:
        _say("ready")
        origin = float((await _line()).split()[1])
        prefix = random.Random(task.seed)  # noqa: S311  # the same words in every part
        told_at = 0.0

        def tell() -> None:
            nonlocal told_at
            if time.monotonic() - told_at >= PROGRESS_SECONDS and level.started_at is not None:
                told_at = time.monotonic()
                _say(f"at {len(level.records) - level.failed} {level.failed}")

        async def others_over() -> None:
            _say("over")
            await _line()

        level = LevelLoad(
            server=server,
            load=task.load,
            sizes=with_shared_prefix(requests, task.spec.prefix_share, prefix),
            rng=random.Random(f"{task.seed} {task.number}"),  # noqa: S311  # repeatable, no secret
            spec=task.spec,
            on_change=tell,
            part=Part(number=task.number, of=task.of, seed=task.seed, origin=origin),
            others_over=others_over,
        )
        await asyncio.sleep(max(0.0, origin - asyncio.get_running_loop().time()))
        await level.run()
        return level.outcome()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def _line() -> bytes:
    line: bytes = await asyncio.to_thread(sys.stdin.buffer.readline)
    if not line:
        raise EOFError("whoever started this part has gone")
    return line


def main() -> None:
    die_with_parent()
    task = msgspec.msgpack.decode(base64.b64decode(sys.stdin.buffer.readline()), type=PartTask)
    outcome = asyncio.run(_run(task))
    sys.stdout.buffer.write(encode(outcome))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
