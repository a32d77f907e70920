"""A host of its own under systemd, without a container engine: namespaces over a copy of this one.

What is written there lies in an overlay, which lasts from one boot to the next. It has no network
but its loopback, and nothing outside its files is changed.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.testing import eventually

SYSTEMD: Final = Path("/usr/lib/systemd/systemd")
BOOT_SECONDS: Final = 60
COMMAND_SECONDS: Final = 120
# Of this host, and nothing of the test.
MASKED: Final = (
    *("docker.service", "docker.socket", "containerd.service", "prometheus.service"),
    *("postgresql.service", "console-getty.service", "systemd-networkd.service"),
)
# $1 is the overlay's directory. /dev, /run and the control groups are the new host's own.
_BOOT: Final = """
set -e
ip link set lo up
mount --make-rprivate /
mkdir -p "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
cd "$1/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs dev
for name in null zero full random urandom tty; do
    touch "dev/$name"
    mount --bind "/dev/$name" "dev/$name"
done
mkdir dev/shm dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs run
mkdir -p old
pivot_root . old
umount -l old
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    /usr/lib/systemd/systemd --unit=multi-user.target --log-target=null
"""
_NAMESPACES: Final = ("--mount", "--pid", "--uts", "--ipc", "--cgroup", "--net")


def missing() -> str | None:
    """Return what such a host needs and this one lacks; None where it has all."""
    if os.geteuid() != 0:
        return "needs root: it mounts"
    programs = ("unshare", "nsenter", "pivot_root", "ip", "systemctl")
    absent = [name for name in programs if shutil.which(name) is None]
    absent += [] if SYSTEMD.exists() else [str(SYSTEMD)]
    if absent:
        return f"needs {', '.join(absent)}"
    # An overlay on an overlay, as in a container, is refused by the kernel.
    tried = subprocess.run(
        ["unshare", *_NAMESPACES, "--fork", "mount", "-t", "cgroup2", "cgroup2", "/mnt"],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    return None if tried.returncode == 0 else f"needs to mount: {tried.stderr.strip()}"


@dataclass(slots=True)
class BootedHost:
    """`directory` keeps what the host writes, also while it is off."""

    directory: Path
    _process: "subprocess.Popen[bytes] | None" = None

    async def boot(self) -> None:
        """Start it, and wait until its units have started."""
        self._launch()
        await eventually(self._is_up, within_seconds=BOOT_SECONDS, what="a booted host")

    def _launch(self) -> None:
        units = self.directory / "upper" / "etc" / "systemd" / "system"
        units.mkdir(parents=True, exist_ok=True)
        for name in MASKED:
            if not (units / name).is_symlink():
                (units / name).symlink_to("/dev/null")
        self._process = subprocess.Popen(
            [
                *("unshare", *_NAMESPACES, "--fork", "--kill-child=SIGKILL"),
                *("bash", "-c", _BOOT, "boot", str(self.directory)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def power_off(self) -> None:
        """End it at once, as a power cut does."""
        if self._process is not None:
            self._process.kill()  # its first process, and with it all others, dies with it
            self._process.wait()
            self._process = None

    def run(self, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        """Run a command there, as root."""
        return subprocess.run(
            ["nsenter", *self._entrance(), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def open_to_all_users(self, *paths: Path) -> None:
        """Let every user of that host pass the directories above these paths."""
        above = {parent for path in paths for parent in path.resolve().parents}
        self.run("chmod", "o+x", *sorted(above))

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "it did not boot"
        state = self.run("systemctl", "is-system-running").stdout.strip()
        return state in {"running", "degraded"}

    def _entrance(self) -> list[str]:
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return ["--target", children[0] if children else "0", *_NAMESPACES]


@contextmanager
def host_in(directory: Path) -> Iterator[BootedHost]:
    """Yield a host that is off, and is off again at the end."""
    host = BootedHost(directory)
    try:
        yield host
    finally:
        host.power_off()
