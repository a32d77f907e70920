"""What people do with the web page, in a real browser, on a whole platform with a made-up fleet."""

import json
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Literal

import pytest
import pytest_asyncio
import yaml
from playwright.async_api import Browser, Page, expect

from shared.testing import eventually, run_apart, short_directory
from tests.support.processes.platform import PlatformProcess, marked_processes, quick_task
from tests.support.web.browser import (
    PATIENCE_MS,
    Watched,
    axe_findings,
    chart,
    chart_values,
    chromium,
    is_drawn,
    missing,
    tab_to,
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

Visit = Callable[[str], Awaitable[Watched]]

# Every text that a place showed, also one that was gone before anybody asked.
REMEMBER = """selector => {
    window.shown = [];
    const look = () => document.querySelectorAll(selector).forEach(each => {
        if (window.shown.at(-1) !== each.innerText) window.shown.push(each.innerText);
    });
    new MutationObserver(look).observe(
        document.body, {subtree: true, childList: true, characterData: true});
    look();
}"""
# Of axe's rules colours alone differ by the scheme.
SCHEMES: tuple[tuple[Literal["light", "dark"], list[str] | None], ...] = (
    ("light", None),
    ("dark", ["color-contrast"]),
)
LONG_MS = 180_000  # until experiments have run
# As a browser is that reaches the platform over plain HTTP from another machine.
WITHOUT_HTTPS = """
delete Crypto.prototype.randomUUID;
Object.defineProperty(Navigator.prototype, "clipboard", {value: undefined});
"""
GATEWAY_IS_AWAY = (r"ERR_CONNECTION", r"ERR_EMPTY_RESPONSE", r"WebSocket", r"\b50[234]\b")


@pytest.fixture(scope="module")
def platform() -> Iterator[PlatformProcess]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    expect.set_options(timeout=PATIENCE_MS)
    with short_directory() as directory:
        running = PlatformProcess(
            directory / "data", environment={"GPUSTEWARD_LOCAL_TOKEN": "always"}
        )
        try:
            run_apart(running.start())
            installation = str(running.directory.installation_id())
            yield running
        finally:
            run_apart(running.stop())
        assert marked_processes(installation) == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(platform: PlatformProcess) -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def visit(platform: PlatformProcess, browser: Browser) -> AsyncIterator[Visit]:
    """Opens a place, as an admin, or nothing yet. Fails for what no visitor should see."""
    token = platform.directory.read_admin_token()
    visited: list[Watched] = []

    async def open_place(path: str) -> Watched:
        context = await browser.new_context(locale="en-US")
        await context.request.post(f"{platform.url}/api/v1/login", data={"token": token})
        watched = Watched(await context.new_page(), platform.url)
        visited.append(watched)
        if path:
            await watched.open(path)
        return watched

    yield open_place
    for each in visited:
        await each.page.context.close()
    assert [trouble for each in visited for trouble in each.unexpected()] == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def finished_task(platform: PlatformProcess) -> dict[str, Any]:
    task = quick_task("tuned")
    task["parameters"] = {"ttft-seconds": [0.005, 0.05], "tpot-seconds": [0.005, 0.02]}
    task["optimization"] |= {"objective": "maximize_throughput", "constraints": "error_rate<50%"}
    task["slo"] = {"tpot": {"threshold": 0.012, "weight": 0}}
    task["benchmark"] |= {"num_concurrency": [1, 4], "max_time_per_iteration": 0.04}
    task["benchmark"] |= {"max_requests_per_iteration": 400}  # the time ends a level
    return await platform.until_finished(await platform.submit(task), within_seconds=240)


async def get(platform: PlatformProcess, path: str) -> Any:
    status, body = await platform.request("GET", f"/api/v1{path}")
    assert status == 200, body
    return body


async def refusal(platform: PlatformProcess, task: object) -> dict[str, Any]:
    status, problem = await platform.request("POST", "/api/v1/tasks/validate", task)
    assert status == 400, problem
    return dict(problem)


async def reserve(platform: PlatformProcess, gpus: int, holder: str) -> str:
    body = {"request": {"gpus": gpus}, "holder": holder}
    status, made = await platform.request("POST", "/api/v1/reservations", body)
    assert status == 201, made
    return str(made["reservation_id"])


async def release(platform: PlatformProcess, reservation_id: str) -> None:
    await platform.request("DELETE", f"/api/v1/reservations/{reservation_id}")


async def test_task_form_runs_to_its_results(platform: PlatformProcess, visit: Visit) -> None:
    held = await reserve(platform, 2, "somebody-else")
    watched = await visit("/tasks/new")
    watched.expect(r"\b400\b.*/tasks/validate")
    page = watched.page

    await page.get_by_label("Name", exact=True).fill("from-the-form")
    await page.get_by_label("ttft-seconds", exact=True).fill("0.005, 0.01")
    await page.get_by_label("tpot-seconds", exact=True).fill("0.02")
    await page.get_by_label("Max parallel experiments").fill("1")
    await page.get_by_label("Max time per level (min)").fill("0.05")
    constraints = page.get_by_label("Constraints on the best experiment")
    await constraints.fill("error_rate<many")
    file = await page.get_by_label("Task file").input_value()
    refused = await refusal(platform, yaml.safe_load(file))
    await expect(page.get_by_text(refused["detail"]).first).to_be_visible()
    await constraints.fill("error_rate<50%")
    await page.get_by_role("button", name="Submit").click()
    await page.wait_for_url("**/tasks/*-*")
    await page.evaluate(REMEMBER, '[aria-label="Experiments"] tbody tr:first-child td:nth-child(4)')
    experiments = page.get_by_role("region", name="Experiments")
    await expect(experiments).to_contain_text("waiting")
    await page.get_by_role("link", name="Queue").click()
    waiting = page.get_by_role("table", name="Waiting requests").get_by_role("row")
    await expect(waiting).to_have_count(2)
    await waiting.nth(1).get_by_role("button").click()
    await expect(page.get_by_text("Expected start:")).to_be_visible()
    await page.get_by_role("link", name="Tasks").click()
    await page.get_by_role("link", name="from-the-form").click()
    await release(platform, held)

    await expect(experiments.get_by_text("succeeded")).to_have_count(2, timeout=LONG_MS)
    await expect(page.locator("main header")).to_contain_text("completed")
    shown = [text.split("\n")[0].split(",")[0] for text in await page.evaluate("window.shown")]
    in_order = list(dict.fromkeys(shown))
    assert [word for word in in_order if word in {"waiting", "running", "succeeded"}] == [
        *("waiting", "running", "succeeded")
    ]


async def test_form_writes_goals_budget_probe_and_preset(
    platform: PlatformProcess, visit: Visit
) -> None:
    page = (await visit("/tasks/new")).page
    submit = page.get_by_role("button", name="Submit")

    await page.get_by_label("Save parameters as a preset").fill("from-the-form")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text("Saved: preset from-the-form")).to_be_visible()
    await page.get_by_role("button", name="remove ttft-seconds").click()
    await page.get_by_label("Presets", exact=True).select_option("from-the-form")
    await page.get_by_label("Strategy").select_option("bayesian")
    # All four experiments to their time limit would be 0.667.
    await page.get_by_label("Budget (GPU-hours)").fill("0.5")
    await page.get_by_label("Warm start from past tasks").select_option("true")
    await page.get_by_label("Compare answers with the baseline").select_option("on")
    warm = yaml.safe_load(await page.get_by_label("Task file").input_value())
    await expect(submit).to_be_enabled()
    await page.get_by_label("Further objectives").select_option("minimize_ttft")
    file = yaml.safe_load(await page.get_by_label("Task file").input_value())

    await expect(submit).to_be_enabled()
    await expect(page.get_by_label("task plan")).to_contain_text("0.5\u202fGPU-h")
    saved = await get(platform, "/presets/from-the-form")
    assert saved["parameters"] == {"ttft-seconds": [0.005, 0.01], "tpot-seconds": [0.001, 0.002]}
    assert file["presets"] == ["from-the-form"]
    assert list(file["parameters"]) == ["tpot-seconds"]
    assert warm["optimization"]["objective"] == "maximize_throughput"
    assert (warm["optimization"]["warm_start"], warm["optimization"]["max_gpu_hours"]) == (
        True,
        0.5,
    )
    assert file["optimization"]["objectives"] == ["maximize_throughput", "minimize_ttft"]
    assert file["benchmark"]["quality"] == {"prompts": 16}


