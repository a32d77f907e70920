"""What runs without being granted is stopped, and nothing else."""

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.executor.domain.reconciliation import KnownReservations, LabelledWorkload, compare

R = UUID(int=1)
E = UUID(int=2)


@pytest.mark.parametrize(
    ("seen", "known", "stopped", "asked"),
    [
        pytest.param(
            {"experiment_id": E}, KnownReservations(under_way={R}), False, False, id="under way"
        ),
        pytest.param(
            {"experiment_id": E}, KnownReservations(), True, False, id="nobody holds its lease"
        ),
        pytest.param(
            {"experiment_id": E}, KnownReservations(ending={R}), False, False, id="ended already"
        ),
        pytest.param(
            {"experiment_id": E},
            KnownReservations(under_way={R}, fenced={R}),
            True,
            False,
            id="fenced",
        ),
        pytest.param({}, KnownReservations(), False, True, id="a command of a person"),
        pytest.param(
            {}, KnownReservations(fenced={R}), True, False, id="a fenced command of a person"
        ),
        pytest.param(
            {"experiment_id": E, "is_ours": False},
            KnownReservations(),
            False,
            True,
            id="an experiment of another node of this host",
        ),
    ],
)
def test_workload_is_stopped_queried_or_left(
    seen: dict[str, object], known: KnownReservations, stopped: bool, asked: bool
) -> None:
    found = compare([LabelledWorkload(reservation_id=R, **seen)], known)  # type: ignore[arg-type]

    assert (R in found.stop) is stopped
    assert (R in found.ask) is asked


ids = st.sampled_from([uuid4() for _ in range(5)])
workloads = st.builds(
    LabelledWorkload, reservation_id=ids, experiment_id=st.none() | ids, is_ours=st.booleans()
)
known_things = st.builds(
    KnownReservations,
    under_way=st.frozensets(ids),
    ending=st.frozensets(ids),
    fenced=st.frozensets(ids),
)


@given(seen=st.lists(workloads), known=known_things)
def test_granted_workload_is_never_stopped(
    seen: list[LabelledWorkload], known: KnownReservations
) -> None:
    found = compare(seen, known)

    assert not set(found.stop) & (set(known.under_way) - set(known.fenced))
    assert not set(found.stop) & set(known.ending)
    assert not set(found.stop) & set(found.ask)
    assert set(found.stop) | set(found.ask) <= {each.reservation_id for each in seen}
    fenced = {each.reservation_id for each in seen} & set(known.fenced) - set(known.ending)
    assert fenced <= set(found.stop)
