"""What a benchmark is asked to do and what it measured, under genai-bench's names.

Times are seconds, rates per second.
"""

from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from schemas.base import Count, PositiveInt, PositiveSeconds, Seconds, UtcDatetime
from schemas.task.dataset import DatasetSpec, DatasetUse
from schemas.task.fingerprint import Canary, EngineFacts, LoadHost
from schemas.task.level_bound import LevelBound
from schemas.task.modality import BatchSize, Modality, modality_of
from schemas.task.prefix_cache import PrefixCacheUse
from schemas.task.quality import QualityAnswers, QualityProbe, Share
from schemas.task.trace import TraceSpec, TraceUse
from schemas.task.turns import ThinkSeconds, TurnResult, Turns

MAX_LEVELS: Final = 256  # the outcome has all of them in one message of at most 1 MiB
MAX_CONCURRENCY: Final = 4096
MAX_ERROR_RATE: Final = 0.01

TrafficScenario = Annotated[
    str,
    Meta(
        pattern=r"^(D\(\d{1,7},\d{1,7}\)|N\(\d{1,7},\d{1,7}\)/\(\d{1,7},\d{1,7}\)"
        r"|U\(\d{1,7},\d{1,7}\)/\(\d{1,7},\d{1,7}\)|U\(\d{1,7}\)/\(\d{1,7}\)|E\(\d{1,7}\)|R\(\d{1,7},\d{1,7}\)|I\(\d{1,7},\d{1,7}(,\d{1,7})?\)|P\(\d{1,7}\)|dataset|trace)$",
        description="genai-bench notation: D(in,out), N(mean,stddev)/(mean,stddev),"
        " U(min,max)/(min,max), E(in), R(document,query), I(width,height,images), dataset, trace",
    ),
]

Arrivals = Annotated[
    str,
    Meta(
        pattern=r"^(closed\(\d{1,4}\)|(poisson|constant)\(\d{1,5}(\.\d{1,4})?\)"
        r"|burst\(\d{1,5}(\.\d{1,4})?,\d{1,4}\)"
        r"|trace(\(\d{1,4}(\.\d{1,4})?\))?)$",
        description="closed(requests at once), poisson(requests per second), constant(requests per"
        " second), burst(requests per second,size), trace or trace(times as fast).",
    ),
]
ErrorRate = Annotated[float, Meta(ge=0, lt=1)]


class BenchmarkTool(StrEnum):
    """Who generates the load.

    `auto` takes genai-bench where it is installed, else builtin, and never AIPerf; one task never
    mixes tools.
    """

    AUTO = "auto"
    GENAI_BENCH = "genai-bench"
    BUILTIN = "builtin"
    AIPERF = "aiperf"


class LoadKind(StrEnum):
    """What a load search raises: requests at once, or requests per second that are sent at times
    no answer moves.
    """

    CONCURRENCY = "concurrency"
    POISSON = "poisson"
    CONSTANT = "constant"


class LoadSearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Look for the greatest load from `min` to `max` that meets the constraints, until it is known
    to `tolerance`, a share of it, or `max_levels` are measured.
    """

    load: LoadKind = LoadKind.CONCURRENCY
    min: Annotated[float, Meta(ge=0.01, le=10_000)] = 1.0
    max: Annotated[float, Meta(ge=0.01, le=10_000)] = 256.0
    tolerance: Annotated[float, Meta(ge=0.01, le=1)] = 0.1
    max_levels: Annotated[int, Meta(ge=2, le=64)] = 14


class LoadBoundary(Struct, frozen=True, kw_only=True):
    """Where a load search found the greatest load that meets the constraints: at least `low`, less
    than `high`, about `estimate`.

    `low` None: no load met them beyond doubt; `estimate` None: none did; `high` None: none missed
    them beyond doubt. `measured` is the load that the experiment's figures are of. `cliff`: just
    above it they are missed by far. `non_monotone`: a load above a missed one met them.
    """

    load: LoadKind
    low: float | None
    high: float | None
    estimate: float | None
    measured: float | None = None
    cliff: bool = False
    non_monotone: bool = False
    levels: Count = 0


class BenchmarkSettings(Struct, frozen=True, kw_only=True):
    """What a task file and an experiment say alike of a benchmark; a task file bounds it further.

    `max_error_rate` is the largest share of a level's requests that may fail, 0 to 1; with more
    the level has failed.

    With `arrivals` those are the loads of each scenario instead of `num_concurrency`: closed loops,
    or requests sent at times that no answer moves; `trace` takes its times from
    `arrival_trace_seconds` or the `trace`, `trace(2)` twice as fast. `prefix_share` of every
    prompt's tokens are the same in all requests of a level: 0 declares a cold prefix cache, more a
    warm one.

    With several `turns` a scenario's requests are turns of conversations, each sent with all that
    was said before, `think_seconds` after the answer; loads are of conversations: at once, or begun
    per second.

    With `load_search` the loads follow from what was measured. With `quality` answers are asked for
    before the load. With a `dataset` prompts are of its texts. With `adapters`, names of LoRA
    adapters as the engine serves them, each conversation is with one of them, drawn by the seed.

    Scenarios are all of one modality, which `task` may name as genai-bench does. Requests of E have
    `batch_size` inputs, those of R as many documents for one query.
    """

    task: str = "text-to-text"
    model_name: str | None = None
    model_tokenizer: str | None = None
    traffic_scenarios: tuple[TrafficScenario, ...] = ("D(100,100)",)
    num_concurrency: tuple[PositiveInt, ...] = (1,)
    warmup_requests: Count = 1
    additional_params: dict[str, Any] = {}
    tool: BenchmarkTool = BenchmarkTool.AUTO
    max_error_rate: ErrorRate = MAX_ERROR_RATE
    arrivals: tuple[Arrivals, ...] = ()
    arrival_trace_seconds: tuple[Seconds, ...] = ()
    prefix_share: Share = 0.0
    turns: Turns = 1
    think_seconds: ThinkSeconds = 0.0
    load_search: LoadSearch | None = None
    quality: QualityProbe | None = None
    dataset: DatasetSpec | None = None
    trace: TraceSpec | None = None
    adapters: tuple[str, ...] = ()
    batch_size: BatchSize = 1

    @property
    def modality(self) -> Modality:
        """Return that of the first scenario, as of all others."""
        return modality_of(self.traffic_scenarios[0])


class BenchmarkSpec(BenchmarkSettings, frozen=True, kw_only=True):
    """One experiment's benchmark. What `load_search` finds meets `constraints`."""

    max_time_per_level_seconds: PositiveSeconds = 600.0
    max_requests_per_level: PositiveInt = 100
    constraints: str = ""
    seed: Count = 0
    max_in_flight: PositiveInt | None = None

    @property
    def is_warm(self) -> bool:
        """True if some prompts are meant to hit the prefix cache."""
        return self.prefix_share > 0 or self.turns > 1 or "trace" in self.traffic_scenarios

    @property
    def num_levels(self) -> int:
        """The largest number of levels that may be run."""
        if self.load_search is not None:
            return self.load_search.max_levels
        return len(self.traffic_scenarios) * len(self.arrivals or self.num_concurrency)


