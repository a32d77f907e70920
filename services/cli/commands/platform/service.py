"""`service`: units of systemd that start `up` or `agent` with the machine."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from schemas.errors import ErrorCode
from services.cli.failures import CommandFailed, leave
from services.cli.local_platform.units import (
    SERVICE_USER,
    SYSTEM_SETTINGS,
    SYSTEM_UNITS,
    find_data_directory,
    unit_name,
)
from shared.paths import DATA_DIR_VARIABLE, ROOT_STATE_DIR, default_data_dir

if TYPE_CHECKING:
    from services.cli.local_platform.units import Unit

COMMANDS: Final = ("up", "agent")
command_argument = click.argument("command", type=click.Choice(COMMANDS))
user_option = click.option(
    "--user", "is_own", is_flag=True, help="In your own account, without root."
)


@click.group()
def service() -> None:
    """Have systemd start `up` or `agent` with the machine, and again when it ends."""


@service.command("install")
@command_argument
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS...]")
@user_option
@click.option(
    "--run-as",
    default=SERVICE_USER,
    show_default=True,
    metavar="USER",
    help="Who runs it; root may also limit power, divide GPUs, and bound engines.",
)
@click.option("--print", "prints", is_flag=True, help="Show what would be written; change nothing.")
def install_unit(
    command: str, options: tuple[str, ...], is_own: bool, run_as: str, prints: bool
) -> None:
    """Write a unit, start it now, and with the machine from then on.

    OPTIONS are those of `gpusteward up` or `gpusteward agent`. Settings and secrets belong into
    the file of settings that is made beside it, never into OPTIONS, which everybody may read.
    """
    from services.cli.local_platform import systemd

    _require_root(is_own or prints)
    words, files, data_dir = unit_options(command, options)
    unit = _unit_of(command, words, data_dir, None if is_own else run_as)
    try:
        text = unit.text
    except ValueError as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, str(error)) from error
    if prints:
        click.echo(f"# {unit.path}\n{text}\n# {unit.settings_path}\n{unit.settings_text}", nl=False)
        return
    _require_alone(unit)
    for line in systemd.install(unit, files):
        click.echo(line)
    if is_own:
        click.echo("`loginctl enable-linger` has it run while you are not logged in, too")
    scope = " --user" if is_own else ""
    click.echo(f"`journalctl{scope} -u {unit.name}` shows what it says")


@service.command("uninstall")
@command_argument
@user_option
def uninstall_unit(command: str, is_own: bool) -> None:
    """Stop it, remove its unit, and say what stays."""
    from services.cli.local_platform import systemd

    _require_root(is_own)
    units_dir, settings_dir = _directories(is_own)
    path = units_dir / unit_name(command)
    text = path.read_text() if path.exists() else ""
    systemd.uninstall(path, command, is_own=is_own)
    click.echo(f"{path.name} is stopped, and {path} removed")
    for line in _what_stays(text, settings_dir / f"{command}.env", path):
        click.echo(f"stays: {line}")


@service.command("status")
@user_option
def show_units(is_own: bool) -> None:
    """Show what systemd knows of the units."""
    import subprocess

    from services.cli.local_platform import systemd

    units_dir, _ = _directories(is_own)
    names = [unit_name(command) for command in COMMANDS]
    installed = [name for name in names if (units_dir / name).exists()]
    if not installed:
        hint = "`gpusteward service install` writes one"
        raise CommandFailed(ErrorCode.NOT_FOUND, f"no unit of GPU Steward in {units_dir}; {hint}")
    systemd.require_systemd("up")
    scope = ["--user"] if is_own else []
    arguments = ["systemctl", *scope, "--no-pager", "status", *installed]
    leave(subprocess.run(arguments, check=False).returncode)


def unit_options(command: str, words: Sequence[str]) -> tuple[list[str], list[Path], Path | None]:
    """Return options of `up` or `agent` as a unit spells them, the files that they name, and the
    data directory.

    Paths are made absolute: a unit starts elsewhere. Raises click's UsageError as the command
    itself does, CommandFailed for a secret.
    """
    from services.cli.commands.platform import platform

    parsed = {"up": platform.up, "agent": platform.agent}[command]
    context = parsed.make_context(f"gpusteward {command}", list(words))
    spelt: list[str] = []
    files: list[Path] = []
    data_dir: Path | None = None
    for parameter in parsed.params:
        value = context.params.get(parameter.name or "")
        is_typed = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if not is_typed or value is None:
            continue
        if parameter.name == "data_dir":
            data_dir = Path(value).absolute()
            continue
        if isinstance(value, Path):
            value = value.absolute()
            files.append(value)
        spelt += _spell(parameter, value)
    return spelt, files, data_dir


def _spell(parameter: click.Parameter, value: Any) -> list[str]:
    name = max(parameter.opts, key=len)
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return [name]
    text = str(value)
    if urlsplit(text).password is not None or "password=" in text.lower():
        raise CommandFailed(
            ErrorCode.BAD_REQUEST,
            f"expected {name} without a password: everybody on this host may read a unit; "
            + (
                "leave it out, and write GPUSTEWARD_POSTGRES_DSN into the file of settings that "
                "`gpusteward service install` makes"
                if parameter.name == "postgres_dsn"
                else "name a file of credentials instead"
            ),
        )
    return [f"{name}={text}"] if text.startswith("-") or not text else [name, text]


def _unit_of(command: str, words: Sequence[str], data_dir: Path | None, user: str | None) -> "Unit":
    from services.cli.local_platform import systemd
    from services.cli.local_platform.units import Unit

    units_dir, settings_dir = _directories(user is None)
    if data_dir is None:
        is_named = user is None or os.environ.get(DATA_DIR_VARIABLE)
        data_dir = default_data_dir() if is_named else ROOT_STATE_DIR
    return Unit(
        command=command,
        program=systemd.find_program(),
        options=words,
        data_dir=data_dir,
        units_dir=units_dir,
        settings_dir=settings_dir,
        user=user,
        groups=[] if user in {None, "root"} else systemd.existing_groups(),
        gpu_loader=systemd.find_gpu_loader(),
    )


def _directories(is_own: bool) -> tuple[Path, Path]:
    """The directories of units and of their settings."""
    if not is_own:
        return SYSTEM_UNITS, SYSTEM_SETTINGS
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return home / "systemd" / "user", home / "gpusteward"


def _require_root(is_exempt: bool) -> None:
    if not is_exempt and os.geteuid() != 0:
        message = "the system's units are root's: use sudo, or --user for your own account"
        raise CommandFailed(ErrorCode.FORBIDDEN, message)


def _require_alone(unit: "Unit") -> None:
    """Raises CommandFailed where the other unit has this data directory: `up` runs an agent too."""
    for command in COMMANDS:
        path = unit.units_dir / unit_name(command)
        if command == unit.command or not path.exists():
            continue
        if find_data_directory(unit.text) == find_data_directory(path.read_text()):
            raise CommandFailed(
                ErrorCode.CONFLICT,
                f"{path.name} has the data directory {unit.data_dir} already: `up` runs this "
                f"machine's GPUs too; `gpusteward service uninstall {command}` takes it back, or "
                "name another directory by --data-dir, behind `--`",
            )


def _what_stays(text: str, settings: Path, path: Path) -> list[str]:
    """Return what a unit has used and `uninstall` does not remove."""
    stays = []
    if directory := find_data_directory(text):
        stays.append(f"{directory}, its data")
    if settings.exists():
        stays.append(f"{settings}, its settings")
    if f"\nUser={SERVICE_USER}\n" in text:
        stays.append(f"the user {SERVICE_USER}")
    drop_ins = path.with_name(f"{path.name}.d")
    if drop_ins.exists():
        stays.append(f"{drop_ins}, what was changed of the unit")
    return stays
