"""Which figures got worse: eight ratios to a limit or a peer, against those that were accepted.

`make bench-gates`. Each is measured five times in this run, in turns with what it is a ratio to;
the mean may be a fifth worse than `gates.toml` says, and what is worse is measured once more. On a
machine that others use as well, ratios are told and refuse nothing: it counts as quiet where less
than a tenth of it was busy before.
`--record` writes this run's ratios into the file, `--only WORD` measures those named so alone.

Exits with 1 where one is worse on a quiet machine. The last line is one JSON object: the mean of
each figure, whether the machine was quiet, and what got worse.
"""

import argparse
import asyncio
import json
import sys
import tomllib
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, Final

import psutil
import uvloop
from rich.console import Console
from rich.table import Table

from services.results.domain.rollup import HOUR
from services.results.migrations import MIGRATIONS
from services.results.samples.packing import Packing
from services.results.samples.partitions import Partitions
from services.results.samples.partitions import Table as SampleTable
from shared.clock import utcnow
from shared.postgres.database import Database
from shared.testing import short_directory
from tests.benchmarks import bare_postgres, gateway, results, scheduler, scheduler_engine, telemetry

RECORDED: Final = Path(__file__).with_name("gates.toml")
ROUNDS: Final = 5
ALLOWANCE: Final = 0.2
QUIET_BUSY_PERCENT: Final = 10.0
LOOK_SECONDS: Final = 3.0

STORED_TICKS: Final = 800
PACKED_OVER_ROWS: Final = """
SELECT sum(pg_total_relation_size(inhrelid)) / pg_total_relation_size('bare') FROM pg_inherits
WHERE inhparent = 'results.packed_sample'::regclass
"""
FOLLOWERS: Final = 200
TURN_SECONDS: Final = 2.0
SNAPSHOT_ROUNDS: Final = 10
WAITING: Final = 1000
PROBES: Final = 500

Ratios = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Gate:
    """A figure that may not get worse unseen."""

    figure: str
    meaning: str
    is_better_high: bool = False

    def limit(self, recorded: float) -> float:
        """Return the worst mean that passes."""
        return recorded * (1 - ALLOWANCE if self.is_better_high else 1 + ALLOWANCE)

    def passes(self, ratio: float, recorded: float) -> bool:
        """Return whether the mean is no worse than allowed."""
        limit = self.limit(recorded)
        return ratio >= limit if self.is_better_high else ratio <= limit


async def measure_storing() -> Ratios:
    """Store ticks and pack them."""
    async with results.servers() as (dsn, nats, raw), AsyncExitStack() as stack:
        rounds = await results.ingest(dsn, nats, raw, ROUNDS, STORED_TICKS)
        database = Database(dsn, "results", MIGRATIONS)
        await database.open()
        stack.push_async_callback(database.close)
        packed_table = Partitions(database, SampleTable.PACKED, results.DAYS)
        await Packing(database, packed_table).pack_old(utcnow() + HOUR)
        # Of the last round there is a table with a row of each sample.
        packed_over_rows = float(await raw.fetchval(PACKED_OVER_ROWS)) / ROUNDS
    return {
        "ingest_over_copy": [one.ours / one.bare for one in rounds],
        "packed_over_bare_bytes": [packed_over_rows],
    }


async def measure_gateway() -> Ratios:
    """Follow samples and ask for tasks, at the gateway and at its peer in turns."""
    followed, asked = [], []
    with short_directory() as directory:
        async with gateway.services(directory) as (bus, postgres, owners):
            url = bus.authenticated_url
            dsn = await postgres.take_database()
            async with gateway.our_server(directory, url, dsn) as ours:
                _, answer = await gateway.measure_requests(ours, None, TURN_SECONDS)
                our_followers = await gateway.connect(ours.port, FOLLOWERS)
                publish = gateway.sample_publisher(owners)
                await gateway.measure_fast(ours, our_followers, publish, 1, TURN_SECONDS)
                publish_frame = gateway.frame_publisher(owners, our_followers[0].frame)
                async with gateway.bare_server(directory, url, answer) as bare:
                    bare_followers = await gateway.connect(bare.port, FOLLOWERS)
                    for number in range(1, ROUNDS + 1):
                        first = number * 1000
                        taken = [
                            await gateway.measure_fast(*turn, first, TURN_SECONDS)
                            for turn in (
                                (ours, our_followers, publish),
                                (bare, bare_followers, publish_frame),
                            )
                        ]
                        followed.append(taken[0]["ws_sample_us"] / taken[1]["ws_sample_us"])
                        answered = [
                            (await gateway.measure_requests(server, None, TURN_SECONDS))[0]
                            for server in (ours, bare)
                        ]
                        asked.append(answered[0]["request_cpu_ms"] / answered[1]["request_cpu_ms"])
            turns = await gateway.measure_sign_in(
                directory, url, await postgres.take_database(), TURN_SECONDS / 2
            )
    return {
        "ws_sample_over_bare": followed,
        "request_cpu_over_bare": asked,
        "oidc_request_cpu_over_token": [
            other["request_cpu_ms"] / one["request_cpu_ms"] for one, other in turns
        ],
    }


