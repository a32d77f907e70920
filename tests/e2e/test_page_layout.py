"""The drawn page, on a desk and a phone, light and dark: nothing is cut, tiny or faint."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from shared.testing import short_directory
from tests.support.web.browser import chromium, missing
from tests.support.web.gallery import SIZES, Gallery
from tests.support.web.layout import layout_findings, watch_charts
from tests.support.web.screenshots import draw_empty, draw_large, draw_many

Scene = Callable[[Gallery, Path], Awaitable[None]]

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FAULTS: Final = """<main style="background: white; width: 390px">
  <p style="white-space: nowrap">%s</p>
  <p style="overflow: hidden; width: 90px; white-space: nowrap">this is cut off at its end</p>
  <p style="overflow: hidden; width: 90px; white-space: nowrap; text-overflow: ellipsis">said so</p>
  <button style="width: 9px; height: 9px; padding: 0"></button><button style="width: 9px;
    height: 9px; padding: 0"></button>
  <canvas width="200" height="90"></canvas>
</main>
<script>
  const context = document.querySelector("canvas").getContext("2d");
  context.fillStyle = "#333333"; context.fillRect(0, 0, 200, 45);
  context.fillStyle = "#555555"; context.fillText("faint on dark", 10, 20);
  context.fillStyle = "#ffffff"; context.fillText("bright on dark", 10, 40);
  context.fillStyle = "#dddddd"; context.fillText("faint on white", 10, 70);
</script>"""
DESK_AND_PHONE: Final = {size: SIZES[size] for size in ("desktop", "phone")}


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[Browser]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    async with chromium() as running:
        yield running


async def test_layout_faults_are_found_each_by_its_name(browser: Browser) -> None:
    page = await browser.new_page(viewport={"width": 390, "height": 844})
    await watch_charts(page)
    await page.goto("about:blank")
    await page.set_content(FAULTS % ("far to the right " * 9))

    findings = "\n".join(await layout_findings(page))

    assert "the page is" in findings
    assert 'outside the window: p "far to the right' in findings
    assert 'cut off: p "this is cut off' in findings
    assert "said so" not in findings
    assert "target-size" in findings
    assert "faint on dark" in findings
    assert "faint on white" in findings
    assert "bright on dark" not in findings


@pytest.mark.parametrize(
    "scene",
    [draw_large, draw_many, draw_empty],
    ids=["512-gpus", "128-gpus-5000-experiments", "no-gpu"],
)
async def test_every_page_is_whole_at_its_size(browser: Browser, scene: Scene) -> None:
    gallery = Gallery(browser, DESK_AND_PHONE)

    with short_directory() as directory:
        await scene(gallery, directory)

    assert not gallery.findings, "\n".join(gallery.findings)