async def test_form_describes_a_load_search(platform: PlatformProcess, visit: Visit) -> None:
    page = (await visit("/tasks/new")).page

    await page.get_by_label("Name", exact=True).fill("greatest-load")
    await page.get_by_label("ttft-seconds", exact=True).fill("0.005")
    await page.get_by_label("tpot-seconds", exact=True).fill("0.001")
    await page.get_by_label("Objective", exact=True).select_option("maximize_load")
    await page.get_by_label("Max load").fill("4")
    await page.get_by_label("Max levels per experiment").fill("3")
    await page.get_by_label("Max time per level (min)").fill("0.01")
    await page.get_by_label("Confirm the winner with repeated runs").select_option("false")
    file = yaml.safe_load(await page.get_by_label("Task file").input_value())
    await page.get_by_role("button", name="Submit").click()
    await page.wait_for_url("**/tasks/*-*")
    experiments = page.get_by_role("region", name="Experiments")
    await expect(experiments.get_by_text("succeeded")).to_have_count(1, timeout=LONG_MS)

    assert file["benchmark"]["load_search"] == {"max": 4, "max_levels": 3}
    assert "num_concurrency" not in file["benchmark"]
    assert file["optimization"]["trust"] is False
    [measured] = (await get(platform, f"/tasks/{page.url.rpartition('/')[2]}/experiments"))[
        "experiments"
    ]
    greatest = measured["metrics"]["boundary"]["estimate"]
    assert greatest is not None
    told = page.get_by_text(re.compile(rf"{greatest:.3g} (or more|\(.* to .*\)).requests at once"))
    await expect(told).to_be_visible()
    await page.get_by_role("tab", name="Compare").click()
    [row] = await chart_values(page, "Max load within the constraints")
    assert float(row["max load (requests at once)"]) == pytest.approx(greatest, rel=1e-3)


