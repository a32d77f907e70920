"""What is done about a failed attempt, by the kind of its failure."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from schemas.executor.attempts import FailureKind


class FailureRule(Struct, frozen=True, kw_only=True):
    """`retries` is how often an experiment may be repeated for this kind of failure.

    `elsewhere`: on a node on which it has not failed so yet, as long as the fleet has one. `hint`
    is the sentence for people, where nothing more exact is known.
    """

    retries: int
    elsewhere: bool
    hint: str


def _never(hint: str) -> FailureRule:
    return FailureRule(retries=0, elsewhere=False, hint=hint)


def _here(retries: int, hint: str) -> FailureRule:
    return FailureRule(retries=retries, elsewhere=False, hint=hint)


def _elsewhere(retries: int, hint: str) -> FailureRule:
    return FailureRule(retries=retries, elsewhere=True, hint=hint)


# Repeated is what a second try may change: a network, a port, another node's hardware or disk.
# What the task itself asks for, or its model needs, fails the same way everywhere and every time.
RULES: Final[Mapping[FailureKind, FailureRule]] = {
    FailureKind.ENGINE_MISSING: _never(
        "the engine cannot be started on that node: `gpusteward doctor` there says what is missing"
    ),
    FailureKind.BAD_PARAMETER: _never(
        "the engine does not take these parameters: correct them in the task file, "
        "`gpusteward validate FILE` checks those that are known"
    ),
    FailureKind.MODEL_MISSING: _elsewhere(
        1,
        "the model is not on that node: check its id or path, that the path lies below the node's "
        "model roots, and the access token of a gated model",
    ),
    FailureKind.SECRET_MISSING: _never(
        "a secret that the task names cannot be given to its engine: `gpusteward secret list` has "
        "those of its namespace, `gpusteward secret set NAME` sets one"
    ),
    FailureKind.RUNTIME_UNAVAILABLE: _elsewhere(
        2,
        "the node's container engine does not answer: `gpusteward doctor` there says why, "
        "`sudo systemctl restart docker` often helps",
    ),
    FailureKind.IMAGE_MISSING: _never(
        "there is no such image: check its name and tag with `docker pull IMAGE`"
    ),
    FailureKind.IMAGE_PULL_FAILED: _here(
        2,
        "the image could not be fetched: check the node's network and proxy, or fetch it "
        "beforehand with `docker pull IMAGE`",
    ),
    FailureKind.GPU_UNAVAILABLE: _elsewhere(
        1,
        "the engine did not get its GPUs: `gpusteward doctor` on that node checks the driver and "
        "the container toolkit, `nvidia-smi` shows what else uses them",
    ),
    FailureKind.ENGINE_EXITED: _never(
        "the engine ended by itself: the last lines of its log say why, "
        "`gpusteward doctor --explain FILE` maps a log to the known causes"
    ),
    FailureKind.OUT_OF_MEMORY: _never(
        "the host or the container had no memory left: allow it more, or ask for less with a "
        "smaller model, fewer parallel requests or less CPU offloading"
    ),
    FailureKind.GPU_OUT_OF_MEMORY: _never(
        "the model and its cache do not fit into the GPU's memory: use more GPUs "
        "(tensor-parallel-size), a shorter context, a quantized model or a smaller batch"
    ),
    FailureKind.CUDA_ERROR: _elsewhere(
        1,
        "a GPU or its driver failed: `nvidia-smi` and `sudo dmesg | grep -i xid` on that node tell "
        "a broken GPU from a faulty kernel; `gpusteward cordon NODE` keeps others off it",
    ),
    FailureKind.PORT_TAKEN: _here(
        3, "another program took the engine's port: `ss -ltnp` on that node shows which"
    ),
    FailureKind.POWER_LIMIT_REFUSED: _elsewhere(
        1,
        "the GPU's power limit could not be set: its agent says why; setting it takes root on that "
        "node, and a value that `gpusteward gpus` and the driver allow for the model",
    ),
    FailureKind.SM_CLOCK_REFUSED: _elsewhere(
        1,
        "the GPU's clock could not be locked: its agent says why; locking it takes root on that "
        "node, and a clock of `nvidia-smi --query-supported-clocks=graphics --format=csv` there",
    ),
    FailureKind.DISK_FULL: _elsewhere(
        1,
        "a disk of that node is full: `df -h` shows which, `docker system df` what images take",
    ),
    FailureKind.READINESS_TIMEOUT: _never(
        "the engine did not become ready in time: its log says how far it came; a large model on a "
        "slow disk needs a longer GPUSTEWARD_EXECUTOR_READINESS_TIMEOUT_SECONDS on the node"
    ),
    # Of a node's CPUs, memory and models the choice knows nothing.
    FailureKind.UNSCHEDULABLE: _elsewhere(
        1,
        "the cluster found no node for the engine's pod in time: `gpusteward cluster` shows "
        "what its nodes have free, `kubectl describe pod` in the namespace what holds it",
    ),
    FailureKind.PARAMETERS_NOT_APPLIED: _never(
        "the cluster started the engine otherwise than it was asked to, so that a measurement "
        "would be another configuration's: look for accelerator overrides of an AcceleratorClass, "
        "webhooks or policies that rewrite pods, and exempt this namespace from them"
    ),
    FailureKind.RANK_FAILED: _elsewhere(
        1,
        "one part of an engine that spans several GPUs or nodes failed, so all were stopped: check "
        "that the nodes reach each other and that NCCL_SOCKET_IFNAME names the right interface",
    ),
    FailureKind.NODE_LOST: _elsewhere(
        2,
        "the node does not answer any more: check that it runs and that its agent reaches the "
        "platform, `gpusteward nodes` shows when it was last heard",
    ),
    FailureKind.BENCHMARK_FAILED: _never(
        "the engine ran, but too few requests succeeded or the benchmark tool gave up: the error "
        "codes say why; fewer concurrent requests are a first test"
    ),
    FailureKind.TIMEOUT: _never(
        "the attempt took longer than the task allows: raise `timeout_per_iteration`, or measure "
        "fewer levels with fewer requests"
    ),
    FailureKind.LEASE_LOST: _here(
        4,
        "the executor could not keep its reservation, so it stopped the engine before the GPUs "
        "could be given to others: check that the node reaches the platform",
    ),
    FailureKind.EXECUTOR_RESTARTED: _here(
        4,
        "the node's executor ended while the experiment ran; it says nothing about the experiment",
    ),
    FailureKind.CANCELLED: _never("somebody, or the task's own end, cancelled it"),
    FailureKind.INTERNAL: _here(
        1, "this is a fault of GPU Steward: the service's log has the whole story, please report it"
    ),
}
