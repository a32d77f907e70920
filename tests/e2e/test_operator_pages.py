"""What an operator does with nodes on the web page, in a real browser: each change is confirmed and
said, a refused one and one without a connection say why and change nothing.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from shared.testing import eventually, run_apart, short_directory
from tests.support.processes.platform import PlatformProcess
from tests.support.simulated_fleet import agents
from tests.support.web.browser import PATIENCE_MS, Watched, axe_findings, chromium, missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

NODE: Final = "gpu-01"
SECOND: Final = "gpu-02"
ENVIRONMENT: Final = {
    "GPUSTEWARD_SCHEDULER_NODE_LOST_SECONDS": "5",
    "GPUSTEWARD_SCHEDULER_ADMIT_NODES": NODE,
}
OFFLINE: Final = ("ERR_INTERNET_DISCONNECTED", "WebSocket connection")

Visit = Callable[[str], Awaitable[Watched]]


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
        directory / "data", arguments=("--simulate", "--node-id", NODE), environment=ENVIRONMENT
    )
    try:
        run_apart(running.start())
        yield running
    finally:
        run_apart(running.stop())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def second(
    platform: PlatformProcess, directory: Path
) -> AsyncIterator[dict[str, AsyncExitStack]]:
    """A node that is new here, and waits for its admission."""
    async with agents(platform, {SECOND: 2}, directory) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(platform: PlatformProcess) -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def visit(platform: PlatformProcess, browser: Browser) -> AsyncIterator[Visit]:
    visited: list[Watched] = []

    async def open_place(path: str) -> Watched:
        context = await browser.new_context(locale="en-US")
        watched = Watched(await context.new_page(), platform.url)
        visited.append(watched)
        await watched.open(path)
        return watched

    yield open_place
    for each in visited:
        await each.page.context.close()
    assert [trouble for each in visited for trouble in each.unexpected()] == []


async def get(platform: PlatformProcess, path: str) -> Any:
    status, body = await platform.request("GET", f"/api/v1{path}")
    assert status == 200, body
    return body


def changes(page: Page) -> Locator:
    """What the page says that it has done."""
    return page.get_by_role("status", name="Changes")


async def send_without_connection(page: Page, button: Locator) -> None:
    """The dialog says that it failed, and stays."""
    await page.context.set_offline(True)
    await button.click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    await page.context.set_offline(False)


async def test_a_new_node_is_admitted_on_its_page(
    platform: PlatformProcess, second: dict[str, AsyncExitStack], visit: Visit
) -> None:
    watched = await visit(f"/nodes/{SECOND}")
    watched.expect(*OFFLINE)
    page = watched.page
    await expect(page.get_by_text("waiting for admission").first).to_be_visible()
    await page.get_by_role("button", name="Admit", exact=True).click()
    admit = page.get_by_role("dialog").get_by_role("button", name="Admit")

    await send_without_connection(page, admit)
    assert not (await get(platform, f"/nodes/{SECOND}"))["admitted"]
    await admit.click()

    await expect(changes(page)).to_contain_text(f"Admitted: node {SECOND}")
    await expect(page.get_by_text("in service").first).to_be_visible()
    assert (await get(platform, f"/nodes/{SECOND}"))["admitted"]


async def test_a_node_is_labelled_and_back_on_the_page(
    platform: PlatformProcess, visit: Visit
) -> None:
    watched = await visit(f"/nodes/{NODE}")
    watched.expect(*OFFLINE, r"\b400\b")
    page = watched.page
    await page.get_by_role("button", name="Labels", exact=True).click()
    text = page.get_by_role("dialog").get_by_role("textbox")
    send = page.get_by_role("button", name="Set labels")

    await text.fill("zone")
    await expect(page.get_by_text("expected key=value, got zone")).to_be_visible()
    await expect(send).to_be_disabled()
    await text.fill("zone=a b*c")
    await send_without_connection(page, send)
    await send.click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text(
        "expected 1 to 128 letters"
    )
    await text.fill("zone=a")
    await send.click()

    await expect(changes(page)).to_contain_text(f"Labels changed: node {NODE}")
    await expect(page.get_by_text("zone=a", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Undo").click()
    await expect(page.get_by_text("zone=a", exact=True)).to_have_count(0)
    assert (await get(platform, f"/nodes/{NODE}"))["labels"] == {}


async def test_a_node_is_cordoned_and_drained_on_its_page(
    platform: PlatformProcess, visit: Visit
) -> None:
    body = {"request": {"gpus": 1, "node_ids": [NODE]}, "holder": "long-sweep"}
    status, made = await platform.request("POST", "/api/v1/reservations", body)
    assert status == 201, made
    watched = await visit(f"/nodes/{NODE}?tab=events")
    watched.expect(*OFFLINE)
    page = watched.page
    dialog = page.get_by_role("dialog")

    await page.get_by_role("button", name="Cordon", exact=True).click()
    await dialog.get_by_label("Reason").fill("new fan")
    cordon = dialog.get_by_role("button", name="Cordon", exact=True)
    await send_without_connection(page, cordon)
    await cordon.click()
    await expect(changes(page)).to_contain_text(f"Cordoned: node {NODE}")
    events = page.get_by_role("region", name="Events")
    await expect(events).to_contain_text("GPU 1 was cordoned: new fan")
    await page.get_by_role("button", name="Undo").click()
    await expect(changes(page)).to_contain_text(f"Back in service: node {NODE}")

    await page.get_by_role("button", name="Drain", exact=True).click()
    await expect(dialog).to_contain_text("This ends 1 reservation of 1 GPU")
    await expect(dialog).to_contain_text("long-sweep")
    drain = dialog.get_by_role("button", name=f"Drain {NODE}")
    await send_without_connection(page, drain)
    await drain.click()
    await expect(changes(page)).to_contain_text(f"Draining: node {NODE}")

    async def is_ended() -> bool:
        reservation = await get(platform, f"/reservations/{made['reservation_id']}")
        return reservation["ended_at"] is not None

    await eventually(is_ended, within_seconds=30, what="the end of what was drained")
    await page.get_by_role("button", name="Uncordon", exact=True).click()
    await dialog.get_by_role("button", name="Uncordon").click()
    await expect(page.get_by_text("in service").first).to_be_visible()


async def test_a_silent_node_is_removed_on_its_page(
    platform: PlatformProcess, second: dict[str, AsyncExitStack], visit: Visit
) -> None:
    watched = await visit(f"/nodes/{SECOND}")
    watched.expect(*OFFLINE, r"\b409\b", r"\b404\b")
    page = watched.page
    await page.get_by_role("button", name="Remove", exact=True).click()
    dialog = page.get_by_role("dialog")
    remove = dialog.get_by_role("button", name=f"Remove {SECOND}")

    await remove.click()
    await expect(dialog.get_by_role("alert")).to_contain_text("still reports")
    await second[SECOND].aclose()
    note = page.get_by_role("region", name="The node is silent")
    await expect(note).to_contain_text("journalctl -u gpusteward-agent")
    await send_without_connection(page, remove)
    assert (await get(platform, f"/nodes/{SECOND}"))["node_id"] == SECOND

    await remove.click()
    await expect(changes(page)).to_contain_text(f"Removed: node {SECOND}")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Fleet")


async def test_admin_lists_nodes_first_and_hides_the_bus(
    platform: PlatformProcess, visit: Visit, browser: Browser
) -> None:
    page = (await visit("/admin")).page
    row = page.get_by_role("region", name="Nodes").get_by_role("row").nth(1)
    await expect(row).to_contain_text(NODE)
    await expect(row).to_contain_text(re.compile("in service|cordoned"))
    await row.get_by_role("link", name=NODE).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(f"Node {NODE}")
    await expect(page.get_by_role("region", name="Consumers")).to_have_count(0)


async def test_audit_tells_who_did_what_in_sentences(
    platform: PlatformProcess, visit: Visit
) -> None:
    body = {"request": {"gpus": 1, "node_ids": [NODE]}, "holder": "seen-in-audit"}
    status, made = await platform.request("POST", "/api/v1/reservations", body)
    assert status == 201, made
    await platform.request("DELETE", f"/api/v1/reservations/{made['reservation_id']}")
    page = (await visit("/admin?tab=audit")).page
    log = page.get_by_role("region", name="Audit log")
    await expect(log).to_contain_text("released reservation seen-in-audit")

    await page.get_by_role("combobox", name="Action").click()
    await page.get_by_role("option", name="Reserve GPUs").click()
    await page.get_by_label("About").fill("seen-in-audit")
    await expect(log.get_by_role("row")).to_have_count(2)
    reserved = log.get_by_text(re.compile("(reserved|asked for) 1 GPU for seen-in-audit"))
    await reserved.click()
    await expect(log.get_by_role("link", name="Open the reservation")).to_be_visible()
    await page.goto(f"{platform.url}/admin?tab=decisions")
    decisions = page.get_by_role("region", name="Decisions")
    await expect(decisions).to_contain_text(f"seen-in-audit gets {NODE}: ")


async def test_a_command_of_the_palette_asks_before_it_acts(
    platform: PlatformProcess, visit: Visit
) -> None:
    page = (await visit("/queue")).page
    await page.get_by_role("button", name="Search pages").click()
    await page.get_by_label("Search", exact=True).fill(f"cordon {NODE}")
    # What is found after one has typed is not chosen by itself.
    await page.locator("[data-action]").filter(has_text=f"Cordon {NODE}").first.click()

    await page.wait_for_url(f"**/nodes/{NODE}?do=cordon")
    dialog = page.get_by_role("dialog", name=f"Cordon: node {NODE}")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(dialog).to_have_count(0)
    assert (await get(platform, f"/nodes/{NODE}"))["cordon"] is None
    await page.get_by_role("button", name="Search pages").click()
    await expect(page.get_by_text("Recent: Command")).to_be_visible()


async def test_palette_comes_once_the_connection_is_back(
    platform: PlatformProcess, browser: Browser
) -> None:
    page = await (await browser.new_context(locale="en-US")).new_page()
    cut_off = re.compile(r"/assets/palette-.*\.css$|/healthz$")
    await page.route(cut_off, lambda route: route.abort())
    async with page.expect_event("requestfailed", lambda request: "/healthz" in request.url):
        await page.goto(f"{platform.url}/queue")
    heading = page.get_by_role("heading", level=1)
    await expect(heading).to_have_text("Queue")

    await page.unroute(cut_off)
    await page.get_by_role("button", name="Search pages").click()
    await expect(page.get_by_label("Search", exact=True)).to_be_focused()
    styles = await page.evaluate(
        "() => [...document.styleSheets].filter((s) => /palette-.*css/.test(s.href)).length"
    )
    assert styles == 1
    await expect(heading).to_have_text("Queue")
    await page.context.close()


async def test_account_menu_says_who_one_is(platform: PlatformProcess, visit: Visit) -> None:
    page = (await visit("/queue")).page
    await page.get_by_role("button", name="Account").click()
    menu = page.get_by_role("menu")
    await expect(menu).to_contain_text("admin, all namespaces")

    await menu.get_by_role("menuitem", name="Dark").click()
    await page.wait_for_selector(":root[data-mantine-color-scheme=dark]")
    await page.get_by_role("button", name="Account").click()
    await menu.get_by_role("menuitem", name="Account and tokens").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Account")


@pytest.mark.parametrize(
    "tab", ["gpus", "topology", "processes", "reservations", "events", "agent"]
)
async def test_axe_finds_nothing_serious_on_a_node(
    platform: PlatformProcess, visit: Visit, tab: str
) -> None:
    page = (await visit(f"/nodes/{NODE}?tab={tab}")).page
    await expect(page.get_by_role("tab", selected=True)).to_be_visible()
    await expect(page.locator("[aria-label^=loading]")).to_have_count(0)

    found = [f"{width}: {each}" for width in (1440, 390) for each in await findings_at(page, width)]

    assert not found, "\n".join(found)


async def findings_at(page: Page, width: int) -> list[str]:
    """What axe finds at a width, and whether the page is wider than its window."""
    await page.set_viewport_size({"width": width, "height": 900})
    wide = await page.evaluate(
        "() => { const m = document.getElementById('main'); return m.scrollWidth - m.clientWidth }"
    )
    return [*await axe_findings(page), *([f"{wide} px too wide"] if wide > 0 else [])]
