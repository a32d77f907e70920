"""The container engine, and how containers get GPUs."""

import json
import os
import re
from pathlib import Path
from typing import Final

from services.cli.doctor.check import CheckResult, Probe, error, missing, not_applicable, ok, warn
from services.cli.doctor.docker_report import ADDRESS_VARIABLES, DockerReport
from services.cli.doctor.gpus import NO_NVIDIA
from services.cli.doctor.host_facts import HostFacts
from services.cli.doctor.program import run_program
from shared.failures import recognise

GIBIBYTE: Final = 1 << 30
ENOUGH_GIB: Final = 20
HOOK: Final = "nvidia-container-runtime-hook"
CDI_DIRECTORIES: Final = ("/etc/cdi", "/var/run/cdi")
START: Final = "`sudo systemctl start docker`; `sudo journalctl -u docker -n 50` if it ends again"
INSTALL_DOCKER: Final = (
    "`sudo apt-get install docker.io`, or Docker's own package; without it engines run as processes"
)
INSTALL_TOOLKIT: Final = (
    "install the package `nvidia-container-toolkit` (NVIDIA's repository), `sudo "
    "nvidia-ctk runtime configure --runtime=docker`, `sudo systemctl restart docker`"
)
UPGRADE_TOOLKIT: Final = "upgrade the package `nvidia-container-toolkit` from NVIDIA's repository"
MIN_TOOLKIT: Final = (1, 7, 0)  # accelerator guide, Prerequisites
GENERATE_CDI: Final = "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"


def docker_engine(facts: HostFacts) -> CheckResult:
    report = facts.docker.get()
    if report.error is not None:
        return _absent_engine(facts, report)
    driver = report.text("Driver") or "unknown"
    summary = (
        f"Docker {report.version.get('Version', 'of unknown version')} "
        f"(API {report.version.get('ApiVersion', '?')}) at {report.address}, storage {driver}, "
        f"cgroup {report.text('CgroupVersion') or '?'} by {report.text('CgroupDriver') or '?'}"
    )
    free = _free_gib(report.text("DockerRootDir"))
    if free is not None:
        summary = f"{summary}, {free:.0f} GiB free in {report.text('DockerRootDir')}"
    if driver == "vfs":
        return warn(
            summary,
            'vfs copies every layer of every image: {"storage-driver": "overlay2"} in '
            "/etc/docker/daemon.json and `sudo systemctl restart docker`",
        )
    if free is not None and free < ENOUGH_GIB:
        return warn(summary, "images of engines take 10 to 20 GiB each: `docker system prune -a`")
    return ok(summary)


def _absent_engine(facts: HostFacts, report: DockerReport) -> CheckResult:
    failure = f"{report.address}: {report.error}"
    is_chosen = any(facts.environment.get(name) for name in ADDRESS_VARIABLES)
    if "ermission denied" in failure:
        return error(
            failure,
            "`sudo usermod -aG docker $USER`, then log in again (members of that group are as good "
            "as root)",
        )
    user_socket = Path(facts.environment.get("XDG_RUNTIME_DIR") or "/nonexistent") / "docker.sock"
    if not is_chosen and user_socket.exists():
        return error(
            failure,
            f"this user has an engine of their own: `export DOCKER_HOST=unix://{user_socket}`",
        )
    if not is_chosen and facts.program("dockerd") is None:
        return missing("no Docker engine is installed", INSTALL_DOCKER)
    if is_chosen:
        return error(failure, f"DOCKER_HOST names no engine that answers: correct it, or {START}")
    known_failure = recognise(failure)
    return error(failure, known_failure.hint if known_failure is not None else START)


def _free_gib(directory: str) -> float | None:
    try:
        filesystem = os.statvfs(directory)
    except (OSError, ValueError):
        return None
    return filesystem.f_bavail * filesystem.f_frsize / GIBIBYTE