async def test_form_describes_conversations_by_turn(
    platform: PlatformProcess, visit: Visit
) -> None:
    page = (await visit("/tasks/new")).page

    await page.get_by_label("Name", exact=True).fill("conversations")
    await page.get_by_label("ttft-seconds", exact=True).fill("0.005")
    await page.get_by_label("tpot-seconds", exact=True).fill("0.001")
    await page.get_by_label("Concurrency levels").fill("2")
    await page.get_by_label("Turns per conversation").fill("3")
    await page.get_by_label("Pause before the next turn (s)").fill("0.01")
    await page.get_by_label("Max requests per level").fill("30")
    file = yaml.safe_load(await page.get_by_label("Task file").input_value())
    await page.get_by_role("button", name="Submit").click()
    await page.wait_for_url("**/tasks/*-*")
    experiments = page.get_by_role("region", name="Experiments")
    await expect(experiments.get_by_text("succeeded")).to_have_count(1, timeout=LONG_MS)
    await page.get_by_role("link", name="experiment 1").last.click()

    assert (file["benchmark"]["turns"], file["benchmark"]["think_seconds"]) == (3, 0.01)
    values = await chart_values(page, "Time to first token by turn")
    detail = await get(platform, f"/experiments/{page.url.rpartition('/')[2]}")
    [level] = detail["benchmark"]["levels"]
    told = {int(row["turn"]): float(row["mean (s)"]) for row in values}
    assert told == pytest.approx({each["turn"]: each["mean_ttft"] for each in level["turns"]})
    assert len(values) == file["benchmark"]["turns"]
    shown = page.get_by_role("region", name="Levels of the benchmark")
    asked = level["prefix_cache"]["asked_share"]
    assert 0 < asked < 1
    await expect(shown).to_contain_text(re.compile(r"of [\d.]+.% asked"))


