"""When an attempt over several nodes may start, and why it ends: decisions on plain data."""

from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.base import PLATFORM, node_speaker
from schemas.errors import ErrorCode, Refused
from schemas.executor.attempts import AttemptOutcome, Failure, FailureKind, GangPlace, Runtime
from schemas.executor.ranks import RankState, RankView
from services.executor.domain.admission import refuse_misdirected
from services.executor.domain.gang import (
    SIMULTANEOUS_SECONDS,
    RankStatus,
    cancel_rank,
    cause,
    coordinator_lost,
    first_failure,
    is_coordinated,
    nodes_of,
    poll_seconds,
    rank_of,
    rank_starts,
    start_rank,
)
from services.executor.domain.verdict import failure, failure_verdict
from services.executor.engines.engine_table import build_command, rank_flags
from shared.errors import RefusedError
from shared.lease import Lease
from tests.support.worlds.executor_gang import gang_devices, make_gang_start

TTL = 30.0
NOW = 1000.0
FINE = (RankState.PREPARING, RankState.READY, RankState.RUNNING)
OWN = failure_verdict(failure(FailureKind.ENGINE_EXITED, "rank 0's engine ended"))


def view(state: RankState, **overrides: Any) -> RankView:  # any field
    return RankView(executor_id="b", attempt_id=UUID(int=1), rank=1, state=state, **overrides)


def heard(rank: int, state: RankState | None = None, **overrides: Any) -> RankStatus:  # any field
    seen = {"rank": rank, "node_id": f"node-{rank}", "answered_at": NOW, "has_answered": True}
    about = overrides.pop("about", {})
    return RankStatus(**{"view": view(state, **about) if state else None, **seen, **overrides})


def ended(rank: int, seconds: float | None, kind: FailureKind, **overrides: Any) -> RankStatus:
    told = Failure(kind=kind, message=f"{kind.value} there", **overrides)
    return heard(rank, RankState.ENDING, about={"failure": told, "over_seconds": seconds})


def refused(code: ErrorCode) -> Refused:
    return Refused(code=code, message="no")


def test_ranks_follow_order_of_devices() -> None:
    devices = gang_devices("b", "a")

    assert nodes_of((devices[0], devices[2], devices[1], devices[3])) == ("b", "a")
    assert nodes_of(()) == ()


def test_each_node_gets_a_stable_start_for_its_rank() -> None:
    start = make_gang_start("a", "b", "c", executor_id="a")

    members = rank_starts(start)

    assert is_coordinated(start)
    assert not is_coordinated(make_gang_start("a"))
    assert [rank_of(each) for each in (start, *members)] == [0, 1, 2]
    assert not any(is_coordinated(member) for member in members)
    assert [member.executor_id for member in members] == ["b", "c"]
    assert [member.gang for member in members] == [
        GangPlace(rank=rank, size=3, coordinator_id="a") for rank in (1, 2)
    ]
    assert members == rank_starts(start)
    assert {member.speaker for member in members} == {node_speaker("a")}
    unlike = ("command_id", "executor_id", "gang", "speaker")
    same = {name: getattr(start, name) for name in unlike}
    assert [replace(member, **same) for member in members] == [start, start]


def test_coordinator_commands_have_stable_ids() -> None:
    members = rank_starts(make_gang_start("a", "b", "c", executor_id="a"))

    def ids() -> list[UUID]:
        words = [(m, start_rank(m, "10.0.0.1", 5000), cancel_rank(m)) for m in members]
        return [word.command_id for said in words for word in said]

    assert len(set(ids())) == 6
    assert ids() == ids()


@pytest.mark.parametrize(
    ("executor", "place", "path"),
    [
        pytest.param("a", None, None, id="the first device's node takes all"),
        pytest.param("b", None, "$.devices[0].node_id", id="another does not"),
        pytest.param("b", (1, 2, "a"), None, id="a rank of its own"),
        pytest.param("b", (2, 2, "a"), "$.gang.rank", id="no such rank"),
        pytest.param("a", (1, 2, "a"), "$.gang.rank", id="another node's rank"),
        pytest.param("b", (1, 3, "a"), "$.gang.rank", id="of more nodes than there are"),
        pytest.param("b", (1, 2, "b"), "$.gang.coordinator_id", id="not led by the first"),
    ],
)
def test_start_is_taken_only_by_its_rank_node(
    executor: str, place: tuple[int, int, str] | None, path: str | None
) -> None:
    start = make_gang_start("a", "b", executor_id=executor)
    if place is not None:
        rank, size, coordinator = place
        start = replace(start, gang=GangPlace(rank=rank, size=size, coordinator_id=coordinator))

    refusal = refuse_misdirected(start, executor, {Runtime.PROCESS})

    assert (refusal.path if refusal is not None else None) == path


