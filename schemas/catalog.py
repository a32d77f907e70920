"""Every message of the platform, by kind, and which view answers which query."""

from types import ModuleType

from msgspec import Struct

from schemas import executor, gateway, orchestrator, results, scheduler, telemetry
from schemas.base import Command, Event, Live, Message, Query

MODULES: tuple[ModuleType, ...] = (telemetry, scheduler, orchestrator, executor, results, gateway)

REPLIES: dict[type[Query], type[Struct]] = {
    telemetry.GetSnapshot: telemetry.GpuSampled,
    scheduler.GetReservation: scheduler.ReservationView,
    scheduler.ListReservations: scheduler.ReservationList,
    scheduler.ExplainReservation: scheduler.Explanation,
    scheduler.GetAvailability: scheduler.AvailabilityView,
    scheduler.EstimateRequirements: scheduler.EstimateView,
    scheduler.GetAllocationMap: scheduler.AllocationMap,
    scheduler.SelectNode: scheduler.NodeSelection,
    orchestrator.GetTask: orchestrator.TaskView,
    orchestrator.ListTasks: orchestrator.TaskList,
    orchestrator.GetExperiment: orchestrator.ExperimentView,
    orchestrator.ListExperiments: orchestrator.ExperimentList,
    orchestrator.ValidateTask: orchestrator.TaskPlan,
    executor.ListRunning: executor.RunningAttempts,
    results.GetSummary: results.SummaryView,
    results.GetSeries: results.SeriesView,
    results.GetReport: results.ReportView,
}

# What the gateway sends to people's clients, beside the owners' views.
PUBLIC: tuple[type[Struct], ...] = (
    gateway.GpuList,
    gateway.GpuMetrics,
    gateway.NodeList,
    gateway.Problem,
    gateway.StoredEvent,
)


def _messages() -> tuple[type[Message], ...]:
    return tuple(
        member
        for module in MODULES
        for _, member in sorted(vars(module).items())
        if isinstance(member, type)
        and issubclass(member, Message)
        and member.__module__ == module.__name__
        and "." in str(member.__struct_config__.tag)
    )


MESSAGES: tuple[type[Message], ...] = _messages()
EVENTS: tuple[type[Event], ...] = tuple(m for m in MESSAGES if issubclass(m, Event))
COMMANDS: tuple[type[Command], ...] = tuple(m for m in MESSAGES if issubclass(m, Command))
QUERIES: tuple[type[Query], ...] = tuple(m for m in MESSAGES if issubclass(m, Query))
LIVE: tuple[type[Live], ...] = tuple(m for m in MESSAGES if issubclass(m, Live))