async def test_experiment_charts_show_the_api_values(
    platform: PlatformProcess, visit: Visit, finished_task: dict[str, Any]
) -> None:
    experiment_id = finished_task["best_experiment_id"]
    watched = await visit("")
    page = watched.page
    asked: dict[str, str] = {}
    page.on(
        "response",
        lambda got: (
            asked.update({got.url.partition("metric=")[2].partition("&")[0]: got.url})
            if "/series?" in got.url
            else None
        ),
    )
    await page.goto(f"{platform.url}/experiments/{experiment_id}?tab=gpus")

    monitoring = (await get(platform, f"/experiments/{experiment_id}"))["gpu_monitoring"]
    for title, metric in (
        ("GPU utilization", "utilization_percent"),
        ("Temperature", "temperature_c"),
        ("Power draw", "power_draw_w"),
    ):
        values = await chart_values(page, title)
        assert await is_drawn(page, title), title
        series = await get(platform, asked[metric].partition("/api/v1")[2])
        points = [point for device in series["devices"] for point in device["points"]]
        assert len(points) >= 1
        assert [
            [row["time"], *(pytest.approx(float(cell)) for cell in list(row.values())[3:])]
            for row in values
        ] == [[at, mean, least, most] for at, least, most, mean in points]
    table = page.get_by_role("region", name="GPUs while measured")
    for index, stats in monitoring["gpu_stats"].items():
        await expect(table).to_contain_text(stats["name"])
        titles = await table.locator("span[title^=mean]").evaluate_all(
            "all => all.map(e => e.title)"
        )
        told = f"mean {stats['utilization']['mean']}, "
        assert any(title.startswith(told) for title in titles), (index, titles)


async def test_comparison_names_the_reports_winner(
    platform: PlatformProcess, visit: Visit, finished_task: dict[str, Any]
) -> None:
    task_id = finished_task["task_id"]
    _, report, _ = await platform.command("show", task_id)
    page = (await visit(f"/tasks/{task_id}?tab=compare")).page

    values = await chart_values(page, "Throughput per GPU")

    assert await is_drawn(page, "Throughput per GPU")
    best = {row["experiment"] for row in values if row["task's choice"] == "best"}
    first = re.search(r"^ *1 +(\d+) +succeeded", report, re.MULTILINE)
    assert first is not None, report
    assert best == {first[1]}
    experiments = await platform.experiments(task_id)
    expected = {
        (each["ordinal"], level["num_concurrency"]): level["mean_output_throughput_tokens_per_s"]
        for each in experiments
        for level in each["benchmark"]["levels"]
    }
    assert {
        (int(row["experiment"]), int(row["concurrency"])): float(row["output tok/s per GPU"])
        for row in values
    } == pytest.approx(expected)
    within = {
        (each["ordinal"], level["num_concurrency"])
        for each in experiments
        for level in each["benchmark"]["levels"]
        if level["stats"]["tpot"]["mean"] <= finished_task["task"]["slo"]["tpot"]["threshold"]
    }
    assert {
        (int(row["experiment"]), int(row["concurrency"]))
        for row in values
        if row["SLO"] == "within"
    } == within


