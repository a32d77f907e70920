"""The journal's file, and what is kept in it."""

import asyncio
import sqlite3
import stat
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event
from uuid import uuid4

import msgspec
import pytest

from schemas.cluster.kubernetes import EnginePod
from schemas.errors import Accepted, ErrorCode, Refused
from schemas.executor.attempts import (
    AttemptFinished,
    AttemptOutcome,
    AttemptPhase,
    AttemptPhaseChanged,
    AttemptStarted,
    StartExperiment,
)
from services.executor.attempts import transitions
from services.executor.domain.verdict import Verdict, executor_restarted
from services.executor.host.processes import ProcessMark
from services.executor.journal import outbox_rows, store
from services.executor.journal.journal import Journal, JournalTooNew
from services.executor.journal.outbox import Outbox
from shared.errors import UnavailableError
from shared.messaging.bus import Bus
from shared.waiting import cancel_and_wait
from tests.support.worlds.executor import make_device, make_part, make_start

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RESTARTED = executor_restarted("restarted")


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = await Journal(tmp_path / "executor" / "journal.db").open()
    yield opened
    opened.close_nowait()


async def insert(journal: Journal, start: StartExperiment) -> None:
    await journal.transact(lambda connection: store.insert_attempt(connection, start, NOW))


async def test_journal_is_private_and_commits_reach_disk(journal: Journal) -> None:
    def pragma(name: str) -> str:
        return f"PRAGMA {name}"

    mode = await journal.transact(lambda c: c.execute(pragma("journal_mode")).fetchone()[0])
    synchronous = await journal.transact(lambda c: c.execute(pragma("synchronous")).fetchone()[0])

    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.path.parent.stat().st_mode) == 0o700
    assert (mode, synchronous) == ("wal", 2)


async def test_commits_survive_reopening(tmp_path: Path) -> None:
    start = make_start(devices=(make_device("GPU-a"), make_device("GPU-b", 1)))
    mark = ProcessMark(pid=7, started_ticks=8, kernel_boot_id="boot")
    first = await Journal(tmp_path / "journal.db").open()
    await insert(first, start)
    await first.transact(lambda c: store.record_process(c, start.attempt_id, mark))
    first.close_nowait()

    second = await Journal(tmp_path / "journal.db").open()
    [record] = await second.transact(store.find_unfinished_attempts)
    second.close_nowait()

    assert record.command == start
    assert record.process == mark
    assert (record.accepted_at, record.phase) == (NOW, AttemptPhase.STARTING)


async def test_bound_pod_is_known_after_restart(tmp_path: Path) -> None:
    start = make_start()
    pod = EnginePod(node_id="n1", namespace="engines", pod="e-1", container="c", gpus=2)
    other = msgspec.structs.replace(pod, node_id="n2", pod="e-2", rank=1)
    first = await Journal(tmp_path / "journal.db").open()
    await insert(first, start)
    for bound in (other, pod):
        await first.transact(partial(store.record_pod, attempt_id=start.attempt_id, pod=bound))
    first.close_nowait()

    second = await Journal(tmp_path / "journal.db").open()
    for step in (
        partial(transitions.record_phase, phase=AttemptPhase.LOADING),
        partial(transitions.record_finish, verdict=RESTARTED),
    ):
        await second.transact(partial(step, attempt_id=start.attempt_id, now=NOW))
    told = [event for _, event in await second.transact(lambda c: outbox_rows.unsent_events(c, 10))]
    second.close_nowait()

    assert [type(event) for event in told] == [AttemptPhaseChanged, AttemptFinished]
    assert [event.pods for event in told if hasattr(event, "pods")] == [(pod, other)] * 2


async def test_pod_of_an_earlier_release_is_read(journal: Journal) -> None:
    start = make_start()
    pod = EnginePod(node_id="n1", namespace="engines", pod="e-1", container="c", gpus=2)
    await insert(journal, start)
    stored = (msgspec.msgpack.encode(pod), start.attempt_id.bytes)
    await journal.transact(
        lambda c: c.execute("UPDATE attempt SET pod = ? WHERE attempt_id = ?", stored)
    )

    record = await journal.transact(partial(store.attempt, attempt_id=start.attempt_id))

    assert record is not None
    assert record.pods == (pod,)


