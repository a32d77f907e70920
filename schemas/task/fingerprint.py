"""What a measurement was made with, beside its GPUs: the host, and the engine's own word."""

from msgspec import Struct

from schemas.base import Count, Seconds


class LoadHost(Struct, frozen=True, kw_only=True):
    """The host that sent the load; of an engine in a process or a container the engine's too.

    `cpu_governor` is of its processors, several with commas between them; `numa_nodes` as in 0-1.
    Empty, and None: the kernel does not say.
    """

    cpu_model: str = ""
    cpu_governor: str = ""
    cpu_count: Count | None = None
    numa_nodes: str = ""


class EngineFacts(Struct, frozen=True, kw_only=True):
    """What an engine says of itself: its version, and the arguments that it runs with."""

    version: str = ""
    arguments: dict[str, str] = {}


class Canary(Struct, frozen=True, kw_only=True):
    """What the load tool measured, on the host that sent the load, of a server of known times:
    means beside the truth.
    """

    true_ttft_seconds: Seconds
    ttft_seconds: Seconds
    true_tpot_seconds: Seconds
    tpot_seconds: Seconds

    @property
    def error_share(self) -> float:
        """Return the larger of both errors, as a share of the truth."""
        return max(
            abs(self.ttft_seconds / self.true_ttft_seconds - 1),
            abs(self.tpot_seconds / self.true_tpot_seconds - 1),
        )
