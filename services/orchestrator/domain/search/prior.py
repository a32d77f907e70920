"""What a configuration should do by the limits of its GPUs, before anything is measured: a roofline
of memory bandwidth and arithmetic. It orders first proposals and decides nothing.
"""

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from msgspec import Struct

from schemas.executor.model_shape import ModelShape
from schemas.task.benchmark import BenchmarkMetrics
from schemas.task.objectives import Objective
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.search.forecast import Forecasts, Question, engine_asked
from services.orchestrator.domain.search.space import Place, Space
from shared.benchmarks.verdicts.ranking import score
from shared.gpu.gpu_speeds import SPEEDS, GpuSpeed, speed_of
from shared.gpu.model_memory import USUAL_BYTES, bytes_named
from shared.gpu.sizing import degree_named, hyphenate

DEFAULT_GPU: Final = SPEEDS[4]  # H100
_COUNTED: Final = 2_000  # configurations of which the best predicted is chosen
_USABLE: Final = 0.9  # of a GPU's memory
_ALL_REDUCE_SECONDS: Final = 1e-5  # between GPUs, twice a layer
_GEMM_FLAGS: Final = ("quantization", "gemm-dtype", "dtype")
_CACHE_FLAGS: Final = ("kv-cache-dtype", "kvcache-dtype")
_BATCH_FLAGS: Final = frozenset(
    {"max-batch-size", "max-num-seqs", "max-running-requests", "parallel"}
)


class Prior(Struct, frozen=True, kw_only=True):
    """Fixed when the task is submitted, so that its history stays what it is. `loads` are its
    requests at once; the prompts have `input_tokens`.
    """

    shape: ModelShape
    gpu: GpuSpeed
    objective: Objective
    input_tokens: float
    output_tokens: float
    loads: tuple[int, ...]
    # Of models that engines of the task have in place of its own; None: not known.
    other_shapes: dict[str, ModelShape | None] = {}
    # Of the engine and model that a configuration has where it names none.
    engine: str = ""
    model: str = ""
    forecasts: Forecasts | None = None  # in place of the roofline

    def shape_of(self, point: Point) -> ModelShape | None:
        """Return the shape of the model that a configuration serves."""
        return self.other_shapes.get(point.engine.get("model", ""), self.shape)

    def order(self, point: Point) -> float | None:
        """The smaller the better; None: it does not fit, or its model is not known.

        What no score is predicted of goes by a GPU's output per second.
        """
        if self.shape_of(point) is None:
            return None
        predictions = [predict(self, point, load) for load in self.loads]
        if not all(prediction.fits for prediction in predictions):
            return None
        predicted = predict_score(self, point)
        if predicted is None:
            return -max(prediction.output_per_second for prediction in predictions)
        return -predicted if self.objective.is_maximized else predicted


class Predicted(Struct, frozen=True, kw_only=True):
    """At one load, in seconds; `fits` in the memory of its GPUs."""

    ttft: float
    tpot: float
    e2e: float
    tokens_per_second: float
    output_per_second: float
    fits: bool


def make_prior(
    task: TaskFile,
    shape: ModelShape | None,
    sizes: tuple[float, float] | None,
    other_shapes: Mapping[str, ModelShape | None] | None = None,
) -> tuple[Prior | None, str]:
    """Return the prior with a note. `sizes` are a request's input and output tokens; None: not
    known. `other_shapes` are of the models that engines have in place of the task's.
    """
    shapes_by_model = dict(other_shapes or {})
    shape = shape or next(filter(None, shapes_by_model.values()), None)
    if shape is None:
        return None, "prior: no executor has the model's config.json, so none is used"
    if sizes is None or task.benchmark.arrivals or task.benchmark.turns > 1:
        return None, "prior: requests of unknown size, or that come by time, so none is used"
    speeds = [
        speed for name in (task.gpus.models if task.gpus else ()) if (speed := speed_of(name))
    ]
    gpu = speeds[0] if speeds else DEFAULT_GPU
    why = "" if speeds else ", as the task names no GPU model that is known"
    prior = Prior(
        shape=shape,
        gpu=gpu,
        objective=task.optimization.objective,
        input_tokens=sizes[0],
        output_tokens=sizes[1],
        loads=task.benchmark.num_concurrency,
        other_shapes=shapes_by_model,
        engine=task.base_runtime,
        model=task.model.id_or_path,
    )
    billions = shape.weights / 1e9
    return prior, f"prior: roofline of {billions:.3g} billion weights on {gpu.model}{why}"


def predict_score(prior: Prior, point: Point) -> float | None:
    """Predict the task's objective; None for what a roofline does not predict, such as joules."""
    if prior.shape_of(point) is None:
        return None
    predictions = [predict(prior, point, load) for load in prior.loads]
    if not all(prediction.fits for prediction in predictions):
        return None
    predicted = score(
        prior.objective,
        BenchmarkMetrics(
            mean_e2e_latency=math.fsum(prediction.e2e for prediction in predictions)
            / len(predictions),
            mean_ttft=math.fsum(prediction.ttft for prediction in predictions) / len(predictions),
            mean_tpot=math.fsum(prediction.tpot for prediction in predictions) / len(predictions),
            max_total_throughput_per_gpu=max(
                prediction.tokens_per_second for prediction in predictions
            ),
        ),
    )
    if predicted is None or prior.forecasts is None:
        return predicted
    return predicted * prior.forecasts.ratio_for(_engine_of(prior, point))


