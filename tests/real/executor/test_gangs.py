"""One attempt over the executors of several nodes: all ranks of its engine start, or none."""

import os
import signal
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from schemas.base import node_speaker
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.executor.attempts import AttemptOutcome, AttemptStarted, FailureKind, StartExperiment
from schemas.executor.ranks import RankState, StartRank
from schemas.scheduler.reservations import RenewReservation
from services.executor.domain.gang import rank_starts
from tests.support.idle_clock import idle_time
from tests.support.processes.inference_engine import require_engine
from tests.support.worlds.executor import Scheduler, accept, grant, make_cancel, make_start
from tests.support.worlds.executor_gang import LEADER, MEMBER, gang, gang_devices, make_gang_start


def make_go(start: StartExperiment) -> StartRank:
    """The word to a rank of a leader that is nowhere."""
    return StartRank(
        command_id=uuid4(),
        executor_id=MEMBER,
        attempt_id=start.attempt_id,
        leader_address="127.0.0.1",
        leader_port=1,
    )


async def test_gang_is_measured_and_released_once(nats_url: str, tmp_path: Path) -> None:
    """Also where every message comes twice."""
    start = make_gang_start()
    [member_start] = rank_starts(start)
    async with gang(nats_url, tmp_path) as nodes:
        reply = await nodes.scheduler.ask(start)
        again = await nodes.scheduler.ask(replace(start, command_id=uuid4()))
        await nodes.until(start, MEMBER, RankState.RUNNING)
        member_again = await nodes.scheduler.ask(member_start)
        word = make_go(start)
        go_again = [await nodes.scheduler.ask(word) for _ in range(2)]
        finished = await nodes.scheduler.finished(start)
        release = await nodes.scheduler.until_released(start)
        facts = await nodes.scheduler.facts(start)
        member = await nodes.rank(start, MEMBER)
        too_late = await nodes.scheduler.ask(replace(word, command_id=uuid4()))

    replies = [reply, again, member_again, *go_again]
    assert all(isinstance(each, Accepted) for each in replies)
    assert finished.outcome is AttemptOutcome.SUCCEEDED, finished.failure
    assert finished.executor_id == LEADER
    assert finished.devices == gang_devices(LEADER, MEMBER)
    assert finished.benchmark is not None
    assert finished.benchmark.metrics.total_completed_requests == 12
    assert sum(isinstance(fact, AttemptStarted) for fact in facts) == 1
    assert [fact.revision for fact in facts] == list(range(1, len(facts) + 1))
    assert release.stopped
    assert [one.reservation_id for one in nodes.scheduler.releases] == [start.reservation_id]
    assert nodes.scheduler.running_at_release == [[]]
    assert member is not None
    assert (member.rank, member.state, member.address) == (1, RankState.ENDED, "127.0.0.1")
    assert [renewal.activate for renewal in nodes.scheduler.renewals][:2] == [True, False]
    assert isinstance(too_late, Refused)
    assert too_late.code is ErrorCode.LEASE_LOST


async def test_refusal_by_one_node_starts_no_rank(nats_url: str, tmp_path: Path) -> None:
    start = make_gang_start()
    async with gang(nats_url, tmp_path, of_member={"allow_simulated_engine": False}) as nodes:
        await nodes.scheduler.ask(start)
        finished = await nodes.scheduler.finished(start)
        release = await nodes.scheduler.until_released(start)
        late = await nodes.scheduler.ask(rank_starts(start)[0])
        log = tmp_path / LEADER / "executor" / "attempts" / str(start.attempt_id) / "engine.log"

    assert finished.failure is not None
    assert finished.outcome is AttemptOutcome.FAILED
    assert finished.failure.kind is FailureKind.RANK_FAILED
    assert finished.failure.message == (
        f"rank 1 on {MEMBER} was refused: simulated engines are switched off on this node"
    )
    assert "gpusteward doctor" in finished.failure.hint
    assert release.stopped
    assert not log.exists()
    assert isinstance(late, Refused)


