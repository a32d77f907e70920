"""A dcgm-exporter, for hosts where it already runs and the driver is out of reach."""

from typing import Final

from schemas.telemetry.readings import Source
from services.telemetry.sources.dcgm.http import http_get
from services.telemetry.sources.dcgm.page import DcgmPage, parse_page
from services.telemetry.sources.dcgm.sticky_xids import StickyXids
from services.telemetry.sources.source import (
    Inventory,
    NodeReading,
    SourceAbsentError,
    SourceFailedError,
    no_power_limit,
    no_sm_clock,
)
from shared.prometheus_text import samples

OWN_PREFIX: Final = "gpusteward_"


class DcgmSource:
    """Scrapes the page for every reading; it is as fresh as the exporter's own interval.

    `xids` outlives the source, so that no XID is reported twice.
    """

    source: Final = Source.DCGM

    def __init__(self, url: str, xids: StickyXids, *, deadline_seconds: float) -> None:
        self._url = url
        self._xids = xids
        self._deadline_seconds = deadline_seconds

    async def open(self) -> None:
        """Open the source; absent where the exporter works and knows no GPU."""
        page = await self._scrape()
        if not page.devices:
            raise SourceAbsentError(f"{self._url} names no GPU")

    async def inventory(self) -> Inventory:
        """The GPUs that the page names, and their instances."""
        page = await self._scrape()
        return Inventory(devices=page.devices, driver_version=page.driver_version)

    async def read(self) -> NodeReading:
        """Read one page. No XID is reported twice."""
        page = await self._scrape()
        return NodeReading(gpus=page.readings, faults=tuple(self._xids.faults(page)))

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:  # noqa: ARG002  # as the port has it
        raise no_power_limit(self.source)

    async def set_sm_clock(self, uuid: str, mhz: int | None) -> None:  # noqa: ARG002  # as the port has it
        raise no_sm_clock(self.source)

    async def close(self) -> None:
        """No connection is open."""

    async def _scrape(self) -> DcgmPage:
        text = await http_get(self._url, deadline_seconds=self._deadline_seconds)
        if OWN_PREFIX in text:
            # It may be simulated, and would come out of here as real.
            raise SourceFailedError(f"{self._url} is an agent like this one, no dcgm-exporter")
        page = parse_page(samples(text))
        if not page.devices and text.strip() and "DCGM_" not in text:
            raise SourceFailedError(f"{self._url} has no values of DCGM")
        return page