class Distribution(Struct, frozen=True, kw_only=True):
    """Spread of one measure over a level's completed requests; `stddev` is the population's."""

    min: float
    max: float
    mean: float
    stddev: float
    sum: float
    p25: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float


class LevelStats(Struct, frozen=True, kw_only=True):
    """Distributions of a level.

    None where no request gave the measure (tpot needs two output tokens, ttft an answer of tokens).
    """

    ttft: Distribution | None = None
    tpot: Distribution | None = None
    e2e_latency: Distribution | None = None
    output_latency: Distribution | None = None
    output_inference_speed: Distribution | None = None
    num_input_tokens: Distribution | None = None
    num_output_tokens: Distribution | None = None
    total_tokens: Distribution | None = None
    input_throughput: Distribution | None = None
    output_throughput: Distribution | None = None


class RequestColumns(Struct, frozen=True, kw_only=True):
    """A level's requests, completed and failed, one of every `one_in` of them.

    `packed` is zlib over five columns of little-endian unsigned 32-bit values: `ttft` and
    `e2e_latency` in microseconds, input tokens, output tokens, place in `error_codes`; of
    conversations a sixth, the turn, of answers in pieces a seventh, the tokens of the first one;
    all ones is unknown or none. Of each column come the lowest bytes of all values, then the next
    ones.
    """

    count: Count
    packed: bytes
    error_codes: tuple[str, ...] = ()
    one_in: PositiveInt = 1


class LevelMark(StrEnum):
    """Why a level's figures may mislead. The level still counts, unless it is set aside."""

    NOT_STEADY = "not_steady"
    LITTLES_LAW = "littles_law"
    CACHE_NOT_RESET = "cache_not_reset"
    CACHE_HITS = "cache_hits"
    CLIENT_LIMITED = "client_limited"
    SENT_LATE = "sent_late"
    PREFIX_SHARE = "prefix_share"
    ANSWER_PIECES = "answer_pieces"


class Steadiness(Struct, frozen=True, kw_only=True):
    """Whether the level was in a steady state.

    `little_error` is |N - X R| / N of requests in flight, their rate and their mean time; `drift`
    what the latency gains over the window as a share of its mean, 0 where that may be chance. The
    first `discarded_requests` belonged to the start and are in no figure. None: too few requests.
    """

    little_error: float | None = None
    drift: float | None = None
    discarded_requests: Count = 0


