"""Node doubles as a process: `node_process SEED DIRECTORY NODE:GPUS...`.

It is killed and stopped as an executor's host would be; its journals outlive it.
"""

import asyncio
import os
import random
import sys
from pathlib import Path

import uvloop

from shared.lifecycle import notify_ready
from tests.support.bus import connected_bus
from tests.support.history.messenger import Messenger
from tests.support.history.node_double import NodeDouble
from tests.support.history.node_journal import NodeJournal


async def main(seed: int, directory: Path, nodes: list[str]) -> None:
    """Answer for these nodes until killed."""
    url = os.environ["GPUSTEWARD_NATS_URL"]
    async with connected_bus(url, "nodes") as bus, asyncio.TaskGroup() as tasks:
        for place, node in enumerate(nodes):
            node_id, gpus = node.split(":")
            journal = NodeJournal(directory / f"{node_id}.journal")
            messenger = Messenger(bus, journal.note, random.Random(seed * 100 + place), tasks)
            await NodeDouble(bus, node_id, int(gpus), journal, messenger, tasks).start()
        notify_ready()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
