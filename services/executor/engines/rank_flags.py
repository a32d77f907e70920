"""The flags that make an engine one rank of several nodes.

vLLM: `vllm serve --help`, "multi-node" (nnodes, node-rank, master-addr, master-port, headless).
SGLang: `sglang.launch_server --help` (nnodes, node-rank, dist-init-addr).
"""

from collections.abc import Callable, Mapping
from typing import Any

# (rank, size, leader_address, leader_port) -> parameters; rank 0 answers HTTP.
RankFlags = Callable[[int, int, str, int], Mapping[str, Any]]


def vllm_ranks(rank: int, size: int, address: str, port: int) -> Mapping[str, Any]:
    headless = {"headless": True} if rank else {}
    return {
        "nnodes": size,
        "node-rank": rank,
        "master-addr": address,
        "master-port": port,
        **headless,
    }


def meeting_ranks(rank: int, size: int, address: str, port: int) -> Mapping[str, Any]:
    """SGLang's, which the simulated engine understands too."""
    host = f"[{address}]" if ":" in address else address
    return {"nnodes": size, "node-rank": rank, "dist-init-addr": f"{host}:{port}"}
