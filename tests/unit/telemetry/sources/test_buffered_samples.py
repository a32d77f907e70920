"""What a driver has sampled by itself, in brief."""

from schemas.telemetry.readings import Buffered, BufferedMetric
from services.telemetry.domain.buffered_samples import summarize


def test_samples_have_extremes_mean_and_unit() -> None:
    metric = next(iter(BufferedMetric))

    found = summarize(metric, [3000.0, 1000.0, 5000.0], 10, 20, 1000.0)

    assert found == Buffered(metric, 3, 1.0, 5.0, 3.0, 10, 20)
