"""Counters of the agent itself, for its metrics."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

READ_BUCKETS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
MAX_XIDS: Final = 1024


@dataclass(slots=True)
class Counters:
    """Since the start of the process. `read_buckets` ends with those beyond the largest.

    `source_opens` counts every opening, so one less is the number of replacements.
    """

    samples: int = 0
    failed_reads: int = 0
    source_opens: int = 0
    read_seconds: float = 0.0
    read_buckets: list[int] = field(default_factory=lambda: [0] * (len(READ_BUCKETS_SECONDS) + 1))
    loop_lag_seconds: float = 0.0
    largest_loop_lag_seconds: float = 0.0
    xids: Counter[tuple[str, int]] = field(default_factory=Counter)

    def count_read(self, seconds: float) -> None:
        self.read_seconds += seconds
        self.read_buckets[bisect_left(READ_BUCKETS_SECONDS, seconds)] += 1

    def count_lag(self, seconds: float) -> None:
        """Count how late a tick began, in seconds."""
        self.loop_lag_seconds = max(0.0, seconds)
        self.largest_loop_lag_seconds = max(self.largest_loop_lag_seconds, seconds)

    def count_xid(self, device_uuid: str, xid: int) -> None:
        """Beyond 1,024 pairs of device and XID new pairs are not counted."""
        key = (device_uuid, xid)
        if key in self.xids or len(self.xids) < MAX_XIDS:
            self.xids[key] += 1
