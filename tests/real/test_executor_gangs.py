"""One attempt over the executors of several nodes: all ranks of its engine start, or none."""

from pathlib import Path

from schemas.errors import Accepted
from schemas.executor import AttemptOutcome, AttemptStarted
from schemas.executor_ranks import RankState
from tests.executor_gang import LEADER, MEMBER, gang, gang_devices, make_gang_start


async def test_a_gang_runs_is_measured_and_given_back_once_by_its_coordinator(
    nats_url: str, tmp_path: Path
) -> None:
    start = make_gang_start()
    async with gang(nats_url, tmp_path) as nodes:
        reply = await nodes.scheduler.ask(start)
        finished = await nodes.scheduler.finished(start)
        release = await nodes.scheduler.until_released(start)
        facts = await nodes.scheduler.facts(start)
        member = await nodes.rank(start, MEMBER)

    assert isinstance(reply, Accepted)
    assert finished.outcome is AttemptOutcome.SUCCEEDED, finished.failure
    assert finished.executor_id == LEADER
    assert finished.devices == gang_devices(LEADER, MEMBER)
    assert finished.benchmark is not None
    assert sum(isinstance(fact, AttemptStarted) for fact in facts) == 1
    assert [fact.revision for fact in facts] == list(range(1, len(facts) + 1))
    assert release.stopped
    assert [one.reservation_id for one in nodes.scheduler.releases] == [start.reservation_id]
    assert nodes.scheduler.running_at_release == [[]]
    assert member is not None
    assert (member.rank, member.state) == (1, RankState.ENDED)
    assert sum(renewal.activate for renewal in nodes.scheduler.renewals) == 1
