"""Containers by the cgroups of their processes."""

import pytest

from services.telemetry.host.cgroup import container_of, pod_of

ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
POD = "kubepods-burstable-pod12345678_9abc_def0_1234_56789abcdef0.slice"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(f"0::/system.slice/docker-{ID}.scope\n", ID, id="Docker with systemd"),
        pytest.param(f"12:memory:/docker/{ID}\n11:cpu:/docker/{ID}\n", ID, id="Docker, cgroup v1"),
        pytest.param(
            f"0::/kubepods.slice/{POD}/cri-containerd-{ID}.scope\n", ID, id="containerd, systemd"
        ),
        pytest.param(f"0::/kubepods/besteffort/pod12/{ID}\n", ID, id="Kubernetes with cgroupfs"),
        pytest.param(
            f"0::/system.slice/containerd.service/{POD}:cri-containerd:{ID}\n",
            ID,
            id="containerd, cgroup path with colons",
        ),
        pytest.param(f"0::/kubepods.slice/{POD}/crio-{ID}.scope\n", ID, id="CRI-O"),
        pytest.param(
            f"0::/kubepods.slice/{POD}/crio-{ID}.scope/container\n", ID, id="below its scope"
        ),
        pytest.param(
            f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope\n",
            ID,
            id="Podman without root",
        ),
        pytest.param(f"1:name=systemd:/libpod_parent/libpod-{ID}\n", ID, id="Podman, cgroupfs"),
        pytest.param(
            f"0::/machine.slice/libpod-conmon-{ID}.scope\n", None, id="a container's monitor"
        ),
        pytest.param(f"0::/docker/{OTHER}/docker/{ID}\n", ID, id="a container in a container"),
        pytest.param("0::/user.slice/user-0.slice/session-3.scope\n", None, id="no container"),
        pytest.param("0::/../../session-3.scope\n", None, id="hidden by a namespace"),
        pytest.param("", None, id="unreadable"),
    ],
)
def test_a_container_is_known_by_its_cgroup(text: str, want: str | None) -> None:
    assert container_of(text) == want


UID = "12345678-9abc-def0-1234-56789abcdef0"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(f"0::/kubepods.slice/{POD}/cri-containerd-{ID}.scope\n", UID, id="systemd"),
        pytest.param(f"11:cpu:/kubepods/burstable/pod{UID}/{ID}\n", UID, id="cgroupfs"),
        pytest.param(f"0::/kubepods/pod{UID}/{ID}\n", UID, id="guaranteed"),
        pytest.param(
            f"0::/system.slice/containerd.service/{POD}:cri-containerd:{ID}\n", UID, id="colons"
        ),
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{'ab' * 16}.slice/crio-{ID}.scope\n",
            "ab" * 16,
            id="a static pod",
        ),
        pytest.param(
            f"0::/kubelet/kubepods/pod{OTHER[:8]}-0000-0000-0000-000000000000/{POD}/{ID}\n",
            UID,
            id="a cluster in a pod",
        ),
        pytest.param(f"0::/system.slice/podman-{ID}.scope\n", None, id="no pod"),
        pytest.param("0::/../..\n", None, id="hidden by a namespace"),
    ],
)
def test_a_pod_is_known_by_its_cgroup(text: str, want: str | None) -> None:
    assert pod_of(text) == want
