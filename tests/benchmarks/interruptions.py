"""How soon every command that waits or follows ends at Ctrl-C, its reader slow or at rest.

`make bench NAME=interruptions`: 250, or as many as are begun within 7 minutes. The last line is one
JSON object: `interruptions`, `above_2_s`, `violations` (above 2 s, another exit code than the
command's own for it, or a traceback), `slowest_s`.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator

from shared.testing import short_directory
from tests.support.processes.followers import (
    FOLLOWERS,
    Interrupted,
    interrupted,
    interrupted_early,
    summary,
)

INTERRUPTIONS = 250
EARLY_EVERY = 5  # this one is `reserve`, at any moment of its start
BEGUN_WITHIN_SECONDS = 420.0


async def interrupt_all() -> AsyncIterator[Interrupted]:
    dice = random.Random(1)
    names = itertools.cycle(FOLLOWERS)
    began = time.monotonic()
    with short_directory() as directory:
        for n in range(1, INTERRUPTIONS + 1):
            if time.monotonic() - began > BEGUN_WITHIN_SECONDS:
                return
            is_early = n % EARLY_EVERY == 0
            name = "reserve" if is_early else next(names)
            # Without a newline: the one at which it stands still, if it does.
            print(f"{n}/{INTERRUPTIONS} {name}{' early' * is_early} ", end="", flush=True)
            if is_early:
                yield await interrupted_early(name, directory, dice)
            else:
                yield await interrupted(name, directory, dice, is_read=dice.random() < 0.5)


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
        print(f"{name:20} {len(seconds):4} times, slowest {max(seconds, default=0):.2f} s")
    print(json.dumps(summary(each)))


if __name__ == "__main__":
    main()
