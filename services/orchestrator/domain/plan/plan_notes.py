"""What a plan says of its task beside what it lacks: what was assumed, cut or left without use."""

from collections.abc import Iterator

from schemas.task.task_file import DeploymentMode, Strategy, TaskFile
from services.orchestrator.domain.plan import objective_check
from services.orchestrator.domain.plan.executor_offers import CLUSTER_MODES
from services.orchestrator.domain.plan.quality import altering_axes, quality_probe
from services.orchestrator.domain.search.front_trust import MOST_MEMBERS
from services.orchestrator.domain.search.trust import MOST_CHECKS


def plan_notes(
    task: TaskFile, mode: DeploymentMode, total: int, cut: int, choice: str
) -> Iterator[str]:
    if task.deployment_mode is None:
        yield f"deployment_mode is not given; '{mode.value}' follows from the rest of the task"
    if cut:
        yield f"max_iterations cuts the grid: {total - cut} of {total} configurations are run"
    search = task.optimization
    is_drawn = search.n_initial_random is not None or search.seed is not None
    if is_drawn and search.strategy is Strategy.GRID_SEARCH:
        yield "n_initial_random and seed have no meaning for a grid, which draws nothing"
    yield from objective_check.objective_notes(search)
    if search.is_trust_asked:
        checks = MOST_CHECKS + (MOST_MEMBERS if len(search.goals) > 1 else 0)
        yield (
            f"trust: {checks} further runs, or half as many as there are configurations, may "
            "tell the winner from chance"
        )
    if task.runtime_image_tag is not None and mode is DeploymentMode.PROCESS:
        yield "runtime_image_tag is not used in mode 'process', which starts no image"
    for name in ("cluster", "resource", "resource_amounts") if mode not in CLUSTER_MODES else ():
        if getattr(task.gpus, name, None):
            yield f"gpus.{name} is not used in mode '{mode.value}', which runs in no cluster"
    altering = altering_axes(task)
    if quality_probe(task) is not None and altering:
        yield (
            f"quality: {', '.join(altering)} may change answers, so each experiment's are compared "
            "with the first one's (benchmark.quality)"
        )
    if choice:
        yield choice
