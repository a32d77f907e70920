"""What publishing and asking cost through FastStream's broker, beside nats-py as the bus uses it.

`make bench NAME=publishing`: both take turns on one nats-server, in rounds of the same length; a
figure is the median of the rounds. The last line is one JSON object of microseconds and ratios
(FastStream's over nats-py's).
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from faststream.nats import NatsBroker
from nats.js.api import StreamConfig
from rich.console import Console
from rich.table import Table

from schemas.base import subject_for
from schemas.errors import Accepted, Reply
from schemas.scheduler.reservations import CancelReservation, ReservationReleased
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.bus import Bus, command_route
from shared.messaging.codec import encode
from shared.testing import NatsServer, short_directory

ROUNDS: Final = 7
SECONDS: Final = 0.4
AT_ONCE: Final = 64
STREAM: Final = "BENCH"

Call = Callable[[], Awaitable[object]]


async def measure(calls: Mapping[str, Call], at_once: int) -> dict[str, tuple[float, float]]:
    """Return the microseconds of wall time and of processor time that a call of each takes."""
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            count, began, cpu_began = 0, time.perf_counter(), time.process_time()
            while time.perf_counter() - began < SECONDS:
                await asyncio.gather(*(call() for _ in range(at_once)))
                count += at_once
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu_began
            rounds[name].append((1e6 * wall / count, 1e6 * cpu / count))
    return {
        name: (statistics.median(w for w, _ in each), statistics.median(c for _, c in each))
        for name, each in rounds.items()
    }


async def run(url: str) -> dict[str, dict[str, tuple[float, float]]]:
    owner, asker = Bus("owner", url), Bus("asker", url)

    async def cancel(command: CancelReservation) -> Reply:
        return Accepted(command_id=command.command_id)

    async def dead(subject: str, body: bytes, error: str) -> None:
        raise AssertionError((subject, body, error))

    owner.include([command_route(cancel, CancelReservation)], dead)
    await owner.open()
    await owner.start()
    await asker.open()
    await asker.start()
    jetstream = asker.jetstream
    await jetstream.add_stream(StreamConfig(name=STREAM, subjects=["bench.>"]))
    try:
        return await compare(asker, asker.broker)
    finally:
        await asker.close()
        await owner.close()


async def compare(bus: Bus, broker: NatsBroker) -> dict[str, dict[str, tuple[float, float]]]:
    event = ReservationReleased(
        message_id=new_id(), occurred_at=utcnow(), revision=1, reservation_id=new_id(),
        namespace="default", holder="benchmark",
    )  # fmt: skip
    body = encode(event)
    jetstream = bus.jetstream

    def headers() -> dict[str, str]:
        return {"Nats-Msg-Id": str(new_id())}

    async def store_raw() -> None:
        await jetstream.publish("bench.e", body, timeout=5, stream=STREAM, headers=headers())

    async def store_by_broker() -> None:
        await broker.publish(body, "bench.e", stream=STREAM, headers=headers(), timeout=5)

    async def pass_raw() -> None:
        await bus.nats.publish("passing", body)

    async def pass_by_broker() -> None:
        await broker.publish(body, "passing")

    def command() -> CancelReservation:
        return CancelReservation(command_id=new_id(), reservation_id=new_id())

    async def ask_raw() -> None:
        asked = command()
        await bus.nats.request(subject_for(asked), encode(asked), timeout=5)

    async def ask_by_broker() -> None:
        asked = command()
        await broker.request(encode(asked), subject_for(asked), timeout=5)

    store = {"nats-py": store_raw, "FastStream": store_by_broker}
    ask = {"nats-py": ask_raw, "FastStream": ask_by_broker}
    passing = {"nats-py": pass_raw, "FastStream": pass_by_broker}
    return {
        "event stored, one after another": await measure(store, 1),
        f"event stored, {AT_ONCE} at once": await measure(store, AT_ONCE),
        "request, one after another": await measure(ask, 1),
        f"request, {AT_ONCE} at once": await measure(ask, AT_ONCE),
        "live message": await measure(passing, AT_ONCE),
    }


async def main() -> None:
    with short_directory() as directory:
        server = NatsServer(directory / "nats")
        await server.start()
        try:
            found = await run(server.authenticated_url)
        finally:
            await server.stop()
    table = Table("", "nats-py us (CPU)", "FastStream us (CPU)", "ratio", "ratio of CPU")
    figures: dict[str, float] = {}
    for what, taken in found.items():
        (raw, raw_cpu), (fast, fast_cpu) = taken["nats-py"], taken["FastStream"]
        table.add_row(
            what, f"{raw:.0f} ({raw_cpu:.0f})", f"{fast:.0f} ({fast_cpu:.0f})",
            f"{fast / raw:.2f}", f"{fast_cpu / raw_cpu:.2f}",
        )  # fmt: skip
        name = what.replace(", ", "_").replace(" ", "_")
        figures |= {f"{name}_us": round(fast, 1), f"{name}_ratio": round(fast / raw, 2)}
    Console().print(table)
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
