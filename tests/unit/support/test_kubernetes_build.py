"""Building a control plane's programs, with a stand-in for Go."""

import threading
from pathlib import Path

import pytest

from tests.support.kubernetes.binaries import (
    HELM,
    PROGRAMS,
    directory,
    helm_directory,
    missing,
    missing_helm,
)
from tests.support.kubernetes.build import CannotBuild, build, main

# What it builds stands under the tests of Kubernetes, which are as long.
pytestmark = pytest.mark.long
# "Builds" a program that answers its version, and notes each build.
GO = r"""#!/bin/sh
[ "$1" = env ] && { echo "${FAKE_GO_VERSION:-go1.26.8}"; exit; }
while [ "$1" != -o ]; do shift; done
name=${2##*/}
echo "$name $GOTOOLCHAIN" >>"$FAKE_GO_LOG"
[ "$name" != "$FAKE_GO_FAILS" ] || exit 1
[ "$name" != "$FAKE_GO_HANGS" ] || exec sleep 60
printf '#!/bin/sh\necho 1.34.4 3.6.7 4.3.1 %s\n' "${FAKE_KWOK_VERSION:-0.7.0}" >"$2"
chmod +x "$2"
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the stand-in has built."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "go").write_text(GO)
    (programs / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_GO_LOG", str(tmp_path / "log"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "log"


def left_over() -> list[str]:
    return sorted(each.name for each in directory().parent.iterdir() if each.name != "lock")


def test_program_is_built_once_by_own_go(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reason = missing()
    assert reason is not None
    assert "python -m tests.support.kubernetes.build" in reason

    assert main([]) == 0
    assert main([]) == 0

    assert missing() is None
    assert missing_helm() is None
    assert sorted(log.read_text().splitlines()) == sorted(
        f"{name} local" for name in (*PROGRAMS, HELM)
    )
    assert left_over() == sorted([directory().name, helm_directory().name])
    assert "built kube-apiserver" in capsys.readouterr().out


def test_without_go_it_says_how_to_get_the_programs(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert main([]) == 1

    [line] = capsys.readouterr().err.splitlines()
    assert "Go 1.24 or newer, which is not on PATH" in line
    assert "KUBEBUILDER_ASSETS" in line


def test_an_old_go_is_named(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.19.8")

    with pytest.raises(CannotBuild, match=r"found go1\.19\.8"):
        build()


def test_failed_build_leaves_nothing(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_FAILS", "kwok")
    with pytest.raises(CannotBuild, match="`go build` of kwok failed with 1"):
        build()
    assert left_over() == []

    monkeypatch.delenv("FAKE_GO_FAILS")
    build()

    assert missing() is None


def test_chart_alone_needs_helm(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_FAILS", HELM)

    assert main([]) == 0

    assert missing() is None
    reason = missing_helm()
    assert reason is not None
    assert "python -m tests.support.kubernetes.build" in reason


def test_old_go_builds_all_but_helm(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.24.3")

    assert main([]) == 0

    assert missing() is None
    assert "expected Go 1.26 or newer, found go1.24.3" in capsys.readouterr().err


def test_a_build_that_hangs_is_given_up(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(iter(PROGRAMS))
    monkeypatch.setenv("FAKE_GO_HANGS", first)

    with pytest.raises(CannotBuild, match=f"{first} was not built in time"):
        build(within_seconds=1.0)


def test_a_program_of_another_version_is_refused(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KWOK_VERSION", "0.6.0")

    with pytest.raises(CannotBuild, match=r"expected kwok to be version 0\.7\.0"):
        build()
    assert left_over() == []


def test_two_runs_build_once(log: Path) -> None:
    # Each in a thread of its own, which outlives what it starts.
    runs = [threading.Thread(target=build) for _ in range(2)]
    for each in runs:
        each.start()
    for each in runs:
        each.join()

    assert len(log.read_text().splitlines()) == len(PROGRAMS)


def test_missing_given_programs_are_named(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for name in PROGRAMS[1:]:
        (given / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))

    reason = missing()
    assert reason is not None
    assert reason.endswith(f"which lacks {PROGRAMS[0]}")
    assert main([]) == 1
    (given / PROGRAMS[0]).touch(mode=0o755)
    assert missing() is None
