"""AIPerf's configuration, requests and environment for one level.

The requests are ours, sent as they are: sizes, shared beginnings and seeds mean what they do with
the built-in generator. When they are sent is AIPerf's part.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from schemas.task.benchmark import BenchmarkSpec
from shared.benchmarks.arrivals import Load, mean_rate_per_s, offsets
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.traffic import (
    RequestSize,
    chat_body,
    chat_options,
    draw_prompt,
    parse_scenario,
    request_parameters,
    with_shared_prefix,
)

KEY_VARIABLE: Final = "MODEL_API_KEY"
GRACE_SECONDS: Final = 30.0
REQUEST_SECONDS: Final = 900.0
KEPT: Final = ("PATH", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One level: `warmup_requests` go before the `requests` that are measured.

    With `offsets_seconds` each is sent at its time, and none goes before. With several `turns` so
    many `sizes` after each other are those of a conversation, each of which begins at its time;
    there may be more than are begun.
    """

    load: Load
    warmup_requests: int
    requests: int
    sizes: tuple[RequestSize, ...]
    seed: int
    offsets_seconds: tuple[float, ...] = ()
    turns: int = 1


def plan_level(spec: BenchmarkSpec, scenario: str, load: Load, seed: int) -> Plan:
    """The same requests for the same seed."""
    rng = random.Random(seed)  # noqa: S311  # repeatable, not secret
    times: tuple[float, ...] = ()
    warmup_requests, requests = spec.warmup_requests, spec.max_requests_per_level
    beginnings = warmup_requests + requests
    # Its own rates are of requests, whichever conversations these belong to.
    has_rate = load.arrivals is not None and load.arrivals.startswith(("poisson", "constant"))
    if load.arrivals is not None and (spec.turns > 1 or not has_rate):
        arrivals = offsets(load.arrivals, spec.arrival_trace_seconds, rng)
        times = tuple(
            itertools.takewhile(
                lambda seconds: seconds < spec.max_time_per_level_seconds,
                itertools.islice(arrivals, -(-requests // spec.turns)),
            )
        )
        warmup_requests, beginnings = 0, len(times)
        requests = beginnings * spec.turns
    elif spec.turns > 1:
        # One after the other, and each phase begins with new ones, so many at once.
        phases_requests = (warmup_requests, requests)
        beginnings = sum(
            -(-requests // spec.turns) + load.concurrency for requests in phases_requests
        )
    sizes = with_shared_prefix(parse_scenario(scenario), spec.prefix_share, rng)
    return Plan(
        load=load,
        warmup_requests=warmup_requests,
        requests=requests,
        sizes=tuple(
            size if place % spec.turns == 0 else replace(size, prefix_words=())
            for place, size in enumerate(sizes(rng) for _ in range(beginnings * spec.turns))
        ),
        seed=seed,
        offsets_seconds=times,
        turns=spec.turns,
    )


def request_lines(plan: Plan, spec: BenchmarkSpec, model_name: str) -> Iterator[bytes]:
    """The file of requests or of turns, a line for each, in order of their beginning."""
    rng = random.Random(plan.seed)  # noqa: S311  # repeatable, not secret
    parameters = request_parameters(spec.additional_params)
    times: Iterable[float | None] = plan.offsets_seconds or itertools.repeat(None)
    if plan.turns > 1:
        yield from _turn_lines(plan, spec, model_name, times)
        return
    for size, seconds in zip(plan.sizes, times, strict=False):
        prompt = draw_prompt(size, rng)
        messages = [{"role": "user", "content": prompt}]
        body = chat_body(model_name, messages, size.num_output_tokens, parameters)
        line = body if seconds is None else {"timestamp": 1000 * seconds, "payload": body}
        yield msgspec.json.encode(line) + b"\n"


def _turn_lines(
    plan: Plan, spec: BenchmarkSpec, model_name: str, times: Iterable[float | None]
) -> Iterator[bytes]:
    """AIPerf puts what was said before, and the server's answers, before each turn's text."""
    rng = random.Random(plan.seed)  # noqa: S311  # repeatable, not secret
    parameters = request_parameters(spec.additional_params)
    for place, seconds in zip(range(0, len(plan.sizes), plan.turns), times, strict=False):
        for turn, size in enumerate(plan.sizes[place : place + plan.turns]):
            arguments: dict[str, Any] = {
                "session_id": str(place // plan.turns),
                "text_input": draw_prompt(size, rng),
                "extra": chat_options(model_name, size.num_output_tokens, parameters),
            }
            if turn:
                arguments["delay"] = 1000 * spec.think_seconds
            elif seconds is not None:
                arguments["timestamp"] = 1000 * seconds
            yield msgspec.json.encode(arguments) + b"\n"


def configuration(
    plan: Plan,
    spec: BenchmarkSpec,
    target: Target,
    *,
    requests: Path,
    tokenizer: Path,
    directory: Path,
) -> dict[str, Any]:
    """Return AIPerf's configuration; it writes into `directory`. The API key is named, not
    written.
    """
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
                    "format": "mooncake_trace"
                    if plan.offsets_seconds or plan.turns > 1
                    else "raw_payload",
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
    measured = {"name": "profiling", "kind": "profiling", "requests": plan.requests}
    phases = [measured | how | limits]
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
    """Return the environment of the process: no proxy, no model hub, no cache in the user's
    home.
    """
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
