"""Forgetting what has finished: commands to the orchestrator, and what it publishes of them."""

from uuid import UUID

from schemas.base import Count, ScopedCommand
from schemas.orchestrator.experiments import ExperimentEvent, TaskEvent


class DeleteTask(ScopedCommand, frozen=True, kw_only=True, tag="orchestrator.delete_task"):
    """Forget a finished task with its experiments and what was measured of them.

    Its events, its reservations and the GPU hours that it used stay on record. With
    `expected_revision` it is refused unless that is the present one.
    """

    task_id: UUID
    expected_revision: Count | None = None


class DeleteExperiment(
    ScopedCommand, frozen=True, kw_only=True, tag="orchestrator.delete_experiment"
):
    """The same for one experiment of a finished task."""

    experiment_id: UUID
    expected_revision: Count | None = None


class TaskDeleted(TaskEvent, frozen=True, kw_only=True, tag="orchestrator.task_deleted"):
    """Forgotten on request, with this many experiments; those have no event of their own."""

    experiments: Count


class ExperimentDeleted(
    ExperimentEvent, frozen=True, kw_only=True, tag="orchestrator.experiment_deleted"
):
    """Forgotten on request."""
