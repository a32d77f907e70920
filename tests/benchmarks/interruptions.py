"""How soon every command that waits or follows ends at Ctrl-C, its reader slow or at rest.

`make bench NAME=interruptions`. The last line is one JSON object: `interruptions`, `above_2_s`,
`violations` (above 2 s, another exit code than the command's own for it, or a traceback),
`slowest_s`.
"""

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator

from shared.testing import short_directory
from tests.support.processes.followers import (
    FOLLOWERS,
    Interrupted,
    interrupted,
    interrupted_early,
    summary,
)

INTERRUPTIONS = 200
EARLY = 50


async def interrupt_all() -> AsyncIterator[Interrupted]:
    dice = random.Random(1)
    names = itertools.islice(itertools.cycle(FOLLOWERS), INTERRUPTIONS)
    with short_directory() as directory:
        for name in names:
            print(f"{name} ", end="", flush=True)  # the one at which it stands still, if it does
            yield await interrupted(name, directory, dice, is_read=dice.random() < 0.5)
        for _ in range(EARLY):
            print("reserve, early ", end="", flush=True)
            yield await interrupted_early("reserve", directory, dice)


async def printed() -> list[Interrupted]:
    each = []
    async for one in interrupt_all():
        print(f"{one.seconds:.2f} s{'' if one.is_well else f': {one}'}", flush=True)
        each.append(one)
    return each


def main() -> None:
    each = asyncio.run(printed())
    for name in FOLLOWERS:
        seconds = [one.seconds for one in each if one.name == name]
        print(f"{name:20} {len(seconds):4} times, slowest {max(seconds):.2f} s")
    print(json.dumps(summary(each)))


if __name__ == "__main__":
    main()
