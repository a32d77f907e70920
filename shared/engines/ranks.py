"""The flags that make an engine one rank of several nodes."""

from collections.abc import Callable, Mapping
from typing import Any

# (rank, size, leader_address, leader_port) -> parameters; rank 0 answers HTTP.
RankFlags = Callable[[int | str, int, str, int], Mapping[str, Any]]


def meeting_ranks(rank: int | str, size: int, address: str, port: int) -> Mapping[str, Any]:
    """Return the flags of `sglang.launch_server --help`, where ranks meet at one address."""
    host = f"[{address}]" if ":" in address else address
    return {"nnodes": size, "node-rank": rank, "dist-init-addr": f"{host}:{port}"}
