"""A transaction that asks is run again with the answer, a bounded number of times."""

from typing import Any

import pytest

from services.orchestrator import proposal_rounds
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.plan.task_planner import make_task_planner
from services.orchestrator.domain.progress.proposals import Answer, answer, ask
from services.orchestrator.domain.progress.snapshot import TaskSnapshot
from services.orchestrator.proposal_rounds import (
    MAX_ROUNDS,
    ProposalNeededError,
    Proposals,
    decide_answered,
    run_with_proposals,
)
from tests.support.worlds.orchestrator_records import NOW, OFFERS, make_file, make_task

INSTALLATION = Installation(OFFERS)


def make_snapshot(optimization: dict[str, Any] | None = None) -> TaskSnapshot:
    optimization = optimization or {"strategy": "random"}
    file = make_file(parameters={"slots": [1, 2]}, optimization=optimization)
    return TaskSnapshot(task=make_task(file), file=file, tally={}, open_attempts=0, history=())


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposal_rounds, "answer", lambda *_: Answer(reason="not now"))


@pytest.mark.usefixtures("answers")
async def test_question_is_answered_before_the_next_run() -> None:
    snapshot, rounds = make_snapshot(), []

    async def transact(proposals: Proposals) -> str:
        rounds.append(list(proposals.answers))
        if not proposals.answers:
            question = ask(snapshot, INSTALLATION)
            assert question is not None
            raise ProposalNeededError(question, snapshot.task, INSTALLATION)
        return "done"

    assert await run_with_proposals(transact) == "done"

    [(question, answer)] = rounds[1]
    assert question == ask(snapshot, INSTALLATION)
    assert answer == Answer(reason="not now")


@pytest.mark.usefixtures("answers")
async def test_transaction_goes_without_after_the_last_round() -> None:
    snapshot, rounds = make_snapshot(), []

    async def transact(proposals: Proposals) -> bool:
        rounds.append(proposals.is_open)
        if proposals.is_open:
            question = ask(snapshot, INSTALLATION)
            assert question is not None
            raise ProposalNeededError(question, snapshot.task, INSTALLATION)
        return proposals.is_open

    assert await run_with_proposals(transact) is False

    assert rounds == [True] * MAX_ROUNDS + [False]


@pytest.mark.parametrize("seed", [None, 7])
async def test_new_task_has_its_first_proposal_answered(seed: int | None) -> None:
    optimization = {"strategy": "random"} | ({} if seed is None else {"seed": seed})
    snapshot = make_snapshot(optimization)
    question = ask(snapshot, INSTALLATION)
    planner = make_task_planner(snapshot.file, INSTALLATION)

    actions = await decide_answered(snapshot, INSTALLATION, planner, NOW)

    assert question is not None
    reply = answer(question, snapshot.task, INSTALLATION)
    [experiment] = actions.added
    assert reply.proposal is not None
    assert experiment.parameters == reply.proposal.planned.parameters
    assert (actions.requesting, actions.question) == (actions.added, None)
