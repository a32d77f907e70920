"""How a request for shares is divided among the devices of one node.

Amounts are integers, hundredths of a device. A device's parts are whole multiples of the quantum,
and together exactly what was requested: never less, as by rounding each part down.
"""

import math
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from schemas.gpus.gpu_request import WHOLE, GpuRequest, ShareStrategy


class ShareRules(Struct, frozen=True, kw_only=True):
    """Shares are multiples of `quantum` hundredths; requests of these namespaces, or of all with
    `*`, have to insist on enforced ones.
    """

    quantum: int = 1
    enforced_namespaces: frozenset[str] = frozenset()

    def insists(self, namespace: str) -> bool:
        return not self.enforced_namespaces.isdisjoint({namespace, "*"})


class SharesRefused(StrEnum):
    """Why an amount cannot be had of these devices."""

    INSUFFICIENT = "insufficient"
    FRAGMENTED = "fragmented"


Parts = tuple[int, ...]  # one for each device, 0 of one that is left out


def hundredths(shares: float) -> int | None:
    """The amount if it has at most two decimals, else None: 1.2 is 120, exactly."""
    amount = round(shares * WHOLE)
    return amount if amount / WHOLE == shares else None


def hundredths_of(request: GpuRequest) -> int:
    """Return the requested hundredths; 0 without shares."""
    return math.ceil(round((request.shares or 0) * WHOLE, 6))


def total_hundredths(request: GpuRequest) -> int:
    """Return the hundredths that the request holds once it is granted."""
    if request.shares is not None:
        return hundredths_of(request)
    return request.gpus * request.nodes * WHOLE


def devices_needed(request: GpuRequest) -> int:
    """Return on how many devices of each node the request fits if they are free."""
    return -(-hundredths_of(request) // WHOLE) if request.shares is not None else request.gpus


def unit_hundredths(request: GpuRequest) -> int | None:
    """Return what a unit of a request's counted shares is; None where they are not counted."""
    return WHOLE // request.units_per_gpu if request.share_units is not None else None


def least_free(request: GpuRequest) -> int:
    """Return the least hundredths that a device must have free to be taken at all."""
    return max(1, math.ceil(round(request.min_free_shares * WHOLE, 6)))


def divide_for(
    request: GpuRequest, free: Sequence[int], quantum: int, *, of_one_device: bool = False
) -> Parts | SharesRefused:
    """The request's parts of a node's devices; by single hundredths if the quantum has changed."""
    total = hundredths_of(request)
    unit = unit_hundredths(request)
    smallest = 1 if total % quantum else quantum
    return divide(
        free,
        total,
        quantum=smallest if unit is None else unit,
        strategy=request.share_strategy,
        unfragmented=request.unfragmented or of_one_device,
        counted=unit is not None and not of_one_device,
    )


def divide(
    free: Sequence[int],
    total: int,
    *,
    quantum: int = 1,
    strategy: ShareStrategy = ShareStrategy.EVENLY,
    least_free: int = 0,
    unfragmented: bool = False,
    counted: bool = False,
) -> Parts | SharesRefused:
    """Parts of devices that have so much `free`, in the order in which the node declares them.

    Devices with less than `least_free` are left out. `unfragmented`: what fits on one device is
    not spread over several because others hold parts of each, and the parts of more are nearly
    equal. `counted`: the quantum is a unit, and `evenly` takes one of each device that has room
    before it takes a second of any. Raises ValueError for an amount that is negative or no multiple
    of the quantum.
    """
    if total < 0 or total % quantum:
        raise ValueError(f"expected a multiple of {quantum}, got {total}")
    usable = {
        place: amount - amount % quantum
        for place, amount in enumerate(free)
        if amount >= max(least_free, quantum)
    }
    if sum(usable.values()) < total:
        return SharesRefused.INSUFFICIENT
    order = sorted(usable, key=lambda place: -usable[place])  # ties as declared
    if strategy is ShareStrategy.FILL:
        parts = _fill(usable, order, total)
    elif counted:
        parts = _level(usable, order, total, quantum)
    else:
        parts = _evenly(usable, order, total, quantum)
    if unfragmented and _is_fragmented([part for part in parts.values() if part], total, quantum):
        return SharesRefused.FRAGMENTED
    return tuple(parts.get(place, 0) for place in range(len(free)))


def _is_fragmented(parts: Sequence[int], total: int, quantum: int) -> bool:
    if total <= WHOLE:
        return len(parts) > 1
    return max(parts) - min(parts) > quantum


def _fill(usable: dict[int, int], order: Sequence[int], total: int) -> dict[int, int]:
    parts = {}
    for place in order:
        parts[place] = min(total, usable[place])
        total -= parts[place]
    return parts


def _evenly(
    usable: dict[int, int], order: Sequence[int], total: int, quantum: int
) -> dict[int, int]:
    """Over the fewest devices, as evenly as can be, and then where the least is left over."""
    if not total:
        return {}
    # The most free are as many as any that can hold it, and none are more even.
    held_hundredths, count = 0, 0
    while held_hundredths < total:
        held_hundredths += usable[order[count]]
        count += 1
    parts = _level(usable, order[:count], total, quantum)
    sizes = sorted(parts.values(), reverse=True)
    if sizes[0] - sizes[-1] > quantum:
        return parts
    # As even elsewhere: the least free that can hold a part, larger parts first, which fewer can
    # hold. Of equally free ones a single part takes the last, several take the first.
    least_first = order[::-1] if count == 1 else sorted(order, key=usable.__getitem__)
    fitting: list[int] = []
    for size in sizes:
        fitting.append(next(p for p in least_first if usable[p] >= size and p not in fitting))
    return _level(usable, [place for place in order if place in fitting], total, quantum)


def _level(
    usable: dict[int, int], places: Sequence[int], total: int, quantum: int
) -> dict[int, int]:
    """Split into equal parts; a device that has less gives all of it, the first ones take the
    remainder.
    """
    parts = {}
    for count_left, place in zip(range(len(places), 0, -1), reversed(places), strict=True):
        parts[place] = min(usable[place], total // quantum // count_left * quantum)
        total -= parts[place]
    return parts
