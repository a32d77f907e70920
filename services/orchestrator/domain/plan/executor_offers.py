"""What the present executors offer, and which of them can run a task."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.executor.engine_rules import EngineRules, TaskField
from schemas.executor.model_shape import ModelShape
from schemas.task.benchmark import BenchmarkTool
from schemas.task.task_file import DeploymentMode, TaskFile
from shared.accelerator_rules.cuda_versions import CudaVersion, image_cuda, runtime_cuda
from shared.engine_parameters.models import model_refusal
from shared.errors import RefusedError

SHOWN_NODES: Final = 5
# Their executors are clusters, and nodes are the cluster's own.
CLUSTER_MODES: Final = frozenset({DeploymentMode.OME, DeploymentMode.KUBERNETES})


class Offer(Struct, frozen=True, kw_only=True):
    """What one present executor can run."""

    executor_id: str
    runtimes: tuple[RuntimeOffer, ...]
    benchmark_tools: tuple[str, ...] = ()

    def serves(self, mode: DeploymentMode, engine: str) -> bool:
        return any(engine in runtime.engines for runtime in self.in_mode(mode))

    def measures(self, tool: BenchmarkTool) -> bool:
        return tool.value in self.benchmark_tools

    def opens(self, model: str, mode: DeploymentMode) -> bool:
        """Whether it would read this model, as far as the name shows."""
        return any(
            runtime.model_roots is None or model_refusal(model, runtime.model_roots) is None
            for runtime in self.in_mode(mode)
        )

    def in_mode(self, mode: DeploymentMode) -> Iterator[RuntimeOffer]:
        return (runtime for runtime in self.runtimes if runtime.runtime.value == mode.value)


def known_engines(offers: Sequence[Offer]) -> tuple[str, ...]:
    """Engines that executors know, those that they lack something for included."""
    found = {
        name
        for offer in offers
        for runtime in offer.runtimes
        for name in (
            *(*runtime.engines, *runtime.missing),
            *(*runtime.engine_flags, *runtime.engine_rules),
        )
    }
    return tuple(sorted(found - {runtime.value for runtime in Runtime}))


def engine_rules(engine: str, mode: DeploymentMode, offers: Sequence[Offer]) -> EngineRules:
    """What a task may give the engine, by the first executor; in this mode, if any offers it."""
    ordered = sorted(offers, key=lambda offer: offer.executor_id)
    for runtime in (
        *(runtime for offer in ordered for runtime in offer.in_mode(mode)),
        *(runtime for offer in ordered for runtime in offer.runtimes),
    ):
        if engine in runtime.engine_rules:
            return runtime.engine_rules[engine]
        if engine in runtime.engine_flags:  # an executor of an older release
            flags = runtime.engine_flags[engine]
            return EngineRules(task_fields={name: TaskField(flag=flags[name]) for name in flags})
    return EngineRules()


def precisions_offered(model: str, offers: Sequence[Offer]) -> tuple[str, ...]:
    """Those that the model's config.json names, as the first executor has it; empty if none has."""
    for runtime in _in_order(offers):
        for name in _names(model, runtime.model_roots or ()):
            if name in runtime.model_precisions:
                return runtime.model_precisions[name]
    return ()


def shape_offered(model: str, offers: Sequence[Offer]) -> ModelShape | None:
    """By the model's config.json, as the first executor that can read it has it."""
    for runtime in _in_order(offers):
        for name in _names(model, runtime.model_roots or ()):
            if name in runtime.model_shapes:
                return runtime.model_shapes[name]
    return None


def cuda_offered(
    engine: str, tag: str | None, offers: Sequence[Offer], mode: DeploymentMode
) -> CudaVersion | None:
    """The CUDA of the engine's image: the newest that an executor has under that tag, else what
    the tag itself names.
    """
    name = f"{engine}:{tag}" if tag else engine
    runtimes = (runtime for offer in offers for runtime in offer.in_mode(mode))
    named = [each.image_cuda[name] for each in runtimes if name in each.image_cuda]
    named = named or [each for each in (image_cuda(name, (), {}),) if each is not None]
    return max(map(runtime_cuda, named), default=None)


def _in_order(offers: Sequence[Offer]) -> Iterator[RuntimeOffer]:
    for offer in sorted(offers, key=lambda offer: offer.executor_id):
        yield from offer.runtimes


def _names(model: str, roots: Sequence[str]) -> Iterator[str]:
    """What it may be called in an offer: by itself, and below each root."""
    path = posixpath.normpath(model)
    yield path
    for root in roots:
        below = f"{posixpath.normpath(root).rstrip('/')}/"
        if path.startswith(below):
            yield path[len(below) :]


def refuse_unread(
    name: str | None, path: str, mode: DeploymentMode, offers: Sequence[Offer]
) -> None:
    """Raises RefusedError for the name of a model, or of a tokenizer, that no node would read."""
    present = [runtime for offer in offers for runtime in offer.in_mode(mode)]
    if name is None or not present or any(offer.opens(name, mode) for offer in offers):
        return
    refusals = (model_refusal(name, runtime.model_roots or ()) for runtime in present)
    refusal = next(each for each in refusals if each is not None)
    raise RefusedError(ErrorCode.BAD_REQUEST, refusal, path=path)


def serving_offers(
    task: TaskFile, mode: DeploymentMode, engine: str, offers: Sequence[Offer]
) -> tuple[Offer, ...]:
    """Those that start the engine in this mode and would read the model, on a node or in the
    cluster that the task allows, by node.
    """
    allowed = set(task.gpus.nodes) if task.gpus else set()
    if mode in CLUSTER_MODES:
        allowed = {task.gpus.cluster} if task.gpus and task.gpus.cluster else set()
    return tuple(
        offer
        for offer in sorted(offers, key=lambda offer: offer.executor_id)
        if offer.serves(mode, engine)
        and offer.opens(task.model.id_or_path, mode)
        and (not allowed or offer.executor_id in allowed)
    )


def eligible_nodes(
    task: TaskFile, mode: DeploymentMode, engine: str, offers: Sequence[Offer], tool: BenchmarkTool
) -> tuple[str, ...]:
    """The executors that can run this engine in this mode and measure it with this tool, of those
    that the task allows.
    """
    serving = serving_offers(task, mode, engine, offers)
    return tuple(offer.executor_id for offer in serving if offer.measures(tool))


def reasons_why_not(
    names: set[str], mode: DeploymentMode, offers: Sequence[Offer]
) -> Mapping[str, tuple[str, ...]]:
    """What executors report missing for any of `names` in this mode, and which of them."""
    found: dict[str, list[str]] = {}
    for offer in offers:
        for runtime in offer.in_mode(mode):
            for name, reason in runtime.missing.items():
                if name in names:
                    found.setdefault(reason, []).append(offer.executor_id)
    return {reason: tuple(nodes) for reason, nodes in found.items()}


def named(nodes: Sequence[str]) -> str:
    """Nodes by name, for people: some of them, if they are many."""
    shown = ", ".join(nodes[:SHOWN_NODES])
    hidden = len(nodes) - SHOWN_NODES
    return f"{shown} and {hidden} more" if hidden > 0 else shown
