"""Holders in reasons, named to those who are told them."""

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec.structs import replace

from services.scheduler.domain.advice.evaluation import Evaluation
from services.scheduler.domain.advice.holder_names import find_ids
from services.scheduler.ledger.rows import holder_rows
from services.scheduler.ledger.rows.reservation_rows import Reservation
from shared.postgres.database import Database

NamesOf = tuple[str, ...] | None  # of a query


def find_visible(namespace: str, names_of: NamesOf) -> set[str] | None:
    """Return the namespaces whose holders an answer about this one's names; None: all."""
    return None if names_of is None else {namespace, *names_of}


async def with_holder_names(
    database: Database,
    evaluation: Evaluation,
    now: datetime,
    visible_namespaces: Collection[str] | None,
) -> Evaluation:
    """Return the evaluation with the holders of these namespaces (None: of all) by their names."""
    async with database.transaction() as connection:
        reasons = await holder_rows.name_holders(
            connection, evaluation.reasons, now, visible_namespaces
        )
    return replace(evaluation, reasons=reasons)


async def with_ended_names(
    database: Database, stored_reservations: Sequence[Reservation], names_of: NamesOf
) -> list[Reservation]:
    """Return the reservations with the holders in their stored reasons named as they ended."""
    unnamed = [
        (stored, stored.ended_at)
        for stored in stored_reservations
        if stored.ended_at is not None and find_ids(stored.reasons)
    ]
    if not unnamed:
        return list(stored_reservations)
    names = {}
    async with database.transaction() as connection:
        for stored, ended_at in unnamed:
            visible_namespaces = find_visible(stored.namespace, names_of)
            names[stored.reservation_id] = await holder_rows.name_holders(
                connection, stored.reasons, ended_at, visible_namespaces
            )
    return [
        replace(stored, reasons=names.get(stored.reservation_id, stored.reasons))
        for stored in stored_reservations
    ]
