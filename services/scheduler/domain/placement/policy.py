"""The decision engine's parameters, with their defaults."""

from msgspec import Struct

from services.scheduler.domain.placement.placement import Weights


class Policy(Struct, frozen=True, kw_only=True):
    """How waiting requests are ranked and when running ones give way.

    Waiting `aging_seconds` raises a request's effective priority by one. As all requests age alike,
    a request is overtaken only by those that come less than `aging_seconds` per point of their
    higher priority after it: with priorities from -1000 to 1000, none that comes later than 2000
    times that is ever served before it. 0 turns aging off, and the bound with it.

    Shares are whole multiples of `share_quantum` hundredths of a device.

    With `density`, `pack` places by what is usually requested (placement/density.py) instead of on
    the fullest node.

    Where several namespaces wait, what they held counts, half as much after each
    `use_half_life_seconds`.

    A preempted reservation has `preemption_grace_seconds` to stop by itself.
    """

    weights: Weights = Weights()
    aging_seconds: float = 60.0
    preemption: bool = True
    preemption_grace_seconds: float = 30.0
    share_quantum: int = 1
    density: bool = False
    use_half_life_seconds: float = 3600.0
