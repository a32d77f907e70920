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

MAX_REPLAY: Final = 5_000
MAX_TRIAL: Final = 10_000
MAX_INPUTS_BYTES: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class HistoryQueries:
    """Handlers of the queries about drifts and decisions."""

    database: Database
    policy: Policy

    async def drifts(self, query: ListDrifts) -> DriftList:
        """List where reserved, running and used GPUs disagree."""
        place = place_at(query.cursor, DriftPlace)
        async with self.database.transaction() as connection:
            if query.node_id is not None:
                await node_rows.check_known(connection, query.node_id)
            stored_drifts = await drift_rows.find(
                connection,
                query.node_id,
                ended=query.ended,
                after_place=place,
                limit=query.limit + 1,
            )
            now = await reservation_rows.database_now(connection)
        page, next_cursor = page_of(
            [
                (_drift(stored, now), DriftPlace(stored.since_at, stored.drift_id))
                for stored in stored_drifts
            ],
            query.limit,
        )
        return DriftList(drifts=page, next_cursor=next_cursor)

    async def decisions(self, query: ListDecisions) -> DecisionList:
        """List decisions and their inputs."""
        async with self.database.transaction() as connection:
            records = await decision_log.find(connection, query)
        page = fitting(map(_brief, records))
        more = len(page) < len(records) or len(records) == query.limit
        last_id = page[-1].decision_id if page and more else None
        if query.before_id is not None:
            return DecisionList(decisions=tuple(page), next_before_id=last_id)
        return DecisionList(decisions=tuple(page), next_after_id=last_id)

    async def replay(self, query: ReplayDecisions) -> Replay:
        """Decide again what was recorded, beside this process's other work."""
        async with self.database.transaction() as connection:
            first_page = await decision_log.find(
                connection,
                ListDecisions(
                    after_id=max(0, (query.from_id or 1) - 1),
                    reservation_id=query.reservation_id,
                    limit=query.limit,
                ),
            )
            records: dict[int, DecisionRecord] = {}
            reached = 0
            for record in first_page:
                if len(records) >= MAX_REPLAY:
                    break
                reached = record.decision_id
                if reached not in records:
                    records_after = await decision_log.since_keyframe(connection, reached)
                    records |= {record.decision_id: record for record in records_after}
            policies = await decision_log.policies(connection, records)
        ordered = [records[decision_id] for decision_id in sorted(records)]
        repeated = await asyncio.to_thread(_replay_again, ordered, policies, self.policy)
        requested = [record for record in first_page if record.decision_id <= reached]
        more = len(requested) < len(first_page) or len(first_page) == query.limit
        return _replay(requested, ordered, repeated, more=more)

    async def try_policy(self, query: TryPolicy) -> PolicyTrial:
        """Serve the recorded requests again under two policies, beside this process's work."""
        async with self.database.transaction() as connection:
            records = await decision_log.since(connection, query.since_at, MAX_TRIAL)
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
    cycles = (_cycle_of(record, None) for record in records)
    history = recorded_requests.read_history(cycles, ended_at)
    if history is None:
        raise ValueError("expected records that begin with a keyframe")
    waits = recorded_requests.list_waits(history)
    return PolicyTrial(
        policy=name,
        start_at=history.start_at,
        end_at=history.end_at,
        decisions=len(records),
        recorded_p50_seconds=policy_trial.quantile(waits, 0.5),
        recorded_p95_seconds=policy_trial.quantile(waits, 0.95),
        present=policy_trial.serve(history, present),
        tried=policy_trial.serve(history, policy_trial.policy_of(name, present)),
        left_out=recorded_requests.list_unknowns(history),
    )


def _replay(
    requested: Sequence[DecisionRecord],
    records: Sequence[DecisionRecord],
    repeated: Sequence[ReplayedCycle],
    *,
    more: bool,
) -> Replay:
    cycle_by_id = {cycle.decision_id: cycle for cycle in repeated}
    page = fitting(
        _replay_view(record, cycle_by_id[record.decision_id])
        for record in requested
        if record.decision_id in cycle_by_id
    )
    more = more or len(page) < sum(record.decision_id in cycle_by_id for record in requested)
    return Replay(
        decisions=tuple(page),
        keyframe_id=records[0].decision_id if records else None,
        checked=len(repeated),
        different=sum(not cycle.is_same for cycle in repeated),
        next_from_id=page[-1].decision_id + 1 if page and more else None,
    )


def _replay_again(
    records: Iterable[DecisionRecord], policies: Mapping[int, str], policy: Policy
) -> list[ReplayedCycle]:
    cycles = (_cycle_of(record, policies.get(record.decision_id)) for record in records)
    return list(replay_cycles(cycles, policy))


def _cycle_of(record: DecisionRecord, policy: str | None) -> RecordedCycle:
    return RecordedCycle(
        decision_id=record.decision_id,
        decided_at=record.decided_at,
        keyframe=record.keyframe,
        inputs=msgspec.convert(record.inputs, tuple[Input, ...]),
        outcomes=msgspec.convert(record.outcomes, tuple[Decision, ...]),
        policy=msgspec.json.decode(policy, type=Policy) if policy is not None else None,
    )


def _replay_view(record: DecisionRecord, cycle: ReplayedCycle) -> ReplayedDecision:
    return ReplayedDecision(
        decision_id=record.decision_id,
        term=record.term,
        decided_at=record.decided_at,
        same=cycle.is_same,
        recorded=_within(record.outcomes),
        replayed=None if cycle.is_same else _within(msgspec.to_builtins(cycle.outcomes)),
    )


def _brief(record: DecisionRecord) -> DecisionRecord:
    return replace(record, inputs=_within(record.inputs), outcomes=_within(record.outcomes))


def _within(entries: Any) -> Any:
    """Return the engine's inputs or decisions; where there are too many, their number by kind."""
    if len(msgspec.msgpack.encode(entries)) <= MAX_INPUTS_BYTES:
        return entries
    return dict(Counter(str(entry.get("type")) for entry in entries))


def _drift(stored: StoredDrift, now: datetime) -> Drift:
    finding = stored.finding
    end = stored.ended_at or now
    return Drift(
        drift_id=stored.drift_id,
        drift=finding.kind,
        node_id=finding.node_id,
        device_uuid=finding.device_uuid,
        reservation_id=finding.reservation_id,
        since_at=stored.since_at,
        age_seconds=max(0.0, (end - stored.since_at).total_seconds()),
        action=finding.action,
        detail=finding.detail,
        pids=finding.pids,
        ended_at=stored.ended_at,
    )
