"""When a reservation is idle: nothing on any of its GPUs, for a window without a gap."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from uuid import UUID

from msgspec import Struct

from schemas.base import NodeId
from schemas.executor.engine_samples import EngineSampled
from schemas.scheduler.idle import IDLE_GRACE_SECONDS, IDLE_WINDOW_SECONDS, IdleAction
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import Idleness
from services.scheduler.domain.drift.detection import Holding, NodeUse


class Activity(Enum):
    """Of a reservation, since the last comparison. What is unknown is never idle."""

    BUSY = auto()
    QUIET = auto()
    UNKNOWN = auto()


class IdlePolicy(Struct, frozen=True, kw_only=True):
    """Quiet for a window: it is warned. For `grace_seconds` more: the action of its namespace."""

    window_seconds: float = IDLE_WINDOW_SECONDS
    grace_seconds: float = IDLE_GRACE_SECONDS
    idle_percent: float = 5.0
    action: IdleAction = IdleAction.WARN
    by_namespace: Mapping[str, IdleAction] = {}

    def action_for(self, namespace: str) -> IdleAction:
        return self.by_namespace.get(namespace, self.action)


class HeldReservation(Struct, frozen=True, kw_only=True):
    """One that holds GPUs on a lease, with the ledger's record of its idleness.

    `of_experiment`: an executor knows whether something of it is under way.
    """

    reservation_id: UUID
    namespace: str
    of_experiment: bool = False
    warned_at: datetime | None = None
    preemptible: bool = False
    exempt_until: datetime | None = None


class Warned(Struct, frozen=True, kw_only=True):
    """To be warned. `acts_at` None: nothing follows."""

    reservation_id: UUID
    since_at: datetime
    action: IdleAction
    acts_at: datetime | None


class IdleUpdate(Struct, frozen=True, kw_only=True):
    """What follows of one comparison; `quiet_seconds` are to be given to the next."""

    quiet_seconds: Mapping[UUID, float]
    warned: tuple[Warned, ...] = ()
    made_preemptible: tuple[UUID, ...] = ()
    released: tuple[UUID, ...] = ()
    active: tuple[UUID, ...] = ()

    @property
    def changes(self) -> tuple[UUID, ...]:
        """The reservations that something is to be written of."""
        warned = (warning.reservation_id for warning in self.warned)
        return (*warned, *self.made_preemptible, *self.released, *self.active)


def activities(
    holdings: Iterable[Holding],
    nodes: Iterable[NodeUse],
    experiments: AbstractSet[UUID],
    engines: Mapping[tuple[NodeId, UUID], Activity],
    *,
    idle_percent: float,
) -> dict[UUID, Activity]:
    """Return what each reservation's GPUs did since the last comparison, all of them together.

    A holder that shares a device is as busy as the device. An experiment is as busy as its engine,
    reported by one of its nodes; where none is reported, busy while its executor runs anything of
    it: loading and warming up use no GPU for long, and have deadlines of their own.
    """
    holdings = tuple(holdings)
    by_node = {node.node_id: node for node in nodes}
    reported = {
        holding.reservation_id: engines[holding.node_id, holding.reservation_id]
        for holding in holdings
        if (holding.node_id, holding.reservation_id) in engines
    }
    of: defaultdict[UUID, set[Activity]] = defaultdict(set)
    for holding in holdings:
        node = by_node.get(holding.node_id)
        of[holding.reservation_id].add(_of_device(holding, node, idle_percent))
        if holding.reservation_id in experiments:
            engine = reported.get(holding.reservation_id)
            of[holding.reservation_id].add(engine or _of_experiment(holding.reservation_id, node))
    return {
        reservation_id: next(
            (
                strongest
                for strongest in (Activity.BUSY, Activity.UNKNOWN)
                if strongest in activities_of
            ),
            Activity.QUIET,
        )
        for reservation_id, activities_of in of.items()
    }


def engine_activity(previous: EngineSampled | None, sample: EngineSampled) -> Activity | None:
    """Return the engine's activity since the `previous` sample; None if it reports no requests.

    A request may come and go between two samples, which its tokens show. A phase is progress.
    """
    now = sample.reading
    if now.running is None:
        return None
    if previous is None or previous.phase is not sample.phase or now.running or now.waiting:
        return Activity.BUSY
    counted = (now.prompt_tokens, now.generation_tokens)
    is_counting = counted != (previous.reading.prompt_tokens, previous.reading.generation_tokens)
    return Activity.BUSY if is_counting else Activity.QUIET


def _of_device(holding: Holding, node: NodeUse | None, idle_percent: float) -> Activity:
    devices = node.devices if node is not None else ()
    device = next(
        (candidate for candidate in devices if candidate.uuid == holding.device_uuid), None
    )
    if device is None or not device.is_read or device.utilization_percent is None:
        return Activity.UNKNOWN
    return Activity.BUSY if device.utilization_percent >= idle_percent else Activity.QUIET


def _of_experiment(reservation_id: UUID, node: NodeUse | None) -> Activity:
    if node is None or node.workloads is None:
        return Activity.UNKNOWN
    runs = any(workload.reservation_id == reservation_id for workload in node.workloads)
    return Activity.BUSY if runs else Activity.QUIET


def update_idle(
    reservations: Sequence[HeldReservation],
    activity: Mapping[UUID, Activity],
    quiet_seconds: Mapping[UUID, float],
    *,
    now: datetime,
    elapsed_seconds: float,
    policy: IdlePolicy,
) -> IdleUpdate:
    """Add to the quiet time of reservations, and decide what follows of it.

    `quiet_seconds` is what the comparison before gave; `elapsed_seconds` were watched since. Time
    counts only while it is watched without a gap, so that a new leader, who knows of no quiet, ends
    nothing before it has watched for the window and the grace itself.
    """
    quiet: dict[UUID, float] = {}
    warned: list[Warned] = []
    made_preemptible: list[UUID] = []
    released: list[UUID] = []
    active: list[UUID] = []
    for reservation in reservations:
        reservation_id = reservation.reservation_id
        is_exempt = reservation.exempt_until is not None and reservation.exempt_until > now
        activity_now = activity.get(reservation_id, Activity.UNKNOWN)
        if is_exempt or activity_now is not Activity.QUIET:
            quiet[reservation_id] = 0.0
            # What a leader sees first may be from before its time.
            is_used = activity_now is Activity.BUSY and reservation_id in quiet_seconds
            if reservation.warned_at is not None and (is_exempt or is_used):
                active.append(reservation_id)
            continue
        seconds_before = quiet_seconds.get(reservation_id)
        seconds = 0.0 if seconds_before is None else seconds_before + elapsed_seconds
        quiet[reservation_id] = seconds
        action = policy.action_for(reservation.namespace)
        if reservation.warned_at is None:
            if seconds >= policy.window_seconds:
                acts_at = now + timedelta(seconds=policy.grace_seconds)
                warned.append(
                    Warned(
                        reservation_id=reservation_id,
                        since_at=now - timedelta(seconds=seconds),
                        action=action,
                        acts_at=None if action is IdleAction.WARN else acts_at,
                    )
                )
        elif seconds >= policy.window_seconds + policy.grace_seconds:
            if action is IdleAction.RELEASE:
                released.append(reservation_id)
            elif action is IdleAction.PREEMPTIBLE and not reservation.preemptible:
                made_preemptible.append(reservation_id)
    return IdleUpdate(
        quiet_seconds=quiet,
        warned=tuple(warned),
        made_preemptible=tuple(made_preemptible),
        released=tuple(released),
        active=tuple(active),
    )


def idle_sentence(state: ReservationState, idle: Idleness) -> str:
    """A reservation's situation in one sentence."""
    text = f"{state.value}, but nothing has used its GPUs since {_utc(idle.since_at)}"
    if idle.preemptible:
        return f"{text}: any request that waits may have them until something does"
    if idle.acts_at is None:
        return text
    what = "released" if idle.action is IdleAction.RELEASE else "made preemptible"
    return (
        f"{text}: unless something does, it is {what} from {_utc(idle.acts_at)} on;"
        " `gpusteward idle exempt` keeps it"
    )


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%m-%d %H:%M:%S} UTC"


def actions_by_namespace(text: str) -> dict[str, IdleAction]:
    """`research=release, ci=preemptible`. Raises ValueError for anything else."""
    action_by_namespace: dict[str, IdleAction] = {}
    for part in filter(None, (item.strip() for item in text.split(","))):
        namespace, _, action = (piece.strip() for piece in part.partition("="))
        if not namespace or action not in set(IdleAction):
            raise ValueError(
                f"expected NAMESPACE={'|'.join(IdleAction)}, separated by commas; found {part!r}"
            )
        action_by_namespace[namespace] = IdleAction(action)
    return action_by_namespace
