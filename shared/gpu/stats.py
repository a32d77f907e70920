"""What a GPU did over a time, summed up reading by reading; pure, as a domain is.

The shape is the requirements' aggregate of a monitoring. The platform's results and a node's agent
use this one, which keeps a few numbers per GPU however long it runs.
"""

from dataclasses import dataclass, field

from schemas.results.measurements import GpuMonitoring
from schemas.telemetry.monitoring import GpuStats, SampledSpread, Spread


@dataclass(slots=True)
class Tally:
    """Smallest, largest and mean of the known values; the unknown ones count nowhere."""

    count: int = 0
    smallest: float = 0.0
    largest: float = 0.0
    total: float = 0.0

    def add(self, value: float | None) -> None:
        if value is None:
            return
        if self.count == 0:
            self.smallest = self.largest = value
        elif value < self.smallest:
            self.smallest = value
        elif value > self.largest:
            self.largest = value
        self.total += value
        self.count += 1

    @property
    def spread(self) -> Spread:
        """The spread; all fields None if no value was known."""
        if not self.count:
            return Spread()
        return Spread(min=self.smallest, max=self.largest, mean=self._mean)

    @property
    def sampled(self) -> SampledSpread:
        """The spread with the number of known values."""
        if not self.count:
            return SampledSpread()
        return SampledSpread(
            min=self.smallest, max=self.largest, mean=self._mean, samples=self.count
        )

    @property
    def _mean(self) -> float:
        # Rounding may push a mean of equal values past them.
        return min(max(self.total / self.count, self.smallest), self.largest)


@dataclass(slots=True)
class GpuTally:
    """One GPU's readings. None is unknown."""

    utilization: Tally = field(default_factory=Tally)
    memory_used: Tally = field(default_factory=Tally)
    memory_usage: Tally = field(default_factory=Tally)
    temperature: Tally = field(default_factory=Tally)
    power_draw: Tally = field(default_factory=Tally)
    power_limit: Tally = field(default_factory=Tally)

    def add(
        self,
        *,
        utilization_percent: float | None,
        memory_used_mb: float | None,
        memory_total_mb: float | None,
        temperature_c: float | None,
        power_draw_w: float | None,
        power_limit_w: float | None,
    ) -> None:
        self.utilization.add(utilization_percent)
        self.memory_used.add(memory_used_mb)
        self.memory_usage.add(memory_usage_percent(memory_used_mb, memory_total_mb))
        self.temperature.add(temperature_c)
        self.power_draw.add(power_draw_w)
        self.power_limit.add(power_limit_w)

    def stats(self, name: str, uuid: str) -> GpuStats:
        """Return the statistics of everything counted so far."""
        return GpuStats(
            name=name,
            uuid=uuid,
            utilization=self.utilization.sampled,
            memory_used_mb=self.memory_used.spread,
            memory_usage_percent=self.memory_usage.spread,
            temperature_c=self.temperature.spread,
            power_draw_w=self.power_draw.spread,
            power_limit_w=self.power_limit.spread,
        )


def memory_usage_percent(used_mb: float | None, total_mb: float | None) -> float | None:
    """Used of total; unknown if either is."""
    if used_mb is None or not total_mb:
        return None
    return 100.0 * used_mb / total_mb


def peak_memory_mb(run: GpuMonitoring) -> int | None:
    """The most memory that one of its GPUs had in use; None if too little is known of them."""
    peaks_mb = [stats.memory_used_mb.max for stats in run.gpu_stats.values()]
    peaks = [peak for peak in peaks_mb if peak is not None]
    return round(max(peaks)) if run.trusted and len(peaks) == len(peaks_mb) > 0 else None