def container_toolkit(facts: HostFacts) -> CheckResult:
    tools = {name: facts.program(name) for name in ("nvidia-ctk", HOOK)}
    present_tools = {name: path for name, path in tools.items() if path is not None}
    if not present_tools:
        if not facts.has_nvidia():
            return not_applicable(NO_NVIDIA)
        return missing("neither nvidia-ctk nor its hook", INSTALL_TOOLKIT)
    version = "of unknown version"
    if control := present_tools.get("nvidia-ctk"):
        output = run_program([control, "--version"], facts.program_seconds, facts.environment)
        match = re.search(r"version:?\s+v?(\d[\w.~+-]*)", output.stdout)
        if output.exit_code != 0 or match is None:
            return warn(
                f"{control}: {output.summary}", "`nvidia-ctk --version` by hand; else reinstall it"
            )
        version = match[1]
        if _numbers(version) < MIN_TOOLKIT:
            oldest = ".".join(map(str, MIN_TOOLKIT))
            return warn(
                f"nvidia-container-toolkit {version}, expected {oldest} or later", UPGRADE_TOOLKIT
            )
    summary = f"nvidia-container-toolkit {version}, {', '.join(present_tools)}"
    if HOOK not in present_tools:
        return warn(
            summary, f"Docker gives GPUs through {HOOK}, which is not on PATH: {INSTALL_TOOLKIT}"
        )
    return ok(summary)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d{1,9}", version.partition("-")[0])[:3]))


def docker_gpus(facts: HostFacts) -> CheckResult:
    """Return whether the container engine itself knows a way to give containers GPUs."""
    report = facts.docker.get()
    if report.error is not None:
        return not_applicable("no Docker engine answers")
    runtimes = report.info.get("Runtimes")
    names = sorted(runtimes) if isinstance(runtimes, dict) else []
    devices = report.info.get("DiscoveredDevices")
    count = len(devices) if isinstance(devices, list) else 0
    summary = f"runtimes {', '.join(names) or 'unknown'}; {count} CDI devices"
    if not facts.has_nvidia():
        return not_applicable(f"{NO_NVIDIA}; {summary}")
    if "nvidia" in names or count:
        return ok(summary)
    if facts.program(HOOK) is not None:
        return ok(f"{summary}; device requests are served by {HOOK}")
    return missing(summary, INSTALL_TOOLKIT)


def cdi(facts: HostFacts) -> CheckResult:
    specifications = {
        f"{directory}/{path.name}": facts.text(f"{directory}/{path.name}")
        for directory in CDI_DIRECTORIES
        for path in sorted(facts.path(directory).glob("*"))
        if path.suffix in {".json", ".yaml", ".yml"}
    }
    if not specifications:
        if not facts.has_nvidia():
            return not_applicable(NO_NVIDIA)
        return not_applicable(
            f"no specification in {' or '.join(CDI_DIRECTORIES)}; the hook serves"
        )
    unreadable = [name for name, text in specifications.items() if text is None]
    if unreadable:
        return warn(f"cannot be read: {', '.join(unreadable)}", f"`sudo chmod a+r {unreadable[0]}`")
    broken = [name for name, text in specifications.items() if not _is_specification(name, text)]
    if broken:
        return warn(f"no CDI specification: {', '.join(broken)}", f"{GENERATE_CDI} writes it anew")
    loaded = (facts.text("/sys/module/nvidia/version") or "").strip()
    for name, text in specifications.items():
        written = re.search(r"libcuda\.so\.(\d{3,}\.[\d.]*\d)", text or "")
        if written and loaded and written[1] != loaded:
            return warn(
                f"{name} is of driver {written[1]}, {loaded} is loaded", f"{GENERATE_CDI} renews it"
            )
    return ok(", ".join(specifications))


def _is_specification(name: str, text: str | None) -> bool:
    if name.endswith(".json"):
        try:
            return "cdiVersion" in json.loads(text or "")
        except (ValueError, TypeError):
            return False
    return re.search(r"^\s*[\"']?cdiVersion[\"']?\s*:", text or "", re.MULTILINE) is not None


PROBES: Final = (
    Probe(name="docker", why="engines of docker tasks run there", inspect=docker_engine),
    Probe(
        name="container-toolkit",
        why="without it Docker says `could not select device driver` for every GPU",
        inspect=container_toolkit,
    ),
    Probe(name="docker-gpus", why="containers get exactly the granted GPUs", inspect=docker_gpus),
    Probe(
        name="cdi",
        why="the other way to name GPUs to a container, and the only one for some engines",
        inspect=cdi,
    ),
)