@pytest.mark.parametrize(
    ("place", "speaker", "path"),
    [
        pytest.param(None, PLATFORM, None, id="the platform starts attempts"),
        pytest.param(None, node_speaker("a"), "$.speaker", id="no node does"),
        pytest.param((1, 2, "a"), node_speaker("a"), None, id="its coordinator starts a rank"),
        pytest.param((1, 2, "a"), node_speaker("c"), "$.speaker", id="no other node does"),
    ],
)
def test_node_starts_only_ranks_it_coordinates(
    place: tuple[int, int, str] | None, speaker: str, path: str | None
) -> None:
    gang = GangPlace(rank=place[0], size=place[1], coordinator_id=place[2]) if place else None
    executor = "b" if place else "a"
    start = make_gang_start("a", "b", executor_id=executor, gang=gang, speaker=speaker)

    refusal = refuse_misdirected(start, executor, {Runtime.PROCESS})

    assert (refusal.path if refusal is not None else None) == path


@pytest.mark.parametrize(
    ("rank", "want"),
    [
        pytest.param(heard(1), None, id="not yet heard"),
        *(pytest.param(heard(1, state), None, id=state.value) for state in FINE),
        pytest.param(
            ended(1, 1.0, FailureKind.GPU_OUT_OF_MEMORY),
            (AttemptOutcome.FAILED, FailureKind.RANK_FAILED),
            id="its engine failed",
        ),
        pytest.param(
            ended(1, None, FailureKind.EXECUTOR_RESTARTED),
            (AttemptOutcome.INTERRUPTED, FailureKind.RANK_FAILED),
            id="its executor was restarted",
        ),
        pytest.param(
            ended(1, 0.0, FailureKind.LEASE_LOST),
            (AttemptOutcome.INTERRUPTED, FailureKind.RANK_FAILED),
            id="it lost its lease",
        ),
        pytest.param(
            heard(1, RankState.ENDED),
            (AttemptOutcome.FAILED, FailureKind.RANK_FAILED),
            id="it ended without a word",
        ),
        pytest.param(
            heard(1, refusal=refused(ErrorCode.UNSUPPORTED)),
            (AttemptOutcome.FAILED, FailureKind.RANK_FAILED),
            id="it refused",
        ),
        pytest.param(
            heard(1, refusal=refused(ErrorCode.STALE_EPOCH)),
            (AttemptOutcome.INTERRUPTED, FailureKind.RANK_FAILED),
            id="its node has seen a newer grant",
        ),
        pytest.param(
            heard(1, RankState.RUNNING, answered_at=NOW - TTL + 0.1), None, id="silent for a while"
        ),
        pytest.param(
            heard(1, RankState.RUNNING, answered_at=NOW - TTL),
            (AttemptOutcome.INTERRUPTED, FailureKind.NODE_LOST),
            id="silent for a lease",
        ),
        pytest.param(
            heard(1, has_answered=False, answered_at=NOW - TTL),
            (AttemptOutcome.INTERRUPTED, FailureKind.NODE_LOST),
            id="never heard",
        ),
    ],
)
def test_one_rank_decides_for_all(
    rank: RankStatus, want: tuple[AttemptOutcome, FailureKind] | None
) -> None:
    verdict = first_failure((heard(2, RankState.RUNNING), rank), NOW, TTL)

    if want is None:
        assert verdict is None
        return
    assert verdict is not None
    assert verdict.failure is not None
    assert (verdict.outcome, verdict.failure.kind) == want
    assert verdict.failure.message.startswith("rank 1 on node-1")
    assert verdict.failure.hint


