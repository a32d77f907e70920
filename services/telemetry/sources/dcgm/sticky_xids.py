"""XIDs out of dcgm-exporter's values that stay."""

from collections.abc import Mapping

from services.telemetry.domain.faults import Fault
from services.telemetry.domain.xid import xid_fault
from services.telemetry.sources.dcgm.page import DcgmPage


class StickyXids:
    """Reports an XID when the value that shows it changes, not as long as the value stays.

    The gauge has the last XID, so the same one again is not seen; where the exporter counts
    (`DCGM_EXP_XID_ERRORS_COUNT`), growth is reported, once per reading at most. What the first page
    has is not new, nor a device's first gauge.
    """

    def __init__(self) -> None:
        self._gauges: dict[str, int] = {}
        self._counts: Mapping[tuple[str, int], int] | None = None

    def faults(self, page: DcgmPage) -> list[Fault]:
        counts_before = page.xid_counts if self._counts is None else self._counts
        counted = {uuid for uuid, _ in (*page.xid_counts, *counts_before)}
        new = [key for key, number in page.xid_counts.items() if number > counts_before.get(key, 0)]
        new += [
            (uuid, xid)
            for uuid, xid in page.xid_gauges.items()
            if xid and uuid not in counted and self._gauges.get(uuid, xid) != xid
        ]
        self._gauges.update(page.xid_gauges)
        self._counts = dict(page.xid_counts)
        return [xid_fault(uuid, xid) for uuid, xid in new]
