"""Draws places of the web page in every size and scheme."""

import asyncio
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, Page
from playwright.async_api import TimeoutError as NotInTime

from shared.clock import utcnow
from tests.support.web.browser import PATIENCE_MS
from tests.support.web.layout import (
    FORGET_TEXTS,
    contrast_findings,
    layout_findings,
    settle,
    watch_charts,
)

SIZES: Final = {"desktop": (1440, 900), "tablet": (1024, 768), "phone": (390, 844)}
SCHEMES: Final = ("light", "dark")
TALLEST_PX: Final = 4000
MAX_MS: Final = 300_000  # a tall page of many charts, drawn without a GPU beside others
# All that a page would show if its window were tall enough.
NEEDED_PX: Final = """() => {
  const main = document.querySelector("main");
  return innerHeight - main.clientHeight + main.scrollHeight;
}"""
IS_WHOLE: Final = """() =>
  !document.querySelector("[aria-label^=loading]") &&
  !document.body.innerText.includes("not responding")
"""


def tell(text: str) -> None:
    """At once: into a file a line would come with the last of them."""
    sys.stdout.write(f"{utcnow():%H:%M:%S} {text}\n")
    sys.stdout.flush()


async def until_whole(page: Page) -> None:
    """As far as a busy machine gets: a picture that lacks something shows what people see then."""
    try:
        await page.wait_for_function(IS_WHOLE, timeout=PATIENCE_MS)
    except NotInTime:
        tell(f"not whole: {page.url}")


@dataclass
class Gallery:
    """Draws places in every size and scheme, and keeps what their layouts lack."""

    browser: Browser
    sizes: Mapping[str, tuple[int, int]]
    words: Collection[str] = ()
    folder: Path | None = None
    pictures: list[Path] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def choose(self, places: Mapping[str, str]) -> dict[str, str]:
        return {
            k: v for k, v in places.items() if not self.words or any(w in k for w in self.words)
        }

    async def draw(self, url: str, places: Mapping[str, str]) -> None:
        """The sizes beside each other: most of the time passes until charts are drawn."""
        await asyncio.gather(*(self._draw_size(size, url, places) for size in self.sizes))

    async def _draw_size(self, size: str, url: str, places: Mapping[str, str]) -> None:
        width, height = self.sizes[size]
        context = await self.browser.new_context(
            viewport={"width": width, "height": height}, locale="en-US", reduced_motion="reduce"
        )
        page = await context.new_page()
        page.set_default_timeout(MAX_MS)
        await watch_charts(page)
        for number, (name, place) in enumerate(places.items(), 1):
            await page.set_viewport_size({"width": width, "height": height})
            await page.goto(url + place)
            await page.locator("main").locator("h1").wait_for()
            await until_whole(page)
            needed = min(TALLEST_PX, await page.evaluate(NEEDED_PX))
            await page.set_viewport_size({"width": width, "height": max(height, needed)})
            for scheme in SCHEMES:
                await page.evaluate(FORGET_TEXTS)
                await page.emulate_media(color_scheme=scheme)
                await until_whole(page)
                await settle(page)
                drawing = f"{name}-{size}-{scheme}"
                # Colours move nothing: what is where is looked at once.
                find = layout_findings if scheme == SCHEMES[0] else contrast_findings
                self.findings += [f"{drawing}: {each}" for each in await find(page)]
                if self.folder is not None:
                    path = self.folder / f"{drawing}.png"
                    await page.screenshot(path=path, timeout=MAX_MS)
                    self.pictures.append(path)
            tell(f"{name} {size}: {number} of {len(places)}")
        await context.close()
