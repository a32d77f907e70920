"""Which requests of which groups a cycle evaluates, and in what order."""

from math import inf

import pytest

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.indexes.filter_index import FilterIndex
from services.scheduler.domain.placement.request_shape import Rank, shape_of
from services.scheduler.domain.queue.waiting_group import WaitingGroup
from services.scheduler.domain.queue.worklist import Worklist
from tests.unit.scheduler.builders import make_queued

END: Rank = (1 << 60, 0, 0, 0)


def rank(number: int) -> Rank:
    return (0, 0, number, number)


def make_group(**seconds: float | None) -> WaitingGroup:
    """Requests by their numbers (`r1`, `r2`, ...) with their durations."""
    request = GpuRequest()
    group = WaitingGroup(shape_of(request), FilterIndex(shape_of(request).filter, request), request)
    for name, duration in seconds.items():
        number = int(name[1:])
        entry = make_queued(number, GpuRequest(expected_duration_seconds=duration))
        group.entries.append((rank(number)[1:], entry))
    return group


def popped(worklist: Worklist, before: Rank = END) -> list[tuple[Rank, float]]:
    found = []
    while (item := worklist.pop(before)) is not None:
        found.append((item.rank, item.shorter_than))
    return found


def test_groups_come_once_in_rank_order() -> None:
    worklist, late, soon = Worklist(), make_group(r5=None), make_group(r2=None)

    worklist.add(late, soon, late)

    assert popped(worklist, before=rank(2)) == []
    assert popped(worklist, before=rank(5)) == [(rank(2), inf)]
    assert popped(worklist) == [(rank(5), inf)]


def test_group_without_place_yields_shorter_only() -> None:
    worklist, group = Worklist(), make_group(r1=60.0, r2=None, r3=60.0, r4=30.0)

    worklist.add_next(group, rank(1), 60.0)

    assert popped(worklist) == [(rank(4), 60.0)]


def test_group_added_meanwhile_starts_over() -> None:
    worklist, group = Worklist(), make_group(r1=60.0, r2=30.0)

    worklist.add_next(group, rank(1), 60.0)
    worklist.add(group)
    worklist.add_next(group, rank(1), 60.0)

    assert popped(worklist) == [(rank(1), inf)]


@pytest.mark.parametrize("waits", [False, True], ids=["group at rest", "group already added"])
def test_new_request_is_evaluated_alone(waits: bool) -> None:
    worklist, group = Worklist(), make_group(r1=60.0, r2=30.0)
    if waits:
        worklist.add(group)

    worklist.add_from(group, rank(2))

    assert popped(worklist) == ([(rank(1), inf)] if waits else [(rank(2), 0.0)])


def test_group_that_lost_its_first_has_the_next() -> None:
    worklist, group = Worklist(), make_group(r1=None, r2=None)
    worklist.add(group)

    del group.entries[0]

    assert popped(worklist) == [(rank(2), inf)]


def test_an_empty_group_does_not_come() -> None:
    worklist, group = Worklist(), make_group(r1=None)
    worklist.add(group)

    group.entries.clear()
    worklist.add(group)

    assert popped(worklist) == []


def test_promoted_next_request_has_no_limit() -> None:
    worklist, group = Worklist(), make_group(r1=60.0, r2=30.0)
    worklist.add_next(group, rank(1), 60.0)

    del group.entries[0]
    worklist.add(group)

    assert popped(worklist) == [(rank(2), inf)]
