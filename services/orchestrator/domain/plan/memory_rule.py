"""How much memory an experiment asks of each GPU by a rule of thumb, and what is said of it."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from schemas.executor.model_shape import ModelShape
from schemas.orchestrator.views import MemoryEstimate, PlannedExperiment
from schemas.task.modality import Modality
from schemas.task.task_file import BenchmarkConfig, MemorySource
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.plan.sizing import degrees_of
from shared.benchmarks.traffic import UnsupportedTraffic, parse_scenario
from shared.gpu.model_memory import (
    USUAL_BYTES,
    ModelMemory,
    bytes_named,
    model_name,
    parameters_named,
    values_cached,
)
from shared.gpu.sizing import hyphenate, memory_per_gpu_mb

USABLE: Final = 0.95  # of a GPU's memory: its driver keeps some
UNKNOWN_TOKENS: Final = 4096  # of a request, where its scenario does not tell
_SAMPLES: Final = 50
_LENGTH_FLAGS: Final = ("max-model-len", "context-length", "ctx-size", "max-seq-len")
_SAID_BY: Final = {
    MemorySource.MODEL_NAME: "by the model's name",
    MemorySource.MODEL_CONFIG: "by its config.json",
}
SIMULATED: Final = "simulated"  # begins the names of engines that compute nothing
HOW_TO_SET: Final = "gpus.min_memory_mb sets another"


def tokens_of_request(benchmark: BenchmarkConfig) -> int:
    """Return the tokens of the longest of some requests, prompt and answer, with all its turns."""
    random = Random(0)  # noqa: S311 - repeatable, not secret
    longest = 0
    for scenario in benchmark.traffic_scenarios:
        try:
            sample = parse_scenario(scenario)
        except UnsupportedTraffic:
            sample = None
        if sample is None or benchmark.modality is Modality.IMAGES:
            # How many tokens an image is differs by model.
            longest = max(longest, UNKNOWN_TOKENS)
            continue
        sizes = [sample(random) for _ in range(_SAMPLES)]
        longest = max(longest, *(size.num_input_tokens + size.num_output_tokens for size in sizes))
    return longest * benchmark.turns


def estimate_memory(
    model: str,
    point: Point,
    flags: Mapping[str, Any],
    shape: ModelShape | None = None,
    precisions: Sequence[str] = (),
    tokens: int = UNKNOWN_TOKENS,
) -> MemoryEstimate:
    """Return the estimate for a configuration, whose `flags` are the engine's own.

    `shape` and `precisions` are of the model's config.json, `tokens` those of the longest request,
    where no flag says how long a sequence may be. Without a known size it is the documented one.
    """
    named_parameters = parameters_named(model)
    parameters = float(shape.weights) if shape is not None else named_parameters
    if parameters is None:
        return MemoryEstimate(memory_mb=memory_per_gpu_mb(model), source=MemorySource.DEFAULT)
    values = {hyphenate(name): value for name, value in flags.items()}
    divisor, degrees = _count_sharing_gpus(point, values)
    rule = ModelMemory(
        parameters=parameters,
        bytes_each=_weight_bytes(model, values, precisions),
        tokens=_length(values) or tokens,
        values_of_token=shape.cached_values if shape is not None else values_cached(parameters),
        bytes_cached=bytes_named(str(values.get("kv-cache-dtype") or "")) or USUAL_BYTES,
        divisor=divisor,
    )
    source = MemorySource.MODEL_NAME if shape is None else MemorySource.MODEL_CONFIG
    return MemoryEstimate(memory_mb=rule.memory_mb, source=source, terms=rule.in_words(degrees))


def request_mb(estimate: MemoryEstimate, largest_mb: int | None) -> int:
    """Return the memory to ask for: the estimate, or what the largest GPU there is can give."""
    return min(estimate.memory_mb, usable_mb(largest_mb) or estimate.memory_mb)


def usable_mb(largest_mb: int | None) -> int | None:
    return None if largest_mb is None else int(largest_mb * USABLE)


def fit_request(planned: PlannedExperiment, largest_mb: int | None) -> PlannedExperiment:
    """Return the experiment with a request that the largest GPU can serve, as far as memory goes.

    What the task itself asks for stays.
    """
    estimate = planned.memory_estimate
    if estimate is None or estimate.memory_mb != planned.request.min_memory_mb:
        return planned
    request = replace(planned.request, min_memory_mb=request_mb(estimate, largest_mb))
    return replace(planned, request=request)


def memory_warnings(
    model: str, planned: Sequence[PlannedExperiment], largest_mb: int | None
) -> Iterator[str]:
    """Say that the model's size is not known, or for which configurations no GPU is large enough.

    `planned` are as estimated, not yet fitted.
    """
    estimates = [
        experiment.memory_estimate
        for experiment in planned
        if experiment.memory_estimate is not None
    ]
    if not estimates:
        return
    if estimates[0].source is MemorySource.DEFAULT:
        if not planned[0].engine.engine.startswith(SIMULATED):
            yield (
                f"memory: nothing tells the size of {model!r}, so {estimates[0].memory_mb:,} MiB of"
                f" each GPU are asked for; {HOW_TO_SET}"
            )
        return
    room_mb = usable_mb(largest_mb)
    too_large = sum(room_mb is not None and estimate.memory_mb > room_mb for estimate in estimates)
    if too_large:
        which = "no configuration fits" if too_large == len(estimates) else "not all of them fit"
        yield (
            f"memory: by a rule of thumb {which}, as the largest GPU that the task may take has"
            f" {largest_mb:,} MiB: {room_mb:,} MiB are asked for; more tensor parallelism or a"
            " quantized model needs less"
        )


def memory_terms(planned: Sequence[PlannedExperiment]) -> Iterator[str]:
    """Say how the memory of each GPU was estimated, with the terms of the largest estimate."""
    estimates = sorted(
        (
            experiment.memory_estimate
            for experiment in planned
            if experiment.memory_estimate is not None
            and experiment.memory_source is not MemorySource.HISTORY
        ),
        key=lambda estimate: estimate.memory_mb,
    )
    if not estimates or not estimates[-1].terms:
        return
    least, most = estimates[0], estimates[-1]
    more = f"; the smallest {least.memory_mb:,} MiB" if least.memory_mb < most.memory_mb else ""
    yield (
        f"memory of each GPU, a rule of thumb {_SAID_BY[most.source]}: {most.terms}{more};"
        f" {HOW_TO_SET}"
    )


def _count_sharing_gpus(point: Point, flags: Mapping[str, Any]) -> tuple[int, str]:
    """Return how many GPUs share each weight's place, and the degrees that say so."""
    degrees = dict.fromkeys(("tp", "pp", "dp"), 1)
    for kind, value in degrees_of(point):
        if kind in degrees:
            degrees[kind] = max(degrees[kind], value)
    divisor, words = degrees["tp"], f"tp {degrees['tp']}"
    if degrees["pp"] > 1:
        divisor, words = divisor * degrees["pp"], f"{words} x pp {degrees['pp']}"
    if degrees["dp"] > 1 and flags.get("enable-expert-parallel") is True:
        divisor, words = divisor * degrees["dp"], f"{words} x dp {degrees['dp']} (experts)"
    return divisor, words if " x " not in words else f"({words})"


def _weight_bytes(model: str, flags: Mapping[str, Any], precisions: Sequence[str]) -> float:
    """Return the bytes of a weight: by a quantization (flag, config.json, name), else by data
    type.
    """
    quantized = (str(flags.get("quantization") or ""), *precisions, model_name(model))
    for text in quantized:
        size = bytes_named(text)
        if size is not None and size < USUAL_BYTES:
            return size
    return bytes_named(str(flags.get("dtype") or "")) or USUAL_BYTES


def _length(flags: Mapping[str, Any]) -> int | None:
    """Return the longest sequence that a flag allows; None where none says it in plain tokens."""
    values = [flags.get(name) for name in _LENGTH_FLAGS]
    lengths = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    return max((length for length in lengths if length > 0), default=None)
