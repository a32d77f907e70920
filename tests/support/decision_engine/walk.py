"""Random histories of the engine, and the smallest part of one that still breaks a rule.

They are drawn by numbers alone, so that they are the same on every machine. Hypothesis draws
other ones when other modules are loaded: it mixes in what numbers stand in their sources.
"""

import sys
from collections.abc import Callable, Sequence
from random import Random
from time import process_time
from typing import Any, Final

from services.scheduler.domain.model.namespaces import Held
from tests.support.decision_engine.fleets import (
    NODES,
    PER_NODE,
    PLACES,
    READINGS,
    Shape,
    draw_request,
    draw_shapes,
)
from tests.support.decision_engine.machine import EngineMachine

AGINGS: Final = (5.0, 5.0, 0.0, 60.0)
NAMESPACES: Final = ("a", "a", "b")
SHRINKING_SECONDS: Final = 20.0

Arguments = dict[str, Any]
History = list[tuple[str, Arguments]]
Shapes = Sequence[Shape]
Draw = Callable[[Random, Shapes], Arguments]


def _requests(random: Random, shapes: Shapes) -> Arguments:
    asked = [draw_request(random, shapes) for _ in range(random.choice((1, 1, 2, 3, 4)))]
    return {
        "asked": asked,
        "timeout_seconds": random.choice((5, 60, 300)),
        "decide": random.random() < 0.5,
        "namespace": random.choice(NAMESPACES),
    }


def _uses(random: Random, _: Shapes) -> Arguments:
    """Of a fleet of 1,600 hundredths, 64 CPUs and 256,000 MB, in a window of 1,000 seconds."""
    return {
        "held": {
            namespace: Held(
                hundredths=random.choice((0, 40_000, 400_000)),
                cpu_milli=random.choice((0, 0, 20_000_000)),
                memory_mb=random.choice((0, 0, 100_000_000)),
            )
            for namespace in NAMESPACES
            if random.random() < 0.7
        }
    }


def _which(random: Random, _: Shapes) -> Arguments:
    return {"which": random.randrange(8)}


def _nothing(_: Random, __: Shapes) -> Arguments:
    return {}


# How often each rule is drawn, and with what.
RULES: Final[dict[str, tuple[int, Draw]]] = {
    "node_seen": (1, lambda r, _: {"number": r.randrange(NODES), "kind": r.randrange(8)}),
    "device_seen": (
        2,
        lambda r, _: {
            "place": r.randrange(PLACES),
            "reading": r.randrange(len(READINGS)),
            "trouble": r.randrange(16),
        },
    ),
    "device_well": (3, lambda r, _: {"place": r.randrange(PLACES)}),
    "gone": (1, lambda r, _: {"place": r.randrange(PLACES), "is_node": r.random() < 0.5}),
    "settle": (1, lambda r, _: {"which": r.randrange(16)}),
    "request": (6, _requests),
    "quota": (
        1,
        lambda r, _: {
            "namespace": r.choice(NAMESPACES),
            "limit": r.choice((None, None, 0, 50, 100, 250, 300, 600)),
            "guaranteed": r.choice((0, 100, 250, 400, 800)),
            "weight": r.choice((1, 1, 2, 5)),
        },
    ),
    "used": (1, _uses),
    "change": (2, lambda r, s: {"which": r.randrange(8), "request": draw_request(r, s)}),
    "cancel": (2, _which),
    "lease_ends": (3, lambda r, _: {"which": r.randrange(8), "confirmed": r.random() < 0.8}),
    "lease_changes": (
        1,
        lambda r, _: {
            "which": r.randrange(8),
            "ends_in_seconds": r.choice((None, 5, 30, 90, 700)),
        },
    ),
    "confirmed": (2, _which),
    "time_passes": (2, lambda r, _: {"seconds": r.choice((1, 7, 7, 20, 61, 400))}),
    "decide": (2, _nothing),
    "what_if": (
        2,
        lambda r, s: {
            "which": r.randrange(8),
            "request": draw_request(r, s),
            "comes": r.random() < 0.5,
            "undecided_seconds": r.choice((None, None, 0, 1, 7, 61)),
            "namespace": r.choice(("", *NAMESPACES)),
        },
    ),
    "explain": (1, _which),
    "suggestion": (1, lambda r, _: {"which": r.randrange(8), "decided": r.random() < 0.5}),
    "keyframe": (1, _nothing),
    "learn": (1, _nothing),
}
OF_THE_FLEET: Final = {"node_seen", "device_seen", "device_well", "gone", "settle", "confirmed"}


def draw_history(seed: int, length: int) -> History:
    """A fleet, and so many steps of what happens to it and is asked; some will not apply."""
    random = Random(seed)
    # What mixes everything hides much: in some histories little but requests and leases comes and
    # goes, on few nodes, and each has less of some rules and more of others.
    is_calm = random.random() < 0.5
    nodes = random.randint(1, 2) if is_calm else random.randint(2, NODES)
    fleet = {
        "sizes": [random.randint(1, PER_NODE) for _ in range(nodes)],
        "complete": random.random() < 0.5 and not is_calm,
        "aging_seconds": random.choice(AGINGS),
        "density": random.random() < 0.5,
    }
    shapes = draw_shapes(random, plain=is_calm)
    weights = [
        often * random.choice((0.2, 1, 1, 4)) * (name not in OF_THE_FLEET or not is_calm)
        for name, (often, _) in RULES.items()
    ]
    names = random.choices(list(RULES), weights, k=length)
    return [("fleet", fleet), *((name, RULES[name][1](random, shapes)) for name in names)]


def carry_out(history: History) -> EngineMachine:
    """Raises AssertionError, or whatever the engine does, where a rule is broken."""
    machine = EngineMachine(**history[0][1])
    for name, arguments in history[1:]:
        getattr(machine, name)(**arguments)
    machine.end()
    return machine


def check(seed: int, length: int) -> EngineMachine:
    """Carry one history out; one that breaks a rule is told by its smallest part that does."""
    history = draw_history(seed, length)
    try:
        return carry_out(history)
    except Exception as error:
        smallest = shrunk(history, error)
        steps = "".join(f"  {name}({arguments})\n" for name, arguments in smallest)
        sys.stdout.write(f"history {seed}, as far as it takes to break the rule:\n{steps}")
        carry_out(smallest)
        raise


def shrunk(history: History, error: Exception) -> History:
    """Without the steps that it does not take to break the rule at the same place."""
    began, broken = process_time(), _place(error)
    size = len(history) // 2
    while size and process_time() - began < SHRINKING_SECONDS:
        at = 1
        while at < len(history):
            shorter = history[:at] + history[at + size :]
            if _breaks(shorter) == broken:
                history = shorter
            else:
                at += size
        size //= 2
    return history


def _breaks(history: History) -> tuple[str, int] | None:
    try:
        carry_out(history)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is compared
        return _place(error)
    return None


def _place(error: BaseException) -> tuple[str, int]:
    """Where it was raised: the last line of the machine that led there."""
    traceback, found = error.__traceback__, ("", 0)
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == sys.modules[EngineMachine.__module__].__file__:
            found = (type(error).__name__, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found
