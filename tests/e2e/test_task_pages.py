"""What a person who tunes does with tasks on the web page, in a real browser: each change is said,
a refused one and one without a connection say why and change nothing.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, Route, expect

from shared.testing import eventually, run_apart, short_directory
from tests.support.known_servers.running_server import SERVED_MODEL, running_server
from tests.support.processes.platform import PlatformProcess, quick_task
from tests.support.web.browser import (
    PATIENCE_MS,
    Watched,
    axe_findings,
    chromium,
    missing,
    tab_to,
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

OFFLINE: Final = ("ERR_INTERNET_DISCONNECTED", "WebSocket connection")
STALE: Final = ("ERR_FAILED",)
ONE_TASK: Final = re.compile(r"/api/v1/tasks/[0-9a-f-]{36}$")

Visit = Callable[[str], Awaitable[Watched]]


@pytest.fixture(scope="module")
def platform() -> Iterator[PlatformProcess]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    expect.set_options(timeout=PATIENCE_MS)
    with short_directory() as directory:
        running = PlatformProcess(directory / "data")
        try:
            run_apart(running.start())
            yield running
        finally:
            run_apart(running.stop())


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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def finished(platform: PlatformProcess) -> dict[str, Any]:
    task = quick_task("finished")
    task["optimization"] |= {"objective": "maximize_throughput", "trust": True}
    return await platform.until_finished(await platform.submit(task), within_seconds=240)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def heavier(platform: PlatformProcess, finished: dict[str, Any]) -> dict[str, Any]:
    """Another task of the same model, at another load."""
    task = quick_task("heavier")
    task["optimization"] |= {"objective": finished["objective"]}
    task["benchmark"] |= {"num_concurrency": [8]}
    return await platform.until_finished(await platform.submit(task), within_seconds=240)


async def start_slow_task(platform: PlatformProcess, name: str) -> str:
    """A task that is still running when a test has done with it."""
    task = quick_task(name)
    task["optimization"] |= {"max_parallel": 1}
    task["benchmark"] |= {"max_requests_per_iteration": 20000, "max_time_per_iteration": 2}
    return await platform.submit(task)


async def state_of(platform: PlatformProcess, task_id: str) -> str:
    return str((await platform.task(task_id))["state"])


def changes(page: Page) -> Locator:
    """What the page says that it has done."""
    return page.get_by_role("status", name="Changes")


async def drop(route: Route) -> None:
    await route.abort()


async def test_a_task_is_paused_and_that_is_taken_back(
    platform: PlatformProcess, visit: Visit
) -> None:
    task_id = await start_slow_task(platform, "paused-on-the-page")
    watched = await visit(f"/tasks/{task_id}")
    watched.expect(*OFFLINE)
    page = watched.page
    pause = page.get_by_role("button", name="Pause")
    await expect(pause).to_be_visible()

    await page.context.set_offline(True)
    await pause.click()
    await expect(page.get_by_role("alert").first).to_be_visible()
    await page.context.set_offline(False)
    assert await state_of(platform, task_id) in {"accepted", "running"}

    await page.get_by_role("button", name="Pause").click()
    await expect(changes(page)).to_contain_text("Paused paused-on-the-page")
    assert await state_of(platform, task_id) == "paused"

    await changes(page).get_by_role("button", name="Undo").first.click()
    await expect(changes(page)).to_contain_text("Resumed paused-on-the-page")
    assert await state_of(platform, task_id) == "running"
    await platform.request("POST", f"/api/v1/tasks/{task_id}/cancel", {"reason": "test"})


async def test_a_task_is_cancelled_after_what_it_ends_is_read(
    platform: PlatformProcess, visit: Visit
) -> None:
    task_id = await start_slow_task(platform, "cancelled-on-the-page")
    watched = await visit(f"/tasks/{task_id}")
    watched.expect(*OFFLINE)
    page = watched.page
    ask = page.get_by_role("button", name="Cancel", exact=True)

    await ask.click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("A cancelled task cannot be resumed")
    await dialog.get_by_role("button", name="Keep it").click()
    await expect(dialog).to_have_count(0)

    await ask.click()
    await page.context.set_offline(True)
    await dialog.get_by_role("button", name="Cancel the task").click()
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await page.context.set_offline(False)
    assert await state_of(platform, task_id) in {"accepted", "running"}

    await dialog.get_by_role("button", name="Cancel the task").click()
    await expect(changes(page)).to_contain_text("Cancelled cancelled-on-the-page")

    async def is_cancelled() -> bool:
        return await state_of(platform, task_id) == "cancelled"

    await eventually(is_cancelled, within_seconds=60)


async def test_a_refused_change_of_a_task_says_why(platform: PlatformProcess, visit: Visit) -> None:
    task_id = await start_slow_task(platform, "ended-elsewhere")
    watched = await visit(f"/tasks/{task_id}")
    watched.expect(*STALE, r"answered 409", r"\b409\b")
    page = watched.page
    pause = page.get_by_role("button", name="Pause")
    await expect(pause).to_be_visible()

    # The page does not learn that somebody else has ended it.
    await page.route(ONE_TASK, drop)
    await platform.request("POST", f"/api/v1/tasks/{task_id}/cancel", {"reason": "elsewhere"})
    await platform.until_finished(task_id, within_seconds=60)
    await pause.click()

    await expect(page.get_by_role("alert").filter(has_text="cancelled").first).to_be_visible()
    await expect(changes(page)).not_to_contain_text("Paused")


async def test_an_engine_is_chosen_and_its_task_submitted(
    platform: PlatformProcess, visit: Visit
) -> None:
    watched = await visit("/tasks/new")
    watched.expect(*OFFLINE)
    page = watched.page
    file = page.get_by_role("textbox", name="Task file")

    await page.get_by_role("radio", name="vLLM").check()
    await expect(changes(page)).to_contain_text("parameters of vLLM are loaded")
    await expect(file).to_have_value(re.compile("base_runtime: vllm\n"))
    await page.get_by_label("Add a parameter", exact=True).fill("block-size")
    await expect(
        page.get_by_text("an integer, default by platform. Tokens in one block")
    ).to_be_visible()
    await changes(page).get_by_role("button", name="Undo").first.click()
    await expect(file).to_have_value(re.compile("base_runtime: simulated\n"))

    await page.get_by_label("Name", exact=True).fill("from-the-form")
    await page.get_by_label("Add a parameter to the list").fill("slots")
    await page.get_by_label("Add a parameter to the list").press("Enter")
    await page.get_by_label("slots of row 1").fill("4")
    await page.get_by_role("button", name="Add a configuration").click()
    await page.get_by_label("slots of row 2").fill("8")
    plan = page.get_by_role("region", name="task plan")
    await expect(plan).to_contain_text("experiments8")

    submit = page.get_by_role("button", name="Submit")
    await expect(submit).to_be_enabled()
    await page.context.set_offline(True)
    await submit.click()
    await expect(page.get_by_role("alert").first).to_be_visible()
    await page.context.set_offline(False)
    await submit.click()

    await expect(changes(page)).to_contain_text("Submitted from-the-form")
    await expect(page.get_by_role("heading", name="from-the-form")).to_be_visible()
    task_id = page.url.split("/")[-1].split("?")[0]
    task = await platform.task(task_id)
    assert task["task"]["configurations"] == [{"slots": 4}, {"slots": 8}]
    await platform.request("POST", f"/api/v1/tasks/{task_id}/cancel", {"reason": "test"})


async def test_results_are_compared_used_and_read(finished: dict[str, Any], visit: Visit) -> None:
    task_place = f"/tasks/{finished['task_id']}"
    page = (await visit(f"{task_place}?tab=compare")).page
    picked = page.get_by_role("table").first
    await expect(picked).to_contain_text("differences are from it")
    assert await axe_findings(page) == []

    await page.get_by_role("button", name="Use this configuration").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("region", name="Task file")).to_contain_text("ttft-seconds")
    assert await axe_findings(page) == []
    await page.keyboard.press("Escape")

    await page.get_by_role("tab", name="Report").click()
    report = page.get_by_role("article", name="report")
    await expect(report.get_by_role("heading", name="Best configuration")).to_be_visible()
    await page.get_by_role("tab", name="Definition").click()
    await expect(page.get_by_role("region", name="task file")).to_contain_text("task_name")
    assert await axe_findings(page) == []


async def test_runs_of_a_configuration_unfold_below_it(
    finished: dict[str, Any], visit: Visit
) -> None:
    page = (await visit(f"/tasks/{finished['task_id']}")).page
    fold = page.get_by_role("button", name=re.compile("runs.* of configuration")).first

    await fold.click()

    await expect(page.get_by_text("first run").first).to_be_visible()
    assert "runs=" in page.url
    assert await axe_findings(page) == []


async def test_a_saved_view_is_opened_again(finished: dict[str, Any], visit: Visit) -> None:
    page = (await visit("/tasks?words=finished")).page

    await page.get_by_role("button", name="Views").click()
    await page.get_by_label("Name of the view").fill("mine")
    await page.get_by_role("button", name="Save view").click()
    await expect(changes(page)).to_contain_text("View mine is saved")
    await expect(page.get_by_label("Name of the view")).to_have_count(0)
    await page.get_by_label("Filter by name, description or namespace").fill("")
    await expect(page).not_to_have_url(re.compile("words="))
    await page.get_by_role("button", name="Views").click()
    await page.get_by_role("link", name="mine").click()

    await expect(page).to_have_url(re.compile("words=finished"))


async def test_a_view_that_the_browser_refuses_is_said(
    finished: dict[str, Any], visit: Visit
) -> None:
    page = (await visit("/tasks?words=finished")).page
    await page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('full') } }")

    await page.get_by_role("button", name="Views").click()
    await page.get_by_label("Name of the view").fill("refused")
    await page.get_by_role("button", name="Save view").click()

    await expect(changes(page)).to_contain_text("This browser does not store views")
    await expect(page.get_by_label("Name of the view")).to_have_value("refused")
    await expect(page.get_by_role("link", name="refused")).to_have_count(0)


async def test_a_log_is_searched_followed_and_saved(finished: dict[str, Any], visit: Visit) -> None:
    page = (await visit(f"/experiments/{finished['best_experiment_id']}?tab=log")).page
    log = page.get_by_role("log")
    await expect(log).to_be_visible()
    assert await axe_findings(page) == []

    async with page.expect_download() as saved:
        await page.get_by_role("button", name="Download").click()
    assert (await saved.value).suggested_filename.endswith(".log")
    await page.get_by_label("Find in the log").fill("no line has this")
    await expect(log).to_contain_text("No line has these words")


async def test_an_experiment_is_repeated_by_copied_commands(
    finished: dict[str, Any], visit: Visit
) -> None:
    page = (await visit(f"/experiments/{finished['best_experiment_id']}")).page

    await page.get_by_role("tab", name="Repeat it").click()

    await expect(page.get_by_text("gpusteward bench run")).to_be_visible()
    await expect(page.get_by_text("vllm bench serve --base-url")).to_be_visible()
    await expect(page.get_by_role("button", name="Copy the command of aiperf")).to_be_visible()
    assert await axe_findings(page) == []


async def test_a_running_server_is_tried_and_measured(
    platform: PlatformProcess, visit: Visit
) -> None:
    async with running_server() as (url, _):
        watched = await visit("/tasks")
        watched.expect("tasks/validate")  # for as long as a field is wrong
        page = watched.page
        await page.get_by_role("link", name="Measure a server").click()
        await page.get_by_label("Address of the server").fill(url)
        await page.get_by_role("button", name="Find its models").click()
        await expect(page.get_by_label("Model", exact=True)).to_have_value(SERVED_MODEL)
        await page.get_by_label("Message").fill("hello")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("log")).to_contain_text("tokens/s")
        assert await axe_findings(page) == []

        await page.get_by_label("Requests at once").fill("64")
        plan = page.get_by_role("region", name="task plan")
        await expect(plan.get_by_role("alert")).to_contain_text("expected at most 32")
        await page.get_by_label("Requests at once").fill("1, 2")
        await page.get_by_label("Minutes for each load").fill("0.1")
        await page.get_by_role("button", name="Measure", exact=True).click()
        await expect(changes(page)).to_contain_text("Submitted served-model-measured")
        await page.wait_for_url(re.compile(r"/tasks/[0-9a-f-]{36}"))
        task_id = page.url.split("/tasks/")[1].split("?")[0]
        view = await platform.until_finished(task_id)

    assert view["state"] == "completed"


async def test_a_server_that_is_away_says_so(platform: PlatformProcess, visit: Visit) -> None:
    watched = await visit("/tasks/measure")
    watched.expect("503", *STALE)
    page = watched.page
    await page.get_by_label("Address of the server").fill("http://127.0.0.1:9")

    await page.get_by_role("button", name="Find its models").click()
    await expect(page.get_by_role("alert")).to_contain_text("nothing answers")
    await page.route("**/served-models", drop)
    await page.get_by_role("button", name="Find its models").click()
    await expect(page.get_by_role("alert")).to_contain_text("gateway")


async def test_experiments_of_two_tasks_are_compared(
    platform: PlatformProcess, finished: dict[str, Any], heavier: dict[str, Any], visit: Visit
) -> None:
    ids = [task["best_experiment_id"] for task in (finished, heavier)]
    page = (await visit(f"/compare?experiments={ids[0]}")).page
    await expect(page.get_by_text("Nothing to compare yet")).to_be_visible()
    await page.get_by_label("Add an experiment").fill("heavier")
    await page.get_by_role("option", name=re.compile("heavier")).first.click()

    table = page.get_by_role("region", name="Comparison")
    await expect(page.get_by_role("note")).to_contain_text("More than the parameters differs: load")
    load = table.get_by_role("row").filter(has_text="differs").filter(has_text="at once")
    await expect(load).to_have_count(1)
    assert await axe_findings(page) == []
    _, printed, _ = await platform.command("compare", *ids, "--json")
    told = json.loads(printed)
    assert [column["task_name"] for column in told["experiments"]] == ["finished", "heavier"]
    assert told["cautions"] == ["load differs: results may differ by it"]
    # Not `check`, which looks at once: it is ticked once the address says so.
    await page.get_by_label("Only what differs, and results").click()
    await expect(table.get_by_text("GPU model")).to_have_count(0)
    await page.get_by_role("button", name="leave out heavier").click()
    await expect(page.get_by_text("Nothing to compare yet")).to_be_visible()


async def test_leaders_of_a_model_lead_to_a_comparison(
    platform: PlatformProcess, finished: dict[str, Any], heavier: dict[str, Any], visit: Visit
) -> None:
    page = (await visit("/tasks")).page
    await page.get_by_role("link", name="Leaderboard").click()
    board = page.get_by_role("region", name="Leaderboard")
    await expect(board.get_by_role("row")).to_have_count(3)
    await expect(page.get_by_role("note")).to_contain_text("here are 2 loads")
    await expect(board).to_contain_text("confirmed")
    assert await axe_findings(page) == []

    for task in (finished, heavier):
        box = board.get_by_label(re.compile(f"compare {task['task_name']} #"))
        await box.click()
        await expect(box).to_be_checked()
    await page.get_by_role("link", name="Compare the 2 chosen").click()
    await expect(page.get_by_role("region", name="Comparison")).to_be_visible()
    model = finished["task"]["model"]["id_or_path"]
    _, printed, _ = await platform.command("leaderboard", model, "--json")
    leaders = json.loads(printed)["leaders"]
    assert {leader["task_name"] for leader in leaders} == {"finished", "heavier"}
    _, table, _ = await platform.command("leaderboard", model)
    # A machine that is slow enough leaves both in doubt.
    assert ("confirmed" in table) == any(leader["is_confirmed"] for leader in leaders)
    _, models, _ = await platform.command("leaderboard")
    assert model in models


async def test_leaders_are_compared_without_a_mouse(
    finished: dict[str, Any], heavier: dict[str, Any], visit: Visit
) -> None:
    page = (await visit("/tasks")).page
    await expect(page.get_by_role("link", name="Leaderboard")).to_be_visible()

    await tab_to(page, "Leaderboard")
    await page.keyboard.press("Enter")
    board = page.get_by_role("region", name="Leaderboard")
    await expect(board.get_by_role("row")).to_have_count(3)
    for box in await board.get_by_role("checkbox").all():
        await tab_to(page, await box.get_attribute("aria-label") or "")
        await page.keyboard.press("Space")
    chosen = page.get_by_role("link", name="Compare the 2 chosen")
    await expect(chosen).to_be_visible()
    await tab_to(page, "Compare the 2 chosen")
    await page.keyboard.press("Enter")
    table = page.get_by_role("region", name="Comparison")
    await expect(table).to_be_visible()
    await expect(page.get_by_role("main")).to_be_focused()
    await tab_to(page, "leave out heavier")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Nothing to compare yet")).to_be_visible()
    await tab_to(page, "Add an experiment")
    await page.keyboard.type("heavier")
    await expect(page.get_by_role("option", name=re.compile("heavier")).first).to_be_visible()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(table).to_be_visible()
