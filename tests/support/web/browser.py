"""The built page in Debian's Chromium, driven by Playwright: what its user sees, and what must not
be: an error in its console, a request that failed, one that left the platform.
"""

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Request,
    Response,
    async_playwright,
)

from tests.support.paths import ROOT

WEB: Final = ROOT / "services" / "gateway" / "web"
AXE: Final = WEB / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM: Final = "chromium"
# What is shown is waited for; how long a busy machine takes is not what is judged.
PATIENCE_MS: Final = 60_000
FIRST_BAD_STATUS: Final = 400
NETWORK_CHANGED: Final = "ERR_NETWORK_CHANGED"
OPENED_AT_MOST: Final = 5
SERIOUS: Final = ("serious", "critical")


def missing() -> str | None:
    """What tests of the page would need; None where all is there."""
    if shutil.which(CHROMIUM) is None:
        return "needs Chromium (Debian: chromium)"
    if not (WEB / "dist" / "index.html").is_file() or not AXE.is_file():
        return "needs the built page: make web"
    return None


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which(CHROMIUM),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Watched:
    """A page, and what went wrong in it."""

    page: Page
    origin: str
    troubles: list[str] = field(default_factory=list)
    # Chromium drops its connections when containers of other tests add and remove interfaces.
    _expected: list[str] = field(default_factory=lambda: [NETWORK_CHANGED])

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.troubles.append(f"uncaught: {error}"))
        self.page.on("request", self._on_request)
        self.page.on("requestfailed", self._on_failed)
        self.page.on("response", self._on_response)

    async def open(self, path: str) -> None:
        """Once more where the network of this machine changed before all of it was loaded."""
        for _ in range(OPENED_AT_MOST):
            before = len(self.troubles)
            try:
                await self.page.goto(f"{self.origin}{path}")
            except Error as error:
                if NETWORK_CHANGED not in error.message:
                    raise
            if not any(NETWORK_CHANGED in each for each in self.troubles[before:]):
                break

    def expect(self, *patterns: str) -> None:
        """Troubles that the test makes itself."""
        self._expected.extend(patterns)

    def unexpected(self) -> list[str]:
        return [
            each
            for each in self.troubles
            if not any(re.search(pattern, each) for pattern in self._expected)
        ]

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.troubles.append(f"console: {message.text} ({message.location.get('url')})")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:", "blob:")):
            self.troubles.append(f"left the platform: {request.url}")

    def _on_failed(self, request: Request) -> None:
        # What is no longer wanted, because the page was left, is aborted.
        if request.failure != "net::ERR_ABORTED":
            self.troubles.append(f"failed: {request.url}: {request.failure}")

    def _on_response(self, response: Response) -> None:
        if response.status >= FIRST_BAD_STATUS:
            self.troubles.append(f"answered {response.status}: {response.url}")


@cache
def _axe() -> str:
    return AXE.read_text()


# A transition that runs has colours of its own: those that end are waited for.
TRANSITIONS_END: Final = """
() => Promise.allSettled(
    document.getAnimations()
        .filter(each => each.effect.getComputedTiming().endTime !== Infinity)
        .map(each => each.finished)
).then(() => true)
"""


async def axe_findings(page: Page, rules: list[str] | None = None) -> list[str]:
    """What axe-core finds serious, each with the first element that it is about; of all its rules,
    or of these alone.
    """
    if await page.evaluate("() => window.axe === undefined"):
        await page.evaluate(_axe())
    await page.evaluate(TRANSITIONS_END)
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found: dict[str, Any] = await page.evaluate("options => axe.run(options)", options)
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary'][:300]}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
    ]


# A field hidden beside its label shows the focus on that.
FOCUSED: Final = """() => {
  const focused = document.activeElement;
  if (!focused || focused === document.body) return null;
  const name = focused.getAttribute("aria-label") || focused.labels?.[0]?.innerText;
  // Of a field in a box with what is chosen beside it, the box shows it.
  const box = focused.closest(".mantine-Input-wrapper, [class*=PillsInput-root]");
  const shown = focused.matches("[type=radio]") ? [focused.nextElementSibling]
    : [focused, ...(focused.matches("input") && box ? box.children : [])];
  const isOutlined = ({ outlineStyle, outlineWidth }) =>
    outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
  return {
    name: name || focused.innerText || "",
    isSeen: shown.some((each) => isOutlined(getComputedStyle(each))),
  };
}"""


async def tab_to(page: Page, name: str, key: str = "Tab", most: int = 80) -> None:
    """By the keyboard to what has this name, or one that begins so; what is passed shows its focus.

    Fails where the focus is lost on the way, or what is sought does not come.
    """
    passed: list[str] = []
    for _ in range(most):
        await page.keyboard.press(key)
        focused = await page.evaluate(FOCUSED)
        assert focused is not None, f"the focus was lost behind {passed[-3:]}"
        assert focused["isSeen"], f"no focus is seen on {focused['name']!r}"
        if focused["name"].startswith(name):
            return
        passed.append(focused["name"])
    raise AssertionError(f"{name} is not reached by {key}: {passed}")


def chart(page: Page, title: str) -> Locator:
    """A chart by its title, or by how it begins."""
    return page.locator(f'figure[data-chart^="{title}"]')


async def chart_values(page: Page, title: str) -> list[dict[str, str]]:
    """The table of a chart, with whole numbers: by column, as texts."""
    figure = chart(page, title)
    await figure.get_by_role("button", name="Tools of").click()
    await page.get_by_role("menuitem", name="Show as a table").click()
    rows = figure.get_by_role("region").locator("tr")
    await rows.nth(1).wait_for()
    cells: list[list[str]] = await rows.evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.title || cell.innerText))"
    )
    header, *values = cells
    return [dict(zip(header, row, strict=True)) for row in values]


async def is_drawn(page: Page, title: str) -> bool:
    """Whether a chart's canvas has more than its background."""
    canvas = chart(page, title).locator("canvas").first
    await canvas.wait_for()
    colors: int = await canvas.evaluate(
        "canvas => new Set(new Uint32Array(canvas.getContext('2d')"
        ".getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"
    )
    return colors > 2
