"""Putting a unit in place, and taking it back."""

import grp
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from schemas.errors import ErrorCode
from services.cli.failures import CommandFailed
from services.cli.local_platform.units import SERVICE_USER, Unit, is_ours
from shared.paths import SOURCE_ROOT, make_directory, write_atomically
from shared.processes.users import Identity, can_pass, can_reach, identity_of, may_read, system_user

RUNTIME: Final = Path("/run/systemd/system")  # made by systemd where it is the init system
GROUPS: Final = ("docker", "video", "render")
UNIT_MODE: Final = 0o644


def find_program() -> Path:
    """Return the absolute path of this environment's `gpusteward`. Raises CommandFailed."""
    path = Path(sysconfig.get_path("scripts")) / "gpusteward"
    if not path.is_file():
        message = f"expected the program {path}, found none: install GPU Steward as a package"
        raise CommandFailed(ErrorCode.NOT_FOUND, message)
    return path


def find_gpu_loader() -> Path | None:
    """Return nvidia-modprobe; None where there is none."""
    path = shutil.which("nvidia-modprobe")
    return Path(path) if path is not None else None


def existing_groups(names: Sequence[str] = GROUPS) -> list[str]:
    """Return those of these groups that this host has: of Docker's socket, and of GPUs."""
    host_groups = {group.gr_name for group in grp.getgrall()}
    return [name for name in names if name in host_groups]


def require_systemd(command: str) -> None:
    """Raises CommandFailed where systemd does not run this host."""
    if not RUNTIME.is_dir() or shutil.which("systemctl") is None:
        raise CommandFailed(
            ErrorCode.UNSUPPORTED,
            f"systemd does not run this host (there is no {RUNTIME}): have your own init system "
            f"start `gpusteward {command}`; --print shows the unit as an example",
        )


def install(unit: Unit, readable: Sequence[Path]) -> list[str]:
    """Write the unit, start it now and with the machine; return what was done, a line each.

    `readable` are files that its options name. Raises CommandFailed, before anything is written
    where its user could not run it.
    """
    require_systemd(unit.command)
    done = []
    if unit.user is not None:
        identity = _require_user(unit.user, unit.data_dir)
        _require_readable(identity, (unit.program, Path(sys.executable), SOURCE_ROOT), readable)
        _own_directory(unit.data_dir, identity)
    else:
        make_directory(unit.data_dir, 0o700)
    if not unit.settings_path.exists():
        make_directory(unit.settings_dir, 0o755)
        write_atomically(unit.settings_path, unit.settings_text.encode())
        done.append(f"wrote {unit.settings_path}, for settings and secrets")
    make_directory(unit.units_dir, 0o755)
    write_atomically(unit.path, unit.text.encode(), mode=UNIT_MODE)
    unit.path.chmod(UNIT_MODE)  # whatever the umask
    done.append(f"wrote {unit.path}")
    systemctl(unit.user is None, "daemon-reload")
    systemctl(unit.user is None, "enable", unit.name)
    systemctl(unit.user is None, "restart", unit.name)
    return [*done, f"{unit.name} runs, and starts with the machine"]


def uninstall(path: Path, command: str, *, is_own: bool) -> None:
    """Stop the unit, and remove its file. Raises CommandFailed for one that was not written here.

    `is_own`: of the user's own manager.
    """
    require_systemd(command)
    try:
        text = path.read_text()
    except FileNotFoundError:
        message = f"there is no {path}: nothing to take back"
        raise CommandFailed(ErrorCode.NOT_FOUND, message) from None
    if not is_ours(text, command):
        message = f"{path} was not written by `gpusteward service install`: nothing was changed"
        raise CommandFailed(ErrorCode.CONFLICT, message)
    systemctl(is_own, "disable", "--now", path.name)
    path.unlink()
    systemctl(is_own, "daemon-reload")


def systemctl(is_own: bool, *arguments: str) -> None:
    """Raises CommandFailed with what systemctl said."""
    scope = ["--user"] if is_own else []
    try:
        ended = subprocess.run(
            ["systemctl", *scope, *arguments],  # noqa: S607  # as the system's PATH has it
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise CommandFailed(ErrorCode.UNAVAILABLE, f"systemctl: {error}") from error
    if ended.returncode:
        output = " ".join(ended.stderr.split()) or f"exit code {ended.returncode}"
        message = f"`systemctl {' '.join([*scope, *arguments])}` failed: {output}"
        raise CommandFailed(ErrorCode.UNAVAILABLE, message)


def _require_user(name: str, home: Path) -> Identity:
    """The user of that name, ours made if missing. Raises CommandFailed."""
    if name == SERVICE_USER:
        system_user(name, home=home)  # answers `nobody` where none can be made
    try:
        return identity_of(name)
    except KeyError:
        make = f"`useradd --system --user-group {name}`"
        message = f"there is no user {name} here; {make} makes one"
        raise CommandFailed(ErrorCode.NOT_FOUND, message) from None


def _require_readable(identity: Identity, programs: Sequence[Path], files: Sequence[Path]) -> None:
    """Raises CommandFailed for what the service's user could not run or read."""
    if identity.uid == 0:
        return
    for path in programs:
        if not can_reach(path, identity):
            raise CommandFailed(
                ErrorCode.FORBIDDEN,
                f"the user {identity.name} may not run {path}: install GPU Steward where every "
                "user may read, such as by `UV_TOOL_DIR=/opt/gpusteward "
                "UV_PYTHON_INSTALL_DIR=/opt/gpusteward-python UV_TOOL_BIN_DIR=/usr/local/bin uv "
                "tool install ...`, or have the service run as you with --run-as root",
            )
    for path in files:
        if not (can_pass(path.parent, identity) and may_read(path, identity)):
            raise CommandFailed(
                ErrorCode.FORBIDDEN,
                f"the user {identity.name} may not read {path}; `install -D -o {identity.name} -m "
                f"600 {path} /etc/gpusteward/{path.name}` makes a copy that it may",
            )


def _own_directory(directory: Path, identity: Identity) -> None:
    """Make the data directory the service's. Raises CommandFailed for one of somebody else."""
    if not directory.exists():
        make_directory(directory, 0o700)
        os.chown(directory, identity.uid, identity.gid)
    if directory.stat().st_uid != identity.uid:
        raise CommandFailed(
            ErrorCode.CONFLICT,
            f"{directory} is not of {identity.name}, as which the service runs: "
            f"`chown -R {identity.name}: {directory}` gives it to the service, while nothing "
            "else runs there; or name another by --data-dir, behind `--`",
        )
