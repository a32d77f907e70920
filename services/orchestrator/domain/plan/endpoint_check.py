"""Whether a task may measure the server that it names: nothing is set of it, and no load goes
beyond its limits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from schemas.errors import ErrorCode
from schemas.task.benchmark import BenchmarkTool, LoadKind
from schemas.task.endpoint import EndpointConfig
from schemas.task.task_file import BenchmarkConfig, DeploymentMode, TaskFile
from shared.benchmarks.arrivals import loads, mean_rate_per_s
from shared.benchmarks.tools.spec_check import load_spec
from shared.errors import Mistakes, RefusedError

# Each would have to be given to a server that is started.
_OF_STARTED: Final = (
    *("runtime_image_tag", "storage", "clusterbasemodel_config", "clusterservingruntime_config"),
    *("presets", "parameters", "configurations", "parallel_config", "quant_config", "gpus"),
    *("engines", "env"),
)


def refuse_bad_endpoint(task: TaskFile) -> None:
    """Raise RefusedError with every field that does not go with a server that runs already."""
    mistakes = Mistakes()
    endpoint = task.endpoint
    if endpoint is None:
        if task.deployment_mode is DeploymentMode.ENDPOINT:
            raise _refusal("$.endpoint", "expected the address of the server to measure, got none")
        return
    if task.deployment_mode not in (None, DeploymentMode.ENDPOINT):
        raise _refusal(
            "$.deployment_mode",
            f"expected 'endpoint', or none, with an endpoint, got '{task.deployment_mode.value}'",
        )
    for name in _OF_STARTED:
        if getattr(task, name):
            with mistakes.collect():
                raise _refusal(
                    f"$.{name}",
                    f"expected no {name} with an endpoint: the server runs already, as it was "
                    "started",
                )
    if endpoint.api_key is not None and endpoint.api_key not in task.secrets:
        with mistakes.collect():
            raise _refusal(
                "$.endpoint.api_key",
                f"expected the name of one of the task's `secrets`, got {endpoint.api_key!r}",
            )
    if endpoint.node is None and (endpoint.gpu_indices or endpoint.pod or endpoint.container):
        with mistakes.collect():
            raise _refusal("$.endpoint.node", "expected the node on which the GPUs are, got none")
    for path, message in _find_excess(endpoint, task.benchmark):
        with mistakes.collect():
            raise _refusal(path, message)
    mistakes.refuse()


def _find_excess(endpoint: EndpointConfig, benchmark: BenchmarkConfig) -> Iterator[tuple[str, str]]:
    """Yield each load beyond a limit of the endpoint: its field, and a sentence."""
    search = benchmark.load_search
    if search is not None:
        is_closed = search.load is LoadKind.CONCURRENCY
        at_once, rate_per_s = (search.max, None) if is_closed else (None, search.max)
        yield from _judge(endpoint, _Load("$.benchmark.load_search.max", at_once, rate_per_s))
        return
    is_open = any(not text.startswith("closed") for text in benchmark.arrivals)
    if is_open and endpoint.max_concurrency is not None and benchmark.tool is BenchmarkTool.AIPERF:
        yield "$.benchmark.tool", _UNBOUNDED_BY_AIPERF
    spec = load_spec(benchmark, "", BenchmarkTool.BUILTIN)
    name = "arrivals" if benchmark.arrivals else "num_concurrency"
    for place, load in enumerate(loads(spec)):
        rate_per_s = mean_rate_per_s(load.arrivals or "")
        path = f"$.benchmark.{name}[{place}]"
        at_once = load.concurrency if load.arrivals is None else None
        yield from _judge(endpoint, _Load(path, at_once, rate_per_s))


@dataclass(frozen=True, slots=True)
class _Load:
    """A load of the benchmark. `at_once` None: as many as the limit lets; `rate_per_s` None: as
    fast as answers, or the times of a trace, let it.
    """

    path: str
    at_once: float | None
    rate_per_s: float | None


def _judge(endpoint: EndpointConfig, load: _Load) -> Iterator[tuple[str, str]]:
    most, most_rate = endpoint.max_concurrency, endpoint.max_requests_per_second
    if most is not None and load.at_once is not None and load.at_once > most:
        yield load.path, _beyond(load.at_once, most, "max_concurrency")
    if most_rate is None:
        return
    if load.rate_per_s is None:
        yield load.path, _UNBOUNDED
    elif load.rate_per_s > most_rate:
        yield load.path, _beyond(load.rate_per_s, most_rate, "max_requests_per_second")


_UNBOUNDED_BY_AIPERF: Final = (
    "expected 'builtin' or 'auto' with the endpoint's max_concurrency, which AIPerf does not keep "
    "where requests arrive at a rate"
)
_UNBOUNDED: Final = (
    "expected arrivals at a rate, such as poisson(2), with max_requests_per_second: a closed loop "
    "or a trace sends as fast as answers or its times let it"
)


def _beyond(load: float, limit: float, name: str) -> str:
    return f"expected at most {limit:g}, the endpoint's {name}, got {load:g}"


def _refusal(path: str, message: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
