"""Holders in reasons, named to those who are told them."""

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec.structs import replace

from services.scheduler.domain.advice.evaluation import Evaluation
from services.scheduler.domain.advice.holder_names import mentioned
from services.scheduler.ledger.rows import holder_rows
from services.scheduler.ledger.rows.reservation_rows import Reservation
from shared.postgres.database import Database

NamesOf = tuple[str, ...] | None  # of a query


def find_told(namespace: str, names_of: NamesOf) -> set[str] | None:
    """Return the namespaces whose holders an answer about this one's names; None: all."""
    return None if names_of is None else {namespace, *names_of}


async def with_holder_names(
    database: Database, evaluation: Evaluation, now: datetime, told: Collection[str] | None
) -> Evaluation:
    """Return the evaluation with the holders of namespaces `told` (None: of all) by their names."""
    async with database.transaction() as connection:
        reasons = await holder_rows.name_holders(connection, evaluation.reasons, now, told)
    return replace(evaluation, reasons=reasons)


async def with_ended_names(
    database: Database, found: Sequence[Reservation], names_of: NamesOf
) -> list[Reservation]:
    """Return the reservations with the holders in their stored reasons named as they ended."""
    unnamed = [
        (stored, stored.ended_at)
        for stored in found
        if stored.ended_at is not None and mentioned(stored.reasons)
    ]
    if not unnamed:
        return list(found)
    named = {}
    async with database.transaction() as connection:
        for stored, ended_at in unnamed:
            told = find_told(stored.namespace, names_of)
            named[stored.reservation_id] = await holder_rows.name_holders(
                connection, stored.reasons, ended_at, told
            )
    return [
        replace(stored, reasons=named.get(stored.reservation_id, stored.reasons))
        for stored in found
    ]