async def measure_telemetry() -> Ratios:
    """Take snapshots in our way and by nvidia-ml-py's functions."""
    ratios = []
    with short_directory() as directory, telemetry.fake_host(directory) as host:
        for _ in range(ROUNDS):
            costs = await asyncio.to_thread(
                telemetry.measure_snapshots,
                replace(host, rounds=SNAPSHOT_ROUNDS),
                telemetry.WAYS[:2],
            )
            ours, bare = costs.values()
            ratios.append(ours.processor / bare.processor)
    return {"snapshot_full_over_bare": ratios}


async def measure_scheduler() -> Ratios:
    """Grant and release over the bus, and by bare transactions."""
    ratios = []
    with short_directory() as directory:
        async with scheduler.world(directory) as around:
            for _ in range(ROUNDS):
                load = await scheduler.throughput(around.clients, around.processes, TURN_SECONDS)
                bare = await bare_postgres.rate_per_second(
                    around.dsn, scheduler.CONNECTIONS, TURN_SECONDS
                )
                ratios.append(load["grants and releases per second"] / bare)
    return {"grants_over_bare_postgres": ratios}


async def measure_engine() -> Ratios:
    """Decide with many waiting and with none."""
    workload = scheduler_engine.load()
    return {
        "decision_cost_ratio_1k_waiting": await asyncio.to_thread(
            scheduler_engine.measure_waiting, workload, ROUNDS, WAITING, PROBES
        )
    }


GATES: Final[Mapping[Callable[[], Coroutine[Any, Any, Ratios]], Sequence[Gate]]] = {
    measure_engine: (
        Gate("decision_cost_ratio_1k_waiting", "a decision beside 1,000 waiting, over none"),
    ),
    measure_telemetry: (Gate("snapshot_full_over_bare", "a snapshot over nvidia-ml-py's calls"),),
    measure_gateway: (
        Gate("ws_sample_over_bare", "a sample to a WebSocket over Litestar and uvicorn"),
        Gate("request_cpu_over_bare", "GET /api/v1/tasks over Litestar and uvicorn"),
        Gate("oidc_request_cpu_over_token", "a request by single sign-on over one by token"),
    ),
    measure_storing: (
        Gate("ingest_over_copy", "storing samples over bare COPY", is_better_high=True),
        Gate("packed_over_bare_bytes", "bytes of a packed sample over a row of its own"),
    ),
    measure_scheduler: (
        Gate("grants_over_bare_postgres", "grants over bare transactions", is_better_high=True),
    ),
}


def is_quiet() -> bool:
    """Return whether nothing else uses the machine, by a look of some seconds."""
    return psutil.cpu_percent(interval=LOOK_SECONDS) < QUIET_BUSY_PERCENT


def measure(figures: Collection[str], console: Console) -> dict[str, float]:
    """Return the mean of each of these figures, and of those that are measured with them."""
    means: dict[str, float] = {}
    for take, gates in GATES.items():
        if not any(gate.figure in figures for gate in gates):
            continue
        console.print(f"measuring {', '.join(gate.figure for gate in gates)}")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            ratios = runner.run(take())
        for figure, found in ratios.items():
            console.print(f"  {figure}: {', '.join(f'{ratio:.3f}' for ratio in found)}")
            means[figure] = round(mean(found), 3)
    return means


def print_verdicts(
    console: Console, means: Mapping[str, float], recorded: Mapping[str, float]
) -> list[str]:
    """Print a table of all figures; return those that got worse. What is not recorded passes."""
    table = Table("figure", "accepted", "worst allowed", "now", "")
    worse = []
    for gate in (gate for gates in GATES.values() for gate in gates if gate.figure in means):
        ratio, known = means[gate.figure], recorded.get(gate.figure)
        if known is None:
            table.add_row(gate.meaning, "-", "-", f"{ratio:.3f}", "not recorded")
            continue
        passes = gate.passes(ratio, known)
        verdict = "" if passes else "WORSE"
        limit = f"{gate.limit(known):.3f}"
        table.add_row(gate.meaning, f"{known:.3f}", limit, f"{ratio:.3f}", verdict)
        if not passes:
            worse.append(gate.figure)
    console.print(table)
    return worse


def record(means: Mapping[str, float]) -> None:
    """Write the ratios into the file, below its own words."""
    lines = [line for line in RECORDED.read_text().splitlines() if line.startswith("#")]
    known = tomllib.loads(RECORDED.read_text()) | dict(means)
    RECORDED.write_text("\n".join([*lines, *(f"{name} = {known[name]}" for name in known), ""]))


def main() -> int:
    """Measure, compare, print, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gates")
    parser.add_argument("--record", action="store_true", help="accept the ratios of this run")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="figures with this in their name"
    )
    arguments = parser.parse_args()
    console = Console()
    names = [gate.figure for gates in GATES.values() for gate in gates]
    recorded = tomllib.loads(RECORDED.read_text())
    quiet = is_quiet()
    means = measure([name for name in names if arguments.only in name], console)
    worse = print_verdicts(console, means, recorded)
    if arguments.record:
        record(means)
    elif worse and not quiet:
        console.print("the machine was busy before this run: what got worse refuses nothing")
    elif worse:
        console.print("once more, since a moment's other work makes one worse as well")
        again = measure(worse, console)
        worse = [name for name in print_verdicts(console, again, recorded) if name in worse]
    sys.stdout.write(json.dumps({**means, "quiet": quiet, "worse": worse}) + "\n")
    return 1 if worse and quiet and not arguments.record else 0


if __name__ == "__main__":
    sys.exit(main())