async def test_failed_transaction_changes_nothing(journal: Journal) -> None:
    start = make_start()

    def fail(connection: sqlite3.Connection) -> None:
        store.insert_attempt(connection, start, NOW)
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        await journal.transact(fail)

    assert await journal.transact(store.find_unfinished_attempts) == []
    assert await journal.transact(store.count_report) == (1, 0)


async def test_cancelled_caller_keeps_unbegun_work(journal: Journal) -> None:
    start, held, entered = make_start(), Event(), Event()

    def hold(_: sqlite3.Connection) -> None:
        entered.set()
        held.wait(20)

    before = asyncio.create_task(journal.transact(hold))
    await asyncio.to_thread(entered.wait, 20)
    insertion = asyncio.create_task(insert(journal, start))
    await asyncio.sleep(0)
    await cancel_and_wait(insertion)
    held.set()
    await before

    [record] = await journal.transact(store.find_unfinished_attempts)
    assert record.command == start


async def test_journal_of_newer_release_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()

    journal = Journal(path)
    with pytest.raises(JournalTooNew, match="has version 99"):
        await journal.open()
    journal.close_nowait()


async def test_a_reply_is_found_by_its_command(journal: Journal) -> None:
    start = make_start()
    refused = Refused(code=ErrorCode.STALE_EPOCH, message="no", path="$.epoch")
    await journal.transact(lambda c: store.store_reply(c, start, refused))

    found = await journal.transact(lambda c: store.find_reply(c, start.command_id))
    other = await journal.transact(lambda c: store.find_reply(c, uuid4()))

    assert found == (store.body_hash(start), refused)
    assert other is None


def test_body_hash_ignores_parameter_order() -> None:
    start = make_start({"a": 1, "b": 2})
    engine = msgspec.structs.replace(start.engine, parameters={"b": 2, "a": 1})

    assert store.body_hash(start) == store.body_hash(msgspec.structs.replace(start, engine=engine))
    assert store.body_hash(start) != store.body_hash(msgspec.structs.replace(start, epoch=8))


async def test_largest_epoch_of_each_device_is_kept(journal: Journal) -> None:
    first = make_start(epoch=9)
    second = make_start(epoch=5, devices=(make_device("GPU-1", 1),))
    await insert(journal, first)
    await insert(journal, second)
    probe = make_start(devices=(make_device(), make_device("GPU-1", 1), make_device("GPU-2", 2)))

    seen = await journal.transact(lambda c: store.recall_start(c, probe))

    assert seen.device_epochs == {"GPU-0": 9, "GPU-1": 5}
    assert set(seen.blocking_attempts) == {first.attempt_id, second.attempt_id}
    assert await journal.transact(store.count_report) == (1, 9)


@pytest.mark.parametrize(
    ("mine", "others", "seen_epoch"),
    [
        pytest.param((0, 5_000), (5_000, 10_000), None, id="beside each other"),
        pytest.param((0, 5_001), (5_000, 10_000), 9, id="over the same cell"),
        pytest.param((0, 5_000), None, 9, id="under a holder of the whole device"),
        pytest.param(None, (2_000, 3_000), 9, id="the whole device over a part"),
    ],
)
async def test_device_share_is_fenced_by_its_cells(
    journal: Journal,
    mine: tuple[int, int] | None,
    others: tuple[int, int] | None,
    seen_epoch: int | None,
) -> None:
    holder = make_start(epoch=9, devices=(make_part(others),))
    await insert(journal, holder)
    probe = make_start(epoch=8, devices=(make_part(mine),))

    seen = await journal.transact(lambda c: store.recall_start(c, probe))

    assert (seen.device_epochs or {}).get("GPU-0") == seen_epoch
    assert seen.blocking_attempts == ((holder.attempt_id,) if seen_epoch else ())


