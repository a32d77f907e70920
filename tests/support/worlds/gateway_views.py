"""Views as the API gives them, valid, with what a test cares about put in."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from schemas.executor.attempts import AttemptPhase, AttemptProgressed, EngineSpec, Runtime
from schemas.gateway.views import GpuView, NodeView
from schemas.gpus.device_grant import DeviceGrant
from schemas.gpus.gpu_info import GpuInfo, GpuInfoDetail
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.orchestrator.views import AttemptView, ExperimentView, TaskPlan, TaskView
from schemas.results.measurements import GpuMonitoring
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.drifts import DriftAction, DriftKind
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import Drift, ReservationView
from schemas.task.benchmark import BenchmarkMetrics
from schemas.task.objectives import Objective
from schemas.task.strategies import Strategy
from schemas.task.task_file import DeploymentMode
from schemas.telemetry.monitoring import GpuStats, SampledSpread, Spread
from schemas.telemetry.readings import Source
from shared.ids import new_id

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NODE = "alpha"


def make_experiment(ordinal: int = 1, **changes: Any) -> ExperimentView:
    given: dict[str, Any] = {
        "experiment_id": new_id(),
        "task_id": new_id(),
        "namespace": "default",
        "ordinal": ordinal,
        "state": ExperimentState.SUCCEEDED,
        "revision": 1,
        "parameters": {"threads": ordinal, "parallel": 1},
        "engine": EngineSpec(runtime=Runtime.PROCESS, engine="llamacpp", model="smollm2"),
        "request": GpuRequest(),
        "created_at": NOW,
    }
    return ExperimentView(**{**given, **changes})


def make_plan(**changes: Any) -> TaskPlan:
    given: dict[str, Any] = {
        "mode": DeploymentMode.PROCESS,
        "strategy": Strategy.GRID_SEARCH,
        "objective": Objective.MINIMIZE_LATENCY,
        "total": 0,
        "cut": 0,
        "experiments": (),
    }
    return TaskPlan(**{**given, **changes})


def make_task(**changes: Any) -> TaskView:
    given: dict[str, Any] = {
        "task_id": new_id(),
        "namespace": "default",
        "task_name": "tuning",
        "description": "",
        "state": TaskState.RUNNING,
        "mode": DeploymentMode.PROCESS,
        "objective": Objective.MINIMIZE_LATENCY,
        "revision": 1,
        "created_at": NOW,
    }
    return TaskView(**{**given, **changes})


def make_gpu(index: int = 0, **changes: Any) -> GpuView:
    given: dict[str, Any] = {
        "node_id": NODE,
        "uuid": f"GPU-{index}",
        "index": index,
        "name": "Test GPU",
        "source": Source.SIMULATED,
        "simulated": True,
        "fresh": True,
        "stale": False,
        "utilization_percent": 0.0,
        "memory_total_mb": 80_000,
        "memory_used_mb": 0,
        "memory_free_mb": 80_000,
        "temperature_c": 30.0,
        "power_draw_w": 60.0,
        "power_limit_w": 700.0,
        "availability_score": 1.0,
        "state": DeviceState.FREE,
    }
    return GpuView(**{**given, **changes})


def make_node(node_id: str = NODE, **changes: Any) -> NodeView:
    given: dict[str, Any] = {
        "node_id": node_id,
        "source": Source.SIMULATED,
        "simulated": True,
        "fresh": True,
        "gpus_total": 8,
        "gpus_free": 7,
        "last_seen_at": NOW,
    }
    return NodeView(**{**given, **changes})


def make_reservation(**changes: Any) -> ReservationView:
    given: dict[str, Any] = {
        "reservation_id": new_id(),
        "namespace": "default",
        "holder": "test",
        "state": ReservationState.GRANTED,
        "request": GpuRequest(),
        "revision": 2,
        "requested_at": NOW,
        "epoch": 7,
        "node_id": NODE,
        "devices": (make_grant(),),
    }
    return ReservationView(**{**given, **changes})


def make_drift(**changes: Any) -> Drift:
    given: dict[str, Any] = {
        "drift_id": new_id(),
        "drift": DriftKind.SQUATTER,
        "node_id": "alpha",
        "device_uuid": "GPU-1",
        "since_at": NOW,
        "age_seconds": 60.0,
        "action": DriftAction.AVOID,
        "detail": "python on H100 with 100 MB, under no reservation",
        "pids": (4711,),
    }
    return Drift(**{**given, **changes})


def make_grant(index: int = 0) -> DeviceGrant:
    return DeviceGrant(
        node_id=NODE, uuid=f"GPU-{index}", index=index, name="Test GPU", simulated=True
    )


def make_gpu_info(index: int = 0) -> GpuInfo:
    detail = GpuInfoDetail(index=index, name="Test GPU", uuid=f"GPU-{index}", node_id=NODE)
    return GpuInfo(
        model="Test GPU",
        count=1,
        device_ids=(detail.uuid,),
        indices=(index,),
        allocation_method="scheduler",
        simulated=True,
        details=(detail,),
    )


def make_monitoring(*, simulated: bool = True) -> GpuMonitoring:
    stats = GpuStats(
        name="Test GPU",
        uuid="GPU-0",
        utilization=SampledSpread(min=10, max=90, mean=55, samples=12),
        memory_used_mb=Spread(min=1000, max=3000, mean=2000),
        memory_usage_percent=Spread(min=1, max=3, mean=2),
        temperature_c=Spread(),
        power_draw_w=Spread(min=100, max=300, mean=200),
    )
    return GpuMonitoring(
        monitoring_duration_seconds=12,
        sample_count=12,
        gpu_stats={"0": stats},
        coverage_percent=98,
        energy_wh=0.5,
        phase="measuring",
        simulated=simulated,
    )


def make_metrics(**changes: Any) -> BenchmarkMetrics:
    given: dict[str, Any] = {
        "mean_e2e_latency": 1.25,
        "p99_e2e_latency": 2.0,
        "mean_ttft": 0.05,
        "mean_tpot": 0.012,
        "mean_output_throughput": 80.0,
        "max_total_throughput": 160.0,
        "total_requests": 10,
        "total_completed_requests": 10,
        "success_rate": 1.0,
    }
    return BenchmarkMetrics(**{**given, **changes})


def make_attempt(**changes: Any) -> AttemptView:
    given: dict[str, Any] = {
        "attempt_id": new_id(),
        "attempt_number": 1,
        "reservation_id": new_id(),
    }
    return AttemptView(**{**given, **changes})


def make_progress(
    experiment: ExperimentView, attempt_id: UUID, fraction: float
) -> AttemptProgressed:
    return AttemptProgressed(
        observed_at=NOW,
        executor_id="n1",
        experiment_id=experiment.experiment_id,
        attempt_id=attempt_id,
        task_id=experiment.task_id,
        phase=AttemptPhase.MEASURING,
        fraction=fraction,
    )
