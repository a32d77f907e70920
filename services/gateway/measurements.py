"""What the gateway counts as it happens: requests, and what events say of the queue."""

from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from schemas.base import tag_of
from schemas.gateway.views import StoredEvent
from schemas.scheduler.drifts import DriftDetected
from schemas.scheduler.reservations import (
    ReservationGranted,
    ReservationQueued,
    ReservationRejected,
)

REQUEST_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)
WAIT_BUCKETS: Final = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 12 * 3600, 86_400)
OTHER_ROUTE: Final = "other"


def _registry() -> CollectorRegistry:
    return CollectorRegistry(auto_describe=False)


@dataclass(slots=True, eq=False)
class Measurements:
    """Since this process started; an event that came while no gateway ran is counted by none."""

    registry: CollectorRegistry = field(default_factory=_registry)
    _requests: Histogram = field(init=False)
    _queued: Counter = field(init=False)
    _granted: Counter = field(init=False)
    _rejected: Counter = field(init=False)
    _waits: Histogram = field(init=False)
    _drifts: Counter = field(init=False)

    def __post_init__(self) -> None:
        of, registry = ("namespace",), self.registry
        self._requests = Histogram(
            "gpusteward_http_request_seconds",
            "Answers over HTTP, without streams and requests that wait",
            ("method", "route", "status"),
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        self._queued = Counter(
            "gpusteward_reservations_queued", "Requests for GPUs", of, registry=registry
        )
        self._granted = Counter("gpusteward_reservations_granted", "Grants", of, registry=registry)
        self._rejected = Counter(
            "gpusteward_reservations_rejected",
            "Requests that could never be served",
            of,
            registry=registry,
        )
        self._waits = Histogram(
            "gpusteward_reservation_wait_seconds",
            "From a request to its grant",
            of,
            buckets=WAIT_BUCKETS,
            registry=registry,
        )
        self._drifts = Counter(
            "gpusteward_drifts_detected",
            "Times that reserved, running and used disagreed",
            ("kind",),
            registry=registry,
        )

    def on_request(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """`route` is None for what there is not, so that clients cannot make up series."""
        self._requests.labels(method, route or OTHER_ROUTE, str(status)).observe(seconds)

    async def on_event(self, event: StoredEvent) -> None:
        """Take an event from the log, which has each once."""
        namespace = str(event.event.get("namespace"))
        if event.type == tag_of(ReservationQueued):
            self._queued.labels(namespace).inc()
        elif event.type == tag_of(ReservationRejected):
            self._rejected.labels(namespace).inc()
        elif event.type == tag_of(ReservationGranted):
            self._granted.labels(namespace).inc()
            self._waits.labels(namespace).observe(float(event.event.get("waited_seconds", 0.0)))
        elif event.type == tag_of(DriftDetected):
            self._drifts.labels(str(event.event.get("drift"))).inc()