def predict(prior: Prior, point: Point, load: int) -> Predicted:
    """Predict one load: `load` requests at once, rates per GPU."""
    flags = _flags(point)
    tp, pp, dp = (_number(flags, kind, 1) for kind in ("tp", "pp", "dp"))
    shape, gpu, part = prior.shape_of(point) or prior.shape, prior.gpu, tp * pp
    waiting = math.ceil(load / dp)
    batch = min([waiting, *(_number(flags, name, waiting) for name in _BATCH_FLAGS)])
    weight_bytes = _bytes(flags, _GEMM_FLAGS)
    cache_bytes = _bytes(flags, _CACHE_FLAGS)
    length = prior.input_tokens + prior.output_tokens / 2
    cached = batch * length * shape.cached_values * cache_bytes
    # With a batch more experts are read than one token passes through; all of them at most.
    read = min(shape.weights, shape.active_weights * batch) * weight_bytes
    bandwidth, flops = gpu.gb_per_second * 1e9 * tp, gpu.tflops * 1e12 * tp
    talk = 2 * shape.layers * _ALL_REDUCE_SECONDS if tp > 1 else 0.0
    step = max((read + cached) / bandwidth, 2 * shape.active_weights * batch / flops) + talk
    prefill = 2 * shape.active_weights * prior.input_tokens * batch / flops + talk
    fits = (shape.weights * weight_bytes + cached) / part <= _USABLE * gpu.memory_gb * 1e9
    if prior.forecasts is not None:
        question = ask_about(prior, point, load)
        forecast = prior.forecasts.find(question) if question is not None else None
        # What it does not know, or what does not fit, has no place in the order.
        fits = forecast is not None
        if forecast is not None:
            prefill, step = forecast.ttft, forecast.tpot
    turn = prefill + prior.output_tokens * step
    turns = waiting / batch
    e2e = turns * turn
    per_second = load / e2e / (part * dp)
    return Predicted(
        ttft=(turns - 1) * turn / 2 + prefill,
        tpot=step,
        e2e=e2e,
        tokens_per_second=per_second * (prior.input_tokens + prior.output_tokens),
        output_per_second=per_second * prior.output_tokens,
        fits=fits,
    )


def ask_about(prior: Prior, point: Point, load: int) -> Question | None:
    """Return what AIConfigurator is asked about a configuration; None where it can say nothing."""
    flags = _flags(point)
    engine = engine_asked(_engine_of(prior, point))
    gemm, kvcache = (_mode(flags, names) for names in (_GEMM_FLAGS, _CACHE_FLAGS))
    if engine is None or gemm is None or kvcache is None:
        return None
    tp, pp, dp = (_number(flags, kind, 1) for kind in ("tp", "pp", "dp"))
    waiting = math.ceil(load / dp)
    return Question(
        engine=engine,
        model=point.engine.get("model", prior.model),
        tp=tp,
        pp=pp,
        batch=min([waiting, *(_number(flags, name, waiting) for name in _BATCH_FLAGS)]),
        gemm=gemm,
        kvcache=kvcache,
    )


def questions_about(prior: Prior, space: Space, most: int) -> tuple[Question, ...]:
    """Return what is asked about a space, each once, and at most so many."""
    if space.size is not None and space.size <= _COUNTED:
        places = list(space.places())
    else:
        random = Random(0)  # noqa: S311  # repeatable, not secret
        places = [space.draw(random) for _ in range(_COUNTED)]
    questions: dict[Question, None] = {}
    for place in places:
        for load in prior.loads:
            question = ask_about(prior, space.point(place), load)
            if question is not None and len(questions) < most:
                questions[question] = None
    return tuple(questions)


def best_predicted(
    prior: Prior, space: Space, random: Random, is_wanted: Callable[[Place], bool]
) -> Place | None:
    """Return the best predicted place, of all or of as many drawn from a large space.

    None: nothing fits or is wanted.
    """
    if space.size is not None and space.size <= _COUNTED:
        places = list(space.places())
    else:
        places = [space.draw(random) for _ in range(_COUNTED)]
    orders = [(prior.order(space.point(place)), place) for place in places]
    predicted = sorted(
        (
            # None, of another engine, has no order.
            (order, [-1 if at is None else at for at in place], place)
            for order, place in orders
            if order is not None
        ),
        key=lambda entry: entry[:2],
    )
    return next((place for _, _, place in predicted if is_wanted(place)), None)


def _engine_of(prior: Prior, point: Point) -> str:
    return str(point.engine.get("base_runtime", prior.engine))


def _mode(flags: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """Return AIConfigurator's mode of a flag, empty for the model's own; None: it has none."""
    value = next((str(flags[name]).lower() for name in names if flags.get(name)), "auto")
    if value in {"auto", "default", "bfloat16", "float16", "fp16"}:
        return ""
    return "fp8" if value.startswith("fp8") else None


def _flags(point: Point) -> dict[str, Any]:
    """Return flags by their usual names, of typed blocks and parameters, which go first."""
    return {
        degree_named(name) or hyphenate(name): value
        for block in (point.quant, point.parallel, point.parameters)
        for name, value in block.items()
    }


def _number(flags: Mapping[str, Any], name: str, default: int) -> int:
    value = flags.get(name)
    return value if isinstance(value, int) and value > 0 else default


def _bytes(flags: Mapping[str, Any], names: tuple[str, ...]) -> float:
    sizes = (bytes_named(str(flags.get(name) or "")) for name in names)
    return next((size for size in sizes if size is not None), USUAL_BYTES)
