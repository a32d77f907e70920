"""Kubelet's answers of PodResourcesLister, from the wire form of protocol buffers.

The messages are those of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto; what is not read here
is passed over, as the format asks of old readers.
"""

from collections.abc import Iterator
from typing import Final

from schemas.telemetry.readings import GpuPod
from services.telemetry.domain.pods import ClaimedDevice, PodDevices

_VARINT: Final = 0
_BYTES: Final = 2
_FIXED: Final = {1: 8, 5: 4}  # the widths of the other two kinds, in bytes


def pods_of(answer: bytes) -> tuple[PodDevices, ...]:
    """Decode every container that was given devices. Raises ValueError for what is no such
    answer.
    """
    return tuple(container for pod in _all(answer, 1) for container in _containers(pod))


def allocatable_of(answer: bytes) -> tuple[tuple[str, str], ...]:
    """Return every id that plugins registered, after its resource; raise as `pods_of` does."""
    return tuple(_ids(answer, 1))


def _ids(message: bytes, number: int) -> Iterator[tuple[str, str]]:
    for devices in _all(message, number):
        resource = _text(devices, 1)
        for device_id in _all(devices, 2):
            yield resource, device_id.decode()


def _containers(pod: bytes) -> Iterator[PodDevices]:
    name, namespace = _text(pod, 1), _text(pod, 2)
    for container in _all(pod, 3):
        ids = tuple(_ids(container, 2))
        pod_devices = PodDevices(
            pod=GpuPod(namespace, name, _text(container, 1)),
            device_ids=tuple(device_id for _, device_id in ids),
            resources=tuple(resource for resource, _ in ids),
            claimed=tuple(
                ClaimedDevice(_text(device, 2), _text(device, 3), _text(device, 4))
                for claim in _all(container, 5)
                for device in _all(claim, 4)
            ),
        )
        if pod_devices.device_ids or pod_devices.claimed:
            yield pod_devices


def _text(message: bytes, number: int) -> str:
    """Decode a text: of a repeated field the last counts; a missing one is empty."""
    return b"".join(list(_all(message, number))[-1:]).decode()


def _all(message: bytes, number: int) -> Iterator[bytes]:
    """The strings or messages in a field."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            _, at = _varint(message, at)
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise ValueError(f"expected a kind of field, found {kind}")
        if at + length > len(message):
            raise ValueError("expected the whole message, found it cut off")
        if kind == _BYTES and key >> 3 == number:
            yield message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where the next thing begins."""
    number = 0
    for position, byte in enumerate(message[at : at + 10]):
        number |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return number, at + position + 1
    raise ValueError("expected the end of a number, found none")
