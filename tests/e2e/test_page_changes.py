"""Every change on the web page, in a real browser: it is asked about, says why it was refused or
lost and keeps what was entered, and is done once by the next try.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, Route, expect

from shared.testing import run_apart, short_directory
from tests.support.processes.platform import PlatformProcess
from tests.support.simulated_fleet import agents
from tests.support.web.browser import PATIENCE_MS, Watched, axe_findings, chromium, missing
from tests.support.web.page_changes import CHANGES, NODE, SECOND, Change

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

Answer = Literal["refused", "cut off", "answer lost", "passed on"]
REFUSAL: Final = "only who owns it may do this"
PROBLEM: Final = {
    "type": "about:blank",
    "title": "Forbidden",
    "status": 403,
    "code": "forbidden",
    "detail": REFUSAL,
}
# What the page says, by what happens to what it sends.
SAID: Final[dict[Answer, str]] = {
    "refused": REFUSAL,
    "cut off": "cannot be reached",
    "answer lost": "cannot be reached",
}
# Of a removal whose answer was lost, the next finds nothing to remove.
EXPECTED: Final = (r"\b403\b", r"\b404\b", "ERR_FAILED", "ERR_INTERNET_DISCONNECTED")
# What changes nothing is asked by POST too.
QUESTIONS: Final = ("/tasks/validate", "/availability", "/estimate")
VALUES: Final = (
    "fields => fields.map(field => field.type === 'checkbox' ? field.checked : field.value)"
)


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with short_directory() as path:
        yield path


@pytest.fixture(scope="module")
def platform(directory: Path) -> Iterator[PlatformProcess]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    expect.set_options(timeout=PATIENCE_MS)
    running = PlatformProcess(
        directory / "data",
        arguments=("--simulate", "--node-id", NODE),
        environment={
            "GPUSTEWARD_LOCAL_TOKEN": "always",
            "GPUSTEWARD_SCHEDULER_NODE_LOST_SECONDS": "5",
            "GPUSTEWARD_SCHEDULER_ADMIT_NODES": NODE,
        },
    )
    try:
        run_apart(running.start())
        yield running
    finally:
        run_apart(running.stop())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(
    platform: PlatformProcess, directory: Path
) -> AsyncIterator[dict[str, AsyncExitStack]]:
    """A second node, which waits for its admission."""
    async with agents(platform, {SECOND: 1}, directory) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(platform: PlatformProcess) -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def signed_in(browser: Browser, platform: PlatformProcess) -> AsyncIterator[Watched]:
    """One window for all cases, each of which opens its place anew: a window of its own takes the
    browser longer than what is done in it.
    """
    context = await browser.new_context(locale="en-US")
    token = platform.directory.read_admin_token()
    await context.request.post(f"{platform.url}/api/v1/login", data={"token": token})
    watched = Watched(await context.new_page(), platform.url)
    watched.expect(*EXPECTED)
    yield watched
    await context.close()


@dataclass
class Gate:
    """Between the page and the gateway: what becomes of each change that is sent."""

    answer: Answer = "passed on"
    # The key of each change, by where it was sent.
    keys: dict[str, list[str | None]] = field(default_factory=dict)

    async def handle(self, route: Route) -> None:
        request = route.request
        if request.method == "GET" or request.url.endswith(QUESTIONS):
            await route.fallback()
            return
        keys = self.keys.setdefault(f"{request.method} {request.url}", [])
        keys.append(await request.header_value("Idempotency-Key"))
        if self.answer == "refused":
            await route.fulfill(status=403, json=PROBLEM)
        elif self.answer == "passed on":
            await route.continue_()
        else:
            if self.answer == "answer lost":
                await route.fetch()
            await route.abort()


def changes(page: Page) -> Locator:
    """What the page says that it has done."""
    return page.get_by_role("status", name="Changes")


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
async def test_a_change_is_asked_refused_lost_and_done_once(
    platform: PlatformProcess,
    nodes: dict[str, AsyncExitStack],
    signed_in: Watched,
    change: Change,
) -> None:
    change = change.filled_in(await change.prepare(platform, nodes))
    page, gate = signed_in.page, Gate()
    signed_in.troubles.clear()
    await page.unroute_all()
    await page.route("**/api/v1/**", gate.handle)
    await signed_in.open(change.place)

    button = await change.begin(page)
    if change.opens:
        assert await axe_findings(page) == []
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        button = await change.begin(page)
    assert gate.keys == {}, "it was sent before anybody confirmed it"

    fields = change.scope(page).locator("input, textarea" if change.steps else ".mantine-none")
    entered = await fields.evaluate_all(VALUES)
    troubles: list[Answer] = ["refused", "cut off"]
    for gate.answer in troubles + ([] if change.has_secret_answer else ["answer lost"]):
        await button.click()
        await expect(change.scope(page)).to_contain_text(SAID[gate.answer])
        assert await fields.evaluate_all(VALUES) == entered
        await expect(changes(page)).not_to_contain_text(change.says)
    gate.answer = "passed on"
    await button.click()

    where = page.get_by_role(change.says_in) if change.says_in else changes(page)  # type: ignore[arg-type]
    await expect(where).to_contain_text(change.says)
    refused, cut_off, *again = next(iter(gate.keys.values()))
    assert set(again) == {cut_off}, "what may have arrived is known again by its key"
    assert refused != cut_off
    assert signed_in.unexpected() == []


async def test_signing_in_and_out_is_refused_lost_and_done(
    platform: PlatformProcess, browser: Browser
) -> None:
    watched = Watched(await (await browser.new_context(locale="en-US")).new_page(), platform.url)
    watched.expect(*EXPECTED, r"\b401\b", "WebSocket connection")
    page, gate = watched.page, Gate()
    await page.route("**/api/v1/**", gate.handle)
    await page.goto(platform.url)
    field = page.get_by_label("Token", exact=True)
    heading = page.get_by_role("heading", level=1)

    async def sign_in() -> None:
        await field.fill(platform.directory.read_admin_token() or "")
        await page.get_by_role("button", name="Log in").click()

    async def sign_out() -> None:
        await page.get_by_role("button", name="Account").click()
        await page.get_by_role("menuitem", name="Sign out").click()

    for gate.answer in ("refused", "cut off"):
        await sign_in()
        await expect(page.get_by_role("alert")).to_contain_text(SAID[gate.answer])
        await expect(field).not_to_be_empty()
    gate.answer = "passed on"
    await sign_in()
    await expect(heading).to_have_text("Fleet")
    for gate.answer in ("refused", "cut off"):
        await sign_out()
        await expect(changes(page)).to_contain_text("You are still signed in")
        await expect(changes(page)).to_contain_text(SAID[gate.answer])
        await expect(heading).to_have_text("Fleet")
    gate.answer = "answer lost"
    await sign_out()
    await expect(field).to_be_visible()
    gate.answer = "passed on"
    await sign_in()
    await sign_out()
    await expect(field).to_be_visible()

    await page.context.close()
    assert watched.unexpected() == []
