"""What every route needs: the bus, the event log, the live state."""

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from schemas.base import Command, ListQuery, ListView, Message, Query, View
from schemas.errors import Accepted, ErrorCode, Refused
from schemas.orchestrator.views import ExperimentView, GetExperiment, GetTask, TaskView
from schemas.scheduler.views import AllocationMap, GetAllocationMap, GetReservation, ReservationView
from services.gateway.bus_watch import BusWatch
from services.gateway.domain.access import Identity
from services.gateway.ledger.audit import AuditLog
from services.gateway.ledger.datasets import Datasets
from services.gateway.ledger.eventlog import EventLog
from services.gateway.ledger.imports import Imports
from services.gateway.ledger.invitations import Invitations
from services.gateway.ledger.logins import Logins
from services.gateway.ledger.members import Members
from services.gateway.ledger.tokens import TokenStore
from services.gateway.live_state import LiveState
from services.gateway.measurements import Measurements
from services.gateway.shared_answers import SharedAnswers
from services.gateway.sign_in.flows import SignInFlows
from shared import near_words
from shared.errors import NodeUnavailableError, RefusedError
from shared.messaging.bus import Bus
from shared.postgres.database import Database

V = TypeVar("V", bound=View)
L = TypeVar("L", bound=ListQuery)
W = TypeVar("W", bound=ListView)
T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Given to every route."""

    bus: Bus
    bus_watch: BusWatch
    database: Database
    log: EventLog
    live: LiveState
    tokens: TokenStore
    logins: Logins
    audit: AuditLog
    imports: Imports
    datasets: Datasets
    measurements: Measurements
    data_dir: Path
    invitations: Invitations
    members: Members
    sign_in: SignInFlows
    public_url: str = ""
    nats_home: Path | None = None
    node_nats_url: str = ""
    certificate_path: Path | None = None
    authority_path: Path | None = None
    shared_answers: SharedAnswers = field(default_factory=SharedAnswers)

    async def send(self, command: Command, *, timeout_seconds: float = 5.0) -> Accepted:
        """Have an owner do something. Raises RefusedError, UnavailableError without an answer."""
        try:
            reply = await self.bus.request(command, timeout_seconds=timeout_seconds)
        except NodeUnavailableError:
            await self._require_node(command)
            raise
        if isinstance(reply, Refused):
            raise RefusedError.from_refused(reply)
        return reply

    async def task(
        self, task_id: UUID, identity: Identity, *, with_spending: bool = False
    ) -> TaskView:
        """Raises RefusedError for one of a namespace that this caller does not see."""
        query = GetTask(task_id=task_id, with_spending=with_spending)
        view = await self.bus.query(query, TaskView)
        if not identity.reads(view.namespace):
            raise _unknown("task", task_id)
        return view

    async def experiment(self, experiment_id: UUID, identity: Identity) -> ExperimentView:
        """Raises RefusedError as `task` does."""
        view = await self.bus.query(GetExperiment(experiment_id=experiment_id), ExperimentView)
        if not identity.reads(view.namespace):
            raise _unknown("experiment", experiment_id)
        return view

    async def reservation(self, reservation_id: UUID, identity: Identity) -> ReservationView:
        """Raises RefusedError as `task` does."""
        query = GetReservation(reservation_id=reservation_id, names_of=identity.names_of)
        view = await self.bus.query(query, ReservationView)
        if not identity.reads(view.namespace):
            raise RefusedError(
                ErrorCode.NOT_FOUND, f"no reservation {reservation_id}", path="$.reservation_id"
            )
        return view

    async def query_node(self, query: Query, view: type[T], timeout_seconds: float = 5.0) -> T:
        """Ask a node's service. Raises RefusedError also for an unknown node."""
        try:
            return await self.bus.query(query, view, timeout_seconds=timeout_seconds)
        except NodeUnavailableError:
            await self._require_node(query)
            raise

    async def _require_node(self, message: Message) -> None:
        """Raises RefusedError if the node of a message has never reported; else it is away."""
        node_id = getattr(message, "node_id", None) or getattr(message, "executor_id", None)
        if node_id is None or self.live.knows(node_id):
            return
        names = [
            node.node_id
            async for page in self.pages(GetAllocationMap(), AllocationMap, "node_id")
            for node in page.nodes
        ]
        if node_id not in names:
            raise unknown_node(node_id, names)

    async def fetch_list(
        self, query: L, view: type[W], items: str, *, all_pages: bool = False
    ) -> W:
        """Return as many items of a list as `query.limit` says, or all, from as many pages as that
        takes. Who asks for the same at the same time is given the same.
        """
        return await self.shared_answers.share(
            (query, all_pages), lambda: self._fetch_pages(query, view, items, all_pages)
        )

    async def _fetch_pages(self, query: L, view: type[W], items: str, all_pages: bool) -> W:
        page = await self.bus.query(query, view)
        entries = list(getattr(page, items))
        while page.next_cursor is not None and (all_pages or len(entries) < query.limit):
            limit = query.limit if all_pages else query.limit - len(entries)
            page = await self.bus.query(replace(query, limit=limit, cursor=page.next_cursor), view)
            entries += getattr(page, items)
        return replace(page, **{items: tuple(entries)})

    async def pages(
        self, query: Query, view: type[V], by: str, *, timeout_seconds: float = 5.0
    ) -> AsyncGenerator[V, None]:
        """Yield every page of a list; `by` is the field that says where a page ends."""
        while True:
            page = await self.bus.query(query, view, timeout_seconds=timeout_seconds)
            yield page
            place = getattr(page, f"next_after_{by}")
            if place is None:
                return
            query = replace(query, **{f"after_{by}": place})


def _unknown(what: str, identifier: UUID) -> RefusedError:
    """Build the refusal that the owner of such things gives for an unknown one."""
    return RefusedError(
        ErrorCode.NOT_FOUND, f"there is no {what} {identifier}", path=f"$.{what}_id"
    )


def unknown_node(node_id: str, nodes: Iterable[str]) -> RefusedError:
    """Return the refusal of a node that is not among these, with what is."""
    return RefusedError(
        ErrorCode.NOT_FOUND, near_words.unknown_node(node_id, nodes), path="path.node_id"
    )


def require_encodable(value: object) -> None:
    """Raises RefusedError if a message cannot carry this: a number beyond 64 bits."""
    try:
        msgspec.msgpack.encode(value)
    except OverflowError as error:
        path = _path_to_overflow(msgspec.to_builtins(value), "$")
        raise RefusedError(
            ErrorCode.BAD_REQUEST, "expected a number of at most 64 bits", path=path
        ) from error


def _path_to_overflow(value: Any, path: str) -> str | None:
    match value:
        case bool():
            return None
        case int():
            return None if -(2**63) <= value < 2**64 else path
        case dict():
            places = [(f"{path}.{key}", inner) for key, inner in value.items()]
        case list() | tuple():
            places = [(f"{path}[{index}]", inner) for index, inner in enumerate(value)]
        case _:
            return None
    return next(
        (overflow_path for at, inner in places if (overflow_path := _path_to_overflow(inner, at))),
        None,
    )
