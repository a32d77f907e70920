"""Who asks the same at the same time shares an answer, which is never of before the question."""

import asyncio

import pytest

from services.gateway.shared_answers import SharedAnswers


class Owner:
    """Answers with the number of changes that it knew when it was asked."""

    def __init__(self) -> None:
        self.changes = 0
        self.times_asked = 0
        self.may_answer = asyncio.Event()

    async def answer(self) -> int:
        self.times_asked += 1
        known = self.changes
        await self.may_answer.wait()
        return known


async def test_questions_at_the_same_time_share_one_answer() -> None:
    owner, answers = Owner(), SharedAnswers()
    owner.may_answer.set()

    await asyncio.gather(*(answers.share("tasks", owner.answer) for _ in range(10)))
    assert owner.times_asked == 1
    await answers.share("tasks", owner.answer)
    assert owner.times_asked == 2


async def test_answer_knows_what_was_changed_before_its_question() -> None:
    owner, answers = Owner(), SharedAnswers()
    first = asyncio.create_task(answers.share("tasks", owner.answer))
    await asyncio.sleep(0.01)
    owner.changes += 1
    later = [asyncio.create_task(answers.share("tasks", owner.answer)) for _ in range(2)]
    other = asyncio.create_task(answers.share("reservations", owner.answer))
    await asyncio.sleep(0.01)
    owner.may_answer.set()

    assert await asyncio.gather(first, *later, other) == [0, 1, 1, 1]
    assert owner.times_asked == 3


async def test_refusal_reaches_everybody_and_is_forgotten() -> None:
    owner, answers = Owner(), SharedAnswers()
    owner.may_answer.set()

    async def refuse() -> int:
        raise ValueError

    refused = await asyncio.gather(
        *(answers.share("tasks", refuse) for _ in range(2)), return_exceptions=True
    )
    assert [type(each) for each in refused] == [ValueError, ValueError]
    assert await answers.share("tasks", owner.answer) == 0


async def test_a_client_that_goes_leaves_the_answer_to_the_others() -> None:
    owner, answers = Owner(), SharedAnswers()
    gone, staying = (asyncio.create_task(answers.share("tasks", owner.answer)) for _ in range(2))
    await asyncio.sleep(0.01)
    gone.cancel()
    owner.may_answer.set()

    assert await staying == 0
    with pytest.raises(asyncio.CancelledError):
        await gone
