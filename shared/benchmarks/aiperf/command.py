"""AIPerf's configuration, requests and environment for one level.

The requests are ours, sent as they are: sizes, shared beginnings and seeds mean what they do with
the built-in generator. When they are sent is AIPerf's part.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from schemas.task.benchmark import BenchmarkSpec
from schemas.task.modality import Modality
from shared.benchmarks.arrivals import Load, mean_rate_per_s, offsets
from shared.benchmarks.builtin.conversation import Conversation
from shared.benchmarks.prompts import requests_of
from shared.benchmarks.request_body import PATHS, make_body
from shared.benchmarks.tools.adapter import BenchmarkFailed, Target
from shared.benchmarks.traced import NO_TRACE, TRACE, TracedLoad, size_of
from shared.benchmarks.traffic import (
    PromptText,
    RequestSize,
    chat_options,
    draw_prompt,
    request_parameters,
    with_shared_prefix,
)
from shared.traces.sessions import TraceSession, TraceTurn

KEY_VARIABLE: Final = "MODEL_API_KEY"
GRACE_SECONDS: Final = 30.0
REQUEST_SECONDS: Final = 900.0
ENDPOINTS: Final = {
    Modality.TEXT: "chat",
    Modality.IMAGES: "chat",
    Modality.EMBEDDINGS: "embeddings",
    Modality.RERANK: "cohere_rankings",
}
KEPT: Final = ("PATH", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One level: `warmup_requests` go before the `requests` that are measured.

    With `offsets_seconds` each is sent at its time, and none goes before. With `conversations` the
    sizes from one of these places to the next are the turns of one, sent `waits_seconds` after the
    answers before, each of which begins at its time; there may be more than are begun. `script` has
    the turns of a trace.
    """

    load: Load
    warmup_requests: int
    requests: int
    sizes: tuple[RequestSize, ...]
    seed: int
    offsets_seconds: tuple[float, ...] = ()
    conversations: Sequence[int] = ()
    waits_seconds: Sequence[float] = ()
    script: Sequence[TraceTurn] = ()

    @property
    def measured(self) -> "Plan":
        """The plan without the requests that go before, unless any may, as of conversations."""
        if self.conversations:
            return self
        first = self.warmup_requests
        return replace(self, sizes=self.sizes[first:], script=self.script[first:])

    def with_tokens(self, tokens_per_word: float) -> "Plan":
        """Return the plan with the tokens that the server is expected to count."""
        sizes = tuple(_scale_prompt(size, tokens_per_word) for size in self.sizes)
        return replace(self, sizes=sizes)


def _scale_prompt(size: RequestSize, tokens_per_word: float) -> RequestSize:
    return replace(size, num_input_tokens=round(tokens_per_word * size.num_input_tokens))


