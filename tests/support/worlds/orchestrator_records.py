"""Valid tasks, experiments and attempts for tests of the orchestrator's decisions."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from schemas.executor.attempts import EngineSpec, Runtime, RuntimeOffer
from schemas.gpus.checks import CudaRules
from schemas.gpus.device_grant import DeviceGrant
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.task.benchmark import BenchmarkTool
from schemas.task.task_file import DeploymentMode, TaskFile
from services.executor.engines.engine_table import ENGINES
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.installation.offers import Offer
from services.orchestrator.domain.lifecycle.waiting import Grant
from services.orchestrator.domain.plan import expansion
from services.orchestrator.domain.plan import plan as planning
from services.orchestrator.domain.plan.expansion import Grid
from services.orchestrator.domain.records import Attempt, Experiment, Task

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TASK_ID, EXPERIMENT_ID, ATTEMPT_ID, RESERVATION_ID = (UUID(int=n) for n in range(1, 5))
DEVICE = DeviceGrant(node_id="n1", uuid="GPU-0", index=0, name="H100", memory_total_mb=80_000)
ENGINE_RULES = {name: engine.rules for name, engine in ENGINES.items()}
OFFERS = (
    Offer(
        executor_id="n1",
        runtimes=(
            RuntimeOffer(
                runtime=Runtime.PROCESS,
                engines=("simulated", "llamacpp"),
                engine_rules=ENGINE_RULES,
            ),
            RuntimeOffer(runtime=Runtime.DOCKER, engines=(), missing={"docker": "no Docker here"}),
        ),
        benchmark_tools=("builtin",),
    ),
)


def make_plan(
    task: TaskFile, offers: Iterable[Offer], rules: CudaRules = CudaRules.STRICT
) -> planning.Plan:
    """Return the plan of a task where executors offer this."""
    return planning.make_plan(task, Installation(offers, rules))


def expand(task: TaskFile) -> Grid:
    """Return the configurations of a grid."""
    return expansion.expand(expansion.find_axes(task), task.optimization.max_iterations)


def make_offer(
    executor_id: str = "n1",
    *,
    docker: tuple[str, ...] = ("sglang", "vllm"),
    missing: dict[str, str] | None = None,
    tools: tuple[str, ...] = ("builtin",),
) -> Offer:
    """One that runs containers, and the simulated engine as a process."""
    return Offer(
        executor_id=executor_id,
        runtimes=(
            RuntimeOffer(
                runtime=Runtime.PROCESS, engines=("simulated",), engine_rules=ENGINE_RULES
            ),
            RuntimeOffer(
                runtime=Runtime.DOCKER,
                engines=docker,
                missing=missing or {},
                engine_rules=ENGINE_RULES,
            ),
        ),
        benchmark_tools=tools,
    )


def make_file(**overrides: Any) -> TaskFile:
    content: dict[str, Any] = {
        "task_name": "a-task",
        "deployment_mode": "process",
        "model": {"id_or_path": "a-model"},
        **({} if "engines" in overrides else {"base_runtime": "simulated"}),
    }
    return msgspec.convert({**content, **overrides}, TaskFile)


def make_task(file: TaskFile | None = None, **overrides: Any) -> Task:
    task = Task(
        task_id=TASK_ID,
        namespace="default",
        task_name="a-task",
        state=TaskState.RUNNING,
        mode=DeploymentMode.PROCESS,
        file=file or make_file(),
        created_at=NOW,
        revision=2,
        benchmark_tool=BenchmarkTool.BUILTIN,
    )
    return msgspec.structs.replace(task, **overrides)


def make_experiment(state: ExperimentState, **overrides: Any) -> Experiment:
    experiment = Experiment(
        experiment_id=EXPERIMENT_ID,
        task_id=TASK_ID,
        namespace="default",
        ordinal=1,
        state=state,
        parameters={"slots": 1},
        engine=EngineSpec(runtime=Runtime.PROCESS, engine="simulated", model="a-model"),
        request=GpuRequest(),
        created_at=NOW,
        revision=1,
    )
    return msgspec.structs.replace(experiment, **overrides)


def make_attempt(**overrides: Any) -> Attempt:
    """One that waits for its grant."""
    attempt = Attempt(
        attempt_id=ATTEMPT_ID,
        experiment_id=EXPERIMENT_ID,
        task_id=TASK_ID,
        attempt_number=1,
        reservation_id=RESERVATION_ID,
        requested_at=NOW,
    )
    return msgspec.structs.replace(attempt, **overrides)


def make_granted(**overrides: Any) -> Attempt:
    """One whose start has been sent."""
    granted: dict[str, Any] = {
        "reservation_revision": 2,
        "executor_id": "n1",
        "epoch": 7,
        "lease_ttl_seconds": 30.0,
        "devices": (DEVICE,),
        "benchmark_tool": BenchmarkTool.BUILTIN,
    }
    return make_attempt(**{**granted, **overrides})


def make_grant(revision: int = 2) -> Grant:
    return Grant(
        revision=revision, epoch=7, node_id="n1", devices=(DEVICE,), lease_ttl_seconds=30.0
    )
