"""Which container a process runs in, from the text of its /proc/PID/cgroup."""

import re
from typing import Final

# Docker: /docker/ID, docker-ID.scope. containerd: cri-containerd-ID.scope, or ID after a colon in
# pod:cri-containerd:ID. CRI-O: crio-ID.scope. Podman: libpod-ID.scope, or /libpod_parent/libpod-ID.
# Kubernetes with cgroupfs: /kubepods/besteffort/podUID/ID. CRI-O and Podman put their monitors into
# crio-conmon-ID and libpod-conmon-ID, which are not the container.
_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=$|/)")
_MONITOR: Final = "-conmon-"


def container_of(cgroup: str) -> str | None:
    """The 64 hexadecimal digits of the container's id; None outside of containers.

    The innermost container counts where one runs inside another. Paths that the process's own
    cgroup namespace hides give nothing.
    """
    for line in cgroup.splitlines():
        path = line.rpartition(":")[2] if line.startswith("0::") else line.partition(":")[2]
        found = [match for match in _ID.finditer(path) if _MONITOR not in _before(path, match)]
        if found:
            return found[-1].group(1)
    return None


def _before(path: str, match: re.Match[str]) -> str:
    """The path's component in which an id was found, as far as the id."""
    return path[: match.start(1)].rpartition("/")[2]
