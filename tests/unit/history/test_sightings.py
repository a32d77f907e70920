"""When engines ran, from a row of looks at /proc that each take a while."""

from uuid import UUID

from tests.support.history.real_node import NODE, Sightings
from tests.support.history.records import Began, Ceased

FIRST, SECOND = (UUID(int=1), 7, "GPU-rho-1"), (UUID(int=2), 8, "GPU-rho-1")
GPU = (NODE, "GPU-rho-1")


def test_engine_ran_between_two_looks() -> None:
    sightings = Sightings()
    sightings.note({FIRST}, 1.0, 1.5)
    sightings.note({FIRST}, 2.0, 2.5)
    sightings.note({SECOND}, 3.0, 3.5)
    sightings.note({SECOND}, 4.0, 4.5)

    assert list(sightings.records()) == [
        Began(at=1.5, device=GPU, reservation_id=FIRST[0], epoch=7),
        Ceased(at=2.0, device=GPU, reservation_id=FIRST[0], epoch=7),
        Began(at=3.5, device=GPU, reservation_id=SECOND[0], epoch=8),
        Ceased(at=4.0, device=GPU, reservation_id=SECOND[0], epoch=8),
    ]


def test_engine_seen_once_claims_no_time() -> None:
    """It once ran for ever, as its end came before its beginning."""
    sightings = Sightings()
    sightings.note({FIRST}, 1.0, 1.5)
    sightings.note(set(), 2.0, 2.5)

    assert list(sightings.records()) == []