async def test_rank_without_lease_keeps_gang_from_starting(nats_url: str, tmp_path: Path) -> None:
    def only_the_first(command: RenewReservation) -> Reply:
        if command.activate:
            return accept(command)
        return Refused(code=ErrorCode.LEASE_LOST, message="it has ended")

    start = make_gang_start()
    async with gang(nats_url, tmp_path, answer_renewal=only_the_first) as nodes:
        await nodes.scheduler.ask(start)
        finished = await nodes.scheduler.finished(start)
        await nodes.scheduler.until_released(start)

    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.RANK_FAILED
    assert finished.failure.message.startswith(f"rank 1 on {MEMBER}: the scheduler refused")
    assert nodes.scheduler.running_at_release == [[]]


@pytest.mark.long
async def test_rank_death_while_measuring_ends_gang_by_name(nats_url: str, tmp_path: Path) -> None:
    start = make_gang_start(endless=True)
    async with gang(nats_url, tmp_path) as nodes:
        await nodes.scheduler.ask(start)
        await nodes.scheduler.until_measuring(start)
        [leader] = nodes.pids(start, LEADER)
        [member] = nodes.pids(start, MEMBER)
        os.kill(member, signal.SIGKILL)
        finished = await nodes.scheduler.finished(start)
        await nodes.scheduler.until_released(start)

    assert leader != member
    assert finished.outcome is AttemptOutcome.FAILED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.RANK_FAILED
    assert finished.failure.message.startswith(f"rank 1 on {MEMBER}: simulated ended")
    assert "rank 1 has met its leader (simulated)" in finished.failure.log_tail
    assert finished.failure.hint
    assert nodes.scheduler.running_at_release == [[]]


async def test_waiting_gang_is_cancelled_on_all_nodes(nats_url: str, tmp_path: Path) -> None:
    """The second node's executor is not there: nobody starts, and it is told as soon as it is."""
    start = make_gang_start(lease_ttl_seconds=6.0)
    async with gang(nats_url, tmp_path, LEADER) as nodes:
        await nodes.scheduler.ask(start)
        await nodes.until(start, LEADER, RankState.READY)
        cancel = await nodes.scheduler.ask(make_cancel(start))
        await nodes.until(start, LEADER, RankState.ENDING)
        async with gang(nats_url, tmp_path, MEMBER):
            finished = await nodes.scheduler.finished(start)
            late = await nodes.scheduler.ask(rank_starts(start)[0])

    assert isinstance(cancel, Accepted)
    assert finished.outcome is AttemptOutcome.CANCELLED
    assert isinstance(late, Refused)
    assert late.code is ErrorCode.CONFLICT
    assert "cancelled" in late.message


async def test_node_ignores_commands_of_foreign_coordinator(nats_url: str, tmp_path: Path) -> None:
    start = make_gang_start()
    stranger = node_speaker("node-3")
    async with gang(nats_url, tmp_path, MEMBER) as nodes:
        made_up = rank_starts(make_gang_start(epoch=2**40))[0]
        ungranted = await nodes.scheduler.ask(made_up)
        grant(start)
        member = await nodes.scheduler.ask(rank_starts(start)[0])
        await nodes.until(start, MEMBER, RankState.READY)
        go = await nodes.scheduler.ask(replace(make_go(start), speaker=stranger))
        cancel = await nodes.scheduler.ask(make_cancel(start, executor_id=MEMBER, speaker=stranger))
        state = await nodes.state(start, MEMBER)

    assert isinstance(member, Accepted)
    assert isinstance(ungranted, Refused)
    assert ungranted.code is ErrorCode.NOT_FOUND
    for reply in (go, cancel):
        assert isinstance(reply, Refused)
        assert (reply.code, reply.path) == (ErrorCode.FORBIDDEN, "$.speaker")
    assert state is RankState.READY


