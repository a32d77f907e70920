"""GPUs that drivers publish as devices of pools, and what claims have been given of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar
from uuid import UUID

from msgspec import Struct

from services.cluster.domain.objects import Device, Pool, ResourceClaim, ResourceSlice
from shared.accelerator_rules.quantities import mebibytes, whole

PoolKey = tuple[str, str]  # driver, pool
Counters = dict[tuple[str, str], int]  # by counter set and counter
WHOLE_GPU: Final = frozenset({"gpu", "amdgpu"})  # of attribute `type`; others are parts of one
UNUSABLE: Final = frozenset({"NoSchedule", "NoExecute"})
T = TypeVar("T")
ReservationOf = Callable[[Mapping[str, str]], UUID | None]


class PoolShare(Struct, frozen=True):
    """What a pool has on one node. `free` is how many could be given out together for certain;
    `is_reused`: several claims may be given one.
    """

    capacity: int
    allocatable: int
    free: int
    by_reservation: dict[UUID, int]
    model: str | None
    memory_mb: int | None
    is_reused: bool = False


class _Given(Struct, frozen=True):
    """Devices of a claim, and whose it is: by its own label, else by the pods that use it."""

    devices: frozenset[tuple[str, str, str]]
    reservation_id: UUID | None
    consumers: frozenset[str]


class DevicePools:
    """All that is published and allocated. Methods that change something return the nodes that this
    may concern.
    """

    def __init__(self, drivers: frozenset[str], reservation_of: ReservationOf) -> None:
        self._drivers = drivers
        self._reservation_of = reservation_of
        self._slices: dict[str, ResourceSlice] = {}
        self._pools: dict[PoolKey, dict[str, ResourceSlice]] = {}
        self._pools_of_node: dict[str, set[PoolKey]] = {}
        self._claims: dict[tuple[str, str], _Given] = {}
        self._takers: dict[PoolKey, dict[tuple[str, str], _Given]] = {}
        self._claims_of_pod: dict[str, set[tuple[str, str]]] = {}
        self._reservation_of_pod: dict[str, UUID] = {}
        self._shares: dict[PoolKey, dict[str, PoolShare] | None] = {}  # None: incomplete

    def apply_slice(self, slice_: ResourceSlice) -> set[str]:
        name = slice_.metadata.name
        concerned = self.remove_slice(name)
        if slice_.spec.driver not in self._drivers:
            return concerned
        key = (slice_.spec.driver, slice_.spec.pool.name)
        self._slices[name] = slice_
        self._pools.setdefault(key, {})[name] = slice_
        return concerned | self._pool_changed(key)

    def remove_slice(self, name: str) -> set[str]:
        slice_ = self._slices.pop(name, None)
        if slice_ is None:
            return set()
        key = (slice_.spec.driver, slice_.spec.pool.name)
        concerned = self._nodes_of(key)
        del self._pools[key][name]
        return concerned | self._pool_changed(key)

    @property
    def slice_names(self) -> set[str]:
        return set(self._slices)

    def apply_claim(self, claim: ResourceClaim) -> set[str]:
        key = (claim.metadata.namespace, claim.metadata.name)
        concerned = self.remove_claim(key)
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else []
        devices = frozenset(
            (each.driver, each.pool, each.device)
            for each in results
            if each.driver in self._drivers and not each.admin_access
        )
        if not devices:
            return concerned
        given = _Given(
            devices,
            self._reservation_of(claim.metadata.labels),
            frozenset(each.uid for each in claim.status.reserved_for if each.resource == "pods"),
        )
        self._claims[key] = given
        for pod in given.consumers:
            self._claims_of_pod.setdefault(pod, set()).add(key)
        return concerned | self._claim_changed(key, given)

    def remove_claim(self, key: tuple[str, str]) -> set[str]:
        given = self._claims.pop(key, None)
        if given is None:
            return set()
        for pod in given.consumers:
            self._claims_of_pod[pod].discard(key)
            if not self._claims_of_pod[pod]:
                del self._claims_of_pod[pod]
        concerned = set()
        for driver, pool, _ in given.devices:
            self._takers[driver, pool].pop(key, None)
            concerned |= self._pool_changed((driver, pool))
        return concerned

    @property
    def claim_keys(self) -> set[tuple[str, str]]:
        return set(self._claims)

    def apply_pod(self, uid: str, reservation_id: UUID | None) -> set[str]:
        """Whose pod it is; None for a foreign one and one that has gone."""
        if self._reservation_of_pod.get(uid) == reservation_id:
            return set()
        if reservation_id is None:
            del self._reservation_of_pod[uid]
        else:
            self._reservation_of_pod[uid] = reservation_id
        concerned = set()
        for key in self._claims_of_pod.get(uid, ()):
            for driver, pool, _ in self._claims[key].devices:
                concerned |= self._pool_changed((driver, pool))
        return concerned

    def shares(self, node: str) -> Iterator[tuple[str, PoolShare]]:
        """What each driver's pools have there, by driver; incomplete pools are left out."""
        for key in sorted(self._pools_of_node.get(node, ())):
            if (share := (self._evaluated(key) or {}).get(node)) is not None:
                yield key[0], share

    def incomplete(self) -> list[str]:
        """Sentences about pools that are not counted."""
        found = []
        for (driver, pool), slices in sorted(self._pools.items()):
            if slices and self._evaluated((driver, pool)) is None:
                newest, seen = _newest(slices.values())
                found.append(
                    f"pool {pool} of {driver}: {len(seen)} of {newest.resource_slice_count} slices "
                    f"of generation {newest.generation} are visible, none of its GPUs is counted"
                )
        return found

    @property
    def drivers(self) -> set[str]:
        """Those that publish something."""
        return {driver for (driver, _), slices in self._pools.items() if slices}

    def _claim_changed(self, key: tuple[str, str], given: _Given) -> set[str]:
        concerned = set()
        for driver, pool, _ in given.devices:
            self._takers.setdefault((driver, pool), {})[key] = given
            concerned |= self._pool_changed((driver, pool))
        return concerned

    def _pool_changed(self, key: PoolKey) -> set[str]:
        self._shares.pop(key, None)
        for node in self._nodes_of(key):
            self._pools_of_node.setdefault(node, set()).add(key)
        return self._nodes_of(key)

    def _nodes_of(self, key: PoolKey) -> set[str]:
        found = set()
        for slice_ in self._pools.get(key, {}).values():
            found |= {slice_.spec.node_name, *(each.node_name for each in slice_.spec.devices)}
        return {node for node in found if node}

    def _evaluated(self, key: PoolKey) -> dict[str, PoolShare] | None:
        if key not in self._shares:
            self._shares[key] = self._evaluate(key)
        return self._shares[key]

    def _evaluate(self, key: PoolKey) -> dict[str, PoolShare] | None:
        slices = self._pools.get(key, {})
        if not slices:
            return {}
        _, seen = _newest(slices.values())
        if any(each.spec.pool.resource_slice_count != len(seen) for each in seen):
            return None
        placed: dict[str, list[Device]] = {}
        for slice_ in seen:
            for device in slice_.spec.devices:
                if node := slice_.spec.node_name or device.node_name:
                    placed.setdefault(node, []).append(device)
        taken = self._taken(key)
        left = _counters_left(seen, taken)
        return {
            node: _share(
                [each for each in devices if _is_whole_gpu(key[0], each)], taken, left, key
            )
            for node, devices in placed.items()
        }

    def _taken(self, key: PoolKey) -> dict[str, UUID | None]:
        """Allocated devices of a pool, and for whom: by claims in the order of their names, so that
        one which several claims share has the same holder in whatever order they came.
        """
        return {
            device: given.reservation_id or self._by_pods(given.consumers)
            for _, given in sorted(self._takers.get(key, {}).items())
            for driver, pool, device in given.devices
            if (driver, pool) == key
        }

    def _by_pods(self, consumers: frozenset[str]) -> UUID | None:
        found = {self._reservation_of_pod.get(pod) for pod in consumers}
        return found.pop() if len(found) == 1 else None