def test_rank_failure_keeps_words_of_its_node() -> None:
    rank = ended(
        3, 0.1, FailureKind.CUDA_ERROR, exit_code=1, hint="see dmesg", log_tail=("Xid 79",)
    )

    verdict = first_failure((rank,), NOW, TTL)

    assert verdict is not None
    assert verdict.failure == Failure(
        kind=FailureKind.RANK_FAILED,
        message="rank 3 on node-3: cuda_error there",
        exit_code=1,
        hint="see dmesg",
        log_tail=("Xid 79",),
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=6, unique_by=sum
    ),
    st.integers(0, 40),
    st.randoms(use_true_random=False),
)
def test_earliest_of_several_failures_counts(
    ranks_told: list[tuple[int, int]], own_seconds: int, order: Random
) -> None:
    """Each was told as some seconds ago, some seconds ago."""
    ranks = [
        replace(ended(rank, float(age), FailureKind.ENGINE_EXITED), answered_at=NOW - delay)
        for rank, (age, delay) in enumerate(ranks_told, start=1)
    ]
    oldest = max(map(sum, ranks_told))
    first = 1 + [sum(told) for told in ranks_told].index(oldest)
    order.shuffle(ranks)

    verdict = first_failure(ranks, NOW, TTL)
    told = cause(OWN, float(own_seconds), ranks, NOW, TTL)

    assert verdict is not None
    assert verdict.failure is not None
    assert verdict.failure.message.startswith(f"rank {first} ")
    assert told == (verdict if oldest > own_seconds else OWN)


@pytest.mark.parametrize(
    ("rank", "kind"),
    [
        pytest.param(heard(1, RankState.RUNNING), FailureKind.ENGINE_EXITED, id="answers"),
        pytest.param(
            heard(1, RankState.RUNNING, answered_at=NOW - TTL), FailureKind.NODE_LOST, id="silent"
        ),
        pytest.param(
            ended(1, None, FailureKind.EXECUTOR_RESTARTED),
            FailureKind.RANK_FAILED,
            id="is back and has forgotten when it ended",
        ),
        pytest.param(
            ended(1, 1.9, FailureKind.CANCELLED), FailureKind.ENGINE_EXITED, id="ended for it"
        ),
        pytest.param(
            ended(1, 1.8, FailureKind.ENGINE_EXITED, exit_code=-9),
            FailureKind.RANK_FAILED,
            id="was killed as good as together with it",
        ),
        pytest.param(
            ended(1, 2.0 - SIMULTANEOUS_SECONDS, FailureKind.ENGINE_EXITED, exit_code=-9),
            FailureKind.RANK_FAILED,
            id="was killed just about together with it",
        ),
        pytest.param(
            ended(1, 1.8, FailureKind.GPU_OUT_OF_MEMORY, exit_code=1),
            FailureKind.RANK_FAILED,
            id="says why, as good as together with it",
        ),
        pytest.param(
            ended(1, 1.8, FailureKind.ENGINE_EXITED, exit_code=1),
            FailureKind.ENGINE_EXITED,
            id="just ended too",
        ),
        pytest.param(
            ended(1, 1.8, FailureKind.ENGINE_EXITED, exit_code=0),
            FailureKind.ENGINE_EXITED,
            id="ended in order, too",
        ),
        pytest.param(
            ended(1, 0.5, FailureKind.ENGINE_EXITED, exit_code=-9),
            FailureKind.ENGINE_EXITED,
            id="was killed long after it",
        ),
        pytest.param(
            heard(1, refusal=refused(ErrorCode.NOT_FOUND)),
            FailureKind.ENGINE_EXITED,
            id="has nothing of it",
        ),
    ],
)
def test_rank_0_exit_is_blamed_on_lost_rank_or_itself(rank: RankStatus, kind: FailureKind) -> None:
    told = cause(OWN, 2.0, (heard(2, RankState.RUNNING), rank), NOW, TTL)

    assert told.failure is not None
    assert told.failure.kind is kind


@given(st.lists(st.sampled_from([*FINE, None]), min_size=1, max_size=8), st.floats(0, TTL - 0.001))
def test_healthy_ranks_end_nothing(states: list[RankState | None], silent_seconds: float) -> None:
    ranks = [
        heard(rank, state, answered_at=NOW - silent_seconds) for rank, state in enumerate(states, 1)
    ]

    assert first_failure(ranks, NOW, TTL) is None
    assert cause(OWN, 0.0, ranks, NOW, TTL) is OWN
    ready = {RankState.READY, RankState.RUNNING}
    assert [rank.is_ready for rank in ranks] == [state in ready for state in states]