@pytest.mark.long
async def test_rank_without_coordinator_stops_within_lease(nats_url: str, tmp_path: Path) -> None:
    """Its own engine goes on: it waits for a leader that is nowhere."""
    start = make_gang_start(lease_ttl_seconds=6.0)
    [member_start] = rank_starts(start)
    grant(start)
    with idle_time(timers=False) as clock:
        async with gang(nats_url, tmp_path, MEMBER) as nodes:
            began = clock()
            await nodes.scheduler.ask(member_start)
            await nodes.until(start, MEMBER, RankState.READY)
            await nodes.scheduler.ask(make_go(start))
            await nodes.until(start, MEMBER, RankState.RUNNING)
            pids = nodes.pids(start, MEMBER)
            view = await nodes.until(start, MEMBER, RankState.ENDED)
            took_seconds = clock() - began
            left = nodes.pids(start, MEMBER)
            facts = await nodes.scheduler.facts(start)

    assert len(pids) == 1
    assert left == []
    assert view.failure is not None
    assert view.failure.kind is FailureKind.NODE_LOST
    assert f"the coordinator on {LEADER} has not answered" in view.failure.message
    assert took_seconds < 5.0  # of 6: it misses what passes while something computes
    assert facts == []
    assert nodes.scheduler.releases == []
    assert nodes.scheduler.progress == []


async def test_single_node_engine_is_refused_for_several(nats_url: str, tmp_path: Path) -> None:
    require_engine("llamacpp")
    single = make_start({}, engine="llamacpp", model="none.gguf")
    start = replace(single, devices=gang_devices(LEADER, MEMBER))
    async with gang(nats_url, tmp_path, LEADER) as nodes:
        reply = await nodes.scheduler.ask(start)

    assert isinstance(reply, Refused)
    assert reply.code is ErrorCode.UNSUPPORTED
    assert "one node only" in reply.message


async def test_rank_death_while_loading_ends_gang_by_name(nats_url: str, tmp_path: Path) -> None:
    slow = {"start-delay-seconds": 30}
    start = make_gang_start("node-1", "node-2", "node-3", parameters=slow)
    async with gang(nats_url, tmp_path, "node-1", "node-2", "node-3") as nodes:
        await nodes.scheduler.ask(start)
        for node in ("node-1", "node-2", "node-3"):
            await nodes.until(start, node, RankState.RUNNING)
        [third] = nodes.pids(start, "node-3")
        os.kill(third, signal.SIGKILL)
        finished = await nodes.scheduler.finished(start)

    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.RANK_FAILED
    assert finished.failure.message.startswith("rank 2 on node-3: simulated ended by itself")
    assert nodes.scheduler.running_at_release == [[]]


@pytest.mark.long
async def test_lease_lost_by_one_rank_ends_gang(nats_url: str, tmp_path: Path) -> None:
    nodes_scheduler: list[Scheduler] = []
    coordinators: set[str] = set()
    is_over = False

    def only_the_coordinator(command: RenewReservation) -> Reply:
        sender = nodes_scheduler[0].renewing
        if command.activate:
            coordinators.add(sender)
        if is_over and sender not in coordinators:
            return Refused(code=ErrorCode.LEASE_LOST, message="it has ended")
        return accept(command)

    start = make_gang_start(endless=True, lease_ttl_seconds=3.0)
    async with gang(nats_url, tmp_path, answer_renewal=only_the_coordinator) as nodes:
        nodes_scheduler.append(nodes.scheduler)
        await nodes.scheduler.ask(start)
        await nodes.scheduler.until_measuring(start)
        is_over = True
        finished = await nodes.scheduler.finished(start)

    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.RANK_FAILED
    assert finished.failure.message.startswith(f"rank 1 on {MEMBER}: the scheduler refused")
    assert nodes.scheduler.running_at_release == [[]]