async def test_fences_and_cancels_apply_to_later_starts(
    journal: Journal,
) -> None:
    start = make_start()
    await journal.transact(lambda c: store.fence(c, start.reservation_id))
    await journal.transact(lambda c: store.request_cancel(c, start.attempt_id, "late"))

    seen = await journal.transact(lambda c: store.recall_start(c, start))
    other = await journal.transact(lambda c: store.recall_start(c, make_start()))

    assert (seen.is_fenced, seen.is_cancelled) == (True, True)
    assert (other.is_fenced, other.is_cancelled) == (False, False)


async def test_each_step_stages_event_with_next_revision(journal: Journal) -> None:
    start = make_start()
    await insert(journal, start)
    await journal.transact(lambda c: transitions.record_start(c, start.attempt_id, NOW))
    later = NOW + timedelta(seconds=2)
    for _ in range(2):
        await journal.transact(
            lambda c: transitions.record_phase(c, start.attempt_id, AttemptPhase.LOADING, later)
        )
    end = NOW + timedelta(seconds=5)
    outcome = await journal.transact(
        lambda c: transitions.record_finish(c, start.attempt_id, RESTARTED, end)
    )
    again = await journal.transact(
        lambda c: transitions.record_finish(c, start.attempt_id, RESTARTED, end)
    )

    events = [
        event for _, event in await journal.transact(lambda c: outbox_rows.unsent_events(c, 10))
    ]
    [release] = await journal.transact(outbox_rows.unsent_releases)
    assert [type(event) for event in events] == [
        AttemptStarted,
        AttemptPhaseChanged,
        AttemptFinished,
    ]
    assert [event.revision for event in events] == [1, 2, 3]
    assert (outcome, again) == (AttemptOutcome.INTERRUPTED, None)
    finished = events[-1]
    assert isinstance(finished, AttemptFinished)
    assert [(one.phase, one.duration_seconds) for one in finished.phases] == [
        (AttemptPhase.STARTING, 2.0),
        (AttemptPhase.LOADING, 3.0),
    ]
    assert (release.reservation_id, release.epoch) == (start.reservation_id, start.epoch)
    assert await journal.transact(store.find_unfinished_attempts) == []


async def test_accepted_cancellation_beats_success(journal: Journal) -> None:
    start = make_start()
    await insert(journal, start)
    await journal.transact(lambda c: store.request_cancel(c, start.attempt_id, "enough"))

    outcome = await journal.transact(
        lambda c: transitions.record_finish(
            c, start.attempt_id, Verdict(outcome=AttemptOutcome.SUCCEEDED), NOW
        )
    )

    assert outcome is AttemptOutcome.CANCELLED


async def test_events_stay_until_sent_and_return_on_new_stream(
    journal: Journal,
) -> None:
    start = make_start()
    await insert(journal, start)
    await journal.transact(lambda c: transitions.record_start(c, start.attempt_id, NOW))
    await journal.transact(
        lambda c: transitions.record_phase(c, start.attempt_id, AttemptPhase.LOADING, NOW)
    )

    async def unsent() -> list[int]:
        return [n for n, _ in await journal.transact(lambda c: outbox_rows.unsent_events(c, 10))]

    async def age_seconds() -> float:
        outbox = Outbox(journal=journal, bus=Bus("executor", "nats://127.0.0.1:1"))
        return await outbox.age_seconds(time.time() + 60)

    age_of_two = await age_seconds()
    first_stream = await journal.transact(lambda c: outbox_rows.is_new_stream(c, "one"))
    both = await unsent()
    await journal.transact(lambda c: outbox_rows.mark_sent(c, both[:1]))
    after_one = await unsent()
    await journal.transact(lambda c: outbox_rows.mark_sent(c, after_one))
    same_stream = await journal.transact(lambda c: outbox_rows.is_new_stream(c, "one"))
    after_all, age_of_none = await unsent(), await age_seconds()
    new_stream = await journal.transact(lambda c: outbox_rows.is_new_stream(c, "two"))

    assert (first_stream, same_stream, new_stream) == (True, False, True)
    assert (len(both), after_one, after_all) == (2, both[1:], [])
    assert (age_of_two >= 60, age_of_none) == (True, 0.0)
    assert await unsent() == both


