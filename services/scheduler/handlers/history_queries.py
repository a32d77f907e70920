"""Queries about what was: drifts, decisions, and whether a replay decides the same."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.scheduler.policy import PolicyTrial, TriedPolicy, TryPolicy
from schemas.scheduler.views import (
    DecisionList,
    DecisionRecord,
    Drift,
    DriftList,
    ListDecisions,
    ListDrifts,
    Replay,
    ReplayDecisions,
    ReplayedDecision,
)
from services.scheduler.domain.advice import policy_trial, recorded_requests
from services.scheduler.domain.advice.replay import RecordedCycle, ReplayedCycle, replay_cycles
from services.scheduler.domain.drift.lifecycle import Drift as StoredDrift
from services.scheduler.domain.model.inputs import Input
from services.scheduler.domain.placement.decisions import Decision
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.ledger import decision_log
from services.scheduler.ledger.rows import drift_rows, node_rows, reservation_rows
from services.scheduler.ledger.rows.drift_rows import DriftPlace
from shared.errors import RefusedError
from shared.messaging.paging import fitting, page_of, place_at
from shared.postgres.database import Database

LARGEST_REPLAY: Final = 5_000
LARGEST_TRIAL: Final = 10_000
LARGEST_INPUTS_BYTES: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class HistoryQueries:
    """Handlers of the queries about drifts and decisions."""

    database: Database
    policy: Policy

    async def drifts(self, query: ListDrifts) -> DriftList:
        """Where reserved, running and used disagree."""
        after = place_at(query.cursor, DriftPlace)
        async with self.database.transaction() as connection:
            if query.node_id is not None:
                await node_rows.check_known(connection, query.node_id)
            found = await drift_rows.find(
                connection, query.node_id, ended=query.ended, after=after, limit=query.limit + 1
            )
            now = await reservation_rows.database_now(connection)
        page, next_cursor = page_of(
            [(_drift(each, now), DriftPlace(each.since_at, each.drift_id)) for each in found],
            query.limit,
        )
        return DriftList(drifts=page, next_cursor=next_cursor)

    async def decisions(self, query: ListDecisions) -> DecisionList:
        """What was decided, and on what."""
        async with self.database.transaction() as connection:
            found = await decision_log.find(connection, query)
        page = fitting(map(_brief, found))
        more = len(page) < len(found) or len(found) == query.limit
        return DecisionList(
            decisions=tuple(page), next_after_id=page[-1].decision_id if page and more else None
        )

    async def replay(self, query: ReplayDecisions) -> Replay:
        """Decide again what was recorded, beside this process's other work."""
        async with self.database.transaction() as connection:
            wanted = await decision_log.find(
                connection,
                ListDecisions(
                    after_id=max(0, (query.from_id or 1) - 1),
                    reservation_id=query.reservation_id,
                    limit=query.limit,
                ),
            )
            records: dict[int, DecisionRecord] = {}
            reached = 0
            for record in wanted:
                if len(records) >= LARGEST_REPLAY:
                    break
                reached = record.decision_id
                if reached not in records:
                    found = await decision_log.since_keyframe(connection, reached)
                    records |= {each.decision_id: each for each in found}
            policies = await decision_log.policies(connection, records)
        ordered = [records[decision_id] for decision_id in sorted(records)]
        repeated = await asyncio.to_thread(_repeated, ordered, policies, self.policy)
        asked = [each for each in wanted if each.decision_id <= reached]
        more = len(asked) < len(wanted) or len(wanted) == query.limit
        return _replay(asked, ordered, repeated, more=more)

    async def try_policy(self, query: TryPolicy) -> PolicyTrial:
        """Serve the recorded requests again under two policies, beside this process's work."""
        async with self.database.transaction() as connection:
            records = await decision_log.since(connection, query.since_at, LARGEST_TRIAL)
            if not records:
                raise RefusedError(
                    ErrorCode.NOT_FOUND, "no decision is recorded yet", path="$.since_at"
                )
            ended_at = await reservation_rows.ends(connection, records[0].decided_at)
        return await asyncio.to_thread(_trial, records, ended_at, self.policy, query.policy)


