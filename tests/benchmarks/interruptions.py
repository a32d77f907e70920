"""How soon every command that waits or follows ends at Ctrl-C, its reader slow or at rest.

`make bench NAME=interruptions`. The last line is one JSON object: `interruptions`, `above_2_s`,
`violations` (above 2 s, another exit code than the command's own for it, or a traceback),
`slowest_s`.
"""

import asyncio
import itertools
import json
import random

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


async def interrupt_all() -> list[Interrupted]:
    dice = random.Random(1)
    names = itertools.islice(itertools.cycle(FOLLOWERS), INTERRUPTIONS)
    with short_directory() as directory:
        return [
            *[
                await interrupted(name, directory, dice, is_read=dice.random() < 0.5)
                for name in names
            ],
            *[await interrupted_early("reserve", directory, dice) for _ in range(EARLY)],
        ]


def main() -> None:
    each = asyncio.run(interrupt_all())
    for name in FOLLOWERS:
        seconds = [one.seconds for one in each if one.name == name]
        print(f"{name:20} {len(seconds):4} times, slowest {max(seconds):.2f} s")
    for one in each:
        if not one.is_well:
            print(one)
    print(json.dumps(summary(each)))


if __name__ == "__main__":
    main()
