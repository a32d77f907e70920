"""What past tasks measured of the same, for a search to begin with."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.plan.executor_offers import Offer
from services.orchestrator.domain.plan.plan import make_planner
from services.orchestrator.domain.search.warm import WarmStart, is_warmed
from services.orchestrator.ledger import attempt_rows
from services.orchestrator.ledger.past_trials import past_trials
from services.orchestrator.node_names import with_node_ids
from shared.errors import RefusedError
from shared.postgres.database import Connection


async def warm_start(
    connection: Connection, namespace: str, task: TaskFile, offers: Sequence[Offer]
) -> tuple[WarmStart | None, tuple[str, ...]]:
    """With notes. Raises RefusedError where the search could make nothing of it."""
    if not task.optimization.warm_start:
        return None, ()
    if not is_warmed(task.optimization):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected warm_start with strategy 'bayesian' or 'auto' and one objective",
            path="$.optimization.warm_start",
        )
    planner = make_planner(with_node_ids(task), offers)
    past = await past_trials(connection, namespace, task, planner.engine, planner.choice.tool)
    wanted = [part.casefold() for part in (task.gpus.models if task.gpus is not None else ())]
    fitting = [
        (gpu_model, trial)
        for gpu_model, trial in past
        if not wanted or any(part in gpu_model.casefold() for part in wanted)
    ]
    if not fitting:
        return None, ("warm_start: no past experiment measured the same",)
    [(most_used, count)] = Counter(gpu_model for gpu_model, _ in fitting).most_common(1)
    trials = tuple(trial for gpu_model, trial in fitting if gpu_model == most_used)
    note = f"warm_start: {count} past experiments on {most_used}, which are not counted as measured"
    return WarmStart(gpu_model=most_used, trials=trials), (note,)


async def is_on_its_gpu(connection: Connection, task_id: UUID, found: WarmStart) -> bool:
    """Whether the task runs on the GPU model that was measured, or has not begun to run."""
    own = await attempt_rows.first_gpu_model(connection, task_id)
    return own in {None, found.gpu_model}
