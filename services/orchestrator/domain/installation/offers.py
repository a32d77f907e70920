"""What one executor offers, as it is stored."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.task.benchmark import BenchmarkTool
from schemas.task.task_file import DeploymentMode
from shared.engines.models import model_refusal

MAX_SHOWN_NODES: Final = 5
# Their executors are clusters, and nodes are the cluster's own.
CLUSTER_MODES: Final = frozenset({DeploymentMode.OME, DeploymentMode.KUBERNETES})


class Offer(Struct, frozen=True, kw_only=True):
    """What one present executor can run."""

    executor_id: str
    runtimes: tuple[RuntimeOffer, ...]
    benchmark_tools: tuple[str, ...] = ()
    endpoint_engines: tuple[str, ...] = ()

    def serves(self, mode: DeploymentMode, engine: str) -> bool:
        return any(engine in runtime.engines for runtime in self.in_mode(mode))

    def measures(self, tool: BenchmarkTool) -> bool:
        return tool.value in self.benchmark_tools

    def opens(self, model: str, mode: DeploymentMode) -> bool:
        """Return whether it would read this model, as far as the name shows."""
        return any(
            runtime.model_roots is None or model_refusal(model, runtime.model_roots) is None
            for runtime in self.in_mode(mode)
        )

    def in_mode(self, mode: DeploymentMode) -> Iterator[RuntimeOffer]:
        if mode is DeploymentMode.ENDPOINT and self.endpoint_engines:
            return iter((RuntimeOffer(runtime=Runtime.ENDPOINT, engines=self.endpoint_engines),))
        return (runtime for runtime in self.runtimes if runtime.runtime.value == mode.value)


def name_nodes(nodes: Sequence[str]) -> str:
    """Return nodes by name, for people: some of them, if they are many."""
    first_names = ", ".join(nodes[:MAX_SHOWN_NODES])
    hidden = len(nodes) - MAX_SHOWN_NODES
    return f"{first_names} and {hidden} more" if hidden > 0 else first_names
