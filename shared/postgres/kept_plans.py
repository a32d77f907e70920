"""Plans that Postgres makes once for a session instead of for each run of a statement.

Postgres plans a statement with an array of keys anew for each run: it takes an array that it does
not know for ten keys, and one that it knows looks cheaper. That was a third of its time for a grant
(docs/explanation/performance.md).
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shared.postgres.database import Connection

# A kept plan may be from when its tables were small: none reads a table whole where an index leads
# to the rows. What has no index costs so much then that a server would compile it first.
KEPT_PLANS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "jit": "off",
}
_FOR_ARGUMENTS: Final = (
    "SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_seqscan = on"
)


async def plan_for_arguments(connection: "Connection") -> None:
    """Have this transaction's later statements planned for the arguments that they are given.

    For filters that may be None, each of which leads to rows by another index.
    """
    await connection.execute(_FOR_ARGUMENTS)
