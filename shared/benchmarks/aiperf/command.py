"""AIPerf's configuration, requests and environment for one level.

The requests are ours, sent as they are: sizes, shared beginnings and seeds mean what they do with
the built-in generator. When they are sent is AIPerf's part.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from schemas.benchmark import BenchmarkSpec
from shared.benchmarks.adapter import Target
from shared.benchmarks.arrivals import Load, loads, mean_rate_per_s, offsets
from shared.benchmarks.level_choice import check_load_search
from shared.benchmarks.traffic import (
    RequestSize,
    UnsupportedTraffic,
    chat_body,
    parse_scenario,
    request_parameters,
    sized_prompt,
    with_shared_prefix,
)

TASK: Final = "text-to-text"
KEY_VARIABLE: Final = "MODEL_API_KEY"
GRACE_SECONDS: Final = 30.0
REQUEST_SECONDS: Final = 900.0
KEPT: Final = ("PATH", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One level: `warmup_requests` go before those that are measured.

    With `offsets_seconds` each is sent at its time, and none goes before.
    """

    load: Load
    warmup_requests: int
    sizes: tuple[RequestSize, ...]
    seed: int
    offsets_seconds: tuple[float, ...] = ()


def check(spec: BenchmarkSpec) -> None:
    """Raises UnsupportedTraffic for what AIPerf is not driven to do here."""
    if spec.task != TASK:
        raise UnsupportedTraffic(f"expected {TASK!r}, got {spec.task!r}", "$.benchmark.task")
    for scenario in spec.traffic_scenarios:
        parse_scenario(scenario)
    loads(spec)
    check_load_search(spec)
    if spec.turns > 1 or spec.think_seconds:
        raise UnsupportedTraffic("only the built-in generator can do this", "$.benchmark.turns")
    request_parameters(spec.additional_params)


def plan_level(spec: BenchmarkSpec, scenario: str, load: Load, seed: int) -> Plan:
    """The same requests for the same seed."""
    rng = random.Random(seed)  # noqa: S311  # repeatable, not secret
    times: tuple[float, ...] = ()
    warmup_requests, count = spec.warmup_requests, spec.max_requests_per_level
    if load.arrivals is not None and not load.arrivals.startswith(("poisson", "constant")):
        arrivals = offsets(load.arrivals, spec.arrival_trace_seconds, rng)
        times = tuple(
            itertools.takewhile(
                lambda seconds: seconds < spec.max_time_per_level_seconds,
                itertools.islice(arrivals, count),
            )
        )
        warmup_requests, count = 0, len(times)
    sizes = with_shared_prefix(parse_scenario(scenario), spec.prefix_share, rng)
    return Plan(
        load=load,
        warmup_requests=warmup_requests,
        sizes=tuple(sizes(rng) for _ in range(warmup_requests + count)),
        seed=seed,
        offsets_seconds=times,
    )


def request_lines(plan: Plan, spec: BenchmarkSpec, model_name: str) -> Iterator[bytes]:
    """The file of requests, a line for each, in the order in which they are sent."""
    rng = random.Random(plan.seed)  # noqa: S311  # repeatable, not secret
    parameters = request_parameters(spec.additional_params)
    times: Iterable[float | None] = plan.offsets_seconds or itertools.repeat(None)
    for size, seconds in zip(plan.sizes, times, strict=False):
        prompt = sized_prompt(size, rng)
        messages = [{"role": "user", "content": prompt}]
        body = chat_body(model_name, messages, size.num_output_tokens, parameters)
        line = body if seconds is None else {"timestamp": 1000 * seconds, "payload": body}
        yield msgspec.json.encode(line) + b"\n"


def configuration(
    plan: Plan,
    spec: BenchmarkSpec,
    target: Target,
    *,
    requests: Path,
    tokenizer: Path,
    directory: Path,
) -> dict[str, Any]:
    """What AIPerf reads; it writes into `directory`. The key is named, not told."""
    endpoint: dict[str, Any] = {
        "urls": [target.base_url.rstrip("/")],
        "type": "chat",
        "streaming": True,
        "use_server_token_count": True,
        "timeout": REQUEST_SECONDS,
        # As the other tools: a server that closes an idle one as a request is sent would seem to
        # fail.
        "connection_reuse": "never",
    }
    if target.api_key:
        endpoint["headers"] = {"Authorization": f"Bearer ${{{KEY_VARIABLE}}}"}
    return {
        "benchmark": {
            "models": [target.model_name],
            "endpoint": endpoint,
            "datasets": [
                {
                    "name": "main",
                    "type": "file",
                    "path": str(requests),
                    "format": "mooncake_trace" if plan.offsets_seconds else "raw_payload",
                }
            ],
            "phases": _phases(plan, spec),
            # Of the endpoint's type, but nothing is counted with it: requests are sent as they are,
            # and the server counts.
            "tokenizer": {"name": str(tokenizer)},
            "artifacts": {"dir": str(directory)},
            "gpu_telemetry": {"enabled": False},
            "server_metrics": {"enabled": False},
            "network_latency": {"enabled": False},
            "runtime": {"ui": "none"},
        }
    }


def _phases(plan: Plan, spec: BenchmarkSpec) -> list[dict[str, Any]]:
    limits = {"duration": spec.max_time_per_level_seconds, "grace_period": GRACE_SECONDS}
    how = _how(plan)
    measured = len(plan.sizes) - plan.warmup_requests
    phases = [{"name": "profiling", "kind": "profiling", "requests": measured} | how | limits]
    if plan.warmup_requests:
        warmup = {"name": "warmup", "kind": "warmup", "requests": plan.warmup_requests}
        phases.insert(0, warmup | {"exclude_from_results": True} | how | limits)
    return phases


def _how(plan: Plan) -> dict[str, Any]:
    if plan.offsets_seconds:
        return {"type": "fixed_schedule", "auto_offset": False}
    if plan.load.arrivals is None:
        return {"type": "concurrency", "concurrency": plan.load.concurrency}
    kind = plan.load.arrivals.partition("(")[0]
    return {"type": kind, "rate": mean_rate_per_s(plan.load.arrivals)}


def environment(
    environ: Mapping[str, str], target: Target, *, prompts: Path, scratch: Path
) -> dict[str, str]:
    """What the process finds: no proxy, no hub, no place of the user's to keep anything in."""
    env = {name: environ[name] for name in KEPT if name in environ}
    env |= {
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "AIPERF_DATASET_MMAP_BASE_PATH": str(prompts),
        "AIPERF_DATASET_MMAP_CACHE_ENABLED": "false",
        # Requests are written down soon after they ended, so that it shows how far it is.
        "AIPERF_RECORD_EXPORT_BATCH_SIZE": "10",
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    if target.api_key:
        env[KEY_VARIABLE] = target.api_key
    return env
