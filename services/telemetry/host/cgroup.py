"""Which container and pod a process runs in, from the text of its /proc/PID/cgroup."""

import re
from collections.abc import Iterator
from typing import Final

# Docker: /docker/ID, docker-ID.scope. containerd: cri-containerd-ID.scope, or ID after a colon in
# pod:cri-containerd:ID. CRI-O: crio-ID.scope. Podman: libpod-ID.scope, or /libpod_parent/libpod-ID.
# Kubernetes with cgroupfs: /kubepods/besteffort/podUID/ID. CRI-O and Podman put their monitors into
# crio-conmon-ID and libpod-conmon-ID, which are not the container.
_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=$|/)")
_MONITOR: Final = "-conmon-"
# With systemd the dashes of a pod's UID are underscores. A static pod's is a hash without any.
_POD = re.compile(
    r"[/-]pod([0-9a-f]{32}|[0-9a-f]{8}(?:[_-][0-9a-f]{4}){3}[_-][0-9a-f]{12})(?=[./]|$)"
)


def container_of(cgroup: str) -> str | None:
    """The 64 hexadecimal digits of the container's id; None outside of containers.

    The innermost container counts where one runs inside another. Paths that the process's own
    cgroup namespace hides give nothing.
    """
    for path in _paths(cgroup):
        matches = [match for match in _ID.finditer(path) if _MONITOR not in _before(path, match)]
        if matches:
            return matches[-1].group(1)
    return None


def pod_of(cgroup: str) -> str | None:
    """The UID of the innermost Kubernetes pod; None outside of pods."""
    for path in _paths(cgroup):
        if matches := _POD.findall(path):
            return str(matches[-1]).replace("_", "-")
    return None


def _paths(cgroup: str) -> Iterator[str]:
    for line in cgroup.splitlines():
        yield line.split(":", 2)[-1]  # hierarchy:controllers:path, and a path may have colons


def _before(path: str, match: re.Match[str]) -> str:
    """The path's component in which an id was found, as far as the id."""
    return path[: match.start(1)].rpartition("/")[2]
