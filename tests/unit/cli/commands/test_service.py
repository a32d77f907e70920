"""Units of systemd: what is written, what is refused, and what systemd says of it."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from services.cli.commands.platform.service import service, unit_options
from services.cli.failures import CommandFailed
from services.cli.local_platform import systemd
from services.cli.local_platform.units import STOP_SECONDS, Unit, quote
from shared.local_platform.embedded import EmbeddedNats, EmbeddedPostgres
from shared.local_platform.platform import ClusterOptions, Platform, PlatformOptions
from shared.local_platform.supervisor.service import ChildSpec
from shared.local_platform.supervisor.supervisor import KILLED_TIMEOUT_SECONDS

MAX_EXPOSURE_TENTHS = 42  # of 100, by systemd's own count; 39 was seen
ANALYZE = shutil.which("systemd-analyze")
needs_analyze = pytest.mark.skipif(
    ANALYZE is None, reason="needs systemd-analyze: Debian's systemd"
)


def a_unit(**changes: Any) -> Unit:
    unit = Unit(
        command="agent",
        program=Path("/bin/true"),
        options=("--nats", "nats://10.0.0.1:4222", "--credentials", "/etc/gpusteward/node.json"),
        data_dir=Path("/var/lib/gpusteward"),
        units_dir=Path("/etc/systemd/system"),
        settings_dir=Path("/etc/gpusteward"),
        user="root",
    )
    return replace(unit, **changes)


def line_of(unit: Unit, key: str) -> str:
    (line,) = (line for line in unit.text.splitlines() if line.startswith(f"{key}="))
    return line.partition("=")[2]


def install(*words: str) -> str:
    """Return what `service install WORDS --print` prints."""
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(click, "echo", lambda text, **_: printed.append(str(text)))
        service.main(["install", "--print", *words], standalone_mode=False)
    return "".join(printed)


@needs_analyze
@pytest.mark.parametrize(
    "user", ["gpusteward", "root", None], ids=["own user", "root", "own manager"]
)
@pytest.mark.parametrize("command", ["up", "agent"])
def test_systemd_finds_no_fault_in_a_unit(tmp_path: Path, command: str, user: str | None) -> None:
    unit = a_unit(command=command, user=user, groups=("tty",), units_dir=tmp_path)
    unit.path.write_text(unit.text)

    scope = [] if user is not None else ["--user"]
    verified = subprocess.run(
        ["systemd-analyze", "verify", *scope, unit.path],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (verified.returncode, verified.stderr) == (0, "")


@needs_analyze
def test_exposure_of_own_user_is_small(tmp_path: Path) -> None:
    unit = a_unit(user="gpusteward", units_dir=tmp_path)
    unit.path.write_text(unit.text)

    assessed = subprocess.run(
        [
            *("systemd-analyze", "security", "--offline=true", "--no-pager"),
            *(f"--threshold={MAX_EXPOSURE_TENTHS}", unit.path),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "unrecognized option" in assessed.stderr:
        pytest.skip("this systemd-analyze does not assess files")

    sys.stdout.write(assessed.stdout.splitlines()[-1])
    assert assessed.returncode == 0, assessed.stdout


def test_unit_gives_up_the_time_to_end_its_children(tmp_path: Path) -> None:
    cluster = ClusterOptions(cluster_id="c")
    platform = Platform(PlatformOptions(data_dir=tmp_path, node_id="alpha", cluster=cluster))

    seconds = sum(
        child.stop_timeout_seconds
        for stage in platform.stages
        for child in stage
        if isinstance(child, ChildSpec | EmbeddedNats)
    )
    seconds += EmbeddedPostgres.stop_timeout_seconds + KILLED_TIMEOUT_SECONDS

    assert seconds < STOP_SECONDS


@pytest.mark.parametrize(
    ("word", "spelt"),
    [
        ("nats://h:4222", "nats://h:4222"),
        ("50%", "50%%"),
        ("$HOME", '"$$HOME"'),
        ("two words", '"two words"'),
        ('a"b\\', '"a\\"b\\\\"'),
        ("", '""'),
    ],
)
def test_word_is_spelt_as_systemd_reads_it(word: str, spelt: str) -> None:
    assert quote(word, is_argument=True) == spelt


def test_word_that_no_unit_can_spell_is_refused() -> None:
    with pytest.raises(ValueError, match="expected printable"):
        quote("a\nExecStartPre=evil")


def test_paths_of_options_are_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "node.json").touch()
    words = ["--nats", "nats://h", "--credentials", "node.json", "--simulate", "--data-dir", "d"]

    options, files, data_dir = unit_options("agent", words)

    assert options == [
        *("--nats", "nats://h", "--credentials", str(tmp_path / "node.json"), "--simulate")
    ]
    assert (files, data_dir) == ([tmp_path / "node.json"], tmp_path / "d")


def test_option_with_an_optional_value_keeps_it() -> None:
    assert unit_options("up", ["--cluster"])[0] == ["--cluster="]
    assert unit_options("up", ["--cluster", "prod"])[0] == ["--cluster", "prod"]


@pytest.mark.parametrize(
    "words",
    [
        ["--postgres", "postgresql://me:secret@db/x"],
        ["--postgres", "postgresql://db/x?password=secret"],
        ["--nats", "nats://me:secret@bus:4222"],
    ],
)
def test_password_among_options_is_refused(words: list[str]) -> None:
    with pytest.raises(CommandFailed, match="without a password") as refused:
        unit_options("up", words)

    assert "secret" not in str(refused.value)


def test_option_that_the_command_has_not_is_refused() -> None:
    with pytest.raises(click.UsageError, match="No such option"):
        unit_options("up", ["--nosuch"])


def test_settings_of_the_shell_do_not_enter_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSTEWARD_POSTGRES_DSN", "postgresql://me:secret@db/x")

    printed = install("up", "--", "--simulate")

    assert "secret" not in printed
    assert "up --simulate --data-dir /" in printed


def test_print_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    printed = install("up", "--user", "--", "--simulate", "--data-dir", str(tmp_path / "data"))

    assert f"# {tmp_path}/config/systemd/user/gpusteward-up.service" in printed
    assert f"EnvironmentFile=-{tmp_path}/config/gpusteward/up.env" in printed
    assert list(tmp_path.iterdir()) == []


def test_own_manager_gets_no_sandbox_that_it_could_not_make() -> None:
    unit = a_unit(user=None)

    assert "User=" not in unit.text
    assert "ProtectSystem" not in unit.text
    assert line_of(unit, "WantedBy") == "default.target"


def test_gpu_modules_are_loaded_before_a_user_who_may_not() -> None:
    unit = a_unit(user="gpusteward", gpu_loader=Path("/usr/bin/nvidia-modprobe"))

    assert line_of(unit, "ExecStartPre") == "-+/usr/bin/nvidia-modprobe -u -c 0"


def test_host_without_systemd_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "RUNTIME", tmp_path / "none")

    with pytest.raises(CommandFailed, match="systemd does not run this host"):
        systemd.install(a_unit(units_dir=tmp_path / "units"), [])

    assert list(tmp_path.iterdir()) == []


def test_unit_that_others_wrote_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "require_systemd", lambda _: None)
    path = tmp_path / "gpusteward-up.service"
    path.write_text("[Service]\nExecStart=/bin/true\n")

    with pytest.raises(CommandFailed, match="was not written by"):
        systemd.uninstall(path, "up", is_own=False)

    assert path.exists()
