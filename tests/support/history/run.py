"""One recorded run: clients work while things go wrong, then everything heals and comes to rest."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from shared.waiting import cancel_and_wait
from tests.support.history import ledger_audit
from tests.support.history.arena import arena
from tests.support.history.checker import Violation, check
from tests.support.history.clients import Client, cancel_all
from tests.support.history.nemesis import Nemesis
from tests.support.history.partitions import divide
from tests.support.history.records import Answered, AnyRecord, Asked, Began, Fault, Moved

CLIENTS = 12
NODE_GROUPS = [{"alpha": 4, "beta": 2}, {"gamma": 4}, {"delta": 3, "epsilon": 1}]
REAL_BESIDE = [{"alpha": 1}]
REST_SECONDS = 60.0
LONGEST = 5
"""Times `seconds` that a run may last, so that a slow machine also gets to its grants."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What a run did and what was wrong with it."""

    seed: int
    seconds: float
    operations: dict[str, int]
    faults: dict[str, int]
    ends: dict[str, int]
    grants: int
    violations: list[Violation]

    def table(self) -> str:
        """For people, one line per count."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"seed {self.seed}, {self.seconds:.0f} s of faults"
        for title, counts in (
            ("operations", self.operations),
            ("ends", self.ends),
            ("faults", self.faults),
        ):
            yield f"  {title:<12} {sum(counts.values()):>6}"
            for name, count in sorted(counts.items()):
                yield f"    {name:<34} {count:>6}"
        yield f"  {'grants':<12} {self.grants:>6}"
        yield f"  {'violations':<12} {len(self.violations):>6}"
        for violation in self.violations:
            yield f"    {violation.rule}: {violation.detail}"


async def run(
    seed: int,
    seconds: float,
    *,
    fewest_grants: int,
    clock_jumps: bool = False,
    with_real_node: bool = False,
    with_partitions: bool = False,
) -> Outcome:
    """Faults for so many seconds, again until there were `fewest_grants`, then rest, and what the
    checker says. `with_partitions`: each of those once instead of faults for a time. Raises
    AssertionError if the ledger does not come to rest.
    """
    groups = REAL_BESIDE if with_real_node else NODE_GROUPS
    run_seconds = (2.0, 4.0, 6.0) if with_real_node else (0.2, 0.5, 1.0, 4.0)
    async with arena(
        seed, groups, with_real_node=with_real_node, with_split_bus=with_partitions
    ) as place:
        clients = [
            Client(
                place,
                random.Random(seed * 1000 + number),
                wide=not with_real_node,
                run_seconds=run_seconds,
            )
            for number in range(4 if with_real_node else CLIENTS)
        ]
        enough = asyncio.Event()
        working = [
            asyncio.create_task(client.live(lambda: not enough.is_set())) for client in clients
        ]
        administrator = asyncio.create_task(place.keep_in_service())
        nemesis = Nemesis(
            place,
            random.Random(seed + 7),
            clock_jumps=clock_jumps,
            pause_seconds=(2.0, 4.0) if with_real_node else (0.5, 2.5),
        )
        began_at = time.monotonic()
        for _ in range(LONGEST):
            if with_partitions:
                await divide(place, random.Random(seed + 7))
            else:
                await nemesis.rage(seconds)
            if await ledger_audit.count_grants(place.dsn) >= fewest_grants:
                break
        enough.set()
        seconds = time.monotonic() - began_at
        await asyncio.wait(working, timeout=3.0)
        await cancel_and_wait(*working)
        await cancel_all(place, await ledger_audit.open_reservations(place.dsn))
        await place.settle(REST_SECONDS)
        await cancel_and_wait(administrator)
        await place.end_late()
        records = await place.collect()
        return outcome_of(seed, seconds, records)


def outcome_of(seed: int, seconds: float, records: list[AnyRecord]) -> Outcome:
    """A history summed up and judged."""
    verdicts = {
        (answer.command_id, answer.copy): answer.verdict.value
        for answer in records
        if isinstance(answer, Answered)
    }
    operations = Counter(
        f"{asked.what} {verdicts.get((asked.command_id, asked.copy), 'unanswered')}"
        for asked in records
        if isinstance(asked, Asked)
    )
    operations["runs begun"] = sum(isinstance(record, Began) for record in records)
    faults = Counter(
        f"{fault.what} {fault.target}".strip() for fault in records if isinstance(fault, Fault)
    )
    ends = Counter(
        move.after.value
        for move in records
        if isinstance(move, Moved)
        and move.after not in ("queued", "granted", "active", "releasing")
    )
    return Outcome(
        seed=seed,
        seconds=seconds,
        operations=dict(operations),
        faults=dict(faults),
        ends=dict(ends),
        grants=sum(isinstance(r, Moved) and r.after == "granted" for r in records),
        violations=check(records),
    )
