"""A gRPC server in place of kubelet's PodResources, by another library than the agent's client."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

from services.telemetry.domain.pods import PodDevices

# Encoded by k8s.io/kubelet 0.34.4, in Go: three pods, of which two were given devices.
GOLDEN: Final = (Path(__file__).parent / "pod_resources.pb").read_bytes()


class FakeKubelet:
    """Answers with `answer`; with `hangs` set it does not."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.answer = b""
        self.allocatable = b""
        self.lists = 0
        self.hangs = threading.Event()
        self._goes_on = threading.Event()

    @contextmanager
    def serving(self) -> Iterator["FakeKubelet"]:
        self._goes_on.clear()
        with ThreadPoolExecutor(max_workers=4) as threads:
            server = grpc.server(threads)
            handlers = {
                "List": grpc.unary_unary_rpc_method_handler(self._list),
                "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(
                    lambda _, __: self.allocatable
                ),
            }
            server.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)]
            )
            server.add_insecure_port(f"unix:{self.socket}")
            server.start()
            try:
                yield self
            finally:
                self._goes_on.set()
                server.stop(None).wait()

    def _list(self, request: bytes, _: Any) -> bytes:
        assert request == b""
        self.lists += 1
        if self.hangs.is_set():
            self._goes_on.wait(30)
        return self.answer


def encoded(containers: Sequence[PodDevices]) -> bytes:
    """As kubelet encodes pods of one container each."""
    return b"".join(_bytes(1, _pod(each)) for each in containers)


def encoded_ids(ids: Sequence[tuple[str, str]], number: int = 1) -> bytes:
    """Encode ids of devices, each after its resource, as kubelet does."""
    return b"".join(
        _bytes(number, _bytes(1, resource.encode()) + _bytes(2, device_id.encode()))
        for resource, device_id in ids
    )


def _pod(given: PodDevices) -> bytes:
    resources = given.resources or ("nvidia.com/gpu",) * len(given.device_ids)
    devices = encoded_ids(tuple(zip(resources, given.device_ids, strict=True)), number=2)
    claims = b"".join(
        _bytes(4, b"".join(_bytes(2 + i, name.encode()) for i, name in enumerate(each)))
        for each in given.claimed
    )
    dynamic = _bytes(5, _bytes(2, b"claim") + claims) if claims else b""
    container = _bytes(1, given.pod.container.encode()) + devices + dynamic
    return (
        _bytes(1, given.pod.pod.encode())
        + _bytes(2, given.pod.namespace.encode())
        + _bytes(3, container)
    )


def _bytes(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(high) if high else bytes([low])