VLLM = ("--nnodes", "2", "--node-rank")
PLACE = GangPlace(rank=1, size=2, coordinator_id="a")


@pytest.mark.parametrize(
    ("silent_seconds", "answer", "want"),
    [
        pytest.param(0.0, None, None, id="not yet answered"),
        pytest.param(24.9, None, None, id="silent for less than the lease but its stop budget"),
        pytest.param(25.1, None, FailureKind.NODE_LOST, id="silent for longer"),
        pytest.param(0.0, view(RankState.RUNNING), None, id="goes on"),
        pytest.param(0.0, view(RankState.ENDING), FailureKind.CANCELLED, id="ends"),
        pytest.param(0.0, view(RankState.ENDED), FailureKind.CANCELLED, id="has ended"),
        pytest.param(0.0, refused(ErrorCode.NOT_FOUND), FailureKind.CANCELLED, id="forgot"),
        pytest.param(0.0, refused(ErrorCode.INTERNAL), None, id="cannot tell now"),
    ],
)
def test_member_runs_only_while_coordinator_does(
    silent_seconds: float, answer: RankView | Refused | None, want: FailureKind | None
) -> None:
    lease = Lease(ttl_seconds=TTL, confirmed_at=NOW - silent_seconds)

    verdict = coordinator_lost(PLACE, lease, NOW, answer)

    kind = verdict.failure.kind if verdict is not None and verdict.failure is not None else None
    assert kind == want
    is_interrupted = verdict is not None and verdict.outcome is AttemptOutcome.INTERRUPTED
    assert is_interrupted == (want is FailureKind.NODE_LOST)


@given(st.floats(3, 3600), st.floats(0, 10_000))
def test_lone_member_stops_before_coordinator_gives_up(
    ttl_seconds: float, answered_at: float
) -> None:
    """The coordinator gives up one lease after it last answered in favour."""
    lease = Lease(ttl_seconds=ttl_seconds, confirmed_at=answered_at)
    gives_up_at = answered_at + ttl_seconds

    assert coordinator_lost(PLACE, lease, lease.stop_at, None) is not None
    assert lease.stop_at + lease.stop_grace_seconds(60.0) < gives_up_at


@pytest.mark.parametrize(("size", "seconds"), [(2, 0.25), (100, 0.25), (512, 1.28)])
def test_coordinator_polls_at_bounded_rate(size: int, seconds: float) -> None:
    assert poll_seconds(size) == seconds


@pytest.mark.parametrize(
    ("engine", "rank", "want"),
    [
        ("vllm", 0, [*VLLM, "0", "--master-addr", "10.0.0.1", "--master-port", "29500"]),
        (
            "vllm",
            1,
            [*VLLM, "1", "--master-addr", "10.0.0.1", "--master-port", "29500", "--headless"],
        ),
        ("sglang", 1, ["--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "10.0.0.1:29500"]),
        (
            "simulated",
            0,
            ["--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "10.0.0.1:29500"],
        ),
    ],
)
def test_engine_gets_rank_in_its_own_form(engine: str, rank: int, want: list[str]) -> None:
    flags = rank_flags(engine)(rank, 2, "10.0.0.1", 29500)

    command = build_command(engine, "m", {}, port=1, rank_parameters=flags)

    begin = command.argv.index("--nnodes")
    assert list(command.argv[begin : begin + len(want)]) == want


def test_an_ipv6_leader_is_written_in_brackets() -> None:
    flags = rank_flags("sglang")(1, 2, "fd00::1", 29500)

    assert flags["dist-init-addr"] == "[fd00::1]:29500"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "simulated"])
def test_a_task_does_not_set_ranks_itself(engine: str) -> None:
    with pytest.raises(RefusedError):
        build_command(engine, "m", {"node_rank": 1}, port=1)


def test_an_engine_of_one_node_has_no_ranks() -> None:
    with pytest.raises(RefusedError, match="llamacpp serves on one node only"):
        rank_flags("llamacpp")
