"""The offers of all present executors, indexed once for every question about them."""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from schemas.cluster.kubernetes import KubernetesSpec
from schemas.errors import ErrorCode
from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.executor.engine_rules import EngineRules
from schemas.executor.model_shape import ModelShape
from schemas.gpus.checks import CudaRules
from schemas.task.benchmark import BenchmarkTool
from schemas.task.task_file import DeploymentMode, GpuPreferences
from services.orchestrator.domain.installation.offers import CLUSTER_MODES, Offer
from shared.accelerator_rules.cuda_versions import CudaVersion, image_cuda, runtime_cuda
from shared.engines.models import model_refusal
from shared.errors import RefusedError


class Workload(Struct, frozen=True, kw_only=True):
    """What a task runs: its engine in its mode, with what it names in a cluster.

    `gpus` has its nodes by their ids. `engine` is what the task's `base_runtime` stands for.
    """

    model: str
    gpus: GpuPreferences | None
    mode: DeploymentMode
    engine: str
    base_runtime: str
    image_tag: str | None
    kubernetes: KubernetesSpec | None = None


class Installation:
    """What can run here. `offers` are in the order of their executors, so that the first one
    decides wherever several could.
    """

    def __init__(
        self, offers: Iterable[Offer] = (), cuda_rules: CudaRules = CudaRules.STRICT
    ) -> None:
        self.offers = tuple(sorted(offers, key=lambda offer: offer.executor_id))
        self.cuda_rules = cuda_rules
        self.engines = _find_engines(self.offers)
        self._by_mode: dict[DeploymentMode, list[tuple[Offer, RuntimeOffer]]] = {
            mode: [(offer, runtime) for offer in self.offers for runtime in offer.in_mode(mode)]
            for mode in DeploymentMode
        }

    def in_mode(self, mode: DeploymentMode) -> Sequence[tuple[Offer, RuntimeOffer]]:
        """Return what runs in a mode, and on which executor."""
        return self._by_mode[mode]

    def list_engines(self, mode: DeploymentMode | None = None) -> Sequence[str]:
        """Return the engines that are known here; for servers that run already those alone of which
        such are measured.
        """
        if mode is not DeploymentMode.ENDPOINT:
            return self.engines
        return sorted({name for offer in self.offers for name in offer.endpoint_engines})

    def find_engine(self, base_runtime: str, mode: DeploymentMode | None = None) -> str | None:
        """Return the engine that a `base_runtime` names, case ignored; None if it is none here."""
        engines = self.list_engines(mode)
        if base_runtime in engines:
            return base_runtime
        name = base_runtime.casefold()
        return next((engine for engine in engines if engine.casefold() == name), None)

    def find_engine_of_runtime(self, name: str | None) -> str | None:
        """Return the engine of a ClusterServingRuntime, as executors of clusters report it."""
        runtimes = (runtime for _, runtime in self.in_mode(DeploymentMode.OME))
        return next(
            (
                runtime.serving_runtimes[name]
                for runtime in runtimes
                if name is not None and name in runtime.serving_runtimes
            ),
            None,
        )

    def find_running(self, mode: DeploymentMode, engine: str) -> tuple[Offer, ...]:
        """Return the offers that start the engine in this mode."""
        return tuple(offer for offer in self.offers if offer.serves(mode, engine))

    def find_serving(self, workload: Workload) -> tuple[Offer, ...]:
        """Return the offers that start the engine and would read the model, on a node or in the
        cluster that the task allows.
        """
        gpus, mode = workload.gpus, workload.mode
        allowed = set(gpus.nodes) if gpus else set()
        if mode in CLUSTER_MODES:
            allowed = {gpus.cluster} if gpus and gpus.cluster else set()
        return tuple(
            offer
            for offer in self.find_running(mode, workload.engine)
            if offer.opens(workload.model, mode) and (not allowed or offer.executor_id in allowed)
        )

    def find_eligible(self, workload: Workload, tool: BenchmarkTool) -> tuple[str, ...]:
        """Return the executors that serve the workload and measure it with this tool."""
        return tuple(
            offer.executor_id for offer in self.find_serving(workload) if offer.measures(tool)
        )

    def find_rules(self, mode: DeploymentMode, engine: str) -> EngineRules:
        """Return what a task may give the engine, by the first executor; in this mode, if any
        offers it.
        """
        runtime = self._find_knowing(mode, engine)
        return runtime.engine_rules[engine] if runtime is not None else EngineRules()

    def find_variables(self, mode: DeploymentMode, engine: str) -> tuple[str, ...]:
        """Return what a task may set of the engine's environment, by the same executor."""
        runtime = self._find_knowing(mode, engine)
        return runtime.task_variables if runtime is not None else ()

    def _find_knowing(self, mode: DeploymentMode, engine: str) -> RuntimeOffer | None:
        everywhere = (runtime for offer in self.offers for runtime in offer.runtimes)
        runtimes = (*(runtime for _, runtime in self.in_mode(mode)), *everywhere)
        return next((runtime for runtime in runtimes if engine in runtime.engine_rules), None)

    def find_precisions(self, model: str) -> tuple[str, ...]:
        """Return those that the model's config.json names; empty if no executor has it."""
        return next(
            (
                runtime.model_precisions[name]
                for runtime, name in self._names_of(model)
                if name in runtime.model_precisions
            ),
            (),
        )

    def find_shape(self, model: str) -> ModelShape | None:
        """Return the shape by the model's config.json; None if no executor can read it."""
        return next(
            (
                runtime.model_shapes[name]
                for runtime, name in self._names_of(model)
                if name in runtime.model_shapes
            ),
            None,
        )

    def find_cuda(self, workload: Workload) -> CudaVersion | None:
        """Return the CUDA of the engine's image: the newest that an executor has under the task's
        tag, else what the tag itself names.
        """
        tag, engine = workload.image_tag, workload.engine
        name = f"{engine}:{tag}" if tag else engine
        versions = [
            runtime.image_cuda[name]
            for _, runtime in self.in_mode(workload.mode)
            if name in runtime.image_cuda
        ]
        if not versions and (version := image_cuda(name, (), {})) is not None:
            versions = [version]
        return max(map(runtime_cuda, versions), default=None)

    def refuse_unreadable(self, name: str | None, path: str, mode: DeploymentMode) -> None:
        """Raise RefusedError for the name of a model or tokenizer that no node would read."""
        present = self.in_mode(mode)
        if name is None or not present or any(offer.opens(name, mode) for offer, _ in present):
            return
        refusals = (model_refusal(name, runtime.model_roots or ()) for _, runtime in present)
        refusal = next(refusal for refusal in refusals if refusal is not None)
        raise RefusedError(ErrorCode.BAD_REQUEST, refusal, path=path)

    def find_reasons(self, names: set[str], mode: DeploymentMode) -> Mapping[str, tuple[str, ...]]:
        """Return what executors report missing for any of `names` in this mode, and which do."""
        nodes: dict[str, list[str]] = {}
        for offer, runtime in self.in_mode(mode):
            for name, reason in runtime.missing.items():
                if name in names:
                    nodes.setdefault(reason, []).append(offer.executor_id)
        return {reason: tuple(executor_ids) for reason, executor_ids in nodes.items()}

    def _names_of(self, model: str) -> Iterator[tuple[RuntimeOffer, str]]:
        """Yield what the model may be called in each offer: by itself, and below each root."""
        path = posixpath.normpath(model)
        for offer in self.offers:
            for runtime in offer.runtimes:
                yield runtime, path
                for root in runtime.model_roots or ():
                    below = f"{posixpath.normpath(root).rstrip('/')}/"
                    if path.startswith(below):
                        yield runtime, path[len(below) :]


def _find_engines(offers: Iterable[Offer]) -> tuple[str, ...]:
    """Return the engines that executors know, those that they lack something for included."""
    names = {
        name
        for offer in offers
        for runtime in offer.runtimes
        for name in (*runtime.engines, *runtime.missing, *runtime.engine_rules)
    }
    return tuple(sorted(names - {runtime.value for runtime in Runtime}))
