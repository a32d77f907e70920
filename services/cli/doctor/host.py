"""The machine and its system: what everything else stands on."""

import ctypes
import importlib.metadata
import os
import platform
import re
import resource
import sys
from typing import Final

import psutil

from services.cli.doctor.check import CheckResult, Probe, error, not_applicable, ok, warn
from services.cli.doctor.host_facts import HostFacts
from shared.benchmarks.verdicts.run_settings import POWERSAVE

GIBIBYTE: Final = 1 << 30
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  # only its size is read
ENOUGH_MEMORY_GIB: Final = 4
ENOUGH_SHARED_MEMORY_GIB: Final = 1
ENOUGH_OPEN_FILES: Final = 4096
MIN_PYTHON: Final = (3, 11)
MIN_KERNEL: Final = (5, 3)  # pidfd_open, by which ends of processes are noticed at once
CONTROLLERS: Final = ("cpu", "memory", "pids")
TIMEX_BYTES: Final = 512  # more than the kernel's struct timex has
TIMEX_STATUS: Final = slice(40, 44)  # timex.h, 64 bits: modes, offset, freq, maxerror, esterror
STATUS_UNSYNCHRONISED: Final = 0x40


def operating_system(facts: HostFacts) -> CheckResult:
    release = facts.text("/etc/os-release") or ""
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', release, re.MULTILINE)
    kernel = platform.release()
    summary = f"{match[1] if match else platform.system()}, kernel {kernel}, {platform.machine()}"
    if platform.system() != "Linux":
        return error(summary, "run GPU Steward on Linux; there is no other system with its GPUs")
    numbers = re.match(r"(\d+)\.(\d+)", kernel)
    if numbers and (int(numbers[1]), int(numbers[2])) < MIN_KERNEL:
        return warn(summary, f"use kernel {MIN_KERNEL[0]}.{MIN_KERNEL[1]} or newer")
    return ok(summary)


def python(_: HostFacts) -> CheckResult:
    try:
        own_version = importlib.metadata.version("gpusteward")
    except importlib.metadata.PackageNotFoundError:
        own_version = "not installed as a package"
    summary = f"Python {platform.python_version()} at {sys.executable}, GPU Steward {own_version}"
    if sys.version_info < MIN_PYTHON:
        return error(summary, "install Python 3.11 or newer: `uv python install 3.11`")
    return ok(summary)


def memory(_: HostFacts) -> CheckResult:
    virtual_memory = psutil.virtual_memory()
    total, free = virtual_memory.total / GIBIBYTE, virtual_memory.available / GIBIBYTE
    summary = f"{free:.1f} GiB of {total:.1f} GiB available"
    if free < ENOUGH_MEMORY_GIB:
        return warn(summary, "`ps aux --sort=-rss | head` shows what takes it")
    return ok(summary)


def shared_memory(facts: HostFacts) -> CheckResult:
    try:
        filesystem = os.statvfs(facts.path(SHARED_MEMORY))
    except OSError as failure:
        return warn(
            f"{SHARED_MEMORY}: {failure.strerror}", f"`sudo mount -t tmpfs tmpfs {SHARED_MEMORY}`"
        )
    size = filesystem.f_frsize * filesystem.f_blocks / GIBIBYTE
    if size < ENOUGH_SHARED_MEMORY_GIB:
        return warn(
            f"{SHARED_MEMORY} has {size:.2f} GiB",
            f"`sudo mount -o remount,size=16G {SHARED_MEMORY}`; a container is started with "
            "`--shm-size=16g`",
        )
    return ok(f"{SHARED_MEMORY} has {size:.1f} GiB")


def cgroups(facts: HostFacts) -> CheckResult:
    available = (facts.text("/sys/fs/cgroup/cgroup.controllers") or "").split()
    if set(CONTROLLERS) <= set(available):
        version, places = "version 2", [_own_cgroup(facts)]
    else:
        places = [f"/sys/fs/cgroup/{name}" for name in CONTROLLERS]
        if not all(facts.path(place).is_dir() for place in places):
            return warn(
                "no control group of memory, cpu and pids",
                "mount them: `sudo mount -t cgroup2 none /sys/fs/cgroup`",
            )
        version = "version 1"
    if all(os.access(facts.path(place), os.W_OK) for place in places):
        return ok(f"{version}, writable")
    return warn(
        f"{version}, not writable by this user",
        "run the agent as root, or `systemd-run --user --scope -p Delegate=yes gpusteward agent "
        "...`; without it memory and processor limits of engines are not enforced",
    )


def _own_cgroup(facts: HostFacts) -> str:
    match = re.search(r"^0::(/.*)$", facts.text("/proc/self/cgroup") or "", re.MULTILINE)
    if os.geteuid() == 0 or match is None:
        return "/sys/fs/cgroup"
    return f"/sys/fs/cgroup{match[1]}"


def open_files(_: HostFacts) -> CheckResult:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < ENOUGH_OPEN_FILES:
        return warn(
            f"{soft} at once, at most {_limit(hard)}",
            f"`ulimit -n {_limit(hard)}` before the start, or LimitNOFILE=65536 in its unit",
        )
    return ok(f"{_limit(soft)} at once")


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def clock(_: HostFacts) -> CheckResult:
    if platform.system() != "Linux" or sys.maxsize < 1 << 32:
        return not_applicable("only Linux tells whether its clock is kept right")
    timex = ctypes.create_string_buffer(TIMEX_BYTES)  # modes 0: nothing is changed
    if ctypes.CDLL(None, use_errno=True).adjtimex(timex) < 0:
        return warn("the kernel does not say", "`timedatectl` may")
    status = int.from_bytes(timex.raw[TIMEX_STATUS], sys.byteorder)
    if status & STATUS_UNSYNCHRONISED:
        return warn(
            "not synchronised with any time server",
            "`sudo timedatectl set-ntp true`, or install chrony; a virtual machine may follow its "
            "host's clock unknown to the kernel",
        )
    return ok("synchronised")


def cpu_governor(facts: HostFacts) -> CheckResult:
    directory = facts.path("/sys/devices/system/cpu")
    places = sorted(directory.glob("cpu[0-9]*/cpufreq/scaling_governor"))
    governors = sorted({place.read_text(encoding="utf-8").strip() for place in places})
    if not governors:
        return not_applicable("the kernel names no governor, as in most virtual machines")
    if POWERSAVE in governors:
        return warn(
            f"{', '.join(governors)}: times to the first token may be longer than the engine's",
            "`sudo cpupower frequency-set -g performance`",
        )
    return ok(", ".join(governors))


PROBES: Final = (
    Probe(
        name="system",
        why="engines, drivers and containers need a Linux kernel",
        inspect=operating_system,
        needed=True,
    ),
    Probe(name="python", why="GPU Steward runs in it", inspect=python, needed=True),
    Probe(
        name="memory",
        why="the platform takes 1 GiB, an engine as much as its model",
        inspect=memory,
    ),
    Probe(
        name="shared-memory",
        why="engines on several GPUs exchange data there (NCCL)",
        inspect=shared_memory,
    ),
    Probe(
        name="cgroups", why="limits of engines that are processes are set there", inspect=cgroups
    ),
    Probe(
        name="open-files",
        why="every connection and log of platform and benchmark is one",
        inspect=open_files,
    ),
    Probe(
        name="CPU governor",
        why="processors that save power lengthen the times of engines and load tools",
        inspect=cpu_governor,
    ),
    Probe(
        name="clock",
        why="samples and measurements of several nodes are joined by their times",
        inspect=clock,
    ),
)
