"""Units of systemd that keep `up` or `agent` running, as text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SYSTEM_UNITS: Final = Path("/etc/systemd/system")
SYSTEM_SETTINGS: Final = Path("/etc/gpusteward")
SERVICE_USER: Final = "gpusteward"
DATA_DIR_OPTION: Final = "--data-dir"  # the last of a unit's command
HEADER: Final = "# Written by `gpusteward service install {command}`."
# More than `up` needs to end its children one after the other, each at its own limit.
STOP_SECONDS: Final = 240
DESCRIPTIONS: Final = {
    "up": "GPU Steward, the platform",
    "agent": "GPU Steward, this server's GPUs for a platform elsewhere",
}

_TEMPLATE: Final = """\
{header}
# Change it by a drop-in: systemctl{scope} edit {name}
[Unit]
Description={description}
{order}
# Started again however often it ends.
StartLimitIntervalSec=0

[Service]
Type=exec
{prepare}ExecStart={start}
EnvironmentFile=-{environment}
{account}Restart=always
RestartSec=5
# It ends its children itself, in their order; what is left after that is killed.
KillMode=mixed
TimeoutStopSec={stop_seconds}
# An engine that takes too much memory ends alone.
OOMPolicy=continue
LimitNOFILE=524288
TasksMax=65536
UMask=0077
{sandbox}
[Install]
WantedBy={target}
"""
_SYSTEM_ORDER: Final = """\
Wants=network-online.target
After=network-online.target docker.service nvidia-persistenced.service"""
_USER_ORDER: Final = "# Without an order: the network and Docker are the system's units."
# For our own user, who has no capability. What is left out, and why: PrivateDevices, DevicePolicy
# (GPUs), PrivateTmp (MPS listens in /tmp), ProtectClock (it closes devices), ProtectKernelLogs
# (errors of GPUs), RestrictNamespaces (engines of an operator may be containers without root),
# MemoryDenyWriteExecute (engines compile), ProtectProc (whose process uses a GPU).
_OWN_USER_SANDBOX: Final = """\
OOMScoreAdjust=-500
LimitMEMLOCK=infinity
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ReadWritePaths={data_dir} /tmp /var/tmp
ProtectHome=read-only
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
"""
# Root makes users and control groups for engines, and mounts what they may read.
_ROOT_SANDBOX: Final = """\
OOMScoreAdjust=-500
LimitMEMLOCK=infinity
LockPersonality=yes
ProtectHostname=yes
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @obsolete @reboot @swap
SystemCallErrorNumber=EPERM
"""
_SETTINGS: Final = """\
# Settings of `gpusteward {command}` as NAME=VALUE, read at its start; GPU Steward's
# docs/reference/settings.md has all.
# Passwords and tokens belong here, never into the unit, which everybody may read.
#GPUSTEWARD_POSTGRES_DSN=postgresql://...
#HF_TOKEN=...
# Where engines without a container are found:
#PATH=/opt/vllm/bin:/usr/local/bin:/usr/bin:/bin
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What one unit runs, and where its files are.

    `user` is None in a manager of the user's own. `groups` are further ones of `user`.
    `gpu_loader` is the path of nvidia-modprobe, which makes the device files, None without it.
    """

    command: str
    program: Path
    options: Sequence[str]
    data_dir: Path
    units_dir: Path
    settings_dir: Path
    user: str | None
    groups: Sequence[str] = ()
    gpu_loader: Path | None = None

    @property
    def name(self) -> str:
        return unit_name(self.command)

    @property
    def path(self) -> Path:
        return self.units_dir / self.name

    @property
    def settings_path(self) -> Path:
        return self.settings_dir / f"{self.command}.env"

    @property
    def text(self) -> str:
        """Return the content of the unit's file."""
        words = [
            str(self.program),
            self.command,
            *self.options,
            DATA_DIR_OPTION,
            str(self.data_dir),
        ]
        is_system = self.user is not None
        loader = f"ExecStartPre=-+{self.gpu_loader} -u -c 0\n" if self.gpu_loader else ""
        return _TEMPLATE.format(
            header=HEADER.format(command=self.command),
            scope="" if is_system else " --user",
            name=self.name,
            description=DESCRIPTIONS[self.command],
            order=_SYSTEM_ORDER if is_system else _USER_ORDER,
            prepare=loader if is_system else "",
            start=" ".join(quote(word, is_argument=True) for word in words),
            environment=_escape(str(self.settings_path)),
            account=self._account(),
            stop_seconds=STOP_SECONDS,
            sandbox=self._sandbox(),
            target="multi-user.target" if is_system else "default.target",
        )

    @property
    def settings_text(self) -> str:
        """Return the content of the file of settings where there is none yet."""
        return _SETTINGS.format(command=self.command)

    def _account(self) -> str:
        if self.user is None:
            return ""
        groups = f"SupplementaryGroups={' '.join(self.groups)}\n" if self.groups else ""
        return f"User={self.user}\n{groups}"

    def _sandbox(self) -> str:
        if self.user is None:
            return ""
        if self.user == "root":
            return _ROOT_SANDBOX
        return _OWN_USER_SANDBOX.format(data_dir=quote(str(self.data_dir)))


def unit_name(command: str) -> str:
    """Return the name of the unit that runs `up` or `agent`."""
    return f"gpusteward-{command}.service"


def find_data_directory(text: str) -> str | None:
    """Return the data directory as a unit's file spells it; None for a file that names none."""
    _, option, tail = text.rpartition(f"{DATA_DIR_OPTION} ")
    return tail.partition("\n")[0] if option else None


def is_ours(text: str, command: str) -> bool:
    """Return whether a unit's file is one that was written here."""
    return text.startswith(HEADER.format(command=command))


def quote(word: str, *, is_argument: bool = False) -> str:
    """Return a word as a unit's file spells it. `is_argument`: of a command, where `$` has a
    meaning as well. Raises ValueError for what no unit can spell.
    """
    if not word.isprintable():
        raise ValueError(f"expected printable characters in {word!r}")
    escaped = _escape(word).replace("\\", "\\\\").replace('"', '\\"')
    if is_argument:
        escaped = escaped.replace("$", "$$")
    return escaped if re.fullmatch(r"[\w@%+=:,./-]+", escaped, re.ASCII) else f'"{escaped}"'


def _escape(word: str) -> str:
    """A percent sign begins what systemd fills in."""
    return word.replace("%", "%%")
