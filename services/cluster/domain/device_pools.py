"""GPUs that drivers publish as devices of pools, and what claims have been given of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar
from uuid import UUID

from msgspec import Struct

from shared.accelerator_rules.quantities import mebibytes, whole
from shared.kubernetes.objects.devices import Device, Pool, ResourceClaim, ResourceSlice

PoolKey = tuple[str, str]  # driver, pool
Counters = dict[tuple[str, str], int]  # by counter set and counter
WHOLE_GPU: Final = frozenset({"gpu", "amdgpu"})  # of attribute `type`; others are parts of one
UNUSABLE_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
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


class _HeldClaim(Struct, frozen=True):
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
        self._claims: dict[tuple[str, str], _HeldClaim] = {}
        self._takers: dict[PoolKey, dict[tuple[str, str], _HeldClaim]] = {}
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
            (result.driver, result.pool, result.device)
            for result in results
            if result.driver in self._drivers and not result.admin_access
        )
        if not devices:
            return concerned
        held_claim = _HeldClaim(
            devices,
            self._reservation_of(claim.metadata.labels),
            frozenset(
                consumer.uid
                for consumer in claim.status.reserved_for
                if consumer.resource == "pods"
            ),
        )
        self._claims[key] = held_claim
        for pod in held_claim.consumers:
            self._claims_of_pod.setdefault(pod, set()).add(key)
        return concerned | self._claim_changed(key, held_claim)

    def remove_claim(self, key: tuple[str, str]) -> set[str]:
        allocation = self._claims.pop(key, None)
        if allocation is None:
            return set()
        for pod in allocation.consumers:
            self._claims_of_pod[pod].discard(key)
            if not self._claims_of_pod[pod]:
                del self._claims_of_pod[pod]
        concerned = set()
        for driver, pool, _ in allocation.devices:
            self._takers[driver, pool].pop(key, None)
            concerned |= self._pool_changed((driver, pool))
        return concerned

    @property
    def claim_keys(self) -> set[tuple[str, str]]:
        return set(self._claims)

    def apply_pod(self, uid: str, reservation_id: UUID | None) -> set[str]:
        """Set the reservation of a pod, None for a foreign one and one that has gone; return the
        nodes concerned.
        """
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
        """Yield what each driver's pools have on the node, by driver; incomplete pools are left
        out.
        """
        for key in sorted(self._pools_of_node.get(node, ())):
            if (share := (self._shares_of_pool(key) or {}).get(node)) is not None:
                yield key[0], share

    def incomplete(self) -> list[str]:
        """Sentences about pools that are not counted."""
        sentences = []
        for (driver, pool), slices in sorted(self._pools.items()):
            if slices and self._shares_of_pool((driver, pool)) is None:
                newest, visible = _newest(slices.values())
                sentences.append(
                    f"pool {pool} of {driver}: {len(visible)} of {newest.resource_slice_count}"
                    f" slices of generation {newest.generation} are visible, none of its"
                    " GPUs is counted"
                )
        return sentences

    @property
    def drivers(self) -> set[str]:
        """Return the drivers that publish something."""
        return {driver for (driver, _), slices in self._pools.items() if slices}

    def _claim_changed(self, key: tuple[str, str], allocation: _HeldClaim) -> set[str]:
        concerned = set()
        for driver, pool, _ in allocation.devices:
            self._takers.setdefault((driver, pool), {})[key] = allocation
            concerned |= self._pool_changed((driver, pool))
        return concerned

    def _pool_changed(self, key: PoolKey) -> set[str]:
        self._shares.pop(key, None)
        for node in self._nodes_of(key):
            self._pools_of_node.setdefault(node, set()).add(key)
        return self._nodes_of(key)

    def _nodes_of(self, key: PoolKey) -> set[str]:
        node_names = set()
        for slice_ in self._pools.get(key, {}).values():
            node_names |= {
                slice_.spec.node_name,
                *(device.node_name for device in slice_.spec.devices),
            }
        return {node for node in node_names if node}

    def _shares_of_pool(self, key: PoolKey) -> dict[str, PoolShare] | None:
        if key not in self._shares:
            self._shares[key] = self._evaluate(key)
        return self._shares[key]

    def _evaluate(self, key: PoolKey) -> dict[str, PoolShare] | None:
        slices = self._pools.get(key, {})
        if not slices:
            return {}
        _, visible_slices = _newest(slices.values())
        if any(
            resource_slice.spec.pool.resource_slice_count != len(visible_slices)
            for resource_slice in visible_slices
        ):
            return None
        placed: dict[str, list[Device]] = {}
        for slice_ in visible_slices:
            for device in slice_.spec.devices:
                if node := slice_.spec.node_name or device.node_name:
                    placed.setdefault(node, []).append(device)
        owners = self._find_owners(key)
        counters = _counters_left(visible_slices, owners)
        return {
            node: _share(
                [device for device in devices if _is_whole_gpu(key[0], device)],
                owners,
                counters,
                key,
            )
            for node, devices in placed.items()
        }

    def _find_owners(self, key: PoolKey) -> dict[str, UUID | None]:
        """Allocated devices of a pool, and for whom: by claims in the order of their names, so that
        one which several claims share has the same holder in whatever order they came.
        """
        return {
            device: allocation.reservation_id or self._by_pods(allocation.consumers)
            for _, allocation in sorted(self._takers.get(key, {}).items())
            for driver, pool, device in allocation.devices
            if (driver, pool) == key
        }

    def _by_pods(self, consumers: frozenset[str]) -> UUID | None:
        reservation_ids = {self._reservation_of_pod.get(pod) for pod in consumers}
        return reservation_ids.pop() if len(reservation_ids) == 1 else None


def _newest(slices: Iterable[ResourceSlice]) -> tuple[Pool, list[ResourceSlice]]:
    slice_list = list(slices)
    newest = max(
        (resource_slice.spec.pool for resource_slice in slice_list),
        key=lambda pool: pool.generation,
    )
    return newest, [
        resource_slice
        for resource_slice in slice_list
        if resource_slice.spec.pool.generation == newest.generation
    ]


def _share(
    gpus: list[Device], owners: Mapping[str, UUID | None], counters: Counters, key: PoolKey
) -> PoolShare:
    usable = [
        device
        for device in gpus
        if device.name in owners
        or not any(taint.effect in UNUSABLE_EFFECTS for taint in device.taints)
    ]
    first = gpus[0] if gpus else Device()
    memory = _of(key[0], first.capacity, "memory")
    return PoolShare(
        capacity=len(gpus),
        allocatable=len(usable),
        free=_together([device for device in usable if device.name not in owners], counters),
        by_reservation=dict(
            Counter(owner for device in usable if (owner := owners.get(device.name)) is not None)
        ),
        model=_text(key[0], first, "productName"),
        memory_mb=mebibytes(memory.value) if memory is not None else None,
        is_reused=any(device.allow_multiple_allocations for device in gpus),
    )


def _together(devices: list[Device], counters: Counters) -> int:
    """Return how many at least can be given out at once: parts of one GPU draw on the same
    counters.
    """
    remaining_counters, count = dict(counters), 0
    for device in devices:
        drawn = _counters_of(device)
        if all(remaining_counters.get(counter, 0) >= amount for counter, amount in drawn.items()):
            count += 1
            for counter, amount in drawn.items():
                remaining_counters[counter] -= amount
    return count


def _counters_left(slices: list[ResourceSlice], owners: Mapping[str, object]) -> Counters:
    remaining_counters = {
        (counters.name, name): whole(capacity.value)
        for slice_ in slices
        for counters in slice_.spec.shared_counters
        for name, capacity in counters.counters.items()
    }
    for slice_ in slices:
        for device in slice_.spec.devices:
            if device.name in owners:
                for counter, amount in _counters_of(device).items():
                    remaining_counters[counter] = remaining_counters.get(counter, 0) - amount
    return remaining_counters


def _counters_of(device: Device) -> Counters:
    return {
        (consumption.counter_set, name): whole(counter.value)
        for consumption in device.consumes_counters
        for name, counter in consumption.counters.items()
    }


def _is_whole_gpu(driver: str, device: Device) -> bool:
    kind = _text(driver, device, "type")
    return kind is None or kind in WHOLE_GPU


def _text(driver: str, device: Device, name: str) -> str | None:
    attribute = _of(driver, device.attributes, name)
    return attribute.string if attribute is not None else None


def _of(driver: str, values: Mapping[str, T], name: str) -> T | None:
    """A name without a domain is the driver's own."""
    return values.get(name) or values.get(f"{driver}/{name}")
