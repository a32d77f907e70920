"""Thousands of experiments in a platform's database, as if they had run: copies of one that did."""

from collections.abc import Mapping
from typing import Final

from tests.support.processes.platform import PlatformProcess, quick_task

LARGE_TASK: Final = 500
SMALL_TASKS: Final = 90
SMALL_TASK: Final = 50

# $1: how many tasks, $2: how many experiments each has, $3: the task that is copied.
COPY_TASKS: Final = """
INSERT INTO task (task_id, namespace, task_name, state, created_at, finished_at, record)
SELECT copy.id, namespace, copy.name, state, copy.at, copy.at + interval '1 hour',
    (record::jsonb || jsonb_build_object('task_id', copy.id, 'task_name', copy.name,
        'created_at', copy.at, 'finished_at', copy.at + interval '1 hour',
        'best_experiment_id', null, 'trust', null))::json
FROM task, LATERAL (
    SELECT gen_random_uuid() AS id, 'sweep-' || $2 || '-' || number AS name,
        now() - number * interval '3 hours' AS at FROM generate_series(1, $1::int) AS number) copy
WHERE task_id = $3 RETURNING task_id
"""
# Scores and parameters of their own, one in twenty failed; $1: the tasks, $2: how many each has.
COPY_EXPERIMENTS: Final = """
WITH copy AS (
    SELECT gen_random_uuid() AS id, task_id, task_name, number AS ordinal,
        CASE WHEN number % 20 = 0 THEN 'failed' ELSE 'succeeded' END AS state,
        CASE WHEN number % 20 = 0 THEN NULL ELSE 100 + number * 37 % 900 END AS score,
        jsonb_build_object('max-num-seqs', 16 * (1 + number % 16), 'max-num-batched-tokens',
            1024 * (1 + number % 8), 'gpu-memory-utilization', 0.8 + number % 5 * 0.03)
            AS parameters
    FROM task, generate_series(1, $2::int) AS number WHERE task_id = ANY ($1))
INSERT INTO experiment (experiment_id, task_id, ordinal, state, objective_score, record)
SELECT copy.id, copy.task_id, copy.ordinal, copy.state, copy.score,
    (sample.record::jsonb || jsonb_build_object('experiment_id', copy.id,
        'task_id', copy.task_id, 'ordinal', copy.ordinal, 'state', copy.state,
        'objective_score', copy.score, 'task_name', copy.task_name,
        'parameters', copy.parameters, 'engine', (sample.record -> 'engine')::jsonb
            || jsonb_build_object('parameters', copy.parameters)))::json
FROM copy, experiment AS sample WHERE sample.experiment_id = $3
"""
NAME_BEST: Final = """
UPDATE task SET record = (record::jsonb || jsonb_build_object('best_experiment_id', (
    SELECT experiment_id FROM experiment WHERE experiment.task_id = task.task_id
    ORDER BY objective_score, ordinal LIMIT 1)))::json WHERE task_id = ANY ($1)
"""
# By name: what `seed_experiments` returns stands in the braces.
MANY_PLACES: Final = {
    "many-fleet": "/",
    "many-monitoring": "/monitoring?range=30m",
    "many-tasks": "/tasks",
    "many-task": "/tasks/{large}",
    "many-task-compare": "/tasks/{large}?tab=compare",
    "many-leaderboard": "/leaderboard",
    "many-comparison": "/compare?experiments={first},{second}",
}


async def seed_experiments(platform: PlatformProcess) -> dict[str, str]:
    """Store 5,000 experiments; return the ids of the large task and of two of different tasks."""
    task = await platform.until_finished(await platform.submit(quick_task("measured")))
    sample = task["best_experiment_id"]
    async with platform.postgres() as connection:
        await connection.execute("SET search_path TO orchestrator")
        ids = []
        for count, size in ((1, LARGE_TASK), (SMALL_TASKS, SMALL_TASK)):
            rows = await connection.fetch(COPY_TASKS, count, str(size), task["task_id"])
            tasks = [row["task_id"] for row in rows]
            await connection.execute(COPY_EXPERIMENTS, tasks, size, sample)
            await connection.execute(NAME_BEST, tasks)
            ids.append(tasks[0])
        second = await connection.fetchval(
            "SELECT experiment_id FROM experiment WHERE task_id = $1 AND ordinal = 7", ids[1]
        )
        await connection.execute("ANALYZE")
    return {"large": str(ids[0]), "first": str(sample), "second": str(second)}


def many_places(ids: Mapping[str, str]) -> dict[str, str]:
    """Return the places with the ids that they need."""
    return {name: place.format(**ids) for name, place in MANY_PLACES.items()}
