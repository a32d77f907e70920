"""Which engines count as having run at once."""

import pytest

from tests.support.processes.engine_sightings import Sighting, overlaps


@pytest.mark.parametrize(
    ("other", "want"),
    [
        pytest.param(Sighting("b", ("GPU-1",), 15, 25), 1, id="while the first ran"),
        pytest.param(Sighting("b", ("GPU-1",), 21, 25), 0, id="after it"),
        pytest.param(Sighting("b", ("GPU-2",), 15, 25), 0, id="on another device"),
        pytest.param(Sighting("a", ("GPU-1",), 15, 25), 0, id="of the same reservation"),
    ],
)
def test_two_reservations_on_one_device_at_one_time_overlap(other: Sighting, want: int) -> None:
    first = Sighting("a", ("GPU-0", "GPU-1"), 10, 20)

    assert len(overlaps([first, other])) == want
