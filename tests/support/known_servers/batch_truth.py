"""The true times of requests on a batching engine, from its rules and the arrivals alone.

It shares the rules of a step with the simulated engine, and nothing of time: no event loop, no
queues, no clients.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shared.engines.simulated.batch import (
    BatchedRequest,
    BatchScheduler,
    BatchSpeed,
)


@dataclass(frozen=True, slots=True)
class TrueTimes:
    """Of one request, in seconds; `sent` counts from the first arrival's origin."""

    sent: float
    ttft: float
    e2e: float


def idle_ttft_seconds(speed: BatchSpeed, prompt_tokens: int) -> float:
    """Of a request that is alone, compiled, cold and in one piece."""
    return speed.step_seconds + prompt_tokens * speed.prefill_token_seconds


def idle_tpot_seconds(speed: BatchSpeed, prompt_tokens: int, output_tokens: int) -> float:
    """Mean over all tokens but the first, of a request that is alone."""
    read_tokens = prompt_tokens + (output_tokens - 2) / 2
    return speed.step_seconds + read_tokens * speed.kv_token_seconds


def closed_loop(
    speed: BatchSpeed,
    size: tuple[int, int] | Callable[[], tuple[int, int]],
    *,
    clients: int,
    requests: int,
    travel_seconds: float,
    ramp_seconds: float = 0.0,
) -> list[TrueTimes]:
    """Each client sends its next request when it has read an answer; `travel` is one way."""
    starts = [ramp_seconds * client / clients for client in range(clients)]
    return _serve(speed, size, starts, requests, travel_seconds, is_closed=True)


def open_loop(
    speed: BatchSpeed, size: tuple[int, int], arrivals: Sequence[float], travel_seconds: float
) -> list[TrueTimes]:
    return _serve(speed, size, arrivals, len(arrivals), travel_seconds, is_closed=False)


def _serve(
    speed: BatchSpeed,
    size: tuple[int, int] | Callable[[], tuple[int, int]],
    starts: Sequence[float],
    requests: int,
    travel_seconds: float,
    *,
    is_closed: bool,
) -> list[TrueTimes]:
    scheduler = BatchScheduler(speed)
    names = _names()
    coming = [(sent + travel_seconds, next(names), sent) for sent in starts]
    heapq.heapify(coming)
    sent_at: dict[BatchedRequest, float] = {}
    first_at: dict[BatchedRequest, float] = {}
    times: list[TrueTimes] = []
    now = 0.0
    while len(times) < requests:
        if not scheduler.running and not scheduler.waiting:
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            _, name, sent = heapq.heappop(coming)
            tokens_in, tokens_out = size() if callable(size) else size
            request = BatchedRequest(prompt=[str(name)] * tokens_in, output_tokens=tokens_out)
            sent_at[request] = sent
            scheduler.add(request)
        step = scheduler.step()
        if step is None:
            raise RuntimeError("an idle engine was asked for a step")
        now += step.seconds
        for request in step.emitting:
            heard = now + travel_seconds
            first_at.setdefault(request, heard)
            if request.is_done:
                sent = sent_at[request]
                times.append(TrueTimes(sent, first_at[request] - sent, heard - sent))
                if is_closed:
                    heapq.heappush(coming, (heard + travel_seconds, next(names), heard))
    return times


def _names() -> Iterator[int]:
    name = 0
    while True:
        yield name
        name += 1