async def test_comparison_charts_speak_by_arrow_keys(
    visit: Visit, finished_task: dict[str, Any]
) -> None:
    page = (await visit(f"/tasks/{finished_task['task_id']}?tab=compare")).page
    for last in ("Distribution of time to first", "Distribution of time per output"):
        await chart(page, last).locator("canvas").wait_for()
    await expect(page.locator("[aria-label^=loading]")).to_have_count(0)
    titles = await page.locator("figure[data-chart]").evaluate_all(
        "all => all.map(each => each.dataset.chart)"
    )

    for title in titles:
        figure = page.locator(f'figure[data-chart="{title}"]')
        await figure.get_by_role("application").focus()
        await page.keyboard.press("ArrowRight")
        await expect(figure.locator("[role=status].visually-hidden")).to_contain_text(
            re.compile(r"\d")
        )
    assert len(titles) >= 8
    await tab_to(page, titles[0], "Shift+Tab")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowDown")
    said = chart(page, titles[0]).locator("[role=status].visually-hidden")
    await expect(said).to_contain_text("tok/s per GPU")
    ordinal = (await said.inner_text()).partition(" ")[0]
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/experiments/**")
    opened = page.get_by_role("heading", name=f"{finished_task['task_name']} {ordinal}")
    await expect(opened).to_be_visible()


async def test_gpu_time_bar_explains_its_colours(
    visit: Visit, finished_task: dict[str, Any]
) -> None:
    assert finished_task["state"] == "completed"
    page = (await visit("/reports")).page

    key = page.get_by_role("list", name="legend of GPU time").get_by_role("listitem")

    await expect(key).to_have_text(["used", "held and idle", "free", "cordoned", "unknown"])


async def test_page_resumes_after_an_absent_gateway(
    platform: PlatformProcess, visit: Visit
) -> None:
    watched = await visit("")
    watched.expect(*GATEWAY_IS_AWAY)
    page, received = watched.page, set[int]()

    def remember(frame: str | bytes) -> None:
        received.add(json.loads(frame).get("cursor"))

    page.on(
        "websocket",
        lambda socket: socket.on("framereceived", remember) if "/ws/events" in socket.url else None,
    )
    await page.goto(f"{platform.url}/tasks")
    indicator = page.locator("header [role=status]")
    await expect(indicator).to_contain_text("live")
    await page.evaluate(REMEMBER, "header [role=status]")
    task_id = await platform.submit(quick_task("through"))
    await page.get_by_role("link", name="through").click()
    await page.get_by_role("tab", name="Events").click()

    platform.kill("gateway")

    await page.wait_for_function(
        "() => window.shown.some(text => text.includes('connection lost'))"
    )
    await expect(indicator).to_contain_text("live")
    await platform.until_finished(task_id)
    await expect(page.locator("main header")).to_contain_text("completed")
    moments = page.get_by_role("region", name="Events").locator("tbody time")

    async def every_event_was_received_and_is_shown() -> bool:  # some follow the task's end
        events = (await get(platform, f"/events?task_id={task_id}&limit=1000"))["events"]
        told = {event["cursor"] for event in events}
        shown = await moments.evaluate_all("all => all.map(each => Number(each.dataset.cursor))")
        return told <= received and set(shown) == told

    await eventually(
        every_event_was_received_and_is_shown,
        within_seconds=60,
        every_seconds=0.5,
        what="every event of the task to come by the socket and be shown",
    )
    assert await page.evaluate("window.shown.length > 0"), "it was loaded anew"


async def test_page_resumes_after_a_hanging_gateway(
    platform: PlatformProcess, visit: Visit
) -> None:
    watched = await visit("/tasks")
    watched.expect(*GATEWAY_IS_AWAY)
    indicator = watched.page.locator("header [role=status]")
    await expect(indicator).to_contain_text("live")

    platform.kill("gateway", signal.SIGSTOP)
    try:
        await expect(indicator).to_contain_text("no answer")
    finally:
        platform.kill("gateway", signal.SIGCONT)

    await expect(indicator).to_contain_text("live")
    task_id = await platform.submit(quick_task("after-the-silence"))
    await expect(watched.page.get_by_role("link", name="after-the-silence")).to_be_visible()
    await platform.until_finished(task_id)


async def log_in(page: Page, platform: PlatformProcess, role: str) -> None:
    status, made = await platform.request("POST", "/api/v1/tokens", {"name": role, "role": role})
    assert status == 201, made
    await page.context.clear_cookies()
    await page.goto(platform.url)
    await page.get_by_label("Token", exact=True).fill(made["secret"])
    await page.get_by_role("button", name="Log in").click()


async def test_a_login_link_opens_the_page_logged_in_once(
    platform: PlatformProcess, browser: Browser
) -> None:
    status, link = await platform.request("POST", "/api/v1/login/links")
    assert status == 201, link
    address = f"{platform.url}/#login={link['code']}"
    first, second = [await (await browser.new_context()).new_page() for _ in range(2)]
    try:
        await first.goto(address)
        await expect(first.get_by_role("heading", level=1)).to_have_text("Fleet")
        await expect(first).to_have_url(f"{platform.url}/")

        # Pasted where the page asks for a token already.
        await second.goto(platform.url)
        await expect(second.get_by_label("Token", exact=True)).to_be_visible()
        await second.goto(address)
        await expect(second.get_by_role("alert")).to_contain_text("was used already")
        await expect(second).to_have_url(f"{platform.url}/")
    finally:
        for page in (first, second):
            await page.context.close()


async def test_gpus_are_reserved_and_released_on_the_page(
    platform: PlatformProcess, visit: Visit
) -> None:
    watched = await visit("/reservations")
    watched.expect("ERR_INTERNET_DISCONNECTED", "WebSocket connection")
    page = watched.page
    changes = page.get_by_role("status", name="Changes")
    opened = page.get_by_role("dialog")

    await page.get_by_role("button", name="Reserve GPUs").click()
    await page.get_by_label("Name", exact=True).fill("by-form")
    await page.get_by_role("button", name="Reserve", exact=True).click()
    await expect(changes).to_contain_text("by-form: ")
    row = page.get_by_role("button", name="Use, renew, release: by-form")
    await row.click()
    await expect(opened).to_contain_text("CUDA_VISIBLE_DEVICES=GPU-")
    await opened.get_by_role("button", name=re.compile("^Renew")).click()
    await expect(changes).to_contain_text("Renewed: by-form")

    await row.click()
    await opened.get_by_role("button", name="Release…").click()
    await page.context.set_offline(True)
    await opened.get_by_role("button", name="Release 1 GPU").click()
    await expect(opened.get_by_role("alert")).to_be_visible()  # and nothing is released
    await page.context.set_offline(False)
    await opened.get_by_role("checkbox").check()
    await opened.get_by_role("button", name="Release 1 GPU").click()
    await expect(changes).to_contain_text("Released: by-form")
    await expect(row).to_have_count(0)
    past = await get(platform, "/reservations?state=released")
    assert "by-form" in [reservation["holder"] for reservation in past["reservations"]]


async def test_a_gpu_is_found_and_cordoned_without_a_mouse(
    platform: PlatformProcess, visit: Visit
) -> None:
    page = (await visit("/?view=map")).page
    [gpu, *_] = (await get(platform, "/gpus"))["gpus"]
    await expect(page.locator("a[data-kind]")).to_have_count(2)
    dialog, reason = page.get_by_role("dialog"), page.get_by_label("Reason")

    await tab_to(page, gpu["node_id"])
    await page.keyboard.press("ArrowDown")
    await expect(page.locator("[inert] a")).to_have_count(1)  # the tile of what has the focus
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("Shift+Tab")
    await tab_to(page, f"{gpu['node_id']} GPU 1", most=1)  # the map is one stop, where one left it
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/gpus/**")
    await expect(page.get_by_role("main")).to_be_focused()
    await tab_to(page, "Cordon")
    await page.keyboard.press("Enter")
    await expect(reason).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(page.get_by_role("button", name="Cordon", exact=True)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(reason).to_be_focused()
    await page.keyboard.type("without a mouse")
    await page.keyboard.press("Enter")

    uncordon = page.get_by_role("button", name="Uncordon", exact=True)
    await expect(dialog).to_have_count(0)
    await expect(uncordon).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(reason).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Cordon", exact=True)).to_be_focused()


async def test_tasks_are_compared_without_a_mouse(
    platform: PlatformProcess, visit: Visit, finished_task: dict[str, Any]
) -> None:
    page = (await visit(f"/tasks/{finished_task['task_id']}")).page
    await expect(page.get_by_role("region", name="Experiments")).to_be_visible()

    await tab_to(page, "Experiments")
    await page.keyboard.press("ArrowRight")
    await expect(page.get_by_role("tab", name="Compare")).to_be_focused()
    await expect(page.locator('figure[data-chart^="Throughput per GPU"] canvas')).to_be_visible()
    await tab_to(page, "#")
    await page.keyboard.press("Enter")
    await expect(page.locator("main button[aria-pressed=true]")).to_have_count(1)
    await page.keyboard.press("Control+k")
    search = page.get_by_label("Search", exact=True)
    await expect(search).to_be_focused()
    await page.keyboard.type("New task")
    await expect(page.locator("[data-selected]")).to_contain_text("New task")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/tasks/new")
    await expect(search).to_have_count(0)
    await expect(page.get_by_role("main")).to_be_focused()
    await tab_to(page, "Name")
    await page.keyboard.press("Control+a")
    await page.keyboard.type("without-a-mouse")
    submit = page.get_by_role("button", name="Submit")
    await expect(submit).to_be_enabled()
    await tab_to(page, "Submit", "Shift+Tab")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/tasks/*-*")
    await expect(page.get_by_role("heading", name="without-a-mouse")).to_be_visible()
    await expect(page.get_by_role("main")).to_be_focused()


async def test_monitoring_link_keeps_node_or_pod(platform: PlatformProcess, visit: Visit) -> None:
    [gpu, *_] = (await get(platform, "/gpus"))["gpus"]
    page = (await visit("/monitoring?range=30m")).page
    await expect(page.locator("figure[data-chart='GPU utilization, 2 GPUs']")).to_be_visible()
    assert await is_drawn(page, "GPU utilization by node and time")

    await page.get_by_role("combobox", name="Node").click()
    await page.get_by_role("option", name=gpu["node_id"]).click()
    await page.get_by_role("combobox", name="GPU type").click()
    await page.get_by_role("option", name="pGPU").click()
    row = page.get_by_role("region", name="Nodes in this time").get_by_role("row").nth(1)
    await expect(row.get_by_role("cell").first).to_have_text(gpu["node_id"])
    await expect(page).to_have_url(re.compile(rf"node={gpu['node_id']}.*kind=pgpu"))

    await page.reload()
    await expect(page.get_by_role("combobox", name="GPU type")).to_have_value("pGPU")
    await page.get_by_role("tab", name="Pods").click()
    await expect(page.get_by_text("No matching Kubernetes pod used a GPU").first).to_be_visible()
    await expect(page.get_by_role("combobox", name="Pod namespace")).to_be_visible()
    await expect(page).to_have_url(re.compile(r"view=pods"))


@pytest.mark.parametrize(
    ("role", "may_submit", "may_cordon"),
    [("viewer", False, False), ("submitter", True, False), ("admin", True, True)],
)
async def test_people_are_offered_what_their_token_may(
    platform: PlatformProcess, visit: Visit, role: str, may_submit: bool, may_cordon: bool
) -> None:
    watched = await visit("")
    watched.expect(r"\b401\b")
    page = watched.page
    await log_in(page, platform, role)
    await expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    await expect(page.locator("section[aria-label^=node]")).to_have_count(1)
    cordon = page.get_by_role("button", name="Cordon")
    await expect(cordon).to_have_count(1 if may_cordon else 0)
    await page.get_by_role("link", name="Tasks").click()
    await page.get_by_role("link", name="New task").click()
    submit = page.get_by_role("button", name="Submit")
    await (expect(submit).to_be_enabled() if may_submit else expect(submit).to_be_disabled())
    told = page.get_by_text("Your token is read-only")
    await expect(told).to_have_count(0 if may_submit else 1)


async def test_a_server_is_invited_where_there_is_no_https(
    platform: PlatformProcess, visit: Visit
) -> None:
    watched = await visit("")
    watched.expect(r"\b409\b")
    page = watched.page
    await page.add_init_script(WITHOUT_HTTPS)
    await watched.open("/")
    await page.get_by_role("button", name="Add a server").click()
    await page.get_by_label("Name of the server").fill("alpha")
    await page.get_by_role("button", name="Make the command").click()

    command = page.get_by_role("dialog").locator("code").first
    await expect(command).to_contain_text(f"gpusteward join {platform.url} alpha")
    await page.get_by_role("button", name="Copy the command").click()
    await expect(page.get_by_role("button", name="Copy the command")).to_have_text("Copied")
    code = re.search(r"CODE=([^;]+)", await command.inner_text())
    assert code is not None
    body = {"node_id": "alpha", "code": code[1]}
    status, credentials = await platform.request("POST", "/api/v1/join", body)
    assert (status, credentials["user"]) == (200, "node_alpha")

    await page.get_by_role("button", name="Done").click()
    await page.get_by_role("button", name="Add a server").click()
    await page.get_by_label("Name of the server").fill("alpha")
    await page.get_by_role("button", name="Make the command").click()
    await expect(page.get_by_role("alert")).to_contain_text("has credentials already")


async def test_axe_finds_nothing_serious(
    platform: PlatformProcess, visit: Visit, finished_task: dict[str, Any]
) -> None:
    held = await reserve(platform, 2, "somebody-else")
    waiting = await reserve(platform, 1, "waits")
    watched = await visit("/")
    page = watched.page
    links = page.get_by_role("navigation", name="Pages").get_by_role("link")
    await links.first.wait_for()
    places = await links.evaluate_all("links => links.map(link => link.getAttribute('href'))")
    [gpu, *_] = (await get(platform, "/gpus"))["gpus"]
    task = f"/tasks/{finished_task['task_id']}"
    places += [
        f"{task}?tab={tab}" for tab in ("compare", "timeline", "report", "definition", "events")
    ]
    places += [f"{task}", "/tasks/new", f"/queue?open={waiting}", "/no-such-page"]
    places += [f"/admin?tab={tab}" for tab in ("namespaces", "tokens", "audit", "decisions")]
    places += ["/monitoring?view=pods", "/monitoring?by=gpu", "/reports?by=kind"]
    experiment = f"/experiments/{finished_task['best_experiment_id']}"
    places += [experiment, *(f"{experiment}?tab={tab}" for tab in ("gpus", "engine", "log"))]
    places += [f"/gpus/{gpu['node_id']}/{gpu['uuid']}"]

    found = []
    for place in places:
        await page.goto(platform.url + place)
        await page.locator("main").locator("h1, strong").first.wait_for()
        await expect(page.locator("[aria-label^=loading]")).to_have_count(0)
        for scheme, rules in SCHEMES:
            await page.emulate_media(color_scheme=scheme)
            await page.wait_for_selector(f":root[data-mantine-color-scheme={scheme}]")
            found += [f"{place} {scheme}: {each}" for each in await axe_findings(page, rules)]
    await release(platform, waiting)
    await release(platform, held)

    assert not found, "\n".join(found)
