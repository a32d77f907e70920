"""Which history of the database this is: every promotion of a standby begins a new timeline.

What a standby that was promoted had not received is gone, and its numbers are given again: epochs
would be, and transaction ids, by which a scheduler in memory knows what it has read.
"""

from typing import Final

# 0 of a standby, whose statements fail anyway.
TIMELINE: Final = """
(CASE WHEN pg_is_in_recovery() THEN 0 ELSE
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END)
"""
# More than are granted between two promotions, so that one that was lost is not drawn again. Each
# timeline has its own, also where the ledger lost one between.
EPOCHS_PER_TIMELINE: Final = 2**32


def draw_epochs(count: str) -> str:
    """Return the assignments of an UPDATE of `epoch` that draws as many as the parameter says."""
    return f"""
value = value + {count} + CASE WHEN timeline = {TIMELINE} THEN 0
        ELSE greatest({TIMELINE} - timeline, 1) * {EPOCHS_PER_TIMELINE} END,
    timeline = {TIMELINE}
"""
