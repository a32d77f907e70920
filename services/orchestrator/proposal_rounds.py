"""Answers what searches try next without holding any lock, however long that takes."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar
from uuid import UUID

from schemas.base import Command
from schemas.errors import Accepted, Reply
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.plan.task_planner import TaskPlanner
from services.orchestrator.domain.progress.next_actions import TaskActions, next_actions
from services.orchestrator.domain.progress.proposals import Answer, Question, answer
from services.orchestrator.domain.progress.snapshot import TaskSnapshot
from services.orchestrator.domain.records import Task
from shared.ids import new_id
from shared.logging import log
from shared.postgres.commands import once
from shared.postgres.database import Connection, Database

T = TypeVar("T")

MAX_ROUNDS: Final = 3


class ProposalNeededError(Exception):
    """Rolls back a transaction that cannot go on without an answer."""

    def __init__(self, question: Question, task: Task, installation: Installation) -> None:
        super().__init__(f"task {task.task_id} needs a proposal")
        self.question = question
        self.task = task
        self.installation = installation


@dataclass(slots=True)
class Proposals:
    """The answers that a transaction may use.

    `is_open`: it is run again with the answer to a question that it ends with, and with the
    `installation` that the question was asked with, read a moment before.
    """

    is_open: bool = True
    installation: Installation | None = None
    answers: list[tuple[Question, Answer]] = field(default_factory=list)


async def answer_in_thread(
    question: Question, task: Task, installation: Installation, planner: TaskPlanner | None = None
) -> Answer:
    """Answer a question without holding up others: its arithmetic takes some 50 ms."""
    reply = await asyncio.to_thread(answer, question, task, installation, planner)
    if reply.reason:
        log.info("proposal_postponed", task_id=str(task.task_id), reason=reply.reason)
    return reply


async def decide_answered(
    snapshot: TaskSnapshot, installation: Installation, planner: TaskPlanner, now: datetime
) -> TaskActions:
    """Decide what a task does that is about to be stored, its first proposal answered."""
    actions = next_actions(snapshot, installation, now, new_id)
    if actions.question is None:
        return actions
    reply = await answer_in_thread(actions.question, snapshot.task, installation, planner)
    return next_actions(snapshot, installation, now, new_id, [(actions.question, reply)])


async def run_with_proposals(transact: Callable[[Proposals], Awaitable[T]]) -> T:
    """Run a transaction until all that it asks is answered.

    It is rolled back for a question, and run anew with the answer, which counts if the question is
    the same then: whatever else happened to the task meanwhile has its own transaction. After
    `MAX_ROUNDS` it goes without: the task is postponed.
    """
    proposals = Proposals()
    for _ in range(MAX_ROUNDS):
        try:
            return await transact(proposals)
        except ProposalNeededError as needed:
            proposals.installation = needed.installation
            reply = await answer_in_thread(needed.question, needed.task, needed.installation)
            proposals.answers.append((needed.question, reply))
    proposals.is_open = False
    return await transact(proposals)


async def once_with_proposals(
    database: Database,
    command: Command,
    apply: Callable[[Connection, Proposals], Awaitable[Accepted]],
) -> Reply:
    """Apply a command once, as `once` does, with the proposals that follow from it."""

    async def transact(proposals: Proposals) -> Reply:
        return await once(database, command, lambda connection: apply(connection, proposals))

    return await run_with_proposals(transact)


@dataclass(frozen=True, slots=True)
class PostponedTasks:
    """Tasks whose next proposal could not be made in the transaction that wanted it.

    In memory alone: a service that starts takes every search for postponed.
    """

    task_ids: set[UUID] = field(default_factory=set)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, task_id: UUID) -> None:
        self.task_ids.add(task_id)
        self.wake.set()

    def take(self) -> list[UUID]:
        """Return the tasks, which count as postponed no more."""
        self.wake.clear()
        task_ids = list(self.task_ids)
        self.task_ids.clear()
        return task_ids
