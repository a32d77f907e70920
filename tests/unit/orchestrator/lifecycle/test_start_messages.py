"""What attempts that are not ready wait for, as long as they do."""

from uuid import UUID

from schemas.executor.attempts import AttemptPhase, AttemptProgressed
from services.orchestrator.handlers.start_messages import MAX_MESSAGES, StartMessages
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.bus import Bus

ATTEMPT_ID = new_id()


def report(phase: AttemptPhase, message: str, attempt_id: UUID = ATTEMPT_ID) -> AttemptProgressed:
    return AttemptProgressed(
        observed_at=utcnow(),
        executor_id="k8s",
        experiment_id=new_id(),
        attempt_id=attempt_id,
        task_id=new_id(),
        phase=phase,
        fraction=0.0,
        message=message,
    )


async def test_newest_message_is_kept_until_ready() -> None:
    messages = StartMessages(Bus("test", "nats://nowhere"))

    await messages.observe(report(AttemptPhase.STARTING, "waits for quota"))
    await messages.observe(report(AttemptPhase.LOADING, "pulls its image"))
    newest = dict(messages.by_attempt)
    await messages.observe(report(AttemptPhase.MEASURING, "level 1 of 2"))

    assert newest == {ATTEMPT_ID: "pulls its image"}
    assert not messages.by_attempt


async def test_forgotten_messages_are_bounded() -> None:
    messages = StartMessages(Bus("test", "nats://nowhere"))

    for _ in range(MAX_MESSAGES + 1):
        await messages.observe(report(AttemptPhase.STARTING, "waits", attempt_id=new_id()))

    assert len(messages.by_attempt) == MAX_MESSAGES
