"""What a driver has sampled by itself, in brief."""

from schemas.telemetry.readings import Buffered, BufferedMetric
from services.telemetry.domain.buffered_samples import summarized


def test_samples_are_told_by_their_extremes_and_their_mean_in_the_unit_asked_for() -> None:
    metric = next(iter(BufferedMetric))

    found = summarized(metric, [3000.0, 1000.0, 5000.0], 10, 20, 1000.0)

    assert found == Buffered(metric, 3, 1.0, 5.0, 3.0, 10, 20)
