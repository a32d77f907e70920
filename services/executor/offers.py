"""What an executor can run, runtime by runtime."""

from collections.abc import Mapping

from msgspec.structs import replace

from schemas.executor.attempts import Runtime, RuntimeOffer
from services.executor.engines.model_configs import ModelConfigs
from services.executor.runtimes.runtime import EngineRuntime
from services.executor.settings import ExecutorSettings


async def list_offers(
    runtimes: Mapping[Runtime, EngineRuntime], settings: ExecutorSettings, configs: ModelConfigs
) -> tuple[RuntimeOffer, ...]:
    """Return the offers of the runtimes that are here, and why the others are not."""
    offered = [
        replace(await runtime.offer(), task_variables=settings.task_variable_patterns)
        for kind, runtime in runtimes.items()
        if kind is not Runtime.ENDPOINT
    ]
    if not settings.cluster:
        models = await configs.read_models()
        precisions = {name: model.precisions for name, model in models.items() if model.precisions}
        shapes = {name: model.shape for name, model in models.items() if model.shape is not None}
        facts = {"model_precisions": precisions, "model_shapes": shapes}
        offered = [replace(offer, **facts) for offer in offered]
    absent_runtimes = [kind for kind in Runtime if kind not in {Runtime.ENDPOINT, *runtimes}]
    where = "its cluster" if settings.cluster else "its own host"
    reason = f"this executor runs engines of {where} only"
    return (
        *offered,
        *(
            RuntimeOffer(runtime=kind, engines=(), missing={kind.value: reason})
            for kind in absent_runtimes
        ),
    )
