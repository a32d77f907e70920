"""People with the page open: half follow a node's samples, half what happens.

`python -m tests.benchmarks.scale_followers PORT COUNT NODE...`. It prints `ready` once all are
connected; after SIGTERM one JSON object: `frames` that came, and `skipped` samples that a client
was not sent, because a newer one had replaced them.
"""

import asyncio
import json
import re
import signal
import sys
from typing import Final

import uvloop
from typing_extensions import override

from shared.testing import eventually
from tests.benchmarks.gateway import START_SECONDS, Follower

SKIPPED: Final = re.compile(rb'"skipped":(\d+)')


class Counter(Follower):
    """A follower that keeps nothing but counts."""

    def __init__(self, port: int, path: str) -> None:
        super().__init__(port, path)
        self.frames = 0
        self.skipped = 0

    @override
    def on_frame(self, frame: bytes) -> None:
        self.frames += 1
        if (match := SKIPPED.search(frame)) is not None:
            self.skipped += int(match[1])


async def main(port: int, count: int, nodes: list[str]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    counters = []
    for number in range(count):
        path = "/ws/events"
        if number % 2:
            path = f"/ws/metrics?node_id={nodes[number % len(nodes)]}"
        _, counter = await loop.create_connection(
            lambda path=path: Counter(port, path),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
        counters.append(counter)
    await eventually(
        lambda: all(counter.is_open for counter in counters),
        within_seconds=START_SECONDS,
        what="every client",
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await ended.wait()
    totals = {name: sum(getattr(each, name) for each in counters) for name in ("frames", "skipped")}
    sys.stdout.write(json.dumps(totals) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
