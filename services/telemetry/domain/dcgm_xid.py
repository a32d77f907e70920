"""XIDs out of dcgm-exporter's values that stay."""

from collections.abc import Mapping

from services.telemetry.domain.dcgm_page import DcgmPage
from services.telemetry.domain.faults import Fault
from services.telemetry.domain.xid import xid_fault


class StickyXids:
    """Tells an XID when the value that stands for it changes, never because it still stands.

    The gauge shows the last XID, so the same one again goes unseen; where the exporter counts
    (`DCGM_EXP_XID_ERRORS_COUNT`), growth is told, though not more than once a reading. What is
    there at the first look is not new.
    """

    def __init__(self) -> None:
        self._gauges: dict[str, int] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._looked = False

    def faults(self, page: DcgmPage) -> list[Fault]:
        """What is new on this page."""
        counted = {uuid for uuid, _ in page.xid_counts} | {uuid for uuid, _ in self._counts}
        new = [key for key, number in page.xid_counts.items() if number > self._counts.get(key, 0)]
        new += [
            (uuid, xid)
            for uuid, xid in page.xid_gauges.items()
            if xid and uuid not in counted and self._is_other(uuid, xid)
        ]
        was_known: Mapping[str, int] = dict(self._gauges)
        first_look, self._looked = not self._looked, True
        self._gauges.update(page.xid_gauges)
        self._counts = dict(page.xid_counts)
        if first_look:
            return []
        return [xid_fault(uuid, xid) for uuid, xid in new if uuid in was_known or uuid in counted]

    def _is_other(self, uuid: str, xid: int) -> bool:
        return self._gauges.get(uuid) != xid