async def test_end_of_ended_attempt_is_sent_again(journal: Journal) -> None:
    start, other = make_start(), make_start()
    for one in (start, other):
        each = one.attempt_id
        await insert(journal, one)
        await journal.transact(partial(transitions.record_start, attempt_id=each, now=NOW))
        await journal.transact(partial(outbox_rows.publish_end_again, attempt_id=each))
        await journal.transact(
            partial(transitions.record_finish, attempt_id=each, verdict=RESTARTED, now=NOW)
        )
    staged = await journal.transact(lambda c: outbox_rows.unsent_events(c, 10))
    await journal.transact(lambda c: outbox_rows.mark_sent(c, [number for number, _ in staged]))

    await journal.transact(lambda c: outbox_rows.publish_end_again(c, start.attempt_id))
    await journal.transact(lambda c: outbox_rows.publish_end_again(c, uuid4()))

    [(number, event)] = await journal.transact(lambda c: outbox_rows.unsent_events(c, 10))
    assert (number, event) in staged
    assert isinstance(event, AttemptFinished)
    assert event.attempt_id == start.attempt_id


async def test_reports_are_counted_across_restarts(tmp_path: Path) -> None:
    revisions = []
    for _ in range(2):
        journal = await Journal(tmp_path / "journal.db").open()
        revisions.append(await journal.transact(store.count_report))
        journal.close_nowait()

    assert revisions == [(1, 0), (2, 0)]


async def test_pruning_keeps_what_is_unsent_or_young(journal: Journal) -> None:
    start = make_start()
    await insert(journal, start)
    await journal.transact(lambda c: transitions.record_start(c, start.attempt_id, NOW))
    await journal.transact(
        lambda c: transitions.record_finish(c, start.attempt_id, RESTARTED, datetime.now(UTC))
    )
    reply = Accepted(command_id=start.command_id)
    await journal.transact(lambda c: store.store_reply(c, start, reply))
    await journal.transact(lambda c: c.execute("UPDATE event SET staged_at = 0"))
    await journal.transact(lambda c: outbox_rows.mark_sent(c, [1]))

    await journal.transact(store.prune)

    assert [n for n, _ in await journal.transact(lambda c: outbox_rows.unsent_events(c, 10))] == [2]
    assert await journal.transact(lambda c: store.attempt(c, start.attempt_id)) is not None
    assert await journal.transact(lambda c: store.find_reply(c, start.command_id)) is not None
    await journal.transact(
        lambda c: c.execute("UPDATE attempt SET finished_at = '2020-01-01T00:00:00+00:00'")
    )
    await journal.transact(store.prune)
    assert await journal.transact(lambda c: store.attempt(c, start.attempt_id)) is None


async def test_closed_journal_asks_to_retry(tmp_path: Path) -> None:
    closed = await Journal(tmp_path / "journal.db").open()
    closed.close_nowait()

    with pytest.raises(UnavailableError, match="being stopped"):
        await insert(closed, make_start())


async def test_change_is_told_once_and_reading_is_not(journal: Journal) -> None:
    told: list[str] = []
    journal.on_change = lambda: told.append("changed")

    await insert(journal, make_start())
    after_change = list(told)
    await journal.transact(store.find_unfinished_attempts)

    assert after_change == told == ["changed"]


async def test_transaction_that_fails_tells_of_no_change(journal: Journal) -> None:
    told: list[str] = []
    journal.on_change = lambda: told.append("changed")

    def broken(connection: sqlite3.Connection) -> None:
        store.insert_attempt(connection, make_start(), NOW)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await journal.transact(broken)

    assert told == []
