"""GPUs, their drivers and the tools that come with them."""

import re
from typing import Final

from services.cli.doctor.check import CheckResult, Probe, error, missing, not_applicable, ok, warn
from services.cli.doctor.host_facts import AMD_VENDOR, NVIDIA_VENDOR, HostFacts
from services.cli.doctor.nvml_report import NvmlReport
from services.cli.doctor.program import run_program
from shared.failures import recognise
from shared.processes.command import CommandOutput

NO_NVIDIA: Final = "no NVIDIA GPU here"
INSTALL_DRIVER: Final = (
    "install the driver (Ubuntu: `sudo ubuntu-drivers install --gpgpu`, Debian: `sudo apt-get "
    "install nvidia-driver`), then `sudo modprobe nvidia` or reboot"
)
HUNG: Final = (
    "the driver hangs, or loads anew for each question: `sudo nvidia-smi -pm 1` keeps it loaded; "
    "`sudo dmesg | grep -i -e nvrm -e xid` tells of a broken GPU, a reboot frees it; "
    "`gpusteward doctor --timeout 60` waits for a slow one"
)
MIN_DRIVER: Final = 525  # CUDA 12.0, which current engines are built for
SMI_FIELDS: Final = ("index", "name", "driver_version", "memory.total")


def nvidia_boards(facts: HostFacts) -> CheckResult:
    boards, files = facts.gpu_boards(NVIDIA_VENDOR), facts.nvidia_device_files()
    on_bus = f"{boards} on the PCI bus"
    if not boards and not files:
        return not_applicable(
            "no NVIDIA board on the PCI bus; `gpusteward up --simulate` makes up a fleet"
        )
    if not files:
        return error(
            f"{on_bus}, no device file /dev/nvidia*",
            f"in a container: start it with `--gpus all`; else {INSTALL_DRIVER}",
        )
    if boards > len(files) and files != ["dxg"]:
        return warn(
            f"{on_bus}, device files only of {len(files)}: {', '.join(files)}",
            "a container sees what it was given; on the host `nvidia-smi -L` and `sudo dmesg | "
            "grep -i nvrm` say what became of the others",
        )
    return ok(f"{on_bus}, device files {', '.join(files)}")


def nvidia_driver(facts: HostFacts) -> CheckResult:
    version_text = facts.text("/proc/driver/nvidia/version")
    version = (
        _driver_version(version_text or "")
        or (facts.text("/sys/module/nvidia/version") or "").strip()
    )
    if not version_text and not version:
        return _absent_driver(facts)
    if not version:
        return warn("loaded, of unknown version", "`cat /proc/driver/nvidia/version`")
    kind = "open kernel module" if "Open Kernel Module" in (version_text or "") else "kernel module"
    if int(version.split(".")[0]) < MIN_DRIVER:
        return warn(
            f"{version} ({kind})",
            f"update to {MIN_DRIVER} or newer: current engines are built for CUDA 12 and 13",
        )
    return ok(f"{version} ({kind})")


def _absent_driver(facts: HostFacts) -> CheckResult:
    if facts.path("/dev/dxg").exists():
        return ok("Windows' own, through /dev/dxg")
    if not facts.has_nvidia():
        return not_applicable(NO_NVIDIA)
    if facts.path("/sys/module/nouveau").exists():
        return error(
            "nouveau is loaded, which cannot compute",
            f"blacklist it in /etc/modprobe.d (`blacklist nouveau`), `sudo update-initramfs -u`; "
            f"{INSTALL_DRIVER}",
        )
    return error("not loaded", INSTALL_DRIVER)


def _driver_version(text: str) -> str | None:
    match = re.search(r"Kernel Module.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else None


def nvml(facts: HostFacts) -> CheckResult:
    report = facts.nvml.get()
    if report.error is not None:
        return _absent_nvml(facts, report)
    lost = [f"GPU {gpu.index}: {gpu.error}" for gpu in report.gpus if gpu.error]
    summary = (
        f"driver {report.driver}, serves CUDA up to {report.cuda_text}, {_devices_text(report)}"
    )
    if lost:
        return error(
            f"{summary}; {', '.join(lost)}",
            "`sudo dmesg | grep -i xid` tells why; `gpusteward cordon NODE`, then reboot",
        )
    if not report.gpus:
        return error(summary, "the driver has no GPU: `lspci | grep -i nvidia`, `sudo dmesg | grep "
                            "-i nvrm`")  # fmt: skip
    return ok(summary)


def _absent_nvml(facts: HostFacts, report: NvmlReport) -> CheckResult:
    if report.is_hung:
        return error(report.error or "", HUNG)
    if not facts.has_nvidia():
        return not_applicable(NO_NVIDIA)
    known_failure = recognise(report.error or "")
    return error(
        report.error or "", known_failure.hint if known_failure is not None else INSTALL_DRIVER
    )


def _devices_text(report: NvmlReport) -> str:
    counts: dict[str, int] = {}
    for gpu in report.gpus:
        memory = f" with {gpu.memory_mb} MiB" if gpu.memory_mb is not None else ""
        name = f"{gpu.name or 'GPU of unknown name'}{memory}"
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} x {name}" for name, count in counts.items()) or "0 GPUs"


