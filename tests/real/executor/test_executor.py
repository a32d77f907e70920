"""The executor over a real bus, with its journal on disk and engines as real processes."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.executor.attempts import (
    AttemptFinished,
    AttemptOutcome,
    AttemptPhase,
    AttemptStarted,
    EngineSpec,
    FailureKind,
    Runtime,
)
from schemas.scheduler.reservations import RenewReservation
from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool, LoadBoundary, LoadKind, LoadSearch
from services.executor.app import create_service
from services.executor.settings import ExecutorSettings
from shared.testing import eventually
from tests.support.processes.inference_engine import require_engine
from tests.support.worlds.executor import (
    FAST,
    Scheduler,
    labelled_process,
    make_cancel,
    make_device,
    make_endless_start,
    make_fence,
    make_part,
    make_settings,
    make_start,
    phases_of,
    scheduling,
)


@asynccontextmanager
async def node(
    nats_url: str,
    data_dir: Path,
    *,
    settings: dict[str, Any] | None = None,
    **answers: Any,  # passed on
) -> AsyncIterator[Scheduler]:
    own: ExecutorSettings = make_settings(nats_url, data_dir, **(settings or {}))
    async with scheduling(own, **answers) as scheduler, create_service(own).running():
        yield scheduler


async def test_experiment_is_measured_and_gpus_released(nats_url: str, tmp_path: Path) -> None:
    start = make_start(devices=(make_device("GPU-a"), make_device("GPU-b", 1)))
    async with node(nats_url, tmp_path) as scheduler:
        reply = await scheduler.ask(start)
        finished = await scheduler.finished(start)
        release = await scheduler.until_released(start)
        facts = await scheduler.facts(start)
        running = await scheduler.running()

    assert reply == Accepted(command_id=start.command_id)
    assert finished.outcome is AttemptOutcome.SUCCEEDED
    assert finished.failure is None
    assert finished.engine_simulated
    assert finished.benchmark is not None
    assert finished.benchmark.tool is BenchmarkTool.BUILTIN
    assert finished.benchmark.simulated
    assert [level.num_concurrency for level in finished.benchmark.levels] == [1, 2]
    assert finished.benchmark.metrics.total_completed_requests == 12
    assert len(finished.windows) == 2
    assert all(window.started_at < window.finished_at for window in finished.windows)
    assert finished.started_at <= finished.windows[0].started_at
    assert finished.windows[-1].finished_at <= finished.finished_at

    assert isinstance(facts[0], AttemptStarted)
    assert isinstance(facts[-1], AttemptFinished)
    assert [fact.revision for fact in facts] == list(range(1, len(facts) + 1))
    phases = phases_of(facts)
    assert phases == [
        AttemptPhase.LOADING,
        *[AttemptPhase.WARMING_UP, AttemptPhase.MEASURING] * 2,
        AttemptPhase.DRAINING,
        AttemptPhase.TEARING_DOWN,
    ]
    assert [timing.phase for timing in finished.phases] == [AttemptPhase.STARTING, *phases]
    assert scheduler.renewals[0].activate
    assert (release.epoch, release.stopped) == (start.epoch, True)
    assert scheduler.running_at_release == [[]]
    assert running.attempts == ()


async def test_a_load_is_searched_on_one_running_engine(nats_url: str, tmp_path: Path) -> None:
    start = make_start(
        benchmark=BenchmarkSpec(
            traffic_scenarios=("D(8,8)",),
            max_requests_per_level=6,
            load_search=LoadSearch(max=16),
            constraints="error_rate<=1%",
        )
    )
    async with node(nats_url, tmp_path) as scheduler:
        await scheduler.ask(start)
        finished = await scheduler.finished(start)
        facts = await scheduler.facts(start)

    assert finished.benchmark is not None
    assert [level.num_concurrency for level in finished.benchmark.levels] == [1, 4, 16]
    metrics = finished.benchmark.metrics
    assert metrics.boundary == LoadBoundary(
        load=LoadKind.CONCURRENCY, low=16, high=None, estimate=16, measured=16, levels=3
    )
    assert metrics.total_levels == 1
    phases = phases_of(facts)
    assert phases.count(AttemptPhase.LOADING) == 1
    assert phases.count(AttemptPhase.MEASURING) == 3


async def test_engine_sees_devices_labels_and_no_secrets(
    nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSTEWARD_POSTGRES_DSN", "postgresql://secret@/")
    start = make_endless_start(devices=(make_device("GPU-a"), make_device("GPU-b", 1)))
    async with node(nats_url, tmp_path) as scheduler:
        await scheduler.ask(start)
        [pid] = await scheduler.until_measuring(start)
        variables = environment_of(pid)
        session = os.getsid(pid)
        group = os.getpgid(pid)
        await eventually(lambda: bool(scheduler.progress), what="progress")
        running = await scheduler.running()
        await scheduler.ask(make_cancel(start))
        await scheduler.finished(start)

    assert variables["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert variables["GPUSTEWARD_RESERVATION"] == str(start.reservation_id)
    assert variables["GPUSTEWARD_EPOCH"] == "7"
    assert variables["GPUSTEWARD_EXPERIMENT"] == str(start.experiment_id)
    assert "GPUSTEWARD_POSTGRES_DSN" not in variables
    assert session == group == pid != os.getsid(0)
    assert [one.pids for one in running.attempts] == [(pid,)]
    assert running.attempts[0].phase is AttemptPhase.MEASURING
    assert scheduler.progress[0].attempt_id == start.attempt_id


async def test_the_same_start_twice_runs_once(nats_url: str, tmp_path: Path) -> None:
    start = make_start()
    again = msgspec.structs.replace(start, command_id=uuid4())
    async with node(nats_url, tmp_path) as scheduler:
        replies = [await scheduler.ask(start), await scheduler.ask(start)]
        by_attempt = await scheduler.ask(again)
        reused = await scheduler.ask(msgspec.structs.replace(start, epoch=8))
        other_body = await scheduler.ask(
            msgspec.structs.replace(again, command_id=uuid4(), epoch=8)
        )
        await scheduler.finished(start)
        after = await scheduler.ask(msgspec.structs.replace(start, command_id=uuid4()))
        await asyncio.sleep(0.3)
        facts = await scheduler.facts(start)

    assert replies[0] == replies[1] == Accepted(command_id=start.command_id)
    assert isinstance(by_attempt, Accepted)
    assert isinstance(after, Accepted)
    assert refusal(reused) == (ErrorCode.COMMAND_ID_REUSED, "$.command_id")
    assert refusal(other_body) == (ErrorCode.CONFLICT, "$.attempt_id")
    assert sum(isinstance(fact, AttemptFinished) for fact in facts) == 1
    assert sum(isinstance(fact, AttemptStarted) for fact in facts) == 1


async def test_an_older_grant_of_a_device_is_refused(nats_url: str, tmp_path: Path) -> None:
    # Without a lease an attempt ends at once; its epoch counts all the same.
    async with node(nats_url, tmp_path, answer_renewal=refuse_lease) as scheduler:
        newer = make_start(epoch=9)
        await scheduler.ask(newer)
        await scheduler.finished(newer)
        stale = await scheduler.ask(make_start(epoch=8))
        elsewhere = make_start(epoch=8, devices=(make_device("GPU-1", 1),))
        unrelated = await scheduler.ask(elsewhere)
        await scheduler.finished(elsewhere)
        await eventually(lambda: bool(scheduler.reports), what="a report")

    assert refusal(stale) == (ErrorCode.STALE_EPOCH, "$.devices[0]")
    assert isinstance(unrelated, Accepted)


async def test_attempts_never_share_device_or_experiment(nats_url: str, tmp_path: Path) -> None:
    start = make_endless_start()
    async with node(nats_url, tmp_path) as scheduler:
        await scheduler.ask(start)
        same_device = await scheduler.ask(make_start(epoch=8))
        same_experiment = await scheduler.ask(
            make_start(
                epoch=9, experiment_id=start.experiment_id, devices=(make_device("GPU-1", 1),)
            )
        )
        await scheduler.ask(make_cancel(start))
        await scheduler.finished(start)
        free_again = await scheduler.ask(make_start(epoch=8))

    assert refusal(same_device) == (ErrorCode.STILL_RUNNING, None)
    assert refusal(same_experiment) == (ErrorCode.STILL_RUNNING, None)
    assert isinstance(free_again, Accepted)


async def test_two_attempts_run_on_shares_of_one_device(nats_url: str, tmp_path: Path) -> None:
    newer = make_endless_start(epoch=9, devices=(make_part((5_000, 10_000)),))
    older = make_endless_start(epoch=8, devices=(make_part((0, 5_000)),))
    async with node(nats_url, tmp_path) as scheduler:
        await scheduler.ask(newer)
        beside = await scheduler.ask(older)
        over = await scheduler.ask(make_start(epoch=10, devices=(make_part((4_000, 6_000)),)))
        for start in (newer, older):
            await scheduler.until_measuring(start)
        fenced = await scheduler.ask(make_fence(newer.reservation_id))
        ended = await scheduler.finished(newer)
        running = await scheduler.running()
        again = await scheduler.ask(make_start(epoch=8, devices=(make_part((5_000, 6_000)),)))
        await scheduler.ask(make_cancel(older))
        await scheduler.finished(older)

    assert isinstance(beside, Accepted)
    assert refusal(over) == (ErrorCode.STILL_RUNNING, None)
    assert isinstance(fenced, Accepted) or refusal(fenced) == (ErrorCode.STILL_RUNNING, None)
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.LEASE_LOST
    assert [one.attempt_id for one in running.attempts] == [older.attempt_id]
    assert refusal(again) == (ErrorCode.STALE_EPOCH, "$.devices[0]")


async def test_cancel_ends_engine_that_ignores_sigterm_in_5_s(
    nats_url: str, tmp_path: Path
) -> None:
    start = make_endless_start({"ignore-sigterm": True})
    async with node(nats_url, tmp_path) as scheduler:
        await scheduler.ask(start)
        pids = await scheduler.until_measuring(start)
        began = time.monotonic()
        reply = await scheduler.ask(make_cancel(start, reason="not needed"))
        release = await scheduler.until_released(start)
        took_seconds = time.monotonic() - began
        finished = await scheduler.finished(start)

    assert isinstance(reply, Accepted)
    assert len(pids) == 1
    assert took_seconds < 5
    assert scheduler.running_at_release == [[]]
    assert release.stopped
    assert finished.outcome is AttemptOutcome.CANCELLED
    assert finished.failure is not None
    assert finished.failure.message == "cancelled: not needed"
    assert finished.benchmark is None


async def test_attempt_cancelled_before_arrival_never_starts(nats_url: str, tmp_path: Path) -> None:
    start = make_start()
    async with node(nats_url, tmp_path) as scheduler:
        cancelled = await scheduler.ask(make_cancel(start))
        started = await scheduler.ask(start)

    assert isinstance(cancelled, Accepted)
    assert refusal(started) == (ErrorCode.CONFLICT, None)


async def test_failed_start_ends_attempt_with_last_lines(nats_url: str, tmp_path: Path) -> None:
    require_engine("llamacpp")
    broken = tmp_path / "models" / "broken.gguf"
    broken.parent.mkdir()
    broken.write_bytes(b"no weights")
    start = make_start({"threads": 1}, engine="llamacpp", model=str(broken))
    settings = {"model_roots": str(broken.parent)}
    async with node(nats_url, tmp_path, settings=settings) as scheduler:
        await scheduler.ask(start)
        finished = await scheduler.finished(start)
        await scheduler.until_released(start)

    assert finished.outcome is AttemptOutcome.FAILED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.MODEL_MISSING
    assert finished.failure.exit_code == 3
    assert any("did not start" in line for line in finished.failure.log_tail)


async def test_engine_death_while_measuring_fails_attempt(nats_url: str, tmp_path: Path) -> None:
    start = make_endless_start({"die-after-requests": 3, "tpot-seconds": 0.001})
    async with node(nats_url, tmp_path) as scheduler:
        await scheduler.ask(start)
        finished = await scheduler.finished(start)
        await scheduler.until_released(start)

    assert finished.outcome is AttemptOutcome.FAILED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.ENGINE_EXITED
    assert finished.failure.exit_code == 1
    assert finished.failure.log_tail[0].startswith("listening on http://")
    assert finished.benchmark is None


async def test_work_cancelled_from_inside_fails_attempt(
    nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr("services.executor.attempts.run.probe_and_load", cancelled)
    start = make_start(FAST)
    async with node(nats_url, tmp_path) as scheduler:
        await scheduler.ask(start)
        finished = await scheduler.finished(start)
        await scheduler.until_released(start)

    assert finished.outcome is AttemptOutcome.FAILED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.INTERNAL
    assert "cancelled from inside" in finished.failure.message


async def test_benchmark_with_failed_requests_fails(nats_url: str, tmp_path: Path) -> None:
    start = make_start({**FAST, "error-rate": 1})
    async with node(nats_url, tmp_path) as scheduler:
        await scheduler.ask(start)
        finished = await scheduler.finished(start)

    assert finished.outcome is AttemptOutcome.FAILED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.BENCHMARK_FAILED
    assert "12 x 500" in finished.failure.message


@pytest.mark.parametrize(
    ("parameters", "overrides", "settings", "want"),
    [
        pytest.param({}, {"timeout_seconds": 2.0}, {}, FailureKind.TIMEOUT, id="the whole attempt"),
        pytest.param(
            {"start-delay-seconds": 60},
            {},
            {"readiness_timeout_seconds": 1.0},
            FailureKind.READINESS_TIMEOUT,
            id="getting ready",
            marks=pytest.mark.long,
        ),
    ],
)
async def test_what_takes_too_long_is_ended(
    nats_url: str,
    tmp_path: Path,
    parameters: dict[str, Any],
    overrides: dict[str, Any],
    settings: dict[str, Any],
    want: FailureKind,
) -> None:
    start = make_endless_start(parameters, **overrides)
    async with node(nats_url, tmp_path, settings=settings) as scheduler:
        await scheduler.ask(start)
        finished = await scheduler.finished(start)
        await scheduler.until_released(start)

    assert finished.outcome is AttemptOutcome.FAILED
    assert finished.failure is not None
    assert finished.failure.kind is want
    assert scheduler.running_at_release == [[]]


async def test_nothing_starts_without_confirmed_lease(nats_url: str, tmp_path: Path) -> None:
    start = make_start()
    async with node(nats_url, tmp_path, answer_renewal=refuse_lease) as scheduler:
        await scheduler.ask(start)
        finished = await scheduler.finished(start)
        facts = await scheduler.facts(start)

    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.LEASE_LOST
    assert facts == [finished]
    assert not (tmp_path / "executor" / "attempts").exists()


async def test_lease_refusal_stops_engine_at_once(nats_url: str, tmp_path: Path) -> None:
    start = make_endless_start(lease_ttl_seconds=12.0)
    async with node(nats_url, tmp_path) as scheduler:
        await scheduler.ask(start)
        await scheduler.until_measuring(start)
        scheduler.answer_renewal = refuse_lease
        began = time.monotonic()
        finished = await scheduler.finished(start)
        took_seconds = time.monotonic() - began

    assert finished.outcome is AttemptOutcome.INTERRUPTED
    # The next renewal is asked for after a third of the lease; without an answer two thirds pass.
    assert took_seconds < 7.5
    assert not any(renewal.activate for renewal in scheduler.renewals[1:])


async def test_isolated_executor_stops_before_lease_ends(nats_url: str, tmp_path: Path) -> None:
    ttl_seconds = 6.0
    last_answered = 0.0
    is_silent = False

    def answer(command: RenewReservation) -> Reply | None:
        nonlocal last_answered
        if is_silent:
            return None
        last_answered = time.monotonic()
        return Accepted(command_id=command.command_id, lease_ttl_seconds=ttl_seconds)

    start = make_endless_start({"ignore-sigterm": True}, lease_ttl_seconds=ttl_seconds)
    async with node(nats_url, tmp_path, answer_renewal=answer) as scheduler:
        await scheduler.ask(start)
        await scheduler.until_measuring(start)
        is_silent = True
        await scheduler.until_no_engine(start)
        stopped_after_seconds = time.monotonic() - last_answered
        finished = await scheduler.finished(start)

    assert stopped_after_seconds < ttl_seconds
    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.LEASE_LOST


async def test_fence_ends_attempt_and_bars_later_starts(nats_url: str, tmp_path: Path) -> None:
    start = make_endless_start({"ignore-sigterm": True})
    async with node(nats_url, tmp_path) as scheduler:
        await scheduler.ask(start)
        await scheduler.until_measuring(start)
        replies = [await scheduler.ask(make_fence(start.reservation_id))]
        while isinstance(replies[-1], Refused):
            assert replies[-1].code is ErrorCode.STILL_RUNNING
            replies.append(await scheduler.ask(make_fence(start.reservation_id)))
        left = scheduler.pids(start.reservation_id)
        finished = await scheduler.finished(start)
        late = await scheduler.ask(
            make_start(reservation_id=start.reservation_id, devices=(make_device("GPU-1", 1),))
        )

    assert left == []
    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert refusal(late) == (ErrorCode.LEASE_LOST, None)


async def test_fence_ends_only_leftovers_of_dead_holder(nats_url: str, tmp_path: Path) -> None:
    ours, theirs = uuid4(), uuid4()
    async with node(nats_url, tmp_path) as scheduler:
        installation = scheduler.settings.installation_id
        leftover, other = (
            labelled_process(ours, installation),
            labelled_process(theirs, installation),
        )
        foreign = labelled_process(ours, "another installation")
        unnamed = labelled_process(ours, None)  # `exec` on a host that only joined
        processes = (leftover, unnamed, other, foreign)
        try:
            reply = await scheduler.ask(make_fence(ours))
            while isinstance(reply, Refused):
                reply = await scheduler.ask(make_fence(ours))
            ended = [process.poll() for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()

    assert isinstance(reply, Accepted)
    assert ended == [-15, -15, None, None]


async def test_fence_of_unknown_reservation_is_accepted(nats_url: str, tmp_path: Path) -> None:
    async with node(nats_url, tmp_path) as scheduler:
        reply = await scheduler.ask(make_fence(uuid4(), epoch=41))
        await eventually(lambda: bool(scheduler.reports), what="a report")

    assert isinstance(reply, Accepted)


async def test_a_report_says_what_this_node_can_run(nats_url: str, tmp_path: Path) -> None:
    settings = {"report_interval_seconds": 0.2}
    async with node(nats_url, tmp_path, settings=settings) as scheduler:
        await scheduler.ask(make_fence(uuid4(), epoch=41))
        await eventually(
            lambda: any(report.largest_epoch == 41 for report in scheduler.reports),
            what="a report of the epoch",
        )
        revisions = [report.revision for report in scheduler.reports]

    offers = {offer.runtime: offer for offer in scheduler.reports[-1].runtimes}
    assert "simulated" in offers[Runtime.PROCESS].engines
    assert offers[Runtime.OME].engines == ()
    assert offers[Runtime.OME].missing
    assert "builtin" in scheduler.reports[-1].benchmark_tools
    assert revisions == sorted(set(revisions))


REFUSED: tuple[tuple[dict[str, Any], ErrorCode, str | None], ...] = (
    ({"parameters": {"ttft-seconds": "soon"}}, ErrorCode.BAD_REQUEST, "$.parameters.ttft-seconds"),
    ({"parameters": {"port": 80}}, ErrorCode.BAD_REQUEST, "$.parameters.port"),  # one of ours
    ({"engine": "ollama"}, ErrorCode.UNSUPPORTED, "$.base_runtime"),
    ({"model": "--help"}, ErrorCode.BAD_REQUEST, "$.model.id_or_path"),
    (
        {"benchmark": BenchmarkSpec(traffic_scenarios=("I(0,5)",))},
        ErrorCode.BAD_REQUEST,
        "$.benchmark.traffic_scenarios",
    ),
    ({"parameters": {"ttft-seconds": "x" * 300_000}}, ErrorCode.TOO_LARGE, None),
    (
        {"benchmark": BenchmarkSpec(tool=BenchmarkTool.GENAI_BENCH)},
        ErrorCode.UNSUPPORTED,
        "$.benchmark.tool",
    ),
)


async def test_unrunnable_start_is_refused_with_its_path(nats_url: str, tmp_path: Path) -> None:
    async with node(nats_url, tmp_path) as scheduler:
        for overrides, code, path in REFUSED:
            start = make_start(**overrides)
            replies = [await scheduler.ask(start), await scheduler.ask(start)]

            assert refusal(replies[0]) == (code, path)
            assert replies[0] == replies[1]
        running = await scheduler.running()

    assert running.attempts == ()


async def test_start_of_cluster_or_other_node_is_refused(nats_url: str, tmp_path: Path) -> None:
    cluster = EngineSpec(runtime=Runtime.OME, engine="vllm", model="m")
    foreign = msgspec.structs.replace(make_device(), node_id="node-2")
    async with node(nats_url, tmp_path) as scheduler:
        in_cluster = await scheduler.ask(msgspec.structs.replace(make_start(), engine=cluster))
        on_foreign = await scheduler.ask(make_start(devices=(foreign,)))

    assert refusal(in_cluster) == (ErrorCode.BAD_REQUEST, "$.cluster")
    assert refusal(on_foreign) == (ErrorCode.BAD_REQUEST, "$.devices[0].node_id")


async def test_a_model_outside_the_roots_is_refused(nats_url: str, tmp_path: Path) -> None:
    roots = tmp_path / "models"
    (roots / "good").mkdir(parents=True)
    settings = {"model_roots": str(roots)}
    async with node(nats_url, tmp_path, settings=settings) as scheduler:
        replies = [
            await scheduler.ask(make_start(model=model))
            for model in ("/etc/passwd", "../../etc/passwd", "good/../../x", "x" * 300, "a\0b")
        ]

        tokenizer = BenchmarkSpec(model_tokenizer="/etc")
        by_tokenizer = await scheduler.ask(make_start(model="good", benchmark=tokenizer))

    assert {refusal(reply) for reply in replies} == {(ErrorCode.BAD_REQUEST, "$.model.id_or_path")}
    assert refusal(by_tokenizer) == (ErrorCode.BAD_REQUEST, "$.benchmark.model_tokenizer")


async def test_model_path_with_link_out_of_root_is_refused(nats_url: str, tmp_path: Path) -> None:
    roots = tmp_path / "models"
    (roots / "good").mkdir(parents=True)
    (roots / "file").symlink_to("/etc/passwd")
    (roots / "good" / "weights").symlink_to("/etc/passwd")
    async with node(nats_url, tmp_path, settings={"model_roots": str(roots)}) as scheduler:
        replies = [
            await scheduler.ask(make_start(model=model))
            for model in ("file", "good", str(roots / "good"), "s3://bucket/model")
        ]
    async with node(nats_url, tmp_path / "other") as scheduler:
        without_roots = await scheduler.ask(make_start(model=str(roots)))

    want = (ErrorCode.BAD_REQUEST, "$.model.id_or_path")
    assert [refusal(reply) for reply in (*replies, without_roots)] == [want] * 5


async def test_release_is_repeated_until_answered(nats_url: str, tmp_path: Path) -> None:
    answers = [ErrorCode.UNAVAILABLE, ErrorCode.UNAVAILABLE, ErrorCode.LEASE_LOST]

    def answer(_: object) -> Reply:
        return Refused(code=answers.pop(0) if answers else ErrorCode.INTERNAL, message="no")

    start = make_start()
    async with node(nats_url, tmp_path, answer_release=answer) as scheduler:
        await scheduler.ask(start)
        await eventually(lambda: not answers, what="three releases")
        await asyncio.sleep(0.5)

    assert len({release.command_id for release in scheduler.releases}) == 1
    assert len(scheduler.releases) == 3


@pytest.mark.long
async def test_a_real_model_is_served_and_measured(nats_url: str, tmp_path: Path) -> None:
    require_engine("llamacpp")
    start = make_start(
        {"threads": 1, "parallel": 2, "ctx-size": 1024},
        engine="llamacpp",
        model="smollm2-135m",
        benchmark=BenchmarkSpec(
            traffic_scenarios=("D(16,8)",),
            num_concurrency=(1,),
            max_requests_per_level=3,
            warmup_requests=1,
        ),
    )
    async with node(nats_url, tmp_path) as scheduler:
        await scheduler.ask(start)
        finished = await scheduler.finished(start, within_seconds=40)
        await scheduler.until_released(start)

    assert finished.outcome is AttemptOutcome.SUCCEEDED
    assert finished.benchmark is not None
    assert not finished.engine_simulated
    assert finished.benchmark.metrics.success_rate == 1.0
    assert finished.benchmark.metrics.mean_output_throughput is not None
    assert finished.benchmark.metrics.mean_output_throughput > 0


def environment_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(line.split("=", 1) for line in lines if line)


def refusal(reply: Reply) -> tuple[ErrorCode, str | None] | None:
    return (reply.code, reply.path) if isinstance(reply, Refused) else None


def refuse_lease(command: RenewReservation) -> Reply:
    return Refused(code=ErrorCode.LEASE_LOST, message="expired", command_id=command.command_id)
