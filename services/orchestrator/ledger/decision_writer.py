"""Writes what was decided: rows in one statement, events and commands with them."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from services.orchestrator.domain.records import Attempt, Decision, Experiment, Task
from shared.postgres.database import Connection, to_json

WRITE_ROWS: Final = """
WITH changed_task AS (
    UPDATE task SET state = new.state, record = new.record, finished_at = new.finished_at
    FROM unnest($1::uuid[], $2::text[], $3::json[], $4::timestamptz[])
        AS new (task_id, state, record, finished_at)
    WHERE task.task_id = new.task_id),
changed_experiment AS (
    INSERT INTO experiment (experiment_id, task_id, ordinal, state, objective_score, record)
    SELECT * FROM unnest($5::uuid[], $6::uuid[], $7::int[], $8::text[], $9::float8[], $10::json[])
    ON CONFLICT (experiment_id) DO UPDATE
        SET state = excluded.state, objective_score = excluded.objective_score,
            record = excluded.record)
INSERT INTO attempt (attempt_id, experiment_id, task_id, reservation_id, executor_id, outcome,
                     needs_renewal, requested_at, closed_at, record)
SELECT * FROM unnest($11::uuid[], $12::uuid[], $13::uuid[], $14::uuid[], $15::text[], $16::text[],
                     $17::bool[], $18::timestamptz[], $19::timestamptz[], $20::json[])
ON CONFLICT (attempt_id) DO UPDATE
    SET executor_id = excluded.executor_id, outcome = excluded.outcome,
        needs_renewal = excluded.needs_renewal, closed_at = excluded.closed_at,
        record = excluded.record, updated_at = now()
"""


async def write_rows(
    connection: Connection,
    tasks: Iterable[Task] = (),
    experiments: Iterable[Experiment] = (),
    attempts: Iterable[Attempt] = (),
) -> None:
    """Store rows; of several about the same thing the last one."""
    changed_tasks = {task.task_id: task for task in tasks}.values()
    changed_experiments = {e.experiment_id: e for e in experiments}.values()
    changed_attempts = {attempt.attempt_id: attempt for attempt in attempts}.values()
    if not changed_tasks and not changed_experiments and not changed_attempts:
        return
    await connection.execute(
        WRITE_ROWS,
        *_columns(map(_task_row, changed_tasks), 4),
        *_columns(map(_experiment_row, changed_experiments), 6),
        *_columns(map(_attempt_row, changed_attempts), 10),
    )


async def write_decisions(
    connection: Connection,
    task: Task | None,
    decisions: Sequence[Decision],
    added: Sequence[Experiment] = (),
) -> None:
    """Store a locked task and what was decided of it, without events and commands.

    None: the task is as it was, but for what the decisions have of it.
    """
    tasks = [task, *(decision.task for decision in decisions)]
    await write_rows(
        connection,
        tasks=[changed for changed in tasks if changed is not None],
        experiments=[*added, *(decision.experiment for decision in decisions)],
        attempts=[decision.attempt for decision in decisions if decision.attempt is not None],
    )


def _columns(rows: Iterable[tuple[Any, ...]], count: int) -> list[list[Any]]:
    """Return rows as columns, as `unnest` takes them."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(count)]


def _task_row(task: Task) -> tuple[Any, ...]:
    return task.task_id, task.state.value, to_json(task), task.finished_at


def _experiment_row(experiment: Experiment) -> tuple[Any, ...]:
    return (
        experiment.experiment_id,
        experiment.task_id,
        experiment.ordinal,
        experiment.state.value,
        experiment.objective_score,
        to_json(experiment),
    )


def _attempt_row(attempt: Attempt) -> tuple[Any, ...]:
    needs_renewal = (
        attempt.executor_id is not None
        and not attempt.is_accepted
        and attempt.kept_from is None  # the executor has its lease
        and not attempt.reservation_ended
        and attempt.closed_at is None
    )
    return (
        attempt.attempt_id,
        attempt.experiment_id,
        attempt.task_id,
        attempt.reservation_id,
        attempt.executor_id,
        attempt.outcome.value if attempt.outcome else None,
        needs_renewal,
        attempt.requested_at,
        attempt.closed_at,
        to_json(attempt),
    )