def gpu_modes(facts: HostFacts) -> CheckResult:
    """Persistence and MIG, of all GPUs together."""
    report = facts.nvml.get()
    if report.error is not None or not report.gpus:
        return not_applicable(NO_NVIDIA if not facts.has_nvidia() else "NVML does not answer")
    mig = [gpu.index for gpu in report.gpus if gpu.mig]
    lazy = [gpu.index for gpu in report.gpus if gpu.persistence == 0]
    summary = f"MIG on {_indices(mig)}, persistence {f'off on {_indices(lazy)}' if lazy else 'on'}"
    if lazy:
        return warn(
            summary,
            "`sudo systemctl enable --now nvidia-persistenced` or `sudo nvidia-smi -pm 1`: each "
            "first use of an idle GPU takes seconds otherwise",
        )
    return ok(summary)


def _indices(numbers: list[int]) -> str:
    return f"GPU {', '.join(map(str, numbers))}" if numbers else "no GPU"


def nvidia_smi(facts: HostFacts) -> CheckResult:
    path = facts.program("nvidia-smi")
    if path is None:
        if not facts.has_nvidia():
            return not_applicable(NO_NVIDIA)
        return missing("no nvidia-smi on PATH", f"it comes with the driver: {INSTALL_DRIVER}")
    query = [path, f"--query-gpu={','.join(SMI_FIELDS)}", "--format=csv,noheader,nounits"]
    output = run_program(query, facts.program_seconds, facts.environment)
    if output.exit_code != 0:
        known_failure = recognise(output.stdout)
        hint = HUNG if output.exit_code is None else INSTALL_DRIVER
        return error(
            f"{path}: {output.summary}", known_failure.hint if known_failure is not None else hint
        )
    rows = [[cell.strip() for cell in line.split(",")] for line in output.stdout.splitlines()]
    if not rows or not all(len(row) == len(SMI_FIELDS) and row[0].isdecimal() for row in rows):
        return warn(
            f"{path} prints something else than GPUs: {output.summary}",
            "`nvidia-smi` by hand shows what; a wrapper of that name may stand before the real one",
        )
    noun = "GPU" if len(rows) == 1 else "GPUs"
    return ok(f"{path}, driver {rows[0][2]}, {len(rows)} {noun}")


def amd(facts: HostFacts) -> CheckResult:
    tools = [
        (name, path)
        for name in ("amd-smi", "rocm-smi")
        if (path := facts.program(name)) is not None
    ]
    boards = facts.gpu_boards(AMD_VENDOR)
    if not boards and not tools:
        return not_applicable("no AMD GPU here")
    if not tools:
        return missing(
            f"{boards} boards, neither amd-smi nor rocm-smi", "install ROCm's amd-smi-lib"
        )
    tool_texts = []
    for name, path in tools:
        output = _amd_version(facts, name, path)
        version = re.search(r"\d+\.\d+(\.\d+)?", output.stdout)
        if output.exit_code != 0 or version is None:
            return warn(
                f"{boards} boards; {path}: {output.summary}",
                "`sudo modprobe amdgpu`; its user has to be in the groups render and video",
            )
        tool_texts.append(f"{name} {version[0]}")
    return ok(f"{boards} boards, {', '.join(tool_texts)}")


def _amd_version(facts: HostFacts, name: str, path: str) -> CommandOutput:
    asks = "version" if name == "amd-smi" else "--version"
    return run_program([path, asks], facts.program_seconds, facts.environment)


PROBES: Final = (
    Probe(
        name="nvidia-gpus",
        why="what is reserved and measured",
        inspect=nvidia_boards,
        needed=True,
    ),
    Probe(
        name="nvidia-driver",
        why="nothing reaches the GPUs but by it",
        inspect=nvidia_driver,
        needed=True,
    ),
    Probe(name="nvml", why="GPUs are found and sampled through it", inspect=nvml, needed=True),
    Probe(name="gpu-modes", why="they decide what a GPU can be reserved as", inspect=gpu_modes),
    Probe(name="nvidia-smi", why="what is asked where NVML does not serve", inspect=nvidia_smi),
    Probe(name="amd", why="GPUs of AMD are found and sampled through its tools", inspect=amd),
)
