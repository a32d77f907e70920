"""A drift: a disagreement of the ledgers that lasts longer than its grace.

One comparison shows findings; `update_drifts` joins comparisons over time, so that a normal start
or stop is never a drift.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import DeviceUuid, NodeId
from schemas.scheduler.drifts import DriftAction, DriftKind

DriftKey = tuple[DriftKind, NodeId, DeviceUuid | None, UUID | None]

_IDS: Final = UUID("6e2d0a0e-5b0d-4c57-9a5d-2b1f6c1d9e43")


class Finding(Struct, frozen=True, kw_only=True):
    """A disagreement in one comparison; the same one in another has the same `key`."""

    kind: DriftKind
    node_id: NodeId
    action: DriftAction
    detail: str
    device_uuid: DeviceUuid | None = None
    reservation_id: UUID | None = None
    pids: tuple[int, ...] = ()

    @property
    def key(self) -> DriftKey:
        return (self.kind, self.node_id, self.device_uuid, self.reservation_id)


class Drift(Struct, frozen=True, kw_only=True):
    """A finding that has lasted beyond its grace and was published. `since_at`: first seen."""

    drift_id: UUID
    since_at: datetime
    finding: Finding
    ended_at: datetime | None = None


class Limits(Struct, frozen=True, kw_only=True):
    """How long a disagreement may last before it is a drift, in seconds.

    A ghost has at least a whole lease as well. `clock_skew_seconds` is by how much a node's clock
    may be off ours, whatever time that lasts. `idle_percent`: the utilization below which a held
    device is not in use. `system_processes` are the names of what every host may run on its GPUs.
    """

    ghost_seconds: float = 300.0
    orphan_seconds: float = 30.0
    squatter_seconds: float = 10.0
    underuse_seconds: float = 1800.0
    stale_agent_seconds: float = 15.0
    clock_skew_seconds: float = 60.0
    idle_percent: float = 5.0
    system_processes: frozenset[str] = frozenset()


class Comparison(Struct, frozen=True, kw_only=True):
    """The ledgers compared at one moment. Where it was `blind`, drifts neither begin nor end.

    In `blind` a device or a reservation that is None stands for all of them.
    """

    findings: tuple[Finding, ...]
    blind: frozenset[DriftKey] = frozenset()

    def sees(self, key: DriftKey) -> bool:
        """Return True if a missing finding about this key means that the drift is resolved."""
        kind, node_id, device_uuid, reservation_id = key
        return self.blind.isdisjoint(
            {
                (kind, node_id, None, None),
                (kind, node_id, device_uuid, None),
                (kind, node_id, None, reservation_id),
            }
        )


class Suspicion(Struct, frozen=True, kw_only=True):
    """A finding within its grace. `seconds` are counted while it is watched, not by the clock."""

    since_at: datetime
    seconds: float = 0.0


class DriftUpdate(Struct, frozen=True, kw_only=True):
    """How drifts went on: began, changed their finding, still last (changed or not), ended."""

    new_drifts: tuple[Drift, ...] = ()
    changed: tuple[Drift, ...] = ()
    lasting: tuple[Drift, ...] = ()
    ended: tuple[Drift, ...] = ()
    suspicions: Mapping[DriftKey, Suspicion] = {}


def update_drifts(
    open_drifts: Sequence[Drift],
    suspicions: Mapping[DriftKey, Suspicion],
    comparison: Comparison,
    *,
    now: datetime,
    elapsed_seconds: float,
    limits: Limits,
    leases: Mapping[UUID, float],
) -> DriftUpdate:
    """Apply a comparison to the known drifts.

    `elapsed_seconds` were watched since the last one. `leases` are the live reservations' lease
    times.
    """
    finding_by_key = {finding.key: finding for finding in comparison.findings}
    drift_by_key = {drift.finding.key: drift for drift in open_drifts}
    lasting = [
        replace(drift, finding=finding_by_key.get(key, drift.finding))
        for key, drift in drift_by_key.items()
        if key in finding_by_key or not comparison.sees(key)
    ]
    new_drifts: list[Drift] = []
    watched: dict[DriftKey, Suspicion] = {}
    for key, finding in finding_by_key.items():
        if key in drift_by_key:
            continue
        suspicion = suspicions.get(key)
        since_at = suspicion.since_at if suspicion is not None else now
        seconds = suspicion.seconds + elapsed_seconds if suspicion is not None else 0.0
        if seconds >= _grace(finding, limits, leases):
            new_drifts.append(
                Drift(drift_id=_drift_id(key, since_at), since_at=since_at, finding=finding)
            )
        else:
            watched[key] = Suspicion(since_at=since_at, seconds=seconds)
    unseen = {
        k: s for k, s in suspicions.items() if k not in finding_by_key and not comparison.sees(k)
    }
    return DriftUpdate(
        new_drifts=tuple(new_drifts),
        changed=tuple(drift for drift in lasting if drift != drift_by_key[drift.finding.key]),
        lasting=tuple(lasting),
        ended=tuple(
            replace(drift, ended_at=now)
            for key, drift in drift_by_key.items()
            if key not in finding_by_key and comparison.sees(key)
        ),
        suspicions=watched | unseen,
    )


def _grace(finding: Finding, limits: Limits, leases: Mapping[UUID, float]) -> float:
    match finding.kind:
        case DriftKind.GHOST_RESERVATION:
            least, whose = limits.ghost_seconds, finding.reservation_id
            return max(least, leases.get(whose, least)) if whose is not None else least
        case DriftKind.ORPHAN_WORKLOAD:
            return limits.orphan_seconds
        case DriftKind.SQUATTER:
            return limits.squatter_seconds
        case DriftKind.UNDERUSE:
            return limits.underuse_seconds
        case DriftKind.STALE_AGENT:
            return 0.0  # its silence was counted before
        case DriftKind.CLOCK_SKEW:
            return limits.stale_agent_seconds  # samples that waited for the bus look old a moment


def _drift_id(key: DriftKey, since_at: datetime) -> UUID:
    return uuid5(_IDS, "/".join(str(part) for part in (*key, since_at.isoformat())))
