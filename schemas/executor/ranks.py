"""Messages between the executors of one attempt over several nodes."""

from enum import StrEnum
from typing import Annotated, ClassVar
from uuid import UUID

from msgspec import Meta

from schemas.base import Count, NodeId, Query, ScopedCommand, Seconds, View
from schemas.executor.attempts import Failure


class RankState(StrEnum):
    """How far one rank is.

    `ready`: all is there that starting needs. `ending`: it starts nothing any more, but something
    of it may still run; `ended`: nothing does.
    """

    PREPARING = "preparing"
    READY = "ready"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


class GetRank(Query, frozen=True, kw_only=True, tag="executor.get_rank"):
    """How is this executor's part of the attempt? Answered by `RankView`; `not_found` without."""

    key_field: ClassVar[str | None] = "executor_id"
    executor_id: NodeId
    attempt_id: UUID


class RankView(View, frozen=True, kw_only=True, tag="executor.rank"):
    """One rank as its executor has it.

    `failure` is why it ends, also where the attempt itself has another. `over_seconds` is how long
    ago it was over, None where the executor has been restarted since. `address` is where other
    nodes reach engines of this one, None if it is not known.
    """

    executor_id: NodeId
    attempt_id: UUID
    rank: Count
    state: RankState
    failure: Failure | None = None
    over_seconds: Seconds | None = None
    address: str | None = None


class StartRank(ScopedCommand, frozen=True, kw_only=True, tag="executor.start_rank"):
    """All ranks are ready: start this one's engine, which finds the others at the leader's address.

    Accepted means journaled. Refused with `lease_lost` by a rank that has ended.
    """

    key_field: ClassVar[str | None] = "executor_id"
    executor_id: NodeId
    attempt_id: UUID
    leader_address: Annotated[str, Meta(min_length=1, max_length=255)]
    leader_port: Annotated[int, Meta(ge=1, le=65535)]
