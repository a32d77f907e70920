"""What is usually requested: learned outside, given to the engine, and recorded with its inputs."""

from msgspec import Struct


class DemandClass(Struct, frozen=True, kw_only=True, order=True, cache_hash=True):
    """Requests that take the same of a node. Less than 100 `hundredths` are a part of one GPU, more
    are whole GPUs.
    """

    hundredths: int
    cpu_milli: int = 0
    memory_mb: int = 0
    gpu_models: tuple[str, ...] = ()


class Demand(Struct, frozen=True, kw_only=True):
    """Classes with their weights."""

    classes: tuple[tuple[DemandClass, int], ...] = ()
