"""Reports on the ledger: where GPU time, energy and money went, and what was in the way."""

from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct
from typing_extensions import override

from schemas.base import (
    Count,
    Namespace,
    Percent,
    PositiveSeconds,
    Query,
    Seconds,
    UtcDatetime,
    View,
)
from schemas.results.measurements import GpuMemoryTrend
from schemas.scheduler.idle import IDLE_GRACE_SECONDS, IDLE_WINDOW_SECONDS


class UsageBy(StrEnum):
    """What a line of a usage report stands for.

    Pods are those that Kubernetes placed by itself: as namespace/pod, by who keeps them as
    namespace/kind/name, and their namespace as one of ours of its name. `kind` is how a device was
    handed out, by the values of `GpuKind`. `person` is who asked, `requester` for what: the
    holder's label, of an experiment its task. `user` and `team` are read as person and namespace.
    """

    NAMESPACE = "namespace"
    PERSON = "person"
    REQUESTER = "requester"
    MODEL = "model"
    NODE = "node"
    POD = "pod"
    OWNER = "owner"
    KIND = "kind"

    @classmethod
    @override
    def _missing_(cls, value: object) -> "UsageBy | None":
        return USAGE_ALIASES.get(str(value))


# Other words for them.
USAGE_ALIASES: Final = {"user": UsageBy.PERSON, "team": UsageBy.NAMESPACE}
# The lines of what no pod of Kubernetes had, and of what nobody is known to have asked for; no pod
# and no token can have these names.
NO_POD: Final = "(no pod)"
NO_PERSON: Final = "(no person known)"


class ReportQuery(Query, frozen=True, kw_only=True):
    """Of whole hours, as far as these have passed: a start is taken back to its hour, an end
    forward. None: of all namespaces.
    """

    start_at: UtcDatetime
    end_at: UtcDatetime
    namespace: Namespace | None = None


class GetUsage(ReportQuery, frozen=True, kw_only=True, tag="results.usage"):
    """Who held GPUs, and what became of every GPU's time. Answered by `UsageView`; if `daily`,
    with its `days`.
    """

    by: UsageBy = UsageBy.NAMESPACE
    daily: bool = False


class GpuTime(Struct, frozen=True, kw_only=True):
    """GPU-microseconds, which add up to the hours asked for times the GPUs, exactly.

    Used and idle are held; unknown is what no sample covers, held or not. Of a shared GPU each
    part counts for itself. A pod is idle while its own processes are, where it is known of them;
    else all parts are used while the GPU is busy.
    """

    used_us: Count
    idle_us: Count
    free_us: Count
    cordoned_us: Count
    unknown_us: Count


class GpuBooking(Struct, frozen=True, kw_only=True):
    """The same GPU-microseconds as `GpuTime`, by who had them: reservations, with their pods; pods
    that Kubernetes placed by itself; nobody.
    """

    reservations_us: Count = 0
    pods_us: Count = 0
    nobody_us: Count = 0


class UsageLine(Struct, frozen=True, kw_only=True):
    """What one namespace, person, model, node, pod, owner or kind had: the hours that were held,
    and of these the used, idle and unknown ones. `previous_gpu_hours` are those of as long a time
    before.

    `cost` None: a model without a price. `gpu_limit` is what a namespace may hold at once now, and
    `limit_percent` how much of it the hours are, over the time asked for; None: without a limit.
    """

    name: str
    gpu_hours: float
    used_hours: float
    idle_hours: float
    unknown_hours: float
    energy_wh: float
    cost: float | None
    previous_gpu_hours: float
    gpu_limit: float | None = None
    limit_percent: float | None = None


class UsageDay(Struct, frozen=True, kw_only=True):
    """Hours that were held on a day of UTC, by the names with the most; `other_hours` are of all
    other names together.
    """

    day_at: UtcDatetime
    gpu_hours: dict[str, float]
    other_hours: float = 0.0


class UsageView(View, frozen=True, kw_only=True, tag="results.usage_view"):
    """Most GPU hours first. `total` is of the whole fleet, whatever namespace was asked for."""

    start_at: UtcDatetime
    end_at: UtcDatetime
    by: UsageBy
    lines: tuple[UsageLine, ...]
    total: GpuTime
    gpus: Count
    currency: str
    booked: GpuBooking = GpuBooking()
    days: tuple[UsageDay, ...] = ()


class GetWaste(ReportQuery, frozen=True, kw_only=True, tag="results.waste"):
    """What was held and hardly used. Answered by `WasteView`."""