def _newest(slices: Iterable[ResourceSlice]) -> tuple[Pool, list[ResourceSlice]]:
    known = list(slices)
    newest = max((each.spec.pool for each in known), key=lambda pool: pool.generation)
    return newest, [each for each in known if each.spec.pool.generation == newest.generation]


def _share(
    gpus: list[Device], taken: Mapping[str, UUID | None], left: Counters, key: PoolKey
) -> PoolShare:
    usable = [
        each
        for each in gpus
        if each.name in taken or not any(taint.effect in UNUSABLE for taint in each.taints)
    ]
    first = gpus[0] if gpus else Device()
    memory = _of(key[0], first.capacity, "memory")
    return PoolShare(
        capacity=len(gpus),
        allocatable=len(usable),
        free=_together([each for each in usable if each.name not in taken], left),
        by_reservation=dict(
            Counter(found for each in usable if (found := taken.get(each.name)) is not None)
        ),
        model=_text(key[0], first, "productName"),
        memory_mb=mebibytes(memory.value) if memory is not None else None,
        is_reused=any(each.allow_multiple_allocations for each in gpus),
    )


def _together(devices: list[Device], left: Counters) -> int:
    """How many at least can be given out at once: parts of one GPU draw on the same counters."""
    rest, count = dict(left), 0
    for device in devices:
        drawn = _drawn(device)
        if all(rest.get(counter, 0) >= amount for counter, amount in drawn.items()):
            count += 1
            for counter, amount in drawn.items():
                rest[counter] -= amount
    return count


def _counters_left(slices: list[ResourceSlice], taken: Mapping[str, object]) -> Counters:
    left = {
        (counters.name, name): whole(each.value)
        for slice_ in slices
        for counters in slice_.spec.shared_counters
        for name, each in counters.counters.items()
    }
    for slice_ in slices:
        for device in slice_.spec.devices:
            if device.name in taken:
                for counter, amount in _drawn(device).items():
                    left[counter] = left.get(counter, 0) - amount
    return left


def _drawn(device: Device) -> Counters:
    return {
        (each.counter_set, name): whole(counter.value)
        for each in device.consumes_counters
        for name, counter in each.counters.items()
    }


def _is_whole_gpu(driver: str, device: Device) -> bool:
    kind = _text(driver, device, "type")
    return kind is None or kind in WHOLE_GPU


def _text(driver: str, device: Device, name: str) -> str | None:
    found = _of(driver, device.attributes, name)
    return found.string if found is not None else None


def _of(driver: str, named: Mapping[str, T], name: str) -> T | None:
    """A name without a domain is the driver's own."""
    return named.get(name) or named.get(f"{driver}/{name}")
