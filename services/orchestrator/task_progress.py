"""Decisions made durable: rows, events and commands in one transaction, then the task goes on."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from msgspec.structs import replace

from schemas.executor.attempts import FailureKind
from schemas.gpus.checks import CudaRules
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import FINISHED_EXPERIMENT_STATES, ExperimentState
from schemas.task.task_file import StopReason
from schemas.task.trust import RunInfo, RunRole
from services.orchestrator.domain.lifecycle import tasks, waiting
from services.orchestrator.domain.lifecycle.budget import SPENT, spent_budget, with_priced_gpus
from services.orchestrator.domain.lifecycle.deadlines import (
    PastHolds,
    expected_hold_seconds,
    longest_hold_seconds,
)
from services.orchestrator.domain.lifecycle.past_memory import is_learned, with_memory
from services.orchestrator.domain.lifecycle.retrying import nodes_to_request
from services.orchestrator.domain.lifecycle.same_model import largest_gpu_mb, on_same_model
from services.orchestrator.domain.plan.executor_offers import Offer, eligible_nodes, serving_offers
from services.orchestrator.domain.plan.memory_rule import fitted
from services.orchestrator.domain.plan.plan import make_planner, make_search
from services.orchestrator.domain.plan.tools import tool_of_old
from services.orchestrator.domain.records import (
    Decision,
    Experiment,
    Task,
    TaskDecision,
    new_experiment,
    same_again,
)
from services.orchestrator.domain.search.history import trials_of
from services.orchestrator.domain.search.prior import predicted_score
from services.orchestrator.domain.search.propose import propose
from services.orchestrator.domain.search.stages import Waiting
from services.orchestrator.domain.search.trust import next_checks, verdict
from services.orchestrator.domain.search.warm import past_of
from services.orchestrator.ledger import (
    attempt_rows,
    experiment_rows,
    offer_rows,
    past_runs,
    search_history,
    task_rows,
)
from services.orchestrator.node_names import with_node_ids
from services.orchestrator.planning import quality_verdicts
from services.orchestrator.planning.warm_start import is_on_its_gpu
from shared.benchmarks.verdicts.ranking import rank
from shared.benchmarks.verdicts.run_settings import other_settings
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.ids import new_id
from shared.logging import log
from shared.postgres.commands import send_later
from shared.postgres.database import Connection
from shared.postgres.outbox import stage


@dataclass(frozen=True, slots=True)
class Progress:
    """`offer_ttl` is how long an executor counts as present after its last report, `overdue_after`
    how long after its task's timeout an attempt is stopped.

    A failed experiment is not retried before `retry_pause` has passed: what failed it, a container
    engine that starts anew or a network, takes time to return.
    """

    offer_ttl: timedelta
    retry_pause: timedelta
    overdue_after: timedelta
    cuda_rules: CudaRules = CudaRules.STRICT

    async def offers(self, connection: Connection) -> list[Offer]:
        """What the present executors offer."""
        return await offer_rows.offers(connection, utcnow() - self.offer_ttl)

    async def write(self, connection: Connection, decisions: Sequence[Decision]) -> None:
        """Store decisions about experiments of a locked task, with their events and commands."""
        # A decision may follow from the one before it: the last one on an experiment counts.
        newest = {d.experiment.experiment_id: d.experiment for d in decisions}
        await experiment_rows.save(connection, newest.values())
        for decision in decisions:
            if decision.task is not None:
                await task_rows.save(connection, decision.task)
            if decision.attempt is not None:
                await attempt_rows.save(connection, decision.attempt)
        await stage(connection, *(event for d in decisions for event in d.events))
        for decision in decisions:
            for command in decision.commands:
                await send_later(connection, command)

    async def write_task(self, connection: Connection, decision: TaskDecision | None) -> None:
        """Store a decision about a task and publish its events; None changes nothing."""
        if decision is not None:
            await task_rows.save(connection, decision.task)
            await stage(connection, *decision.events)

    async def advance(self, connection: Connection, task_id: UUID) -> Task:
        """Request GPUs for what may start next, and end the task if nothing is left of it."""
        task = await self._require(connection, task_id)
        await quality_verdicts.compare_answers(connection, task)
        if task.may_start_experiments and task.benchmark_tool is None:
            task = await self._with_tool(connection, task)
        if task.may_start_experiments:
            task = await self._within_budget(connection, task)
        if task.may_start_experiments:
            is_requested = await self._request_next(connection, task)
            if task.may_propose:
                task = await self._propose(connection, task)
                is_requested |= await self._request_next(connection, task)
            if task.may_check and not task.may_propose:
                task = await self._check(connection, task)
                is_requested |= await self._request_next(connection, task)
            if is_requested:
                await self.write_task(connection, tasks.start(task, utcnow()))
                task = await self._require(connection, task_id)
        tally = (await experiment_rows.tallies(connection, [task_id]))[task_id]
        leader = await self._best(connection, task, tally.get(ExperimentState.SUCCEEDED, 0))
        ending = tasks.finish(task, tally, leader, utcnow())
        if ending is not None:
            await self.write_task(connection, ending)
            return ending.task
        if leader != task.best_experiment_id:
            task = replace(task, best_experiment_id=leader)
            await task_rows.save(connection, task)
        return task

    async def tasks_to_advance(self, connection: Connection) -> list[UUID]:
        """Those with a failed experiment that has paused for long enough, and searches of which
        nothing is under way.
        """
        return await task_rows.to_advance(connection, utcnow() - self.retry_pause)

    async def _propose(self, connection: Connection, task: Task) -> Task:
        """Store the next experiment of a search, or why there is none.

        One that waits for GPUs is enough: what is proposed later knows more.
        """
        tally = (await experiment_rows.tallies(connection, [task.task_id]))[task.task_id]
        unfinished = sum(tally[state] for state in tally if state not in FINISHED_EXPERIMENT_STATES)
        is_waiting = tally.get(ExperimentState.WAITING, 0) > 0
        if is_waiting or unfinished >= task.file.optimization.max_parallel:
            return task
        file = with_node_ids(task.file)
        search = make_search(file, default_seed=task.task_id.int, prior=task.prior)
        if search is None:
            return task
        try:
            file, _ = with_priced_gpus(file, task.prices)
            planner = make_planner(file, await self.offers(connection), self.cuda_rules)
        except RefusedError as error:
            log.info("proposal_postponed", task_id=task.task_id, reason=str(error))
            return task  # no executor present knows the engine; checked again by the next sweep
        goals = task.file.optimization.goals
        past = await search_history.tried(connection, task.task_id, goals=goals)
        past = [each for each in past if each.run.role in {RunRole.SEARCH, RunRole.SCREEN}]
        if task.warm is not None and await is_on_its_gpu(connection, task.task_id, task.warm):
            past += past_of(task.warm)
        trials = trials_of(goals, search.space, past)
        # Its arithmetic takes some 50 ms.
        proposal = await asyncio.to_thread(propose, search, trials, planner.is_possible)
        if isinstance(proposal, Waiting):
            return task
        if isinstance(proposal, StopReason):
            task = replace(task, stop_reason=proposal)
            await task_rows.save(connection, task)
            return task
        planned, _, _ = planner.experiment(proposal.ordinal, proposal.point)
        planned = fitted(planned, task.largest_gpu_mb)
        run = None
        if proposal.divisor > 1:
            run = RunInfo(role=RunRole.SCREEN, request_divisor=proposal.divisor)
        foreseen = predicted_score(task.prior, proposal.point) if task.prior is not None else None
        experiment = new_experiment(
            task, planned, new_id(), utcnow(), proposal.reason, run, foreseen
        )
        await experiment_rows.save(connection, [experiment])
        return task

    async def _check(self, connection: Connection, task: Task) -> Task:
        """Store the runs that show how far the best experiment can be trusted, or their result.

        All of the runs before them have ended, so that one after the other is interleaved.
        """
        wanted = task.file.optimization
        past = await search_history.tried(connection, task.task_id, goals=wanted.goals)
        if any(each.state not in FINISHED_EXPERIMENT_STATES for each in past):
            return task
        because = SPENT.get(task.stop_reason, "") if task.stop_reason is not None else ""
        checks = [] if because else next_checks(wanted.objective, past, wanted.max_parallel)
        if not checks:
            task = replace(task, trust=verdict(wanted.objective, past, because, wanted.goals))
            await task_rows.save(connection, task)
            return task
        firsts = {each.ordinal: each.scored.experiment_id for each in past if each.scored}
        ordinal = past[-1].ordinal
        for number, check in enumerate(checks, start=1):
            first = await experiment_rows.find(connection, firsts[check.repeats])
            if first is not None:
                run = RunInfo(role=check.role, repeats=check.repeats, seed=check.seed)
                again = same_again(first, ordinal + number, run, new_id(), utcnow(), check.reason)
                await experiment_rows.save(connection, [again])
        return task

    async def _within_budget(self, connection: Connection, task: Task) -> Task:
        """Cancels what has not started of a task that has used up its GPU-hours or its money."""
        wanted = task.file.optimization
        is_bounded = wanted.max_gpu_hours is not None or wanted.max_cost is not None
        if not is_bounded or task.stop_reason in SPENT:
            return task
        held = await search_history.held_gpus(connection, task.task_id, utcnow())
        spent = spent_budget(wanted, task.prices, held)
        if spent is None:
            return task
        stop_reason, reason = spent
        task = replace(task, stop_reason=stop_reason)
        await task_rows.save(connection, task)
        unfinished = await experiment_rows.unfinished(connection, task.task_id)
        pending = [each for each in unfinished if each.state is ExperimentState.PENDING]
        await self.write(
            connection, [waiting.cancel_unstarted(each, reason, utcnow()) for each in pending]
        )
        return task

    async def _request_next(self, connection: Connection, task: Task) -> bool:
        free = task.file.optimization.max_parallel - await attempt_rows.count_open(
            connection, task.task_id
        )
        if free <= 0:
            return False
        pending = await experiment_rows.pending(
            connection, task.task_id, free, utcnow() - self.retry_pause
        )
        if not pending:
            return False
        offers = await self.offers(connection)
        now = utcnow()
        decisions = []
        for experiment in pending:
            asking = await self._with_memory(connection, task, experiment)
            past = await past_runs.past_holds(connection, asking)
            decisions.append(
                waiting.request_gpus(
                    asking,
                    self._request_now(task, asking, offers, past),
                    now,
                    attempt_id=new_id(),
                    reservation_id=new_id(),
                    requester=task.requester,
                )
            )
        await self.write(connection, decisions)
        return True

    async def _with_memory(
        self, connection: Connection, task: Task, experiment: Experiment
    ) -> Experiment:
        """Learned memory counts until an attempt has run out of it."""
        ran_out = FailureKind.GPU_OUT_OF_MEMORY in experiment.failed_attempts
        engine, request, wanted = experiment.engine, experiment.request, task.file.gpus
        past = []
        if not ran_out and is_learned(request, wanted):
            past = await past_runs.past_peaks(connection, engine, request)
        asking, _ = with_memory(experiment, wanted, past, largest_gpu_mb(task))
        return asking

    def _request_now(
        self, task: Task, experiment: Experiment, offers: Sequence[Offer], past: PastHolds
    ) -> GpuRequest:
        """The experiment's request, for the executors that are present now if any is."""
        tool = task.benchmark_tool or task.file.benchmark.tool
        nodes = eligible_nodes(
            with_node_ids(task.file), task.mode, experiment.engine.engine, offers, tool
        )
        return replace(
            on_same_model(experiment.request, task),
            node_ids=nodes_to_request(experiment, nodes),
            expected_duration_seconds=expected_hold_seconds(
                past, longest_hold_seconds(task, self.overdue_after)
            ),
        )

    async def _with_tool(self, connection: Connection, task: Task) -> Task:
        """The task of an older release with the tool that it is measured with from now on."""
        pending = await experiment_rows.pending(connection, task.task_id, 1, utcnow())
        if not pending:
            return task
        offers = serving_offers(
            with_node_ids(task.file),
            task.mode,
            pending[0].engine.engine,
            await self.offers(connection),
        )
        has_started = await attempt_rows.was_started(connection, task.task_id)
        choice = tool_of_old(task.file.benchmark.tool, offers, has_started=has_started)
        notes = (*task.notes, choice.note) if choice.note else task.notes
        chosen = replace(task, benchmark_tool=choice.tool, notes=notes)
        await task_rows.save(connection, chosen)
        return chosen

    async def _best(self, connection: Connection, task: Task, succeeded: int) -> UUID | None:
        if not succeeded:
            return None
        past = await search_history.tried(connection, task.task_id, ExperimentState.SUCCEEDED)
        runs = {
            run.ordinal: run.scored
            for run in past
            if run.run.role is RunRole.SEARCH and run.scored is not None
        }
        if task.trust is not None:
            # What is named best is the configuration, by its first run, as in all of the verdict.
            winner = runs.get(task.trust.winner or 0)
            return winner.experiment_id if winner is not None else None
        others = other_settings(
            {run.ordinal: run.run for run in past}, (run.parameters for run in past)
        )
        scored = [
            replace(run, other_setting=others.get(ordinal, "")) for ordinal, run in runs.items()
        ]
        ranked = rank(task.file.optimization.objective, scored).ranked
        # One that misses the constraints may be the nearest, and is not best.
        return ranked[0].experiment_id if ranked and not ranked[0].excess else None

    async def _require(self, connection: Connection, task_id: UUID) -> Task:
        task = await task_rows.lock(connection, task_id)
        if task is None:
            raise LookupError(f"task {task_id} has experiments but no row")
        return task