def _trial(
    records: Sequence[DecisionRecord],
    ended_at: Mapping[UUID, datetime],
    present: Policy,
    name: TriedPolicy,
) -> PolicyTrial:
    cycles = (_recorded_cycle(record, None) for record in records)
    history = recorded_requests.read_history(cycles, ended_at)
    if history is None:
        raise ValueError("expected records that begin with a keyframe")
    waits = recorded_requests.recorded_waits(history)
    return PolicyTrial(
        policy=name,
        start_at=history.start_at,
        end_at=history.end_at,
        decisions=len(records),
        recorded_p50_seconds=policy_trial.quantile(waits, 0.5),
        recorded_p95_seconds=policy_trial.quantile(waits, 0.95),
        present=policy_trial.serve(history, present),
        tried=policy_trial.serve(history, policy_trial.policy_of(name, present)),
        left_out=recorded_requests.left_out(history),
    )


def _replay(
    asked: Sequence[DecisionRecord],
    records: Sequence[DecisionRecord],
    repeated: Sequence[ReplayedCycle],
    *,
    more: bool,
) -> Replay:
    again = {each.decision_id: each for each in repeated}
    page = fitting(
        _replayed(each, again[each.decision_id]) for each in asked if each.decision_id in again
    )
    more = more or len(page) < sum(each.decision_id in again for each in asked)
    return Replay(
        decisions=tuple(page),
        keyframe_id=records[0].decision_id if records else None,
        checked=len(repeated),
        different=sum(not each.same for each in repeated),
        next_from_id=page[-1].decision_id + 1 if page and more else None,
    )


def _repeated(
    records: Iterable[DecisionRecord], policies: Mapping[int, str], policy: Policy
) -> list[ReplayedCycle]:
    cycles = (_recorded_cycle(record, policies.get(record.decision_id)) for record in records)
    return list(replay_cycles(cycles, policy))


def _recorded_cycle(record: DecisionRecord, policy: str | None) -> RecordedCycle:
    return RecordedCycle(
        decision_id=record.decision_id,
        decided_at=record.decided_at,
        keyframe=record.keyframe,
        inputs=msgspec.convert(record.inputs, tuple[Input, ...]),
        outcomes=msgspec.convert(record.outcomes, tuple[Decision, ...]),
        policy=msgspec.json.decode(policy, type=Policy) if policy is not None else None,
    )


def _replayed(record: DecisionRecord, again: ReplayedCycle) -> ReplayedDecision:
    return ReplayedDecision(
        decision_id=record.decision_id,
        term=record.term,
        decided_at=record.decided_at,
        same=again.same,
        recorded=_within(record.outcomes),
        replayed=None if again.same else _within(msgspec.to_builtins(again.outcomes)),
    )


def _brief(record: DecisionRecord) -> DecisionRecord:
    return replace(record, inputs=_within(record.inputs), outcomes=_within(record.outcomes))


def _within(entries: Any) -> Any:
    """What the engine was given or has decided; where that is too much, how many of each kind."""
    if len(msgspec.msgpack.encode(entries)) <= LARGEST_INPUTS_BYTES:
        return entries
    return dict(Counter(str(entry.get("type")) for entry in entries))


def _drift(stored: StoredDrift, now: datetime) -> Drift:
    found = stored.finding
    end = stored.ended_at or now
    return Drift(
        drift_id=stored.drift_id,
        drift=found.kind,
        node_id=found.node_id,
        device_uuid=found.device_uuid,
        reservation_id=found.reservation_id,
        since_at=stored.since_at,
        age_seconds=max(0.0, (end - stored.since_at).total_seconds()),
        action=found.action,
        detail=found.detail,
        pids=found.pids,
        ended_at=stored.ended_at,
    )
