"""A search whose orchestrator is killed after every change of its state; over a real nats-server
and Postgres.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from schemas.orchestrator.experiments import TaskState
from schemas.orchestrator.views import ExperimentView
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from shared.errors import UnavailableError
from shared.messaging.routes import ACK_WAIT_SECONDS
from shared.postgres.database import Connection, Database
from shared.testing import eventually
from tests.support.worlds.orchestrator import scripted_world, task_file

# An event that a killed life had received comes again once NATS has missed its acknowledgement.
REDELIVERED_SECONDS: Final = ACK_WAIT_SECONDS + 15
STATE = """
SELECT md5(concat(
    (SELECT string_agg(record::text, ' ' ORDER BY task_id) FROM task),
    (SELECT string_agg(record::text, ' ' ORDER BY experiment_id) FROM experiment),
    (SELECT string_agg(record::text, ' ' ORDER BY attempt_id) FROM attempt)))
"""
SUCCEEDED = "SELECT count(*) FROM outbox WHERE subject LIKE '%.experiment_succeeded.' || $1"


@dataclass
class Killer:
    """Lets no transaction through after one that left a state which was not there before: the
    sender, the relay and the acknowledgement of its message never hear of that one.
    """

    seen: set[str] = field(default_factory=set)
    is_armed: bool = False  # a start that can no longer reach Postgres would never end
    is_dead: bool = False

    @asynccontextmanager
    async def transaction(
        self, real: AbstractAsyncContextManager[Connection]
    ) -> AsyncIterator[Connection]:
        self._stop_dead()
        async with real as connection:
            yield connection
            self._stop_dead()
            state = await connection.fetchval(STATE)
            is_new = state not in self.seen
            self.seen.add(state)
        self.is_dead |= is_new and self.is_armed
        self._stop_dead()

    def _stop_dead(self) -> None:
        if self.is_dead:
            raise UnavailableError("killed")


@asynccontextmanager
async def life(nats_url: str, postgres_dsn: str) -> AsyncIterator[Database]:
    """One life of the orchestrator, whose end may be any error."""
    settings = OrchestratorSettings(
        nats_url=nats_url, postgres_dsn=postgres_dsn, repair_interval_seconds=0.5,
        repair_after_seconds=0.2,
    )  # fmt: skip
    service = create_service(settings)
    running = service.running()
    await running.__aenter__()
    try:
        assert service.database is not None
        yield service.database
    finally:
        with suppress(ExceptionGroup, UnavailableError):
            await running.__aexit__(None, None, None)


def history(experiments: tuple[ExperimentView, ...]) -> list[dict[str, Any]]:
    return [
        {
            "ordinal": each.ordinal,
            "state": each.state,
            "parameters": each.parameters,
            "proposal": each.proposal,
            "score": each.objective_score,
            "run": each.run,
            "attempts": [attempt.outcome for attempt in each.attempts],
            "interrupted": each.interrupted_attempts,
        }
        for each in experiments
    ]


# By the number of its experiments.
TASKS: dict[int, dict[str, Any]] = {
    5: {
        "parameters": {"slots": {"type": "integer", "low": 1, "high": 32}},
        "optimization": {
            "strategy": "bayesian",
            "seed": 5,
            "max_iterations": 5,
            "n_initial_random": 2,
        },
    },
    # A grid whose winner is trusted: two configurations, two repeats of the baseline, one of the
    # leader, three replays.
    8: {"parameters": {"slots": [1, 2]}, "optimization": {"trust": True}},
    # Four with a third of the requests, the best two with all.
    6: {
        "parameters": {"slots": {"type": "integer", "low": 1, "high": 32}},
        "optimization": {"strategy": "successive_halving", "seed": 5, "max_iterations": 4},
    },
    # Stages, each experiment with a load of its own.
    3: {
        "parameters": {"tp-size": [1, 2], "slots": [1, 2]},
        "benchmark": {"tool": "builtin", "load_search": {"max": 64}},
        "optimization": {
            "strategy": "auto",
            "max_iterations": 3,
            "objective": "maximize_load",
            "trust": False,
            "constraints": "error_rate<1%",
        },
    },
}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", TASKS)
async def test_killed_search_has_the_same_history(
    count: int, nats_url: str, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = Killer()
    real = Database.transaction
    async with scripted_world(nats_url) as world:
        async with life(nats_url, postgres_dsn) as database:
            undisturbed = await world.submit(task_file("undisturbed", **TASKS[count]))
            await world.until(undisturbed, TaskState.COMPLETED)
            want = history(await world.experiments(undisturbed))
            disturbed = await world.submit(task_file("disturbed", **TASKS[count]))
            killer.seen.add(await database.pool.fetchval(STATE))
        monkeypatch.setattr(
            Database, "transaction", lambda database: killer.transaction(real(database))
        )
        lives = 0
        is_over = False
        while not is_over:
            killer.is_dead = killer.is_armed = False
            lives += 1
            async with life(nats_url, postgres_dsn) as database:
                killer.is_armed = True

                async def has_ended(database: Database = database) -> bool:
                    nonlocal is_over
                    state = await database.pool.fetchval(
                        "SELECT state FROM task WHERE task_id = $1", disturbed
                    )
                    is_over = state == TaskState.COMPLETED
                    return is_over or killer.is_dead

                await eventually(
                    has_ended, within_seconds=REDELIVERED_SECONDS, what="another change of state"
                )
        monkeypatch.undo()

        async with life(nats_url, postgres_dsn) as database:
            experiments = await world.experiments(disturbed)
            ends = [
                await database.pool.fetchval(SUCCEEDED, str(each.experiment_id))
                for each in experiments
            ]

    assert history(experiments) == want
    assert ends == [1] * count
    starts = [start.experiment_id for start in world.starts if start.task_id == disturbed]
    assert starts == [each.experiment_id for each in experiments]
    assert lives > count * 2
