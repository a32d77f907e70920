"""What an installation lacks for a task: the field that needs it, and how to get it."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from schemas.task.benchmark import BenchmarkTool
from schemas.task.task_file import DeploymentMode
from services.orchestrator.domain.installation.installation import Installation, Workload
from services.orchestrator.domain.installation.offers import CLUSTER_MODES, name_nodes
from services.orchestrator.domain.installation.tools import INSTALL_HINTS
from shared.near_words import did_you_mean


class Missing(Struct, frozen=True, kw_only=True):
    """Something that this installation lacks; `path` is the field of the task that needs it."""

    path: str
    sentence: str


def missing_nodes(
    installation: Installation, workload: Workload, tool: BenchmarkTool
) -> Iterator[Missing]:
    """Yield why fewer nodes can run the task than it needs; nothing if enough can."""
    nodes = installation.find_eligible(workload, tool)
    count = workload.gpus.num_nodes if workload.gpus else 1
    if workload.mode in CLUSTER_MODES:  # one executor runs engines on all of a cluster's nodes
        count = 1
    if len(nodes) >= count:
        return
    if nodes:
        yield Missing(
            path="$.gpus.num_nodes",
            sentence=f"each experiment asks for {count} nodes; those that run {workload.engine!r} "
            f"in mode '{workload.mode.value}' are {len(nodes)}: {name_nodes(nodes)}",
        )
        return
    yield _missing_runtime(installation, workload, tool)


def missing_field(
    engine: str, block: str, field: str, value: object, accepted_values: Sequence[str]
) -> Missing:
    """A field of a typed block, or a value of it, that the engine cannot take."""
    sentence = f"engine {engine!r} has no flag for {block}.{field}"
    if accepted_values:
        values_text = ", ".join(accepted_values)
        sentence = f"engine {engine!r} takes {values_text} as {block}.{field}, not {value!r}"
    return Missing(path=f"$.{block}.{field}", sentence=sentence)


def _missing_runtime(
    installation: Installation, workload: Workload, tool: BenchmarkTool
) -> Missing:
    if not installation.offers:
        return Missing(
            path="$.deployment_mode", sentence="no executor of this installation is present"
        )
    engine, mode = workload.engine, workload.mode
    running = installation.find_running(mode, engine)
    if not running:
        return _missing_engine(installation, workload)
    able = [offer.executor_id for offer in running if offer.measures(tool)]
    if not able:
        how = f" ({INSTALL_HINTS[tool]})" if tool in INSTALL_HINTS else ""
        return Missing(
            path="$.benchmark.tool",
            sentence=f"no executor that runs {engine} has the benchmark tool '{tool.value}'{how}",
        )
    if mode in CLUSTER_MODES:
        return Missing(
            path="$.gpus.cluster",
            sentence=f"the cluster asked for does not run {engine} in mode '{mode.value}'; "
            f"these do: {name_nodes(able)}",
        )
    return Missing(
        path="$.gpus.nodes",
        sentence=f"none of the nodes asked for runs {engine} in mode '{mode.value}'; "
        f"these do: {name_nodes(able)}",
    )


def _missing_engine(installation: Installation, workload: Workload) -> Missing:
    engine, mode = workload.engine, workload.mode
    engines, base_runtime = installation.engines, workload.base_runtime
    reasons = installation.find_reasons({engine, mode.value}, mode)
    why = "; ".join(f"{name_nodes(nodes)}: {reason}" for reason, nodes in reasons.items())
    why = f" ({why})" if why else ""
    if mode is DeploymentMode.OME and installation.find_engine(base_runtime) is None:
        suggestion = did_you_mean(base_runtime, engines)
        what = f"is no engine of {', '.join(engines)} and so counts"
        if suggestion:
            what = f"is no engine{suggestion} It counts"
        return Missing(
            path="$.base_runtime",
            sentence=f"{base_runtime!r} {what} as a ClusterServingRuntime, but "
            f"{_no_such_runtime(installation)}{why}",
        )
    elsewhere = _other_modes(installation, workload)
    if any(runtime.engines for _, runtime in installation.in_mode(mode)):
        return Missing(
            path="$.base_runtime",
            sentence=f"no executor runs engine {engine!r} in mode '{mode.value}'{why}{elsewhere}"
            f"{did_you_mean(engine, engines)}",
        )
    return Missing(
        path="$.deployment_mode", sentence=f"no executor runs mode '{mode.value}'{why}{elsewhere}"
    )


def _no_such_runtime(installation: Installation) -> str:
    clusters = [runtime for _, runtime in installation.in_mode(DeploymentMode.OME)]
    if not any(runtime.engines for runtime in clusters):
        return "no executor runs mode 'ome'"
    names = sorted({name for runtime in clusters for name in runtime.serving_runtimes})
    have = f"those there are: {name_nodes(names)}" if names else "there are none"
    return f"no cluster has one of that name with an engine known here; {have}"


def _other_modes(installation: Installation, workload: Workload) -> str:
    if workload.mode is DeploymentMode.OME:
        return ""  # its models and volumes are the cluster's
    text = ""
    for mode in DeploymentMode:
        able = [offer.executor_id for offer in installation.find_running(mode, workload.engine)]
        if mode is not workload.mode and able:
            text += f"; in mode '{mode.value}' it runs on {name_nodes(able)}"
    return text