class LevelResult(Struct, frozen=True, kw_only=True):
    """One scenario at one concurrency. `error_rate` is errors over all requests, 0 to 1.

    With `arrivals` requests were sent at times of their own, and `num_concurrency` is the most that
    could be in flight. A level that is `set_aside`, for the reason that it says, counts as failed.
    `client_lag_p99_seconds` is how late the load generator itself looked at what had arrived, and
    `client_lag_mean_seconds` its mean; `lateness_p99_seconds` is how late it sent. Levels of equal
    `seed` had the same requests.

    A level without a completed request is kept, with empty stats. The window is the measured run,
    warm-up excluded. `requests` are those that ended in it; None: unknown, or left out here.
    `bound` is there where the engine's own metrics are known. `client_processes` made the load.

    `items_per_second` are inputs (E) or documents (R), of which each request had `batch_size`; None
    where answers are of tokens, whose rate is None in turn where they are not.
    """

    scenario: str
    num_concurrency: PositiveInt
    started_at: UtcDatetime
    finished_at: UtcDatetime
    run_duration: Seconds
    num_requests: Count
    num_completed_requests: Count
    num_error_requests: Count
    error_rate: float
    error_codes_frequency: dict[str, int] = {}
    requests_per_second: float = 0.0
    mean_output_throughput_tokens_per_s: float | None = 0.0
    mean_input_throughput_tokens_per_s: float = 0.0
    mean_total_tokens_throughput_tokens_per_s: float = 0.0
    tokens_estimated: bool = False
    stats: LevelStats = LevelStats()
    requests: RequestColumns | None = None
    arrivals: str | None = None
    seed: int | None = None
    marks: tuple[LevelMark, ...] = ()
    set_aside: str | None = None
    steadiness: Steadiness | None = None
    prefix_cache: PrefixCacheUse | None = None
    client_lag_p99_seconds: Seconds | None = None
    lateness_p99_seconds: Seconds | None = None
    bound: LevelBound | None = None
    client_processes: PositiveInt = 1
    turns: tuple[TurnResult, ...] = ()
    client_lag_mean_seconds: Seconds | None = None
    batch_size: PositiveInt = 1
    items_per_second: float | None = None

    @property
    def modality(self) -> Modality:
        return modality_of(self.scenario)


class FailedLevel(Struct, frozen=True, kw_only=True):
    """A load that was not served: nothing completed, or more requests failed than may.

    Or one that says nothing, for the reason in `set_aside`.
    """

    scenario: str
    num_concurrency: PositiveInt
    num_requests: Count
    num_completed_requests: Count
    arrivals: str | None = None
    set_aside: str | None = None


class BenchmarkMetrics(Struct, frozen=True, kw_only=True):
    """An experiment's aggregate over its levels, as the autotuner stores it.

    Latencies are of the levels that did not fail: means of their means, smallest and largest of
    their means, `p50` and `p90` means of theirs, `p99` that of the worst one. A failed level counts
    as a throughput of 0. None where every level failed. Levels of the same load are one: that of
    all their requests.

    `failed_levels` are those in which more than `max_error_rate` of the requests failed; None: a
    release that knew no such limit measured it. `*_per_gpu` is None where the GPUs are unknown.
    `max_goodput_per_gpu` are requests per second within every upper bound of a time in the task's
    constraints, at the load where they are most.

    Of embeddings and rerank `*_total_throughput` is of input tokens, and what is of output tokens
    is None, as `*_items_per_second` are elsewhere.

    With a `boundary` all of it is of the levels at one load, the greatest that met the constraints,
    or the smallest if none did.
    """

    mean_e2e_latency: float | None = None
    min_e2e_latency: float | None = None
    max_e2e_latency: float | None = None
    p50_e2e_latency: float | None = None
    p90_e2e_latency: float | None = None
    p99_e2e_latency: float | None = None
    mean_ttft: float | None = None
    mean_tpot: float | None = None
    mean_output_throughput: float | None = None
    max_output_throughput: float | None = None
    mean_total_throughput: float | None = None
    max_total_throughput: float | None = None
    total_requests: Count = 0
    total_completed_requests: Count = 0
    total_error_requests: Count = 0
    success_rate: float = 0.0
    total_levels: Count = 0
    failed_levels: tuple[FailedLevel, ...] = ()
    max_error_rate: float | None = None
    mean_output_throughput_per_gpu: float | None = None
    max_total_throughput_per_gpu: float | None = None
    max_goodput_per_gpu: float | None = None
    tokens_per_joule: float | None = None
    cost_per_million_tokens: float | None = None
    boundary: LoadBoundary | None = None
    mean_items_per_second: float | None = None
    max_items_per_second: float | None = None
    max_items_per_second_per_gpu: float | None = None

    @property
    def max_load(self) -> float | None:
        """The greatest load that meets the constraints, 0 if none does; None: it was not sought."""
        return None if self.boundary is None else self.boundary.estimate or 0.0


class BenchmarkResult(Struct, frozen=True, kw_only=True):
    """What one benchmark measured.

    `tool` labels who generated the load; `simulated` that the engine was a simulation;
    `over_tls` that it was asked over TLS, whose cost is in the numbers; prompts were of `dataset`,
    requests of `trace`. `load_host` sent the load, `engine` is what the engine says of itself,
    `canary` what the tool measured of known times before; None: nothing was, as of a simulation.
    """

    tool: BenchmarkTool
    tool_version: str
    simulated: bool
    levels: tuple[LevelResult, ...]
    metrics: BenchmarkMetrics
    elapsed_seconds: Seconds
    quality: QualityAnswers | None = None
    over_tls: bool = False
    dataset: DatasetUse | None = None
    trace: TraceUse | None = None
    load_host: LoadHost | None = None
    engine: EngineFacts | None = None
    canary: Canary | None = None
