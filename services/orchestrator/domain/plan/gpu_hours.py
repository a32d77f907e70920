"""How many GPU-hours a plan may take."""

from schemas.base import HOUR_SECONDS
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.plan.plan import Plan
from services.orchestrator.domain.search.trust import checks_at_most
from shared.gpu.held_gpus import gpus_of


def gpu_hours_at_most(task: TaskFile, plan: Plan) -> float:
    """Return the GPU-hours of every experiment to its time limit, once, and of the runs by which
    the best is trusted, within the task's budget; of a search each as large as its largest. Those
    of a server that runs already are held by whoever runs it.
    """
    if task.endpoint is not None:
        return 0.0
    spec = task.optimization
    sizes = [gpus_of(experiment.request) for experiment in plan.experiments or plan.samples]
    largest = max(sizes, default=0.0)
    gpus = sum(sizes) if plan.experiments else plan.experiments_at_most * largest
    if spec.is_trust_asked:
        gpus += (
            checks_at_most(plan.experiments_at_most, len(spec.goals), plan.planner.rivals) * largest
        )
    hours = gpus * spec.timeout_per_iteration / HOUR_SECONDS
    return hours if spec.max_gpu_hours is None else min(hours, spec.max_gpu_hours)
