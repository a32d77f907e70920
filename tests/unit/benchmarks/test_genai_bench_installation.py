"""What counts as an installation of genai-bench, and what does not."""

from pathlib import Path

import msgspec
import pytest

from shared.benchmarks.genai_bench.install import InstallationFailed, fitting_python, install
from shared.benchmarks.genai_bench.installation import (
    LOCK_PATH,
    VERSION,
    Environment,
    Receipt,
    installed_program,
    lock_digest,
    tools_directory,
    what_is_missing,
)


def make_installation(tools: Path, *, digest: str | None = None) -> Environment:
    """An environment whose program says the right version."""
    environment = Environment(tools)
    environment.program.parent.mkdir(parents=True)
    environment.program.write_text(f"#!/bin/sh\necho genai-bench version {VERSION}\n")
    environment.program.chmod(0o755)
    receipt = Receipt(version=VERSION, lock_digest=digest or lock_digest())
    environment.receipt_path.write_bytes(msgspec.json.encode(receipt))
    return environment


def test_the_lock_names_the_version_and_hashes_every_package() -> None:
    lines = [line for line in LOCK_PATH.read_text().splitlines() if line[:1].isalnum()]

    assert any(line.startswith(f"genai-bench=={VERSION} ") for line in lines)
    assert all(line.endswith("\\") for line in lines)


def test_tools_lie_in_the_data_directory_or_where_they_are_said_to_be(tmp_path: Path) -> None:
    assert tools_directory({"GPUSTEWARD_DATA_DIR": str(tmp_path)}) == tmp_path / "tools"
    chosen = {"GPUSTEWARD_DATA_DIR": "/elsewhere", "GPUSTEWARD_TOOLS_DIR": str(tmp_path)}
    assert tools_directory(chosen) == tmp_path


def test_what_is_installed_is_found(tmp_path: Path) -> None:
    environ = {"GPUSTEWARD_TOOLS_DIR": str(tmp_path)}
    environment = make_installation(tmp_path)

    assert what_is_missing(environ) is None
    assert installed_program(environ) == environment.program


def test_nothing_installed_names_the_next_step(tmp_path: Path) -> None:
    missing = what_is_missing({"GPUSTEWARD_TOOLS_DIR": str(tmp_path)})

    assert missing is not None
    assert "`gpusteward bench install`" in missing


def test_an_installation_that_was_cut_off_is_none(tmp_path: Path) -> None:
    make_installation(tmp_path).receipt_path.unlink()

    assert installed_program({"GPUSTEWARD_TOOLS_DIR": str(tmp_path)}) is None


def test_an_installation_of_another_release_is_told(tmp_path: Path) -> None:
    make_installation(tmp_path, digest="another")
    missing = what_is_missing({"GPUSTEWARD_TOOLS_DIR": str(tmp_path)})

    assert missing is not None
    assert "not the one of this release" in missing


def test_a_program_may_be_named_and_has_to_be_there(tmp_path: Path) -> None:
    named = make_installation(tmp_path).program
    environ = {"GPUSTEWARD_GENAI_BENCH": str(named), "GPUSTEWARD_TOOLS_DIR": "/nowhere"}

    assert installed_program(environ) == named
    named.unlink()
    assert installed_program(environ) is None
    assert "GPUSTEWARD_GENAI_BENCH" in (what_is_missing(environ) or "")


def test_installing_twice_changes_nothing(tmp_path: Path) -> None:
    environment = make_installation(tmp_path)
    before = environment.receipt_path.stat().st_mtime_ns
    said: list[str] = []

    install(tmp_path, said.append)

    assert said == [f"genai-bench {VERSION} is installed in {environment.root}"]
    assert environment.receipt_path.stat().st_mtime_ns == before


def test_an_installation_that_fails_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_installation(tmp_path, digest="another")
    failing = tmp_path / "uv"
    failing.write_text("#!/bin/sh\nexit 3\n")
    failing.chmod(0o755)
    monkeypatch.setattr("shared.benchmarks.genai_bench.install.find_uv", lambda: str(failing))

    with pytest.raises(InstallationFailed, match="exit 3"):
        install(tmp_path, lambda _: None)

    missing = what_is_missing({"GPUSTEWARD_TOOLS_DIR": str(tmp_path)})
    assert missing is not None
    assert "is not installed" in missing


def test_a_python_that_fits_is_found_where_there_is_one() -> None:
    python = fitting_python()

    assert python is None or Path(python).exists()