def plan_level(
    spec: BenchmarkSpec,
    scenario: str,
    load: Load,
    seed: int,
    texts: Sequence[PromptText] = (),
    trace: TracedLoad = NO_TRACE,
) -> Plan:
    """The same requests for the same seed."""
    if scenario == TRACE:
        return _plan_trace(spec, load, seed, trace)
    rng = random.Random(seed)  # noqa: S311  # repeatable, not secret
    times: tuple[float, ...] = ()
    warmup_requests, requests = spec.warmup_requests, spec.max_requests_per_level
    beginnings = warmup_requests + requests
    if load.arrivals is not None and (spec.turns > 1 or not _has_own_rate(load)):
        times = _times(spec, load, trace, -(-requests // spec.turns), rng)
        warmup_requests, beginnings = 0, len(times)
        requests = beginnings * spec.turns
    elif spec.turns > 1:
        # One after the other, and each phase begins with new ones, so many at once.
        phases_requests = (warmup_requests, requests)
        beginnings = sum(
            -(-requests // spec.turns) + load.concurrency for requests in phases_requests
        )
    drawn = requests_of(scenario, texts, seed, batch_size=spec.batch_size)
    sizes = with_shared_prefix(drawn, spec.prefix_share, rng)
    count = beginnings * spec.turns
    return Plan(
        load=load,
        warmup_requests=warmup_requests,
        requests=requests,
        sizes=tuple(
            size if place % spec.turns == 0 else replace(size, prefix_words=())
            for place, size in enumerate(sizes(rng) for _ in range(count))
        ),
        seed=seed,
        offsets_seconds=times,
        conversations=range(0, count, spec.turns) if spec.turns > 1 else (),
        waits_seconds=[spec.think_seconds] * count if spec.turns > 1 else (),
    )


def _has_own_rate(load: Load) -> bool:
    """True for AIPerf's own rates, which are of requests, whichever conversations these are of."""
    return load.arrivals is not None and load.arrivals.startswith(("poisson", "constant"))


def _times(
    spec: BenchmarkSpec, load: Load, trace: TracedLoad, count: int, rng: random.Random
) -> tuple[float, ...]:
    recorded = spec.arrival_trace_seconds or trace.times_seconds
    arrivals = offsets(load.arrivals or "", recorded, rng)
    return tuple(
        itertools.takewhile(
            lambda seconds: seconds < spec.max_time_per_level_seconds,
            itertools.islice(arrivals, count),
        )
    )


def _plan_trace(spec: BenchmarkSpec, load: Load, seed: int, trace: TracedLoad) -> Plan:
    """Take sessions in their order, as many as there are times for."""
    rng = random.Random(seed)  # noqa: S311  # repeatable, not secret
    has_turns = any(len(session.turns) > 1 for session in trace.sessions)
    sessions: Sequence[TraceSession] = trace.sessions
    times: tuple[float, ...] = ()
    warmup_requests = spec.warmup_requests
    if load.arrivals is not None and (has_turns or not _has_own_rate(load)):
        times = _times(spec, load, trace, len(sessions), rng)
        sessions, warmup_requests = sessions[: len(times)], 0
    turns = [turn for session in sessions for turn in session.turns]
    lengths = [len(session.turns) for session in sessions]
    requests = min(spec.max_requests_per_level, len(turns) - warmup_requests)
    if requests < 1:
        raise BenchmarkFailed(
            f"expected a trace of more than the {warmup_requests} requests of the warm-up, got "
            f"{len(turns)}"
        )
    return Plan(
        load=load,
        warmup_requests=warmup_requests,
        requests=requests,
        sizes=tuple(size_of(turn, trace.form, seed) for turn in turns),
        seed=seed,
        offsets_seconds=times,
        conversations=[0, *itertools.accumulate(lengths)][:-1] if has_turns else (),
        waits_seconds=[turn.wait_seconds for turn in turns] if has_turns else (),
        script=turns,
    )


def request_lines(plan: Plan, spec: BenchmarkSpec, model_name: str) -> Iterator[bytes]:
    """The file of requests or of turns, a line for each, in order of their beginning."""
    rng = random.Random(plan.seed)  # noqa: S311  # repeatable, not secret
    parameters = request_parameters(spec.additional_params, spec.modality)
    times: Iterable[float | None] = plan.offsets_seconds or itertools.repeat(None)
    if plan.conversations:
        yield from _turn_lines(plan, spec, model_name, times)
        return
    for size, seconds in zip(plan.sizes, times, strict=False):
        body = make_body(size, rng, Conversation(), model_name, parameters)
        if _is_wrapped(plan, spec):
            time_of_it = {} if seconds is None else {"timestamp": 1000 * seconds}
            body = msgspec.json.encode({**time_of_it, "payload": msgspec.Raw(body)})
        yield body + b"\n"


def _is_wrapped(plan: Plan, spec: BenchmarkSpec) -> bool:
    """Return whether a request is a part of its line: AIPerf takes no lines of chats alone for
    others, and no times in them.
    """
    return bool(plan.offsets_seconds or plan.conversations or not spec.modality.has_tokens)


def _turn_lines(
    plan: Plan, spec: BenchmarkSpec, model_name: str, times: Iterable[float | None]
) -> Iterator[bytes]:
    """AIPerf puts what was said before, and the server's answers, before each turn's text."""
    rng = random.Random(plan.seed)  # noqa: S311  # repeatable, not secret
    parameters = request_parameters(spec.additional_params)
    ends = [*plan.conversations[1:], len(plan.sizes)]
    for number, (place, end, seconds) in enumerate(
        zip(plan.conversations, ends, times, strict=False)
    ):
        for turn, size in enumerate(plan.sizes[place:end]):
            arguments: dict[str, Any] = {
                "session_id": str(number),
                "text_input": draw_prompt(size, rng),
                "extra": chat_options(model_name, size.num_output_tokens, parameters),
            }
            if turn:
                arguments["delay"] = 1000 * plan.waits_seconds[place + turn]
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
        "type": ENDPOINTS[spec.modality],
        "path": PATHS[spec.modality],
        "streaming": spec.modality.has_tokens,
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
                    "format": "mooncake_trace" if _is_wrapped(plan, spec) else "raw_payload",
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
    if target.certificate is not None:
        # It calls no other server; the directory would bring the system's authorities.
        env |= {"SSL_CERT_FILE": str(target.certificate), "SSL_CERT_DIR": "/dev/null"}
    if target.api_key:
        env[KEY_VARIABLE] = target.api_key
    return env