class WasteLine(Struct, frozen=True, kw_only=True):
    """A reservation or pod that was idle for at least half of the time that is known, or that never
    had 30 % of the memory that it held. `memory_percent` is the most that it had; None: not known.

    Of a pod `reservation_id` is Kubernetes' id of it, `owner` who keeps it, such as
    Deployment/llama. `kind` is a value of `GpuKind`, empty from an older release.
    """

    reservation_id: UUID
    namespace: str
    holder: str
    gpu_hours: float
    idle_hours: float
    idle_percent: Percent
    memory_percent: float | None
    cost: float | None
    because: tuple[str, ...]
    pod: str = ""
    owner: str = ""
    kind: str = ""


class WasteView(View, frozen=True, kw_only=True, tag="results.waste_view"):
    """Most idle hours first, at most 200. `cost` is of the idle hours."""

    start_at: UtcDatetime
    end_at: UtcDatetime
    lines: tuple[WasteLine, ...]
    currency: str


class GetIdle(Query, frozen=True, kw_only=True, tag="results.idle"):
    """What would releasing idle reservations have freed? Answered by `IdleView`; changes nothing.

    Counted by minutes: idle are those in which all of a reservation's GPUs stayed below
    `idle_percent`; an unknown one is not. Experiments are left out: what ran of them is not known
    here.
    """

    start_at: UtcDatetime
    end_at: UtcDatetime
    namespace: Namespace | None = None
    window_seconds: PositiveSeconds = IDLE_WINDOW_SECONDS
    grace_seconds: Seconds = IDLE_GRACE_SECONDS
    idle_percent: Percent = 5.0


class IdleLine(Struct, frozen=True, kw_only=True):
    """What one holder's reservations would have freed: their idle time beyond window and grace.

    `used_again`: how many of these reservations were used afterwards, and would have been missed.
    """

    namespace: str
    holder: str
    reservations: Count
    freed_gpu_hours: float
    held_gpu_hours: float
    used_again: Count


class IdleView(View, frozen=True, kw_only=True, tag="results.idle_view"):
    """Most freed GPU hours first."""

    start_at: UtcDatetime
    end_at: UtcDatetime
    lines: tuple[IdleLine, ...]


class GetWaits(ReportQuery, frozen=True, kw_only=True, tag="results.waits"):
    """How long requests waited for GPUs. Answered by `WaitsView`."""


class WaitsLine(Struct, frozen=True, kw_only=True):
    """The requests of one namespace that were made in the time. Seconds are of the granted ones;
    `ended` were neither granted nor wait any more.

    `expected_off_*` is by how much the time that a request was expected to hold, which times of
    start are worked out from, missed the one that it did: of the `expected` ones that said so and
    were given back. `start_off_*` is by how much the start that was expected of a request as it
    began to wait missed its grant: of the `forecast` ones that waited and of which one was known.
    """

    namespace: str
    requests: Count
    granted: Count
    waiting: Count
    ended: Count
    p50_seconds: Seconds | None
    p95_seconds: Seconds | None
    longest_seconds: Seconds | None
    expected: Count = 0
    expected_off_p50_seconds: Seconds | None = None
    expected_off_p95_seconds: Seconds | None = None
    forecast: Count = 0
    start_off_p50_seconds: Seconds | None = None
    start_off_p90_seconds: Seconds | None = None


class WaitsView(View, frozen=True, kw_only=True, tag="results.waits_view"):
    """Most requests first."""

    start_at: UtcDatetime
    end_at: UtcDatetime
    lines: tuple[WaitsLine, ...]


class GetFailures(ReportQuery, frozen=True, kw_only=True, tag="results.failures"):
    """Why attempts and reservations ended otherwise than planned. Answered by `FailuresView`."""


class FailureLine(Struct, frozen=True, kw_only=True):
    """One reason. `of` is `attempt` or `reservation`; `message` is the newest one's, and so is
    `memory`, where that one failed for want of memory.
    """

    of: str
    reason: str
    count: Count
    last_at: UtcDatetime
    message: str
    memory: tuple[GpuMemoryTrend, ...] = ()


class FailuresView(View, frozen=True, kw_only=True, tag="results.failures_view"):
    """Most frequent first."""

    start_at: UtcDatetime
    end_at: UtcDatetime
    lines: tuple[FailureLine, ...]


class GetWaterfall(Query, frozen=True, kw_only=True, tag="results.waterfall"):
    """Where the time of a task's or an experiment's attempts went. Answered by `WaterfallView`,
    refused with `not_found` until one has finished.
    """

    subject_id: UUID


class WaterfallStep(Struct, frozen=True, kw_only=True):
    """`step` is `waiting`, a phase of attempts, or `idle_held`: held and in no phase. While it
    waits nothing is held. `cost` None: a model without a price.
    """

    step: str
    seconds: Seconds
    gpu_seconds: Seconds
    cost: float | None


class WaterfallView(View, frozen=True, kw_only=True, tag="results.waterfall_view"):
    """Every step in its order, summed over the attempts."""

    subject_id: UUID
    attempts: Count
    steps: tuple[WaterfallStep, ...]
    currency: str
