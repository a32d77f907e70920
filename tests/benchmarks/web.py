"""What the web page costs its visitors: bytes, a first load, frames, and the age of what it shows.

`make bench NAME=web`. A platform with 64 nodes of 8 made-up GPUs, each read once per second, in
headless Chromium on the same machine: page, platform and fleet share its processors. The last line
is one JSON object:

`bundle_gzip_kb`: script, styles and page that the first route loads, as they are sent.
`first_load_ms`: from the address to the first GPU drawn, nothing cached; the median of several.
`first_load_cpu_ms`, `first_load_requests`: the page's own processor time about then, and what it
asked for before.
`frame_p95_ms`: from one frame to the next while all GPUs are live on the first page.
`script_ms_per_s`: the page's own share of a processor meanwhile.
`view_age_p99_s`: of every node's newest reading in the page, looked at ten times a second.
"""

import json
import logging
import statistics
import sys
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, CDPSession, Page

from shared.logging import configure_logging
from shared.testing import eventually, run_apart, short_directory
from tests.support.processes.platform import PlatformProcess
from tests.support.simulated_fleet import ADMIT, agents, write_fleet
from tests.support.web.browser import chromium, missing

GPUS_PER_NODE: Final = 8
NODES: Final = 64
LOADS: Final = 7
LIVE_SECONDS: Final = 40

# Looks on from inside the page, before any script of its own runs.
_WATCH: Final = """
window.taken = new Map();
window.drawnAt = null;
const Native = window.WebSocket;
window.WebSocket = class extends Native {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", ({ data }) => {
      const message = JSON.parse(data);
      if (message.type !== "gateway.gpu_metrics") return;
      window.taken.set(message.node_id, Date.parse(message.observed_at));
    });
  }
};
new MutationObserver((_, observer) => {
  if (!document.querySelector("main a[href*='/gpus/']")) return;
  window.drawnAt = performance.now();
  observer.disconnect();
}).observe(document, { subtree: true, childList: true });
"""
_FRAMES_AND_AGES: Final = """seconds => new Promise(resolve => {
  const frames = [], ages = [];
  let last = performance.now();
  const end = last + seconds * 1000;
  const timer = setInterval(() => {
    for (const taken of window.taken.values()) ages.push((Date.now() - taken) / 1000);
  }, 100);
  requestAnimationFrame(function frame(now) {
    frames.push(now - last);
    last = now;
    if (now < end) requestAnimationFrame(frame);
    else { clearInterval(timer); resolve([frames.slice(1), ages]); }
  });
})"""
_REQUESTS: Final = """() => performance.getEntriesByType("resource")
  .filter(each => each.startTime < window.drawnAt).length + 1"""
_SENT: Final = """() => [
  ...performance.getEntriesByType("navigation"),
  ...performance.getEntriesByType("resource")
    .filter(each => each.name.includes("/assets/") && each.startTime < window.drawnAt),
].reduce((sum, each) => sum + each.encodedBodySize, 0)"""


async def opened(browser: Browser, url: str) -> tuple[Page, CDPSession]:
    """By somebody who was never there."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    page = await context.new_page()
    await page.add_init_script(_WATCH)
    session = await context.new_cdp_session(page)
    await session.send("Performance.enable")  # it counts from here
    await page.goto(url)
    await page.wait_for_function("() => window.drawnAt !== null")
    return page, session


async def script_seconds(session: CDPSession) -> float:
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


async def measure(browser: Browser, url: str) -> dict[str, Any]:
    loads, busy_ms = [], []
    sent = requests = 0
    for _ in range(LOADS):
        page, session = await opened(browser, url)
        loads.append(float(await page.evaluate("window.drawnAt")))
        busy_ms.append(1000 * await script_seconds(session))
        sent = int(await page.evaluate(_SENT))
        requests = int(await page.evaluate(_REQUESTS))
        await page.context.close()
    print(f"first loads: {', '.join(f'{each:.0f}' for each in sorted(loads))} ms")
    page, session = await opened(browser, url)
    await page.wait_for_function(f"() => window.taken.size === {NODES}")
    before = await script_seconds(session)
    frames, ages = await page.evaluate(_FRAMES_AND_AGES, LIVE_SECONDS)
    busy = (await script_seconds(session) - before) / LIVE_SECONDS
    for share in (0.5, 0.95, 0.99, 1.0):
        frame, age = quantile(frames, share), quantile(ages, share)
        print(f"{share:4}: frame {frame:6.1f} ms, age {age:.2f} s")
    return {
        "bundle_gzip_kb": round(sent / 1000, 1),
        "first_load_ms": round(statistics.median(loads)),
        "first_load_cpu_ms": round(statistics.median(busy_ms)),
        "first_load_requests": requests,
        "frame_p95_ms": round(quantile(frames, 0.95), 1),
        "script_ms_per_s": round(busy * 1000),
        "view_age_p99_s": round(quantile(ages, 0.99), 2),
        "gpus": NODES * GPUS_PER_NODE,
    }


async def main() -> None:
    if (reason := missing()) is not None:
        sys.exit(f"this benchmark {reason}")
    configure_logging("bench", level=logging.ERROR)
    with short_directory() as directory:
        fleet = write_fleet(Path(directory) / "node-01.toml", 0, GPUS_PER_NODE)
        platform = PlatformProcess(
            directory / "data",
            arguments=("--fleet", str(fleet), "--node-id", "node-01"),
            environment=ADMIT,
        )
        nodes = {f"node-{number:02}": GPUS_PER_NODE for number in range(2, NODES + 1)}
        try:
            await platform.start()
            async with agents(platform, nodes, directory), chromium() as browser:

                async def is_whole() -> bool:
                    _, found = await platform.request("GET", "/api/v1/gpus?limit=1000")
                    return len(found["gpus"]) == NODES * GPUS_PER_NODE

                await eventually(is_whole, within_seconds=120, what="the whole fleet")
                figures = await measure(browser, platform.url)
        finally:
            await platform.stop()
    print(json.dumps(figures))


if __name__ == "__main__":
    run_apart(main())
