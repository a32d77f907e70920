"""What may pass between nodes: encrypted alone, unless the operator says why not."""

from typing import Final

from schemas.errors import ErrorCode
from schemas.executor.attempts import StartExperiment
from schemas.task.benchmark import BenchmarkTool
from shared.errors import RefusedError
from shared.host_header import is_loopback

TLS: Final = "tls"
ALLOW_PLAINTEXT: Final = (
    "or, where the network between the nodes encrypts, as WireGuard of Cilium or Calico does, set "
    "GPUSTEWARD_EXECUTOR_ENGINE_TRAFFIC=network-encrypted; with `plaintext` whoever sees that "
    "network reads prompts and answers"
)


def check_cluster_traffic(
    command: StartExperiment, traffic: str, access: str, tool: BenchmarkTool
) -> None:
    """Raises RefusedError for an engine in a cluster of which something would be plain text."""
    if traffic != TLS:
        return
    if command.cluster is not None and command.cluster.other_nodes:
        raise _ranks_refused()
    # Its certificate has the name of its Service: other tools would look for the address in it.
    if access != "service" and tool is not BenchmarkTool.BUILTIN:
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            f"{tool.value} cannot verify an engine that is reached by an address: take tool "
            "'builtin', or let this executor reach engines by their Service "
            f"(GPUSTEWARD_EXECUTOR_CLUSTER_ACCESS), {ALLOW_PLAINTEXT}",
            path="$.benchmark.tool",
        )


def check_rank_traffic(traffic: str, address: str | None) -> None:
    """Raises RefusedError for one of several ranks, where other nodes reach this one at `address`
    beyond loopback.
    """
    if traffic == TLS and address is not None and not is_loopback(address):
        raise _ranks_refused()


def _ranks_refused() -> RefusedError:
    return RefusedError(
        ErrorCode.UNSUPPORTED,
        "expected an engine on one node: the ranks of one over several talk to each other "
        f"unencrypted, which no engine changes. Ask for GPUs of one node, {ALLOW_PLAINTEXT}",
        path="$.parallel_config",
    )
