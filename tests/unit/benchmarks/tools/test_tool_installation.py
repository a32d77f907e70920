"""What counts as an installation of a tool, and what does not."""

import lzma
from pathlib import Path

import msgspec
import pytest

from shared import paths
from shared.benchmarks.aiperf.installation import AIPERF
from shared.benchmarks.genai_bench.installation import GENAI_BENCH
from shared.benchmarks.tools.environment import (
    Environment,
    Receipt,
    Tool,
    lock_digest,
)
from shared.benchmarks.tools.install import InstallationFailed, fitting_python, install
from shared.paths import tools_directory

each_tool = pytest.mark.parametrize("tool", [GENAI_BENCH, AIPERF], ids=lambda tool: tool.name)


def make_installation(
    tools: Path, tool: Tool = GENAI_BENCH, *, digest: str | None = None
) -> Environment:
    """An environment whose program says the right version."""
    environment = Environment(tool, tools)
    environment.program.parent.mkdir(parents=True)
    environment.program.write_text(f"#!/bin/sh\necho {tool.name} version {tool.version}\n")
    environment.program.chmod(0o755)
    receipt = Receipt(version=tool.version, lock_digest=digest or lock_digest(tool.lock_path))
    environment.receipt_path.write_bytes(msgspec.json.encode(receipt))
    return environment


@each_tool
def test_lock_has_versions_and_hashes(tool: Tool) -> None:
    lines = [line for line in tool.lock_path.read_text().splitlines() if line[:1].isalnum()]

    assert any(line.startswith(f"{tool.name}=={tool.version} ") for line in lines)
    assert all(line.endswith("\\") for line in lines)


def test_tools_are_in_the_configured_directory(tmp_path: Path) -> None:
    assert tools_directory({"GPUSTEWARD_DATA_DIR": str(tmp_path)}) == tmp_path / "tools"
    chosen = {"GPUSTEWARD_DATA_DIR": "/elsewhere", "GPUSTEWARD_TOOLS_DIR": str(tmp_path)}
    assert tools_directory(chosen) == tmp_path


@each_tool
def test_what_is_installed_is_found(tool: Tool, tmp_path: Path) -> None:
    environ = {"GPUSTEWARD_TOOLS_DIR": str(tmp_path)}
    environment = make_installation(tmp_path, tool)

    assert tool.what_is_missing(environ) is None
    assert tool.find_program(environ) == environment.program


def test_one_tool_is_not_the_other(tmp_path: Path) -> None:
    make_installation(tmp_path, GENAI_BENCH)

    assert AIPERF.find_program({"GPUSTEWARD_TOOLS_DIR": str(tmp_path)}) is None


@pytest.mark.parametrize(
    ("tool", "command"),
    [(GENAI_BENCH, "`gpusteward bench install`"), (AIPERF, "`gpusteward bench install aiperf`")],
    ids=lambda value: getattr(value, "name", None),
)
def test_nothing_installed_names_the_next_step(tool: Tool, command: str, tmp_path: Path) -> None:
    missing = tool.what_is_missing({"GPUSTEWARD_TOOLS_DIR": str(tmp_path)})

    assert missing is not None
    assert command in missing


def test_an_installation_that_was_cut_off_is_none(tmp_path: Path) -> None:
    make_installation(tmp_path).receipt_path.unlink()

    assert GENAI_BENCH.find_program({"GPUSTEWARD_TOOLS_DIR": str(tmp_path)}) is None


def test_an_installation_of_another_release_is_told(tmp_path: Path) -> None:
    make_installation(tmp_path, digest="another")
    missing = GENAI_BENCH.what_is_missing({"GPUSTEWARD_TOOLS_DIR": str(tmp_path)})

    assert missing is not None
    assert "not the one of this release" in missing


@each_tool
def test_a_program_may_be_named_and_has_to_be_there(tool: Tool, tmp_path: Path) -> None:
    named = make_installation(tmp_path, tool).program
    environ = {tool.variable: str(named), "GPUSTEWARD_TOOLS_DIR": "/nowhere"}

    assert tool.find_program(environ) == named
    named.unlink()
    assert tool.find_program(environ) is None
    assert tool.variable in (tool.what_is_missing(environ) or "")


@each_tool
def test_installing_twice_changes_nothing(tool: Tool, tmp_path: Path) -> None:
    environment = make_installation(tmp_path, tool)
    before = environment.receipt_path.stat().st_mtime_ns
    said: list[str] = []

    install(tool, tmp_path, said.append)

    assert said == [f"{tool.name} {tool.version} is installed in {environment.root}"]
    assert environment.receipt_path.stat().st_mtime_ns == before


def test_an_installation_that_fails_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_installation(tmp_path, digest="another")
    failing = tmp_path / "uv"
    failing.write_text("#!/bin/sh\nexit 3\n")
    failing.chmod(0o755)
    monkeypatch.setattr("shared.benchmarks.tools.install.find_uv", lambda: str(failing))

    with pytest.raises(InstallationFailed, match="exit 3"):
        install(GENAI_BENCH, tmp_path, lambda _: None)

    missing = GENAI_BENCH.what_is_missing({"GPUSTEWARD_TOOLS_DIR": str(tmp_path)})
    assert missing is not None
    assert "is not installed" in missing


@each_tool
def test_fitting_python_is_found(tool: Tool) -> None:
    python = fitting_python(tool)

    assert python is None or Path(python).exists()


def test_a_packed_lock_is_read_as_the_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel has it compressed; what was installed from a checkout stays current."""
    packed = tmp_path / "locks.json.xz"
    packed.write_bytes(lzma.compress(b'{"tool/requirements.lock": "tool==1 --hash=sha256:0"}'))
    monkeypatch.setattr(paths, "PACKED_LOCKS", packed)

    assert paths.read_lock(paths.SOURCE_ROOT / "tool/requirements.lock") == (
        b"tool==1 --hash=sha256:0"
    )
