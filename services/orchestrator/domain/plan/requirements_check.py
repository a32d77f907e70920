"""What an installation lacks for a task: the field that needs it, and how to get it."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from schemas.task.benchmark import BenchmarkTool
from schemas.task.task_file import DeploymentMode, TaskFile
from services.orchestrator.domain.plan.engines import engine_of
from services.orchestrator.domain.plan.executor_offers import (
    CLUSTER_MODES,
    Offer,
    eligible_nodes,
    known_engines,
    named,
    reasons_why_not,
)
from services.orchestrator.domain.plan.tools import INSTALL_HINTS
from shared.near_words import did_you_mean


class Missing(Struct, frozen=True, kw_only=True):
    """Something that this installation lacks; `path` is the field of the task that needs it."""

    path: str
    sentence: str


def missing_nodes(
    task: TaskFile, mode: DeploymentMode, engine: str, offers: Sequence[Offer], tool: BenchmarkTool
) -> Iterator[Missing]:
    """Why fewer nodes can run the task than it needs; nothing if enough can."""
    nodes = eligible_nodes(task, mode, engine, offers, tool)
    wanted = task.gpus.num_nodes if task.gpus else 1
    if len(nodes) >= wanted:
        return
    if nodes:
        yield Missing(
            path="$.gpus.num_nodes",
            sentence=f"each experiment asks for {wanted} nodes; those that run {engine!r} in mode "
            f"'{mode.value}' are {len(nodes)}: {named(nodes)}",
        )
        return
    yield _missing_runtime(task, mode, engine, offers, tool)


def missing_field(
    engine: str, block: str, field: str, value: object, taken: Sequence[str]
) -> Missing:
    """A field of a typed block, or a value of it, that the engine cannot take."""
    sentence = f"engine {engine!r} has no flag for {block}.{field}"
    if taken:
        known = ", ".join(taken)
        sentence = f"engine {engine!r} takes {known} as {block}.{field}, not {value!r}"
    return Missing(path=f"$.{block}.{field}", sentence=sentence)


def _missing_runtime(
    task: TaskFile, mode: DeploymentMode, engine: str, offers: Sequence[Offer], tool: BenchmarkTool
) -> Missing:
    if not offers:
        return Missing(
            path="$.deployment_mode", sentence="no executor of this installation is present"
        )
    serving = [offer for offer in offers if offer.serves(mode, engine)]
    if not serving:
        return _missing_engine(task, mode, engine, offers)
    if not any(offer.measures(tool) for offer in serving):
        how = f" ({INSTALL_HINTS[tool]})" if tool in INSTALL_HINTS else ""
        return Missing(
            path="$.benchmark.tool",
            sentence=f"no executor that runs {engine} has the benchmark tool '{tool.value}'{how}",
        )
    able = named([offer.executor_id for offer in serving if offer.measures(tool)])
    if mode in CLUSTER_MODES:
        return Missing(
            path="$.gpus.cluster",
            sentence=f"the cluster asked for does not run {engine} in mode '{mode.value}'; "
            f"these do: {able}",
        )
    return Missing(
        path="$.gpus.nodes",
        sentence=f"none of the nodes asked for runs {engine} in mode '{mode.value}'; "
        f"these do: {able}",
    )


def _missing_engine(
    task: TaskFile, mode: DeploymentMode, engine: str, offers: Sequence[Offer]
) -> Missing:
    reasons = reasons_why_not({engine, mode.value}, mode, offers)
    why = "; ".join(f"{named(nodes)}: {reason}" for reason, nodes in reasons.items())
    why = f" ({why})" if why else ""
    if mode is DeploymentMode.OME and engine_of(task.base_runtime, known_engines(offers)) is None:
        known = known_engines(offers)
        meant = did_you_mean(task.base_runtime, known)
        what = f"is no engine of {', '.join(known)} and so counts"
        if meant:
            what = f"is no engine{meant} It counts"
        return Missing(
            path="$.base_runtime",
            sentence=f"{task.base_runtime!r} {what} as a ClusterServingRuntime, but "
            f"{_no_such_runtime(offers)}{why}",
        )
    elsewhere = _other_modes(mode, engine, offers)
    if any(runtime.engines for offer in offers for runtime in offer.in_mode(mode)):
        return Missing(
            path="$.base_runtime",
            sentence=f"no executor runs engine {engine!r} in mode '{mode.value}'{why}{elsewhere}"
            f"{did_you_mean(engine, known_engines(offers))}",
        )
    return Missing(
        path="$.deployment_mode", sentence=f"no executor runs mode '{mode.value}'{why}{elsewhere}"
    )


def _no_such_runtime(offers: Sequence[Offer]) -> str:
    clusters = [runtime for offer in offers for runtime in offer.in_mode(DeploymentMode.OME)]
    if not any(runtime.engines for runtime in clusters):
        return "no executor runs mode 'ome'"
    names = sorted({name for runtime in clusters for name in runtime.serving_runtimes})
    have = f"those there are: {named(names)}" if names else "there are none"
    return f"no cluster has one of that name with an engine known here; {have}"


def _other_modes(mode: DeploymentMode, engine: str, offers: Sequence[Offer]) -> str:
    if mode is DeploymentMode.OME:
        return ""  # its models and volumes are the cluster's
    found = ""
    for other in DeploymentMode:
        able = [offer.executor_id for offer in offers if offer.serves(other, engine)]
        if other is not mode and able:
            found += f"; in mode '{other.value}' it runs on {named(able)}"
    return found
